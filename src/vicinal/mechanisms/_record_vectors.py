"""What records carry where it is more than a class: a vector of length at most one, on a grid.

Proof note: votes.md, "Vectors".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from vicinal._arrays import AnyInts, Floats, Ints, Ints32
from vicinal._compiled import compiled
from vicinal.errors import InvalidInput

UNIT_BITS = 30
UNIT = 1 << UNIT_BITS
"""Grid steps of a vector of length one: with a kernel weight below 2^30 a product fits int64."""

MOST_COORDINATES = 1 << 26
"""Largest number of coordinates."""


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
        """Return the vectors that stand in the rows of a dense matrix, float (n, c)."""
        dense = np.asarray(rows, dtype=np.float64)
        if dense.ndim != 2:
            raise InvalidInput("Vectors of records must stand in the rows of a matrix.")
        numbers, coordinates = np.nonzero(dense)
        lengths = np.bincount(numbers, minlength=len(dense))
        return cls.of_entries(
            dense.shape[1], _starts(lengths), coordinates, dense[numbers, coordinates]
        )

    @classmethod
    def of_entries(
        cls, width: int, starts: npt.ArrayLike, coordinates: npt.ArrayLike, values: npt.ArrayLike
    ) -> RecordVectors:
        """Return vectors from sparse rows, as of a CSR matrix; longer ones are cut to length one.

        - `width`: the number of coordinates.
        - `starts`, int (n + 1,): where the entries of each record begin.
        - `coordinates`, int (entries,): in ``range(width)``, in any order; those that occur twice
          in a record are added up.
        - `values`, float (entries,): finite.

        Raises InvalidInput if a value is not finite, a coordinate is outside, or the parts do not
        fit together.
        """
        begin = np.asarray(starts, dtype=np.int64)
        places = np.asarray(coordinates, dtype=np.int64)
        numbers = np.asarray(values, dtype=np.float64)
        _check_entries(width, begin, places, numbers)
        rows = np.repeat(np.arange(len(begin) - 1), np.diff(begin))
        rows, places, numbers = _merged(rows, places, numbers)
        longest = np.zeros(len(begin) - 1)
        np.maximum.at(longest, rows, np.abs(numbers))
        # By the largest entry first: squares of huge or tiny numbers would not be numbers.
        relative = numbers / np.where(longest > 0, longest, 1.0)[rows]
        squares = np.bincount(rows, np.square(relative), minlength=len(longest))
        with np.errstate(over="ignore"):
            length = longest * np.sqrt(squares)
        long = length > 1
        factor = np.where(long, (1 - 1e-9) / np.sqrt(np.maximum(squares, 1.0)), 1.0)
        shortened = np.where(long[rows], relative, numbers) * factor[rows]
        steps = np.trunc(shortened * UNIT).astype(np.int32)
        nonzero = steps != 0
        lengths = np.bincount(rows[nonzero], minlength=len(longest))
        return cls(width, _starts(lengths), places[nonzero].astype(np.int32), steps[nonzero])

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

    @classmethod
    def of_pairs(cls, width: int, rows: Ints32) -> RecordVectors:
        """Return the vectors of what :meth:`pairs` returns, exactly."""
        places, steps = np.split(rows, 2, axis=1)
        there = places > 0
        coordinates = (places[there] - 1).astype(np.int32)
        return cls(width, _starts(there.sum(axis=1)), coordinates, steps[there].astype(np.int32))

    def pairs(self, most: int) -> Ints32:
        """Return rows of one length, int32 (n, 2 most): coordinates, counted from 1, then values.

        0 fills what is left. No vector may have more than `most` entries.
        """
        lengths = np.diff(self.starts)
        rows = np.repeat(np.arange(len(self)), lengths)
        columns = np.arange(len(self.values)) - np.repeat(self.starts[:-1], lengths)
        out = np.zeros((len(self), 2 * most), dtype=np.int32)
        out[rows, columns] = self.coordinates + 1
        out[rows, most + columns] = self.values
        return out

    @classmethod
    def one_hot(cls, labels: Ints32, n_classes: int) -> RecordVectors:
        """Return the vectors of records with one class each: what labels stand for."""
        size = len(labels)
        values = np.full(size, UNIT, dtype=np.int32)
        return cls(n_classes, np.arange(size + 1, dtype=np.int64), labels.copy(), values)

    def __len__(self) -> int:
        """Return n."""
        return len(self.starts) - 1

    def __getitem__(self, rows: AnyInts) -> RecordVectors:
        """Return the vectors of some records, in the order of `rows`, copied."""
        lengths = np.diff(self.starts)[rows]
        begin = _starts(lengths)
        entries = np.repeat(self.starts[:-1][rows] - begin[:-1], lengths) + np.arange(begin[-1])
        return RecordVectors(self.width, begin, self.coordinates[entries], self.values[entries])

    def dense(self) -> Floats:
        """Return float64 (n, width)."""
        return self.steps() / UNIT

    def checksums(self) -> Ints32:
        """Return a number for every record that follows from its vector, (n, 2)."""
        rows = np.repeat(np.arange(len(self)), np.diff(self.starts))
        words = np.zeros((len(self), 2), dtype=np.uint64)
        mixed = self.coordinates.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        mixed ^= self.values.astype(np.int64).view(np.uint64) * np.uint64(0xC2B2AE3D27D4EB4F)
        np.add.at(words[:, 0], rows, mixed >> np.uint64(33))
        np.add.at(words[:, 1], rows, (mixed * np.uint64(0x165667B19E3779F9)) >> np.uint64(33))
        return (words & np.uint64(0x7FFFFFFF)).astype(np.int32)


RecordTargets = Ints32 | RecordVectors
"""What records carry: class indices (n,), or vectors."""


def joined(first: RecordTargets, second: RecordTargets) -> RecordTargets:
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


def _check_entries(width: int, starts: Ints, coordinates: Ints, values: Floats) -> None:
    """Raise InvalidInput, without a value of the data, unless sparse rows are whole."""
    if not 1 <= width <= MOST_COORDINATES:
        raise InvalidInput(f"Vectors must have 1 to {MOST_COORDINATES} coordinates. Got {width}.")
    sizes = len(coordinates) == len(values) and starts.ndim == 1 and len(starts) >= 1
    if not sizes or starts[0] != 0 or starts[-1] != len(values) or (np.diff(starts) < 0).any():
        raise InvalidInput("The parts of sparse vectors do not fit together.")
    if len(coordinates) and not (coordinates.min() >= 0 and coordinates.max() < width):
        raise InvalidInput(f"Coordinates must be at least 0 and below {width}.")
    if not np.isfinite(values).all():
        raise InvalidInput("Vectors of records must hold finite numbers only.")


def _merged(rows: Ints, coordinates: Ints, values: Floats) -> tuple[Ints, Ints, Floats]:
    """Return entries ordered by row and coordinate, equal ones added up, in a fixed order."""
    order = np.lexsort((coordinates, rows))
    rows, coordinates, values = rows[order], coordinates[order], values[order]
    new = np.ones(len(rows), dtype=np.bool_)
    new[1:] = (np.diff(rows) != 0) | (np.diff(coordinates) != 0)
    if new.all():
        return rows, coordinates, values
    with np.errstate(over="ignore", invalid="ignore"):
        sums = np.add.reduceat(values, np.flatnonzero(new))
    if not np.isfinite(sums).all():
        raise InvalidInput("Vectors of records must hold finite numbers only.")
    return rows[new], coordinates[new], sums


@compiled
def towards_zero(weight, value):  # type: ignore[no-untyped-def]
    """Return weight * value / 2^30, rounded towards zero; `weight` is at least 0."""
    product = np.int64(weight) * np.int64(value)
    return product >> UNIT_BITS if product >= 0 else -((-product) >> UNIT_BITS)
