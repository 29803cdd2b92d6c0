"""When a running coordinator gives up a copy of a shard: it fails while the other one answers.

Proof note: docs/decisions/0138-takeover-while-running.md. A copy is given up only if

- it fell silent, or said that it is damaged, for the stated time, and was asked again meanwhile;
- the other one answered the same messages;
- both have answered this opening of the coordinator. So of a coordinator and a copy of it at most
  one can go on: whichever opened last is obeyed by both copies, and the other one by neither.

A copy that says that it, or the coordinator, is old is no such failure: somebody put a folder back,
and a person decides.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

from vicinal.distributed._transport import PendingReply
from vicinal.errors import ShardUnreachable, StoreDamaged, VicinalError

COPY_FAILURES = (ShardUnreachable, StoreDamaged)
"""What a copy can be given up for."""

_SLICE = 0.05
"""Seconds of waiting for one copy before the other is looked at."""


@dataclass(slots=True, eq=False)
class Takeover:
    """Decides when one of two copies of a shard is given up: by calling `give_up` with its place.

    `seconds`: how long it may fail while the other one answers.
    """

    seconds: float
    give_up: Callable[[int], None]
    _all_answered: bool = False
    _failing: dict[int, float] = field(default_factory=dict)

    def note_all(self) -> None:
        """Note that all copies have answered one message."""
        self._all_answered = True
        self._failing.clear()

    def may_wait(self, failed: Collection[int], copies: int) -> bool:
        """Tell whether copies that failed may be given up later: not if all did."""
        if len(failed) == copies:
            self._failing.clear()
        return self._all_answered and len(failed) < copies

    def note_failures(self, failed: Collection[int], since: float) -> None:
        """Note which copies failed, `since` when the other one is known to have answered.

        Raises ShardUnreachable once a copy was given up: the other one is asked again.
        """
        self._failing = {place: self._failing.get(place, since) for place in failed}
        place, first = min(self._failing.items(), key=lambda one: one[1])
        # What failed once was not asked again yet.
        if first < since and time.monotonic() - first >= self.seconds:
            self._failing.clear()
            self.give_up(place)
            raise ShardUnreachable("One of its copies was given up.")


@dataclass(slots=True)
class CopyOutcomes:
    """What each copy of a shard sent to one message, or the error that it raised.

    `answered_at`: when the first answer was seen.
    """

    values: list[Any]
    answered_at: float = math.inf

    @property
    def errors(self) -> dict[int, VicinalError]:
        """What went wrong, by place."""
        return {n: one for n, one in enumerate(self.values) if isinstance(one, VicinalError)}


def outcomes_of(
    replies: Sequence[PendingReply], sent: float, seconds: float, lag: float, *, long: bool
) -> CopyOutcomes:
    """Wait `seconds` for all copies; once one has answered, for the others `lag` more at most.

    The message was `sent` then. `long`: whether the task may take so long that copies differ by as
    much as it takes.
    """
    outcomes = CopyOutcomes([None] * len(replies))
    entered, waiting = time.monotonic(), list(range(len(replies)))
    until = entered + seconds
    while waiting:
        for place in list(waiting):
            began = time.monotonic()
            wait = max(0.0, min(until - began, math.inf if len(waiting) == 1 else _SLICE))
            one = _outcome(replies[place], wait)
            now = time.monotonic()
            if _is_silence(one) and now < until and now - began > wait / 2:
                continue
            waiting.remove(place)
            outcomes.values[place] = one
            if not isinstance(one, VicinalError) and outcomes.answered_at == math.inf:
                # An answer that was there before anybody looked came at any time since then.
                early = not long and now - entered < _SLICE
                outcomes.answered_at = sent if early else now
                until = min(until, max(now + _SLICE, _latest(outcomes.answered_at, sent, lag)))
    return outcomes


def _latest(answered: float, sent: float, lag: float) -> float:
    """Return until when the other copy may answer: as late again as the first, or by `lag`."""
    return answered + max(lag, answered - sent)


def _outcome(reply: PendingReply, seconds: float) -> Any:
    try:
        return reply.result(seconds)
    except VicinalError as error:
        return error


def _is_silence(outcome: object) -> bool:
    """Tell whether a copy may still answer: it is not known to be out of reach."""
    return isinstance(outcome, ShardUnreachable) and not str(outcome)
