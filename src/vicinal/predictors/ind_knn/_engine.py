"""From queries to answers: one way down, one way up, in either order of execution."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from vicinal.errors import PrivacyRefused
from vicinal.mechanisms import NoisyCount, SlackMeter, Votes
from vicinal.mechanisms._interactions import Interaction
from vicinal.mechanisms._votes import Release
from vicinal.neighbours import LEAST_COUNT, Radius
from vicinal.neighbours._integer_features import IntegerMatrix
from vicinal.predictors.ind_knn._answer_reuse import UNKNOWN, Memory, Support, take_in
from vicinal.predictors.ind_knn._planning import Multipliers, Pace
from vicinal.predictors.ind_knn._shards import Rounds, Shards, Steps

BLOCK = 256
"""Queries answered together. With a private count, larger blocks would spend every count of the
block before its first vote, and lose accuracy once budgets run out."""

Progress = Callable[[int], None]
FloatVotes = npt.NDArray[np.float64]
Places = npt.NDArray[np.int64]
Released = tuple[npt.NDArray[Any], npt.NDArray[np.float64]]


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
    noise : float64 (q,)
        Standard deviation of the noise on every vote, in votes; NaN for queries not asked.
    """

    labels: Places
    votes: FloatVotes | None
    asked: npt.NDArray[np.bool_]
    noise: npt.NDArray[np.float64]

    @classmethod
    def joined(cls, parts: Sequence[Answers]) -> Answers:
        """Return the answers to consecutive queries as one."""
        votes = [part.votes for part in parts if part.votes is not None]
        return cls(
            np.concatenate([part.labels for part in parts]),
            np.concatenate(votes) if votes else None,
            np.concatenate([part.asked for part in parts]),
            np.concatenate([part.noise for part in parts]),
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
    shard : Shards
        The private records and the accounts that answers are charged to: one shard, or several.
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
    slack : SlackMeter
        What the grid of counts and votes costs.
    least_noise : float
        No vote ever has a smaller noise scale, whatever is counted.
    interaction : Interaction or None
        The claim on the records; None where none is needed, or the store remembers.
    turn : Turn
        Held by whoever touches the records or their budgets.
    """

    shard: Shards
    radius: Radius
    votes: Votes
    count: NoisyCount | None
    pace: Pace
    memory: Memory
    slack: SlackMeter
    least_noise: float
    interaction: Interaction | None = None
    turn: Turn = field(default_factory=Turn)

    def answer(
        self, queries: IntegerMatrix, *, sequential: bool, progress: Progress | None = None
    ) -> Answers:
        """Answer all queries, a block at a time; the memory learns between blocks.

        Raises
        ------
        PrivacyRefused
            Before anything is charged or drawn, if the grid's cost of all answers does not fit.
            It is taken at the smallest count, so that no noisy count decides whether it does.
        """
        self.slack.check(len(queries) * self._slack_of_one())
        if self.interaction is not None:
            self.interaction.release()
        parts = []
        for start in range(0, len(queries), self.memory.block):
            block = queries[start : start + self.memory.block]
            parts.append(self._answer_block(block, sequential=sequential))
            if progress is not None:
                progress(len(block))
        return Answers.joined(parts)

    def _slack_of_one(self) -> float:
        """Return the most that the grid can cost in one answer; follows from the plan alone."""
        counted = 0.0 if self.count is None else self.count.slack
        return counted + self.votes.slack(self.least_noise)

    def _answer_block(self, block: IntegerMatrix, *, sequential: bool) -> Answers:
        labels = self.memory.known(block)
        asked = labels == UNKNOWN
        votes, noise = self._ask(block[asked], sequential=sequential)
        everything = None
        if self.votes.label_only:
            labels[asked] = votes
        else:
            labels[asked] = votes.argmax(axis=1)
            everything = np.full((len(block), self.votes.n_classes), np.nan)
            everything[asked] = votes
        take_in(self.memory, self.pace, block, asked, labels)
        scales = np.full(len(block), np.nan)
        scales[asked] = noise
        return Answers(labels, everything, asked, scales)

    def _ask(self, block: IntegerMatrix, *, sequential: bool) -> Released:
        """Return votes (q, c), or positions of labels (q,), and the noise in them (q,)."""
        if not len(block):
            shape = (0,) if self.votes.label_only else (0, self.votes.n_classes)
            return np.zeros(shape), np.zeros(0)
        thresholds = self.radius.thresholds(block)
        support = self.memory.support(block, thresholds)
        if self.count is None:
            multiplier = self.pace.prepare(block, thresholds)
            release = self._priced(multiplier, self.radius.expected(block), support)
            self.pace.witness(release)
            return self._published(release, self.shard.carry(release, block, thresholds), support)
        released = [
            self._counted(rounds, support and support.of(rounds.queries), self.count)
            for rounds in self.shard.rounds(block, thresholds, together=not sequential)
        ]
        votes, noise = zip(*released, strict=True)
        return np.concatenate(votes), np.concatenate(noise)

    def _counted(self, rounds: Rounds, support: Support | None, counter: NoisyCount) -> Released:
        """Release the private counts of queries, then their votes, from those who paid for both."""
        counter.take(rounds.queries.stop - rounds.queries.start)
        counts = np.maximum(counter.publish(rounds.count(counter)), LEAST_COUNT)
        release = self._priced(self.pace.multiplier, counts, support)
        return self._published(release, rounds.carry(release), support)

    def _priced(
        self, multiplier: Multipliers, counts: npt.NDArray[np.float64], support: Support | None
    ) -> Release:
        """Return one release for all queries; nothing that was counted can get it refused."""
        known = counts if support is None else counts + support.counts
        noise = np.minimum(multiplier * np.sqrt(known), self.votes.grid.largest)
        return self.votes.release(noise)

    def _published(self, release: Release, sums: Steps, support: Support | None) -> Released:
        """Add the noise, once, to the sums of all shards."""
        whole = sums if support is None else sums + support.votes
        return release.publish(whole), release.noise
