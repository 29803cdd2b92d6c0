"""Budgets that are released in parts, one per period: dates and amounts (proof note: renewal.md).

The parts add up to the full budget, so nothing is refilled; only a date releases a part.
"""

import json
from calendar import monthrange
from dataclasses import asdict, dataclass, replace
from datetime import UTC, date, datetime, timedelta
from typing import Any, Self

import numpy as np

from vicinal import checks
from vicinal.accounting.budget import UNITS
from vicinal.arrays import Units
from vicinal.errors import InvalidInput, StoreDamaged
from vicinal.ledger.sealed_files import parse_json

RENEWAL = "renewal"
"""Name in the history of a change that releases parts of budgets."""
LOST_PARTS = "lost"
"""Value of `unspent` with which units not spent in their period are lost."""
_CARRIED = "carried"
_MONTHLY = "monthly"
_DAYS_OF = {"daily": 1, "weekly": 7}
_PERIOD_NOUNS = {_MONTHLY: "month", "weekly": "week", "daily": "day"}
_MAX_PERIODS = 366
"""Maximal number of periods, and of days in a period: a year."""


def get_today() -> date:
    """Return the present date in UTC, by which periods begin."""
    return datetime.now(UTC).date()


@dataclass(frozen=True, slots=True)
class Renewal:
    """Schedule and state of a budget that can be spent in parts, one per period. Public.

    You declare the first three attributes; the ledger sets the remaining ones. A part is
    *released* when its period begins: from then on subjects may spend it.

    Attributes
    ----------
    every : {"monthly", "weekly", "daily"} or int
        Length of a period; an integer is a number of days, 1 to 366. Periods begin at midnight UTC.
    periods : int
        Number of periods, 2 to 366. Each releases an equal part of budgets and answers; the first
        also releases the maximal cost of planning and of training a private model.
    unspent : {"lost", "carried"}
        Whether units not spent in their period are lost or carried to the next one.
    begun : str
        ISO date of the first period's first day.
    period : int
        Number of the last released period, from 1.
    part : int
        Units that each later period releases.
    n_queries : int
        Planned number of answers in all periods.
    answers : int
        Number of answers released up to the present period, used ones included.

    Raises
    ------
    InvalidInput
        If one of the three declared attributes is invalid.

    Examples
    --------
    >>> from vicinal.store import Renewal
    >>> str(Renewal("monthly", 12))
    '12 parts, one every month, and what is not spent is lost'
    """

    every: str | int
    periods: int
    unspent: str = LOST_PARTS
    begun: str = "2000-01-01"
    period: int = 1
    part: int = 0
    n_queries: int = 0
    answers: int = 0

    def __post_init__(self) -> None:
        """Raise InvalidInput if one of the three declared attributes is invalid."""
        if not isinstance(self.every, str):
            every: str | int = checks.check_integer(
                "renew", self.every, minimum=1, maximum=_MAX_PERIODS
            )
        elif self.every in _PERIOD_NOUNS:
            every = self.every
        else:
            raise InvalidInput(
                "The 'renew' parameter must be 'monthly', 'weekly', 'daily', or a number of days. "
                f"Got {self.every!r}."
            )
        periods = checks.check_integer("periods", self.periods, minimum=2, maximum=_MAX_PERIODS)
        # NumPy's integers are replaced by Python's, which JSON can represent.
        object.__setattr__(self, "every", every)
        object.__setattr__(self, "periods", periods)
        checks.check_choice("unspent", self.unspent, (LOST_PARTS, _CARRIED))

    def __str__(self) -> str:
        """Return the declared schedule in words."""
        length = _PERIOD_NOUNS.get(str(self.every)) or f"{self.every} days"
        return f"{self.periods} parts, one every {length}, and what is not spent is {self.unspent}"

    @classmethod
    def from_plan(cls, plan: str) -> Self | None:
        """Return the renewal in an audience's `plan`, given as JSON; None if budgets do not renew.

        Raises StoreDamaged if the plan is no JSON or its renewal is impossible.
        """
        fields = parse_json(plan).get("renewal")
        if fields is None:
            return None
        try:
            renewal = cls(**fields)
            checks.check_integer("period", renewal.period, minimum=1, maximum=renewal.periods)
            checks.check_integer("part", renewal.part, minimum=0, maximum=UNITS // renewal.periods)
            n_queries = checks.check_integer("n_queries", renewal.n_queries, minimum=0)
            checks.check_integer("answers", renewal.answers, minimum=0, maximum=n_queries)
            renewal.compute_first_day(renewal.periods)  # fails if the last date does not exist
        except (TypeError, ValueError, OverflowError):
            raise StoreDamaged("The ledger has a damaged renewal. Restore a backup.") from None
        return renewal

    def insert_into(self, plan: str) -> str:
        """Return an audience's `plan`, given as JSON, with its renewal replaced by this one."""
        return json.dumps({**parse_json(plan), "renewal": asdict(self)})

    def begin(self, first_share: float, n_queries: int) -> Self:
        """Return the state in the first period, which begins today.

        `first_share`: share of a budget (0 to 1) that planning and training cost at most; the first
        period releases it in addition to an equal part of the rest. `n_queries`: planned number of
        answers in all periods. Raises InvalidInput if the clock of this machine leaves no dates for
        all periods.
        """
        begun = replace(
            self,
            begun=get_today().isoformat(),
            part=int((1 - first_share) * UNITS) // self.periods,
            n_queries=n_queries,
            answers=n_queries // self.periods,
        )
        try:
            begun.compute_first_day(self.periods)
        except (OverflowError, ValueError):
            raise InvalidInput(
                "The 'renew' parameter must have its last period before the year 10000. The clock "
                f"of this machine is at {begun.begun}; correct it."
            ) from None
        return begun

    def advance_to_today(self, used: int) -> Self:
        """Return the state in today's period; `used`: number of the audience's answers to date.

        It is this object if no period has begun since, also if the machine's clock was set back.
        """
        present_day = get_today()
        period = self.period
        while period < self.periods and self.compute_first_day(period + 1) <= present_day:
            period += 1
        if period == self.period:
            return self
        answers = self.n_queries * period // self.periods
        if self.loses_unspent:
            # Unused answers of earlier periods are lost, so the limit is the number of used answers
            # and one period's. `used` may exceed the old limit by answers given at midnight before
            # this release; those count for the new period.
            earlier_answers = self.n_queries * (period - 1) // self.periods
            answers += min(used, self.answers) - earlier_answers
        return replace(self, period=period, answers=answers)

    def compute_first_day(self, period: int) -> date:
        """Return the first day of a period, counted from 1.

        Monthly periods begin on the same day of each month, or on the last day of a shorter month.
        """
        first_day = date.fromisoformat(self.begun)
        n_earlier = period - 1
        if self.every != _MONTHLY:
            days = self.every if isinstance(self.every, int) else _DAYS_OF[self.every]
            return first_day + timedelta(days=n_earlier * days)
        n_years, month_index = divmod(first_day.month - 1 + n_earlier, 12)
        year = first_day.year + n_years
        month = month_index + 1
        return date(year, month, min(first_day.day, monthrange(year, month)[1]))

    @property
    def declared(self) -> Self:
        """The same schedule as if all parts were released at once, with the full budget."""
        return replace(self, period=1, part=0)

    @property
    def loses_unspent(self) -> bool:
        """Whether units not spent in their period are lost."""
        return self.unspent == LOST_PARTS

    @property
    def next_date(self) -> str | None:
        """ISO date of the next period's first day; None in the last period."""
        return None if self.period == self.periods else f"{self.compute_first_day(self.period + 1)}"

    @property
    def released_units(self) -> int:
        """Units of a full budget that have been released to date."""
        return UNITS - (self.periods - self.period) * self.part

    @property
    def max_units(self) -> int:
        """Maximal remaining units of a subject in this period, and the units of a new subject."""
        return self.part if self.loses_unspent and self.period > 1 else self.released_units

    def compute_remaining(self, units: Units, previous_released_units: int) -> Units:
        """Return the subjects' remaining units when this period begins, int64 (n,).

        `units`, int64 (n,): their remaining units in the previous period.
        `previous_released_units`: the :attr:`released_units` of a full budget in that period.
        """
        if self.loses_unspent and self.period > 1:
            return np.full_like(units, self.part)
        return np.maximum(units + (self.released_units - previous_released_units), 0)

    def to_dict(self) -> dict[str, Any]:
        """Return all attributes, :attr:`next_date` ("next") and `str` ("text"), as JSON values."""
        return {**asdict(self), "next": self.next_date, "text": str(self)}
