"""A fresh Poisson sample for every release, and the nearest subjects in it.

Proof note: sampling.md. Source: ZYCW20, section 3; the walk by distance is
:mod:`vicinal.neighbours._poisson_knn`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from itertools import pairwise

import numpy as np

from vicinal import _checks
from vicinal._arrays import Bools, Ints32, Places
from vicinal.neighbours import (
    NOBODY,
    THREADS,
    Chosen,
    IntegerMatrix,
    NeighbourLists,
    PoissonKNN,
    map_in_threads,
)
from vicinal.noise import bernoulli, poisson_sample


class BernoulliSource(ABC):
    """Draws independent bits; only a source whose `exact` is True carries a guarantee."""

    exact: bool
    ordered: bool = True
    """Whether draws depend on the order of calls; if not, threads may draw side by side."""

    @abstractmethod
    def bernoulli(self, probability: float, size: int) -> Bools:
        """Return `size` draws, bool (size,), each true with at most `probability`, 0 to 1."""

    def sample(self, probability: float, size: int) -> Places:
        """Return the positions of those draws of `size` that are true, int64 ascending."""
        return np.flatnonzero(self.bernoulli(probability, size))


class SystemBernoulli(BernoulliSource):
    """Draws from the system's entropy, see :func:`vicinal.noise._bernoulli`."""

    exact = True
    ordered = False

    def bernoulli(self, probability: float, size: int) -> Bools:
        return bernoulli(probability, size)

    def sample(self, probability: float, size: int) -> Places:
        return poisson_sample(probability, size)


class SimulatedBernoulli(BernoulliSource):
    """Repeatable draws for experiments, carrying no guarantee."""

    exact = False

    def __init__(self, seed: int) -> None:
        seed = _checks.integer("seed", seed, least=0)
        self._generator = np.random.default_rng(seed)  # noqa: TID251 (a simulation protects nobody)

    def bernoulli(self, probability: float, size: int) -> Bools:
        return np.asarray(self._generator.random(size) < probability)


def bernoulli_source(simulation_seed: int | None = None) -> BernoulliSource:
    """Return draws from system entropy, or repeatable ones if a seed is given."""
    return SystemBernoulli() if simulation_seed is None else SimulatedBernoulli(simulation_seed)


class NearestOfSample:
    """The k nearest subjects of a Poisson sample of all subjects, anew for every draw.

    `knn`: the records, their subjects, and k. `gamma`: the probability with which each subject
    takes part in a sample. `source`: where draws come from.
    """

    def __init__(self, knn: PoissonKNN, gamma: float, source: BernoulliSource) -> None:
        self.knn = knn
        self.gamma = _checks.real("gamma", gamma, above=0, most=1)
        self._source = source

    def candidates(self, queries: IntegerMatrix) -> NeighbourLists | None:
        """Return candidates, good for any number of draws for these queries; private.

        None where the sample is drawn first and needs none.
        """
        return None if self.knn.sample_first else self.knn.candidates(queries)

    def draw(self, queries: IntegerMatrix, candidates: NeighbourLists | None) -> Chosen:
        """Return the rows of the k nearest of a fresh sample, int32 (q, k); private.

        One independent draw for every pair of query and subject. A subject stands there with its
        nearest record; ``NOBODY`` fills up where the sample was smaller than k.
        """
        pieces = 1 if self._source.ordered else min(THREADS, len(queries))
        edges = [piece * len(queries) // max(pieces, 1) for piece in range(pieces + 1)]

        def drawn(between: tuple[int, int]) -> Chosen:
            some = queries[slice(*between)]
            if candidates is None:
                sample = self._source.sample(self.gamma, len(some) * len(self.knn))
                return self.knn.of_sample(some, sample)
            return self._of_candidates(some, candidates.of(*between))

        parts = list(pairwise(edges)) or [(0, 0)]
        return np.concatenate(map_in_threads(drawn, parts))

    def _of_candidates(self, queries: IntegerMatrix, candidates: NeighbourLists) -> Chosen:
        """Draw for candidates, and for all others where the sample holds fewer than k of them."""
        sample = self._source.sample(self.gamma, len(candidates.rows))
        chosen = self.knn.first(candidates, sample)
        short = (chosen[:, -1] == NOBODY) & (np.diff(candidates.starts) < len(self.knn))
        for j in np.flatnonzero(short):
            start, stop = candidates.starts[j : j + 2]
            hits = sample[slice(*np.searchsorted(sample, [start, stop]))] - start
            rows = candidates.rows[start:stop]
            chosen[j] = self._of_all(queries[j : j + 1], rows, hits)[0]
        return chosen

    def _of_all(self, query: IntegerMatrix, rows: Ints32, hits: Places) -> Chosen:
        """Draw for all who were no candidates; who was one, in `rows`, keeps the draw it has."""
        slots = self.knn.slots
        distinct, first = np.unique(slots[rows], return_index=True)
        takes_part = np.zeros(self.knn.n_subjects, dtype=np.bool_)
        takes_part[self._source.sample(self.gamma, self.knn.n_subjects)] = True
        takes_part[distinct] = np.isin(first, hits)
        all_records = self.knn.all_records(query)
        return self.knn.first(all_records, np.flatnonzero(takes_part[slots[all_records.rows]]))
