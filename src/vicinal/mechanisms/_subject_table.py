"""Who stands behind the rows: labels, subjects, and what each subject has left."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True, slots=True)
class SubjectTable:
    """Views of a shard's private columns, as the mechanisms read and charge them.

    Attributes
    ----------
    labels : int32 (n,)
        Class index of every row.
    slots : int32 (n,)
        Subject of every row, as a position in `remaining`.
    records : int32 (subjects,)
        Number of rows of every subject.
    remaining : int64 (subjects,)
        Units of budget left; the mechanisms charge it in place, before any noise is drawn.
    """

    labels: npt.NDArray[np.int32]
    slots: npt.NDArray[np.int32]
    records: npt.NDArray[np.int32]
    remaining: npt.NDArray[np.int64]
