"""Who stands behind the rows: what they carry, subjects, and what each subject has left.

A record carries a class, or a vector of length at most one on a grid; votes.md, "Vectors".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from vicinal.arrays import AnyInts, Floats, Ints, Ints32
from vicinal.compiled import compiled
from vicinal.errors import InvalidInput

UNIT_BITS = 30
# Grid steps of a vector of length one: with a kernel weight below 2^30 a product fits int64.
UNIT = 1 << UNIT_BITS


@dataclass(frozen=True, slots=True, eq=False)
class RecordVectors:
    """Sparse vectors of n records, each of length at most one; private.

    - `width`: the number of coordinates; public.
    - `starts`, int64 (n + 1,): where the entries of each record begin in the other two.
    - `coordinates`, int32 (entries,): ascending within a record, each at most once.
    - `values`, int32 (entries,): in steps of 2^-30, none of them 0; rounded towards zero.
    """

    width: int
    starts: Ints
    coordinates: Ints32
    values: Ints32

    @classmethod
    def of_rows(cls, rows: npt.ArrayLike) -> RecordVectors:
        """Return the vectors in the rows of a matrix (n, c); longer ones are cut to length one.

        Raises InvalidInput, without a value of the data, if it is none.
        """
        dense = np.asarray(rows, dtype=np.float64)
        if dense.ndim != 2 or not dense.shape[1]:
            raise InvalidInput("Vectors of records must stand in the rows of a matrix.")
        if not np.isfinite(dense).all():
            raise InvalidInput("Vectors of records must hold finite numbers only.")
        # By the largest entry first: squares of huge or tiny numbers would not be numbers.
        longest = np.abs(dense).max(axis=1)
        relative = dense / np.where(longest > 0, longest, 1.0)[:, None]
        numbers, coordinates = np.nonzero(dense)
        squares = np.bincount(numbers, np.square(relative[numbers, coordinates]), len(dense))
        with np.errstate(over="ignore"):
            long = longest * np.sqrt(squares) > 1
        factor = np.where(long, (1 - 1e-9) / np.sqrt(np.maximum(squares, 1.0)), 1.0)
        shortened = np.where(long[:, None], relative, dense) * factor[:, None]
        return cls.of_steps(np.trunc(shortened * UNIT).astype(np.int32))

    @classmethod
    def of_steps(cls, rows: Ints32) -> RecordVectors:
        """Return the vectors whose steps stand in the rows of a matrix, int32 (n, c), exactly."""
        numbers, coordinates = np.nonzero(rows)
        lengths = np.bincount(numbers, minlength=len(rows))
        values = np.asarray(rows[numbers, coordinates], dtype=np.int32)
        return cls(rows.shape[1], _starts(lengths), coordinates.astype(np.int32), values)

    def steps(self) -> Ints32:
        """Return what :meth:`of_steps` takes, int32 (n, width)."""
        out = np.zeros((len(self), self.width), dtype=np.int32)
        rows = np.repeat(np.arange(len(self)), np.diff(self.starts))
        out[rows, self.coordinates] = self.values
        return out

    def __len__(self) -> int:
        return len(self.starts) - 1

    def __getitem__(self, rows: AnyInts) -> RecordVectors:
        lengths = np.diff(self.starts)[rows]
        begin = _starts(lengths)
        entries = np.repeat(self.starts[:-1][rows] - begin[:-1], lengths) + np.arange(begin[-1])
        return RecordVectors(self.width, begin, self.coordinates[entries], self.values[entries])

    def dense(self) -> Floats:
        """Return float64 (n, width)."""
        return self.steps() / UNIT


RecordTargets = Ints32 | RecordVectors  # what records carry: class indices (n,), or vectors


def join_targets(first: RecordTargets, second: RecordTargets) -> RecordTargets:
    """Return what two groups of records carry, one after the other; both of one kind."""
    if not isinstance(first, RecordVectors) or not isinstance(second, RecordVectors):
        # A shard without records does not know yet what they will carry.
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


def _starts(lengths: AnyInts | Sequence[int]) -> Ints:
    return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)


@compiled
def towards_zero(weight, value):  # type: ignore[no-untyped-def]
    """Return weight * value / 2^30, rounded towards zero; `weight` is at least 0."""
    product = np.int64(weight) * np.int64(value)
    return product >> UNIT_BITS if product >= 0 else -((-product) >> UNIT_BITS)


@dataclass(frozen=True, slots=True)
class SubjectTable:
    """Views of a shard's private columns, as the mechanisms read and charge them.

    - `targets`, int32 (n,) or RecordVectors: class index of every row, or its vector.
    - `slots`, int32 (n,): subject of every row, as a position in `remaining`.
    - `records`, int32 (subjects,): number of rows of every subject.
    - `remaining`, int64 (subjects,): units of budget left; the mechanisms charge it in place,
      before any noise is drawn.
    """

    targets: RecordTargets
    slots: Ints32
    records: Ints32
    remaining: Ints

    @property
    def labels(self) -> Ints32:
        """Class index of every row, int32 (n,), where rows carry classes."""
        if isinstance(self.targets, RecordVectors):
            raise InvalidInput("These records carry vectors, not classes.")
        return self.targets
