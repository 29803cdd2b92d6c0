"""The noise multiplier of every block: as planned, or behind a gate of earlier answers."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from vicinal.neighbours import Radius, Reference
from vicinal.targets import NEIGHBORS_PER_NOISE

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
    return expected_neighbors(*plan, dimension(reference, rank), per_noise)


def dimension(reference: Reference, rank: int) -> float:
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


GATE_HEADROOM = 1.2
"""The same as `HEADROOM` behind a gate, whose noise follows what is asked."""

GATE_OPENS = 200
"""Questions asked before a gate has its first model."""

ASKED_SHARE = 0.4
"""Share of queries that is asked behind a gate, until public points tell it."""


def asked_of(n_queries: int, ungated: int = GATE_OPENS, rate: float = ASKED_SHARE) -> int:
    """Return how many of `n_queries` a gate will ask, the first `ungated` of them all."""
    ungated = min(ungated, n_queries)
    return math.ceil(ungated + rate * (n_queries - ungated))


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


_PRIOR_WEIGHT = 300
_LEAST_PACE = 4.0
_FEWEST_LEFT = 256  # twice any block, so that no block can spend everything
_UNSPENT = 1e-6  # then noise is a thousand times the plan's; budgets hold whatever it is


class NoiseSchedule:
    """sigma2, the noise multiplier, of every block: the plan's for all of them."""

    def __init__(self, multiplier: float) -> None:
        self.multiplier = multiplier

    @property
    def least(self) -> float:
        """The smallest multiplier that will ever be used."""
        return self.multiplier

    @property
    def worthwhile(self) -> bool:
        """Whether the next answers tell more than they confuse."""
        return True

    def update(self, answered: int, queried: int, unsure: float | None = None) -> None:
        """Take note of a block.

        `answered`, `queried`: how many queries were answered, and how many of them were asked.
        `unsure`: the share of public points that would be asked for now.
        """


class GatedNoiseSchedule(NoiseSchedule):
    """The multiplier for a gate, which leaves an unknown number of questions to be asked.

    Before every block, noise is set to what lasts for the questions still to be expected, given
    what a busy record has spent so far by plan: sigma2^2 = u E / (1 - spent), with sigma2^2 = u T
    the noise of T questions and `spent` the sum of u / sigma2^2 over the questions asked. All of it
    is public: the stream of queries and released answers decides, never a budget. Once the planned
    queries are through, a tenth more are planned for, again and again: noise rises without end.

    An answer says the right class with a signal of 1 / sigma2, in a fixed unit, and a variance that
    hardly moves. The sum of n answers has the signal over noise sum(1 / sigma2) / sqrt(n), which
    one more answer raises only if its signal is more than half of the mean. From then on asking is
    not worthwhile (docs/decisions/0010-earlier-answers.md).

    `unit`: u, the squared multiplier of a plan of one question. `n_queries`: answers planned for.
    """

    def __init__(self, unit: float, n_queries: int) -> None:
        self._unit = unit
        self._n_queries = n_queries
        self._answered = 0
        self._n_asked = 0
        self._gated = 0
        self._passed = 0
        self._spent = 0.0
        self._learnt = 0
        self._signals = 0.0
        self._forecast = ASKED_SHARE
        self.multiplier = self._fitting()
        self._least = self.multiplier / _LEAST_PACE

    @property
    def least(self) -> float:
        """The smallest multiplier that will ever be used."""
        return self._least

    @property
    def worthwhile(self) -> bool:
        """Whether an answer's signal is at least half of the mean of those learnt from."""
        return self.multiplier * self._signals <= 2 * self._learnt

    def update(self, answered: int, queried: int, unsure: float | None = None) -> None:
        """Take note of a block and set the multiplier of the next."""
        if unsure is not None:
            self._forecast = unsure
        if self.worthwhile:
            self._learnt += queried
            self._signals += queried / self.multiplier
        self._spent += queried * self._unit / self.multiplier**2
        if self._n_asked >= GATE_OPENS:
            self._gated += answered
            self._passed += queried
        self._answered += answered
        self._n_asked += queried
        # Never below the least that the grid was made for.
        self.multiplier = max(self._fitting(), self._least)

    def expected_queries(self) -> float:
        """Return the questions still to be expected, the next block's included."""
        remaining = max(self._n_queries - self._answered, self._n_queries // 10)
        rate = (self._passed + _PRIOR_WEIGHT * self._forecast) / (self._gated + _PRIOR_WEIGHT)
        expected = asked_of(remaining, max(0, GATE_OPENS - self._n_asked), rate)
        return max(expected, _FEWEST_LEFT)

    def _fitting(self) -> float:
        return math.sqrt(self._unit * self.expected_queries() / max(1 - self._spent, _UNSPENT))
