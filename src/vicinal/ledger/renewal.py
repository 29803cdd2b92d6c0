"""Budgets that come in parts, one a period: dates and parts (proof note: renewal.md).

Nothing is refilled beyond the whole: parts add up to the full budget, and only a date releases one.
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
"""What the history calls it when parts of budgets come."""
LOST_PARTS = "lost"
"""What becomes of parts that are not spent, where they are not carried."""
_CARRIED = "carried"
_MONTHLY = "monthly"
_DAYS = {"daily": 1, "weekly": 7}
_WORDS = {_MONTHLY: "month", "weekly": "week", "daily": "day"}
_MOST = 366
"""Days of a period, and periods."""


def today() -> date:
    """Return the date in UTC, which begins periods."""
    return datetime.now(UTC).date()


@dataclass(frozen=True, slots=True)
class Renewal:
    """When the parts of a budget come. Public; you declare the first three attributes.

    Attributes
    ----------
    every : {"monthly", "weekly", "daily"} or int
        How long a period is; a number of days, 1 to 366. Periods begin at midnight, UTC.
    periods : int
        How many there are, 2 to 366. Each releases an even part of budgets and answers; the first
        also what planning and the training of a private model cost at most.
    unspent : {"lost", "carried"}
        What happens to a part that is not spent in its period.
    begun, period
        When the first period began, and which one has been released: the ledger's.
    part, n_queries, answers
        Units of a later part; answers of all periods, and up to this one: the ledger's.

    Raises
    ------
    InvalidInput
        If anything is out of range.

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
        if not isinstance(self.every, str):
            every: str | int = checks.check_integer("renew", self.every, least=1, most=_MOST)
        elif (every := self.every) not in _WORDS:
            raise InvalidInput(
                "The 'renew' parameter must be 'monthly', 'weekly', 'daily', or a number of days. "
                f"Got {every!r}."
            )
        periods = checks.check_integer("periods", self.periods, least=2, most=_MOST)
        object.__setattr__(self, "every", every)  # whole numbers of Python, as JSON takes them
        object.__setattr__(self, "periods", periods)
        checks.check_choice("unspent", self.unspent, (LOST_PARTS, _CARRIED))

    def __str__(self) -> str:
        each = _WORDS.get(str(self.every)) or f"{self.every} days"
        return f"{self.periods} parts, one every {each}, and what is not spent is {self.unspent}"

    @classmethod
    def of(cls, plan: str) -> Self | None:
        """Return what the plan of an audience says, as JSON; StoreDamaged if that cannot be."""
        if (fields := parse_json(plan).get("renewal")) is None:
            return None
        try:
            found = cls(**fields)
            checks.check_integer("period", found.period, least=1, most=found.periods)
            checks.check_integer("part", found.part, least=0, most=UNITS // found.periods)
            planned = checks.check_integer("n_queries", found.n_queries, least=0)
            checks.check_integer("answers", found.answers, least=0, most=planned)
            found.begins(found.periods)
        except (TypeError, ValueError, OverflowError):
            raise StoreDamaged("The ledger has a damaged renewal. Restore a backup.") from None
        return found

    def within(self, plan: str) -> str:
        """Return the plan, as JSON, with this in it."""
        return json.dumps({**parse_json(plan), "renewal": asdict(self)})

    def begin(self, first: float, n_queries: int) -> Self:
        """Return the first period, from today on; `first`: the share of budgets kept for it.

        Raises InvalidInput if the clock of this machine leaves no dates for all periods.
        """
        begun = replace(
            self,
            begun=today().isoformat(),
            part=int((1 - first) * UNITS) // self.periods,
            n_queries=n_queries,
            answers=n_queries // self.periods,
        )
        try:
            begun.begins(self.periods)
        except (OverflowError, ValueError):
            raise InvalidInput(
                "The 'renew' parameter must have its last period before the year 10000. The clock "
                f"of this machine is at {begun.begun}; correct it."
            ) from None
        return begun

    def now(self, used: int) -> Self:
        """Return this as it is today, after `used` answers; a clock set back changes nothing."""
        day, period = today(), self.period
        while period < self.periods and self.begins(period + 1) <= day:
            period += 1
        if period == self.period:
            return self
        answers = self.n_queries * period // self.periods
        if self.loses:  # answers given at midnight, before the part came, are of the new period
            before = self.n_queries * (period - 1) // self.periods
            answers += min(used, self.answers) - before
        return replace(self, period=period, answers=answers)

    def begins(self, period: int) -> date:
        """Return the first day of a period; the last of a month that lacks that day."""
        first, later = date.fromisoformat(self.begun), period - 1
        if self.every != _MONTHLY:
            days = self.every if isinstance(self.every, int) else _DAYS[self.every]
            return first + timedelta(days=later * days)
        years, month = divmod(first.month - 1 + later, 12)
        year, month = first.year + years, month + 1
        return date(year, month, min(first.day, monthrange(year, month)[1]))

    @property
    def declared(self) -> Self:
        """The same before its first period begins: no part is held back yet."""
        return replace(self, period=1, part=0)

    @property
    def loses(self) -> bool:
        """Whether a part that is not spent in its period is lost."""
        return self.unspent == LOST_PARTS

    @property
    def next_date(self) -> str | None:
        """When the next part comes; None after the last."""
        return None if self.period == self.periods else f"{self.begins(self.period + 1)}"

    @property
    def released(self) -> int:
        """Units of a budget that have come so far."""
        return UNITS - (self.periods - self.period) * self.part

    @property
    def most(self) -> int:
        """Units that anybody can have now, and a newcomer does."""
        return self.part if self.loses and self.period > 1 else self.released

    def left(self, units: Units, released: int) -> Units:
        """Return what people have left in this period who had `units` of what was `released`."""
        if self.loses and self.period > 1:
            return np.full_like(units, self.part)
        return np.maximum(units + (self.released - released), 0)

    def to_dict(self) -> dict[str, Any]:
        """Return all of it as plain numbers and texts, fit for JSON."""
        return {**asdict(self), "next": self.next_date, "text": str(self)}
