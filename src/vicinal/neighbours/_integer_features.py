r"""Integer features: why a kernel value cannot depend on who else is in the data.

A floating-point matrix product adds up in an order that depends on the shape of the whole matrix,
so removing one row can change the last bit of *other* rows' products, and a record at the rim of
a radius flips because of somebody else. Here features are integers of norm at most 4095. By
Cauchy-Schwarz every partial sum of an inner product, in any order, is at most 4095^2 < 2^24 in
size: float32 holds every such integer exactly, and so does int32. Any float32 product and any
integer product gives the exact result, bit for bit, in any company, on any machine.

Two precisions, chosen by public things alone:

=========  ==========  ==================  ======================================================
precision  coordinate  largest norm N      error of a vector, relative to its length
=========  ==========  ==================  ======================================================
float32    any         4095                sqrt(d/12) / N: rounding
int8       -127..127   from public rows    the same, and what clipping takes; together about 1 %
=========  ==========  ==================  ======================================================

Rounding moves a vector of d coordinates by at most sqrt(d)/2 steps, hence a unit vector is given
the integer length S = N - sqrt(d)/2. Rounding and clipping are functions of one record alone and
cost no privacy. docs/decisions/0003 and 0022 have the measurements.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from vicinal import _checks
from vicinal.errors import InvalidInput

INTEGER_NORM = 4095
"""Largest Euclidean norm of an integer feature vector."""

MAX_FEATURES = 1 << 20
"""Beyond this many features, rounding would leave too little of the norm."""

INT8_LIMIT = 127
"""Largest size of an int8 coordinate; -128 is not used, so that a sign can be turned."""

FloatMatrix = npt.NDArray[np.float32]
FloatVector = npt.NDArray[np.float64]
IntegerMatrix = npt.NDArray[Any]
"""Integer features as they are stored: int8, or float32 that holds integers."""

_Factor = Callable[[FloatVector, FloatVector], FloatVector]

_CHUNK = 8192
_CANDIDATES = 32


@dataclass(frozen=True, slots=True)
class Precision:
    """How vectors become integers; public, and fixed before the first record is encoded.

    Attributes
    ----------
    norm : int
        N, the largest Euclidean norm of an encoded vector.
    limit : int
        Largest size of a coordinate; larger ones are clipped to it.
    """

    norm: int = INTEGER_NORM
    limit: int = INTEGER_NORM

    def __post_init__(self) -> None:
        """Refuse what products would not be exact for."""
        _checks.integer("norm", self.norm, least=1, most=INTEGER_NORM)
        _checks.integer("limit", self.limit, least=1, most=INTEGER_NORM)

    @property
    def dtype(self) -> npt.DTypeLike:
        """The type that integer features are stored in."""
        return np.int8 if self.limit <= INT8_LIMIT else np.float32

    def scale(self, n_features: int) -> float:
        """Return S, the integer length of a unit vector before rounding.

        Raises
        ------
        InvalidInput
            If rounding `n_features` coordinates would leave nothing, or too little, of the norm.
        """
        most = min(MAX_FEATURES, (2 * self.norm) ** 2 - 1)
        if n_features > most:
            raise InvalidInput(
                f"The features must have at most {most} columns. Got {n_features}; "
                "reduce them first, with PublicMap for example."
            )
        return self.norm - math.sqrt(n_features) / 2


FLOAT32 = Precision()
"""The finest integers whose float32 products are exact; needs to know nothing about the data."""


def int8_precision(public: npt.NDArray[np.floating], bound: float | None = None) -> Precision:
    """Return the int8 precision that bends public vectors least.

    A long unit vector has fine steps but loses its largest coordinates to clipping; the length
    with the smallest mean squared relative error on `public` is taken.

    Parameters
    ----------
    public : float (m, d)
        Public rows, not yet encoded, of the kind that will be encoded; the first 8192 are used.
    bound : float, optional
        The public bound on norms of the RBF kernel; without it rows are scaled to unit length.

    Raises
    ------
    InvalidInput
        If there are no rows, or more features than :class:`Precision` takes.
    """
    if len(public) == 0:
        raise InvalidInput("The 'public' parameter must hold at least one row. Got none.")
    longest = FLOAT32.scale(public.shape[1])
    factor = _unit if bound is None else _within(bound)
    rows = next(_scaled(public, factor, 1.0))[1]
    lengths = np.geomspace(min(INT8_LIMIT, longest), longest, _CANDIDATES)
    best = lengths[int(np.argmin([_bending(rows, length) for length in lengths]))]
    return Precision(math.floor(best + math.sqrt(public.shape[1]) / 2), INT8_LIMIT)


def _bending(rows: npt.NDArray[np.float64], length: float) -> float:
    """Return the mean squared error of rounding and clipping rows scaled by `length`."""
    wide = rows * length
    rounded = np.clip(np.rint(wide), -INT8_LIMIT, INT8_LIMIT)
    return float(np.square((rounded - wide) / length).sum(axis=1).mean())


def unit_vectors(X: npt.NDArray[np.floating], precision: Precision = FLOAT32) -> IntegerMatrix:
    """Return rows scaled to one length and rounded to integers, (n, d).

    A row of zeros has no direction and stays zeros: it is nobody's neighbour but by noise.
    """
    return _rounded(X, _unit, precision)


def bounded_vectors(
    X: npt.NDArray[np.floating], bound: float, precision: Precision = FLOAT32
) -> IntegerMatrix:
    """Return rows in units of the public norm `bound`, rounded to integers, (n, d).

    Longer rows are pulled back onto the ball of radius `bound`, each by itself.
    """
    return _rounded(X, _within(bound), precision)


def squared_norms(integers: IntegerMatrix) -> npt.NDArray[np.int32]:
    """Return exact squared norms, int32 (n,): each is at most 4095^2 < 2^24."""
    wide = np.float32 if integers.dtype == np.float32 else np.int32
    return np.asarray(np.einsum("ij,ij->i", integers, integers, dtype=wide), dtype=np.int32)


def _unit(peaks: FloatVector, norms: FloatVector) -> FloatVector:  # noqa: ARG001 (a _Factor)
    """Scale every row to length one."""
    return np.asarray(1.0 / np.where(norms > 0, norms, 1.0))


def _within(bound: float) -> _Factor:
    """Scale rows to units of `bound`, longer ones to length one."""
    return lambda peaks, norms: peaks / np.maximum(peaks * norms, bound)


def _rounded(X: npt.NDArray[np.floating], factor: _Factor, precision: Precision) -> IntegerMatrix:
    """Scale each row by `factor`, round to integers and clip."""
    out = np.empty(X.shape, dtype=precision.dtype)
    for start, rows in _scaled(X, factor, precision.scale(X.shape[1])):
        rounded = np.clip(np.rint(rows), -precision.limit, precision.limit)
        out[start : start + len(rows)] = rounded
    return out


def _scaled(
    X: npt.NDArray[np.floating], factor: _Factor, length: float
) -> Iterator[tuple[int, npt.NDArray[np.float64]]]:
    """Yield (start, rows scaled by `factor` and `length`) in chunks that bound memory.

    Dividing by the largest entry first keeps squares from overflowing or vanishing.
    """
    for start in range(0, len(X), _CHUNK):
        rows = np.ascontiguousarray(X[start : start + _CHUNK], dtype=np.float64)
        peaks = np.abs(rows).max(axis=1, initial=0.0)
        rows = rows / np.where(peaks > 0, peaks, 1.0)[:, None]
        norms = np.sqrt(np.square(rows).sum(axis=1))
        yield start, rows * (length * factor(peaks, norms))[:, None]
