"""Compiled charges of the individual filter: what a contribution costs, and what can be afforded.

They stand apart from the mathematics behind them, so that pricing a plan loads no compiler. Why
nothing is rounded to the unsafe side: `budget.py`; labels alone: label_only.md, section 6.
"""

import math

from vicinal.accounting.label_filter import DEAREST
from vicinal.compiled import compiled

_BEYOND = 2.0**62
_ROOT_OF_UNITS = 2.0**24


@compiled
def charge(square, rate):  # type: ignore[no-untyped-def]
    """Return the cost in whole units of a squared norm `square` (steps^2) at `rate`, rounded up.

    Beyond 2^62 units, far more than any budget, the cost is given as 2^62: it must not wrap around
    to a negative number.
    """
    return math.ceil(min(square * rate, _BEYOND))


@compiled
def find_affordable_norm(norm, remaining, rate):  # type: ignore[no-untyped-def]
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
def label_charge(norm, remaining, rate, cells, shares):  # type: ignore[no-untyped-def]
    """Return the cost in whole units of moving one vote by `norm` steps, rounded up.

    At most that of ``charge`` at the same `rate`, so what :func:`find_affordable_norm` returns is
    paid for. For a noise of `scale` steps `rate` is ``table.narrow * unit_rate(scale,
    table.budget)``, and `cells` is ``table.density / scale``. `remaining` are the units that the
    subject has before.
    """
    square = norm * norm * rate
    # Shares below 1 are at most DEAREST: at least so much is left, whichever share is taken.
    after = max(remaining - DEAREST * square, 0.0)
    rows, last = len(shares), shares.shape[1] - 1
    row = int(min(math.sqrt(after) * (rows / _ROOT_OF_UNITS), rows - 1.0))
    cell = int(min(norm * cells / max(row, 1), float(last)))
    return math.ceil(min(square * shares[row, cell], _BEYOND))
