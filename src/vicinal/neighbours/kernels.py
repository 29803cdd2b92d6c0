r"""Cosine and RBF kernels over integer features.

A pair (record x, query q) has an exact integer *similarity*, int32, which is ``product_factor *
<x, q> - offset(x) - offset(q)`` for both kernels:

=======  ==========================  ==============================
kernel   similarity                  kernel value
=======  ==========================  ==============================
cosine   <x, q>                      max(<x, q>, 0) / S^2
rbf      -|x - q|^2                  exp(-|x - q|^2 (b / S)^2 / nu^2)
=======  ==========================  ==============================

with S the integer norm of a unit vector and b the public bound on norms. Radii are compared on
similarities, exactly. A kernel value is looked up in a public table of 2^16 levels of similarity,
rounded towards zero, so that it has the same bits on every machine.

Everywhere in this module: `X`, (n, d), are rows of features; `integers`, (n, n_features), are
encoded rows. `n_features` is the number of their columns, :meth:`Kernel.width` of d, on which S
depends. `similarity` holds similarities of pairs, in any shape, which is that of the result.

Why a kernel value cannot depend on other records: a floating-point matrix product adds up in an
order that depends on the shape of the whole matrix, so removing one row can change the last bit of
*other* rows' products, and whether a record at the edge of a radius is inside. Here features are
integers of norm at most 4095. By Cauchy-Schwarz every partial sum of an inner product, in any
order, is at most 4095^2 < 2^24 in size, which float32 and int32 hold exactly. So any product is
exact, bit for bit, in any matrix and on any machine.

Two precisions, chosen by public values alone:

=========  ==========  ==================  ======================================================
precision  coordinate  largest norm N      error of a vector, relative to its length
=========  ==========  ==================  ======================================================
float32    any         4095                sqrt(d/12) / N: rounding
int8       -127..127   from public rows    the same and clipping; together about 1 %
=========  ==========  ==================  ======================================================

Rounding moves a vector of d coordinates by at most sqrt(d)/2 steps, hence a unit vector is given
the integer norm S = N - sqrt(d)/2. Rounding and clipping are functions of one record alone and
cost no privacy (docs/decisions/0003-integer-features.md).
"""

import math
import sys
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt

from vicinal import checks
from vicinal.arrays import AnyArray, FloatMatrix, Floats, Ints, Ints32
from vicinal.errors import InvalidInput

INTEGER_NORM = 4095
"""Largest Euclidean norm of an integer feature vector."""

MAX_FEATURES = 1 << 20
"""With more features, rounding errors (sqrt(d) / 2) would take too much of the norm."""

INT8_LIMIT = 127
"""Largest absolute value of an int8 coordinate; -128 is not used, so that -x is int8, too."""

IntegerMatrix = AnyArray
"""Integer features, (n, d): int8, or float32 that holds integers."""

_CHUNK_ELEMENTS = 1 << 15  # numbers scaled and rounded together: they stay in the cache of a core

_EQUAL_NORMS_RATIO = 0.99
"""Norms count as equal if their mean is at least this share of the largest."""

_MAX_PUBLIC_ROWS = 8192  # public rows on which unit norms are compared
_N_UNIT_NORMS = 32  # candidate norms of a unit vector in int8, in geometric progression


