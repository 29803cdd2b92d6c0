"""Compiled charges of the individual filter, and the largest contribution that a budget affords.

The module is separate from the mathematics behind it, so that a plan's cost needs no compiler.
Proof that no rounding undercharges: `budget.py`; for released labels: label_only.md, section 6.

Arguments are scalars, unless stated otherwise. `norm`, int64: a subject's contribution in steps of
the vote grid. `remaining`, int64: its remaining budget in units (`budget.UNITS` for a full one),
private. `rate`, float64: units per squared step (`budget.compute_unit_rate`), public as tables are.
"""

import math

from vicinal.accounting.label_filter import MAX_REDUCED_SHARE
from vicinal.compiled import compiled

_MAX_CHARGE = 2.0**62  # The largest charge in units: far above any budget, and inside int64
_SQRT_UNITS = 2.0**24  # Square root of `budget.UNITS`


@compiled
def compute_charge(square, rate):  # type: ignore[no-untyped-def]
    """Return the charge in whole units of a contribution of squared norm `square`, rounded up.

    `square`, int64, or float64 if it may exceed int64: in steps^2. Charges above 2^62 units are
    returned as 2^62, so that they do not wrap around to a negative number.
    """
    return math.ceil(min(square * rate, _MAX_CHARGE))


@compiled
def find_affordable_norm(norm, remaining, rate):  # type: ignore[no-untyped-def]
    """Return the largest integer norm <= `norm` (steps) whose charge is at most `remaining` units.

    Zero if no budget remains: an exhausted subject takes the same path through the code as others.
    """
    # For an integer `remaining`, ceil(x) <= remaining is equivalent to x <= remaining.
    if (norm * norm) * rate <= remaining:
        return norm
    allowed = int(min(math.sqrt(max(remaining, 0) / rate) + 1.0, float(norm)))
    while allowed > 0 and (allowed * allowed) * rate > remaining:
        allowed -= 1
    return allowed


@compiled
def compute_label_charge(norm, remaining, rate, cells_per_step, shares):  # type: ignore[no-untyped-def]
    """Return the charge in whole units of a released label, rounded up.

    The subject moves one vote by `norm` steps and has `remaining` units before the release. With a
    table ``t`` (:class:`~vicinal.accounting.label_filter.ChargeTable`) and noise of `scale` steps:

    - `rate`: ``t.squared_shift_factor * compute_unit_rate(scale, t.budget)``;
    - `cells_per_step`, float64: ``t.cells_per_shift / scale``, the cells of row 1 per step;
    - `shares`, float64 (rows, cells): ``t.shares``, the charge over that of released votes.

    The result is at most that of :func:`compute_charge` at the same `rate`, so a norm returned by
    :func:`find_affordable_norm` is affordable.
    """
    votes_charge = norm * norm * rate  # not rounded
    # Shares below 1 are at most MAX_REDUCED_SHARE, so at least this residue remains for any share.
    residue = max(remaining - MAX_REDUCED_SHARE * votes_charge, 0.0)
    rows = len(shares)
    last_cell = shares.shape[1] - 1
    row = int(min(math.sqrt(residue) * (rows / _SQRT_UNITS), rows - 1.0))
    cell = int(min(norm * cells_per_step / max(row, 1), float(last_cell)))
    return math.ceil(min(votes_charge * shares[row, cell], _MAX_CHARGE))
