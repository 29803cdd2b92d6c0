"""From queries to answers: one way down, one way up, in either order of execution."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from vicinal.errors import PrivacyRefused
from vicinal.mechanisms import NoisyCount, Votes
from vicinal.neighbours import LEAST_COUNT, Neighbours, Radius
from vicinal.neighbours.integers import IntegerMatrix
from vicinal.predictors.planning import Pace
from vicinal.predictors.reuse import UNKNOWN, Memory, Support
from vicinal.predictors.shard import Shard, SharedShard

BLOCK = 256
"""Queries answered together. With a private count, larger blocks would spend every count of the
block before its first vote, and lose accuracy once budgets run out."""

Progress = Callable[[int], None]
FloatVotes = npt.NDArray[np.float64]
Places = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Answers:
    """What leaves for a batch of queries.

    Attributes
    ----------
    labels : int64 (q,)
        Positions of classes.
    votes : float64 (q, c) or None
        Noisy votes, where votes leave; NaN for queries that were not asked.
    asked : bool (q,)
        Whether private records were asked. Where not, the answer was made of earlier ones, for
        nothing.
    """

    labels: Places
    votes: FloatVotes | None
    asked: npt.NDArray[np.bool_]

    @classmethod
    def joined(cls, parts: Sequence[Answers]) -> Answers:
        """Return the answers to consecutive queries as one."""
        votes = [part.votes for part in parts if part.votes is not None]
        return cls(
            np.concatenate([part.labels for part in parts]),
            np.concatenate(votes) if votes else None,
            np.concatenate([part.asked for part in parts]),
        )


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
    shard : Shard or SharedShard
        The private records and the account that answers are charged to.
    radius : Radius
        Which records take part.
    votes : Votes
        The mechanism whose noisy votes, or labels, are the answer.
    count : NoisyCount or None
        The paper's private count; None if counts are public estimates.
    pace : Pace
        sigma2 of every block: the noise scale is sigma2 sqrt(K) votes at a count of K.
    memory : Memory
        What earlier answers do for later queries.
    turn : Turn
        Held by whoever touches the records or their budgets.
    """

    shard: Shard | SharedShard
    radius: Radius
    votes: Votes
    count: NoisyCount | None
    pace: Pace
    memory: Memory
    turn: Turn = field(default_factory=Turn)

    def answer(
        self, queries: IntegerMatrix, *, sequential: bool, progress: Progress | None = None
    ) -> Answers:
        """Answer all queries, a block at a time; the memory learns between blocks."""
        parts = []
        for start in range(0, len(queries), self.memory.block):
            block = queries[start : start + self.memory.block]
            parts.append(self._answer_block(block, sequential=sequential))
            if progress is not None:
                progress(len(block))
        return Answers.joined(parts)

    def _answer_block(self, block: IntegerMatrix, *, sequential: bool) -> Answers:
        labels = self.memory.known(block)
        asked = labels == UNKNOWN
        votes = self._ask(block[asked], sequential=sequential)
        self.pace.passed(len(block), int(asked.sum()))
        everything = None
        if self.votes.label_only:
            labels[asked] = votes
        else:
            labels[asked] = votes.argmax(axis=1)
            everything = np.full((len(block), self.votes.n_classes), np.nan)
            everything[asked] = votes
        self.memory.learn(block[asked], labels[asked])
        return Answers(labels, everything, asked)

    def _ask(self, block: IntegerMatrix, *, sequential: bool) -> npt.NDArray[Any]:
        """Return what the mechanism releases: votes (q, c), or positions of labels (q,)."""
        if not len(block):
            return np.zeros((0,) if self.votes.label_only else (0, self.votes.n_classes))
        thresholds = self.radius.thresholds(block)
        support = self.memory.support(block, thresholds)
        if self.count is None:
            parts = self.shard.parts(block, thresholds)
            return self._release(parts, self.radius.expected(block), support)
        if not sequential:
            return self._release_counted(self.shard.search(block, thresholds), support)
        alone = (
            near.one(j) for near in self.shard.parts(block, thresholds) for j in range(len(near))
        )
        released = [
            self._release_counted(near, support and support.of(slice(j, j + 1)))
            for j, near in enumerate(alone)
        ]
        return np.concatenate(released)

    def _release_counted(self, near: Neighbours, support: Support | None) -> npt.NDArray[Any]:
        """Release the private counts of queries, then their votes, from those who paid for both.

        All counts come before the first vote. So a block must not be split to save memory, as
        :meth:`_release` does: the split follows from private counts, and would change who can pay.
        """
        assert self.count is not None  # noqa: S101 (narrows the type; the only caller checks it)
        sums, part, spent = self.count.collect(near, self.shard.people)
        self.shard.ledger.record(spent)
        counts = np.maximum(self.count.publish(sums), LEAST_COUNT)
        return self._release(iter([near.keep(part)]), counts, support)

    def _release(
        self, parts: Iterator[Neighbours], counts: npt.NDArray[np.float64], support: Support | None
    ) -> npt.NDArray[Any]:
        """Make one release for all queries; charge part after part, add the noise once.

        How the shard cuts a block into parts follows from private counts, and decides nothing: the
        release is priced, and refused, as a whole, and with known counts no contribution depends
        on the order of subjects.
        """
        known = counts if support is None else counts + support.counts
        release = self.votes.release(self.pace.multiplier * np.sqrt(known))
        sums = np.zeros((len(counts), self.votes.n_classes), dtype=np.int64)
        start = 0
        for near in parts:
            part = slice(start, start + len(near))
            sums[part], spent = release.of(part).collect(near, self.shard.people)
            self.shard.ledger.record(spent)
            start += len(near)
        return release.publish(sums if support is None else sums + support.votes)
