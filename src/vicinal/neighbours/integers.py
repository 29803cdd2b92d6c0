r"""Integer features: why a kernel value cannot depend on who else is in the data.

A floating-point matrix product adds up in an order that depends on the shape of the whole matrix,
so removing one row can change the last bit of *other* rows' products, and a record at the rim of
a radius flips because of somebody else. Here features are integers of norm at most 4095, held in
float32. By Cauchy-Schwarz every partial sum of an inner product, in any order, is at most
4095^2 < 2^24 in size, and float32 holds every such integer exactly: any BLAS gives the exact
result, bit for bit, in any company.

Rounding moves a vector of d coordinates by at most sqrt(d)/2 steps, so vectors are scaled to norm
4095 - sqrt(d)/2 before rounding; the relative error of a kernel value is about sqrt(d)/4095 at
the very worst and 1/4095 as a rule. Rounding is a function of one record alone and costs no
privacy.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from vicinal.errors import InvalidInput

INTEGER_NORM = 4095
"""Largest Euclidean norm of an integer feature vector."""

MAX_FEATURES = 1 << 20
"""Beyond this many features, rounding would leave too little of the norm."""

FloatMatrix = npt.NDArray[np.float32]
FloatVector = npt.NDArray[np.float64]
Factor = Callable[[FloatVector, FloatVector], FloatVector]

_CHUNK = 8192


def unit_vectors(X: npt.NDArray[np.floating]) -> FloatMatrix:
    """Return rows scaled to one length and rounded to integers, float32 (n, d).

    A row of zeros has no direction and stays zeros: it is nobody's neighbour but by noise.
    """
    return _rounded(X, lambda _, norms: 1.0 / np.where(norms > 0, norms, 1.0))


def bounded_vectors(X: npt.NDArray[np.floating], bound: float) -> FloatMatrix:
    """Return rows in units of the public norm `bound`, rounded to integers, float32 (n, d).

    Longer rows are pulled back onto the ball of radius `bound`, each by itself.
    """
    return _rounded(X, lambda peaks, norms: peaks / np.maximum(peaks * norms, bound))


def integer_scale(n_features: int) -> float:
    """Return the integer length of a unit vector of `n_features` coordinates before rounding."""
    if n_features > MAX_FEATURES:
        raise InvalidInput(
            f"The features must have at most {MAX_FEATURES} columns. Got {n_features}; "
            "reduce them first, with PublicMap for example."
        )
    return INTEGER_NORM - math.sqrt(n_features) / 2


def _rounded(X: npt.NDArray[np.floating], factor: Factor) -> FloatMatrix:
    """Scale each row, its largest entry divided out, by `factor` and round to integers.

    Dividing by the largest entry first keeps squares from overflowing or vanishing. Work goes on
    in chunks to bound memory.
    """
    scale = integer_scale(X.shape[1])
    out = np.empty(X.shape, dtype=np.float32)
    for start in range(0, len(X), _CHUNK):
        rows = np.ascontiguousarray(X[start : start + _CHUNK], dtype=np.float64)
        peaks = np.abs(rows).max(axis=1, initial=0.0)
        rows = rows / np.where(peaks > 0, peaks, 1.0)[:, None]
        norms = np.sqrt(np.square(rows).sum(axis=1))
        out[start : start + _CHUNK] = np.rint(rows * (scale * factor(peaks, norms))[:, None])
    return out
