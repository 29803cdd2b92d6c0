"""From what people say about a record to the vector that it carries: a function of public things.

A vector has length at most one. Its first coordinate, where there is one, is the record's weight
`a`; the others are b times what is averaged, with a^2 + b^2 = 1. A record's vector depends on that
record alone.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt

from vicinal._arrays import Bools, Floats, Objects
from vicinal.errors import InvalidInput
from vicinal.mechanisms import RecordVectors
from vicinal.targets._target_checks import TargetBounds

WEIGHT_SHARE = 1 / 3
"""a^2, the squared length of a record's weight: best where what is averaged is about half as large
as it may be."""

CENTRED_WEIGHT_SHARE = 0.1
"""The same where an answer is read off the sign of a sum."""


@dataclass(frozen=True, slots=True, eq=False)
class TypicalScale:
    """Where numbers in -1..1 typically lie: their middle and how far from it.

    `centre`, `half`, float64 (p,): typical numbers z of a target have |z - centre| <= half. By
    default all are typical.
    """

    centre: Floats
    half: Floats

    @classmethod
    def of(cls, bounds: TargetBounds, typical: TargetBounds | None) -> Self:
        """Return the middle and half the width of typical ranges, by bounds that are -1 and 1."""
        if typical is None:
            return cls(np.zeros(len(bounds)), np.ones(len(bounds)))
        width = (bounds.high - bounds.low) / 2
        centre = (typical.low + typical.high) / 2 - (bounds.low + bounds.high) / 2
        return cls(centre / width, (typical.high - typical.low) / 2 / width)

    @property
    def length(self) -> float:
        """Length of the vectors at the ends of the typical ranges, where the longest have 1."""
        farthest = (1 + np.abs(self.centre)) / self.half
        square = WEIGHT_SHARE + (1 - WEIGHT_SHARE) * float(np.square(farthest).mean())
        return 1 / math.sqrt(square)

    @property
    def parts(self) -> tuple[float, float]:
        """(a, b) of a number's vector (a, b (z - centre) / half)."""
        a, b = parts(WEIGHT_SHARE)
        return self.length * a, self.length * b


def parts(weight_share: float) -> tuple[float, float]:
    """Return (a, b), the lengths of a record's weight and of what it says."""
    return math.sqrt(weight_share), math.sqrt(1 - weight_share)


def numbers(y: npt.ArrayLike | None, size: int, bounds: TargetBounds, *, log: bool) -> Floats:
    """Return targets on a scale from -1, the lower bound, to 1, (n, p); beyond them they are cut.

    Raises InvalidInput if they are not finite numbers, one for each record and target; no value is
    quoted.
    """
    if y is None:
        raise InvalidInput(
            "The 'y' parameter must hold a number for each record: fit requires y to be passed, "
            "but the target y is None."
        )
    table = np.asarray(y)
    if table.dtype.kind == "O":
        table = _as_floats(table)
    if bounds.names is None and table.ndim == 2 and table.shape[1] == 1:
        from sklearn.utils.validation import column_or_1d  # slow to load; few need it

        table = column_or_1d(table, warn=True)
    shape = (size,) if len(bounds) == 1 else (size, len(bounds))
    if table.dtype.kind not in "biuf" or table.shape not in {shape, (size, len(bounds))}:
        raise InvalidInput(f"The 'y' parameter must hold numbers in shape {shape}.")
    values = table.reshape(size, len(bounds)).astype(np.float64)
    if not np.isfinite(values).all():
        raise InvalidInput("The 'y' parameter must hold finite numbers: no NaN or infinity.")
    low, high = bounds.low, bounds.high
    values = np.clip(values, low, high)
    if log:
        values, low, high = np.log(values), np.log(low), np.log(high)
    return np.clip((values - low) / (high - low) * 2 - 1, -1.0, 1.0)


def _as_floats(table: Objects) -> Floats:
    try:
        return table.astype(np.float64)
    except (TypeError, ValueError):
        raise InvalidInput("The 'y' parameter must hold numbers.") from None


def thresholds(count: int) -> Floats:
    """Return `count` thresholds between -1 and 1, in the middles of as many equal intervals."""
    return (2 * np.arange(count) + 1) / count - 1


def number_vectors(values: Floats, n_thresholds: int | None, scale: TypicalScale) -> RecordVectors:
    """Return the vectors of records with numbers (n, p) in -1..1.

    Without thresholds v = (a, b (z - centre) / half / sqrt(p)). With J of them each number becomes
    the signs of its distances to them, over sqrt(J): they tell its share below each threshold, and
    their mean is the number itself, rounded to 2 / J.
    """
    a, b = scale.parts
    components = (values - scale.centre) / scale.half
    if n_thresholds is not None:
        above = values[:, :, None] >= thresholds(n_thresholds)
        components = np.where(above, 1.0, -1.0).reshape(len(values), -1) / math.sqrt(n_thresholds)
    components = components * (b / math.sqrt(values.shape[1]))
    return RecordVectors.of_rows(np.column_stack([np.full(len(values), a), components]))


def label_vectors(sets: Bools, tau: float | None) -> RecordVectors:
    """Return the vectors of records with several labels, bool (n, c).

    With `tau`: the 0/1 vector, cut to length sqrt(tau) and divided by it (the tau-approximation of
    ZYCW20). Without: 1 for every label that is there and -1 for the others, over sqrt(c).
    """
    count = sets.shape[1]
    if tau is None:
        a, b = parts(CENTRED_WEIGHT_SHARE)
        components = np.where(sets, b, -b) / math.sqrt(count)
    else:
        a, b = parts(WEIGHT_SHARE)
        sizes = np.maximum(sets.sum(axis=1, keepdims=True), 1)
        components = sets * (b / np.sqrt(np.maximum(sizes, tau)))
    return RecordVectors.of_rows(np.column_stack([np.full(len(sets), a), components]))
