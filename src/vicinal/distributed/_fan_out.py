"""One task for every shard, and what comes back: waiting, sending again, and giving up."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from vicinal import _checks
from vicinal.distributed._membership import ShardRecord
from vicinal.distributed._messages import (
    CHARGES_AND_CHANGES,
    Message,
    ReadLedger,
    ReplaceLedger,
    ShardAnswer,
    SumRequest,
    Task,
)
from vicinal.distributed._transport import PendingReply, ShardTransport
from vicinal.errors import (
    ShardDamaged,
    ShardMissing,
    ShardUnreachable,
    StoreDamaged,
    StoreOutdated,
)

_PAUSE = 0.02
"""Seconds between two attempts at a shard that cannot be reached."""

_COPYING = 3600.0
"""Seconds that a copy of a shard may take to give, or to take over, a ledger."""


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
class CheckedTransport:
    """The ways to all copies of a shard, whose messages and answers are checked on both sides.

    A charge or a change is done once all copies have done it and have one chain. Until then nothing
    that it gave is used: what only some of them have done was paid for nothing, and is asked again.

    - `transports`: the way to every copy.
    - `record`: what is known of the shard.
    - `cluster`: the cluster's id.
    - `clock`: returns the coordinator's clock.
    """

    transports: Sequence[ShardTransport]
    record: ShardRecord
    cluster: str
    clock: Callable[[], int]

    def message(self, task: Task) -> Message:
        """Return a task in a message for this shard as it was seen last."""
        one = self.record
        return Message(
            task, self.cluster, one.identity, one.number, self.clock(), one.epochs, one.state
        )

    def send(self, task: Task) -> CheckedReply:
        """Send a task in a message to all copies, without waiting."""
        message = self.message(task)
        return CheckedReply(self, message, [one.send(message) for one in self.transports])

    def close(self) -> None:
        """Let go of the shard."""
        for transport in self.transports:
            transport.close()

    def copy(self, place: int) -> CopyTransport:
        """Return the way to one copy, for tasks that change nothing."""
        return CopyTransport(self, place)

    def answer_of(self, place: int, reply: PendingReply, seconds: float) -> ShardAnswer:
        """Return what a copy answers, or raise what it raised, with the copy's number."""
        try:
            answer: ShardAnswer = reply.result(seconds)
        except (ShardUnreachable, StoreDamaged, StoreOutdated) as error:
            if len(self.transports) == 1:
                raise
            raise type(error)(f"{error} {self._which(place)}".strip()) from None
        return answer

    def _which(self, place: int) -> str:
        """Say which copy it is, and how to do without it."""
        number = self.record.number
        this, other = self.record.copies[place], self.record.copies[1 - place]
        return (
            f"This is copy {this} of shard {number}. If it is gone for good, close the cluster and "
            f"go on with the other: vicinal promote-copy CLUSTER --shard {number} --copy {other}."
        )

    def align(self, source: int) -> None:
        """Give all copies the ledger of one of them; all were where the coordinator saw them."""
        known = self.record.state
        rows = self._done(source, ReadLedger(known)).value
        for place in range(len(self.transports)):
            if place != source:
                self._done(place, ReplaceLedger(known, rows))

    def _done(self, place: int, task: Task) -> ShardAnswer:
        reply = self.transports[place].send(self.message(task))
        return self.answer_of(place, reply, _COPYING)


