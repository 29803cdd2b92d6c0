"""Calibration of a plan: the value of one field at which the plan just keeps a target epsilon.

The value is on the safe side: the epsilon of the plan with it is at most the target, and at most
two parts in 10,000 below it. A calibrated count is the largest one that keeps the target.
"""

import dataclasses
import math
from collections.abc import Callable, Mapping
from typing import Any

from vicinal import checks
from vicinal.accounting.plan import Plan, check_mapping, extract_releases
from vicinal.errors import PrivacyRefused

# Fields whose larger values decrease epsilon: noise scales.
_DECREASING_FIELDS = ("sigma", "sigma_screen", "sigma_votes", "scale")
# Fields whose larger values increase epsilon.
_INCREASING_FIELDS = ("gamma", "count", "steps", "B", "epsilon", "tau", "sensitivity")
FIELDS = (*_DECREASING_FIELDS, *_INCREASING_FIELDS)  # The fields that can be calibrated

_INTEGER_FIELDS = ("count", "steps")

# The range of values searched, by field.
_LIMITS = {"gamma": (1e-9, 1.0), "count": (1, 10**9), "steps": (1, 10**6), "tau": (1e-6, 1e6)}
_DEFAULT_LIMITS = (1e-2, 1e9)  # The range of values searched for all other fields
_VALUE_PRECISION = 1e-5  # Relative width of the bracket around a value at which the search stops
_EPSILON_PRECISION = 2e-4  # Relative distance of epsilon below the target at which the search stops


@dataclasses.dataclass(frozen=True)
class CalibratedPlan:
    """The calibrated value of a field, and the privacy cost of the plan with it.

    Attributes
    ----------
    field : str
        The calibrated field.
    release : int
        The index of its release in the plan.
    value : float or int
        The calibrated value.
    price : dict
        The privacy cost of the plan with this value, see :meth:`Plan.price`.

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
    """Return the smallest noise, or the largest other value, with which `plan` keeps `epsilon`.

    Parameters
    ----------
    plan : mapping
        The plan as plain values of its JSON; its release may lack the field to calibrate.
    epsilon : float
        The target, > 0, at the plan's own delta, by the method with the smallest epsilon.
    field : {"sigma", "gamma", "count", "B", ...}
        The field to calibrate, one of ``FIELDS`` that the release's kind has.
    release : int
        The index of the field's release in the plan, from 0.

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
    releases = extract_releases(plan)
    release = checks.check_integer("release", release, minimum=0, maximum=len(releases) - 1)

    fields = check_mapping(f"releases[{release}]", releases[release])
    is_integer = field in _INTEGER_FIELDS

    def build_plan(value: float) -> Plan:
        """Return the plan with `value` in the calibrated field."""
        calibrated = {**fields, field: int(value) if is_integer else value}
        return Plan.from_dict(
            {**plan, "releases": [*releases[:release], calibrated, *releases[release + 1 :]]}
        )

    def compute_epsilon(value: float) -> float:
        """Return the smallest epsilon of the plan with this value of the field."""
        candidate = build_plan(value)
        return candidate.composition().compute_min_epsilon(candidate.delta)

    low, high = _LIMITS.get(field, _DEFAULT_LIMITS)
    start = checks.check_real(
        f"releases[{release}].{field}", fields.get(field, math.sqrt(low * high))
    )
    search = _FieldSearch(
        compute_epsilon, epsilon, is_increasing=field in _INCREASING_FIELDS, is_integer=is_integer
    )
    safe_value = search.find_value(low, high, start)
    if safe_value is None:
        raise PrivacyRefused(
            f"No value of the '{field}' parameter keeps the plan at epsilon {epsilon:g}: the other "
            "releases, or the limits of the field, do not leave room. Take a larger epsilon."
        )
    value = int(safe_value) if is_integer else safe_value
    return CalibratedPlan(field, release, value, build_plan(value).price())


@dataclasses.dataclass(frozen=True)
class _FieldSearch:
    """A search for the value of a field at which the plan's epsilon reaches a target.

    `compute_epsilon` maps a value of the field to the epsilon of the plan, a monotone function;
    `is_increasing`: whether larger values increase it. A value is *safe* if its epsilon is at most
    `target_epsilon`. With `is_integer` only whole numbers are tried.
    """

    compute_epsilon: Callable[[float], float]
    target_epsilon: float
    is_increasing: bool
    is_integer: bool

    def find_value(self, low: float, high: float, start: float) -> float | None:
        """Return the safe value in [`low`, `high`] with the largest epsilon, approximately.

        The search goes from `start` in growing steps until it passes the target. None if no value
        is safe.
        """
        safe, unsafe = (low, high) if self.is_increasing else (high, low)
        if not self.compute_epsilon(safe) <= self.target_epsilon:
            return None
        value = min(max(start, low), high)
        factor = 4.0
        while True:
            is_safe = self.compute_epsilon(value) <= self.target_epsilon
            if is_safe and value == unsafe:
                return value  # The end of the range with the largest epsilon is safe.
            if is_safe:
                safe = value
            else:
                unsafe = value
            # Walk towards the other side of the target.
            next_value = value * factor if is_safe == self.is_increasing else value / factor
            next_value = min(max(next_value, low), high)
            if (self.compute_epsilon(next_value) <= self.target_epsilon) != is_safe:
                if is_safe:
                    return self._narrow_bracket(safe, next_value)
                return self._narrow_bracket(next_value, unsafe)
            value = next_value
            factor = factor**2

    def _narrow_bracket(self, safe: float, unsafe: float) -> float:
        """Return a safe value whose epsilon is close to the target, between two values.

        `safe` and `unsafe` lie on either side of the target. Method: false position in logs.
        """
        safe_gap, unsafe_gap = self._compute_gap(safe), self._compute_gap(unsafe)
        while abs(math.log(unsafe / safe)) > _VALUE_PRECISION and not (
            self.is_integer and abs(unsafe - safe) <= 1
        ):
            # The step is kept within .02 and .98, and an integer at least 1 away from both ends.
            fraction = min(max(safe_gap / (safe_gap - unsafe_gap), 0.02), 0.98)
            middle = safe * math.exp(math.log(unsafe / safe) * fraction)
            if self.is_integer:
                low, high = min(safe, unsafe), max(safe, unsafe)
                middle = float(min(max(math.floor(middle), low + 1), high - 1))
            gap = self._compute_gap(middle)
            if -_EPSILON_PRECISION <= gap <= 0 and not self.is_integer:
                return middle
            # The gap of the end that stays is halved, so that both ends move (Illinois).
            if gap <= 0:
                safe = middle
                safe_gap, unsafe_gap = gap, unsafe_gap / 2
            else:
                unsafe = middle
                unsafe_gap = gap
                safe_gap = safe_gap / 2
        return safe

    def _compute_gap(self, value: float) -> float:
        """Return log(epsilon / target) at `value`, within +-log 1e9; <= 0 if `value` is safe."""
        epsilon = min(
            max(self.compute_epsilon(value), self.target_epsilon * 1e-9), self.target_epsilon * 1e9
        )
        return math.log(epsilon / self.target_epsilon)
