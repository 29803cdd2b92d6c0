"""Private-kNN's way of a query: sample, screen, sample again, vote. Source: ZYCW20, section 3.

A fresh Poisson sample for every release; the walk by distance is
:mod:`vicinal.neighbours.poisson_knn`. Proof notes: sampling.md, screening.md, noisy_max.md.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from itertools import pairwise

import numpy as np

from vicinal import checks
from vicinal.arrays import AnyArray, Bools, FloatMatrix, Ints, Ints32, Places, Steps
from vicinal.compiled import compiled
from vicinal.mechanisms.noise_sources import BernoulliSource
from vicinal.mechanisms.planned_releases import (
    NoisyMax,
    NoisyThreshold,
    PlannedAnswers,
    ReleaseCounter,
)
from vicinal.neighbours.kernels import FLOAT32, RBF, IntegerMatrix
from vicinal.neighbours.poisson_knn import NO_RECORD, Chosen, PoissonKNN, candidates_of
from vicinal.neighbours.scan import THREADS, NeighbourLists, map_in_threads


class VoteEncoding(ABC):
    """What every record votes for; fixed before the first query."""

    @abstractmethod
    def count(self, chosen: Chosen, steps: int) -> Steps:
        """Return the sums over the chosen records, int64 (q, c), in steps; private.

        `chosen`, int32 (q, k): rows of records, at most one of a subject in a query, or
        ``NO_RECORD``. `steps`: steps in a vote.
        """


class OneHotVotes(VoteEncoding):
    """One vote for one class.

    `labels`, int32 (n,): class index of every record. `n_classes`: the number of classes.
    """

    def __init__(self, labels: Ints32, n_classes: int) -> None:
        self._labels = labels
        self._n_classes = n_classes

    def count(self, chosen: Chosen, steps: int) -> Steps:
        sums = np.zeros((len(chosen), self._n_classes), dtype=np.int64)
        _count_labels(chosen, self._labels, steps, sums)
        return sums


class ClippedVotes(VoteEncoding):
    """Votes for any number of attributes, together at most `tau`: the tau-approximation.

    A record with m attributes gives each floor(steps min(tau / m, 1)) steps: its vector v has
    |v|^2 <= m min(tau / m, 1)^2 <= tau in squared votes, exactly, for any tau.

    `attributes`, bool (n, c): which attributes every record has. `tau`: the bound on the L1 norm of
    a record's votes.
    """

    def __init__(self, attributes: Bools, tau: float) -> None:
        top, over = checks.check_real("tau", tau, above=0).as_integer_ratio()
        self._attributes = np.ascontiguousarray(attributes)
        self._sizes = attributes.sum(axis=1)
        self._tau = (top, over)

    def count(self, chosen: Chosen, steps: int) -> Steps:
        sums = np.zeros((len(chosen), self._attributes.shape[1]), dtype=np.int64)
        weights = self.weights(steps)[self._sizes]
        _count_attributes(chosen, self._attributes, weights, sums)
        return sums

    def weights(self, steps: int) -> Steps:
        """Return the steps of one vote of a record, by its number of attributes 0..c."""
        top, over = self._tau
        sizes = range(self._attributes.shape[1] + 1)
        clipped = [min(steps * top // (over * size), steps) if size else 0 for size in sizes]
        return np.array(clipped, dtype=np.int64)


@compiled
def _count_labels(chosen, labels, steps, sums):  # type: ignore[no-untyped-def]
    for j in range(chosen.shape[0]):
        for i in range(chosen.shape[1]):
            if chosen[j, i] >= 0:
                sums[j, labels[chosen[j, i]]] += steps


@compiled
def _count_attributes(chosen, attributes, weights, sums):  # type: ignore[no-untyped-def]
    for j in range(chosen.shape[0]):
        for i in range(chosen.shape[1]):
            row = chosen[j, i]
            if row >= 0:
                for a in range(sums.shape[1]):
                    if attributes[row, a]:
                        sums[j, a] += weights[row]


class NearestOfSample:
    """The k nearest subjects of a Poisson sample of all subjects, anew for every draw.

    `knn`: the records, their subjects, and k. `gamma`: the probability with which each subject
    takes part in a sample. `source`: where draws come from.
    """

    def __init__(self, knn: PoissonKNN, gamma: float, source: BernoulliSource) -> None:
        self.knn = knn
        self.gamma = checks.check_real("gamma", gamma, above=0, most=1)
        self._source = source

    def candidates(self, queries: IntegerMatrix) -> NeighbourLists | None:
        """Return candidates, good for any number of draws for these queries; private.

        None where the sample is drawn first and needs none.
        """
        return None if self.knn.sample_first else self.knn.candidates(queries)

    def draw(self, queries: IntegerMatrix, candidates: NeighbourLists | None) -> Chosen:
        """Return the rows of the k nearest of a fresh sample, int32 (q, k); private.

        One independent draw for every pair of query and subject. A subject stands there with its
        nearest record; ``NO_RECORD`` fills up where the sample was smaller than k.
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
        short = (chosen[:, -1] == NO_RECORD) & (np.diff(candidates.starts) < len(self.knn))
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


