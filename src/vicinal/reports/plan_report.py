"""What a plan is and why, what it may expect, and what else could be had; as text and JSON."""

import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any

from vicinal.accounting.plan import Plan
from vicinal.errors import InvalidInput
from vicinal.neighbours.radius import Reference
from vicinal.planning.plan import IndKNNPlan
from vicinal.planning.plan_simulation import PlanChoice, SimulationResult, SimulationSetup, simulate
from vicinal.progress import Begin
from vicinal.reports.text import format_percent, rendered

ENOUGH = 4000
"""Answers that an outlook should rest on."""

MOST_ROUNDS = 10
_MOST_SHOWN = 3

AS_WISHED = "this plan"
MODEL = "beside a private model"

SIZES = (1_000, 300, 3_000, 10_000, 30_000, 100_000)
"""Numbers of records that a plan is shown for where theirs is private."""


@dataclass(frozen=True, slots=True)
class Option:
    """One way to do it: its name, its plan, and its outlook if there are public points."""

    name: str
    choice: PlanChoice
    outlook: SimulationResult | None

    def to_dict(self) -> dict[str, Any]:
        choice, plan = self.choice, self.choice.plan
        voted = plan.target.voted
        expected = {} if voted else {"expected": [asdict(e) for e in choice.expected_errors()]}
        return {
            "name": self.name,
            "n_records": plan.size,
            "n_queries": plan.n_queries,
            "epsilon": plan.epsilon,
            "delta": plan.delta,
            "n_classes": plan.target.n_coordinates,
            "release": plan.release,
            "model_share": plan.model_share,
            "records_per_subject": plan.records_per_subject,
            "no_model": plan.why_no_model,
            "n_public": plan.n_public,
            "n_neighbors": choice.n_neighbors,
            "noise_multiplier": choice.multiplier,
            "noise_scale": choice.noise,
            "queries_expected": plan.n_asked,
            "queries_until_spent": choice.lasts,
            "participations": choice.participations,
            "cost_of_one": choice.cost,
            "outlook": None if self.outlook is None else asdict(self.outlook),
            **expected,
        }


