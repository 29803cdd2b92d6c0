"""One task for every shard, and what comes back: waiting, sending again, and giving up."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from vicinal import _checks
from vicinal.distributed._membership import ShardRecord
from vicinal.distributed._messages import Message, ShardState, Task
from vicinal.distributed._transports import PendingReply, Transport
from vicinal.errors import ShardDamaged, ShardMissing, ShardUnreachable, StoreDamaged

_PAUSE = 0.02
"""Seconds between two attempts at a shard that cannot be reached."""


@dataclass(frozen=True, slots=True)
class MissingShardPolicy:
    """The operator's public policy for shards that cannot be reached.

    Attributes
    ----------
    deadline : float
        Seconds that a block waits for all shards.
    answer_without : bool
        Whether it is then answered from the others, which the answer says; else it is refused.

    Examples
    --------
    >>> from vicinal.distributed import MissingShardPolicy
    >>> MissingShardPolicy(deadline=5.0, answer_without=True).deadline
    5.0
    """

    deadline: float = 30.0
    answer_without: bool = False

    def __post_init__(self) -> None:
        _checks.real("deadline", self.deadline, above=0)
        _checks.boolean("answer_without", self.answer_without)


@dataclass(slots=True, eq=False)
class ShardClient:
    """One shard as the coordinator asks it: messages and answers are checked on both sides.

    - `transport`: the way to it.
    - `record`: what is known of it.
    - `cluster`: the cluster's id.
    - `clock`: returns the coordinator's clock.
    """

    transport: Transport
    record: ShardRecord
    cluster: str
    clock: Callable[[], int]

    def message(self, task: Task) -> Message:
        """Return a task in a message for this shard as it was seen last."""
        one = self.record
        return Message(
            task, self.cluster, one.identity, one.number, self.clock(), one.epochs, one.state
        )

    def send(self, task: Task) -> Callable[[float], Any]:
        """Send a task, without waiting; what is returned waits for what comes of it.

        Called with seconds, it raises what the shard refuses; ShardUnreachable; or StoreOutdated if
        another shard has answered.
        """
        message = self.message(task)
        return partial(self._received, message.known, self.transport.send(message))

    def _received(self, known: ShardState, reply: PendingReply, seconds: float) -> Any:
        answer = reply.result(seconds)
        self.record.accept(known, answer.links)
        return answer.value


@dataclass(slots=True)
class RetriedTask:
    """One shard's task, sent again whenever the shard cannot be reached.

    - `shard`, `task`: who is to do what.
    - `reason`: why the shard was last unreachable, in public words; empty if it only took too long.
    - `is_damaged`: whether asking it again is no help.
    - `has_answered`: whether it has sent `value`.
    """

    shard: ShardClient
    task: Task
    reason: str = ""
    is_damaged: bool = False
    has_answered: bool = False
    value: Any = None
    _received: Callable[[float], Any] | None = None

    def send(self) -> None:
        """Send the task, for the first time or again."""
        self._received = self.shard.send(self.task)

    def attempt(self, seconds: float) -> bool:
        """Wait for what was sent last; return whether there is nothing more to wait for."""
        assert self._received is not None  # noqa: S101 (it was sent)
        try:
            self.value, self.has_answered = self._received(seconds), True
        except ShardUnreachable as error:
            self.reason = str(error) or self.reason
        except StoreDamaged as error:
            self.reason, self.is_damaged = str(error), True
        return self.has_answered or self.is_damaged


def gather(
    shards: Mapping[int, ShardClient],
    task: Task | Sequence[Task],
    policy: MissingShardPolicy,
    *,
    work: float = 0.0,
    meanwhile: Callable[[], None] | None = None,
) -> dict[int, Any]:
    """Send shards their tasks and return what came back, by shard.

    A task may be sent again without harm: a shard charges a block once and makes a change once.

    - `task`: the same for all, or one for each.
    - `work`: seconds that a shard within reach may take, if that is longer than the policy's.
    - `meanwhile`: what is done while shards are at work.

    Raises ShardMissing if a shard is missing and the policy is to refuse, or if all are. It says
    which, and why. ShardDamaged if one is damaged, for which nobody waits.
    """
    tasks = task if isinstance(task, Sequence) else [task] * len(shards)
    until = time.monotonic() + policy.deadline
    waiting = {
        number: RetriedTask(shard, its)
        for (number, shard), its in zip(shards.items(), tasks, strict=True)
    }
    for one in waiting.values():
        one.send()
    if meanwhile is not None:
        meanwhile()
    pending = list(waiting.values())
    while True:
        # Those that cannot be reached are asked again in turn: none waits for another one's end.
        last = until - time.monotonic() <= _PAUSE
        pending = [one for one in pending if not one.attempt(max(until - time.monotonic(), work))]
        if last or not pending:
            break
        time.sleep(_PAUSE)
        for one in pending:
            one.send()
    missing = {number: one for number, one in waiting.items() if not one.has_answered}
    if missing and not (policy.answer_without and len(missing) < len(waiting)):
        raise _refusal(missing, len(waiting), policy)
    return {number: one.value for number, one in waiting.items() if one.has_answered}


def _refusal(
    missing: Mapping[int, RetriedTask], shards: int, policy: MissingShardPolicy
) -> ShardMissing:
    """Return in public words which shards are missing, and why."""
    why = " ".join(
        f"Shard {number}: {one.reason or 'No answer in time.'}" for number, one in missing.items()
    )
    if any(one.is_damaged for one in missing.values()):
        return ShardDamaged(f"{why} Nothing is answered until that is mended.")
    return ShardMissing(
        f"{len(missing)} of {shards} shards did not come back within {policy.deadline:g} seconds, "
        f"so nothing is answered. Ask again once they are there. {why}"
    )
