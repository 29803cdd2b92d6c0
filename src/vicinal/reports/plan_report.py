"""Reports on Ind-KNN plans as text and JSON: parameters, simulated accuracy and alternatives."""

import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any

from vicinal.accounting.plan import Plan
from vicinal.errors import InvalidInput
from vicinal.neighbours.radius import Reference
from vicinal.planning.measured_accuracy import (
    AccuracyRange,
    describe_unmeasured_plan,
    find_accuracy_range,
)
from vicinal.planning.plan import IndKNNPlan
from vicinal.planning.plan_simulation import PlanChoice, SimulationResult, SimulationSetup, simulate
from vicinal.planning.required_records import MAX_RECORDS, find_min_records, find_model_records
from vicinal.progress import Begin
from vicinal.reports.text import format_percent, render_template

_MIN_SIMULATED_ANSWERS = 4000  # on which an accuracy estimate should be based
_MAX_RUNS = 10  # repetitions of a simulation
_MAX_ERRORS_SHOWN = 3  # coordinates of a vector answer whose expected errors the text shows

_REQUESTED = "this plan"
_WITH_MODEL = "beside a private model"  # name of the option: labels with a private model

_SIZES = (1_000, 300, 3_000, 10_000, 30_000, 100_000)
"""Numbers of records for which a plan is reported if the true number is private."""


@dataclass(frozen=True, slots=True)
class PlanOption:
    """A plan by its name in the report, with the parameters that a classifier would choose."""

    name: str
    choice: PlanChoice
    simulation: SimulationResult | None  # simulated accuracy; None without simulation
    # Accuracy on similar public tables; None with a simulation, and for plans not measured.
    accuracy_range: AccuracyRange | None = None
    no_range_reason: str = ""  # why plans like this one were not measured, as a clause

    def to_dict(self) -> dict[str, Any]:
        """Return the option as JSON values."""
        choice = self.choice
        plan = choice.plan
        expected = {}
        if not plan.target.is_class_vote:
            expected = {"expected": [asdict(error) for error in choice.list_expected_errors()]}
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
            "no_model": plan.no_model_reason,
            "n_public": plan.n_public,
            "n_neighbors": choice.n_neighbors,
            "noise_multiplier": choice.multiplier,
            "noise_scale": choice.noise,
            "queries_expected": plan.n_private_answers,
            "queries_until_spent": choice.queries_until_spent,
            "participations": choice.n_participations,
            "cost_of_one": choice.charged_share,
            "outlook": None if self.simulation is None else asdict(self.simulation),
            "similar_tables": None if self.accuracy_range is None else asdict(self.accuracy_range),
            "no_similar_tables": self.no_range_reason,
            **expected,
        }


