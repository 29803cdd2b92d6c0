"""A fresh Poisson sample for every release: coins, and the nearest subjects that came up.

Proof note: sampling.md. Source: ZYCW20, section 3; the walk by distance is
:mod:`vicinal.neighbours._poisson_knn`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from vicinal import _checks
from vicinal.neighbours import NeighbourLists, _scan
from vicinal.neighbours._kernels import IntegerMatrix
from vicinal.neighbours._poisson_knn import NOBODY, Chosen, PoissonKNN
from vicinal.noise import bernoulli

Bools = npt.NDArray[np.bool_]


class BernoulliSource(ABC):
    """Tosses independent coins; only a source whose `exact` is True carries a guarantee."""

    exact: bool
    ordered: bool = True
    """Whether coins hang on the order of calls; if not, threads may toss side by side."""

    @abstractmethod
    def toss(self, probability: float, size: int) -> Bools:
        """Return `size` coins, bool (size,), each true with at most `probability`, 0 to 1."""


class SystemBernoulli(BernoulliSource):
    """Coins from the system's entropy, see :func:`vicinal.noise._bernoulli`."""

    exact = True
    ordered = False

    def toss(self, probability: float, size: int) -> Bools:
        """Return fresh coins that nobody can predict."""
        return bernoulli(probability, size)


class SimulatedBernoulli(BernoulliSource):
    """Repeatable coins for experiments, carrying no guarantee."""

    exact = False

    def __init__(self, seed: int) -> None:
        seed = _checks.integer("seed", seed, least=0)
        self._generator = np.random.default_rng(seed)  # noqa: TID251 (a simulation protects nobody)

    def toss(self, probability: float, size: int) -> Bools:
        """Return the same coins for the same seed and the same calls."""
        return np.asarray(self._generator.random(size) < probability)


def bernoulli_source(simulation_seed: int | None = None) -> BernoulliSource:
    """Return coins from system entropy, or repeatable ones if a seed is given."""
    return SystemBernoulli() if simulation_seed is None else SimulatedBernoulli(simulation_seed)


class NearestOfSample:
    """The k nearest subjects of a Poisson sample of all subjects, anew for every draw.

    Parameters
    ----------
    walk : PoissonKNN
        The records, their subjects, and k.
    gamma : float
        The probability with which each subject takes part in a sample.
    source : BernoulliSource
        Where coins come from.
    """

    def __init__(self, walk: PoissonKNN, gamma: float, source: BernoulliSource) -> None:
        self.walk = walk
        self.gamma = _checks.real("gamma", gamma, above=0, most=1)
        self._source = source

    def near(self, queries: IntegerMatrix) -> NeighbourLists:
        """Return candidates, good for any number of draws for these queries; private."""
        return self.walk.near(queries)

    def draw(self, queries: IntegerMatrix, near: NeighbourLists) -> Chosen:
        """Return the rows of the k nearest of a fresh sample, int32 (q, k); private.

        One independent coin for every pair of query and subject. A subject stands there with its
        nearest record; ``NOBODY`` fills up where the sample was smaller than k.
        """
        pieces = 1 if self._source.ordered else min(_scan.THREADS, len(near))
        edges = [piece * len(near) // max(pieces, 1) for piece in range(pieces + 1)]
        parts = [near.of(*between) for between in pairwise(edges)] or [near]
        drawn = list(_scan.map_in_threads(self._drawn, parts))
        tossed, chosen = (np.concatenate(found) for found in zip(*drawn, strict=True))
        short = (chosen[:, -1] == NOBODY) & (np.diff(near.starts) < len(self.walk))
        for j in np.flatnonzero(short):
            hits = slice(near.starts[j], near.starts[j + 1])
            chosen[j] = self._continued(queries[j : j + 1], near.rows[hits], tossed[hits])[0]
        return chosen

    def _drawn(self, near: NeighbourLists) -> tuple[Bools, Chosen]:
        """Return the candidates' coins, and who came up among them."""
        tossed = self._source.toss(self.gamma, len(near.rows))
        return tossed, self.walk.first(near, tossed)

    def _continued(
        self, query: IntegerMatrix, rows: npt.NDArray[np.int32], tossed: Bools
    ) -> Chosen:
        """Toss for everybody who was no candidate; who was keeps the coin that it has."""
        slots = self.walk.slots
        known, first = np.unique(slots[rows], return_index=True)
        heads = self._source.toss(self.gamma, self.walk.n_subjects)
        heads[known] = tossed[first]
        everybody = self.walk.everybody(query)
        return self.walk.first(everybody, heads[slots[everybody.rows]])
