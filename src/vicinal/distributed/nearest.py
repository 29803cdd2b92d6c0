"""Private-kNN over shards: every shard tosses its own coins and sends its k nearest that came up.

A subject lives on one shard, and its coin is tossed there; so the coins of all shards together are
one Poisson sample, and its k nearest are among the k nearest of each shard. They are merged by
exact integer distance, then by the number of the record: the strict order of one machine
(:mod:`vicinal.neighbours.poisson`). The votes, the noise and the plan are one place's.

There are no budgets here: the whole plan is priced before the first query, and whoever answers
keeps its quotas. A draw that is lost on its way was seen by nobody, and is made anew.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from vicinal.mechanisms.sampling import Coins, NearestOfSample, coin_source
from vicinal.neighbours import RBF, Neighbours
from vicinal.neighbours.integers import IntegerMatrix
from vicinal.neighbours.poisson import NOBODY, Chosen, Walk

_FARTHEST = np.iinfo(np.int64).min


@dataclass(frozen=True, slots=True, eq=False)
class Drawn:
    """The nearest of a sample on one shard; private.

    Attributes
    ----------
    similarities : int64 (q, k)
        Exact integer similarities, in no order.
    numbers : int64 (q, k)
        Records as they are numbered over all shards; ``NOBODY`` where fewer came up.
    labels : int32 (q, k)
        Their classes; ``NOBODY`` where fewer came up.
    """

    similarities: npt.NDArray[np.int64]
    numbers: npt.NDArray[np.int64]
    labels: npt.NDArray[np.int32]


@dataclass(frozen=True, slots=True, eq=False)
class NearestPart:
    """What one shard is made of; private.

    Attributes
    ----------
    kernel : RBF
        Orders records by distance.
    integers : int8 or float32 (n, d)
        Integer features.
    labels, slots : int32 (n,)
        Class and subject of every record.
    numbers : int64 (n,)
        Every record's number over all shards, ascending.
    n_subjects, k : int
        Subjects here; how many are to be found.
    gamma : float
        The probability of every coin.
    seed : int or None
        Of a simulation.
    """

    kernel: RBF
    integers: IntegerMatrix
    labels: npt.NDArray[np.int32]
    slots: npt.NDArray[np.int32]
    numbers: npt.NDArray[np.int64]
    n_subjects: int
    k: int
    gamma: float
    seed: int | None

    def shard(self) -> NearestShard:
        """Return the shard, ready to be drawn from."""
        return NearestShard(self, coin_source(self.seed))


class NearestShard:
    """Records of some subjects, and coins of their own."""

    def __init__(self, part: NearestPart, coins: Coins) -> None:
        walk = Walk(
            part.kernel, part.integers, part.slots, part.n_subjects, part.k, part.gamma
        )  # fmt: skip
        self._sample = NearestOfSample(walk, part.gamma, coins)
        self._labels = part.labels
        self._numbers = part.numbers

    def draw(self, queries: IntegerMatrix) -> Drawn:
        """Return the k nearest of a fresh sample of the subjects here; private."""
        near = self._sample.near(queries)
        chosen = self._sample.draw(queries, near)
        similarities = np.full(chosen.shape, _FARTHEST)
        for j in range(len(queries)):
            here = chosen[j] != NOBODY
            similarities[j, here] = self._similarities(queries[j : j + 1], near, j, chosen[j][here])
        absent = chosen == NOBODY
        rows = np.where(absent, 0, chosen) if len(self._labels) else chosen
        numbers, labels = (
            np.where(absent, NOBODY, column[rows] if len(column) else NOBODY)
            for column in (self._numbers, self._labels)
        )
        return Drawn(similarities, numbers.astype(np.int64), labels.astype(np.int32))

    def _similarities(
        self, query: IntegerMatrix, near: Neighbours, j: int, rows: Chosen
    ) -> npt.NDArray[np.int64]:
        """Return the similarities of chosen records, which are candidates unless the walk went on.

        Candidates stand in the order of their rows.
        """
        hits = slice(near.starts[j], near.starts[j + 1])
        known = near.rows[hits]
        places = np.searchsorted(known, rows)
        if len(rows) and (places.max() >= len(known) or (known[places] != rows).any()):
            return self._sample.walk.everybody(query).similarities[rows].astype(np.int64)
        return near.similarities[hits][places].astype(np.int64)


class Drawing(Protocol):
    """The way to one shard."""

    def draw(self, queries: IntegerMatrix) -> Callable[[], Drawn]:
        """Ask for a draw without waiting; calling what is returned waits for it."""


@dataclass(frozen=True, slots=True)
class LocalDrawing:
    """A shard in this process."""

    shard: NearestShard

    def draw(self, queries: IntegerMatrix) -> Callable[[], Drawn]:
        """Draw when somebody waits for it."""
        return lambda: self.shard.draw(queries)


def local_drawings(parts: Sequence[NearestPart]) -> list[Drawing]:
    """Return the ways to shards in this process."""
    return [LocalDrawing(part.shard()) for part in parts]


class NearestOfShards(NearestOfSample):
    """The k nearest of one Poisson sample of everybody on all shards.

    Rows of what is drawn are not records, which are elsewhere, but their classes: ballots that
    give class c's vote to row c count them.

    Parameters
    ----------
    none : Walk
        Of no records.
    gamma, source
        As of :class:`~vicinal.mechanisms.sampling.NearestOfSample`.
    shards : sequence of Drawing
        The ways to all shards.
    """

    def __init__(self, none: Walk, gamma: float, source: Coins, shards: Sequence[Drawing]) -> None:
        super().__init__(none, gamma, source)
        self._shards = shards

    def near(self, queries: IntegerMatrix) -> Neighbours:
        """Return no candidates: shards find their own."""
        starts = np.zeros(len(queries) + 1, dtype=np.int64)
        nothing = np.zeros(0, dtype=np.int32)
        return Neighbours(starts, nothing, nothing)

    def draw(self, queries: IntegerMatrix, near: Neighbours) -> Chosen:  # noqa: ARG002 (as above)
        """Return the classes of the k nearest of a fresh sample, int32 (q, k); private."""
        waiting = [shard.draw(queries) for shard in self._shards]
        return merged([wait() for wait in waiting], self.walk.k)


def merged(parts: Sequence[Drawn], k: int) -> Chosen:
    """Return the classes of the k nearest among what all shards drew, int32 (q, k)."""
    similarities, numbers, labels = (
        np.concatenate([getattr(part, name) for part in parts], axis=1)
        for name in ("similarities", "numbers", "labels")
    )
    order = np.lexsort((numbers, -similarities, numbers == NOBODY), axis=1)[:, :k]
    return np.take_along_axis(labels, order, axis=1)
