"""Guarantees of predictors, in numbers and words, and the privacy loss of fixed plans.

An interaction is all releases of one fitted object. An audience is a group of recipients, with a
plan of its own for the answers to it. A share of delta is reserved for noise that is sampled on an
integer grid. The JSON of a fixed plan is the input of ``vicinal account``: its delta and its
releases, for all interactions together. `n_samples_by_scale`, everywhere in this module: the number
of noise samples, by noise scale in grid steps.
"""

import json
import math
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any

from vicinal.accounting.budget import gdp_epsilon, zcdp_budget, zcdp_epsilon
from vicinal.accounting.calibration import calibrate
from vicinal.accounting.guarantee import Guarantee
from vicinal.accounting.plan import NEIGHBOURING, Plan, account
from vicinal.errors import InvalidInput, PrivacyRefused
from vicinal.mechanisms.votes import SLACK_SHARE
from vicinal.planning.plan import IndKNNPlan, choose_default_delta

_FILTER_METHODS = {
    "gdp": "individual filter in Gaussian DP (Koskela, Tobaben and Honkela 2023; Smith and "
    "Thakurta 2022), 1 % of delta kept for the integer grid",
    "rdp": "individual Renyi filter (Feldman and Zrnic 2021), converted to (epsilon, delta) by "
    "Balle et al. 2020",
    "label": "individual filter in Gaussian DP (Koskela, Tobaben and Honkela 2023) over releases "
    "of the label alone, each charged what its worst threshold takes of what a subject has left; "
    "1 % of delta kept for that and the integer grid",
}

# Assumptions of every guarantee about the records, and about the machine.
RECORDS = (
    "each person's records carry that person's subject id (without ids, one record is one person)",
    "features are computed record by record, with nothing learnt from private records",
)
SYSTEM = ("the system's entropy is unpredictable", "time and memory use are not observed")


def describe_other_fits(n_fits: int) -> str:
    """Return the assumption about other releases from the same subjects, in words.

    `n_fits`: number of fits that the guarantee covers together; 0 for public records.
    """
    if n_fits <= 1:
        return (
            "the subjects take part in no other release (fitting again on the same subjects is "
            "one; it is refused where one process sees the same ids or, without ids, more equal "
            "rows than chance explains; it is not noticed in another process or store, with "
            "other features, or under other ids)"
        )
    return (
        f"the subjects take part in at most {n_fits} interactions of this kind, with this "
        "budget and this declaration, which the guarantee covers together, and in no other release"
    )


_MODEL = (
    "a linear model trained with noise in fit, which the same budgets paid for: erasing changes "
    "neither it nor answers given, so whoever leaves stays in the model, and whoever comes later "
    "is not in it"
)


def _describe_model(plan: IndKNNPlan) -> tuple[str, ...]:
    """Return the public facts about a private model: its weights, or why "auto" trained none."""
    if plan.no_model_reason:
        return (f"that no private model was trained, as {plan.no_model_reason}",)
    if not plan.model_share:
        return ()
    if plan.n_trainings == 1:
        return (_MODEL,)
    return (
        (
            f"{_MODEL}, until a store trains it again on the people who are there then, at most "
            f"{plan.n_trainings - 1} times, each paid for by the same budgets"
        ),
    )


def create_ind_knn_guarantee(plan: IndKNNPlan) -> Guarantee:
    """Return the guarantee of an Ind-KNN estimator over all its answers since ``fit``."""
    is_void = plan.simulation_seed is not None or plan.interactions == 0
    size = (
        "the number of records, as estimated once with noise"
        if plan.n_records is None
        else "the number of records as declared"
    )
    if plan.delta == choose_default_delta(plan.n_records) < choose_default_delta(None):
        size += ", a tenth of whose inverse is delta"
    method = _FILTER_METHODS["label" if plan.label_only else plan.accounting]
    if plan.accounting == "rdp" and plan.label_only:
        method = f"{_FILTER_METHODS['rdp']}; the label alone is charged as its votes would be"
    return Guarantee(
        epsilon=float("inf") if is_void else plan.epsilon,
        delta=1.0 if is_void else plan.delta,
        neighbouring="they differ by one subject with all records of that subject, added or "
        "removed, at any time",
        protected=(
            (
                "features, labels and presence of every record, and how much of its budget a "
                "subject has spent, over all answers together since fit, however they are chosen"
            ),
        ),
        public=(
            "the queries",
            *plan.target.public_metadata,
            "the public reference set",
            "all parameters",
            size,
            "all answers given",
            *_describe_model(plan),
        ),
        method=method,
        assumptions=(
            *RECORDS,
            "the reference set holds no private record",
            *SYSTEM,
            describe_other_fits(plan.interactions),
        ),
        holds=not is_void,
        public_records=plan.interactions == 0,
    )


