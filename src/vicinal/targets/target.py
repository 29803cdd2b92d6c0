"""The interface of record targets: declaration, encoding, storage, averaging and description.

Encoded targets of n records are class indices, int32 (n,), or vectors, (n, n_coordinates), stored
in steps of 1 / UNIT. Sums of vectors and their noise are in votes: a neighbour of kernel weight 1
adds its vector once.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from vicinal.arrays import AnyArray, Floats, Ints32
from vicinal.errors import InvalidInput
from vicinal.mechanisms.subject_table import UNIT, RecordTargets, RecordVectors
from vicinal.parameters import CheckedParameters, get_parameters

# Kinds of targets: the name of the estimator parameter that declares each kind.
CLASSES = "classes"
NUMBERS = "bounds"
LABELS = "labels"

NEIGHBORS_PER_NOISE = 20
"""Planned number of neighbours k per unit of noise multiplier and of the features' intrinsic
dimension, for answers that are the largest of several sums, such as votes."""


@dataclass(frozen=True, slots=True)
class VectorAnswers:
    """Predictions of m numbers or labels for q queries, computed from noisy sums; public.

    - `predictions`, (q, m): numbers, float64; or 1 for a label whose noisy share is at least one
      half and 0 for others, int64.
    - `errors`, float64 (q, m): standard errors, from the noise, of the numbers or shares.
    - `shares`, float64 (q, m): noisy share of the neighbours with each label, in 0..1; None for
      numbers.
    """

    predictions: AnyArray
    errors: Floats
    shares: Floats | None = None

    @property
    def reply_arrays(self) -> dict[str, AnyArray]:
        """The arrays by their names in a reply, in which predictions are called "labels"."""
        arrays = {"labels": self.predictions, "errors": self.errors}
        return arrays if self.shares is None else {**arrays, "shares": self.shares}


@dataclass(frozen=True, slots=True)
class ExpectedError:
    """The standard error that noise causes in a typical answer: a number, or a label's share.

    `name`: of the number or label. `value`: the typical answer. `error`: in the same units.
    """

    name: str
    value: float
    error: float


class Target(CheckedParameters, ABC):
    """The declared type of the records' targets; the declaration is public, the targets private.

    `kind`: name of the parameter that declares the type. `description`: the type in words, for
    messages. `public_metadata`: the public parts of the declaration, for guarantees.
    `is_class_vote`: whether records vote for a class, which probabilities and the release of labels
    alone require. Each subclass also inherits from the table of its declaring parameters.
    """

    kind: ClassVar[str]
    description: ClassVar[str]
    public_metadata: ClassVar[tuple[str, ...]]
    is_class_vote: ClassVar[bool] = False

    @property
    def names(self) -> list[Any]:
        """Names of the classes, numbers or labels, in JSON types."""
        return list(self.class_names.tolist())

    @property
    @abstractmethod
    def answer_columns(self) -> list[str]:
        """Column names of a table of answers, including columns that a release may leave out."""

    @property
    def class_names(self) -> AnyArray:
        """Names of the classes or labels, (c,); empty for numbers."""
        return np.zeros(0, dtype=np.int64)

    @property
    @abstractmethod
    def n_coordinates(self) -> int:
        """Number of coordinates of the vector that a record contributes to a sum."""

    @property
    def n_groups(self) -> int:
        """Number of groups of records (such as classes) that an answer distinguishes.

        Each needs neighbours. Numbers and label sets are planned like two classes.
        """
        return 2

    @property
    def neighbors_per_noise(self) -> float:
        """Planned number of neighbours per unit of noise multiplier and intrinsic dimension."""
        return NEIGHBORS_PER_NOISE

    @property
    def typical_norm(self) -> float:
        """Euclidean norm of the target vectors of most records, scaled so that the largest is 1."""
        return 1.0

    @abstractmethod
    def encode(self, y: npt.ArrayLike | None, n_records: int) -> RecordTargets:
        """Return the encoded targets of `n_records` records, as a shard stores them; private.

        `y`: targets in the form passed to `fit`, one per record. Raises InvalidInput, without
        quoting a value, for other lengths and for None (`fit` without `y`).
        """

    @property
    def declaration(self) -> Any:
        """The value of the declaring parameter, in JSON types; by default, the names."""
        return self.names

    @property
    def parameters(self) -> dict[str, Any]:
        """The parameters by which the user declared this target, as JSON values by name.

        Those with default values are left out, except the one named by `kind`.
        """
        options = {name: getattr(self, name) for name in self.parameter_names if name != self.kind}
        defaults = {field.name: field.default for field in get_parameters(type(self))}
        non_default_options = {
            name: value for name, value in options.items() if value != defaults[name]
        }
        return {self.kind: self.declaration, **non_default_options}

    @property
    def parameter_names(self) -> tuple[str, ...]:
        """Names of the parameters that declare the targets."""
        return tuple(field.name for field in get_parameters(type(self)))

    @property
    def facts(self) -> dict[str, Any]:
        """Kind and declaring parameters in JSON types, for display."""
        return {"kind": self.kind, **self.parameters}

    @property
    @abstractmethod
    def row_width(self) -> int:
        """Number of int32 values stored for a record: a class, or a vector in steps of 1 / UNIT."""

    @abstractmethod
    def encode_rows(self, targets: RecordTargets) -> Ints32:
        """Return encoded `targets` in the form stored on disk, int32 (n, row_width); private."""

    @abstractmethod
    def decode_rows(self, rows: Ints32) -> RecordTargets:
        """Return encoded targets from stored `rows`, int32 (n, row_width); private."""

    @abstractmethod
    def find_error(self, rows: Ints32) -> str | None:
        """Return a message if stored `rows`, (n, row_width), are no valid targets, or None."""

    @abstractmethod
    def make_examples(self, n_records: int) -> AnyArray:
        """Return artificial, valid targets of `n_records` records, in the form passed to `fit`."""

    def describe(self) -> str:
        """Return a description of the targets with their names, for messages."""
        return f"the {self.kind} {', '.join(map(str, self.names))}"


class VectorTarget(Target):
    """A target that is encoded as a vector; answers are averages of vectors over neighbours.

    `answer_prefixes`: prefixes of the further columns that each name has in a table of answers,
    such as "error_" for its standard error.
    """

    answer_prefixes: ClassVar[tuple[str, ...]]

    @property
    def answer_columns(self) -> list[str]:
        """Column names of a table of answers: for each name its prediction, then its prefixes."""
        return [f"{prefix}{name}" for name in self.names for prefix in ("", *self.answer_prefixes)]

    def complete_and_check(self) -> None:
        """Raise InvalidInput, on construction, if a table of answers repeats a column name."""
        columns = self.answer_columns
        repeated = next((name for name in columns if columns.count(name) > 1), None)
        if repeated is not None:
            raise InvalidInput(
                f"The {self.kind!r} parameter must give targets distinct names: a table of answers "
                f"would have two columns {repeated!r}, as each name also follows "
                f"{' and '.join(self.answer_prefixes)}. Rename one of them."
            )

    @abstractmethod
    def compute_answers(self, sums: Floats, noise: Floats) -> VectorAnswers:
        """Return predictions and their standard errors from released noisy sums of vectors.

        `sums`, (q, n_coordinates): noisy sums of target vectors times kernel weights, in votes.
        `noise`, (q,): standard deviation of the noise on every coordinate, in votes.
        """

    @abstractmethod
    def compute_expected_errors(self, weight: float, noise_std: Floats) -> list[ExpectedError]:
        """Return a typical answer of each name, with its standard error from the noise.

        `weight`: expected total kernel weight of the neighbours, in votes. `noise_std`, (1,):
        standard deviation of the noise on every coordinate, in votes.
        """

    @property
    @abstractmethod
    def weight_coordinate(self) -> float:
        """The first coordinate of every record's vector; its sum is the divisor of averages."""

    @property
    @abstractmethod
    def residual_norm(self) -> float:
        """Typical Euclidean distance of a record's other coordinates from their mean; public."""

    @property
    @abstractmethod
    def extremes(self) -> tuple[Any, Any]:
        """Two opposite targets in the form of a row of `y`; the first has the largest norm."""

    @abstractmethod
    def encode(self, y: npt.ArrayLike | None, n_records: int) -> RecordVectors:
        """Return the private target vectors of records; `y`: their targets as passed to `fit`."""

    @property
    def row_width(self) -> int:
        """Number of int32 values stored for a record: one for each coordinate of its vector."""
        return self.n_coordinates

    def encode_rows(self, targets: RecordTargets) -> Ints32:
        """Return vectors `targets` as stored: int32 steps of 1 / UNIT, (n, row_width); private."""
        assert isinstance(targets, RecordVectors)  # noqa: S101 (narrows the type)
        return targets.to_dense_steps()

    def decode_rows(self, rows: Ints32) -> RecordVectors:
        """Return target vectors from `rows`, int32 steps of 1 / UNIT, (n, row_width); private."""
        return RecordVectors.from_steps(rows)

    def find_error(self, rows: Ints32) -> str | None:
        """Return a message if the Euclidean norm of a stored vector exceeds 1, otherwise None."""
        squared_lengths = np.square(rows.astype(np.float64) / UNIT).sum(axis=1)
        is_too_long = (squared_lengths > 1 + 1e-9).any()
        return "A record carries a vector longer than 1." if is_too_long else None
