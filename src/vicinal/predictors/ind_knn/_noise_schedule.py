"""Noise that follows the budget usage of public points, see the module ``_proxy_ledger``.

A plan's multiplier sigma2 = sqrt(u T) lasts for T queries that fall as the public points do. At a
query q with R questions still expected, points around it that have the share r left, and that were
asked g times as often as planned,

    sigma2(q) = sqrt(u R g / r),

but not much less than the plan's: a stream may turn, and ask tomorrow what it never asked before.
docs/decisions/0011-shadow-ledger.md has the measurements.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
import numpy.typing as npt

from vicinal.mechanisms._votes import BlockRelease
from vicinal.neighbours import NeighbourLists
from vicinal.neighbours._integer_features import IntegerMatrix
from vicinal.predictors.ind_knn._planning import Multipliers, NoiseSchedule
from vicinal.predictors.ind_knn._proxy_ledger import ProxyLedger

Floats = npt.NDArray[np.float64]
Places = npt.NDArray[np.int64]

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
    shadow : ProxyLedger
        What is charged along with the records.
    """

    def __init__(self, schedule: NoiseSchedule, shadow: ProxyLedger) -> None:
        super().__init__(schedule.multiplier)
        self.shadow = shadow
        self._schedule = schedule
        self._near: NeighbourLists | None = None

    @property
    def least(self) -> float:
        """The smallest multiplier that will ever be used."""
        return self._schedule.least

    def prepare(self, queries: IntegerMatrix, thresholds: Places) -> Multipliers:
        """Look up who of the public points takes part; return its own multiplier."""
        self._near = self.shadow.near(queries, thresholds)
        self.shadow.add_query(self._near)
        return self._schedule.multiplier

    def charge_proxies(self, release: BlockRelease) -> None:
        """Charge the public points for what was prepared."""
        near, self._near = self._near, None
        if near is not None:
            self.shadow.charge(release, near)

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
    shadow : ProxyLedger
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
        shadow: ProxyLedger,
        horizon: Horizon,
        unit: float,
        rate: float,
    ) -> None:
        super().__init__(schedule, shadow)
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
        left = np.maximum(self.shadow.left(self._near), _LEAST_LEFT)
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
        seen = (self.shadow.asked_near(near) / self._rate + _PRIOR_QUERIES) / (
            self.shadow.asked - 1 + _PRIOR_QUERIES
        )
        return np.asarray(seen)

    def _in_steps(self, multipliers: Floats) -> Floats:
        """Round up to a sixteenth of an octave, so that a block has few noise scales."""
        octaves = np.log2(multipliers / self._least)
        return np.asarray(self._least * np.exp2(np.ceil(octaves * _PER_OCTAVE) / _PER_OCTAVE))
