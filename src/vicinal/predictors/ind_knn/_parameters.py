"""What an Ind-KNN classifier is asked for: checked parameters, and the budget they stand for."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Protocol, Self

import numpy.typing as npt

from vicinal import _checks
from vicinal.accounting import _budget as budgets
from vicinal.accounting._label_only import ChargeTable, charge_table, label_budget
from vicinal.errors import InvalidInput
from vicinal.mechanisms._grid import SLACK_SHARE
from vicinal.mechanisms._interactions import interactions
from vicinal.neighbours import LEAST_COUNT
from vicinal.predictors.ind_knn import _planning

AUTO = "auto"
ADAPTIVE = "adaptive"
NEIGHBORS = "neighbors"
GATE = "gate"
ASKED = 0.25
"""Share of queries that is put to the vote beside a private model: those it is least sure of."""

EXACT = "exact"
LSH = "lsh"
CENTROIDS = "centroids"
NO_REUSE = "none"
PLANNED = "planned"
USAGE = "usage"

_INDEX_OPTIONS: dict[str, tuple[str, ...]] = {
    EXACT: (),
    LSH: ("tables", "bits", "seed"),
    CENTROIDS: ("cells", "recall"),
}


class IndKNNParameters(Protocol):
    """The estimator's parameters, as its constructor takes them; meanings are told there."""

    classes: Any
    epsilon: float
    delta: float
    n_queries: int
    n_neighbors: int | str
    noise_multiplier: float | str
    kernel: str
    min_similarity: float | str
    neighbor_count: str
    accounting: str
    release: str
    index: str | Mapping[str, Any]
    execution: str
    reuse_predictions: bool | str
    noise_schedule: str
    model_share: float | str
    n_records: int | None
    bandwidth: float | str
    norm_bound: float | str
    reference_cost: float
    interactions: int | str
    simulation_seed: int | None


@dataclass(frozen=True, slots=True)
class IndKNNSettings:
    """Checked parameters of an Ind-KNN classifier; None stands for "auto" or "adaptive"."""

    classes: npt.NDArray[Any]
    epsilon: float
    delta: float
    n_queries: int
    n_neighbors: int | None
    multiplier: float | None
    kernel: str
    tau: float | None
    private_count: bool
    method: str
    label_only: bool
    sequential: bool
    reuse: str
    follows_usage: bool
    model_share: float | None
    index: dict[str, Any]
    n_records: int | None
    bandwidth: float | None
    norm_bound: float | None
    reference_cost: float
    interactions: int
    seed: int | None

    @classmethod
    def of(cls, given: IndKNNParameters) -> Self:
        """Check an estimator's parameters; raise InvalidInput naming the first bad one."""
        return cls(
            classes=_checks.class_names(given.classes),
            epsilon=_checks.real("epsilon", given.epsilon, above=0),
            delta=_checks.real("delta", given.delta, above=0, below=1),
            n_queries=_checks.integer("n_queries", given.n_queries, least=1),
            n_neighbors=_unless(AUTO, given.n_neighbors, "n_neighbors", _whole),
            multiplier=_unless(AUTO, given.noise_multiplier, "noise_multiplier", _positive),
            kernel=_checks.choice("kernel", given.kernel, ("cosine", "rbf")),
            tau=_unless(ADAPTIVE, given.min_similarity, "min_similarity", _kernel_value),
            private_count=_checks.choice(
                "neighbor_count", given.neighbor_count, ("public", "private")
            )
            == "private",
            method=_checks.choice("accounting", given.accounting, budgets.METHODS),
            label_only=_checks.choice("release", given.release, ("votes", "label")) == "label",
            sequential=_checks.choice("execution", given.execution, ("block", "sequential"))
            == "sequential",
            reuse=_reuse(given),
            follows_usage=_follows_usage(given),
            model_share=_model_share(given),
            index=_index(given.index),
            n_records=_unless(None, given.n_records, "n_records", _whole),
            bandwidth=_unless(AUTO, given.bandwidth, "bandwidth", _positive),
            norm_bound=_unless(AUTO, given.norm_bound, "norm_bound", _positive),
            reference_cost=_checks.real("reference_cost", given.reference_cost, least=0),
            interactions=interactions(given.interactions),
            seed=_unless(None, given.simulation_seed, "simulation_seed", _seed),
        )

    @property
    def charges(self) -> ChargeTable:
        """What labels cost where they alone leave; the order fits many small contributions."""
        return _charges(
            self.epsilon, self.delta, len(self.classes), self.reference_cost, self.parts
        )

    @property
    def spendable(self) -> float:
        """The budget B of every subject in one interaction, less what the reference has cost.

        In GDP, 1 % of delta is kept for the grid. Several interactions share the budget evenly:
        budgets are zCDP, or squares of GDP's mu, and add up.
        """
        if self.label_only:
            return self.charges.zcdp
        share = 1 - SLACK_SHARE if self.method == "gdp" else 1.0
        whole = budgets.budget(self.epsilon, self.delta * share, self.method)
        return _part(_less(whole, self.reference_cost), self.parts)

    @property
    def parts(self) -> int:
        """How many interactions share the budget."""
        return max(1, self.interactions)

    @property
    def grid_delta(self) -> float:
        """The delta of which the grid may use a share in one interaction."""
        return self.delta / self.parts

    @property
    def terms(self) -> Hashable:
        """What interactions must have in common for their budgets to add up to one."""
        method = ("label", len(self.classes)) if self.label_only else (self.method,)
        return "Ind-KNN", *method, self.epsilon, self.delta, self.reference_cost

    def affordable(self, shift: float = 0.0) -> float:
        """Return the budget that planned contributions of `shift` noise scales feel like."""
        return self.spendable / (self.charges.share(shift) if self.label_only else 1.0)

    @property
    def n_asked(self) -> int:
        """How many questions the plan expects to be asked of private records."""
        if self.model_share:
            return math.ceil(ASKED * self.n_queries)
        return _planning.asked_of(self.n_queries) if self.reuse == GATE else self.n_queries

    @property
    def index_options(self) -> dict[str, Any]:
        """What the index is made with, besides its kind."""
        return {name: value for name, value in self.index.items() if name != "kind"}

    @property
    def even_noise(self) -> bool:
        """Whether the noise is the same in all answers."""
        fixed = self.private_count or self.tau is not None
        return not (fixed or self.follows_usage or self.reuse != NO_REUSE)

    def least_count(self, n_neighbors: int | None) -> float:
        """Return the count below which no noise scale is taken: what the grid must fit."""
        return LEAST_COUNT if self.private_count or n_neighbors is None else float(n_neighbors)

    def typical_count(self, n_neighbors: int | None) -> float:
        """Return the count that noise scales are quoted at."""
        return LEAST_COUNT if n_neighbors is None else float(n_neighbors)


