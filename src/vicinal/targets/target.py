"""What a record carries: how it is said, kept, averaged and shown; one class for each kind."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np
import numpy.typing as npt

from vicinal.arrays import AnyArray, Floats, Ints32
from vicinal.errors import InvalidInput
from vicinal.mechanisms.subject_table import UNIT, RecordTargets, RecordVectors
from vicinal.parameters import Settings, get_parameters

CLASSES = "classes"
NUMBERS = "bounds"
LABELS = "labels"
"""Kinds of targets, each by the parameter that declares it."""

NEIGHBORS_PER_NOISE = 20
"""k over the noise multiplier in units of the kernel weight, for each dimension of the data, where
the largest of several sums counts."""


@dataclass(frozen=True, slots=True)
class ExpectedError:
    """What noise does to a typical answer: the standard error that the answer would state.

    `name`: of the number or the label. `value`: the typical answer: a number, or a share. `error`:
    its standard error, in the same units.
    """

    name: str
    value: float
    error: float


class Target(Settings, ABC):
    """What every record carries, as declared. All of it is public.

    `kind`: the parameter that declares it. `words`: what records carry. `public_facts`: what is
    public of it. `voted`: whether records vote for a class: only then are there probabilities, a
    private model, and labels that leave alone. A subclass has a table of the parameters that say
    what records carry as a further base.
    """

    kind: ClassVar[str]
    words: ClassVar[str]
    public_facts: ClassVar[tuple[str, ...]]
    voted: ClassVar[bool] = False

    @property
    @abstractmethod
    def names(self) -> list[Any]:
        """Names of classes, of numbers, or of labels."""

    @property
    @abstractmethod
    def answer_columns(self) -> list[str]:
        """Names of the columns of a table of answers; those of what does not leave are reserved."""

    @property
    def class_names(self) -> AnyArray:
        """Names of classes or labels, (c,); none of numbers."""
        return np.zeros(0, dtype=np.int64)

    @property
    @abstractmethod
    def n_coordinates(self) -> int:
        """Coordinates of what a record contributes."""

    @property
    def n_groups(self) -> int:
        """Kinds of records that an answer tells apart; each needs neighbours of its own.

        Numbers and labels are planned for as two classes are.
        """
        return 2

    @property
    def neighbors_per_noise(self) -> float:
        """Neighbours for each unit of noise and dimension."""
        return NEIGHBORS_PER_NOISE

    @property
    def typical_length(self) -> float:
        """How long most records' vectors are; the longest have length 1."""
        return 1.0

    @abstractmethod
    def encode(self, y: npt.ArrayLike | None, size: int) -> RecordTargets:
        """Check what `size` records carry, and return it as the records' shard keeps it. Private.

        Raises InvalidInput; no value is quoted.
        """

    @property
    @abstractmethod
    def declaration(self) -> Any:
        """The parameter `kind`, as JSON has it."""

    @property
    def parameters(self) -> dict[str, Any]:
        """The parameters that say what records carry, as JSON has them, but for defaults."""
        further = {name: getattr(self, name) for name in self.own if name != self.kind}
        defaults = {each.name: each.default for each in get_parameters(type(self))}
        given = {name: value for name, value in further.items() if value != defaults[name]}
        return {self.kind: self.declaration, **given}

    @property
    def own(self) -> tuple[str, ...]:
        """The names of the parameters that say what records carry."""
        return tuple(each.name for each in get_parameters(type(self)))

    @property
    def facts(self) -> dict[str, Any]:
        """Kind and parameters as they are shown."""
        return {"kind": self.kind, **self.parameters}

    @property
    @abstractmethod
    def row_width(self) -> int:
        """Numbers that stand on the disk for a record: its class, or its vector on the grid."""

    @abstractmethod
    def rows(self, targets: RecordTargets) -> Ints32:
        """Return what records carry as rows, int32 (n, row_width). Private."""

    @abstractmethod
    def of_rows(self, rows: Ints32) -> RecordTargets:
        """Return what :meth:`rows` was made of, exactly."""

    @abstractmethod
    def fault(self, rows: Ints32) -> str | None:
        """Return in words what cannot be in such rows; None if all can."""

    @abstractmethod
    def examples(self, size: int) -> AnyArray:
        """Return made-up targets (size, ...), as `y` of the estimator."""

    @abstractmethod
    def described(self) -> str:
        """Return what records carry, in words with names."""


class VectorTarget(Target):
    """Records carry vectors, which are averaged over neighbours.

    `answer_prefixes`: in a table of answers, each name has a column of its own, and one more with
    each prefix.
    """

    answer_prefixes: ClassVar[tuple[str, ...]]

    @property
    def answer_columns(self) -> list[str]:
        return [f"{prefix}{name}" for name in self.names for prefix in ("", *self.answer_prefixes)]

    def check_together(self) -> None:
        columns = self.answer_columns
        repeated = next((name for name in columns if columns.count(name) > 1), None)
        if repeated is not None:
            raise InvalidInput(
                f"The {self.kind!r} parameter must name targets apart: a table of answers would "
                f"have two columns {repeated!r}, as names also stand behind "
                f"{' and '.join(self.answer_prefixes)}. Rename one of them."
            )

    @abstractmethod
    def answers(self, sums: Floats, noise: Floats) -> VectorAnswers:
        """Return what sums (q, n_coordinates) with this noise (q,) say."""

    @abstractmethod
    def expected_errors(self, weight: float, noise: Floats) -> list[ExpectedError]:
        """Return what noise (1,) does to typical answers of neighbours of such a weight."""

    @property
    @abstractmethod
    def weight(self) -> float:
        """The first coordinate of every record's vector, by which averages are taken."""

    @property
    @abstractmethod
    def residual(self) -> float:
        """How far a typical record's other coordinates are from their mean, at most; public."""

    @property
    @abstractmethod
    def extremes(self) -> tuple[Any, Any]:
        """What the longest vector says, as in `y`, and what its opposite says."""

    @abstractmethod
    def encode(self, y: npt.ArrayLike | None, size: int) -> RecordVectors: ...

    @property
    def row_width(self) -> int:
        return self.n_coordinates

    def rows(self, targets: RecordTargets) -> Ints32:
        assert isinstance(targets, RecordVectors)  # noqa: S101 (what encode returns)
        return targets.steps()

    def of_rows(self, rows: Ints32) -> RecordVectors:
        return RecordVectors.of_steps(rows)

    def fault(self, rows: Ints32) -> str | None:
        lengths = np.square(rows.astype(np.float64) / UNIT).sum(axis=1)
        return "A record carries a vector longer than 1." if (lengths > 1 + 1e-9).any() else None


class VectorAnswers(Protocol):
    """What noisy sums say of some queries; public."""

    @property
    def fields(self) -> dict[str, AnyArray]:
        """What a reply says: labels, and what is known of their errors."""