@dataclass(frozen=True, slots=True)
class Precision:
    """The quantisation of vectors; public, and fixed before the first record is encoded.

    - `norm`: N, the largest Euclidean norm of an encoded vector.
    - `limit`: largest absolute value of a coordinate; larger ones are clipped.
    """

    norm: int = INTEGER_NORM
    limit: int = INTEGER_NORM

    def __post_init__(self) -> None:
        """Raise InvalidInput if a field is out of bounds."""
        checks.check_integer("norm", self.norm, minimum=1, maximum=INTEGER_NORM)
        checks.check_integer("limit", self.limit, minimum=1, maximum=INTEGER_NORM)

    @property
    def dtype(self) -> npt.DTypeLike:
        """int8 if coordinates fit, else float32 that holds integers."""
        return np.int8 if self.limit <= INT8_LIMIT else np.float32

    def compute_unit_norm(self, n_features: int) -> float:
        """Return S, the norm of a unit vector with `n_features` in integer steps, before rounding.

        Raises InvalidInput if rounding errors could take too much of the norm.
        """
        max_features = min(MAX_FEATURES, (2 * self.norm) ** 2 - 1)
        if n_features > max_features:
            raise InvalidInput(
                f"The features must have at most {max_features} columns. Got {n_features}; "
                "reduce them first, with PublicMap for example."
            )
        return self.norm - math.sqrt(n_features) / 2


FLOAT32 = Precision()
"""The finest integers whose float32 products are exact; needs no public data."""


def int8_precision(public: FloatMatrix, bound: float | None = None) -> Precision:
    """Return the int8 precision with the smallest quantisation error on public vectors.

    If a unit vector has a large integer norm, steps are fine, but its largest coordinates are
    clipped. Raises InvalidInput if there are no rows, or more features than float32 allows.

    - `public`, float (m, d): public rows, not yet encoded, of which the first 8192 are used.
    - `bound`, optional: the RBF kernel's bound on norms; without it rows are scaled to norm 1.
    """
    if len(public) == 0:
        raise InvalidInput("The 'public' parameter must hold at least one row. Got none.")
    max_unit_norm = FLOAT32.compute_unit_norm(public.shape[1])
    rows = _scale_rows(public[:_MAX_PUBLIC_ROWS], bound, 1.0)
    unit_norms = np.geomspace(min(INT8_LIMIT, max_unit_norm), max_unit_norm, _N_UNIT_NORMS)
    distortions = [_compute_distortion(rows, unit_norm) for unit_norm in unit_norms]
    best_unit_norm = unit_norms[int(np.argmin(distortions))]
    return Precision(math.floor(best_unit_norm + math.sqrt(public.shape[1]) / 2), INT8_LIMIT)


