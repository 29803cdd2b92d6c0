"""The parameters of the Ind-KNN estimators, each declared once."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

from vicinal import _checks
from vicinal._parameters import (
    AUTO,
    SEED,
    Auto,
    Check,
    Choice,
    Given,
    Integer,
    Real,
    Unless,
    listed,
    number_or_text,
    parameter,
    table,
)
from vicinal.accounting import METHODS
from vicinal.errors import InvalidInput
from vicinal.mechanisms import interactions
from vicinal.neighbours import ExactIndex, HyperplaneLSH, IndexFactory
from vicinal.targets import (
    CLASSES,
    LABELS,
    NUMBERS,
    ClassesParameter,
    LabelSetsParameters,
    NumbersParameters,
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
class IndexOptions(Check):
    """The kind of an index, alone or in a mapping with its options."""

    type_name = f"{Choice(tuple(_INDEX_OPTIONS)).type_name} or mapping"
    refused: ClassVar[tuple[object, ...]] = (
        "hnsw",
        {"kind": EXACT, "bits": 8},
        {"kind": "hnsw"},
        {},
        None,
    )

    def __call__(self, name: str, value: object) -> dict[str, Any]:
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
    return {name: value for name, value in index.items() if name != "kind"}


ADAPTIVE = "adaptive"
NEIGHBORS = "neighbors"
GATE = "gate"
NO_REUSE = "none"
PUBLIC = "public"
PRIVATE = "private"
BALANCED = "balanced"


@dataclass(frozen=True, slots=True)
class Reuse(Check):
    """Which use is made of earlier answers."""

    type_name = f'False, "{GATE}" or "{NEIGHBORS}"'
    refused: ClassVar[tuple[object, ...]] = ("memory", True, 1, None)
    option_type = f"{NO_REUSE} or {GATE}"

    def parsed(self, text: str) -> bool | str:
        return False if text == NO_REUSE else text

    def __call__(self, name: str, value: object) -> str:
        return NO_REUSE if value is False else _checks.choice(name, value, (GATE, NEIGHBORS))


@dataclass(frozen=True, slots=True)
class InteractionCount(Check):
    """How many interactions share the budget, or "public", which is 0."""

    type_name = 'int or "public"'
    refused: ClassVar[tuple[object, ...]] = (0, -1, 10**6 + 1, 1.5, "some", None, True)

    def __call__(self, name: str, value: object) -> int:  # noqa: ARG002 (the name is fixed)
        return interactions(value)


@dataclass(frozen=True, slots=True)
class ClassNumbers(Check):
    """A positive number for every class, in the order of `classes`, or a word in their place.

    `word`: the word, which is left as it is.
    """

    word: str | None = None

    @property
    def type_name(self) -> str:
        word = "" if self.word is None else f', or "{self.word}"'
        return f"sequence of float{word}, optional"

    refused: ClassVar[tuple[object, ...]] = (
        [],
        [1.0, 0.0],
        [0.5, math.nan],
        [0.5, math.inf],
        [[0.5, 0.5]],
        "another",
        0.5,
    )

    def parsed(self, text: str) -> list[float | str] | str:
        return text if text == self.word else [number_or_text(n, float) for n in listed(text)]

    def __call__(self, name: str, value: object) -> tuple[float, ...] | str | None:
        if value is None or (isinstance(value, str) and value == self.word):
            return value
        if isinstance(value, str) or not isinstance(value, Iterable):
            raise InvalidInput(f"The {name!r} parameter must hold a number for every class.")
        numbers = tuple(_checks.real(name, each, above=0) for each in value)
        if not numbers:
            raise InvalidInput(f"The {name!r} parameter must hold a number for every class.")
        return numbers


@table
class IndKNNParameters:
    """What every Ind-KNN estimator takes."""

    epsilon: float = parameter(
        Real(above=0),
        default=1.0,
        kw_only=False,
        doc="""Bound on the privacy loss. The guarantee is for a subject over all answers since
        ``fit``; add/remove-one-subject.""",
    )
    delta: Given[float | str, float] = parameter(
        Unless(AUTO, Real(above=0, below=1)),
        default=AUTO,
        kw_only=False,
        doc="""Chance that the bound does not hold. "auto": 1e-5, or a tenth of 1 / `n_records` if
        that is less.""",
    )
    n_queries: int = parameter(
        Integer(least=1),
        default=1000,
        kw_only=False,
        doc="""T, how many answers to plan for. More can be asked; they become noisier as budgets
        run out.""",
    )
    n_neighbors: Auto[int] = parameter(
        Unless(AUTO, Integer(least=1)),
        default=AUTO,
        doc="k, the records expected in an adaptive radius.",
    )
    noise_multiplier: Auto[float] = parameter(
        Unless(AUTO, Real(above=0)),
        default=AUTO,
        doc="""sigma2: the noise on each sum (of a class's votes, say) has scale sigma2 sqrt(K), K
        the count. "auto" takes what the plan can afford, from public facts.""",
    )
    kernel: str = parameter(
        Choice(("cosine", "rbf")), default="cosine", doc="Weight of a neighbour."
    )
    min_similarity: Auto[float] = parameter(
        Unless(ADAPTIVE, Real(least=-1, most=1)),
        default=ADAPTIVE,
        doc="""Least kernel value of a neighbour. "adaptive": as near as the k n-th share of the
        public reference.""",
    )
    neighbor_count: str = parameter(
        Choice((PUBLIC, PRIVATE)),
        default=PUBLIC,
        doc="Whether K is estimated from public facts, or released with noise at a charge.",
    )
    accounting: str = parameter(
        Choice(METHODS),
        default="gdp",
        doc="""How epsilon and delta become a budget, see :mod:`vicinal.accounting._budget`. Labels
        alone are charged at one Renyi order whatever is given here.""",
    )
    index: Given[str | Mapping[str, Any], dict[str, Any]] = parameter(
        IndexOptions(),
        default=EXACT,
        doc="""How neighbours are found. Exhaustively; by hashing with random hyperplanes (ZZGW23:
        30 tables of 8 bits); or in lists around centroids learnt from `public`. Options go into a
        mapping: ``{"kind": "lsh", "tables": 10, "bits": 8, "seed": 0}``, ``{"kind": "centroids",
        "cells": 256, "recall": 0.95}``. What an index overlooks costs accuracy, never privacy.""",
    )
    execution: str = parameter(
        Choice(("block", "sequential")),
        default="block",
        doc="Order of work. With a public count both give the same answers, bit for bit.",
    )
    n_records: int | None = parameter(
        Unless(None, Integer(least=1)),
        default=None,
        doc="""Public size of the data. Without it the size is estimated once with noise, for .05 %
        of each record's budget.""",
    )
    records_per_subject: float = parameter(
        Real(least=1, most=1e6),
        default=1.0,
        doc="""Public mean number of records of a subject, who has one budget for all of them: noise
        is planned for that. Declared wrongly it costs accuracy, never privacy.""",
    )
    bandwidth: Auto[float] = parameter(
        Unless(AUTO, Real(above=0)),
        default=AUTO,
        doc="""nu of the RBF kernel. "auto" is the median radius around public points (adaptive
        radius).""",
    )
    norm_bound: Auto[float] = parameter(
        Unless(AUTO, Real(above=0)),
        default=AUTO,
        doc="""Largest norm of a feature vector under the RBF kernel (longer ones are pulled back).
        "auto" is the largest norm in the public reference.""",
    )
    interactions: Given[int | str, int] = parameter(
        InteractionCount(),
        default=1,
        doc="""How many interactions with the same subjects share the budget, each of which gets an
        equal part; the guarantee then covers all of them together. A further one is refused.
        "public": the records need no protection, nothing is counted, and the guarantee is void.""",
    )
    simulation_seed: int | None = parameter(
        SEED, default=None, doc="Makes noise repeatable for experiments, and the guarantee void."
    )


