r"""The individual filter: budgets and charges as integers, so that nothing drifts.

Source: Feldman & Zrnic 2021 (individual Renyi filter); Koskela, Tobaben & Honkela 2023 (GDP).

A budget B is worth ``UNITS`` = 2^48 units. A contribution whose squared norm is v2 (grid steps
squared) under noise of scale s costs v2 / (2 s^2 B) of the budget. ``unit_rate(s, B)`` is the cost
of one squared step in units, rounded up far enough that the two roundings inside :func:`charge`
(integer to double, product) cannot take the result below the true cost:
double(v2) >= v2 (1 - 2^-53), product >= exact (1 - 2^-53), and the rate carries (1 + 2^-50).
``ceil`` then rounds up to whole units. One multiplication and one ``ceil`` of IEEE doubles give
the same result on every machine.
"""

from __future__ import annotations

import math
from fractions import Fraction

from vicinal import _checks
from vicinal._compiled import compiled

UNITS = 1 << 48
"""Integer units in every subject's full budget."""

MAX_NORM = 1 << 31
"""Largest norm of a contribution, in grid steps: its square stays inside int64."""

MAX_SCALE = 1 << 40
"""Largest noise scale, in grid steps."""

_BEYOND = 2.0**62
_UPWARD = 1 + Fraction(1, 1 << 50)


def unit_rate(scale: int, budget: float) -> float:
    """Return the cost in units of one squared grid step, rounded up.

    Parameters
    ----------
    scale : int
        Noise scale s in grid steps, 1 <= s <= 2^40.
    budget : float
        The budget B that ``UNITS`` units stand for, in zCDP.
    """
    scale = _checks.integer("scale", scale, least=1, most=MAX_SCALE)
    exact = UNITS / (2 * Fraction(scale) ** 2 * Fraction(_checks.real("budget", budget, above=0)))
    return math.nextafter(float(exact * _UPWARD), math.inf)


@compiled
def charge(square, rate):  # type: ignore[no-untyped-def]
    """Return the cost in whole units of a squared norm `square` (steps^2) at `rate`, rounded up.

    Beyond 2^62 units, far more than any budget, the cost is given as 2^62: it must not wrap around
    to a negative number.
    """
    return math.ceil(min(square * rate, _BEYOND))


@compiled
def afford(norm, remaining, rate):  # type: ignore[no-untyped-def]
    """Return the largest whole norm <= `norm` (steps) whose charge is at most `remaining` units.

    Zero when nothing is left: an exhausted subject takes the same path as any other.
    """
    # For a whole number of units left, ceil(x) <= left says the same as x <= left.
    if (norm * norm) * rate <= remaining:
        return norm
    allowed = int(min(math.sqrt(max(remaining, 0) / rate) + 1.0, float(norm)))
    while allowed > 0 and (allowed * allowed) * rate > remaining:
        allowed -= 1
    return allowed
