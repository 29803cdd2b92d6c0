"""The parameters of the Ind-KNN estimators, each declared once."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from vicinal import checks
from vicinal.accounting.budget import METHODS
from vicinal.errors import InvalidInput
from vicinal.neighbours.hashing import HyperplaneLSH
from vicinal.neighbours.index import ExactIndex, IndexFactory
from vicinal.parameters import (
    AUTO,
    SEED,
    Auto,
    Check,
    Checked,
    Choice,
    Given,
    Integer,
    Real,
    Unless,
    ZeroOrReal,
    parameter,
    parameter_table,
    parse_number_or_text,
    split_list,
)
from vicinal.targets.classes import ClassesParameter
from vicinal.targets.label_sets import LabelSetsParameters
from vicinal.targets.numbers import NumbersParameters
from vicinal.targets.target import CLASSES, LABELS, NUMBERS

# Kinds of an index: a scan of all records; hashing with random hyperplanes.
EXACT = "exact"
LSH = "lsh"
# Names of the options of each kind of index.
_INDEX_OPTIONS: dict[str, tuple[str, ...]] = {EXACT: (), LSH: ("tables", "bits", "seed")}


@dataclass(frozen=True, slots=True)
class IndexOptions(Check):
    """Check of an index parameter: a kind, or a mapping with the kind and its options."""

    type_name = f"{Choice(tuple(_INDEX_OPTIONS)).type_name} or mapping"
    option_type = Choice(tuple(_INDEX_OPTIONS)).option_type

    def __call__(self, name: str, value: object) -> dict[str, Any]:
        """Return kind and options of the index `value`, by name; raise InvalidInput if unknown."""
        options = dict(value) if isinstance(value, Mapping) else {"kind": value}
        kind = checks.check_choice(name, options.get("kind"), tuple(_INDEX_OPTIONS))
        unknown = [option for option in options if option not in ("kind", *_INDEX_OPTIONS[kind])]
        if unknown:
            raise InvalidInput(
                f"The {name!r} parameter must not have {unknown[0]!r}: for {kind!r} it takes "
                f"{', '.join(_INDEX_OPTIONS[kind]) or 'no options'}."
            )
        return options


def create_index_factory(index: dict[str, Any]) -> IndexFactory:
    """Return a function that creates an empty index.

    `index`: a kind with its options, as :class:`IndexOptions` returns it.
    """
    options = {name: value for name, value in index.items() if name != "kind"}
    return partial(HyperplaneLSH, **options) if index["kind"] == LSH else ExactIndex


# Words that may take the place of a number, or name a choice, in the parameters below.
ADAPTIVE = "adaptive"
PUBLIC = "public"
PRIVATE = "private"
BALANCED = "balanced"
# Largest number of interactions; a budget divided into more parts pays for no answer.
MAX_INTERACTIONS = 10**6


def _parse_interactions(name: str, value: object) -> int:
    """Return the declared number of interactions, at least 1, or 0 for records declared public.

    Raises InvalidInput, with the parameter's `name`, for other values.
    """
    if isinstance(value, str) and value == PUBLIC:
        return 0
    return checks.check_integer(name, value, minimum=1, maximum=MAX_INTERACTIONS)


# Check of the number of interactions that share the budget, or "public", which becomes 0.
INTERACTIONS = Checked(_parse_interactions, 'int or "public"')


@dataclass(frozen=True, slots=True)
class NumberPerClass(Check):
    """Check of a parameter with a positive number for every class, in the order of `classes`.

    `word`: a word that is accepted, unchanged, instead of numbers; None for no word.
    """

    word: str | None = None
    option_type = "numbers separated by commas"

    @property
    def type_name(self) -> str:
        """The type of the parameter, as in numpydoc."""
        word = "" if self.word is None else f', or "{self.word}"'
        return f"sequence of float{word}, optional"

    def parse_text(self, text: str) -> list[float | str] | str:
        """Return `text` if it is the word, else its numbers, split at commas, unchecked."""
        if text == self.word:
            return text
        return [parse_number_or_text(item, float) for item in split_list(text)]

    def __call__(self, name: str, value: object) -> tuple[float, ...] | str | None:
        """Return `value` as a tuple, the word or None; InvalidInput names the parameter `name`."""
        if value is None or (isinstance(value, str) and value == self.word):
            return value
        numbers: tuple[Any, ...] = ()
        if isinstance(value, Iterable) and not isinstance(value, str):
            numbers = tuple(value)
        if not numbers:
            raise InvalidInput(f"The {name!r} parameter must hold a number for every class.")
        return tuple(checks.check_real(name, number, above=0) for number in numbers)


# Smallest delta: with less, the rounding of votes to a grid may use up its share of delta.
MIN_DELTA = 1e-12
MIN_SHARE = 1e-6
"""Smallest noise multiplier and smallest share of a budget: far below useful values, and far above
those whose squares and inverses leave the range of floating-point numbers."""


@parameter_table
class IndKNNParameters:
    """Parameters of every Ind-KNN estimator."""

    epsilon: float = parameter(
        Real(above=0),
        default=1.0,
        kw_only=False,
        doc="""Upper bound on the privacy loss of a subject. It holds for all answers since ``fit``
        together, when all records of the subject are added or removed.""",
    )
    delta: Given[float | str, float] = parameter(
        Unless(AUTO, Real(minimum=MIN_DELTA, below=1)),
        default=AUTO,
        kw_only=False,
        doc="""Probability that the bound fails. "auto": 1e-5, or a tenth of 1 / `n_records` if
        that is less.""",
    )
    n_queries: int = parameter(
        Integer(minimum=1),
        default=1000,
        kw_only=False,
        doc="""How many answers to plan for. You can ask for more, which become noisier as budgets
        run out.""",
    )
    n_neighbors: Auto[int] = parameter(
        Unless(AUTO, Integer(minimum=1)),
        default=AUTO,
        doc="How many records to expect in an adaptive radius (k).",
    )
    noise_multiplier: Auto[float] = parameter(
        Unless(AUTO, Real(minimum=MIN_SHARE)),
        default=AUTO,
        doc="""Scale of the noise on each sum, divided by the root of the neighbour count (sigma2).
        A class's votes are such a sum. "auto" takes what the plan can afford.""",
    )
    kernel: str = parameter(
        Choice(("cosine", "rbf")), default="cosine", doc="Kernel that weights a neighbour."
    )
    min_similarity: Auto[float] = parameter(
        Unless(ADAPTIVE, Real(minimum=-1, maximum=1)),
        default=ADAPTIVE,
        doc="""Smallest kernel value of a neighbour. "adaptive": the value that the nearest k / n of
        the public reference reach.""",
    )
    neighbor_count: str = parameter(
        Choice((PUBLIC, PRIVATE)),
        default=PUBLIC,
        doc="""Whether the number of neighbours is estimated from public facts, or released with
        noise at a charge.""",
    )
    accounting: str = parameter(
        Choice(METHODS),
        default="gdp",
        doc="""How epsilon and delta become a budget: by Gaussian DP or Renyi DP, in which labels
        alone are charged as votes.""",
    )
    index: Given[str | Mapping[str, Any], dict[str, Any]] = parameter(
        IndexOptions(),
        default=EXACT,
        doc="""Index that finds the neighbours. It searches all records, or hashes with random
        hyperplanes (ZZGW23: 30 tables of 8 bits). Options go into a mapping:
        ``{"kind": "lsh", "tables": 10, "bits": 8, "seed": 0}``. What hashing overlooks costs
        accuracy, never privacy.""",
    )
    execution: str = parameter(
        Choice(("block", "sequential")),
        default="block",
        doc="Order of work. With a public count, both give the same answers bit for bit.",
    )
    n_records: int | None = parameter(
        Unless(None, Integer(minimum=1)),
        default=None,
        doc="""Number of records, if it is public. Otherwise it is estimated once with noise, for
        .05 % of each record's budget.""",
    )
    records_per_subject: float = parameter(
        Real(minimum=1, maximum=1e6),
        default=1.0,
        doc="""Public mean number of records per subject. All of them share one budget, so noise is
        planned for that. A wrong value costs accuracy, never privacy.""",
    )
    bandwidth: Auto[float] = parameter(
        Unless(AUTO, Real(above=0)),
        default=AUTO,
        doc="""Bandwidth of the RBF kernel (nu). "auto" is the median radius around public points
        (adaptive radius).""",
    )
    norm_bound: Auto[float] = parameter(
        Unless(AUTO, Real(above=0)),
        default=AUTO,
        doc="""Largest norm of a feature vector under the RBF kernel. Longer ones are scaled down.
        "auto" is the largest norm in the public reference.""",
    )
    interactions: Given[int | str, int] = parameter(
        INTERACTIONS,
        default=1,
        doc="""How many interactions with the same subjects share the budget in equal parts. The
        guarantee covers all of them together, and a further one is refused. "public": the records
        need no protection, nothing is counted, and the guarantee is void.""",
    )
    model_share: Auto[float] = parameter(
        Unless(AUTO, ZeroOrReal(minimum=MIN_SHARE, below=1)),
        default=AUTO,
        doc="""Largest share of each budget that trains a private linear model; 0 for no model.
        Each subject pays only for the length of its own gradients. The model is public once it is
        trained. It gives a metric in which neighbours agree more, what it predicts joins their
        votes or averages, it alone gives the classes that it is sure of, and it answers when
        budgets are spent. With 64 features or more that are no columns of a table, it is linear in
        components of a kernel of public rows. "auto": a share where public facts say that it helps,
        else none; the guarantee says which. Erasing a subject does not change a trained model, and
        later subjects are not in it.""",
    )
    model_refreshes: int = parameter(
        Integer(minimum=0, maximum=1000),
        default=0,
        doc="""How many more times a store may train the private model, on the subjects enrolled
        then. Each training may take an equal part of `model_share`. See
        :meth:`vicinal.Store.refresh_model`.""",
    )
    simulation_seed: int | None = parameter(
        SEED, default=None, doc="Seed that makes noise repeatable, and the guarantee void."
    )


