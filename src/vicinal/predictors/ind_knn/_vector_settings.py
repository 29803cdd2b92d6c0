"""Parameters of the Ind-KNN estimators whose records carry vectors."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from vicinal import _checks
from vicinal.accounting import _budget as budgets
from vicinal.errors import InvalidInput
from vicinal.mechanisms._record_vectors import MOST_COORDINATES
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
from vicinal.predictors.ind_knn._parameters import EXACT, IndexOptions
from vicinal.predictors.ind_knn._planning import NUMBERS_PER_NOISE
from vicinal.predictors.ind_knn._shared_settings import (
    ADAPTIVE,
    PLANNED,
    PRIVATE,
    PUBLIC,
    USAGE,
    SharedSettings,
)

WEIGHT_SHARE = 1 / 3
"""a^2, the squared length of a record's weight: best where what is averaged is about half as large
as it may be (decision 0074)."""

CENTRED_WEIGHT_SHARE = 0.1
"""The same where an answer is read off the sign of a sum."""

LOG = "log"
LINEAR = "linear"

_TOLD_APART = 2
"""Groups of records that the number of neighbours is planned for, as with two classes."""


@dataclass(frozen=True, slots=True)
class TargetBounds:
    """Between which values each target lies; public.

    Attributes
    ----------
    names : tuple of str or None
        Names of several targets; None for a single one without a name.
    low, high : float64 (p,)
        Bounds of each target.
    """

    names: tuple[str, ...] | None
    low: npt.NDArray[np.float64]
    high: npt.NDArray[np.float64]

    def __len__(self) -> int:
        """Return p, the number of targets."""
        return len(self.low)

    def logarithms(self) -> TargetBounds:
        """Return the bounds of the targets' logarithms."""
        return TargetBounds(self.names, np.log(self.low), np.log(self.high))


@dataclass(frozen=True, slots=True)
class BoundsOfTargets(Check):
    """(low, high) of one target, or a mapping of several targets' names to such pairs."""

    @property
    def type_name(self) -> str:
        """The type."""
        return "pair of float, or mapping"

    @property
    def refused(self) -> tuple[object, ...]:
        """No pair, no order, no numbers."""
        bad = (None, 3.0, (1,), (1, 2, 3), (2, 1), (1, 1), (0, math.nan), (0, math.inf), "01")
        return (*bad, {}, {"age": 3}, {"age": (2, 1)}, {5: (0, 1)})

    def __call__(self, name: str, value: object) -> TargetBounds:
        """Return the bounds as arrays."""
        if not isinstance(value, Mapping):
            low, high = _pair(name, value)
            return TargetBounds(None, np.array([low]), np.array([high]))
        if not value or not all(isinstance(each, str) for each in value):
            raise InvalidInput(f"The {name!r} parameter must map names of targets to pairs.")
        pairs = np.array([_pair(name, pair) for pair in value.values()])
        return TargetBounds(tuple(value), pairs[:, 0], pairs[:, 1])


def _pair(name: str, value: object) -> tuple[float, float]:
    message = f"The {name!r} parameter must be a pair (low, high) of numbers with low < high."
    if isinstance(value, str) or not isinstance(value, Sequence) or len(value) != 2:
        raise InvalidInput(message)
    low, high = (_checks.real(name, each) for each in value)
    if not low < high or not math.isfinite(high - low):
        raise InvalidInput(message)
    return low, high


@dataclass(frozen=True, slots=True)
class WordWeights(Check):
    """A public vocabulary: words, or a mapping of words to their weights, above 0."""

    @property
    def type_name(self) -> str:
        """The type."""
        return "sequence of str, or mapping"

    @property
    def refused(self) -> tuple[object, ...]:
        """No words, twice the same, and weights that are none."""
        return (
            None,
            [],
            "words",
            [1, 2],
            ["a", "a"],
            [""],
            {"a": 0.0},
            {"a": math.nan},
            {"a": "b"},
        )

    def __call__(self, name: str, value: object) -> dict[str, float]:
        """Return every word's weight, in order."""
        mapping = isinstance(value, Mapping)
        if isinstance(value, str) or not isinstance(value, Mapping | Sequence | np.ndarray):
            raise InvalidInput(f"The {name!r} parameter must be a sequence or mapping of words.")
        words = [str(word) if isinstance(word, np.str_) else word for word in value]
        if not words or not all(isinstance(word, str) and word for word in words):
            raise InvalidInput(f"The {name!r} parameter must hold words, at least one.")
        if len(set(words)) < len(words) or len(words) > MOST_COORDINATES:
            raise InvalidInput(
                f"The {name!r} parameter must hold each word once, {MOST_COORDINATES} at most."
            )
        weights = value.values() if mapping else [1.0] * len(words)  # type: ignore[union-attr]
        numbers = [_checks.real(name, weight, above=0) for weight in weights]
        return dict(zip(words, numbers, strict=True))


