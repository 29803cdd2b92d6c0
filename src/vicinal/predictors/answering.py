"""From queries to noisy votes: one way down, one way up, in either order of execution."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from vicinal.errors import PrivacyRefused
from vicinal.mechanisms import NoisyCount, Votes
from vicinal.neighbours import LEAST_COUNT, Neighbours, Radius
from vicinal.neighbours.integers import FloatMatrix
from vicinal.predictors.shard import Shard

BLOCK = 256
"""Queries answered together. With a private count, larger blocks would spend every count of the
block before its first vote, and lose accuracy once budgets run out."""

Progress = Callable[[int], None]
Answers = npt.NDArray[Any]
"""Noisy votes, float64 (q, c), or positions of labels, int64 (q,): what the mechanism releases."""


class Turn:
    """One thread of one process at a time: ``with turn: ...``.

    A forked process has a copy of all budgets, which it could spend once more; it gets no turn.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._process = os.getpid()

    def __enter__(self) -> None:
        """Wait for the turn, or refuse it to a fork."""
        if os.getpid() != self._process:
            raise PrivacyRefused(
                "A forked process holds a copy of the budgets and could spend them again. Use the "
                "classifier in the process that fitted it, or fit it in this one."
            )
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        """Pass the turn on."""
        self._lock.release()


@dataclass(frozen=True, slots=True)
class Engine:
    """Everything that a fitted classifier answers with; scales and radii are public.

    Attributes
    ----------
    shard : Shard
        The private records and their ledger.
    radius : Radius
        Which records take part.
    votes : Votes
        The mechanism whose noisy votes, or labels, are the answer.
    count : NoisyCount or None
        The paper's private count; None if counts are public estimates.
    multiplier : float
        sigma2: the noise scale is sigma2 sqrt(K) votes at a count of K.
    turn : Turn
        Held by whoever touches the records or their budgets.
    """

    shard: Shard
    radius: Radius
    votes: Votes
    count: NoisyCount | None
    multiplier: float
    turn: Turn = field(default_factory=Turn)

    def answer(
        self, queries: FloatMatrix, *, sequential: bool, progress: Progress | None = None
    ) -> Answers:
        """Return what the mechanism releases for each query."""
        blocks = []
        for start in range(0, len(queries), BLOCK):
            block = queries[start : start + BLOCK]
            blocks.append(self._answer_block(block, sequential=sequential))
            if progress is not None:
                progress(len(block))
        return np.concatenate(blocks)

    def _answer_block(self, block: FloatMatrix, *, sequential: bool) -> Answers:
        near = self.shard.search(block, self.radius.thresholds(block))
        expected = self.radius.expected(block) if self.count is None else None
        if not sequential:
            return self._release(near, expected)
        parts = [
            self._release(near.one(j), None if expected is None else expected[j : j + 1])
            for j in range(len(near))
        ]
        return np.concatenate(parts)

    def _release(self, near: Neighbours, counts: npt.NDArray[np.float64] | None) -> Answers:
        """Charge, then publish, the answers; first their counts if those are private."""
        if counts is None:
            near, counts = self._release_counts(near)
        release = self.votes.release(self.multiplier * np.sqrt(counts))
        sums, spent = release.collect(near, self.shard.people)
        self.shard.ledger.record(spent)
        return release.publish(sums)

    def _release_counts(self, near: Neighbours) -> tuple[Neighbours, npt.NDArray[np.float64]]:
        assert self.count is not None  # noqa: S101 (narrows the type; the only caller checks it)
        sums, part, spent = self.count.collect(near, self.shard.people)
        self.shard.ledger.record(spent)
        noisy = self.count.publish(sums)
        return near.keep(part), np.maximum(noisy, LEAST_COUNT)