@dataclass(frozen=True, slots=True)
class CheckedReply:
    """A message under way to all copies of a shard."""

    shard: CheckedTransport
    message: Message
    replies: Sequence[PendingReply]

    def result(self, seconds: float) -> Any:
        """Return what came of the task.

        Raises StoreOutdated if another shard has done it. Raises ShardUnreachable if the copies
        went different ways: they have been made the same, to be asked again. Raises StoreDamaged if
        copies that are the same gave different sums.
        """
        until = time.monotonic() + seconds
        answers = [
            self.shard.answer_of(place, reply, max(0.0, until - time.monotonic()))
            for place, reply in enumerate(self.replies)
        ]
        links = [answer.links for answer in answers]
        agree = self.shard.record.accept(self.message.known, *links)
        if isinstance(self.message.task, CHARGES_AND_CHANGES) and not agree:
            self.shard.align(max(range(len(links)), key=lambda place: len(links[place])))
            raise ShardUnreachable("Its copies differed, and are the same now.")
        first, *others = [answer.value for answer in answers]
        if isinstance(self.message.task, SumRequest) and not all(
            np.array_equal(first, other) for other in others
        ):
            raise StoreDamaged(
                "Its copies gave different sums. Verify the cluster, and go on with the copy that "
                "is right: vicinal promote-copy"
            )
        return first


@dataclass(frozen=True, slots=True)
class CopyTransport:
    """The way to one copy of a shard; what it answers says nothing of how far the others are."""

    shard: CheckedTransport
    place: int

    def send(self, task: Task) -> CopyReply:
        """Send a task that changes nothing, without waiting."""
        message = self.shard.message(task)
        return CopyReply(self, self.shard.transports[self.place].send(message))


@dataclass(frozen=True, slots=True)
class CopyReply:
    """A message under way to one copy."""

    copy: CopyTransport
    reply: PendingReply

    def result(self, seconds: float) -> Any:
        """Return what came of the task."""
        return self.copy.shard.answer_of(self.copy.place, self.reply, seconds).value


TaskTransport = ShardTransport | CheckedTransport | CopyTransport
"""A way that tasks take: checked, or plain for tasks that need no message."""


@dataclass(slots=True)
class RetriedTask:
    """One shard's task, sent again whenever the shard cannot be reached.

    - `shard`, `task`: who is to do what.
    - `reason`: why the shard was last unreachable, in public words; empty if it only took too long.
    - `is_damaged`: whether asking it again is no help.
    """

    shard: TaskTransport
    task: Task
    reason: str = ""
    is_damaged: bool = False
    _pending: PendingReply | None = None

    def send(self) -> None:
        """Send the task for the first time."""
        self._pending = self.shard.send(self.task)

    def result(self, until: float, work: float) -> tuple[Any, bool]:
        """Return what the shard sends until then, and whether it did.

        Each time it is sent it may take `work` seconds, if that is longer.
        """
        while True:
            remaining = until - time.monotonic()
            try:
                return (self._pending or self.shard.send(self.task)).result(
                    max(remaining, work)
                ), True
            except ShardUnreachable as error:
                self._pending, self.reason = None, str(error) or self.reason
            except StoreDamaged as error:
                self.reason, self.is_damaged = str(error), True
                return None, False
            if remaining <= _PAUSE:
                return None, False
            time.sleep(_PAUSE)


def gather(
    shards: Mapping[int, TaskTransport],
    task: Task | Sequence[Task],
    policy: MissingShardPolicy,
    work: float = 0.0,
) -> dict[int, Any]:
    """Send shards their tasks and return what came back, by shard.

    - `shards`: the shards by number.
    - `task`: what they are to do.
    - `policy`: how long to wait, and for whom.
    - `work`: seconds that a shard that can be reached may take, if that is longer.

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
    return results_of(waiting, until, work, policy)


def results_of(
    waiting: Mapping[int, RetriedTask],
    until: float,
    work: float,
    policy: MissingShardPolicy,
    others: int = 0,
) -> dict[int, Any]:
    """Return what comes of tasks that were sent, by shard; see :func:`gather`.

    `others` is how many shards have answered besides.
    """
    results = {number: one.result(until, work) for number, one in waiting.items()}
    answered = {number: result for number, (result, came) in results.items() if came}
    missing = {number: waiting[number] for number in waiting if number not in answered}
    if missing and (not policy.answer_without or not (answered or others)):
        raise _refusal(missing, len(waiting) + others, policy)
    return answered


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
