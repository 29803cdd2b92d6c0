"""The noise of every block of queries, planned or after the public points that are charged along.

The true budgets are private; nothing may depend on them. But points of the public reference lie
where records lie, and every release is public: its queries, radii and noise. So the same charging
rule is run on the points, with the very object that charges the records, and what they have left
estimates what records around them have left. This proxy ledger is a function of public things
alone: whatever is decided from it is post-processing.

A plan's multiplier sigma2 = sqrt(u T) lasts for T queries that fall as the public points do. At a
query q with R questions still expected, points around it that have the share r left, and that were
asked g times as often as planned, noise that follows usage is

    sigma2(q) = sqrt(u R g / r),

but not much less than the plan's: a stream may turn, and ask tomorrow what it never asked before.
"""

from __future__ import annotations

import math

import numpy as np

from vicinal import _checks
from vicinal._arrays import Floats, Ints, Places, Shares
from vicinal.accounting._budget import UNITS
from vicinal.errors import InvalidInput
from vicinal.mechanisms import SubjectTable
from vicinal.mechanisms._votes import BlockRelease
from vicinal.neighbours import (
    CentroidCells,
    ExactIndex,
    Kernel,
    NeighbourLists,
    Radius,
    Reference,
    learn_cells,
)
from vicinal.neighbours._kernels import IntegerMatrix
from vicinal.predictors.ind_knn._answer_trend import PublicSurroundings
from vicinal.predictors.ind_knn._budget_usage import REGIONS, BudgetUsage
from vicinal.predictors.ind_knn._planning import usage
from vicinal.predictors.ind_knn._shared_settings import SharedSettings

Multipliers = float | Floats
"""sigma2 for all queries of a block, or for each of them, (q,)."""


WHOLE = (1 << 16) - 1
"""A budget in :data:`Shares`."""

WATCHED = 2048
"""Public points that are charged, at most, where nothing follows them: enough for a few regions."""

FOLLOWED = 8192
"""The same where the noise of every query follows the points around it."""


class NoiseSchedule:
    """The noise multiplier of every block: one for all of them.

    `multiplier`: sigma2. `n_queries`: answers planned for. Once they are given a tenth more are
    expected, again and again.
    """

    def __init__(self, multiplier: float, n_queries: int) -> None:
        self.multiplier = multiplier
        self.n_queries = n_queries
        self._answered = 0

    @property
    def least(self) -> float:
        """The smallest multiplier that will ever be used."""
        return self.multiplier

    @property
    def unit(self) -> float:
        """u, the squared multiplier of a plan of one question."""
        return self.multiplier**2 / self.n_queries

    @property
    def worthwhile(self) -> bool:
        """Whether the next answers tell more than they confuse."""
        return True

    def expected_queries(self) -> float:
        """Return the questions still to be expected, the next block's included."""
        return max(self.n_queries - self._answered, self.n_queries / 10, 1.0)

    def prepare(
        self,
        queries: IntegerMatrix,  # noqa: ARG002 (the same for all)
        thresholds: Ints,  # noqa: ARG002
    ) -> Multipliers:
        """Return sigma2 for a block that is about to be asked, given its public radii."""
        return self.multiplier

    def charge_proxies(self, release: BlockRelease) -> None:
        """Take note of the release that was made for the block just prepared."""

    def update(
        self,
        answered: int,
        queried: int,  # noqa: ARG002 (all are)
        unsure: float | None = None,  # noqa: ARG002
    ) -> None:
        """Take note of a block.

        `answered`, `queried`: how many queries were answered, and how many of them were asked.
        `unsure`: the share of public points that would be asked for now.
        """
        self._answered += answered


