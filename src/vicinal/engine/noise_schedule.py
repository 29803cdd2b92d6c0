"""Number of neighbours and noise multiplier of a plan, from public information alone.

A record expects T k / n participations in T queries, each charged w^2 / (2 sigma2^2 k) for a kernel
weight w, so its zCDP budget b is just spent at the noise multiplier sigma2, which stands for noise
of standard deviation sigma2 sqrt(k) on the votes of k neighbours:

    sigma2 = sqrt(headroom spread w^2 T / (2 n b)),

where `spread` accounts for hubs: records that are near more queries than other records. It and w^2
are measured with public points as both records and queries. The headroom reflects asymmetric
errors: noise a third too large costs 1 percentage point of accuracy, but noise a third too small
exhausts the most useful records and costs 2 to 10 points.

The number of neighbours k trades noise against nearness: the votes' signal-to-noise ratio grows as
sqrt(k) / sigma2. The optimum is flat. It grows in proportion to the noise, and with the dimension
of the data, since in many dimensions twice the neighbours are hardly more distant.
docs/decisions/0008-automatic-plan.md has the measurements behind all constants.

Everywhere in this module `n_records` is the number n of private records, declared or estimated,
and `n_queries` the planned number T of answers by private votes. `record_budget` is the zCDP budget
b of one record: a subject's budget for votes, divided by the ratio of a subject's charge to that of
one of its records. Labels alone cost less; b is then the budget that would pay for as many votes.
`n_groups` is the number of classes, or other groups of records, that answers distinguish;
`reference` has the public points, and `neighbors_per_noise` is the factor in k = factor * dimension
* noise multiplier. All of these are public.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from vicinal.neighbours.radius import Radius, Reference
from vicinal.targets.target import NEIGHBORS_PER_NOISE

MIN_DIMENSION = 15.0
"""Lower bound of the intrinsic dimension that the number of neighbours grows with."""

HEADROOM = 1.4
"""Ratio of the charges that noise is planned for to those expected of a much queried record."""

TYPICAL_SPREAD = 1.3
"""Spread assumed for choosing k, before there is a radius to measure it with (decision 0008)."""

MIN_RANK = 5  # minimum number of reference points inside a radius at the automatic k

COUNT_CHARGE = 3.0
"""Charge of one private count as a multiple of B / T, for a subject's zCDP budget B, at the paper's
sigma1 = sqrt(T / (6 B))."""

_MAX_PROBES = 2000  # public points that serve as queries
_RANK_RATIO = 4  # of the two neighbour ranks used to estimate the dimension


@dataclass(frozen=True, slots=True)
class Participation:
    """Participation of public points in votes, measured as if they were records.

    `mean_squared_weight`: mean squared kernel weight of a point inside a query's radius. `spread`:
    ratio of the mean square to the squared mean of the number of queries that a point votes on.
    """

    mean_squared_weight: float
    spread: float


def compute_n_neighbors(
    n_records: int,
    n_queries: int,
    record_budget: float,
    n_groups: int,
    n_reference: int,
    dimension: float = MIN_DIMENSION,
    neighbors_per_noise: float = NEIGHBORS_PER_NOISE,
) -> int:
    """Return k, the expected number of neighbours of a query, from public numbers alone.

    It is at most half the mean number of a group's records, but always large enough for `MIN_RANK`
    public points inside a radius.

    `n_reference`: number of public points; without any, `n_records`. `dimension`: intrinsic
    dimension of the data, at least `MIN_DIMENSION` of which counts.
    """
    # The noise multiplier that spends a typical record's budget, with weights of 1.
    multiplier = math.sqrt(TYPICAL_SPREAD * n_queries / (2 * n_records * record_budget))
    proposed = round(neighbors_per_noise * max(dimension, MIN_DIMENSION) * multiplier)
    maximum = max(1, n_records // (2 * n_groups))
    minimum = math.ceil(MIN_RANK * n_records / n_reference)
    return max(min(proposed, maximum), min(minimum, n_records), 1)


def fit_n_neighbors(
    reference: Reference,
    n_records: int,
    n_queries: int,
    record_budget: float,
    n_groups: int,
    neighbors_per_noise: float = NEIGHBORS_PER_NOISE,
) -> int:
    """Return k, the expected number of neighbours of a query, fitted to the dimension of the data.

    The intrinsic dimension is estimated on the public points.
    """
    plan = (n_records, n_queries, record_budget, n_groups, len(reference))
    first_k = compute_n_neighbors(*plan, neighbors_per_noise=neighbors_per_noise)
    dimension = estimate_dimension(reference, round(first_k * len(reference) / n_records))
    return compute_n_neighbors(*plan, dimension, neighbors_per_noise)


def estimate_dimension(reference: Reference, rank: int) -> float:
    """Return the intrinsic dimension of `reference` at the scale of its `rank`-th neighbours.

    In D dimensions the distance of the `rank`-th neighbour is 4^(1/D) times that of the neighbour
    of rank `rank` / 4. The logarithms of this ratio are averaged over points, as MacKay &
    Ghahramani (2005) average those of Levina & Bickel (2004). 0 if there are too few points.
    """
    # Smaller ranks have more sampling noise, and larger ones reach the boundary of the data.
    far_rank = min(rank, len(reference) - 1)
    near_rank = far_rank // _RANK_RATIO
    if near_rank < 1:
        return 0.0
    probes = reference.points[:_MAX_PROBES]
    log_squares = []
    for rank_of_others in (near_rank, far_rank):
        # Ranks are one higher here, as every point is its own nearest neighbour.
        similarities = reference.find_similarity_at_rank(probes, rank_of_others + 1)
        squares = reference.kernel.squared_distance(similarities, probes.shape[1])
        log_squares.append(np.log(squares))
    growth = float(np.mean(log_squares[1] - log_squares[0])) / 2
    return math.log(far_rank / near_rank) / growth if growth > 0 else 0.0


def compute_noise_multiplier(
    participation: Participation,
    n_records: int,
    n_queries: int,
    count: float,
    compute_record_budget: Callable[[float], float],
) -> float:
    """Return the noise multiplier sigma2 at which the planned answers spend a record's budget.

    `count`: expected number of records that vote on a query. `compute_record_budget`: returns
    `record_budget`, which for labels alone depends on the size of a contribution, from this size in
    noise standard deviations; 0.0 stands for the limit of small contributions.
    """
    spread = participation.spread
    squared_weight = participation.mean_squared_weight

    def compute_multiplier(contribution: float) -> float:
        """Return sigma2 for contributions of this many noise standard deviations."""
        budget = compute_record_budget(contribution)
        return math.sqrt(HEADROOM * spread * squared_weight * n_queries / (2 * n_records * budget))

    # The relative charge of label-only releases rises with the contribution. It is taken at the
    # typical contribution with the least noise, that of the limit of small contributions, so that
    # charges are over- rather than underestimated.
    return compute_multiplier(math.sqrt(squared_weight / count) / compute_multiplier(0.0))


def compute_count_noise(n_queries: int, budget: float) -> float:
    """Return sigma1, the noise standard deviation of a private count (ZZGW23), in records.

    It is sqrt(T / (6 B)), but at least 1: with less noise no record would be counted, as the
    largest contribution is the noise's standard deviation. `budget`: a subject's zCDP budget B.
    """
    return max(1.0, math.sqrt(n_queries / (2 * COUNT_CHARGE * budget)))


def measure_participation(reference: Reference, radius: Radius, n_features: int) -> Participation:
    """Return how often, and with what weight, public points take part in each other's votes.

    They are both queries and records. `radius`: rule that selects the points which vote on a query.
    `n_features`: number of columns of their integer features.
    """
    kernel = reference.kernel
    weights = kernel.table(n_features)
    query_points = reference.points[:_MAX_PROBES]
    thresholds = radius.thresholds(query_points)
    counts = np.zeros(len(reference), dtype=np.int64)
    squared_weights = 0.0
    start = 0
    for similarities in reference.iterate_similarities(query_points):
        stop = start + len(similarities)
        inside = similarities >= thresholds[start:stop, None]
        # Every point is inside its own radius, but a query is not a record.
        inside[np.arange(stop - start), np.arange(start, stop)] = False
        counts += inside.sum(axis=0)
        levels = kernel.levels(similarities[inside].astype(np.int32))
        squared_weights += float(np.square(weights[levels]).sum())
        start = stop
    total = int(counts.sum())
    if total == 0:
        return Participation(mean_squared_weight=1.0, spread=TYPICAL_SPREAD)
    spread = float(np.square(counts.astype(np.float64)).mean() / counts.mean() ** 2)
    mean_squared_weight = max(squared_weights / total, 1e-4)
    return Participation(mean_squared_weight, min(spread, float(len(reference))))
