"""What a plan is and why, what it may expect, and what else could be had; as text and JSON."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from vicinal._progress import Step
from vicinal.accounting import Plan
from vicinal.planning import PlanChoice, PlanRequest, SimulationResult, SimulationSetup, simulate
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
            **asdict(choice.request),
            "n_neighbors": choice.n_neighbors,
            "noise_multiplier": choice.multiplier,
            "noise_scale": choice.noise,
            "questions_expected": choice.n_asked,
            "questions_until_worn": choice.lasts,
            "participations": choice.participations,
            "cost_of_one": choice.cost,
            "outlook": None if self.outlook is None else asdict(self.outlook),
        }


def wishes(wish: PlanRequest) -> dict[str, PlanRequest]:
    """Return the wish and what else could be wished for, by name.

    A private model is among them where the rule would train one.
    """
    trained = wish.model_by_rule if wish.n_public else 0.0
    plain = replace(wish, model_share=0.0, no_model="")
    beside = replace(wish, release="label", gate=False, model_share=wish.model_share or trained)
    beside = replace(beside, no_model="")
    others = {
        MODEL: beside if trained or wish.model_share else wish,
        "votes": replace(plain, release="votes", gate=False),
        "label alone": replace(plain, release="label", gate=False),
        "label, behind a gate": replace(plain, release="label", gate=True),
        "half the queries": replace(wish, n_queries=max(1, wish.n_queries // 2)),
        "twice the queries": replace(wish, n_queries=2 * wish.n_queries),
        "half the epsilon": replace(wish, epsilon=wish.epsilon / 2),
        "twice the epsilon": replace(wish, epsilon=wish.epsilon * 2),
    }
    return {AS_WISHED: wish, **{name: other for name, other in others.items() if other != wish}}


def plan_options(
    wish: PlanRequest, stage: SimulationSetup | None, seed: int, step: Step
) -> list[Option]:
    """Plan every wish, as a classifier would, and simulate it where there are public points."""
    wish = wish.on(None if stage is None else stage.reference)
    listed = []
    for name, other in wishes(wish).items():
        listed.append(_option(name, other, stage, seed))
        step(1)
    k = listed[0].choice.n_neighbors
    for name, fixed in ((FEWER, max(1, k // 2)), (MORE, min(2 * k, wish.n_records))):
        listed.append(_option(name, wish, stage, seed, fixed))
        step(1)
    return listed


def _option(
    name: str, wish: PlanRequest, stage: SimulationSetup | None, seed: int, k: int | None = None
) -> Option:
    """Return a wish as it would be planned, and simulated where there are public points.

    Beside a private model that takes labels: it learns of clusters what they are made of.
    """
    if stage is None or (wish.model_share and not stage.real):
        reference = None if stage is None else stage.reference
        return Option(name, PlanChoice.of(wish, reference, k), None)
    stage = stage.beside_model(wish, seed) if wish.model_share else stage
    budget_share = None if stage.model is None else stage.model.budget_share
    choice = PlanChoice.of(wish, stage.reference, k, budget_share)
    return Option(name, choice, _simulated(stage, choice, seed))


def work(wish: PlanRequest) -> int:
    """Return how many options there are, for a progress bar."""
    return len(wishes(wish)) + 2


def _simulated(stage: SimulationSetup, choice: PlanChoice, seed: int) -> SimulationResult:
    if choice.request.gate:
        return simulate(stage, choice, seed, most=MOST_QUERIES)
    rounds = math.ceil(ENOUGH / min(choice.request.n_queries, len(stage.reference)))
    played = [simulate(stage, choice, seed + turn) for turn in range(min(rounds, MOST_ROUNDS))]
    return SimulationResult.mean(played)


def as_text(listed: Sequence[Option]) -> str:
    """Return everything for people to read; the first option is the wish itself."""
    wished = listed[0]
    facts = "\n".join(
        textwrap.fill(words, _WIDTH, initial_indent=f"{name:13}", subsequent_indent=" " * 13)
        for name, words in [
            *_plan(wished.choice),
            *_expected(wished.outlook, trained=bool(wished.choice.request.model_share)),
        ]
    )
    lines = [_heading(wished.choice.request), "", facts, "", *_table(listed)]
    if wished.outlook is not None:
        lines += ["", textwrap.fill(_UNCHANGED, _WIDTH)]
    return "\n".join(lines)


def _heading(wish: PlanRequest) -> str:
    return (
        f"{wish.n_queries:,} answers from {wish.n_records:,} records of {wish.n_classes} classes, "
        f"epsilon {wish.epsilon:g} at delta {wish.delta:g}"
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
        *([("model", words)] if (words := _model(choice.request)) else []),
        ("neighbours", f"k = {choice.n_neighbors:,}: {_NEIGHBOURS}"),
        ("noise", f"{scale}: {_NOISE}"),
        ("release", _release(choice.request)),
        ("records", used),
        ("wear", lasts),
    ]


def _model(wish: PlanRequest) -> str:
    """Return what training takes and gives away, by the plan that `vicinal account` prices."""
    if wish.no_model:
        return f"none, as {wish.no_model}"
    share = wish.settings().model_share
    if not share:
        return ""
    release = {
        "kind": "ind_knn",
        "epsilon": wish.epsilon,
        "release": wish.release,
        "model_share": share,
        "model_steps": wish.model_steps,
    }
    priced = Plan.from_dict({"delta": wish.delta, "releases": [release]}).price(lower=False)
    training = priced["releases"][0]["parts"][0]
    return (
        f"{training['steps']} noisy gradients, of scale {training['sigma']:.4g} clipping bounds, "
        f"take at most {percent(share, 0)} of a budget (14 to 25 % on average on images); epsilon "
        f"{training['alone']:.3g} for the model alone, {wish.epsilon:g} with all answers"
    )


def _release(wish: PlanRequest) -> str:
    words = _RELEASES[wish.release, wish.gate]
    if not wish.model_share:
        return words
    share = percent(wish.settings().model_rule.asked, 0)
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
    queried = choice.n_asked / choice.request.n_queries if outlook is None else outlook.asked
    return (
        f"{option.name:22}{choice.request.n_queries:8,} {choice.request.epsilon:6g} "
        f"{choice.n_neighbors:6,} {choice.multiplier:7.3f} {percent(choice.cost, 2):>17} "
        f"{percent(queried, 0):>7} {unchanged:>10} {percent(accuracy) if accuracy else '-':>9}"
    )
