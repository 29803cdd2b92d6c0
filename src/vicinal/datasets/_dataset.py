"""What every loader returns: records, and perhaps labels, subjects and a test part."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from vicinal import _checks
from vicinal._arrays import AnyArray, AnyInts, Bools
from vicinal.errors import InvalidInput

Features: TypeAlias = AnyArray | tuple[Any, ...] | pa.Table


@dataclass(frozen=True, eq=False, repr=False)
class Dataset:
    """Records with what is known about them; row i of every field is about record i.

    Its representation tells the kind of data, never values or how many records there are, so that
    it may stand in a log.

    Attributes
    ----------
    features
        Array (n, d) of vectors, (n, h, w) or (n, h, w, 3) of images; or a tuple of n texts, or of n
        images of different shapes; or a pyarrow Table of n rows.
    labels
        Array (n,) of integers or strings; float64 (n, p) where records carry numbers; or None.
    subjects
        Array (n,) of integers or strings: the person that each record is about. None when every
        record is a person of its own.
    test
        Another data set, held out for testing, or None.
    names
        What each record is called where it came from (the file of an image), or None.

    Raises
    ------
    InvalidInput
        If labels or subjects are not as many as the records.

    Examples
    --------
    >>> import numpy as np
    >>> from vicinal.datasets import Dataset
    >>> patients = Dataset(np.eye(3), labels=np.array([0, 1, 1]), subjects=np.array([7, 7, 9]))
    >>> patients.take(slice(2)).subjects
    array([7, 7])
    """

    features: Features
    labels: AnyArray | None = None
    subjects: AnyArray | None = None
    test: Dataset | None = None
    names: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        for name in ("labels", "subjects"):
            field = getattr(self, name)
            flat = name == "subjects" or np.asarray(field).dtype.kind != "f"
            shape = (len(self),) if flat else (len(self), *np.shape(field)[1:])
            if field is not None and np.shape(field) != shape:
                raise InvalidInput(f"The {name!r} must be a flat array, one for every record.")

    def __len__(self) -> int:
        return len(self.features)

    def __repr__(self) -> str:
        if isinstance(self.features, tuple):
            kind = "texts" if isinstance(self.features[0], str) else "images"
        elif isinstance(self.features, pa.Table):
            kind = "a table"
        else:
            kind = f"{self.features.dtype} records of shape {self.features.shape[1:]}"
        extras = [
            name for name in ("labels", "subjects", "test") if getattr(self, name) is not None
        ]
        return f"Dataset({', '.join([kind, *extras])})"

    def take(self, rows: slice | AnyInts | Bools) -> Dataset:
        """Return the chosen records, without a test part.

        Parameters
        ----------
        rows
            A slice, positions, or a mask (n,).
        """
        places = np.arange(len(self))[rows]
        if isinstance(self.features, tuple):
            features: Features = tuple(self.features[place] for place in places)
        elif isinstance(self.features, pa.Table):
            features = self.features.take(places)
        else:
            features = self.features[places]
        return Dataset(features, _rows_of(self.labels, places), _rows_of(self.subjects, places))

    def split(self) -> tuple[Dataset, Dataset]:
        """Return the records without their test part, and the test part.

        Raises
        ------
        InvalidInput
            If there is no test part.
        """
        if self.test is None:
            raise InvalidInput("This data set has no test part; take() can hold records back.")
        return replace(self, test=None), self.test


def subject_column(ids: npt.ArrayLike | Iterable[Hashable]) -> AnyArray:
    """Return ids, each in its one form, as an array (n,): int64 if all are numbers, else strings.

    In which of the two a number stands makes no difference: 5 and "5" are one id.
    """
    listed = _checks.subject_ids("subjects", ids)
    are_integers = all(isinstance(subject, int) for subject in listed)
    return np.array(listed if are_integers else [str(subject) for subject in listed])


def _rows_of(field: AnyArray | None, places: AnyInts) -> AnyArray | None:
    return None if field is None else field[places]
