"""What an Ind-KNN classifier takes: its parameters, and the budget they stand for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy.typing as npt

from vicinal import _checks
from vicinal.accounting import _budget as budgets
from vicinal.errors import InvalidInput
from vicinal.neighbours import ExactIndex, HyperplaneLSH, IndexFactory
from vicinal.predictors._common.parameters import (
    AUTO,
    SEED,
    Check,
    Choice,
    ClassNames,
    Integer,
    InteractionCount,
    Real,
    Unless,
    parameter,
)
from vicinal.predictors.ind_knn._shared_settings import (
    ADAPTIVE,
    GATE,
    NEIGHBORS,
    NO_REUSE,
    PLANNED,
    PRIVATE,
    PUBLIC,
    USAGE,
    SharedSettings,
)

EXACT = "exact"
LSH = "lsh"
CENTROIDS = "centroids"

_INDEX_OPTIONS: dict[str, tuple[str, ...]] = {
    EXACT: (),
    LSH: ("tables", "bits", "seed"),
    CENTROIDS: ("cells", "recall"),
}


@dataclass(frozen=True, slots=True)
class Reuse(Check):
    """Which use is made of earlier answers."""

    @property
    def type_name(self) -> str:
        """The type."""
        return f'False, True, "{NEIGHBORS}" or "{GATE}"'

    @property
    def refused(self) -> tuple[object, ...]:
        """Another word, and what is neither word nor boolean."""
        return ("memory", 1, None)

    def __call__(self, name: str, value: object) -> str:
        """Return a word; True is the paper's reuse."""
        if isinstance(value, str):
            return _checks.choice(name, value, (NEIGHBORS, GATE))
        return NEIGHBORS if _checks.boolean(name, value) else NO_REUSE


@dataclass(frozen=True, slots=True)
class IndexOptions(Check):
    """The kind of an index, alone or in a mapping with its options."""

    @property
    def type_name(self) -> str:
        """The type."""
        return f"{Choice(tuple(_INDEX_OPTIONS)).type_name} or mapping"

    @property
    def refused(self) -> tuple[object, ...]:
        """Another kind, an option of another kind, and none."""
        return ("hnsw", {"kind": EXACT, "bits": 8}, {"kind": "hnsw"}, {}, None)

    def __call__(self, name: str, value: object) -> dict[str, Any]:
        """Return kind and options, all by name; the index checks the values of options."""
        options = dict(value) if isinstance(value, Mapping) else {"kind": value}
        kind = _checks.choice(name, options.get("kind"), tuple(_INDEX_OPTIONS))
        unknown = [option for option in options if option not in ("kind", *_INDEX_OPTIONS[kind])]
        if unknown:
            raise InvalidInput(
                f"The {name!r} parameter must not have {unknown[0]!r}: for {kind!r} it takes "
                f"{', '.join(_INDEX_OPTIONS[kind]) or 'no options'}."
            )
        return options


def first_index(index: dict[str, Any]) -> IndexFactory:
    """Return what makes the index that records are put into first; centroids need the radius.

    `index` is a kind with its options, as :class:`IndexOptions` returns it.
    """
    return partial(HyperplaneLSH, **options_of(index)) if index["kind"] == LSH else ExactIndex


def options_of(index: dict[str, Any]) -> dict[str, Any]:
    """Return the options of an index, without its kind."""
    return {name: value for name, value in index.items() if name != "kind"}


@dataclass(frozen=True, slots=True)
class IndKNNSettings(SharedSettings):
    """Checked parameters of an Ind-KNN classifier; None stands for "auto" or "adaptive"."""

    classes: npt.NDArray[Any] = parameter(ClassNames())
    epsilon: float = parameter(Real(above=0), 1.0)
    delta: float = parameter(Real(above=0, below=1), 1e-5)
    n_queries: int = parameter(Integer(least=1), 1000)
    n_neighbors: int | None = parameter(Unless(AUTO, Integer(least=1)), AUTO)
    noise_multiplier: float | None = parameter(Unless(AUTO, Real(above=0)), AUTO)
    kernel: str = parameter(Choice(("cosine", "rbf")), "cosine")
    min_similarity: float | None = parameter(Unless(ADAPTIVE, Real(least=-1, most=1)), ADAPTIVE)
    neighbor_count: str = parameter(Choice((PUBLIC, PRIVATE)), PUBLIC)
    accounting: str = parameter(Choice(budgets.METHODS), "gdp")
    release: str = parameter(Choice(("votes", "label")), "votes")
    index: dict[str, Any] = parameter(IndexOptions(), EXACT)
    execution: str = parameter(Choice(("block", "sequential")), "block")
    reuse_predictions: str = parameter(Reuse(), False)
    noise_schedule: str = parameter(Choice((PLANNED, USAGE)), PLANNED)
    model_share: float | None = parameter(Unless(AUTO, Real(least=0, below=1)), 0)
    n_records: int | None = parameter(Unless(None, Integer(least=1)), None)
    bandwidth: float | None = parameter(Unless(AUTO, Real(above=0)), AUTO)
    norm_bound: float | None = parameter(Unless(AUTO, Real(above=0)), AUTO)
    reference_cost: float = parameter(Real(least=0), 0.0)
    interactions: int = parameter(InteractionCount(), 1)
    simulation_seed: int | None = parameter(SEED, None)

    def check_together(self) -> None:
        """Refuse noise that follows usage, or a private model, where something is fixed."""
        self.check_noise_schedule()
        if self.model_share and self.against_model:
            raise InvalidInput(
                f"The 'model_share' parameter must be 0 unless {self.against_model}."
            )

    @property
    def n_coordinates(self) -> int:
        """The number of classes."""
        return len(self.classes)

    @property
    def n_groups(self) -> int:
        """The number of classes."""
        return len(self.classes)

    @property
    def public_facts(self) -> tuple[str, ...]:
        """What is public beside parameters and queries."""
        return ("the class names",)


_OLD_NAMES = {
    "radius": "min_similarity",
    "count": "neighbor_count",
    "budget": "accounting",
    "pace": "noise_schedule",
}
_OLD_SCHEDULES = {"plan": PLANNED, "shadow": USAGE}


def plan_parameters(stored: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters of a stored plan by the names of today.

    Older stores wrote radius, count, budget, and pace with the values "plan" and "shadow". A
    parameter that has its name of today stays as it is.
    """
    named = {_OLD_NAMES.get(name, name): value for name, value in stored.items()}
    if "noise_schedule" in named:
        schedule = named["noise_schedule"]
        named["noise_schedule"] = _OLD_SCHEDULES.get(schedule, schedule)
    return named