def _list_plans(plan: IndKNNPlan) -> dict[str, IndKNNPlan]:
    """Return the requested `plan` and variants of it, by the name of the option in the report.

    The variants change the released values, the number of queries, or epsilon. If the number of
    records is private, the result is instead the same plan for each size in :data:`_SIZES`.
    """
    if plan.n_records is None:
        return {f"{size:,} records": plan.replanned(n_records=size) for size in _SIZES}
    variants = _build_release_variants(plan) if plan.target.is_class_vote else {}
    variants |= {
        "half the queries": plan.replanned(n_queries=max(1, plan.n_queries // 2)),
        "twice the queries": plan.replanned(n_queries=2 * plan.n_queries),
        "half the epsilon": plan.replanned(epsilon=plan.epsilon / 2),
        "twice the epsilon": plan.replanned(epsilon=plan.epsilon * 2),
    }
    changed = {name: variant for name, variant in variants.items() if vars(variant) != vars(plan)}
    return {_REQUESTED: plan, **changed}


def _build_release_variants(plan: IndKNNPlan) -> dict[str, IndKNNPlan]:
    """Return possible plans that release votes, labels alone, or labels with a private model.

    The keys are their names in the report.
    """
    share = plan.model_share or plan.automatic_model_share
    changes: dict[str, dict[str, Any]] = {
        _WITH_MODEL: {"release": "label", "model_share": share},
        "votes": {"release": "votes", "model_share": 0},
        "label alone": {"release": "label", "model_share": 0},
    }
    if not share:
        del changes[_WITH_MODEL]
    variants = {}
    for name, parameters in changes.items():
        with suppress(InvalidInput):
            variants[name] = plan.replanned(**parameters)
    return variants


def evaluate_plan_options(
    plan: IndKNNPlan,
    reference: Reference | None,
    setup: SimulationSetup | None,
    seed: int,
    begin: Begin,
    *,
    n_features: int | None = None,
    only_requested: bool = False,
) -> list[PlanOption]:
    """Return `plan` and its alternatives with noise and neighbours chosen as a classifier would.

    `reference`: encoded public points, used without simulation; None if there are none. `setup`:
    labelled public points on which each plan is simulated; None for no simulation. `seed`: of the
    first simulation of each plan; later ones count up. `begin`: starts a progress bar, given its
    name and number of steps. `n_features`: None if unknown. `only_requested`: leave out the
    alternatives, if the number of records is public.
    """
    plans = _list_plans(plan)
    if only_requested and plan.n_records:
        plans = {_REQUESTED: plan}
    report_progress = begin("simulation", len(plans))
    options = []
    for name, named_plan in plans.items():
        if setup is None:
            choice = PlanChoice.from_plan(named_plan, reference)
            accuracy_range = find_accuracy_range(named_plan, n_features)
            reason = describe_unmeasured_plan(named_plan, n_features)
            options.append(PlanOption(name, choice, None, accuracy_range, reason))
        else:
            options.append(_simulate_option(name, named_plan, setup, seed))
        report_progress(1)
    return options


def _simulate_option(name: str, plan: IndKNNPlan, setup: SimulationSetup, seed: int) -> PlanOption:
    """Return the option of a plan with its simulated accuracy, as in `evaluate_plan_options`."""
    if plan.model_share:
        setup = setup.with_simulated_model(plan, seed)
    budget_share = None if setup.model is None else setup.model.budget_share
    choice = PlanChoice.from_plan(plan, setup.reference, budget_share)
    n_per_run = min(plan.n_queries, len(setup.reference))
    n_runs = min(_MAX_RUNS, math.ceil(_MIN_SIMULATED_ANSWERS / n_per_run))
    results = [simulate(setup, choice, seed + run) for run in range(n_runs)]
    return PlanOption(name, choice, SimulationResult.mean(results))


def format_plan_options(
    options: Sequence[PlanOption],
    why_not_simulated: str,
    verdict: str = "",
    *,
    details: bool = False,
    accepts_class_prior: bool = True,
) -> str:
    """Return the text report of the requested plan, the first option, and a table of all options.

    `why_not_simulated`: reason if there is no simulation. `verdict`: line on whether there are
    enough records. `details`: whether neighbours, noise and training are reported, too.
    `accepts_class_prior`: whether advice may name --class-prior.
    """
    requested = options[0]
    errors = []
    if not requested.choice.plan.target.is_class_vote:
        errors = requested.choice.list_expected_errors()
    template_values = {
        "requested": requested,
        "records": _format_records(requested.choice.plan),
        "accepts_class_prior": accepts_class_prior,
        "training": _compute_training_cost(requested.choice.plan),
        "errors": errors[:_MAX_ERRORS_SHOWN],
        "more": len(errors) - _MAX_ERRORS_SHOWN,
        "rows": _format_option_table(options, details=details) if len(options) > 1 else [],
        "verdict": verdict,
        "details": details,
    }
    return render_template("plan.txt", **template_values, reason=why_not_simulated).rstrip()


def _compute_training_cost(plan: IndKNNPlan) -> dict[str, Any] | None:
    """Return steps, noise and epsilon of the model's training in a plan; None without a model."""
    if plan.no_model_reason or not plan.model_share:
        return None
    release = {
        "kind": "ind_knn",
        "epsilon": plan.epsilon,
        "release": plan.release,
        "model_share": plan.model_share,
    }
    priced = Plan.from_dict({"delta": plan.delta, "releases": [release]}).price(lower=False)
    training: dict[str, Any] = priced["releases"][0]["parts"][0]
    return training


def _format_option_table(options: Sequence[PlanOption], *, details: bool) -> list[str]:
    """Return the lines of a table with a header and a line for each of `options`.

    `details`: whether it has columns of the neighbours and the noise. An unknown value is "-"; a
    column of unknown values only is left out.
    """
    rows = [_list_table_cells(option) for option in options]
    titles = [
        title
        for title, width in _TABLE_COLUMNS.items()
        if any(row.get(title, "-") != "-" for row in rows)
        and (details or title not in _TECHNICAL_COLUMNS)
    ]
    header = {title: title for title in titles} | {_NAME_COLUMN: ""}
    return [
        "".join(
            f"{row[title]:{'<' if title == _NAME_COLUMN else '>'}{_TABLE_COLUMNS[title]}}"
            for title in titles
        )
        for row in [header, *rows]
    ]


_NAME_COLUMN = "name"
_TECHNICAL_COLUMNS = ("k", "sigma2")  # number of neighbours, and noise multiplier
_TABLE_COLUMNS = {
    _NAME_COLUMN: 22,
    "queries": 8,
    "eps": 7,
    "k": 7,
    "sigma2": 8,
    "a query costs": 18,
    "charged": 8,
    "unchanged": 11,
    "accuracy": 10,
    "error": 10,
}
"""Width in characters of each column of the table of options, by its title."""


def _list_table_cells(option: PlanOption) -> dict[str, str]:
    """Return the cells of an option's row in the table of options, by the title of the column."""
    choice = option.choice
    simulation = option.simulation
    cells = {
        _NAME_COLUMN: option.name,
        "queries": f"{choice.plan.n_queries:,}",
        "eps": f"{choice.plan.epsilon:g}",
        "k": f"{choice.n_neighbors:,}",
        "sigma2": f"{choice.multiplier:.3f}",
        "a query costs": format_percent(min(1.0, choice.charged_share), 2),
    }
    charged = choice.plan.n_private_answers / choice.plan.n_queries
    cells["accuracy"] = "-"
    cells["unchanged"] = "-"
    if simulation is not None:
        charged = simulation.asked
        cells["unchanged"] = format_percent(simulation.agreement)
        cells["accuracy"] = format_percent(simulation.accuracy)
    elif option.accuracy_range is not None and not option.accuracy_range.is_too_high:
        low_percent = f"{100 * option.accuracy_range.low:.0f}"
        cells["accuracy"] = f"{low_percent}-{format_percent(option.accuracy_range.high, 0)}"
    cells["charged"] = format_percent(charged, 0)
    if not choice.plan.target.is_class_vote:
        del cells["accuracy"]
        cells["error"] = f"{choice.list_expected_errors()[0].error:.3g}"
    return cells


_MAX_RARE_RATIO = 5.0
"""Largest ratio of a class's share among a query's neighbours to its share of all records.

A class is too rare for a plan if only a larger ratio would exceed the noise. Likely cases have
several times the usual share of their class around them, but rarely more than this.
docs/decisions/0008-automatic-plan.md has the reasons for these numbers.
"""

_RARE_SHARE = 0.1  # a class with a smaller share of the public labels gets advice
_SIGNIFICANT_EXCESS = 2.0  # in standard deviations of the noise on a share of the votes


def assess_plan(
    plan: IndKNNPlan,
    class_shares: Sequence[float] = (),
    *,
    brief: bool = False,
    accepts_class_prior: bool = True,
) -> list[str]:
    """Return lines of advice: whether a plan for classes has enough records, and improvements.

    `class_shares`: share of each class among public labels, empty without labels. `brief`: leave
    out advice on undeclared rare classes. `accepts_class_prior`: whether the command has the
    options of that advice. Raises InvalidInput for the first value that a classifier would reject.
    """
    size_is_public = plan.n_records is not None
    sized_plan = plan if size_is_public else plan.changed(n_records=1)
    lines = [describe_min_records(sized_plan, size_is_public=size_is_public)]
    if plan.model_share:
        lines.append(
            f"up to {plan.model_share:.0%} of each budget trains a private model before the first "
            "answer. Use --model-share 0 for none."
        )
    if plan.class_prior is None:
        may_be_rare = not len(class_shares) or min(class_shares) < _RARE_SHARE
        if may_be_rare and accepts_class_prior and not brief:
            condition = "if a class is rare, take the shares of the classes from published figures:"
            if class_shares:
                condition = (
                    "a class is rare among the public labels. If published figures confirm these "
                    "shares, use"
                )
            # Four digits change a sum of 1 by at most .0005, and a plan accepts .001.
            example_shares = ",".join(f"{share:.4g}" for share in class_shares or (0.95, 0.05))
            lines.append(
                f"{condition} --class-prior {example_shares}. Shares are used where noise hides "
                "the votes. Add --cost balanced to find more of the rare cases."
            )
        return lines
    if size_is_public:
        lines += describe_rare_classes(plan, plan.class_prior, plan.class_names.tolist())
    return lines


def describe_min_records(plan: IndKNNPlan, *, size_is_public: bool) -> str:
    """Return a line on the number of records that a plan needs.

    It is compared with that of the plan if `size_is_public`. Raises InvalidInput for the first
    value that a classifier would reject.
    """
    required = find_model_records(plan) if plan.model_share else find_min_records(plan)
    request = f"{plan.n_queries:,} queries at epsilon {plan.epsilon:g}"
    if required >= MAX_RECORDS:  # the noise multiplier is given, so more records do not help
        return (
            f"{request}: expect noise with any number of records. Use a smaller --noise-multiplier."
        )
    required_records = _format_records(plan.changed(n_records=required))
    if not size_is_public:
        return (
            f"{request} need about {required_records}. With fewer, expect noise. vicinal does not "
            "look at your number of records, which is private."
        )
    result = "enough records" if plan.size >= required else "expect noise"
    needed = "A private model needs" if plan.model_share else "Neighbours alone need"
    return f"{_format_records(plan)}, {request}: {result}. {needed} about {required_records}."


def _format_records(plan: IndKNNPlan) -> str:
    """Return the plan's number of records as text, with that of subjects if these have several."""
    records = f"{plan.size:,} records"
    if plan.records_per_subject == 1:
        return records
    return f"{records} of {math.ceil(plan.n_subjects):,} subjects"


def describe_rare_classes(
    plan: IndKNNPlan, class_prior: Sequence[float], names: Sequence[object]
) -> list[str]:
    """Return a line on each of the classes `names` that is too rare for a plan.

    `class_prior`: declared share of each class among all records, which is also its usual share
    among a query's neighbours.
    """
    choice = PlanChoice.from_plan(plan)
    min_excess = _SIGNIFICANT_EXCESS * choice.noise / choice.n_neighbors
    subject = "the votes of this plan" if plan.model_share else "this plan"
    remedy = "Use more records, fewer queries or a larger epsilon."
    if plan.model_share:
        remedy = f"Only the private model can find it. {remedy}"
    return [
        f"class {name!r} is too rare for {subject}. It has {share:.1%} of a query's neighbours, "
        f"and needs {min(share + min_excess, 1.0):.1%} to exceed the noise significantly. {remedy}"
        for name, share in zip(names, class_prior, strict=True)
        if share + min_excess > _MAX_RARE_RATIO * share
    ]
