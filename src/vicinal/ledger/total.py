"""What everybody can lose to all audiences together: one more account, which every charge reaches.

Budgets of audiences do not compose where data adapt to answers: what is done because of an answer
to one audience changes records that answer another, whose budget was never charged for it. One
filter over all releases does compose (proof note: total.md). What an audience has left is cut
to what this account still allows, so mechanisms see one number, and contributions stop at whichever
budget ends first.
"""

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Self

import numpy as np

from vicinal.accounting.budget import UNITS
from vicinal.arrays import Slots, Units
from vicinal.ledger.audiences import Audience, StoredAccount, exact_sum
from vicinal.mechanisms.charging import find_differences

TOTAL = ""
"""In place of a name, in the row of the account of all audiences together."""

_BITS = 24
"""Rates have so many bits behind the point."""


class TotalFilter:
    """The account of all audiences together, and what their units are in its own.

    `audience`: its row; what stands for a plan holds `epsilon`, `delta`, the budget that follows
    from them (zCDP), and the rate of every audience by number.
    """

    def __init__(self, audience: Audience) -> None:
        self.audience = audience
        self._plan = json.loads(audience.plan)

    @classmethod
    def new(cls, epsilon: float, delta: float, budget: float) -> Self:
        """Return one without audiences and subjects; `budget` (zCDP) is that of the guarantee."""
        fields = {"epsilon": epsilon, "delta": delta, "budget": budget.hex(), "rates": {}}
        account = StoredAccount(np.zeros(0, dtype=np.int64))
        return cls(Audience(0, TOTAL, json.dumps(fields), account))

    @property
    def guarantee(self) -> tuple[float, float]:
        """Epsilon and delta of all releases to all audiences together."""
        return self._plan["epsilon"], self._plan["delta"]

    def admit(self, number: int, budget: float) -> None:
        """Take note of the budget (zCDP) of a new audience, rounded up."""
        share = math.nextafter(budget / float.fromhex(self._plan["budget"]), math.inf)
        self._plan["rates"][str(number)] = math.ceil(share * (1 << _BITS))
        self.audience.plan = json.dumps(self._plan)

    def price(self, number: int, units: Units) -> Units:
        """Return units of an audience in units of the total, rounded up."""
        rate = self._plan["rates"][str(number)]
        high, low = units >> _BITS, units & ((1 << _BITS) - 1)
        return np.asarray(high * rate - (-(low * rate) >> _BITS))

    def most(self, number: int, left: Units) -> Units:
        """Return the most units of an audience whose :meth:`price` is at most what is `left`."""
        rate = self._plan["rates"][str(number)]
        whole, rest = np.divmod(left, rate)
        whole = np.minimum(whole, UNITS >> _BITS)  # more would not fit, and is of no use
        return np.asarray(np.minimum((whole << _BITS) + (rest << _BITS) // rate, UNITS))

    def faults(self, stored: Mapping[str, Audience]) -> Iterator[str]:
        """Yield in words where accounts by name, the total's among them, contradict each other.

        Who has less of an audience than the total allows was never cut there: the rest was charged,
        unless budgets renew there, and parts are lost.
        """
        left = stored[TOTAL].account.durable
        paid = np.zeros_like(left)
        for name in sorted(stored.keys() - {TOTAL}):
            units, number = stored[name].account.durable, stored[name].number
            most = self.most(number, left)
            if stored[name].renewal is None:
                paid += np.where(units < most, self.price(number, UNITS - units), 0)
            if (units > most).any():
                yield f"Audience {name!r} has more left than the total over all audiences allows."
        if (paid > UNITS - left).any():
            yield "The total over all audiences lacks what audiences were charged."

    def charge(self, audience: Audience, audiences: Iterable[Audience]) -> None:
        """Charge what mechanisms took from an audience since the last call; cut what others have.

        In memory: it becomes durable with the charge itself. Broken off, it is done again.
        """
        account, total = audience.account, self.audience.account
        slots = find_differences(account.remaining, account.shared, 0)
        price = self.price(audience.number, account.shared[slots] - account.remaining[slots])
        total.remaining[slots] -= price
        total.note_charged_total(exact_sum(price))
        for each in audiences:
            self._cut(each, slots)
        account.share(slots)  # last: what is broken off is taken once more rather than never

    def _cut(self, audience: Audience, slots: Slots) -> None:
        """Take from an audience what the total does not allow any more; it counts as charged."""
        account = audience.account
        units = account.remaining[slots]
        most = self.most(audience.number, self.audience.account.remaining[slots])
        excess = np.maximum(units - most, 0)
        account.remaining[slots] -= excess
        account.shared[slots] -= excess
        account.note_charged_total(exact_sum(excess))
