"""Whether so many records can answer so many queries, in one line, from public facts alone."""

from __future__ import annotations

import math
from dataclasses import replace

from vicinal.predictors.ind_knn._plan_choice import PlanChoice, PlanRequest

ENOUGH_LEAD = 5.0
"""A plan can work if a unanimous vote leads by this many standard deviations of the noise.

Neighbours are hardly ever unanimous: where three quarters of them agree on one of two classes, half
of that lead is left, 2.5 deviations, and the noise decides about one such query in 160.
"""

_MOST_SIGNIFICANT = 10


def unanimous_lead(choice: PlanChoice) -> float:
    """Return the lead of a unanimous vote, in standard deviations of the noise on a lead."""
    return choice.n_neighbors / (choice.noise * math.sqrt(2))


def most_queries(wish: PlanRequest) -> int:
    """Return about how many queries could be planned for at :data:`ENOUGH_LEAD`; 0 for none."""
    least, most = 0, wish.n_queries
    while most - least > max(1, least // _MOST_SIGNIFICANT):
        middle = (least + most) // 2
        choice = PlanChoice.of(replace(wish, n_queries=middle))
        least, most = (middle, most) if unanimous_lead(choice) >= ENOUGH_LEAD else (least, middle)
    return least


def verdict(wish: PlanRequest) -> str:
    """Return one line on a plan.

    Raises
    ------
    InvalidInput
        Naming the first value that a classifier would refuse.
    """
    lead = unanimous_lead(PlanChoice.of(wish))
    facts = f"{wish.n_records:,} records, {wish.n_queries:,} queries, epsilon {wish.epsilon:g}"
    measured = f"a unanimous vote leads by {lead:.1f} standard deviations of the noise"
    if lead >= ENOUGH_LEAD:
        return f"{facts}: can work; {measured}."
    fewer = most_queries(wish)
    advice = f"ask at most about {fewer:,}" if fewer else "take more records or a larger epsilon"
    return f"{facts}: expect noise ({measured}, and {ENOUGH_LEAD:g} are needed); {advice}."
