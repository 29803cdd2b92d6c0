"""Class targets: every record has one of c declared classes, and neighbours vote."""

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
    """The parameter that declares class targets: the class names."""

    classes: Given[Iterable[Any], AnyArray] = parameter(
        ClassNames(),
        kw_only=False,
        doc="""All class names. They are public and must be given: they are never derived from the
        private labels.""",
    )


class Classes(ClassesParameter, Target):
    """Targets that are one class for each record, encoded as class indices."""

    kind = CLASSES
    description = "classes"
    public_metadata = ("the class names",)
    is_class_vote = True

    @property
    def answer_columns(self) -> list[str]:
        """Column names of a table of answers: label, confidence, and each class's probability."""
        return ["label", "confidence", *(f"p_{name}" for name in self.names)]

    @property
    def class_names(self) -> AnyArray:
        """The declared class names, (c,)."""
        return self.classes

    @property
    def n_coordinates(self) -> int:
        """Number of sums of votes: one for each class."""
        return len(self.classes)

    @property
    def n_groups(self) -> int:
        """Number of classes: each needs neighbours."""
        return len(self.classes)

    def encode(self, y: npt.ArrayLike | None, n_records: int) -> Ints32:
        """Return the class index of each of `n_records` labels `y`, int32 (n,); private."""
        return encode_labels(y, n_records, self.classes)

    @property
    def row_width(self) -> int:
        """Number of int32 values stored for a record: its class index."""
        return 1

    def encode_rows(self, targets: RecordTargets) -> Ints32:
        """Return class indices `targets`, int32 (n,), as stored on disk, int32 (n, 1); private."""
        assert not isinstance(targets, RecordVectors)  # noqa: S101 (narrows the type)
        return targets.reshape(-1, 1)

    def decode_rows(self, rows: Ints32) -> Ints32:
        """Return class indices, int32 (n,), from the stored `rows`, int32 (n, 1); private."""
        return np.array(rows[:, 0], dtype=np.int32)

    def find_error(self, rows: Ints32) -> str | None:
        """Return a message if a stored class index in `rows`, int32 (n, 1), is out of range."""
        is_invalid = ((rows < 0) | (rows >= len(self.classes))).any()
        return "A label is not one of the classes." if is_invalid else None

    def make_examples(self, n_records: int) -> AnyArray:
        """Return artificial labels of `n_records` records: all class names in turn."""
        return np.resize(np.array(self.names, dtype=object), n_records)


def encode_labels(y: npt.ArrayLike | None, n_records: int, classes: AnyArray) -> Ints32:
    """Return the class index of every record's label, int32 (n,); private.

    `y`: labels of `n_records` records, each one of `classes`, (c,). Raises InvalidInput without
    quoting a label.
    """
    if y is None:
        raise InvalidInput(
            "The 'y' parameter must hold one label for each record: fit requires y to be passed, "
            "but the target y is None."
        )
    column = _convert_to_label_array(read_column("y", y))
    if len(column) != n_records:
        raise InvalidInput(
            "The 'y' parameter must hold one label for each record. X has another length."
        )
    return checks.find_label_indices(column, classes)


def _convert_to_label_array(column: list[Any] | AnyArray) -> AnyArray:
    """Return labels as an array (n,) of integers, integral floats, booleans or strings.

    `column`: the private labels as read from `y`. Raises InvalidInput for a missing label, and for
    a label of another type, which the message names.
    """
    if isinstance(column, np.ndarray):
        if column.dtype.kind in "biuU":
            return column
        column = column.tolist()
    label_types = set(map(type, column))
    if label_types == {str}:
        strings = np.empty(len(column), dtype=object)
        strings[:] = column
        return strings
    if any(is_missing(label) for label in column):
        raise InvalidInput(
            "The 'y' parameter must hold a label for each record. Got a missing label (None or "
            "NaN). Drop these rows, or declare a class for them."
        )
    for label_type in label_types:
        if not issubclass(label_type, str | Integral | float | np.floating | np.bool_):
            raise InvalidInput(
                "The 'y' parameter must hold integers or strings. Unknown label type: "
                f"{label_type.__name__}. Convert every label to the name of its class first."
            )
    if any(isinstance(label, float | np.floating) and label % 1 != 0 for label in column):
        raise InvalidInput(
            "The 'y' parameter must hold integers or strings. Unknown label type: continuous. "
            "Numbers are averaged by IndKNNRegressor."
        )
    return np.asarray(column)