@lru_cache(maxsize=16)
def _charges(epsilon: float, delta: float, n_classes: int, paid: float, parts: int) -> ChargeTable:
    table = charge_table(label_budget(epsilon, delta, classes=n_classes), n_classes)
    left = _less(table.target.budget, table.target.order * paid)
    return replace(table, target=replace(table.target, budget=_part(left, parts)))


def _less(budget: float, paid: float) -> float:
    """Return what is left of a budget, rounded down."""
    if paid == 0:
        return budget
    left = (budget - paid) - 1e-15 * (budget + paid)
    if left <= 0:
        raise InvalidInput(
            "The 'reference_cost' must leave some of every budget: the reference has cost all that "
            "this 'epsilon' and 'delta' allow. Take a larger epsilon, or a cheaper reference."
        )
    return left


def _part(budget: float, parts: int) -> float:
    """Return an equal part of a budget, rounded down."""
    return budget if parts == 1 else math.nextafter(budget / parts, 0)


def _follows_usage(given: IndKNNParameters) -> bool:
    """Tell whether the noise follows the proxy ledger; refuse it where noise is fixed."""
    if _checks.choice("noise_schedule", given.noise_schedule, (PLANNED, USAGE)) == PLANNED:
        return False
    needs = {"noise_multiplier": AUTO, "min_similarity": ADAPTIVE, "neighbor_count": "public"}
    for name, value in needs.items():
        found = getattr(given, name)
        if not (isinstance(found, str) and found == value):
            raise InvalidInput(
                f"The {name!r} parameter must be {value!r} with noise_schedule='usage', whose noise follows "
                "the wear of public points."
            )
    return True


def _model_share(given: IndKNNParameters) -> float | None:
    """Return the share of budgets for the private model, or None for the rule's."""
    wanted = given.model_share
    fits = _model_fits(given)
    if isinstance(wanted, str):
        _checks.choice("model_share", wanted, (AUTO,))
        planned = all(isinstance(n, str) for n in (given.n_neighbors, given.noise_multiplier))
        return None if planned and not fits else 0.0
    share = _checks.real("model_share", wanted, least=0, below=1)
    if share and fits:
        raise InvalidInput(f"The 'model_share' parameter must be 0 unless {fits}.")
    return share


def _model_fits(given: IndKNNParameters) -> str:
    """Return what a private model needs and is not given; "" if it can be trained."""
    needs = {
        "kernel": "cosine",
        "min_similarity": ADAPTIVE,
        "neighbor_count": "public",
        "noise_schedule": PLANNED,
        "reuse_predictions": False,
    }
    for name, value in needs.items():
        found = getattr(given, name)
        if not (isinstance(found, type(value)) and found == value):
            return f"{name}={value!r}"
    return ""


def _reuse(given: IndKNNParameters) -> str:
    """Return which use of earlier answers is wanted; True is the paper's."""
    value = given.reuse_predictions
    if isinstance(value, str):
        return _checks.choice("reuse_predictions", value, (NEIGHBORS, GATE))
    return NEIGHBORS if _checks.boolean("reuse_predictions", value) else NO_REUSE


def _index(given: object) -> dict[str, Any]:
    """Return the kind of index with its options, all by name; the index checks their values."""
    options = dict(given) if isinstance(given, Mapping) else {"kind": given}
    kind = _checks.choice("index", options.get("kind"), tuple(_INDEX_OPTIONS))
    unknown = [name for name in options if name not in ("kind", *_INDEX_OPTIONS[kind])]
    if unknown:
        raise InvalidInput(
            f"The 'index' parameter must not have {unknown[0]!r}: for {kind!r} it takes "
            f"{', '.join(_INDEX_OPTIONS[kind]) or 'no options'}."
        )
    return options


def _unless(automatic: str | None, value: Any, name: str, check: Any) -> Any:
    """Return None for the automatic value, else what `check` makes of the given one."""
    if value is None and automatic is None:
        return None
    if isinstance(value, str) and value == automatic:
        return None
    return check(name, value)


def _whole(name: str, value: object) -> int:
    return _checks.integer(name, value, least=1)


def _seed(name: str, value: object) -> int:
    return _checks.integer(name, value, least=0)


def _positive(name: str, value: object) -> float:
    return _checks.real(name, value, above=0)


def _kernel_value(name: str, value: object) -> float:
    return _checks.real(name, value, least=-1, most=1)
