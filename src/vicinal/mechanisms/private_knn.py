"""Private-kNN: votes of the nearest neighbours in Poisson samples. Source: ZYCW20, section 3.

Each query is screened on one Poisson sample and answered by the votes of another. The search is
that of :mod:`vicinal.neighbours.poisson_knn`. Proof notes: sampling.md, screening.md, noisy_max.md.

*Candidates* of a query are all records within a radius that probably contains k sampled subjects:
if it does, no other record is among the k nearest.

Everywhere in this module: `nearest_rows`, int32 (q, k), are the rows of each query's nearest
sampled records, at most one of a subject, padded with -1 (``NO_RECORD``) where there are fewer than
k; `steps`, grid steps in a vote; `queries`, (q, d), integer features if they are an IntegerMatrix;
`gamma`, the probability with which each subject is in a sample, and `sampler`, the source of the
samples.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from vicinal import checks
from vicinal.arrays import AnyArray, Bools, FloatMatrix, Indices, Ints, Ints32, Steps
from vicinal.compiled import compiled
from vicinal.mechanisms.noise_sources import BernoulliSource
from vicinal.mechanisms.planned_releases import (
    NoisyMax,
    NoisyThreshold,
    PlannedAnswers,
    ReleaseCounter,
)
from vicinal.neighbours.kernels import FLOAT32, RBF, IntegerMatrix
from vicinal.neighbours.poisson_knn import NO_RECORD, NearestRows, PoissonKNN, select_candidates
from vicinal.neighbours.scan import NeighbourLists, get_thread_count, map_in_threads


class VoteEncoding(ABC):
    """Encoding of the records' targets as votes, fixed before the first query."""

    @abstractmethod
    def count_votes(self, nearest_rows: NearestRows, steps: int) -> Steps:
        """Return the sums of votes over the nearest records, int64 (q, c), in steps; private."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class OneHotVotes(VoteEncoding):
    """Votes of records with one class each; `labels`, int32 (n,): their class indices."""

    labels: Ints32
    n_classes: int

    def count_votes(self, nearest_rows: NearestRows, steps: int) -> Steps:
        """Return the number of nearest records of each class, int64 (q, c), in steps."""
        sums = np.zeros((len(nearest_rows), self.n_classes), dtype=np.int64)
        _count_labels(nearest_rows, self.labels, steps, sums)
        return sums


class ClippedVotes(VoteEncoding):
    """Votes of records with several attributes, limited to L1 norm `tau` (tau-approximation).

    A record with m attributes gives floor(steps min(tau / m, 1)) steps to each of them. Its vote
    vector v satisfies |v|^2 <= m min(tau / m, 1)^2 <= tau in squared votes, exactly, for every tau.

    - `attributes`, bool (n, c): whether a record has each attribute.
    - `tau`: bound on the L1 norm of a record's votes.
    """

    def __init__(self, attributes: Bools, tau: float) -> None:
        numerator, denominator = checks.check_real("tau", tau, above=0).as_integer_ratio()
        self._attributes = np.ascontiguousarray(attributes)
        self._n_attributes = attributes.sum(axis=1)
        self._tau = (numerator, denominator)

    def count_votes(self, nearest_rows: NearestRows, steps: int) -> Steps:
        """Return the sums of the nearest records' clipped votes, int64 (q, c), in steps."""
        sums = np.zeros((len(nearest_rows), self._attributes.shape[1]), dtype=np.int64)
        weights = self.compute_weights(steps)[self._n_attributes]
        _count_attributes(nearest_rows, self._attributes, weights, sums)
        return sums

    def compute_weights(self, steps: int) -> Steps:
        """Return the votes of a record with m attributes for each of them, for m = 0..c.

        The result, int64 (c + 1,), is in grid steps.
        """
        numerator, denominator = self._tau
        sizes = range(self._attributes.shape[1] + 1)
        clipped = [
            min(steps * numerator // (denominator * size), steps) if size else 0 for size in sizes
        ]
        return np.array(clipped, dtype=np.int64)


@compiled
def _count_labels(nearest_rows, labels, steps, sums):  # type: ignore[no-untyped-def]
    """Add one vote for the label of every nearest record to `sums`, int64 (q, c), in grid steps.

    `labels`, int32 (n,): class index of each row.
    """
    for j in range(nearest_rows.shape[0]):
        for i in range(nearest_rows.shape[1]):
            if nearest_rows[j, i] >= 0:
                sums[j, labels[nearest_rows[j, i]]] += steps


@compiled
def _count_attributes(nearest_rows, attributes, weights, sums):  # type: ignore[no-untyped-def]
    """Add the votes of every nearest record for each of its attributes to `sums`, int64 (q, c).

    `attributes`, bool (n, c): whether each row's record has each attribute; `weights`, int64 (n,):
    its vote for one attribute, in grid steps.
    """
    for j in range(nearest_rows.shape[0]):
        for i in range(nearest_rows.shape[1]):
            row = nearest_rows[j, i]
            if row >= 0:
                for a in range(sums.shape[1]):
                    if attributes[row, a]:
                        sums[j, a] += weights[row]


class SampledNeighbourSearch:
    """Search for the k nearest subjects in a new Poisson sample of all subjects.

    `knn`: the private records, their subjects, and k.
    """

    def __init__(self, knn: PoissonKNN, gamma: float, sampler: BernoulliSource) -> None:
        self.knn = knn
        self.gamma = checks.check_real("gamma", gamma, above=0, maximum=1)
        self._sampler = sampler

    def find_candidates(self, queries: IntegerMatrix) -> NeighbourLists | None:
        """Return the records that may be among the nearest of any sample; private.

        None if the sample is drawn before the search, which then needs no candidates.
        """
        return None if self.knn.sample_first else self.knn.find_candidates(queries)

    def draw_nearest(
        self, queries: IntegerMatrix, candidates: NeighbourLists | None
    ) -> NearestRows:
        """Return the rows of the k nearest records in a new sample, int32 (q, k); private.

        Each pair of query and subject is sampled independently. A subject is represented by its
        nearest record. `candidates`: result of :meth:`find_candidates` for the same queries; None
        if all subjects are sampled first, and only the sampled ones are searched.
        """
        n_blocks = 1 if self._sampler.ordered else min(get_thread_count(), len(queries))
        edges = [block * len(queries) // max(n_blocks, 1) for block in range(n_blocks + 1)]

        def draw_block(bounds: tuple[int, int]) -> NearestRows:
            """Return the rows for the queries from index ``bounds[0]`` to ``bounds[1] - 1``."""
            block_queries = queries[slice(*bounds)]
            if candidates is None:
                sample = self._sampler.sample(self.gamma, len(block_queries) * len(self.knn))
                return self.knn.find_nearest_sampled(block_queries, sample)
            return self._draw_from_candidates(block_queries, candidates.select_queries(*bounds))

        block_bounds = list(pairwise(edges)) or [(0, 0)]
        return np.concatenate(map_in_threads(draw_block, block_bounds))

    def _draw_from_candidates(
        self, queries: IntegerMatrix, candidates: NeighbourLists
    ) -> NearestRows:
        """Return the rows of the k nearest records in a new sample, int32 (q, k).

        Subjects without `candidates` are sampled only for queries with fewer than k sampled ones.
        """
        sample = self._sampler.sample(self.gamma, len(candidates.rows))
        nearest_rows = self.knn.select_nearest(candidates, sample)
        is_incomplete = (nearest_rows[:, -1] == NO_RECORD) & (
            np.diff(candidates.starts) < len(self.knn)
        )
        for j in np.flatnonzero(is_incomplete):
            start, stop = candidates.starts[j : j + 2]
            hits = sample[slice(*np.searchsorted(sample, [start, stop]))] - start
            rows = candidates.rows[start:stop]
            nearest_rows[j] = self._draw_from_all(queries[j : j + 1], rows, hits)[0]
        return nearest_rows

    def _draw_from_all(self, query: IntegerMatrix, rows: Ints32, hits: Indices) -> NearestRows:
        """Return the rows of the k nearest sampled records of one `query` (1, d), int32 (1, k).

        `rows`, int32: rows of the query's candidates, whose subjects have been sampled already.
        `hits`, int64: indices in `rows` of the sampled ones. All other subjects are sampled now.
        """
        slots = self.knn.slots
        sampled_slots, first_hit = np.unique(slots[rows], return_index=True)
        is_in_sample = np.zeros(self.knn.n_subjects, dtype=np.bool_)
        is_in_sample[self._sampler.sample(self.gamma, self.knn.n_subjects)] = True
        is_in_sample[sampled_slots] = np.isin(first_hit, hits)
        all_records = self.knn.list_all_records(query)
        return self.knn.select_nearest(
            all_records, np.flatnonzero(is_in_sample[slots[all_records.rows]])
        )


# Approximate number of candidates that are held in memory at a time.
_MAX_HITS = 1 << 22

# Queries between two reports of progress. It is public, so it must not depend on the number of
# records.
BLOCK = 256

# Function that returns the kernel for public rows (m, d) and a margin, the factor by which the
# norms of private rows may exceed those of the public rows.
KernelFactory = Callable[[FloatMatrix, float], RBF]


class PrivateKNNRelease(PlannedAnswers):
    """Mechanism that answers planned queries by the noisy votes of sampled nearest neighbours.

    :meth:`answer` counts releases before it makes them, and returns noisy values. For one thread.

    - `features`, float (n, d): private features, copied and kept until the kernel is chosen.
    - `slots`, int32 (n,): index of every record's subject, from 0 to `n_subjects` - 1.
    - `vote_encoding`: the records' votes.
    - `k`: number of neighbours that vote.
    - `choose_kernel`: returns the kernel, which rounds features to integers.
    - `screening`, `voting`, `query_counter`: see :class:`PlannedAnswers`.
    """

    def __init__(
        self,
        features: FloatMatrix,
        slots: Ints32,
        n_subjects: int,
        vote_encoding: VoteEncoding,
        *,
        k: int,
        gamma: float,
        choose_kernel: KernelFactory,
        screening: NoisyThreshold | None,
        voting: NoisyMax,
        sampler: BernoulliSource,
        query_counter: ReleaseCounter,
    ) -> None:
        FLOAT32.compute_unit_norm(
            features.shape[1]
        )  # raises InvalidInput if there are too many features
        self._features: FloatMatrix | None = features.copy()
        self._slots = slots
        self._n_subjects = n_subjects
        super().__init__(screening, voting, query_counter)
        self._vote_encoding = vote_encoding
        self._k = k
        self._gamma = gamma
        self._choose_kernel = choose_kernel
        self._sampler = sampler

    def choose_kernel_and_encode(self, public_rows: FloatMatrix, margin: float) -> None:
        """Choose the kernel and encode the private records as integers.

        The largest norm of the `public_rows`, (m, d), times `margin` bounds the norms of encoded
        rows; longer ones are clipped. The unencoded features are dropped; further calls do nothing.
        """
        if self._features is None:
            return
        self.kernel = self._choose_kernel(public_rows, margin)
        integers = self.kernel.encode(self._features)
        knn = PoissonKNN(self.kernel, integers, self._slots, self._n_subjects, self._k, self._gamma)
        self.nearest = SampledNeighbourSearch(knn, self._gamma, self._sampler)
        self._features = None

    def split_blocks(self, queries: FloatMatrix) -> Iterator[FloatMatrix]:
        """Yield blocks of :data:`BLOCK` consecutive `queries`, (q, d).

        If the kernel has not been chosen yet, it is chosen from these queries, with a margin for
        later queries of larger norm.
        """
        self.choose_kernel_and_encode(queries, margin=1.25)
        for start in range(0, len(queries), BLOCK):
            yield queries[start : start + BLOCK]

    def answer(self, queries: FloatMatrix) -> tuple[Bools, AnyArray]:
        """Return whether each query (q, d) is answered, bool (q,), and the answers to those.

        Raises PrivacyRefused, before any sample is drawn, if the plan does not cover the queries.
        Once the planned answers are used up, no further queries are screened.
        """
        self.query_counter.note_releases(len(queries))
        integers = self.kernel.encode(queries)
        # As many queries at a time as fit into memory. The number depends on the number of records
        # and is therefore private.
        size = max(1, _MAX_HITS // (int(self.nearest.knn.n_expected_candidates) + self._k + 1))
        starts = range(0, len(integers), size)
        results = [self._answer_block(integers[start : start + size]) for start in starts]
        passed = np.concatenate([block_passed for block_passed, _ in results])
        return passed, np.concatenate([answers for _, answers in results])

    def _answer_block(self, queries: IntegerMatrix) -> tuple[Bools, AnyArray]:
        """Screen encoded queries (q, d) on one sample and answer those that pass by a new one.

        Returns whether each query passes, bool (q,), and the noisy answers to the p that pass.
        """
        candidates = self.nearest.find_candidates(queries)

        def compute_max_votes() -> Ints:
            """Return the largest vote count of each query in a new sample, int64 (q,); private."""
            nearest_rows = self.nearest.draw_nearest(queries, candidates)
            return np.asarray(self._vote_encoding.count_votes(nearest_rows, 1).max(axis=1))

        passed = self._select_answered(len(queries), compute_max_votes)
        if candidates is not None:
            candidates = select_candidates(candidates, passed)
        # A new sample: screening and vote are priced as two releases with independent samples.
        nearest_rows = self.nearest.draw_nearest(queries[passed], candidates)
        vote_sums = self._vote_encoding.count_votes(nearest_rows, self.voting.steps)
        return passed, self.voting.publish(vote_sums)