def compute_share_epsilon(plan: IndKNNPlan, share: float) -> float:
    """Return the epsilon of a `share`, in (0, 1], of a subject's budget, at the plan's delta."""
    # Rounding errors of the budget, a relative 1e-12, are counted against the guarantee.
    budget = share * (1 + 1e-12) * plan.interaction_budget
    if plan.accounting == "rdp":
        return min(plan.epsilon, zcdp_epsilon(budget, plan.delta))
    return min(plan.epsilon, gdp_epsilon(math.sqrt(2 * budget), plan.delta * (1 - SLACK_SHARE)))


def check_renewal(plan: IndKNNPlan) -> None:
    """Raise InvalidInput for a plan whose budgets cannot be renewed in its periods."""
    requirements = {
        "n_queries": (f"at least {plan.n_periods}, one a period", plan.n_queries < plan.n_periods),
        "interactions": ("1", plan.interactions != 1),
        "model_refreshes": ("0", plan.model_refreshes > 0),
    }
    for name, (required, is_violated) in requirements.items():
        if is_violated:
            raise InvalidInput(f"The {name!r} parameter must be {required} with 'renew'.")


_TOTAL_SLACK = 0.1  # Share of the delta over all audiences that is reserved for their noise grids
# Largest number of audiences whose noise grids fit into that share.
_MAX_AUDIENCES = round(_TOTAL_SLACK / SLACK_SHARE)


def compute_total_budget(epsilon: float, delta: float) -> float:
    """Return the zCDP budget of one filter over all audiences that satisfies (epsilon, delta)-DP.

    A share of delta is reserved for the noise grids of the audiences.
    """
    return zcdp_budget(epsilon, delta * (1 - _TOTAL_SLACK))


def check_shared_budget(plan: IndKNNPlan, epsilon: float, delta: float, n_audiences: int) -> None:
    """Raise InvalidInput unless an audience's plan can share one budget with other audiences.

    `epsilon`, `delta`: of all audiences together. `n_audiences`: their number, with this one.
    """
    requirements = {
        "release": ("'votes'", plan.label_only),
        "accounting": ("'gdp'", plan.accounting != "gdp"),
        "epsilon": (f"at most {epsilon:g}", plan.epsilon > epsilon),
        "delta": (f"at most {delta:g}", plan.delta > delta),
        "interactions": ("1", plan.interactions != 1),
        "simulation_seed": ("None", plan.simulation_seed is not None),
    }
    for name, (required, is_violated) in requirements.items():
        if is_violated:
            raise InvalidInput(f"The {name!r} parameter must be {required} under 'epsilon_total'.")
    if n_audiences > _MAX_AUDIENCES:
        raise InvalidInput(f"Under 'epsilon_total' at most {_MAX_AUDIENCES} audiences fit.")


def compute_total_guarantee(plans: Sequence[IndKNNPlan]) -> tuple[float, float]:
    """Return epsilon and delta of all answers to several audiences, from the plan of each.

    The guarantee holds for queries that are chosen adaptively over all audiences. Budgets add up in
    GDP; otherwise, or if the noise grids would use more than half of delta, epsilons and deltas do.
    """
    if any(plan.simulation_seed is not None or not plan.interactions for plan in plans):
        return math.inf, 1.0
    slack = SLACK_SHARE * math.fsum(plan.delta for plan in plans)
    delta = max(plan.delta for plan in plans)
    all_gdp = all(plan.accounting == "gdp" for plan in plans)
    if len(plans) == 1 or not all_gdp or slack > delta / 2:
        return math.fsum(plan.epsilon for plan in plans), math.fsum(plan.delta for plan in plans)
    budget = math.fsum(plan.interaction_budget * plan.n_interactions for plan in plans)
    return gdp_epsilon(math.sqrt(2 * budget), delta - slack), delta


# Largest epsilon that is planned for without `accept_weak_plan`: a likelihood ratio of 5e8.
MAX_EPSILON = 20.0


def describe_weak_plan(
    epsilon: float, delta: float, n_records: int | None, name: str = "epsilon"
) -> str:
    """Return why a guarantee (`epsilon`, `delta`) is too weak to protect subjects, or "".

    `n_records`: a public number, or None. `name`: the parameter with epsilon, for the message.
    """
    if epsilon > MAX_EPSILON:
        return (
            f"The {name!r} parameter, {epsilon:g}, lets what is believed of a person change by a "
            f"factor of e^{epsilon:g}; above {MAX_EPSILON:g} hardly anybody is protected."
        )
    if n_records is not None and delta > 1 / n_records:
        return (
            f"The 'delta' parameter, {delta:g}, is above 1/n for the {n_records} records declared: "
            "it would even allow publishing one record chosen at random."
        )
    return ""


def refuse_weak_plan(
    epsilon: float, delta: float, n_records: int | None, name: str = "epsilon"
) -> None:
    """Raise PrivacyRefused for a guarantee that :func:`describe_weak_plan` calls too weak."""
    problem = describe_weak_plan(epsilon, delta, n_records, name)
    if problem:
        raise PrivacyRefused(
            f"{problem} Choose a smaller one, or set the 'accept_weak_plan' parameter if you mean "
            "it."
        )


