"""A proxy ledger: public points that are charged as records are, to estimate budget usage.

The true budgets are private; nothing may depend on them. But points of the public reference lie
where records lie, and every release is public: its queries, radii and noise. So the same charging
rule is run on the points, with the very object that charges the records, and what they have left
estimates what records around them have left. It is a function of public things alone: whatever
is decided from it is post-processing.

Noise that follows the budget usage of public points, see the module ``_proxy_ledger``.

A plan's multiplier sigma2 = sqrt(u T) lasts for T queries that fall as the public points do. At a
query q with R questions still expected, points around it that have the share r left, and that were
asked g times as often as planned,

    sigma2(q) = sqrt(u R g / r),

but not much less than the plan's: a stream may turn, and ask tomorrow what it never asked before.
docs/decisions/0011-proxy-ledger.md has the measurements.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from vicinal import _checks
from vicinal.accounting._budget import UNITS
from vicinal.errors import InvalidInput
from vicinal.mechanisms import SubjectTable
from vicinal.mechanisms._votes import BlockRelease
from vicinal.neighbours import (
    CentroidCells,
    ExactIndex,
    NeighbourLists,
    Radius,
    Reference,
    learn_cells,
)
from vicinal.neighbours._kernels import IntegerMatrix
from vicinal.predictors.ind_knn._planning import (
    GatedNoiseSchedule,
    Multipliers,
    NoiseSchedule,
    usage,
)
from vicinal.predictors.ind_knn._shared_settings import SharedSettings

Floats = npt.NDArray[np.float64]
Places = npt.NDArray[np.int64]
Shares = npt.NDArray[np.uint16]
"""Shares of a budget that are used, in steps of 1 / `WHOLE`, rounded up."""

WHOLE = (1 << 16) - 1
"""A budget in :data:`Shares`."""

WATCHED = 2048
"""Public points that are charged, at most, where nothing follows them: enough for a few regions."""

FOLLOWED = 8192
"""The same where the noise of every query follows the points around it."""

REGIONS = 16
"""Regions that budget usage is estimated for by default."""

RETIRED = 0.99
"""Share of a budget from which on it counts as spent: what is left buys next to no vote."""

QUANTILES = (0.5, 0.9, 0.99)
"""Quantiles of budget usage that are stated."""


@dataclass(frozen=True, slots=True)
class BudgetUsage:
    """How much of their budgets subjects have used, estimated from public things; public.

    Attributes
    ----------
    used : float
        Mean share of a budget that is used.
    quantiles : tuple of float
        Of that share, at `QUANTILES`.
    retired : float
        Share of subjects that have used at least `RETIRED` of their budget.
    regions : tuple of float
        Mean share used in each region around a public centroid.
    points : tuple of int
        Public points that stand for each region.
    """

    used: float
    quantiles: tuple[float, ...]
    retired: float
    regions: tuple[float, ...]
    points: tuple[int, ...]

    @classmethod
    def of(cls, used: Floats, homes: npt.NDArray[np.int32], regions: int) -> BudgetUsage:
        """Sum up shares used (n,) and regions (n,); a region without anybody has used nothing."""
        sizes = np.bincount(homes, minlength=regions)
        sums = np.bincount(homes, weights=used, minlength=regions)
        return cls(
            float(used.mean()),
            tuple(np.quantile(used, QUANTILES).tolist()),
            float((used >= RETIRED).mean()),
            tuple((sums / np.maximum(sizes, 1)).tolist()),
            tuple(sizes.tolist()),
        )


class ProxyLedger:
    """Virtual budgets of public points; everything in it is public.

    Parameters
    ----------
    reference : Reference
        The public points, with the kernel of the votes.
    radius : Radius
        Which points take part in a query: as for records.
    most : int
        Where there are more points, an even choice of so many is charged.
    use : float
        What a subject is charged, over what each of its records would be: a point stands for one.
    """

    def __init__(
        self, reference: Reference, radius: Radius, most: int = FOLLOWED, use: float = 1.0
    ) -> None:
        points = reference.points[:: -(-len(reference) // most)]
        self._points = Reference(reference.kernel, points)
        self._radius = radius
        self._index = ExactIndex(reference.kernel, points.shape[1])
        self._index.add(points)
        size = len(points)
        self._full = math.floor(UNITS / use)
        self._people = SubjectTable(
            targets=np.zeros(size, dtype=np.int32),
            slots=np.arange(size, dtype=np.int32),
            records=np.ones(size, dtype=np.int32),
            remaining=np.full(size, self._full, dtype=np.int64),
        )
        self._counts = np.zeros(size, dtype=np.int64)
        self.asked = 0
        self._cells: dict[int, CentroidCells] = {}

    def __len__(self) -> int:
        """Return the number of points that are charged."""
        return len(self._counts)

    @property
    def used(self) -> Floats:
        """The share of its virtual budget that every point has used, (m,)."""
        return np.asarray(1 - self._people.remaining / self._full)

    @property
    def shares(self) -> Shares:
        """The same in few bytes, to be stored and resumed from."""
        return np.asarray(np.ceil(self.used * WHOLE), dtype=np.uint16)

    def resume(self, shares: Shares) -> None:
        """Go on from shares used (m,); from full budgets if there are none.

        Raises
        ------
        InvalidInput
            If they belong to other points.
        """
        if len(shares) not in (0, len(self)):
            raise InvalidInput(f"Shares must be one for each of {len(self)} points.")
        self._set(np.zeros(len(self)) if not len(shares) else shares / WHOLE)

    def start(self, used: Floats) -> None:
        """Take off shares that every reference point (m,) has used before the first query."""
        self._set(used[:: -(-len(used) // len(self))])

    def _set(self, used: Floats) -> None:
        self._people.remaining[:] = np.floor((1 - used) * self._full).astype(np.int64)

    def near(self, queries: IntegerMatrix, thresholds: Places) -> NeighbourLists:
        """Return the points inside each query's radius."""
        return self._index.search(queries, thresholds)

    def add_query(self, near: NeighbourLists) -> None:
        """Count who takes part in the queries of a block, before it is answered."""
        self._counts += np.bincount(near.rows, minlength=len(self))
        self.asked += len(near)

    def charge(self, release: BlockRelease, near: NeighbourLists) -> None:
        """Charge the points for a release as it charges records; their votes are dropped."""
        release.contribute_and_charge(near, self._people)

    def left(self, near: NeighbourLists) -> Floats:
        """Return the mean share that points near each query have left, (q,); 1 for no points."""
        return np.asarray(1 - _means(near, self.used, 0.0))

    def asked_near(self, near: NeighbourLists) -> Floats:
        """Return how often points near each query took part in *other* queries seen, (q,)."""
        return _means(near, self._counts.astype(np.float64), 1.0) - 1

    def cells(self, regions: int = REGIONS) -> CentroidCells:
        """Return regions around centroids of the public points, fewer if these are few."""
        wanted = min(_checks.integer("regions", regions, least=1), max(1, len(self) // 16))
        if wanted not in self._cells:
            self._cells[wanted] = learn_cells(self._points, self._radius, cells=wanted)
        return self._cells[wanted]

    def budget_usage(self, regions: int = REGIONS) -> BudgetUsage:
        """Return the estimate of how far the private budgets are used."""
        cells = self.cells(regions)
        return BudgetUsage.of(self.used, cells.of(self._points.points), len(cells))


def _means(near: NeighbourLists, values: Floats, nobody: float) -> Floats:
    """Return the mean of the points' values (m,) around each query; `nobody` where none is."""
    sizes = np.diff(near.starts)
    homes = np.repeat(np.arange(len(near)), sizes)
    sums = np.bincount(homes, weights=values[near.rows], minlength=len(near))
    return np.asarray(np.where(sizes > 0, sums / np.maximum(sizes, 1), nobody))


LOWEST = 0.8
"""The least multiplier, over the plan's: noise is saved only by so much where little was asked."""

_PRIOR_QUERIES = 50  # queries as planned that the forecast starts from
_LEAST_LEFT = 0.01
_LOUDEST = 64.0  # over the plan's noise; far more than this is no answer, and strains the grid
_PER_OCTAVE = 16


class Horizon(Protocol):
    """How many questions are still to be expected."""

    def left(self) -> float:
        """Return the questions still to be expected, the next block's included."""

    def update(self, answered: int, asked: int, unsure: float | None = None) -> None:
        """Take note of a block, as ``NoiseSchedule.update`` of ``_planning`` does."""


class PlannedHorizon:
    """Expects what was planned, and then a tenth of it more, again and again.

    Parameters
    ----------
    n_queries : int
        Queries planned for.
    """

    def __init__(self, n_queries: int) -> None:
        self._n_queries = n_queries
        self._answered = 0

    def left(self) -> float:
        """Return the questions still to be expected."""
        return max(self._n_queries - self._answered, self._n_queries / 10, 1.0)

    def update(
        self,
        answered: int,
        asked: int,  # noqa: ARG002 (all are)
        unsure: float | None = None,  # noqa: ARG002
    ) -> None:
        """Take note of a block."""
        self._answered += answered


class ProxyNoiseSchedule(NoiseSchedule):
    """Any schedule, with a proxy ledger beside it; the noise does not follow it.

    Parameters
    ----------
    schedule : NoiseSchedule
        What sets the noise.
    proxies : ProxyLedger
        What is charged along with the records.
    """

    def __init__(self, schedule: NoiseSchedule, proxies: ProxyLedger) -> None:
        super().__init__(schedule.multiplier)
        self.proxies = proxies
        self._schedule = schedule
        self._near: NeighbourLists | None = None

    @property
    def least(self) -> float:
        """The smallest multiplier that will ever be used."""
        return self._schedule.least

    def prepare(self, queries: IntegerMatrix, thresholds: Places) -> Multipliers:
        """Look up who of the public points takes part; return its own multiplier."""
        self._near = self.proxies.near(queries, thresholds)
        self.proxies.add_query(self._near)
        return self._schedule.multiplier

    def charge_proxies(self, release: BlockRelease) -> None:
        """Charge the public points for what was prepared."""
        near, self._near = self._near, None
        if near is not None:
            self.proxies.charge(release, near)

    def update(self, answered: int, asked: int, unsure: float | None = None) -> None:
        """Take note of a block."""
        self._schedule.update(answered, asked, unsure)
        self.multiplier = self._schedule.multiplier


class UsageNoiseSchedule(ProxyNoiseSchedule):
    """The noise of every query follows the budget usage of the public points around it.

    Parameters
    ----------
    schedule : NoiseSchedule
        The plan's; its multiplier is where this one starts from.
    proxies : ProxyLedger
        The virtual budgets.
    horizon : Horizon
        How many questions are expected.
    unit : float
        u, the squared multiplier of a plan of one question.
    rate : float
        How often a public point near a query takes part in another, by plan.
    """

    def __init__(
        self,
        schedule: NoiseSchedule,
        proxies: ProxyLedger,
        horizon: Horizon,
        unit: float,
        rate: float,
    ) -> None:
        super().__init__(schedule, proxies)
        self._horizon = horizon
        self._unit = unit
        self._rate = rate
        self._least = min(schedule.least, LOWEST * schedule.multiplier)
        self._most = _LOUDEST * schedule.multiplier

    @property
    def least(self) -> float:
        """The smallest multiplier that will ever be used."""
        return self._least

    def prepare(self, queries: IntegerMatrix, thresholds: Places) -> Multipliers:
        """Return the multiplier of every query, (q,)."""
        super().prepare(queries, thresholds)
        assert self._near is not None  # noqa: S101 (narrows the type: just set)
        left = np.maximum(self.proxies.left(self._near), _LEAST_LEFT)
        squares = self._unit * self._horizon.left() * self._crowding(self._near) / left
        return self._in_steps(np.clip(np.sqrt(squares), self._least, self._most))

    def update(self, answered: int, asked: int, unsure: float | None = None) -> None:
        """Take note of a block."""
        super().update(answered, asked, unsure)
        if not isinstance(
            self._horizon, NoiseSchedule
        ):  # else it is the schedule, which has just been updated
            self._horizon.update(answered, asked, unsure)

    def _crowding(self, near: NeighbourLists) -> Floats:
        """Return how much more often than planned the points near each query are asked, (q,)."""
        seen = (self.proxies.asked_near(near) / self._rate + _PRIOR_QUERIES) / (
            self.proxies.asked - 1 + _PRIOR_QUERIES
        )
        return np.asarray(seen)

    def _in_steps(self, multipliers: Floats) -> Floats:
        """Round up to a sixteenth of an octave, so that a block has few noise scales."""
        octaves = np.log2(multipliers / self._least)
        return np.asarray(self._least * np.exp2(np.ceil(octaves * _PER_OCTAVE) / _PER_OCTAVE))


def watched(
    settings: SharedSettings,
    schedule: NoiseSchedule,
    reference: Reference,
    radius: Radius,
    n_records: int,
) -> NoiseSchedule:
    """Return the schedule beside a proxy ledger, which the noise follows if that is wanted."""
    use = settings.subject_use
    if not settings.follows_usage:
        return ProxyNoiseSchedule(schedule, ProxyLedger(reference, radius, WATCHED, use))
    proxies = ProxyLedger(reference, radius, use=use)
    typical = usage(reference, radius, reference.points.shape[1])
    rate = typical.spread * float(radius.expected(reference.points[:1])[0]) / n_records
    if isinstance(schedule, GatedNoiseSchedule):
        return UsageNoiseSchedule(schedule, proxies, schedule, schedule.unit, rate)
    unit = schedule.multiplier**2 / settings.n_queries
    return UsageNoiseSchedule(schedule, proxies, PlannedHorizon(settings.n_queries), unit, rate)