_MOST_HITS = 1 << 22  # candidates of a block of queries that are held at a time, or so
BLOCK = 256  # queries whose progress is told together: public, whatever the number of records

# From public rows (m, d), and how far beyond them the bound lies, to the kernel.
Grid = Callable[[FloatMatrix, float], RBF]


class PrivateKNNRelease(PlannedAnswers):
    """Private records that answer as planned; encoded once the grid of features is known.

    Nothing leaves :meth:`answer` without noise, and without being counted first. Used by one
    thread at a time.

    - `features`, float (n, d): features of the private records; a copy is kept until the grid is
      known.
    - `slots`, `n_subjects`, int32 (n,), int: the subject of every record, and their number.
    - `encoding`: what records vote for.
    - `k`, `gamma`: how many vote, and the probability with which each subject takes part.
    - `grid`: what chooses the grid of the features, see :data:`Grid`.
    - `coins`: who takes part.
    - `screening`, `voting`, `planned`: see :class:`PlannedAnswers`.
    """

    def __init__(
        self,
        features: FloatMatrix,
        slots: Ints32,
        n_subjects: int,
        encoding: VoteEncoding,
        *,
        k: int,
        gamma: float,
        grid: Grid,
        screening: NoisyThreshold | None,
        voting: NoisyMax,
        coins: BernoulliSource,
        planned: ReleaseCounter,
    ) -> None:
        FLOAT32.scale(features.shape[1])  # refuses too many features
        self._features: FloatMatrix | None = features.copy()
        self._slots, self._n_subjects = slots, n_subjects
        super().__init__(screening, voting, planned)
        self._encoding, self._k, self._gamma, self._grid = encoding, k, gamma, grid
        self._coins = coins

    def encode_by(self, public: FloatMatrix, margin: float) -> None:
        """Fix the grid by public rows (m, d), unless it is fixed; drop the features themselves."""
        if self._features is None:
            return
        self.kernel = self._grid(public, margin)
        integers = self.kernel.encode(self._features)
        knn = PoissonKNN(self.kernel, integers, self._slots, self._n_subjects, self._k, self._gamma)
        self.nearest = NearestOfSample(knn, self._gamma, self._coins)
        self._features = None

    def blocks(self, queries: FloatMatrix) -> Iterator[FloatMatrix]:
        """Yield consecutive queries, always as many at a time.

        They fix the grid, if nothing has fixed it: with room for queries somewhat longer.
        """
        self.encode_by(queries, margin=1.25)
        for start in range(0, len(queries), BLOCK):
            yield queries[start : start + BLOCK]

    def answer(self, queries: FloatMatrix) -> tuple[Bools, AnyArray]:
        """Take from the quotas; return who is answered, bool (q,), and their answers.

        As many queries at a time as memory allows. That follows from the number of records, so
        nothing outside may see it. Once the planned answers are given no more are screened.
        """
        self._planned.note_releases(len(queries))
        integers = self.kernel.encode(queries)
        size = max(1, _MOST_HITS // (int(self.nearest.knn.n_expected) + self._k + 1))
        starts = range(0, len(integers), size)
        parts = [self._answered(integers[start : start + size]) for start in starts]
        return np.concatenate([p for p, _ in parts]), np.concatenate([a for _, a in parts])

    def _answered(self, queries: IntegerMatrix) -> tuple[Bools, AnyArray]:
        """Sample and screen; sample again and vote."""
        candidates = self.nearest.candidates(queries)

        def largest_votes() -> Ints:
            chosen = self.nearest.draw(queries, candidates)
            return np.asarray(self._encoding.count(chosen, 1).max(axis=1))

        passed = self._passed(len(queries), largest_votes)
        if candidates is not None:
            candidates = candidates_of(candidates, passed)
        # A fresh sample: screening and vote are priced as two releases, each with its own.
        chosen = self.nearest.draw(queries[passed], candidates)
        return passed, self._voting.publish(self._encoding.count(chosen, self._voting.steps))
