"""What a predictor guarantees, in numbers and in words; plans of fixed length are priced here."""

import json
import math
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any

from vicinal.accounting.budget import gdp_epsilon, rdp_epsilon, zcdp_budget
from vicinal.accounting.calibration import calibrate
from vicinal.accounting.guarantee import Guarantee
from vicinal.accounting.plan import NEIGHBOURING, account
from vicinal.accounting.plan import Plan as CheckedPlan
from vicinal.errors import InvalidInput, PrivacyRefused
from vicinal.mechanisms.votes import SLACK_SHARE
from vicinal.planning.plan import IndKNNPlan, default_delta

_METHODS = {
    "gdp": "individual filter in Gaussian DP (Koskela, Tobaben and Honkela 2023; Smith and "
    "Thakurta 2022), 1 % of delta kept for the integer grid",
    "rdp": "individual Renyi filter (Feldman and Zrnic 2021), converted to (epsilon, delta) by "
    "Balle et al. 2020",
    "label": "individual filter in Gaussian DP (Koskela, Tobaben and Honkela 2023) over releases "
    "of the label alone, each charged what its worst threshold takes of what a subject has left; "
    "1 % of delta kept for that and the integer grid",
}


RECORDS = (
    "each person's records carry that person's subject id (without ids, one record is one person)",
    "features are computed record by record, with nothing learnt from private records",
)
SYSTEM = ("the system's entropy is unpredictable", "time and memory use are not observed")
"""What every guarantee assumes of records, and of the machine."""


def only_release(interactions: int) -> str:
    if interactions <= 1:
        return (
            "the subjects take part in no other release (fitting again on the same subjects is "
            "one; it is refused where one process sees the same ids or, without ids, more equal "
            "rows than chance explains; nobody notices it in another process or store, with "
            "features made otherwise, or under other ids)"
        )
    return (
        f"the subjects take part in at most {interactions} interactions of this kind, with this "
        "budget and this declaration, which the guarantee covers together, and in no other release"
    )


_MODEL = (
    "a linear model trained with noise in fit, which the same budgets paid for: erasing changes "
    "neither it nor answers given, so whoever leaves stays in the model, and whoever comes later "
    "is not in it"
)


def _model_words(settings: IndKNNPlan) -> tuple[str, ...]:
    """Say what a private model keeps, or why "auto" trained none."""
    if settings.why_no_model:
        return (f"that no private model was trained, as {settings.why_no_model}",)
    if not settings.model_share:
        return ()
    if settings.trainings == 1:
        return (_MODEL,)
    return (
        (
            f"{_MODEL}, until a store trains it again on the people who are there then, at most "
            f"{settings.trainings - 1} times, each paid for by the same budgets"
        ),
    )


def ind_knn_guarantee(settings: IndKNNPlan) -> Guarantee:
    """Return the guarantee of an Ind-KNN estimator over all its answers since ``fit``."""
    void = settings.simulation_seed is not None or settings.interactions == 0
    size = (
        "the number of records, as estimated once with noise"
        if settings.n_records is None
        else "the number of records as declared"
    )
    if settings.delta == default_delta(settings.n_records) < default_delta(None):
        size += ", a tenth of whose inverse is delta"
    return Guarantee(
        epsilon=float("inf") if void else settings.epsilon,
        delta=1.0 if void else settings.delta,
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
            *settings.target.public_facts,
            "the public reference set",
            "all parameters",
            size,
            "all answers given",
            *_model_words(settings),
        ),
        method=_method(settings),
        assumptions=(
            *RECORDS,
            "the reference set holds no private record",
            *SYSTEM,
            only_release(settings.interactions),
        ),
        holds=not void,
        public_records=settings.interactions == 0,
    )


def _method(plan: IndKNNPlan) -> str:
    if plan.accounting == "rdp" and plan.label_only:
        return f"{_METHODS['rdp']}; the label alone is charged as its votes would be"
    return _METHODS["label" if plan.label_only else plan.accounting]


def part_epsilon(plan: IndKNNPlan, part: float) -> float:
    """Return epsilon of a `part` of a subject's budget, at the plan's delta."""
    budget = part * (1 + 1e-12) * plan.spendable
    if plan.accounting == "rdp":
        return min(plan.epsilon, rdp_epsilon(budget, plan.delta))
    return min(plan.epsilon, gdp_epsilon(math.sqrt(2 * budget), plan.delta * (1 - SLACK_SHARE)))


