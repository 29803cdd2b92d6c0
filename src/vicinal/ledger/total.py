"""A bound on each subject's loss to all audiences together: one account for all charges.

The budgets of several audiences do not compose if the data adapt to answers: an action taken
because of an answer to one audience changes records that answer another audience. One filter over
all releases does compose (proof note: total.md). Each audience's remaining units are cut to the
number that this account still allows, so contributions stop when either budget ends.
"""

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Self

import numpy as np

from vicinal.accounting.budget import UNITS
from vicinal.arrays import Slots, Units
from vicinal.ledger.audiences import Audience, sum_exactly
from vicinal.mechanisms.charging import find_differences

TOTAL = ""
"""Name of the pseudo-audience that has the account of all audiences together."""

_RATE_BITS = 24
"""Number of binary fraction digits of a rate, so that all products fit into 64 bits."""


class TotalFilter:
    """The account of all audiences together, and the rates at which their charges are converted.

    A rate is the number of units of the total that one unit of an audience costs, as a fixed-point
    number with 24 fractional bits.

    `audience`: pseudo-audience whose account holds the total of every subject. Its plan is JSON
    with `epsilon`, `delta`, the zCDP budget that follows from them, and the rate of each audience
    by number. Argument of the methods: `audience_number`, the number of an audience.
    """

    def __init__(self, audience: Audience) -> None:
        self.audience = audience
        self._plan = json.loads(audience.plan)

    @classmethod
    def create(cls, epsilon: float, delta: float, budget: float) -> Self:
        """Return a new total, without audiences and subjects, with the bound (epsilon, delta).

        `budget`: the zCDP (rho) that guarantees it.
        """
        fields = {"epsilon": epsilon, "delta": delta, "budget": budget.hex(), "rates": {}}
        return cls(Audience(0, TOTAL, json.dumps(fields)))

    @property
    def guarantee(self) -> tuple[float, float]:
        """Epsilon and delta of all releases to all audiences together. Public."""
        return self._plan["epsilon"], self._plan["delta"]

    def add_audience(self, audience_number: int, budget: float) -> None:
        """Set the rate of a new audience, rounded up; `budget`: zCDP (rho) of its full budget."""
        ratio = math.nextafter(budget / float.fromhex(self._plan["budget"]), math.inf)
        self._plan["rates"][str(audience_number)] = math.ceil(ratio * (1 << _RATE_BITS))
        self.audience.plan = json.dumps(self._plan)

    def price(self, audience_number: int, units: Units) -> Units:
        """Return the units of the total that charges to an audience cost, rounded up.

        `units`, int64 (m,) or an int64 number: the charges of m subjects, or of one. The result has
        the same shape.
        """
        rate = self._plan["rates"][str(audience_number)]
        high = units >> _RATE_BITS
        low = units & ((1 << _RATE_BITS) - 1)
        return np.asarray(high * rate - (-(low * rate) >> _RATE_BITS))

    def compute_max_units(self, audience_number: int, total_remaining: Units) -> Units:
        """Return the most units of an audience that units of the total pay for, int64 (m,).

        `total_remaining`, int64 (m,): remaining units of m subjects in the total.
        """
        rate = self._plan["rates"][str(audience_number)]
        quotient, remainder = np.divmod(total_remaining, rate)
        # No audience has more than UNITS units, and the shift of a larger quotient could overflow.
        quotient = np.minimum(quotient, UNITS >> _RATE_BITS)
        return np.asarray(
            np.minimum((quotient << _RATE_BITS) + (remainder << _RATE_BITS) // rate, UNITS)
        )

    def find_faults(self, stored: Mapping[str, Audience]) -> Iterator[str]:
        """Yield a sentence for each contradiction between the total and the audiences.

        `stored`: all audiences by name, with the total, as read from the database.

        A subject with fewer units than the total allows was never cut for this audience, so the
        total was charged at least the price of its missing units. That does not hold if the
        audience's budgets renew, because units lost in a period are not charged to the total.
        """
        total_remaining = stored[TOTAL].account.durable
        min_charged = np.zeros_like(total_remaining)
        for name in sorted(stored.keys() - {TOTAL}):
            units = stored[name].account.durable
            number = stored[name].number
            allowed = self.compute_max_units(number, total_remaining)
            if stored[name].renewal is None:
                min_charged += np.where(units < allowed, self.price(number, UNITS - units), 0)
            if (units > allowed).any():
                yield f"Audience {name!r} has more left than the total over all audiences allows."
        if (min_charged > UNITS - total_remaining).any():
            yield "The total over all audiences lacks what audiences were charged."

    def charge(self, audience: Audience, audiences: Iterable[Audience]) -> None:
        """Charge the total for the charges to an `audience` since the last call, in memory.

        `audiences`: all audiences; their remaining units are reduced ("cut") to those that the
        total still allows.
        """
        account = audience.account
        total = self.audience.account
        slots = find_differences(account.remaining, account.synced_remaining, 0)
        charged = account.synced_remaining[slots] - account.remaining[slots]
        price = self.price(audience.number, charged)
        total.remaining[slots] -= price
        total.note_charged_total(sum_exactly(price))
        for other in audiences:
            self._cut_units(other, slots)
        # Last, because an interrupted charge is made twice rather than never.
        account.mark_charged_to_total(slots)

    def _cut_units(self, audience: Audience, slots: Slots) -> None:
        """Reduce an audience's remaining units at `slots` to those that the total still allows.

        `slots`: those just charged to the total. The difference is recorded as a charge to the
        audience, but not charged to the total again.
        """
        account = audience.account
        units = account.remaining[slots]
        allowed = self.compute_max_units(audience.number, self.audience.account.remaining[slots])
        excess = np.maximum(units - allowed, 0)
        account.remaining[slots] -= excess
        account.synced_remaining[slots] -= excess
        account.note_charged_total(sum_exactly(excess))
