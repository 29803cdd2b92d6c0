"""The missing number of a plan: the value at which it just keeps a target epsilon.

One field of one release is left open. The answer is on the safe side: the plan with it never costs
more than the target, and at most two parts in 10,000 less; one more would be too many for a count.
"""

import dataclasses
import math
from collections.abc import Callable, Mapping
from typing import Any

from vicinal import checks
from vicinal.accounting.plan import Plan, mapping, releases_of
from vicinal.errors import PrivacyRefused

# A larger value of these makes a release cheaper; of the others, dearer.
_CHEAPER = ("sigma", "sigma_screen", "sigma_votes", "scale")
_DEARER = ("gamma", "count", "steps", "B", "epsilon", "tau", "sensitivity")
FIELDS = (*_CHEAPER, *_DEARER)

_WHOLE = ("count", "steps")

_LIMITS = {"gamma": (1e-9, 1.0), "count": (1, 10**9), "steps": (1, 10**6), "tau": (1e-6, 1e6)}
_RANGE = (1e-2, 1e9)
_PRECISION = 1e-5
_CLOSE = 2e-4


@dataclasses.dataclass(frozen=True)
class CalibratedPlan:
    """The value found, and the price of the plan that has it (see :meth:`Plan.price`).

    Examples
    --------
    >>> from vicinal.accounting import calibrate
    >>> plan = {"delta": 1e-5, "releases": [{"kind": "gaussian", "sigma": 1.0, "count": 20}]}
    >>> found = calibrate(plan, epsilon=1.0, field="sigma")
    >>> found.field, found.price["epsilon"] <= 1.0
    ('sigma', True)
    """

    field: str
    release: int
    value: float | int
    price: dict[str, Any]


def calibrate(
    plan: Mapping[str, Any], epsilon: float, field: str, release: int = 0
) -> CalibratedPlan:
    """Return the cheapest noise, or the largest use, with which `plan` keeps `epsilon`.

    Parameters
    ----------
    plan : mapping
        The JSON of a plan; the field that is looked for may be missing from its release.
    epsilon : float
        The target, > 0, at the plan's own delta; kept by the best valid method.
    field : {"sigma", "gamma", "count", "B", ...}
        What to look for, one of ``FIELDS`` that the kind has.
    release : int
        Which release of the plan it belongs to, counted from 0.

    Raises
    ------
    InvalidInput
        If the plan has no such field.
    PrivacyRefused
        If no value keeps the target.

    Examples
    --------
    >>> from vicinal import account, calibrate
    >>> plan = {"delta": 1e-5, "releases": [{"kind": "gaussian", "sigma": 1.0, "count": 20}]}
    >>> found = calibrate(plan, epsilon=1.0, field="sigma")
    >>> found.price["epsilon"] <= 1.0, round(found.value, 1)
    (True, 16.7)
    """
    epsilon = checks.check_real("epsilon", epsilon, above=0)
    field = checks.check_choice("field", field, FIELDS)
    releases = releases_of(plan)
    release = checks.check_integer("release", release, least=0, most=len(releases) - 1)

    checked = mapping(f"releases[{release}]", releases[release])

    def with_value(value: float) -> Plan:
        calibrated = {**checked, field: int(value) if field in _WHOLE else value}
        return Plan.from_dict(
            {**plan, "releases": [*releases[:release], calibrated, *releases[release + 1 :]]}
        )

    def cost(value: float) -> float:
        candidate = with_value(value)
        return candidate.composition().least_epsilon(candidate.delta)

    low, high = _LIMITS.get(field, _RANGE)
    start = checked.get(field, math.sqrt(low * high))
    search = _Search(cost, epsilon, rising=field in _DEARER, integral=field in _WHOLE)
    safe = search.between(low, high, float(start))
    if safe is None:
        raise PrivacyRefused(
            f"No value of the '{field}' parameter keeps the plan at epsilon {epsilon:g}: the other "
            "releases, or the limits of the field, do not leave room. Take a larger epsilon."
        )
    value = int(safe) if field in _WHOLE else safe
    return CalibratedPlan(field, release, value, with_value(value).price())


@dataclasses.dataclass(frozen=True)
class _Search:
    """The value next to where a monotone `cost` reaches `target`, on the side that keeps it."""

    cost: Callable[[float], float]
    target: float
    rising: bool
    integral: bool

    def between(self, low: float, high: float, start: float) -> float | None:
        """Return that value in `low` .. `high`, or None if the cheapest of them is too dear."""
        cheap, dear = (low, high) if self.rising else (high, low)
        if not self.cost(cheap) <= self.target:
            return None
        value, factor = min(max(start, low), high), 4.0
        while True:  # walk from the start until the target lies between two values
            affordable = self.cost(value) <= self.target
            end = dear if affordable else cheap
            cheap, dear = (value, dear) if affordable else (cheap, value)
            if value == end and affordable:
                return value
            beyond = value * factor if affordable == self.rising else value / factor
            beyond = min(max(beyond, low), high)
            if (self.cost(beyond) <= self.target) != affordable:
                return self._narrow(*((cheap, beyond) if affordable else (beyond, dear)))
            value, factor = beyond, factor**2

    def _narrow(self, safe: float, dear: float) -> float:
        """Return a value next to the crossing, by false position in logarithms (Illinois)."""
        gap_safe, gap_dear = self._gap(safe), self._gap(dear)
        while abs(math.log(dear / safe)) > _PRECISION and not (
            self.integral and abs(dear - safe) <= 1
        ):
            middle = self._between(safe, dear, gap_safe / (gap_safe - gap_dear))
            gap = self._gap(middle)
            if -_CLOSE <= gap <= 0 and not self.integral:
                return middle
            if gap <= 0:
                safe, gap_safe, gap_dear = middle, gap, gap_dear / 2
            else:
                dear, gap_dear, gap_safe = middle, gap, gap_safe / 2
        return safe

    def _gap(self, value: float) -> float:
        """Return log of the cost over the target, within bounds; <= 0 if the target is kept."""
        cost = min(max(self.cost(value), self.target * 1e-9), self.target * 1e9)
        return math.log(cost / self.target)

    def _between(self, safe: float, dear: float, share: float) -> float:
        middle = safe * math.exp(math.log(dear / safe) * min(max(share, 0.02), 0.98))
        if not self.integral:
            return middle
        low, high = min(safe, dear), max(safe, dear)
        return float(min(max(math.floor(middle), low + 1), high - 1))