def check_renewal(plan: IndKNNPlan) -> None:
    """Raise InvalidInput for a plan whose budgets cannot come in its periods."""
    must = {
        "n_queries": (f"at least {plan.periods}, one a period", plan.n_queries < plan.periods),
        "interactions": ("1", plan.interactions != 1),
        "model_refreshes": ("0", plan.model_refreshes > 0),
    }
    for name, (words, broken) in must.items():
        if broken:
            raise InvalidInput(f"The {name!r} parameter must be {words} with 'renew'.")


_TOTAL_SLACK = 0.1
"""Share of a total's delta that is kept for what the grids of all audiences cost together."""
_MOST_AUDIENCES = round(_TOTAL_SLACK / SLACK_SHARE)


def total_budget(epsilon: float, delta: float) -> float:
    """Return the budget (zCDP) of one filter over all audiences, whose grids' cost is inside."""
    return zcdp_budget(epsilon, delta * (1 - _TOTAL_SLACK))


def check_under_total(plan: IndKNNPlan, epsilon: float, delta: float, n_audiences: int) -> None:
    """Raise InvalidInput for a plan whose charges a total (epsilon, delta) cannot add up."""
    must = {
        "release": ("'votes'", plan.label_only),
        "accounting": ("'gdp'", plan.accounting != "gdp"),
        "epsilon": (f"at most {epsilon:g}", plan.epsilon > epsilon),
        "delta": (f"at most {delta:g}", plan.delta > delta),
        "interactions": ("1", plan.interactions != 1),
        "simulation_seed": ("None", plan.simulation_seed is not None),
    }
    for name, (words, broken) in must.items():
        if broken:
            raise InvalidInput(f"The {name!r} parameter must be {words} under 'epsilon_total'.")
    if n_audiences > _MOST_AUDIENCES:
        raise InvalidInput(f"Under 'epsilon_total' at most {_MOST_AUDIENCES} audiences fit.")


def total_over(plans: Sequence[IndKNNPlan]) -> tuple[float, float]:
    """Return epsilon and delta of all answers to several audiences together, whatever adapts."""
    if any(plan.simulation_seed is not None or not plan.interactions for plan in plans):
        return math.inf, 1.0
    slack = SLACK_SHARE * math.fsum(plan.delta for plan in plans)
    delta = max(plan.delta for plan in plans)
    alike = all(plan.accounting == "gdp" for plan in plans)
    if len(plans) == 1 or not alike or slack > delta / 2:
        return math.fsum(plan.epsilon for plan in plans), math.fsum(plan.delta for plan in plans)
    budget = math.fsum(plan.spendable * plan.parts for plan in plans)
    return gdp_epsilon(math.sqrt(2 * budget), delta - slack), delta


WEAKEST = 20.0
"""The largest epsilon that is planned for without being asked about: a factor of 5e8."""


def refuse_weak(epsilon: float, delta: float, n_records: int | None, name: str = "epsilon") -> None:
    """Raise PrivacyRefused for a plan that protects next to nobody; its size as declared."""
    fault = ""
    if epsilon > WEAKEST:
        fault = (
            f"The {name!r} parameter, {epsilon:g}, lets what is believed of a person change by a "
            f"factor of e^{epsilon:g}; above {WEAKEST:g} hardly anybody is protected."
        )
    elif n_records is not None and delta > 1 / n_records:
        fault = (
            f"The 'delta' parameter, {delta:g}, is above 1/n for the {n_records} records declared: "
            "it would even allow publishing one record chosen at random."
        )
    if fault:
        raise PrivacyRefused(
            f"{fault} Choose a smaller one, or set the 'accept_weak_plan' parameter if you mean it."
        )


PROTECTED = "features, labels and presence of every record, over all answers since fit together"

PUBLIC = ("the queries", "the class names", "all parameters", "all answers given")


GRID_SHARE = 5e-11
"""Share of delta that whole steps of noise may cost: less than the accounting rounds up by."""

_PER_DRAW = 1 / 6

METHODS = {
    "pld": "privacy loss distributions, composed numerically and rounded up",
    "rdp": "Renyi DP, converted by Balle et al. 2020",
    "gdp": "Gaussian DP",
    "rdp_mironov": "Renyi DP, converted by Mironov 2017",
}
"""The accounting's methods in words."""

Plan = dict[str, Any]


def priced(plan: Plan) -> dict[str, Any]:
    """Return what ``vicinal account`` says of `plan`, without the lower bound's certificate."""
    price: dict[str, Any] = json.loads(_priced(json.dumps(plan, sort_keys=True)))
    return price


