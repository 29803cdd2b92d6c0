"""One task for every shard, and what comes back: waiting, sending again, and giving up."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from vicinal import _checks
from vicinal.distributed._membership import ShardRecord
from vicinal.distributed._messages import (
    CHANGES,
    CHARGES_AND_CHANGES,
    Message,
    ReadLedger,
    ReplaceLedger,
    ShardAnswer,
    SumRequest,
    Task,
)
from vicinal.distributed._takeover import COPY_FAILURES, CopyOutcomes, Takeover, outcomes_of
from vicinal.distributed._transport import PendingReply, ShardTransport
from vicinal.errors import (
    InvalidInput,
    ShardDamaged,
    ShardMissing,
    ShardUnreachable,
    StoreDamaged,
    StoreOutdated,
    VicinalError,
)

_PAUSE = 0.02
"""Seconds between two attempts at a shard that cannot be reached."""

_COPYING = 3600.0
"""Seconds that a copy of a shard may take to give, or to take over, a ledger."""

_SLOWER = 10
"""How many times as long as giving a ledger taking it over may take, before a copy is silent."""


@dataclass(frozen=True, slots=True)
class MissingShardPolicy:
    """The operator's public policy for shards that cannot be reached.

    Attributes
    ----------
    deadline : float
        Seconds that a block waits for all shards.
    answer_without : bool
        Whether it is then answered from the others, which the answer says; else it is refused.
    takeover_s : float, optional
        Seconds that one of two copies of a shard may be away, or damaged, while the other one
        answers; then it is given up for good, and the other one goes on alone. Less than the
        deadline, so that a block that finds a copy away is answered. None: a person decides.

    Examples
    --------
    >>> from vicinal.distributed import MissingShardPolicy
    >>> MissingShardPolicy(deadline=5.0, answer_without=True).deadline
    5.0
    """

    deadline: float = 30.0
    answer_without: bool = False
    takeover_s: float | None = None

    def __post_init__(self) -> None:
        _checks.real("deadline", self.deadline, above=0)
        _checks.boolean("answer_without", self.answer_without)
        if self.takeover_s is not None:
            _checks.real("takeover_s", self.takeover_s, above=0)
            if self.takeover_s >= self.deadline:
                raise InvalidInput(
                    "The 'takeover_s' parameter must be below the 'deadline' parameter, "
                    f"{self.deadline:g}. Got {self.takeover_s:g}."
                )


@dataclass(slots=True, eq=False)
class CheckedTransport:
    """The ways to all copies of a shard, whose messages and answers are checked on both sides.

    A charge or a change is done once all copies have done it and have one chain. Until then nothing
    that it gave is used: what only some of them have done was paid for nothing, and is asked again.

    - `transports`: the way to every copy.
    - `record`: what is known of the shard.
    - `cluster`: the cluster's id.
    - `clock`: returns the coordinator's clock.
    - `takeover`: gives up a copy that fails while the other one answers.
    """

    transports: Sequence[ShardTransport]
    record: ShardRecord
    cluster: str
    clock: Callable[[], int]
    takeover: Takeover | None = None

    @property
    def lag(self) -> float:
        """Seconds that a copy may answer later than the other, before it is asked again."""
        return math.inf if self.takeover is None else self.takeover.seconds / 2

    def message(self, task: Task) -> Message:
        """Return a task in a message for this shard as it was seen last."""
        one = self.record
        return Message(
            task, self.cluster, one.identity, one.number, self.clock(), one.epochs, one.state
        )

    def send(self, task: Task) -> CheckedReply:
        """Send a task in a message to all copies, without waiting."""
        message, now = self.message(task), time.monotonic()
        return CheckedReply(self, message, [one.send(message) for one in self.transports], now)

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
        except VicinalError as error:
            raise self._named(place, error) from None
        return answer

    def note_all(self) -> None:
        """Note that all copies have answered, and were where the shard was seen."""
        if self.takeover is not None:
            self.takeover.note_all()

    def check(self, outcomes: CopyOutcomes) -> None:
        """Raise what went wrong with a copy, if anything did; give it up if it is time."""
        errors = outcomes.errors
        if not errors:
            return
        named = [self._named(place, error) for place, error in errors.items()]
        refusals = [one for one in named if not isinstance(one, COPY_FAILURES)]
        takeover = self.takeover
        if refusals or takeover is None or not takeover.may_wait(errors, len(self.transports)):
            raise (refusals or named)[0]
        takeover.note_failures(errors, outcomes.answered_at)
        raise ShardUnreachable(str(named[0]))

    def _named(self, place: int, error: VicinalError) -> VicinalError:
        """Return what a copy raised, with the copy's number, and how to do without it."""
        if len(self.transports) == 1 or not isinstance(error, (*COPY_FAILURES, StoreOutdated)):
            return error
        number = self.record.number
        this, other = self.record.copies[place], self.record.copies[1 - place]
        return type(error)(
            f"{error} This is copy {this} of shard {number}. If it is gone for good, close the "
            "cluster and go on with the other: "
            f"vicinal promote-copy CLUSTER --shard {number} --copy {other}.".strip()
        )

    def align(self, source: int) -> None:
        """Give all copies the ledger of one of them; all were where the coordinator saw them."""
        known, began = self.record.state, time.monotonic()
        rows = self._done(source, ReadLedger(known)).value
        patience = _SLOWER * (time.monotonic() - began)
        seconds = min(_COPYING, max(2 * self.lag, patience))
        for place in range(len(self.transports)):
            if place != source:
                self._done(place, ReplaceLedger(known, rows), seconds)

    def _done(self, place: int, task: Task, seconds: float = _COPYING) -> ShardAnswer:
        reply = self.transports[place].send(self.message(task))
        return self.answer_of(place, reply, seconds)