class ProxyLedger:
    """Virtual budgets of public points; everything in it is public.

    - `reference`: the public points, with the kernel of the votes.
    - `radius`: which points take part in a query: as for records.
    - `most`: where there are more points, an even choice of so many is charged.
    - `use`: what a subject is charged, over what each of its records would be: a point stands for
      one.
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
        self._subjects = SubjectTable(
            targets=np.zeros(size, dtype=np.int32),
            slots=np.arange(size, dtype=np.int32),
            records=np.ones(size, dtype=np.int32),
            remaining=np.full(size, self._full, dtype=np.int64),
        )
        self._counts = np.zeros(size, dtype=np.int64)
        self.n_queries = 0
        self._cells: dict[int, CentroidCells] = {}

    def __len__(self) -> int:
        """Return the number of points that are charged."""
        return len(self._counts)

    @property
    def used(self) -> Floats:
        """The share of its virtual budget that every point has used, (m,)."""
        return np.asarray(1 - self._subjects.remaining / self._full)

    @property
    def shares(self) -> Shares:
        """The same in few bytes, to be stored and resumed from."""
        return np.asarray(np.ceil(self.used * WHOLE), dtype=np.uint16)

    def resume(self, shares: Shares) -> None:
        """Go on from shares used (m,); from full budgets if there are none.

        Raises InvalidInput if they belong to other points.
        """
        if len(shares) not in (0, len(self)):
            raise InvalidInput(f"Shares must be one for each of {len(self)} points.")
        self.start(shares / WHOLE if len(shares) else np.zeros(len(self)))

    def start(self, used: Floats) -> None:
        """Take off shares that every reference point (m,) has used before the first query."""
        used = used[:: -(-len(used) // len(self))]
        self._subjects.remaining[:] = np.floor((1 - used) * self._full).astype(np.int64)

    def spend(self, used: Floats) -> None:
        """Take off shares that every reference point (m,) uses at once, as far as they have any."""
        used = used[:: -(-len(used) // len(self))]
        taken = np.ceil(used * self._full).astype(np.int64)
        self._subjects.remaining[:] = np.maximum(self._subjects.remaining - taken, 0)

    def search(self, queries: IntegerMatrix, thresholds: Places) -> NeighbourLists:
        """Return the points inside each query's radius."""
        return self._index.search(queries, thresholds)

    def surroundings(
        self, queries: IntegerMatrix, kernel: Kernel, weights: Ints
    ) -> PublicSurroundings:
        """Return where the points inside each query's radius lie, by a kernel's weights."""
        near = self.search(queries, self._radius.thresholds(queries))
        return PublicSurroundings.of(
            queries.astype(np.float64),
            self._points.points.astype(np.float64),
            near.starts,
            near.rows,
            weights[kernel.levels(near.similarities)].astype(np.float64),
        )

    def add_query(self, neighbours: NeighbourLists) -> None:
        """Count who takes part in the queries of a block, before it is answered."""
        self._counts += np.bincount(neighbours.rows, minlength=len(self))
        self.n_queries += len(neighbours)

    def charge(self, release: BlockRelease, neighbours: NeighbourLists) -> None:
        """Charge the points for a release as it charges records; their votes are dropped."""
        release.contribute_and_charge(neighbours, self._subjects)

    def mean_remaining(self, neighbours: NeighbourLists) -> Floats:
        """Return the mean share that points near each query have left, (q,); 1 for no points."""
        return np.asarray(1 - _means(neighbours, self.used, 0.0))

    def asked_near(self, neighbours: NeighbourLists) -> Floats:
        """Return how often points near each query took part in *other* queries seen, (q,)."""
        return _means(neighbours, self._counts.astype(np.float64), 1.0) - 1

    def cells(self, regions: int = REGIONS) -> CentroidCells:
        """Return regions around centroids of the public points, fewer if these are few."""
        count = min(_checks.integer("regions", regions, least=1), max(1, len(self) // 16))
        if count not in self._cells:
            self._cells[count] = learn_cells(self._points, self._radius, cells=count)
        return self._cells[count]

    def budget_usage(self, regions: int = REGIONS) -> BudgetUsage:
        """Return the estimate of how far the private budgets are used."""
        cells = self.cells(regions)
        return BudgetUsage.of(self.used, cells.of(self._points.points), len(cells))


def _means(neighbours: NeighbourLists, values: Floats, nobody: float) -> Floats:
    """Return the mean of the points' values (m,) around each query; `nobody` where none is."""
    sizes = np.diff(neighbours.starts)
    homes = np.repeat(np.arange(len(neighbours)), sizes)
    sums = np.bincount(homes, weights=values[neighbours.rows], minlength=len(neighbours))
    return np.asarray(np.where(sizes > 0, sums / np.maximum(sizes, 1), nobody))


LOWEST = 0.8
"""The least multiplier, over the plan's: noise is saved only by so much where little was asked."""

_PRIOR_QUERIES = 50  # queries as planned that the forecast starts from
_LEAST_LEFT = 0.01
_LOUDEST = 64.0  # over the plan's noise; far more than this is no answer, and strains the grid
_PER_OCTAVE = 16


class ProxyNoiseSchedule(NoiseSchedule):
    """Any schedule, with a proxy ledger beside it; the noise does not follow it.

    `schedule`: what sets the noise. `proxies`: what is charged along with the records.
    """

    def __init__(self, schedule: NoiseSchedule, proxies: ProxyLedger) -> None:
        super().__init__(schedule.multiplier, schedule.n_queries)
        self.proxies = proxies
        self._schedule = schedule
        self._neighbours: NeighbourLists | None = None

    @property
    def least(self) -> float:
        """The smallest multiplier that will ever be used."""
        return self._schedule.least

    @property
    def unit(self) -> float:
        """u, the squared multiplier of a plan of one question."""
        return self._schedule.unit

    @property
    def worthwhile(self) -> bool:
        """Whether the next answers tell more than they confuse."""
        return self._schedule.worthwhile

    def expected_queries(self) -> float:
        """Return the questions still to be expected, the next block's included."""
        return self._schedule.expected_queries()

    def prepare(self, queries: IntegerMatrix, thresholds: Places) -> Multipliers:
        """Look up who of the public points takes part; return its own multiplier."""
        self._neighbours = self.proxies.search(queries, thresholds)
        self.proxies.add_query(self._neighbours)
        return self._schedule.multiplier

    def charge_proxies(self, release: BlockRelease) -> None:
        """Charge the public points for what was prepared."""
        neighbours, self._neighbours = self._neighbours, None
        if neighbours is not None:
            self.proxies.charge(release, neighbours)

    def update(self, answered: int, queried: int, unsure: float | None = None) -> None:
        """Take note of a block."""
        self._schedule.update(answered, queried, unsure)
        self.multiplier = self._schedule.multiplier


class UsageNoiseSchedule(ProxyNoiseSchedule):
    """The noise of every query follows the budget usage of the public points around it.

    `schedule`: the plan's: its multiplier is where this one starts from, and it knows how many
    questions are still expected. `proxies`: the virtual budgets. `rate`: how often a public point
    near a query takes part in another, by plan.
    """

    def __init__(self, schedule: NoiseSchedule, proxies: ProxyLedger, rate: float) -> None:
        super().__init__(schedule, proxies)
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
        assert self._neighbours is not None  # noqa: S101 (narrows the type: just set)
        remaining = np.maximum(self.proxies.mean_remaining(self._neighbours), _LEAST_LEFT)
        squares = self.unit * self.expected_queries() * self._crowding(self._neighbours) / remaining
        return self._in_steps(np.clip(np.sqrt(squares), self._least, self._most))

    def _crowding(self, neighbours: NeighbourLists) -> Floats:
        """Return how much more often than planned the points near each query are asked, (q,)."""
        times = self.proxies.asked_near(neighbours) / self._rate + _PRIOR_QUERIES
        return np.asarray(times / (self.proxies.n_queries - 1 + _PRIOR_QUERIES))

    def _in_steps(self, multipliers: Floats) -> Floats:
        """Round up to a sixteenth of an octave, so that a block has few noise scales."""
        octaves = np.log2(multipliers / self._least)
        return np.asarray(self._least * np.exp2(np.ceil(octaves * _PER_OCTAVE) / _PER_OCTAVE))


def with_proxies(
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
    return UsageNoiseSchedule(schedule, proxies, rate)