@dataclass(frozen=True, slots=True)
class VectorSettings(SharedSettings):
    """Checked parameters that all estimators with vectors take; None stands for "auto"."""

    epsilon: float = parameter(Real(above=0), 1.0)
    delta: float = parameter(Real(above=0, below=1), 1e-5)
    n_queries: int = parameter(Integer(least=1), 1000)
    n_neighbors: int | None = parameter(Unless(AUTO, Integer(least=1)), AUTO)
    noise_multiplier: float | None = parameter(Unless(AUTO, Real(above=0)), AUTO)
    kernel: str = parameter(Choice(("cosine", "rbf")), "cosine")
    min_similarity: float | None = parameter(Unless(ADAPTIVE, Real(least=-1, most=1)), ADAPTIVE)
    neighbor_count: str = parameter(Choice((PUBLIC, PRIVATE)), PUBLIC)
    accounting: str = parameter(Choice(budgets.METHODS), "gdp")
    index: dict[str, Any] = parameter(IndexOptions(), EXACT)
    execution: str = parameter(Choice(("block", "sequential")), "block")
    noise_schedule: str = parameter(Choice((PLANNED, USAGE)), PLANNED)
    n_records: int | None = parameter(Unless(None, Integer(least=1)), None)
    bandwidth: float | None = parameter(Unless(AUTO, Real(above=0)), AUTO)
    norm_bound: float | None = parameter(Unless(AUTO, Real(above=0)), AUTO)
    reference_cost: float = parameter(Real(least=0), 0.0)
    interactions: int = parameter(InteractionCount(), 1)
    simulation_seed: int | None = parameter(SEED, None)

    def check_together(self) -> None:
        """Refuse noise that follows usage where noise, radius or count is fixed."""
        self.check_noise_schedule()

    @property
    def n_groups(self) -> int:
        """As many as with two classes."""
        return _TOLD_APART


@dataclass(frozen=True, slots=True)
class RegressorSettings(VectorSettings):
    """Checked parameters of an Ind-KNN regressor."""

    bounds: TargetBounds = parameter(BoundsOfTargets(), first=True)
    scale: str = parameter(Choice((LINEAR, LOG)), LINEAR)
    n_thresholds: int | None = parameter(Unless(None, Integer(least=2, most=1000)), None)

    def check_together(self) -> None:
        """Refuse logarithms of what may not be above 0, too."""
        self.check_noise_schedule()
        if self.scale == LOG and not (self.bounds.low > 0).all():
            raise InvalidInput("The 'bounds' parameter must be above 0 with scale='log'.")

    @property
    def neighbors_per_noise(self) -> float:
        """More than for a vote: all of the noise is in the answer."""
        return NUMBERS_PER_NOISE

    @property
    def scaled_bounds(self) -> TargetBounds:
        """The bounds on the scale on which records are averaged."""
        return self.bounds.logarithms() if self.scale == LOG else self.bounds

    @property
    def n_coordinates(self) -> int:
        """A weight, and for each target its value, or its side of every threshold."""
        return 1 + len(self.bounds) * (self.n_thresholds or 1)

    @property
    def public_facts(self) -> tuple[str, ...]:
        """The bounds."""
        return ("the names and bounds of the targets",)


@dataclass(frozen=True, slots=True)
class MultiLabelSettings(VectorSettings):
    """Checked parameters of an Ind-KNN classifier for several labels."""

    labels: npt.NDArray[Any] = parameter(ClassNames(), first=True)
    tau: float | None = parameter(Unless(None, Real(above=0, most=1e6)), None)

    @property
    def n_coordinates(self) -> int:
        """A weight, and one for each label."""
        return 1 + len(self.labels)

    @property
    def public_facts(self) -> tuple[str, ...]:
        """The labels."""
        return ("the names of the labels",)


@dataclass(frozen=True, slots=True)
class KeywordSettings(VectorSettings):
    """Checked parameters of Ind-KNN keywords."""

    vocabulary: dict[str, float] = parameter(WordWeights(), first=True)
    n_keywords: int = parameter(Integer(least=1, most=10**6), 10)

    def check_together(self) -> None:
        """Refuse more keywords than words, too."""
        self.check_noise_schedule()
        if self.n_keywords > len(self.vocabulary):
            raise InvalidInput(
                "The 'n_keywords' parameter must be at most the number of words, "
                f"{len(self.vocabulary)}. Got {self.n_keywords}."
            )

    @property
    def n_coordinates(self) -> int:
        """One for each word."""
        return len(self.vocabulary)

    @property
    def public_facts(self) -> tuple[str, ...]:
        """The vocabulary."""
        return ("the vocabulary and the weights of its words",)
