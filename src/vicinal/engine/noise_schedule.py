"""Neighbours and noise of a plan, from public facts alone."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from vicinal.neighbours.radius import Radius, Reference
from vicinal.targets.target import NEIGHBORS_PER_NOISE

# ----------------------------------------------------------------
# Public planning: neighbours and noise from the plan and the public set, nothing private.
#
# A record expects T k / n participations in T queries, each charged w^2 / (2 sigma2^2 k) for a
# kernel weight w, so its budget B is just used up at
#
#     sigma2 = sqrt(headroom spread w^2 T / (2 n B)),
#
# where `spread` makes room for records that are near more queries than others (hubs); it and w^2
# are measured on public points that stand in for records and for queries. The headroom is there
# because the two sides are not alike: noise a third too large costs a point of accuracy, noise a
# third too small retires the records that matter and costs 2 to 10 points.
#
# The number of neighbours trades noise against nearness: the votes' signal over noise grows as
# sqrt(k) / sigma2. The optimum is flat. It grows in proportion to the noise, and with the dimension
# of the data: where there are many directions, twice the neighbours are hardly further away.
# docs/decisions/0008-automatic-plan.md has the measurements behind all constants.


LEAST_DIMENSION = 15.0
"""Data of fewer dimensions are given as many neighbours as these."""

HEADROOM = 1.4
"""Budget that noise is planned for, over what a typical busy record needs."""

TYPICAL_SPREAD = 1.3
"""Spread assumed for choosing k, before there is a radius to measure it with."""

LEAST_RANK = 5
"""Automatic k keeps at least this many reference points inside a radius."""

COUNT_SHARE = 3.0
"""A selection costs this over T of the budget in the paper's count: sigma1 = sqrt(T / (6 B))."""

_PROBES = 2000
_SCALES = 4


@dataclass(frozen=True, slots=True)
class ReferenceUsage:
    """How public points would be used if they were records.

    `weight`: mean squared kernel weight of a participation. `spread`: mean square over squared mean
    of the number of participations of a point.
    """

    weight: float
    spread: float


def expected_neighbors(
    n_records: int,
    n_queries: int,
    budget: float,
    n_classes: int,
    n_reference: int,
    dimension: float = LEAST_DIMENSION,
    per_noise: float = NEIGHBORS_PER_NOISE,
) -> int:
    """Return k for a plan, from public numbers alone."""
    noise = typical_noise(n_records, n_queries, budget)
    proposed = round(per_noise * max(dimension, LEAST_DIMENSION) * noise)
    most = max(1, n_records // (2 * n_classes))
    least = math.ceil(LEAST_RANK * n_records / n_reference)
    return max(min(proposed, most), min(least, n_records), 1)


def typical_noise(n_records: int, n_queries: int, budget: float) -> float:
    """Return the noise multiplier at which a record of typical use lasts, for weights of 1."""
    return math.sqrt(TYPICAL_SPREAD * n_queries / (2 * n_records * budget))


def fitting_neighbors(
    reference: Reference,
    n_records: int,
    n_queries: int,
    budget: float,
    n_classes: int,
    per_noise: float = NEIGHBORS_PER_NOISE,
) -> int:
    """Return :func:`expected_neighbors` for data of the dimension that public points have."""
    plan = n_records, n_queries, budget, n_classes, len(reference)
    rank = round(expected_neighbors(*plan, per_noise=per_noise) * len(reference) / n_records)
    return expected_neighbors(*plan, estimate_dimension(reference, rank), per_noise)


def estimate_dimension(reference: Reference, rank: int) -> float:
    """Return the intrinsic dimension of public points at the scale of their `rank`-th neighbours.

    In D dimensions four times the neighbours reach 4^(1/D) times as far; the logarithms of that
    are averaged over points, as MacKay & Ghahramani (2005) average those of Levina & Bickel (2004).
    0 where there are too few points to tell.
    """
    # Four times the neighbours, or as far as there are points: nearer ones are noise of the
    # sample, further ones see the edge of the data.
    far = min(rank, len(reference) - 1)
    near = far // _SCALES
    if near < 1:
        return 0.0
    probes = reference.points[:_PROBES]
    # A point is its own nearest.
    spans = [
        np.log(reference.kernel.squared_distance(reference.largest(probes, k + 1), probes.shape[1]))
        for k in (near, far)
    ]
    growth = float(np.mean(spans[1] - spans[0])) / 2
    return math.log(far / near) / growth if growth > 0 else 0.0


def fitting_multiplier(
    usage: ReferenceUsage, n_records: int, n_queries: int, budget: float
) -> float:
    """Return the noise multiplier sigma2 at which a busy record lasts, with headroom."""
    return math.sqrt(HEADROOM * usage.spread * usage.weight * n_queries / (2 * n_records * budget))


def planned_multiplier(
    usage: ReferenceUsage,
    n_records: int,
    n_queries: int,
    count: float,
    affordable: Callable[[float], float],
) -> float:
    """Return the fitting multiplier where the price of a contribution depends on its size.

    `usage`, `n_records`, `n_queries`: as for :func:`fitting_multiplier`. `count`: records that take
    part in a query. `affordable`: the budget as contributions of so many noise scales feel it.
    """

    def fitting(shift: float) -> float:
        return fitting_multiplier(usage, n_records, n_queries, affordable(shift))

    # The share of labels rises with the shift: take it at the largest that is planned for, so
    # that the price is over- rather than underestimated.
    return fitting(math.sqrt(usage.weight / count) / fitting(0.0))


def count_noise(n_queries: int, budget: float) -> float:
    """Return sigma1 of the paper's private count, sqrt(T / (6 B)), and at least one record.

    Less noise than one record would put a record further from its neighbour than the grid's slack
    allows, so that nobody could be counted.
    """
    return max(1.0, math.sqrt(n_queries / (2 * COUNT_SHARE * budget)))


def reference_usage(reference: Reference, radius: Radius, n_features: int) -> ReferenceUsage:
    """Measure :class:`ReferenceUsage` by asking public points about all other public points."""
    kernel = reference.kernel
    table = kernel.table(n_features)
    probes = reference.points[:_PROBES]
    thresholds = radius.thresholds(probes)
    counts = np.zeros(len(reference), dtype=np.int64)
    squares, start = 0.0, 0
    for similarities in reference.similarities(probes):
        stop = start + len(similarities)
        inside = similarities >= thresholds[start:stop, None]
        # A point is inside its own radius, where a query would not be.
        inside[np.arange(stop - start), np.arange(start, stop)] = False
        counts += inside.sum(axis=0)
        levels = kernel.levels(similarities[inside].astype(np.int32))
        squares += float(np.square(table[levels]).sum())
        start = stop
    total = int(counts.sum())
    if total == 0:
        return ReferenceUsage(weight=1.0, spread=TYPICAL_SPREAD)
    spread = float(np.square(counts.astype(np.float64)).mean() / counts.mean() ** 2)
    return ReferenceUsage(
        weight=max(squares / total, 1e-4), spread=min(spread, float(len(reference)))
    )