def alternatives(plan: IndKNNPlan) -> dict[str, IndKNNPlan]:
    """Return the plan and what else could be had, by name.

    Where the number of records is private, it is the same plan for several of them.
    """
    if plan.n_records is None:
        return {f"{size:,} records": plan.replanned(n_records=size) for size in SIZES}
    others = _other_releases(plan) if plan.target.voted else {}
    others |= {
        "half the queries": plan.replanned(n_queries=max(1, plan.n_queries // 2)),
        "twice the queries": plan.replanned(n_queries=2 * plan.n_queries),
        "half the epsilon": plan.replanned(epsilon=plan.epsilon / 2),
        "twice the epsilon": plan.replanned(epsilon=plan.epsilon * 2),
    }
    differ = {name: other for name, other in others.items() if vars(other) != vars(plan)}
    return {AS_WISHED: plan, **differ}


def _other_releases(plan: IndKNNPlan) -> dict[str, IndKNNPlan]:
    share = plan.model_share or plan.model_by_rule
    changes: dict[str, dict[str, Any]] = {
        MODEL: {"release": "label", "model_share": share},
        "votes": {"release": "votes", "model_share": 0},
        "label alone": {"release": "label", "model_share": 0},
    }
    if not share:
        del changes[MODEL]
    others = {}
    for name, changed in changes.items():
        with suppress(InvalidInput):
            others[name] = plan.replanned(**changed)
    return others


def plan_options(
    plan: IndKNNPlan,
    reference: Reference | None,
    stage: SimulationSetup | None,
    seed: int,
    begin: Begin,
    *,
    alone: bool = False,
) -> list[Option]:
    """Plan every plan, as a classifier would, and simulate it where there is a stage.

    `reference`: public points. `alone`: leave out what else could be had.
    """
    named = alternatives(plan)
    if alone and plan.n_records:
        named = {AS_WISHED: plan}
    step, listed = begin("simulation", len(named)), []
    for name, other in named.items():
        listed.append(_option(name, other, reference, stage, seed))
        step(1)
    return listed


def _option(
    name: str,
    plan: IndKNNPlan,
    reference: Reference | None,
    stage: SimulationSetup | None,
    seed: int,
) -> Option:
    """Return a plan as it would be made, and simulated where there is a stage."""
    if stage is None:
        return Option(name, PlanChoice.of(plan, reference), None)
    stage = stage.beside_model(plan, seed) if plan.model_share else stage
    budget_share = None if stage.model is None else stage.model.budget_share
    choice = PlanChoice.of(plan, stage.reference, budget_share)
    rounds = min(MOST_ROUNDS, math.ceil(ENOUGH / min(plan.n_queries, len(stage.reference))))
    played = [simulate(stage, choice, seed + turn) for turn in range(rounds)]
    return Option(name, choice, SimulationResult.mean(played))


def as_text(listed: Sequence[Option], why: str) -> str:
    """Return everything for people to read; the first option is what was asked for.

    `why`: why it was not simulated, if it was not.
    """
    plan, errors = listed[0].choice.plan, []
    if not plan.target.voted:
        errors = listed[0].choice.expected_errors()
    rows = [_table_row(option) for option in listed] if len(listed) > 1 else []
    return rendered(
        "plan.txt", wished=listed[0], training=_training(plan), errors=errors[:_MOST_SHOWN],
        more=len(errors) - _MOST_SHOWN, why=why, rows=rows,
    ).rstrip()  # fmt: skip


def _training(plan: IndKNNPlan) -> dict[str, Any] | None:
    if plan.why_no_model or not plan.model_share:
        return None
    release = {
        "kind": "ind_knn", "epsilon": plan.epsilon, "release": plan.release,
        "model_share": plan.model_share,
    }  # fmt: skip
    priced = Plan.from_dict({"delta": plan.delta, "releases": [release]}).price(lower=False)
    training: dict[str, Any] = priced["releases"][0]["parts"][0]
    return training


def _table_row(option: Option) -> str:
    choice, outlook = option.choice, option.outlook
    unchanged = "-" if outlook is None else format_percent(outlook.agreement)
    last = "-" if outlook is None else format_percent(outlook.accuracy)
    if not choice.plan.target.voted:
        last = f"{choice.expected_errors()[0].error:.3g}"
    queried = choice.plan.n_asked / choice.plan.n_queries if outlook is None else outlook.asked
    return (
        f"{option.name:22}{choice.plan.n_queries:8,} {choice.plan.epsilon:6g} "
        f"{choice.n_neighbors:6,} {choice.multiplier:7.3f} "
        f"{format_percent(min(1.0, choice.cost), 2):>17} "
        f"{format_percent(queried, 0):>7} {unchanged:>10} {last:>9}"
    )


# ---------------------------------------------------------------- verdicts, from public facts alone


ENOUGH_LEAD = 5.0
"""A plan can work if a unanimous vote leads by this many standard deviations of the noise.

Neighbours are hardly ever unanimous: where three quarters of them agree on one of two classes, half
of that lead is left, 2.5 deviations, and the noise decides about one such query in 160.
"""

ENOUGH_LEARNT = 130.0
"""A private model can work if records times mu are so many: 500 records at epsilon 1.

With these the default is .70 right in AUC on 32 tables that no constant was chosen on, a linear
model without privacy .76 and with twice as many records .73 (docs/reference/report-set.md).
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


def model_records(plan: IndKNNPlan) -> int:
    """Return about how many records a private model needs: :data:`ENOUGH_LEARNT` over mu.

    mu is what training may take of a subject's budget, as that of a Gaussian. Its noise on a mean
    gradient of n records is sqrt(2) clips over mu n.
    """
    share = plan.model_share or plan.model_by_rule
    return math.ceil(ENOUGH_LEARNT / math.sqrt(2 * share * plan.spendable))


def assess_plan(
    plan: IndKNNPlan, shares: Sequence[float] = (), *, brief: bool = False
) -> list[str]:
    """Return lines on whether a plan for classes can work, and what would make it better.

    `shares`: how common each class is among public labels, if there are any. `brief`: without
    advice on rare classes. Where the number of records is private, the lines say how many
    it needs. Raises InvalidInput for the first value that a classifier would refuse.
    """
    known = plan.n_records is not None
    lines = [verdict(plan if known else plan.changed(n_records=1), known=known)]
    if plan.model_share:
        lines.append(
            f"up to {plan.model_share:.0%} of each budget trains a private model before the first "
            "answer. Use --model-share 0 for none."
        )
    if plan.class_prior is None:
        rare = not brief and (not len(shares) or min(shares) < _RARE)
        seen = "--class-prior " + ",".join(f"{share:.3g}" for share in shares or (0.95, 0.05))
        return [*lines, *([f"{_UNDECLARED[bool(shares)]}, {seen} {_DECLARED}"] if rare else ())]
    names = plan.class_names.tolist()
    return [*lines, *(rare_classes(plan, plan.class_prior, names) if known else ())]


_RARE = 0.1

_UNDECLARED = "if a class is rare", "a class is rare among the public labels"
_DECLARED = (
    "states the shares of the classes, which you take from published figures. They are used where "
    "noise hides the votes. Add --cost balanced to find more of the rare cases."
)


def verdict(plan: IndKNNPlan, *, known: bool) -> str:
    """Return one line on how many records a plan needs, and whether it has them, where `known`.

    Raises InvalidInput for the first value that a classifier would refuse.
    """
    need = model_records(plan) if plan.model_share else least_records(plan)
    asked = f"{plan.n_queries:,} queries at epsilon {plan.epsilon:g}"
    if need >= _MOST_RECORDS:  # more of them do not help: the noise is given
        return (
            f"{asked}: expect noise with any number of records. Use a smaller --noise-multiplier."
        )
    if not known:
        return (
            f"{asked} need about {need:,} records. With fewer, expect noise. vicinal does not look "
            "at your number of records, which is private."
        )
    can = "enough records" if plan.size >= need else "expect noise"
    needed = "A private model needs" if plan.model_share else "Neighbours alone need"
    return f"{plan.size:,} records, {asked}: {can}. {needed} about {need:,} records."


def least_records(plan: IndKNNPlan) -> int:
    """Return about how many records a plan needs at :data:`ENOUGH_LEAD`, a tenth more at most."""

    def too_few(records: int) -> bool:
        choice = PlanChoice.of(plan.replanned(n_records=records))
        return unanimous_lead(choice) < ENOUGH_LEAD

    most = 1
    while most < _MOST_RECORDS and too_few(most):
        most *= 2
    least = most // 2
    while most - least > max(1, least // _MOST_SIGNIFICANT):
        middle = (least + most) // 2
        least, most = (middle, most) if too_few(middle) else (least, middle)
    return most


def rare_classes(plan: IndKNNPlan, shares: Sequence[float], names: Sequence[object]) -> list[str]:
    choice = PlanChoice.of(plan)
    least = _STANDS_OUT * choice.noise / choice.n_neighbors
    return [
        f"class {name!r} is too rare for this plan. It has {_percent(share)} of a query's "
        f"neighbours, and needs {_percent(share + least)} to show above the noise. Use more "
        "records, fewer queries or a larger epsilon."
        for name, share in zip(names, shares, strict=True)
        if share + least > RARE_LIFT * share
    ]


def _percent(share: float) -> str:
    return f"{min(share, 1.0):.1%}"
