"""Classes: every record has one of a few, which neighbours vote on."""

from collections.abc import Iterable
from numbers import Integral
from typing import Any

import numpy as np
import numpy.typing as npt

from vicinal import _checks
from vicinal._arrays import AnyArray, Ints32
from vicinal._parameters import ClassNames, Given, parameter, table
from vicinal.errors import InvalidInput
from vicinal.mechanisms import RecordTargets, RecordVectors
from vicinal.targets._target import CLASSES, Target


@table
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
        return labels(y, size, self.classes)

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


def labels(y: npt.ArrayLike | None, size: int, classes: AnyArray) -> Ints32:
    """Return the class index of every label, int32 (n,)."""
    if y is None:
        raise InvalidInput(
            "The 'y' parameter must hold one label for each record: fit requires y to be passed, "
            "but the target y is None."
        )
    column = _column(y)
    if _not_names(column):
        raise InvalidInput(
            "The 'y' parameter must hold integers or strings. Unknown label type: other objects."
        )
    if len(column) != size:
        raise InvalidInput(
            "The 'y' parameter must hold one label for each record. X has another length."
        )
    return _checks.label_indices(column, classes)


def _column(y: npt.ArrayLike) -> AnyArray:
    """Return labels as an array (n,), without scikit-learn where they are one already."""
    if type(y) is np.ndarray and y.ndim == 1 and y.dtype.kind in "biuU":
        return y
    from sklearn.utils.validation import column_or_1d

    try:
        return np.asarray(column_or_1d(_checks.unmasked("y", y), warn=True))
    except ValueError as error:
        raise InvalidInput(f"The 'y' parameter: {_checks.without_values(str(error))}") from None


def _not_names(column: AnyArray) -> bool:
    """Tell whether a column holds anything but integers, whole floats, and strings."""
    if column.dtype.kind == "f":
        return not (column % 1 == 0).all()
    if column.dtype.kind == "O":
        return not all(isinstance(label, str | Integral) for label in column)
    return column.dtype.kind not in "iubU"
