"""Classes: every record has one of a few, which neighbours vote on."""

from collections.abc import Iterable
from numbers import Integral
from typing import Any

import numpy as np
import numpy.typing as npt

from vicinal import checks
from vicinal.arrays import AnyArray, Ints32
from vicinal.errors import InvalidInput
from vicinal.mechanisms.subject_table import RecordTargets, RecordVectors
from vicinal.parameters import ClassNames, Given, parameter, parameter_table
from vicinal.tabular import is_missing, read_column
from vicinal.targets.target import CLASSES, Target


@parameter_table
class ClassesParameter:
    """The class names of a classifier."""

    classes: Given[Iterable[Any], AnyArray] = parameter(
        ClassNames(),
        kw_only=False,
        doc="""All class names. Public, and an input: they are never read off the private
        labels.""",
    )


class Classes(ClassesParameter, Target):
    """Every record carries one class."""

    kind, words = CLASSES, "classes"
    public_facts = ("the class names",)
    voted = True

    @property
    def names(self) -> list[Any]:
        return list(self.classes.tolist())

    @property
    def answer_columns(self) -> list[str]:
        return ["label", "confidence", *(f"p_{name}" for name in self.names)]

    @property
    def class_names(self) -> AnyArray:
        return self.classes

    @property
    def declaration(self) -> Any:
        return self.names

    @property
    def n_coordinates(self) -> int:
        return len(self.classes)

    @property
    def n_groups(self) -> int:
        return len(self.classes)

    def encode(self, y: npt.ArrayLike | None, size: int) -> Ints32:
        return encode_labels(y, size, self.classes)

    @property
    def row_width(self) -> int:
        return 1

    def rows(self, targets: RecordTargets) -> Ints32:
        assert not isinstance(targets, RecordVectors)  # noqa: S101 (what encode returns)
        return targets.reshape(-1, 1)

    def of_rows(self, rows: Ints32) -> Ints32:
        return np.array(rows[:, 0], dtype=np.int32)

    def fault(self, rows: Ints32) -> str | None:
        bad = ((rows < 0) | (rows >= len(self.classes))).any()
        return "A label is not one of the classes." if bad else None

    def examples(self, size: int) -> AnyArray:
        return np.resize(np.array(self.names, dtype=object), size)

    def described(self) -> str:
        return f"the classes {', '.join(map(str, self.names))}"


def encode_labels(y: npt.ArrayLike | None, size: int, classes: AnyArray) -> Ints32:
    """Return the class index of every label, int32 (n,).

    Raises InvalidInput; no label is quoted.
    """
    if y is None:
        raise InvalidInput(
            "The 'y' parameter must hold one label for each record: fit requires y to be passed, "
            "but the target y is None."
        )
    column = _names(read_column("y", y))
    if len(column) != size:
        raise InvalidInput(
            "The 'y' parameter must hold one label for each record. X has another length."
        )
    return checks.label_indices(column, classes)


def _names(column: list[Any] | AnyArray) -> AnyArray:
    """Return labels as an array (n,), which hold integers, whole floats, booleans or texts.

    Raises InvalidInput naming the type of another label, or saying that one is missing.
    """
    if isinstance(column, np.ndarray):
        if column.dtype.kind in "biuU":
            return column
        column = column.tolist()
    kinds = set(map(type, column))
    if kinds == {str}:
        texts = np.empty(len(column), dtype=object)
        texts[:] = column
        return texts
    if any(is_missing(label) for label in column):
        raise InvalidInput(
            "The 'y' parameter must hold a label for each record. Got a missing label (None or "
            "NaN). Drop these rows, or declare a class for them."
        )
    for kind in kinds:
        if not issubclass(kind, str | Integral | float | np.floating | np.bool_):
            raise InvalidInput(
                "The 'y' parameter must hold integers or strings. Unknown label type: "
                f"{kind.__name__}. Convert every label to the name of its class first."
            )
    if any(isinstance(label, float | np.floating) and label % 1 != 0 for label in column):
        raise InvalidInput(
            "The 'y' parameter must hold integers or strings. Unknown label type: continuous. "
            "Numbers are averaged by IndKNNRegressor."
        )
    return np.asarray(column)
