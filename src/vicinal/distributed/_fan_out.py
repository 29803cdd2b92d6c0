"""One task for every shard, and what comes back: waiting, asking again, and giving up.

A task may be sent as often as one likes: a shard carries out an order, or a change, once.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from vicinal import _checks
from vicinal.distributed._tasks import Task
from vicinal.errors import StorageFailed

_PAUSE = 0.02
"""Seconds between two attempts at a shard that is gone."""


class ShardUnreachable(Exception):
    """A shard cannot be heard at present; it may have done its task, or not.

    Its message says why in public words, or nothing.
    """


class ShardMissing(StorageFailed):
    """A shard stayed away, so a block was refused; whoever was charged for it stays charged.

    The same queries, asked again before others, are charged no second time. A change of the data
    that was decided is finished by the next call.
    """


class PendingReply(Protocol):
    """A task under way."""

    def result(self, seconds: float) -> Any:
        """Return what the shard sends within so many seconds, or raise ShardUnreachable.

        What the shard refuses is raised as it was raised there.
        """


class ShardTransport(Protocol):
    """The way to one shard."""

    def send(self, task: Task) -> PendingReply:
        """Send a task without waiting."""

    def settle(self, turn: int) -> None:
        """Tell the shard, without waiting, that all answers before `turn` are durable."""

    def close(self) -> None:
        """Let go of the shard."""


@dataclass(frozen=True, slots=True)
class MissingShardPolicy:
    """The operator's public policy for shards that cannot be heard.

    Attributes
    ----------
    deadline : float
        Seconds that a block waits for all shards.
    answer_without : bool
        Whether it is then answered from the others, which the answer says; else it is refused.
    """

    deadline: float = 30.0
    answer_without: bool = False

    def __post_init__(self) -> None:
        _checks.real("deadline", self.deadline, above=0)
        _checks.boolean("answer_without", self.answer_without)


@dataclass(slots=True)
class RetriedTask:
    """One shard's task: asked again whenever the shard falls silent.

    Attributes
    ----------
    link, task
        Who is to do what.
    reason : str
        Why the shard was silent last, in public words; empty if it only took too long.
    """

    link: ShardTransport
    task: Task
    reason: str = ""
    _pending: PendingReply | None = None

    def send(self) -> None:
        """Send the task for the first time."""
        self._pending = self.link.send(self.task)

    def result(self, until: float, work: float) -> tuple[Any, bool]:
        """Return what the shard sends until then, and whether it did.

        Each time it was asked it may take `work` seconds, if that is longer.
        """
        while True:
            left = until - time.monotonic()
            try:
                return (self._pending or self.link.send(self.task)).result(max(left, work)), True
            except ShardUnreachable as silence:
                self._pending, self.reason = None, str(silence) or self.reason
            if left <= _PAUSE:
                return None, False
            time.sleep(_PAUSE)


def gather(
    links: Mapping[int, ShardTransport],
    task: Task | Sequence[Task],
    absence: MissingShardPolicy,
    work: float = 0.0,
) -> dict[int, Any]:
    """Send shards their tasks and return what came back, by shard.

    Parameters
    ----------
    links : mapping of int to ShardTransport
        The shards by number.
    task : Task, or one for every shard
        What they are to do.
    absence : MissingShardPolicy
        How long to wait, and for whom.
    work : float
        Seconds that a shard that can be heard may take, if that is longer.

    Raises
    ------
    ShardMissing
        If a shard is missing and the policy is to refuse, or if all are. It says which, and why.
    """
    tasks = task if isinstance(task, Sequence) else [task] * len(links)
    until = time.monotonic() + absence.deadline
    waiting = {
        number: RetriedTask(link, its)
        for (number, link), its in zip(links.items(), tasks, strict=True)
    }
    for one in waiting.values():
        one.send()
    results = {number: one.result(until, work) for number, one in waiting.items()}
    found = {number: result for number, (result, came) in results.items() if came}
    missing = {number: waiting[number].reason for number in waiting if number not in found}
    if missing and (not absence.answer_without or not found):
        raise ShardMissing(_told(missing, len(waiting), absence))
    return found


def _told(missing: Mapping[int, str], shards: int, absence: MissingShardPolicy) -> str:
    """Return in public words which shards are missing, and why."""
    why = " ".join(
        f"Shard {number}: {reason or 'No answer in time.'}" for number, reason in missing.items()
    )
    return (
        f"{len(missing)} of {shards} shards did not come back within {absence.deadline:g} seconds, "
        f"so nothing is answered. Ask again once they are there. {why}"
    )