def _compute_distortion(rows: Floats, unit_norm: float) -> float:
    """Return the mean squared error of int8 rounding and clipping of rows of norm at most 1.

    `unit_norm`: number of integer steps of norm 1, the unit of the error.
    """
    errors = np.empty(len(rows))
    chunk_rows = max(1, _CHUNK_ELEMENTS // max(1, rows.shape[1]))
    for start in range(0, len(rows), chunk_rows):
        exact = rows[start : start + chunk_rows] * unit_norm
        residuals = np.rint(exact)
        np.clip(residuals, -INT8_LIMIT, INT8_LIMIT, out=residuals)
        residuals -= exact
        residuals /= unit_norm
        errors[start : start + chunk_rows] = np.square(residuals, out=residuals).sum(axis=1)
    return float(errors.mean())


def quantise_directions(X: FloatMatrix, precision: Precision = FLOAT32) -> IntegerMatrix:
    """Return the rows of `X` scaled to :meth:`Precision.compute_unit_norm` and rounded to integers.

    A row of zeros has no direction and stays zero: its cosine with every query is 0.
    """
    return _quantise(X, None, precision)


def append_norm_column(X: FloatMatrix, bound: float) -> Floats:
    """Return the rows of `X` divided by `bound`, clipped to norm 1 and extended to norm 1.

    The result is float64 (n, d + 1). The cosine of two such rows is a function of their distance,
    so equal directions of different norms differ.
    """
    rows = _scale_rows(X, bound, 1.0)
    complement = np.sqrt(np.maximum(1.0 - np.square(rows).sum(axis=1), 0.0))
    return np.concatenate([rows, complement[:, None]], axis=1)


def _quantise(X: FloatMatrix, bound: float | None, precision: Precision) -> IntegerMatrix:
    """Return the rows of `X` scaled and rounded to the integers of a precision, (n, d).

    `bound`: the rows are divided by it and clipped to norm 1; None: they are scaled to norm 1.
    """
    integers = np.empty(X.shape, dtype=precision.dtype)
    unit_norm = precision.compute_unit_norm(X.shape[1])
    chunk_rows = max(1, _CHUNK_ELEMENTS // max(1, X.shape[1]))
    for start in range(0, len(X), chunk_rows):
        rows = _scale_rows(X[start : start + chunk_rows], bound, unit_norm)
        np.rint(rows, out=rows)
        integers[start : start + chunk_rows] = np.clip(
            rows, -precision.limit, precision.limit, out=rows
        )
    return integers


def _scale_rows(X: FloatMatrix, bound: float | None, unit_norm: float) -> Floats:
    """Return the rows of `X` scaled to norm at most `unit_norm`, float64 (n, d).

    `bound`: the norm that is scaled to `unit_norm`; rows of larger norm are scaled to it, too.
    None: all rows are scaled to `unit_norm`. Rows of zeros are kept.
    """
    rows = np.array(X, dtype=np.float64, order="C")
    magnitudes = np.abs(rows)
    # Rows are divided by their largest entries, so that squares neither overflow nor underflow.
    peaks = magnitudes.max(axis=1, initial=0.0)
    rows /= np.where(peaks > 0, peaks, 1.0)[:, None]
    norms = np.sqrt(np.square(rows, out=magnitudes).sum(axis=1))
    factors = 1.0 / np.where(norms > 0, norms, 1.0)
    if bound is not None:
        with np.errstate(over="ignore"):  # a warning would reveal a record beyond all bounds
            divisors = np.maximum(peaks * norms, bound)
        factors = np.where(np.isinf(divisors), factors, peaks / divisors)
    rows *= (unit_norm * factors)[:, None]
    return rows


LEVELS = 1 << 16
"""Number of levels of similarity; a kernel value is a function of the level."""

KernelTable = Floats
"""Kernel values in [0, 1]."""


class Kernel(ABC):
    """A positive kernel with values in [0, 1] that increases with an integer similarity.

    The similarity is ``product_factor * <x, q> - offset(x) - offset(q)``; its level is
    ``clip((similarity + level_origin) >> level_shift, 0, LEVELS - 1)``. Votes are weighted with
    ``table(n_features)[levels(similarity)]``, :meth:`value` at the lower edge of the level.

    Examples
    --------
    >>> import numpy as np
    >>> from vicinal.neighbours import Cosine, Kernel
    >>> isinstance(Cosine(), Kernel), len(Cosine().table(2)) > 1000
    (True, True)
    """

    name: str
    precision: Precision
    product_factor: int
    level_origin: int
    level_shift: int

    def width(self, n_raw_features: int) -> int:
        """Return the number of columns of encoded rows, of `n_raw_features` features d each."""
        return n_raw_features

    @abstractmethod
    def encode(self, X: FloatMatrix) -> IntegerMatrix:
        """Return the integer features of `X` in the kernel's precision, (n, n_features).

        Row i is a function of row i of `X` and the kernel's parameters alone.
        """

    @abstractmethod
    def offsets(self, integers: IntegerMatrix) -> Ints32:
        """Return offset(x) of each row x of `integers`, int32 (n,)."""

    @abstractmethod
    def value(self, similarity: Floats, n_features: int) -> KernelTable:
        """Return the kernel value in [0, 1] of each `similarity`, float64, any shape."""

    @abstractmethod
    def similarity_at(self, value: float, n_features: int) -> int:
        """Return the smallest integer similarity whose kernel value is at least `value`."""

    @abstractmethod
    def squared_distance(self, similarity: Ints, n_features: int) -> Floats:
        """Return the squared distance of each pair, in squared integer steps, but at least 1."""

    def table(self, n_features: int) -> KernelTable:
        """Return the kernel value at the lower edge of each similarity level, float64 (LEVELS,)."""
        edges = (np.arange(LEVELS, dtype=np.int64) << self.level_shift) - self.level_origin
        return self.value(edges.astype(np.float64), n_features)

    def levels(self, similarity: Ints32) -> Ints:
        """Return the level of each int32 similarity, int64, an index into :meth:`table`."""
        level = (similarity.astype(np.int64) + self.level_origin) >> self.level_shift
        return np.asarray(np.clip(level, 0, LEVELS - 1))


class Cosine(Kernel):
    """The cosine of the angle between record and query; negative cosines count as zero.

    Parameters
    ----------
    precision : Precision
        The quantisation of features.
    bound : float, optional
        Largest norm of the public rows. If given, norms influence similarities: rows are divided by
        it, clipped to norm 1, and get a column for equal norms. Without it, only directions matter.

    Examples
    --------
    >>> import numpy as np
    >>> from vicinal.neighbours import Cosine
    >>> rows = np.array([[1.0, 0.0], [20.0, 0.0]])
    >>> Cosine().encode(rows)
    array([[4094.,    0.],
           [4094.,    0.]], dtype=float32)
    >>> Cosine(bound=20.0).encode(rows)
    array([[ 205.,    0., 4089.],
           [4094.,    0.,    0.]], dtype=float32)
    """

    name = "cosine"
    product_factor = 1
    level_origin = 0

    def __init__(self, precision: Precision = FLOAT32, bound: float | None = None) -> None:
        self.precision, self.bound = precision, bound
        self.level_shift = _compute_level_shift(precision.norm**2)

    @classmethod
    def fit_to_public(cls, public_rows: FloatMatrix) -> Self:
        """Return the int8 kernel, with a bound if norms differ, for `public_rows`, float (m, d)."""
        # Rows are divided by a power of two, which is exact, so that squares neither overflow nor
        # underflow.
        exponent = np.frexp(np.abs(public_rows).max(initial=0.0).astype(np.float64))[1]
        norms = np.linalg.norm(np.ldexp(public_rows.astype(np.float64), -exponent), axis=1)
        max_norm = float(norms.max(initial=0.0))
        if not float(norms.mean()) < _EQUAL_NORMS_RATIO * max_norm:  # for example embeddings
            return cls(int8_precision(public_rows))
        with np.errstate(over="ignore"):
            bound = min(float(np.ldexp(max_norm, exponent)), sys.float_info.max)
        return cls(int8_precision(append_norm_column(public_rows, bound)), bound)

    @property
    def lifts(self) -> bool:
        """Whether rows are extended by a column that makes all norms equal."""
        return self.bound is not None

    def width(self, n_raw_features: int) -> int:
        """Return `n_raw_features`, plus one if a column makes all norms equal."""
        return n_raw_features + self.lifts

    def encode(self, X: FloatMatrix) -> IntegerMatrix:
        """Return the rows of `X` scaled to equal norm and rounded, (n, n_features)."""
        return quantise_directions(
            X if self.bound is None else append_norm_column(X, self.bound), self.precision
        )

    def offsets(self, integers: IntegerMatrix) -> Ints32:
        """Return zeros, int32 (n,): a cosine similarity is the product alone."""
        return np.zeros(len(integers), dtype=np.int32)

    def value(self, similarity: Floats, n_features: int) -> KernelTable:
        """Return the cosine of each pair with this `similarity`, float64; 0 if it is negative."""
        return np.clip(similarity / self.precision.compute_unit_norm(n_features) ** 2, 0.0, 1.0)

    def squared_distance(self, similarity: Ints, n_features: int) -> Floats:
        """Return 2 (S^2 - similarity), but at least 1: the squared distance, as all norms are S."""
        squares = 2.0 * (self.precision.compute_unit_norm(n_features) ** 2 - similarity)
        return np.asarray(np.maximum(squares, 1.0))

    def similarity_at(self, value: float, n_features: int) -> int:
        """Return the smallest similarity whose cosine is at least `value`, from -1 to 1."""
        value = checks.check_real("radius", value, minimum=-1, maximum=1)
        return math.ceil(value * self.precision.compute_unit_norm(n_features) ** 2)


class RBF(Kernel):
    """The Gaussian kernel ``exp(-|x - q|^2 / bandwidth^2)`` in a ball of radius `bound`.

    Parameters
    ----------
    bandwidth : float
        nu, in the units of the features. (ZZGW23 print nu = e^1.5, so nu^2 = e^3.)
    bound : float
        Public bound on the norm of a feature vector; longer vectors are scaled down to it.
    precision : Precision
        The quantisation of features.

    Examples
    --------
    >>> import numpy as np
    >>> from vicinal.neighbours import RBF
    >>> kernel = RBF(bandwidth=1.0, bound=4.0)
    >>> near, far = kernel.encode(np.array([[0.1, 0.0], [3.0, 0.0]]))
    >>> near.dtype, bool((abs(near) < abs(far)).any())
    (dtype('float32'), True)
    """

    name = "rbf"
    product_factor = 2

    def __init__(self, bandwidth: float, bound: float, precision: Precision = FLOAT32) -> None:
        self.bandwidth = checks.check_real("bandwidth", bandwidth, above=0)
        self.bound = checks.check_real("norm_bound", bound, above=0)
        self.precision = precision
        # No squared distance exceeds (2 N)^2; the level of -(2 N)^2 is the lowest.
        self.level_origin = 1 << (4 * precision.norm**2).bit_length()
        self.level_shift = _compute_level_shift(self.level_origin - 1)

    def encode(self, X: FloatMatrix) -> IntegerMatrix:
        """Return the rows of `X` divided by `bound`, clipped to norm 1 and rounded, (n, d)."""
        return _quantise(X, self.bound, self.precision)

    def offsets(self, integers: IntegerMatrix) -> Ints32:
        """Return |x|^2 of each row x of `integers`, int32 (n,)."""
        sum_dtype = np.float32 if integers.dtype == np.float32 else np.int32
        return np.asarray(
            np.einsum("ij,ij->i", integers, integers, dtype=sum_dtype), dtype=np.int32
        )

    def compute_step_size(self, n_features: int) -> float:
        """Return the size of one integer step in the units of the features."""
        return self.bound / self.precision.compute_unit_norm(n_features)

    def _compute_log_slope(self, n_features: int) -> float:
        """Return the change of the log kernel value per unit of similarity."""
        return (self.compute_step_size(n_features) / self.bandwidth) ** 2

    def value(self, similarity: Floats, n_features: int) -> KernelTable:
        """Return exp(-|x - q|^2 / bandwidth^2) of each pair with this `similarity`, float64."""
        return np.exp(np.minimum(similarity, 0.0) * self._compute_log_slope(n_features))

    def squared_distance(
        self,
        similarity: Ints,
        n_features: int,  # noqa: ARG002 (the same for any)
    ) -> Floats:
        """Return the squared distance of each pair, which is -similarity, but at least 1."""
        return np.asarray(np.maximum(-similarity.astype(np.float64), 1.0))

    def similarity_at(self, value: float, n_features: int) -> int:
        """Return the smallest similarity whose kernel value is at least `value`, in (0, 1]."""
        value = checks.check_real("radius", value, above=0, maximum=1)
        min_similarity = -((2 * self.precision.norm) ** 2)
        return max(min_similarity, math.ceil(math.log(value) / self._compute_log_slope(n_features)))


def _compute_level_shift(max_similarity: int) -> int:
    """Return the right shift, in bits, that maps 0 to `max_similarity` to levels below LEVELS."""
    return max(0, max_similarity.bit_length() - (LEVELS - 1).bit_length())
