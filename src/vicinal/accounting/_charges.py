"""Compiled charges of the individual filter: what a contribution costs, and what can be afforded.

They stand apart from the mathematics behind them, so that pricing a plan loads no compiler. Why
nothing is rounded to the unsafe side: `_budget.py`; labels alone: label_only.md, section 6.
"""

import math

from vicinal._compiled import compiled

_BEYOND = 2.0**62


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


@compiled
def label_charge(norm, rate, cells, shares):  # type: ignore[no-untyped-def]
    """Return the cost in whole units of moving one vote by `norm` steps, rounded up.

    For a noise of `scale` steps, `rate` is ``unit_rate(scale, table.zcdp)`` and `cells` is
    ``table.density / scale``. Never decreases in `norm`. As in ``charge``, costs beyond
    2^62 units are given as 2^62.
    """
    cell = int(min(norm * cells, len(shares) - 1.0))
    return math.ceil(min(norm * norm * rate * shares[cell], _BEYOND))


@compiled
def label_afford(norm, remaining, rate, cells, shares):  # type: ignore[no-untyped-def]
    """Return the largest whole norm <= `norm` (steps) whose charge is at most `remaining`."""
    if label_charge(norm, rate, cells, shares) <= remaining:
        return norm
    # Shares lie between the first one and 1, so the answer lies between these two.
    affordable = math.sqrt(max(remaining, 0) / rate)
    paid = int(affordable * (1 - 1e-9))
    unpaid = min(norm, int(affordable / math.sqrt(shares[0]) * (1 + 1e-9)) + 2)
    while unpaid - paid > 1:
        middle = (paid + unpaid) // 2
        if label_charge(middle, rate, cells, shares) <= remaining:
            paid = middle
        else:
            unpaid = middle
    return paid
