"""Number of neighbours and noise multiplier of a plan, from public information alone."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from vicinal.neighbours.radius import Radius, Reference
from vicinal.targets.target import NEIGHBORS_PER_NOISE

# ----------------------------------------------------------------
# A record expects T k / n participations in T queries, each charged w^2 / (2 sigma2^2 k) for a
# kernel weight w, so its budget B is just spent at
#
#     sigma2 = sqrt(headroom spread w^2 T / (2 n B)),
#
# where `spread` accounts for hubs, records that are near more queries than others. It and w^2 are
# measured on public points in the place of records and queries. The headroom reflects asymmetric
# errors: noise a third too large costs a point of accuracy, but noise a third too small exhausts
# the most useful records and costs 2 to 10 points.
#
# The number of neighbours k trades noise against nearness: the votes' signal-to-noise ratio grows
# as sqrt(k) / sigma2. The optimum is flat. It grows in proportion to the noise, and with the
# dimension of the data, since in many dimensions twice the neighbours are hardly more distant.
# docs/decisions/0008-automatic-plan.md has the measurements behind all constants.


MIN_DIMENSION = 15.0
"""Lower bound of the intrinsic dimension that the number of neighbours grows with."""

HEADROOM = 1.4
"""Ratio of the budget that noise is planned for to the expected use of a busy record."""

TYPICAL_SPREAD = 1.3
"""Spread assumed for choosing k, before there is a radius to measure it with (decision 0008)."""

MIN_RANK = 5
"""Minimum number of reference points inside a radius at the automatic k."""

COUNT_SHARE = 3.0
"""Charge of a private count, in budgets over T, at the paper's sigma1 = sqrt(T / (6 B))."""

_MAX_PROBES = 2000  # public points that serve as queries
_RANK_RATIO = 4  # of the two neighbour ranks used to estimate the dimension


@dataclass(frozen=True, slots=True)
class ReferenceUsage:
    """Participation of public points if they were records.

    `weight`: mean squared kernel weight of a participation. `spread`: ratio of the mean square to
    the squared mean of a point's number of participations.
    """

    weight: float
    spread: float


def expected_neighbors(
    n_records: int,
    n_queries: int,
    budget: float,
    n_classes: int,
    n_reference: int,
    dimension: float = MIN_DIMENSION,
    per_noise: float = NEIGHBORS_PER_NOISE,
) -> int:
    """Return k, the number of neighbours, for a plan, from public numbers alone.

    `budget`: of a subject, in zCDP. `n_reference`: number of public reference points. `dimension`:
    intrinsic dimension of the data. `per_noise`: neighbours per dimension and noise multiplier.
    """
    noise = typical_noise(n_records, n_queries, budget)
    proposed = round(per_noise * max(dimension, MIN_DIMENSION) * noise)
    maximum = max(1, n_records // (2 * n_classes))
    minimum = math.ceil(MIN_RANK * n_records / n_reference)
    return max(min(proposed, maximum), min(minimum, n_records), 1)


def typical_noise(n_records: int, n_queries: int, budget: float) -> float:
    """Return the noise multiplier that just spends a typical record's budget, for weights of 1."""
    return math.sqrt(TYPICAL_SPREAD * n_queries / (2 * n_records * budget))


def fitting_neighbors(
    reference: Reference,
    n_records: int,
    n_queries: int,
    budget: float,
    n_classes: int,
    per_noise: float = NEIGHBORS_PER_NOISE,
) -> int:
    """Return :func:`expected_neighbors` at the intrinsic dimension of the `reference` points."""
    plan = n_records, n_queries, budget, n_classes, len(reference)
    rank = round(expected_neighbors(*plan, per_noise=per_noise) * len(reference) / n_records)
    return expected_neighbors(*plan, estimate_dimension(reference, rank), per_noise)


def estimate_dimension(reference: Reference, rank: int) -> float:
    """Return the intrinsic dimension of public points at the scale of their `rank`-th neighbours.

    In D dimensions the distance of the 4 k-th neighbour is 4^(1/D) times that of the k-th. Their
    logarithms are averaged over points, as MacKay & Ghahramani (2005) average those of Levina &
    Bickel (2004). Returns 0 if there are too few points for an estimate.
    """
    # The ranks are `rank` and a quarter of it: smaller ranks have more sampling noise, and larger
    # ones reach the boundary of the data.
    far_rank = min(rank, len(reference) - 1)
    near_rank = far_rank // _RANK_RATIO
    if near_rank < 1:
        return 0.0
    probes = reference.points[:_MAX_PROBES]
    # Ranks are one higher here, as every point is its own nearest neighbour.
    log_distances = [
        np.log(
            reference.kernel.squared_distance(
                reference.find_similarity_at_rank(probes, k + 1), probes.shape[1]
            )
        )
        for k in (near_rank, far_rank)
    ]
    growth = float(np.mean(log_distances[1] - log_distances[0])) / 2
    return math.log(far_rank / near_rank) / growth if growth > 0 else 0.0


def fitting_multiplier(
    usage: ReferenceUsage, n_records: int, n_queries: int, budget: float
) -> float:
    """Return the noise multiplier sigma2 that just spends a busy record's budget, with headroom."""
    return math.sqrt(HEADROOM * usage.spread * usage.weight * n_queries / (2 * n_records * budget))


def planned_multiplier(
    usage: ReferenceUsage,
    n_records: int,
    n_queries: int,
    count: float,
    affordable: Callable[[float], float],
) -> float:
    """Return the noise multiplier sigma2 if a charge is not proportional to the squared shift.

    `count`: expected number of records that vote on a query. `affordable`: returns the equivalent
    budget for contributions of a given shift, in noise scales. See :func:`fitting_multiplier`.
    """

    def fit_to_shift(shift: float) -> float:
        return fitting_multiplier(usage, n_records, n_queries, affordable(shift))

    # The relative charge of label-only releases rises with the shift. It is taken at the largest
    # planned shift, so that charges are over- rather than underestimated.
    return fit_to_shift(math.sqrt(usage.weight / count) / fit_to_shift(0.0))


def count_noise(n_queries: int, budget: float) -> float:
    """Return sigma1 of the paper's private count, sqrt(T / (6 B)), but at least one record.

    With less noise, the shift by one record would exceed the range of the grid's slack bound, and
    no record could be counted.
    """
    return max(1.0, math.sqrt(n_queries / (2 * COUNT_SHARE * budget)))


def reference_usage(reference: Reference, radius: Radius, n_features: int) -> ReferenceUsage:
    """Return the usage of reference points when public points query all others with `radius`."""
    kernel = reference.kernel
    weights = kernel.table(n_features)
    probes = reference.points[:_MAX_PROBES]
    thresholds = radius.thresholds(probes)
    counts = np.zeros(len(reference), dtype=np.int64)
    squared_weights = 0.0
    start = 0
    for similarities in reference.iterate_similarities(probes):
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
        return ReferenceUsage(weight=1.0, spread=TYPICAL_SPREAD)
    spread = float(np.square(counts.astype(np.float64)).mean() / counts.mean() ** 2)
    return ReferenceUsage(
        weight=max(squared_weights / total, 1e-4), spread=min(spread, float(len(reference)))
    )