# Share of delta that the noise grid may use; the accounting rounds delta up by more than that.
GRID_SHARE = 5e-11
# Descriptions of the accounting methods.
METHODS = {
    "pld": "privacy loss distributions, composed numerically and rounded up",
    "rdp": "Renyi DP, converted by Balle et al. 2020",
    "gdp": "Gaussian DP",
    "rdp_mironov": "Renyi DP, converted by Mironov 2017",
}

PlanJSON = dict[str, Any]  # A fixed plan as ``vicinal account`` takes it: its delta and releases
ReleaseJSON = dict[str, Any]  # An entry of its releases: equal planned mechanisms


@lru_cache(maxsize=64)
def _compute_plan_loss(plan: str) -> dict[str, Any]:
    """Return the output of ``vicinal account`` for JSON text; cached, so do not change it."""
    return account(json.loads(plan))


def count_samples_by_scale(counts: Iterable[tuple[int, float]]) -> dict[int, float]:
    """Return `n_samples_by_scale`, from pairs of a noise scale in grid steps and a number."""
    totals: dict[int, float] = {}
    for scale, count in counts:
        totals[scale] = totals.get(scale, 0.0) + count
    return totals


def _add_grid_delta(
    plan: PlanJSON, loss: dict[str, Any], n_samples_by_scale: dict[int, float]
) -> float:
    """Return the plan's delta plus the delta that discrete instead of continuous noise costs.

    The cost is omitted if the upward rounding of the plan's delta already covers it. `loss`:
    method, epsilon and delta of `plan`, as ``vicinal account`` returns them.
    """
    delta: float = loss["delta"]
    # Each sample changes probabilities by at most 1 / (6 scale^2) (mechanisms/screening.md). With v
    # the sum over all samples, (epsilon, delta + (1 + e^epsilon) v) holds.
    change = 1 / 6 * math.fsum(n / float(scale) ** 2 for scale, n in n_samples_by_scale.items())
    cost = change * (1 + math.exp(min(loss["epsilon"], 700.0)))
    # The accounting increases delta by a relative 1e-9 (pld) or 1e-10 (gdp), or the Renyi curve D
    # by a relative 1e-10, which increases delta by a relative (alpha - 1) D 1e-10. Its own errors
    # are below 1e-11.
    covered_share = GRID_SHARE
    if loss["method"].startswith("rdp"):
        total = Plan.from_dict(plan).composition()
        order = total.find_best_order(delta)
        covered_share = GRID_SHARE * min(1.0, (order - 1) * float(total.rdp(order)[0]))
    if cost <= covered_share * delta:
        return delta
    return min(1.0, math.nextafter(delta + cost, 1.0))


def create_guarantee(
    plan: PlanJSON,
    n_samples_by_scale: dict[int, float],
    *,
    simulated: bool,
    interactions: int = 1,
    public: tuple[str, ...],
    assumed: tuple[str, ...] = (),
) -> Guarantee:
    """Return the guarantee of all releases of a plan, with epsilon as of ``vicinal account``.

    - `n_samples_by_scale`: for one interaction.
    - `simulated`: whether randomness came from a seed, which voids the guarantee.
    - `interactions`: number of interactions that share the guarantee; 0 if the records are public,
      which voids it.
    - `public`, `assumed`: public facts and assumptions in addition to those of every plan.
    """
    loss = _compute_plan_loss(json.dumps(plan, sort_keys=True))
    is_void = simulated or interactions == 0
    total_samples = {scale: max(1, interactions) * n for scale, n in n_samples_by_scale.items()}
    return Guarantee(
        epsilon=math.inf if is_void else loss["epsilon"],
        delta=1.0 if is_void else _add_grid_delta(plan, loss, total_samples),
        neighbouring=NEIGHBOURING,
        protected=(
            "features, labels and presence of every record, over all answers since fit together",
        ),
        public=("the queries", "the class names", "all parameters", "all answers given", *public),
        method=METHODS[loss["method"]],
        assumptions=(
            *loss["assumptions"],
            *RECORDS,
            *SYSTEM,
            describe_other_fits(interactions),
            *assumed,
        ),
        holds=not is_void,
        public_records=interactions == 0,
    )


def find_min_noise(
    plan: PlanJSON, epsilon: float, noise_field: str, release_index: int = -1
) -> float:
    """Return the smallest noise of a release with which a plan satisfies epsilon at its delta.

    `noise_field`: name of the release's field with the noise. `release_index`: index of the release
    in the plan. Raises PrivacyRefused if no value satisfies epsilon.
    """
    index = release_index % len(plan["releases"])
    return _calibrate_json(json.dumps(plan, sort_keys=True), epsilon, noise_field, index)


@lru_cache(maxsize=64)
def _calibrate_json(plan: str, epsilon: float, noise_field: str, release_index: int) -> float:
    """Return the result of :func:`find_min_noise` for the same arguments, `plan` as JSON text."""
    return float(calibrate(json.loads(plan), epsilon, noise_field, release_index).value)
