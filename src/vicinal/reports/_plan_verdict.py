"""Whether so many records can answer so many queries, in one line, from public facts alone."""

from __future__ import annotations

import math
from collections.abc import Sequence

from vicinal.planning import IndKNNPlan, PlanChoice

ENOUGH_LEAD = 5.0
"""A plan can work if a unanimous vote leads by this many standard deviations of the noise.

Neighbours are hardly ever unanimous: where three quarters of them agree on one of two classes, half
of that lead is left, 2.5 deviations, and the noise decides about one such query in 160.
"""

RARE_LIFT = 5.0
"""A class is too rare for a plan if a query needs more than so many times its share to stand out.

Likely cases have several times their class's usual share around them, hardly ever more than this.
docs/decisions/0008-automatic-plan.md has the reasons for these numbers.
"""

_STANDS_OUT = 2.0  # standard deviations of the noise on a share of the votes
_MOST_SIGNIFICANT = 10
_MOST_RECORDS = 1 << 40


def unanimous_lead(choice: PlanChoice) -> float:
    """Return the lead of a unanimous vote, in standard deviations of the noise on a lead."""
    return choice.n_neighbors / (choice.noise * math.sqrt(2))


def most_queries(plan: IndKNNPlan) -> int:
    """Return about how many queries could be planned for at :data:`ENOUGH_LEAD`; 0 for none."""
    least, most = 0, plan.n_queries
    while most - least > max(1, least // _MOST_SIGNIFICANT):
        middle = (least + most) // 2
        choice = PlanChoice.of(plan.replanned(n_queries=middle))
        least, most = (middle, most) if unanimous_lead(choice) >= ENOUGH_LEAD else (least, middle)
    return least


def verdict(plan: IndKNNPlan) -> str:
    """Return one line on a plan, or refuse the first value that a classifier would refuse."""
    lead = unanimous_lead(PlanChoice.of(plan))
    facts = f"{plan.size:,} records, {plan.n_queries:,} queries, epsilon {plan.epsilon:g}"
    measured = f"a unanimous vote leads by {lead:.1f} standard deviations of the noise"
    if lead >= ENOUGH_LEAD:
        return f"{facts}: can work; {measured}."
    fewer = most_queries(plan)
    advice = f"ask at most about {fewer:,}" if fewer else "take more records or a larger epsilon"
    return f"{facts}: expect noise ({measured}, and {ENOUGH_LEAD:g} are needed); {advice}."


def least_records(plan: IndKNNPlan) -> int:
    """Return about how many records a plan needs at :data:`ENOUGH_LEAD`."""

    def works(records: int) -> bool:
        return unanimous_lead(PlanChoice.of(plan.replanned(n_records=records))) >= ENOUGH_LEAD

    most = 1
    while not works(most) and most < _MOST_RECORDS:
        most *= 2
    least = most // 2
    while most - least > max(1, least // _MOST_SIGNIFICANT):
        middle = (least + most) // 2
        least, most = (least, middle) if works(middle) else (middle, most)
    return most


def verdict_without_records(plan: IndKNNPlan) -> str:
    """Return one line on a plan whose number of records is private: how many it needs."""
    need = f"{least_records(plan):,}"
    return (
        f"{plan.n_queries:,} queries at epsilon {plan.epsilon:g} need about {need} records; "
        "with fewer, expect noise. Whether there are so many was not looked up: it is private."
    )


def rare_classes(plan: IndKNNPlan, shares: Sequence[float], names: Sequence[object]) -> list[str]:
    """Return a line for each class that is too rare for a plan, given public shares of classes."""
    choice = PlanChoice.of(plan)
    least = _STANDS_OUT * choice.noise / choice.n_neighbors
    return [
        f"class {name!r} is too rare for this plan: of a query's neighbours {_percent(share)} are "
        f"in it, and {_percent(share + least)} are needed to stand out of the noise; take more "
        "records, fewer queries or a larger epsilon."
        for name, share in zip(names, shares, strict=True)
        if share + least > RARE_LIFT * share
    ]


def linear_model_note(plan: IndKNNPlan) -> str | None:
    """Return a line where a private linear model is likely to be ahead of votes; None elsewhere.

    It is where a model can be trained. Where votes of such a plan are lost in noise, it is the
    better choice by itself.
    """
    if not plan.model_by_rule:
        return None
    if unanimous_lead(PlanChoice.of(plan)) < ENOUGH_LEAD:
        return (
            "a private linear model is the better choice here, as votes are lost in noise: "
            "take --model-share auto, or NoisySGDClassifier."
        )
    return "a private model beside the votes is mostly ahead of votes alone: --model-share auto."


def _percent(share: float) -> str:
    return f"{min(share, 1.0):.1%}"