@table
class VotingParameters(IndKNNParameters):
    """What an estimator takes besides whose records vote for classes."""

    release: str = parameter(
        Choice(("votes", "label")),
        default="votes",
        doc="""What leaves: all noisy votes, which tell how sure an answer is, or the label alone,
        which costs less (for 10 classes the same budget goes 1.2 to 1.5 times as far, for 2 classes
        2.2 to 2.7 times), see :mod:`vicinal.accounting._label_only`. A private model's training
        costs 1.15 to 1.2 times as much then.""",
    )
    class_prior: Given[Iterable[float] | None, tuple[float, ...] | None] = parameter(
        ClassNumbers(),
        default=None,
        doc="""How common each class is in the population, in the order of `classes`, adding up to
        1. Public: never count private labels. Noisy votes are drawn towards these shares.""",
    )
    cost: Given[Iterable[float] | str | None, tuple[float, ...] | str | None] = parameter(
        ClassNumbers(BALANCED),
        default=None,
        doc="""What it costs to miss a record of each class, in the order of `classes`: the label is
        the class of the largest cost times probability. "balanced": the inverse of `class_prior`.
        With release="label", shares or costs that differ take part of the saving away: the budget
        goes 1.2 to 1.5 times as far as with votes.""",
    )
    reuse_predictions: Given[bool | str, str] = parameter(
        Reuse(),
        default=False,
        doc="""What answers already given do for later queries; they are public, so it costs
        nothing. "gate": a model of them answers where it is sure, and only the others are asked;
        the noise follows the questions still expected, and answers go on after `n_queries`.
        "neighbors" is for the published algorithm, see :meth:`zhu2023`.""",
    )
    model_share: Auto[float] = parameter(
        Unless(AUTO, Real(least=0, below=1)),
        default=AUTO,
        doc="""The largest share of a budget that trains a linear model on the private records in
        `fit`, 0 <= share < 1; each subject pays for the length of its own gradients only. The model
        is public from then on: it gives a metric in which neighbours agree more, its scores join
        the votes, only queries that it is unsure of are put to the vote, and it answers when
        budgets are spent. From 64 features and 1,500 public rows on it is linear in components of a
        kernel of these rows. "auto": a share where public facts say that it helps, else none, see
        :mod:`vicinal.linear._private_model`; the guarantee says which. 0: no model, so
        that nothing of who is erased stays but answers given. Erasing somebody does not change a
        trained model, and who comes later is not in it.""",
    )
    model_refreshes: int = parameter(
        Integer(least=0, most=1000),
        default=0,
        doc="""How many more times a store may train the private model, on the people who are there
        then, see :meth:`vicinal.Store.refresh_model`. Every training may take an equal part of
        `model_share`.""",
    )


@table
class IndKNNClassifierParameters(VotingParameters, ClassesParameter):
    """What the classifier takes."""


@table
class RegressorParameters(IndKNNParameters, NumbersParameters):
    """What the regressor takes."""


@table
class MultiLabelParameters(IndKNNParameters, LabelSetsParameters):
    """What the classifier of several labels takes."""


PARAMETERS: dict[str, type[IndKNNParameters]] = {
    CLASSES: IndKNNClassifierParameters,
    NUMBERS: RegressorParameters,
    LABELS: MultiLabelParameters,
}
"""What an estimator takes, by what records carry."""
