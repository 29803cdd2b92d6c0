"""What an Ind-KNN classifier takes: its parameters, and the budget they stand for."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
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

BALANCED = "balanced"

_ROUNDED = 0.001
"""How far declared shares of classes may be from adding up to 1."""

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
class ClassNumbers(Check):
    """A positive number for every class, in the order of `classes`, or a word in their place.

    Attributes
    ----------
    word : str or None
        The word, which is left as it is.
    """

    word: str | None = None

    @property
    def type_name(self) -> str:
        """The type."""
        word = "" if self.word is None else f', or "{self.word}"'
        return f"sequence of float{word}, optional"

    @property
    def refused(self) -> tuple[object, ...]:
        """No numbers, none above 0, not finite ones, and another word."""
        return ([], [1.0, 0.0], [0.5, math.nan], [0.5, math.inf], [[0.5, 0.5]], "another", 0.5)

    def __call__(self, name: str, value: object) -> tuple[float, ...] | str | None:
        """Return the numbers as a tuple, or the word, or None."""
        if value is None or (isinstance(value, str) and value == self.word):
            return value
        if isinstance(value, str) or not isinstance(value, Iterable):
            raise InvalidInput(f"The {name!r} parameter must hold a number for every class.")
        numbers = tuple(_checks.real(name, each, above=0) for each in value)
        if not numbers:
            raise InvalidInput(f"The {name!r} parameter must hold a number for every class.")
        return numbers


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
    class_prior: tuple[float, ...] | None = parameter(ClassNumbers(), None)
    cost: tuple[float, ...] | str | None = parameter(ClassNumbers(BALANCED), None)
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
        self._check_class_numbers()
        if self.model_share and self.against_model:
            raise InvalidInput(
                f"The 'model_share' parameter must be 0 unless {self.against_model}."
            )

    def _check_class_numbers(self) -> None:
        """Refuse class shares and costs that do not fit the classes, or nothing that is known."""
        for name, value in (("class_prior", self.class_prior), ("cost", self.cost)):
            if isinstance(value, tuple) and len(value) != len(self.classes):
                raise InvalidInput(
                    f"The {name!r} parameter must hold {len(self.classes)} numbers, one for each "
                    f"of 'classes' in their order. Got {len(value)}."
                )
        if self.class_prior is not None and abs(math.fsum(self.class_prior) - 1) > _ROUNDED:
            raise InvalidInput("The 'class_prior' parameter must add up to 1: shares of classes.")
        if self.cost == BALANCED and self.class_prior is None:
            raise InvalidInput(
                f"The 'cost' parameter must be numbers unless 'class_prior' is given: {BALANCED!r} "
                "takes the inverse of public shares of classes."
            )
        if self.plain_decision:
            return
        needs = {
            f"min_similarity={ADAPTIVE!r}": self.min_similarity is None,
            f"neighbor_count={PUBLIC!r}": not self.private_count,
            "reuse_predictions=False": self.reuse_predictions == NO_REUSE,
        }
        for need, met in needs.items():
            if not met:
                raise InvalidInput(
                    f"The 'class_prior' and 'cost' parameters must be None unless {need}: they "
                    "need a public number of neighbours, and answers that were asked."
                )

    @property
    def class_shares(self) -> npt.NDArray[np.float64]:
        """How common each class is, (c,): as declared, or equal."""
        shares = np.asarray(self.class_prior or np.ones(len(self.classes)), dtype=np.float64)
        return np.asarray(shares / shares.sum())

    @property
    def class_costs(self) -> npt.NDArray[np.float64]:
        """What it costs to miss a record of each class, (c,)."""
        if self.cost == BALANCED:
            return 1 / self.class_shares
        return np.asarray(self.cost or np.ones(len(self.classes)), dtype=np.float64)

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