@lru_cache(maxsize=64)
def _priced(plan: str) -> str:
    return json.dumps(account(json.loads(plan)))


def count_draws_by_scale(draws: Iterable[tuple[int, float]]) -> dict[int, float]:
    """Return how many draws there are at each scale."""
    total: dict[int, float] = {}
    for scale, count in draws:
        total[scale] = total.get(scale, 0.0) + count
    return total


def grid_cost(epsilon: float, draws: dict[int, float]) -> float:
    """Return what the grid of the noise adds to delta.

    `epsilon`: the guarantee's, under noise from the real line. `draws`: how many draws of noise are
    made at each scale in steps. Each draw changes probabilities by at most 1 / (6 scale^2)
    (mechanisms/screening.md), all of them together by v, say, so (epsilon, delta + (1 + e^epsilon)
    v) holds.
    """
    change = _PER_DRAW * math.fsum(count / float(scale) ** 2 for scale, count in draws.items())
    return change * (1 + math.exp(min(epsilon, 700.0)))


def _rounding_headroom(plan: Plan, price: dict[str, Any]) -> float:
    """Return the share of delta that is certainly inside what the accounting rounds up by.

    It makes delta larger by a relative 1e-9 (pld) or 1e-10 (gdp), or the Renyi curve D by a
    relative 1e-10, which makes delta larger by (alpha - 1) D 1e-10; its own errors are below 1e-11.
    """
    if not price["method"].startswith("rdp"):
        return GRID_SHARE
    total = CheckedPlan.from_dict(plan).composition()
    order = total.best_order(price["delta"])
    return GRID_SHARE * min(1.0, (order - 1) * float(total.rdp(order)[0]))


def _delta_with_grid(plan: Plan, price: dict[str, Any], draws: dict[int, float]) -> float:
    """Return the plan's delta, with what the grid adds unless the accounting has room for it."""
    delta: float = price["delta"]
    cost = grid_cost(price["epsilon"], draws)
    if cost <= _rounding_headroom(plan, price) * delta:
        return delta
    return min(1.0, math.nextafter(delta + cost, 1.0))


def repeat_plan(plan: Plan, interactions: int) -> Plan:
    """Return the plan of all interactions that share a guarantee: each carries out `plan`."""
    times = max(1, interactions)
    releases = [
        {**release, **{name: times * release[name] for name in _NUMBERS if name in release}}
        for release in plan["releases"]
    ]
    return {**plan, "releases": releases}


_NUMBERS = ("count", "answered")


def guarantee_of(
    plan: Plan,
    draws: dict[int, float],
    *,
    simulated: bool,
    interactions: int = 1,
    public: tuple[str, ...],
    assumed: tuple[str, ...] = (),
) -> Guarantee:
    """Return the guarantee of all releases of `plan`; its epsilon is that of ``vicinal account``.

    - `plan`: the JSON of a plan, for all interactions together.
    - `draws`: see :func:`grid_cost`; of one interaction.
    - `simulated`: whether randomness came from a seed, which voids the guarantee.
    - `interactions`: how many interactions share the guarantee; 0 if the records are public, which
      voids it.
    - `public`, `assumed`: what is public, and assumed, besides what always is.
    """
    price = priced(plan)
    void = simulated or interactions == 0
    draws = {scale: max(1, interactions) * count for scale, count in draws.items()}
    return Guarantee(
        epsilon=math.inf if void else price["epsilon"],
        delta=1.0 if void else _delta_with_grid(plan, price, draws),
        neighbouring=NEIGHBOURING,
        protected=(PROTECTED,),
        public=(*PUBLIC, *public),
        method=METHODS[price["method"]],
        assumptions=(
            *price["assumptions"],
            *RECORDS,
            *SYSTEM,
            only_release(interactions),
            *assumed,
        ),
        holds=not void,
        public_records=interactions == 0,
    )


def affordable_noise(plan: Plan, epsilon: float, noise: str, release: int = -1) -> float:
    """Return the least value of the field `noise`, of a release, that keeps `epsilon`.

    `plan`: the JSON of a plan, for all interactions together. `epsilon`: the target at the plan's
    delta. The plan never costs more, and hardly less. Raises PrivacyRefused if no value keeps it.
    """
    place = release % len(plan["releases"])
    return _affordable(json.dumps(plan, sort_keys=True), epsilon, noise, place)


@lru_cache(maxsize=64)
def _affordable(plan: str, epsilon: float, noise: str, release: int) -> float:
    return float(calibrate(json.loads(plan), epsilon, noise, release).value)