@dataclass(frozen=True, slots=True)
class CheckedReply:
    """A message under way to all copies of a shard."""

    shard: CheckedTransport
    message: Message
    replies: Sequence[PendingReply]
    sent: float

    def result(self, seconds: float) -> Any:
        """Return what came of the task.

        Raises StoreOutdated if another shard has done it. Raises ShardUnreachable if the copies
        went different ways: they have been made the same, to be asked again; or if one is away, for
        which the other waits, or was given up. Raises StoreDamaged if copies that are the same gave
        different sums.
        """
        shard, long = self.shard, isinstance(self.message.task, CHANGES)
        outcomes = outcomes_of(self.replies, self.sent, seconds, shard.lag, long=long)
        shard.check(outcomes)
        answers: list[ShardAnswer] = outcomes.values
        links = [answer.links for answer in answers]
        agree = shard.record.accept(self.message.known, *links)
        shard.note_all()
        if isinstance(self.message.task, CHARGES_AND_CHANGES) and not agree:
            shard.align(max(range(len(links)), key=lambda place: len(links[place])))
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
    - `has_answered`: whether it has sent `value`.
    """

    shard: TaskTransport
    task: Task
    reason: str = ""
    is_damaged: bool = False
    has_answered: bool = False
    value: Any = None
    _pending: PendingReply | None = None

    def send(self) -> None:
        """Send the task, for the first time or again."""
        self._pending = self.shard.send(self.task)

    def attempt(self, seconds: float) -> bool:
        """Wait for what was sent last; return whether there is nothing more to wait for."""
        assert self._pending is not None  # noqa: S101 (it was sent)
        try:
            self.value, self.has_answered = self._pending.result(seconds), True
        except ShardUnreachable as error:
            self.reason = str(error) or self.reason
        except StoreDamaged as error:
            self.reason, self.is_damaged = str(error), True
        return self.has_answered or self.is_damaged


def gather(
    shards: Mapping[int, TaskTransport],
    task: Task | Sequence[Task],
    policy: MissingShardPolicy,
    work: float = 0.0,
) -> dict[int, Any]:
    """Send shards their tasks and return what came back, by shard.

    `work`: seconds that a shard that can be reached may take, if that is longer than the policy's.
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

    Shards that cannot be reached are asked again in turn, so that none waits for another one's
    end. `others` is how many shards have answered besides.
    """
    pending = list(waiting.values())
    while True:
        last = until - time.monotonic() <= _PAUSE
        pending = [one for one in pending if not one.attempt(_seconds(until, work))]
        if last or not pending:
            break
        time.sleep(_PAUSE)
        for one in pending:
            one.send()
    answered = {number: one.value for number, one in waiting.items() if one.has_answered}
    missing = {number: waiting[number] for number in waiting if number not in answered}
    if missing and (not policy.answer_without or not (answered or others)):
        raise _refusal(missing, len(waiting) + others, policy)
    return answered


def _seconds(until: float, work: float) -> float:
    return max(until - time.monotonic(), work)


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
