"""Columns of a shard that the mechanisms read: targets, subjects of rows, remaining budgets.

The target of a record is a class index or a vector of norm at most 1 on a grid (votes.md,
"Vectors").
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from vicinal.arrays import AnyInts, Floats, Ints, Ints32
from vicinal.compiled import compiled
from vicinal.errors import InvalidInput

UNIT_BITS = 30
# Grid steps of a vector of norm 1. The product of such a value and a kernel weight, which is below
# 2^30, fits into int64.
UNIT = 1 << UNIT_BITS


@dataclass(frozen=True, slots=True, eq=False)
class RecordVectors:
    """Sparse target vectors of n records, each of norm at most 1; private.

    - `width`: number of coordinates c; public.
    - `starts`, int64 (n + 1,): record i has entries ``starts[i]`` to ``starts[i + 1] - 1`` below.
    - `coordinates`, int32 (entries,): ascending within a record, without repetition.
    - `values`, int32 (entries,): in steps of 2^-30, rounded towards zero, never 0.
    """

    width: int
    starts: Ints
    coordinates: Ints32
    values: Ints32

    @classmethod
    def from_rows(cls, rows: npt.ArrayLike) -> RecordVectors:
        """Return the vectors in the rows of a matrix (n, c), scaled down to norm 1 where longer.

        Raises InvalidInput if `rows` is not a matrix of finite numbers; without values of the data.
        """
        dense = np.asarray(rows, dtype=np.float64)
        if dense.ndim != 2 or not dense.shape[1]:
            raise InvalidInput("Vectors of records must stand in the rows of a matrix.")
        if not np.isfinite(dense).all():
            raise InvalidInput("Vectors of records must hold finite numbers only.")
        # Rows are divided by their largest entry first, since squares of very large or very small
        # numbers overflow or underflow.
        largest = np.abs(dense).max(axis=1)
        relative = dense / np.where(largest > 0, largest, 1.0)[:, None]
        entry_rows, coordinates = np.nonzero(dense)
        squares = np.bincount(entry_rows, np.square(relative[entry_rows, coordinates]), len(dense))
        with np.errstate(over="ignore"):
            is_too_long = largest * np.sqrt(squares) > 1
        factor = np.where(is_too_long, (1 - 1e-9) / np.sqrt(np.maximum(squares, 1.0)), 1.0)
        shortened = np.where(is_too_long[:, None], relative, dense) * factor[:, None]
        return cls.from_steps(np.trunc(shortened * UNIT).astype(np.int32))

    @classmethod
    def from_steps(cls, rows: Ints32) -> RecordVectors:
        """Return the vectors in the `rows` of a dense matrix, int32 (n, c), in steps of 2^-30."""
        entry_rows, coordinates = np.nonzero(rows)
        lengths = np.bincount(entry_rows, minlength=len(rows))
        values = np.asarray(rows[entry_rows, coordinates], dtype=np.int32)
        return cls(rows.shape[1], _compute_starts(lengths), coordinates.astype(np.int32), values)

    def to_dense_steps(self) -> Ints32:
        """Return the vectors as a dense matrix, int32 (n, width), in steps of 2^-30."""
        dense = np.zeros((len(self), self.width), dtype=np.int32)
        rows = np.repeat(np.arange(len(self)), np.diff(self.starts))
        dense[rows, self.coordinates] = self.values
        return dense

    def __len__(self) -> int:
        """Return the number of records."""
        return len(self.starts) - 1

    def __getitem__(self, rows: AnyInts) -> RecordVectors:
        """Return the vectors of the records with indices `rows`, int (k,), in this order."""
        lengths = np.diff(self.starts)[rows]
        starts = _compute_starts(lengths)
        entries = np.repeat(self.starts[:-1][rows] - starts[:-1], lengths) + np.arange(starts[-1])
        return RecordVectors(self.width, starts, self.coordinates[entries], self.values[entries])

    def to_dense(self) -> Floats:
        """Return the vectors as a dense matrix, float64 (n, width), of numbers from -1 to 1."""
        return self.to_dense_steps() / UNIT


# Targets of n records: class indices, int32 (n,), or vectors.
RecordTargets = Ints32 | RecordVectors


def join_targets(first: RecordTargets, second: RecordTargets) -> RecordTargets:
    """Return the targets of two groups of records together, `first` before `second`.

    Raises InvalidInput unless both are class indices or both are vectors of the same width. An
    empty `first` may be of either kind.
    """
    if not isinstance(first, RecordVectors) or not isinstance(second, RecordVectors):
        # A shard without records has an empty array of class indices until its first enrolment.
        if isinstance(second, RecordVectors) and len(first) == 0:
            return second
        if isinstance(first, RecordVectors) or isinstance(second, RecordVectors):
            raise InvalidInput("Records of one shard must all carry classes, or all vectors.")
        return np.concatenate([first, second])
    if first.width != second.width:
        raise InvalidInput("Records of one shard must carry vectors of one width.")
    return RecordVectors(
        first.width,
        np.concatenate([first.starts, first.starts[-1] + second.starts[1:]]),
        np.concatenate([first.coordinates, second.coordinates]),
        np.concatenate([first.values, second.values]),
    )


def _compute_starts(lengths: AnyInts | Sequence[int]) -> Ints:
    """Return the offsets of n consecutive groups of these `lengths`, and the end, (n + 1,)."""
    return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)


@compiled
def multiply_towards_zero(weight, value):  # type: ignore[no-untyped-def]
    """Return weight * value / 2^30 for two integers, rounded towards zero; `weight` >= 0."""
    product = np.int64(weight) * np.int64(value)
    return product >> UNIT_BITS if product >= 0 else -((-product) >> UNIT_BITS)


class SubjectArrays(NamedTuple):
    """The arrays of a :class:`SubjectTable` that compiled functions read and charge; private."""

    slots: Ints32
    n_records: Ints32
    remaining: Ints


@dataclass(frozen=True, slots=True)
class SubjectTable:
    """Views of a shard's private columns, which the mechanisms read and charge.

    - `targets`, int32 (n,) or RecordVectors: class index or vector of every row.
    - `slots`, int32 (n,): slot of every row's subject, an index into the next two arrays.
    - `n_records`, int32 (subjects,): number of rows of every subject.
    - `remaining`, int64 (subjects,): remaining budget of every subject in units. The mechanisms
      charge it in place, before any noise is added.
    """

    targets: RecordTargets
    slots: Ints32
    n_records: Ints32
    remaining: Ints

    @property
    def arrays(self) -> SubjectArrays:
        """The last three attributes, for compiled functions."""
        return SubjectArrays(self.slots, self.n_records, self.remaining)

    @property
    def labels(self) -> Ints32:
        """Class index of every row, int32 (n,); raises InvalidInput if the targets are vectors."""
        if isinstance(self.targets, RecordVectors):
            raise InvalidInput("These records carry vectors, not classes.")
        return self.targets
