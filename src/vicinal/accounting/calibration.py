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
    >>> from vicinal import calibrate
    >>> plan = {"delta": 1e-5, "releases": [{"kind": "gaussian", "sigma": 1.0, "count": 20}]}
    >>> calibrate(plan, epsilon=1.0, field="sigma").field
    'sigma'
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

    def compute_gap(value: float) -> float:
        """Return log(smallest epsilon of the plan with `value` / target), within +-log 1e9."""
        candidate = build_plan(value)
        plan_epsilon = candidate.composition().compute_min_epsilon(candidate.delta)
        return math.log(min(max(plan_epsilon, epsilon * 1e-9), epsilon * 1e9) / epsilon)

    low, high = _LIMITS.get(field, _DEFAULT_LIMITS)
    start = checks.check_real(
        f"releases[{release}].{field}", fields.get(field, math.sqrt(low * high))
    )
    safe_value = _find_value(
        compute_gap,
        low,
        high,
        start,
        is_increasing=field in _INCREASING_FIELDS,
        is_integer=is_integer,
    )
    if safe_value is None:
        raise PrivacyRefused(
            f"No value of the '{field}' parameter keeps the plan at epsilon {epsilon:g}: the other "
            "releases, or the limits of the field, do not leave room. Take a larger epsilon."
        )
    value = int(safe_value) if is_integer else safe_value
    return CalibratedPlan(field, release, value, build_plan(value).price())


def _find_value(
    compute_gap: Callable[[float], float],
    low: float,
    high: float,
    start: float,
    *,
    is_increasing: bool,
    is_integer: bool,
) -> float | None:
    """Return the safe value in [`low`, `high`] with the largest gap, approximately.

    `compute_gap` is monotone, increasing if `is_increasing`; a value is *safe* if its gap is at
    most 0. With `is_integer` only whole numbers are tried. The search goes from `start` in growing
    steps until it passes the gap 0. None if no value is safe.
    """
    safe, unsafe = (low, high) if is_increasing else (high, low)
    if not compute_gap(safe) <= 0:
        return None
    value = min(max(start, low), high)
    factor = 4.0
    while True:
        is_safe = compute_gap(value) <= 0
        if is_safe and value == unsafe:
            return value  # The end of the range with the largest gap is safe.
        if is_safe:
            safe = value
        else:
            unsafe = value
        # Walk towards the other side of the gap 0.
        next_value = value * factor if is_safe == is_increasing else value / factor
        next_value = min(max(next_value, low), high)
        if (compute_gap(next_value) <= 0) != is_safe:
            if is_safe:
                return _narrow_bracket(compute_gap, safe, next_value, is_integer)
            return _narrow_bracket(compute_gap, next_value, unsafe, is_integer)
        value = next_value
        factor = factor**2


def _narrow_bracket(
    compute_gap: Callable[[float], float], safe: float, unsafe: float, is_integer: bool
) -> float:
    """Return a safe value whose gap is close to 0, between a `safe` and an `unsafe` value.

    Arguments as for :func:`_find_value`. Method: false position in logs.
    """
    safe_gap, unsafe_gap = compute_gap(safe), compute_gap(unsafe)
    while abs(math.log(unsafe / safe)) > _VALUE_PRECISION and not (
        is_integer and abs(unsafe - safe) <= 1
    ):
        # The step is kept within .02 and .98, and an integer at least 1 away from both ends.
        fraction = min(max(safe_gap / (safe_gap - unsafe_gap), 0.02), 0.98)
        middle = safe * math.exp(math.log(unsafe / safe) * fraction)
        if is_integer:
            low, high = min(safe, unsafe), max(safe, unsafe)
            middle = float(min(max(math.floor(middle), low + 1), high - 1))
        gap = compute_gap(middle)
        if -_EPSILON_PRECISION <= gap <= 0 and not is_integer:
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
