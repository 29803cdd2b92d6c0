"""What a plan is and why, what it may expect, and what else could be had; as text and JSON."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from vicinal._progress import Step
from vicinal.accounting import Plan
from vicinal.planning import (
    GATE,
    IndKNNPlan,
    PlanChoice,
    SimulationResult,
    SimulationSetup,
    simulate,
)
from vicinal.reports._text import percent

MOST_QUERIES = 2000
"""Behind a gate, this many answers are simulated at most: its model's time grows with the cube."""

ENOUGH = 4000
"""Answers that an outlook should rest on."""

MOST_ROUNDS = 10

AS_WISHED = "as wished"
MODEL = "beside a private model"
FEWER, MORE = "half the neighbours", "twice the neighbours"

_WIDTH = 100


@dataclass(frozen=True, slots=True)
class Option:
    """One way to do it: its name, its plan, and its outlook if there are public points."""

    name: str
    choice: PlanChoice
    outlook: SimulationResult | None

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, for JSON."""
        choice = self.choice
        return {
            "name": self.name,
            **_request(choice.plan),
            "n_neighbors": choice.n_neighbors,
            "noise_multiplier": choice.multiplier,
            "noise_scale": choice.noise,
            "questions_expected": choice.n_asked,
            "questions_until_worn": choice.lasts,
            "participations": choice.participations,
            "cost_of_one": choice.cost,
            "outlook": None if self.outlook is None else asdict(self.outlook),
        }


def _request(plan: IndKNNPlan) -> dict[str, Any]:
    """Return what a plan was asked for."""
    return {
        "n_records": plan.size,
        "n_queries": plan.n_queries,
        "epsilon": plan.epsilon,
        "delta": plan.delta,
        "n_classes": plan.target.n_coordinates,
        "release": plan.release,
        "gate": plan.gated,
        "model_share": plan.model_share,
        "records_per_subject": plan.records_per_subject,
        "no_model": plan.why_no_model,
        "n_features": plan.n_features,
        "n_public": plan.n_public,
    }


def alternatives(plan: IndKNNPlan) -> dict[str, IndKNNPlan]:
    """Return the plan and what else could be had, by name.

    A private model is among them where the rule would train one.
    """
    trained = plan.model_by_rule if plan.n_public else 0.0
    beside = plan
    if share := plan.model_share or trained:
        beside = plan.replanned(release="label", reuse_predictions=False, model_share=share)
    plain = {"reuse_predictions": False, "model_share": 0}
    others = {
        MODEL: beside,
        "votes": plan.replanned(release="votes", **plain),
        "label alone": plan.replanned(release="label", **plain),
        "label, behind a gate": plan.replanned(
            release="label", reuse_predictions=GATE, model_share=0
        ),
        "half the queries": plan.replanned(n_queries=max(1, plan.n_queries // 2)),
        "twice the queries": plan.replanned(n_queries=2 * plan.n_queries),
        "half the epsilon": plan.replanned(epsilon=plan.epsilon / 2),
        "twice the epsilon": plan.replanned(epsilon=plan.epsilon * 2),
    }
    differ = {name: other for name, other in others.items() if vars(other) != vars(plan)}
    return {AS_WISHED: plan, **differ}


def plan_options(
    plan: IndKNNPlan, stage: SimulationSetup | None, seed: int, step: Step
) -> list[Option]:
    """Plan every plan, as a classifier would, and simulate it where there are public points."""
    plan = plan.on(None if stage is None else stage.reference)
    listed = []
    for name, other in alternatives(plan).items():
        listed.append(_option(name, other, stage, seed))
        step(1)
    k = listed[0].choice.n_neighbors
    for name, fixed in ((FEWER, max(1, k // 2)), (MORE, min(2 * k, plan.size))):
        listed.append(_option(name, plan, stage, seed, fixed))
        step(1)
    return listed


def _option(
    name: str, plan: IndKNNPlan, stage: SimulationSetup | None, seed: int, k: int | None = None
) -> Option:
    """Return a plan as it would be made, and simulated where there are public points.

    Beside a private model that takes labels: it learns of clusters what they are made of.
    """
    if stage is None or (plan.model_share and not stage.real):
        reference = None if stage is None else stage.reference
        return Option(name, PlanChoice.of(plan, reference, k), None)
    stage = stage.beside_model(plan, seed) if plan.model_share else stage
    budget_share = None if stage.model is None else stage.model.budget_share
    choice = PlanChoice.of(plan, stage.reference, k, budget_share)
    return Option(name, choice, _simulated(stage, choice, seed))


def work(plan: IndKNNPlan) -> int:
    """Return how many options there are, for a progress bar."""
    return len(alternatives(plan)) + 2


def _simulated(stage: SimulationSetup, choice: PlanChoice, seed: int) -> SimulationResult:
    if choice.plan.gated:
        return simulate(stage, choice, seed, most=MOST_QUERIES)
    rounds = math.ceil(ENOUGH / min(choice.plan.n_queries, len(stage.reference)))
    played = [simulate(stage, choice, seed + turn) for turn in range(min(rounds, MOST_ROUNDS))]
    return SimulationResult.mean(played)


def as_text(listed: Sequence[Option]) -> str:
    """Return everything for people to read; the first option is what was asked for."""
    wished = listed[0]
    facts = "\n".join(
        textwrap.fill(words, _WIDTH, initial_indent=f"{name:13}", subsequent_indent=" " * 13)
        for name, words in [
            *_plan(wished.choice),
            *_expected(wished.outlook, trained=bool(wished.choice.plan.model_share)),
        ]
    )
    lines = [_heading(wished.choice.plan), "", facts, "", *_table(listed)]
    if wished.outlook is not None:
        lines += ["", textwrap.fill(_UNCHANGED, _WIDTH)]
    return "\n".join(lines)


def _heading(plan: IndKNNPlan) -> str:
    classes = plan.target.n_coordinates
    return (
        f"{plan.n_queries:,} answers from {plan.size:,} records of {classes} classes, "
        f"epsilon {plan.epsilon:g} at delta {plan.delta:g}"
    )


def _plan(choice: PlanChoice) -> list[tuple[str, str]]:
    """Return the plan with its reasons."""
    scale = f"sigma2 = {choice.multiplier:.4g}, that is {choice.noise:.4g} votes on each class"
    used = (
        f"each takes part in {choice.participations:.3g} of {choice.n_asked:,} questions expected, "
        f"for {percent(choice.cost, 2)} of its budget each (mean squared kernel weight "
        f"{choice.usage.weight:.2f})"
    )
    lasts = f"a busy record lasts for {choice.lasts:,} questions, {_AS_PUBLIC}"
    return [
        *([("model", words)] if (words := _model(choice.plan)) else []),
        ("neighbours", f"k = {choice.n_neighbors:,}: {_NEIGHBOURS}"),
        ("noise", f"{scale}: {_NOISE}"),
        ("release", _release(choice.plan)),
        ("records", used),
        ("wear", lasts),
    ]


def _model(plan: IndKNNPlan) -> str:
    """Return what training takes and gives away, by the plan that `vicinal account` prices."""
    if plan.why_no_model:
        return f"none, as {plan.why_no_model}"
    share = plan.model_share
    if not share:
        return ""
    release = {
        "kind": "ind_knn",
        "epsilon": plan.epsilon,
        "release": plan.release,
        "model_share": share,
        "model_steps": plan.model_steps,
    }
    priced = Plan.from_dict({"delta": plan.delta, "releases": [release]}).price(lower=False)
    training = priced["releases"][0]["parts"][0]
    return (
        f"{training['steps']} noisy gradients, of scale {training['sigma']:.4g} clipping bounds, "
        f"take at most {percent(share, 0)} of a budget (14 to 25 % on average on images); epsilon "
        f"{training['alone']:.3g} for the model alone, {plan.epsilon:g} with all answers"
    )


def _release(plan: IndKNNPlan) -> str:
    words = _RELEASES[plan.release, plan.gated]
    if not plan.model_share:
        return words
    share = percent(plan.model_rule.asked, 0)
    return f"{words}; only the {share} of queries that the model is least sure of are asked"


_UNCHANGED = (
    "Unchanged is by comparison with the same neighbours without noise: it says what noise and "
    "wear cost, and not which number of neighbours answers best. Accuracy does, by real labels."
)
_AS_PUBLIC = "if they fall as the public points do"
_NEIGHBOURS = "more of them drown the noise, fewer are nearer; the best number grows with the noise"
_NOISE = "what a busy record can pay for, with room to spare"
_RELEASES = {
    ("votes", False): "all noisy votes: scores, confidence and abstention come with them",
    ("label", False): "the label alone, which costs less than the votes",
    ("votes", True): "votes of the queries that are asked; a model of earlier answers gives others",
    ("label", True): "the label alone, and only where a model of earlier answers is not sure",
}
_NOTHING_PLAYED = (
    "nothing, for want of public points; kernel weights count as the largest there are, and with "
    "points (--public) the noise comes out smaller"
)
_NOT_TRAINED = (
    "nothing: what a model learns depends on labels, and none were given (--labels). The noise is "
    "planned for the least that training leaves of a budget; fit takes less"
)
_CLUSTERS = (
    "cannot be told: clusters of the public points played the classes. Classes that overlap more "
    "than clusters do lose more to noise. Labels of public points (--labels) would tell"
)


def _expected(outlook: SimulationResult | None, *, trained: bool) -> list[tuple[str, str]]:
    """Return what to expect, in words that claim no more than was simulated."""
    if outlook is None:
        return [("simulated", _NOT_TRAINED if trained else _NOTHING_PLAYED)]
    played = (
        f"{percent(outlook.agreement)} (± {percent(2 * outlook.error)}) of {outlook.answers:,} "
        "answers on public points come out as without noise and wear, "
        f"{percent(outlook.at_end)} of the last quarter; {percent(outlook.used)} of all budgets "
        f"are used then, {percent(outlook.retired)} spent"
    )
    return [("simulated", played), ("accuracy", _accuracy(outlook))]


def _accuracy(outlook: SimulationResult) -> str:
    if outlook.accuracy is None or outlook.plain_accuracy is None:
        return _CLUSTERS
    return (
        f"{percent(outlook.accuracy)}, and {percent(outlook.plain_accuracy)} without noise: by the "
        "labels of the public points, if private records are like them"
    )


def _table(listed: Sequence[Option]) -> list[str]:
    """Return the options side by side."""
    head = (
        f"{'':22}{'queries':>8} {'eps':>6} {'k':>6} {'sigma2':>7} {'a question costs':>17} "
        f"{'asked':>7} {'unchanged':>10} {'accuracy':>9}"
    )
    return [head, *map(_table_row, listed)]


def _table_row(option: Option) -> str:
    choice, outlook = option.choice, option.outlook
    unchanged = "-" if outlook is None else percent(outlook.agreement)
    accuracy = outlook and outlook.accuracy
    queried = choice.n_asked / choice.plan.n_queries if outlook is None else outlook.asked
    return (
        f"{option.name:22}{choice.plan.n_queries:8,} {choice.plan.epsilon:6g} "
        f"{choice.n_neighbors:6,} {choice.multiplier:7.3f} {percent(choice.cost, 2):>17} "
        f"{percent(queried, 0):>7} {unchanged:>10} {percent(accuracy) if accuracy else '-':>9}"
    )