@parameter_table
class VotingParameters(IndKNNParameters):
    """Parameters of every Ind-KNN estimator whose records vote for classes."""

    release: str = parameter(
        Choice(("votes", "label")),
        default="votes",
        doc="""What to release: all noisy votes, or the label alone at a lower price. Votes tell
        how sure an answer is. With labels alone, the same budget goes 1.2 to 1.5 times as far for
        10 classes, and 2.2 to 2.7 times for 2; training a private model costs 1.15 to 1.2 times as
        much.""",
    )
    class_prior: Given[Iterable[float] | None, tuple[float, ...] | None] = parameter(
        NumberPerClass(),
        default=None,
        doc="""How common each class is in the population, in the order of `classes`. They add up to
        1 and are public, so never count private labels. Noisy votes are drawn towards them.""",
    )
    cost: Given[Iterable[float] | str | None, tuple[float, ...] | str | None] = parameter(
        NumberPerClass(BALANCED),
        default=None,
        doc="""What it costs to miss a record of each class, in the order of `classes`, or
        "balanced". The label is the class with the largest cost times probability. "balanced": the
        inverse of `class_prior`. With release="label", unequal shares or costs reduce the saving:
        the budget then goes 1.2 to 1.5 times as far as with votes.""",
    )
    reuse_predictions: bool = parameter(
        Checked(checks.check_boolean, "bool"),
        default=False,
        doc="""Whether earlier answers vote on later queries, at no cost. For the published
        algorithm only, see :meth:`zhu2023`.""",
    )


@parameter_table
class IndKNNClassifierParameters(VotingParameters, ClassesParameter):
    """Parameters of the classifier."""


@parameter_table
class RegressorParameters(IndKNNParameters, NumbersParameters):
    """Parameters of the regressor."""


@parameter_table
class MultiLabelParameters(IndKNNParameters, LabelSetsParameters):
    """Parameters of the classifier of several labels."""


PARAMETERS: dict[str, type[IndKNNParameters]] = {
    CLASSES: IndKNNClassifierParameters,
    NUMBERS: RegressorParameters,
    LABELS: MultiLabelParameters,
}
"""Parameters of an estimator, by the kind of its target."""
