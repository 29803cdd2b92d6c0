r"""Cosine and RBF kernels over integer features.

A pair (record x, query q) has an exact integer *similarity*, int32:

=======  ==========================  ==============================
kernel   similarity                  kernel value
=======  ==========================  ==============================
cosine   <x, q>                      max(<x, q>, 0) / S^2
rbf      -|x - q|^2                  exp(-|x - q|^2 (b / S)^2 / nu^2)
=======  ==========================  ==============================

with S the integer length of a unit vector and b the public bound on norms.
Radii are compared on similarities, exactly. A kernel value is looked up in a public table of 2^16
levels of similarity, rounded towards zero, so that it is the same bits wherever it is computed.

Integer features: why a kernel value cannot depend on who else is in the data.

A floating-point matrix product adds up in an order that depends on the shape of the whole matrix,
so removing one row can change the last bit of *other* rows' products, and a record at the rim of
a radius flips because of another. Here features are integers of norm at most 4095. By
Cauchy-Schwarz every partial sum of an inner product, in any order, is at most 4095^2 < 2^24 in
size: float32 holds every such integer exactly, and so does int32. Any float32 product and any
integer product gives the exact result, bit for bit, beside any others, on any machine.

Two precisions, chosen by public things alone:

=========  ==========  ==================  ======================================================
precision  coordinate  largest norm N      error of a vector, relative to its length
=========  ==========  ==================  ======================================================
float32    any         4095                sqrt(d/12) / N: rounding
int8       -127..127   from public rows    the same, and what clipping takes; together about 1 %
=========  ==========  ==================  ======================================================

Rounding moves a vector of d coordinates by at most sqrt(d)/2 steps, hence a unit vector is given
the integer length S = N - sqrt(d)/2. Rounding and clipping are functions of one record alone and
cost no privacy (docs/decisions/0003-integer-features.md).
"""

import math
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt

from vicinal import checks
from vicinal.arrays import AnyArray, FloatMatrix, Floats, Ints, Ints32
from vicinal.errors import InvalidInput

INTEGER_NORM = 4095
"""Largest Euclidean norm of an integer feature vector."""

MAX_FEATURES = 1 << 20  # beyond this many features, rounding would leave too little of the norm

# Largest size of an int8 coordinate; -128 is not used, so that a sign can be turned.
INT8_LIMIT = 127

# Integer features as they are stored: int8, or float32 that holds integers.
IntegerMatrix = AnyArray

_Factor = Callable[[Floats, Floats], Floats]

_CHUNK = 1 << 15  # numbers that are scaled and rounded together: they stay in a core's cache

_ALIKE = 0.99  # lengths are alike if their mean is above this share of the longest

_SAMPLED = 8192
_CANDIDATES = 32


@dataclass(frozen=True, slots=True)
class Precision:
    """How vectors become integers; public, and fixed before the first record is encoded.

    - `norm`: N, the largest Euclidean norm of an encoded vector.
    - `limit`: largest size of a coordinate; larger ones are clipped to it.
    """

    norm: int = INTEGER_NORM
    limit: int = INTEGER_NORM

    def __post_init__(self) -> None:
        checks.check_integer("norm", self.norm, least=1, most=INTEGER_NORM)
        checks.check_integer("limit", self.limit, least=1, most=INTEGER_NORM)

    @property
    def dtype(self) -> npt.DTypeLike:
        return np.int8 if self.limit <= INT8_LIMIT else np.float32

    def scale(self, n_features: int) -> float:
        """Return S, the integer length of a unit vector before rounding.

        Raises InvalidInput if rounding would leave too little of the norm.
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


def int8_precision(public: FloatMatrix, bound: float | None = None) -> Precision:
    """Return the int8 precision that bends public vectors least.

    A long unit vector has fine steps but loses its largest coordinates to clipping; the length
    with the smallest mean squared relative error on `public` is taken.

    - `public`, float (m, d): public rows, not yet encoded, of the kind that will be encoded; the
      first 8192 are used.
    - `bound`, optional: the public bound on norms of the RBF kernel; without it rows are scaled to
      unit length.

    Raises InvalidInput if there are no rows, or more features than :class:`Precision` takes.
    """
    if len(public) == 0:
        raise InvalidInput("The 'public' parameter must hold at least one row. Got none.")
    longest = FLOAT32.scale(public.shape[1])
    factor = _unit if bound is None else _within(bound)
    rows = _scaled(public[:_SAMPLED], factor, 1.0)
    lengths = np.geomspace(min(INT8_LIMIT, longest), longest, _CANDIDATES)
    best = lengths[int(np.argmin([_bending(rows, length) for length in lengths]))]
    return Precision(math.floor(best + math.sqrt(public.shape[1]) / 2), INT8_LIMIT)


def _bending(rows: Floats, length: float) -> float:
    """Return the mean squared error of rounding and clipping rows scaled by `length`."""
    errors, step = np.empty(len(rows)), max(1, _CHUNK // max(1, rows.shape[1]))
    for start in range(0, len(rows), step):
        wide = rows[start : start + step] * length
        bent = np.rint(wide)
        np.clip(bent, -INT8_LIMIT, INT8_LIMIT, out=bent)
        bent -= wide
        bent /= length
        errors[start : start + step] = np.square(bent, out=bent).sum(axis=1)
    return float(errors.mean())


def unit_vectors(X: FloatMatrix, precision: Precision = FLOAT32) -> IntegerMatrix:
    """Return rows scaled to one length and rounded to integers, (n, d).

    A row of zeros has no direction and stays zeros: it is no query's neighbour but by noise.
    """
    return _rounded(X, _unit, precision)


def lifted(X: FloatMatrix, bound: float) -> Floats:
    """Return rows over `bound`, cut to length 1, and a column that makes all lengths 1.

    The cosine of two such rows follows their distance: what lies in one direction at different
    lengths is told apart.
    """
    rows = _scaled(X, _within(bound), 1.0)
    missing = np.sqrt(np.maximum(1.0 - np.square(rows).sum(axis=1), 0.0))
    return np.concatenate([rows, missing[:, None]], axis=1)


def _unit(peaks: Floats, norms: Floats) -> Floats:  # noqa: ARG001 (a _Factor)
    return np.asarray(1.0 / np.where(norms > 0, norms, 1.0))


def _within(bound: float) -> _Factor:
    def factor(peaks: Floats, norms: Floats) -> Floats:
        with np.errstate(over="ignore"):  # no warning tells that a record was out of all bounds
            lengths = np.maximum(peaks * norms, bound)
        return np.where(np.isinf(lengths), _unit(peaks, norms), peaks / lengths)

    return factor


def _rounded(X: FloatMatrix, factor: _Factor, precision: Precision) -> IntegerMatrix:
    out = np.empty(X.shape, dtype=precision.dtype)
    length, step = precision.scale(X.shape[1]), max(1, _CHUNK // max(1, X.shape[1]))
    for start in range(0, len(X), step):
        rows = _scaled(X[start : start + step], factor, length)
        np.rint(rows, out=rows)
        out[start : start + step] = np.clip(rows, -precision.limit, precision.limit, out=rows)
    return out


def _scaled(X: FloatMatrix, factor: _Factor, length: float) -> Floats:
    """Return rows scaled by `factor` and `length`.

    Dividing by the largest entry first keeps squares from overflowing or vanishing.
    """
    rows = np.array(X, dtype=np.float64, order="C")
    work = np.abs(rows)
    peaks = work.max(axis=1, initial=0.0)
    rows /= np.where(peaks > 0, peaks, 1.0)[:, None]
    norms = np.sqrt(np.square(rows, out=work).sum(axis=1))
    rows *= (length * factor(peaks, norms))[:, None]
    return rows


LEVELS = 1 << 16  # number of levels of similarity that a kernel value can depend on

KernelTable = Floats


class Kernel(ABC):
    """A positive kernel with values in [0, 1] that grows with an integer similarity.

    The similarity is ``product_factor * <x, q> - offset(x) - offset(q)``; its level is
    ``clip((similarity + level_origin) >> level_shift, 0, LEVELS - 1)``.

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

    def width(self, n_features: int) -> int:
        """Return how many columns integer features have that encode so many features."""
        return n_features

    @abstractmethod
    def encode(self, X: FloatMatrix) -> IntegerMatrix:
        """Return integer features in the kernel's precision, (n, width of d).

        Row i is a function of row i of `X` and the precision alone.
        """

    @abstractmethod
    def offsets(self, integers: IntegerMatrix) -> Ints32:
        """Return what each row takes off the similarity, int32 (n,)."""

    @abstractmethod
    def value(self, similarity: Floats, n_features: int) -> KernelTable:
        """Return kernel values in [0, 1] of similarities, elementwise."""

    @abstractmethod
    def similarity_at(self, value: float, n_features: int) -> int:
        """Return the smallest similarity whose kernel value is at least `value`."""

    @abstractmethod
    def squared_distance(self, similarity: Ints, n_features: int) -> Floats:
        """Return squared distances in integer steps, at least one, elementwise."""

    def table(self, n_features: int) -> KernelTable:
        """Return the kernel value of every level, float64 (LEVELS,), at the level's lower edge."""
        edges = (np.arange(LEVELS, dtype=np.int64) << self.level_shift) - self.level_origin
        return self.value(edges.astype(np.float64), n_features)

    def levels(self, similarity: Ints32) -> Ints:
        """Return the level of every similarity, int64, as the compiled code computes it."""
        level = (similarity.astype(np.int64) + self.level_origin) >> self.level_shift
        return np.asarray(np.clip(level, 0, LEVELS - 1))


class Cosine(Kernel):
    """The cosine of the angle between record and query; negative cosines count as zero.

    Parameters
    ----------
    precision : Precision
        How features become integers.
    bound : float, optional
        The length of the longest public row. Lengths count then: rows are divided by it, cut to
        length 1, and get a column that makes all of one length. Without it only directions count.

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
        self.level_shift = _shift_to_levels(precision.norm**2)

    @classmethod
    def fitting(cls, public: FloatMatrix) -> Self:
        """Return the kernel for rows like public ones (m, d); lengths count where these differ."""
        # Over a power of two, which changes no digit, so that no square overflows or vanishes.
        power = np.frexp(np.abs(public).max(initial=0.0).astype(np.float64))[1]
        lengths = np.linalg.norm(np.ldexp(public.astype(np.float64), -power), axis=1)
        longest = float(lengths.max(initial=0.0))
        if not float(lengths.mean()) < _ALIKE * longest:  # as of embeddings: lengths say nothing
            return cls(int8_precision(public))
        with np.errstate(over="ignore"):
            bound = min(float(np.ldexp(longest, power)), sys.float_info.max)
        return cls(int8_precision(lifted(public, bound)), bound)

    @property
    def lifts(self) -> bool:
        """Whether the last column of integers only makes all rows one length."""
        return self.bound is not None

    def width(self, n_features: int) -> int:
        return n_features + self.lifts

    def encode(self, X: FloatMatrix) -> IntegerMatrix:
        return unit_vectors(X if self.bound is None else lifted(X, self.bound), self.precision)

    def offsets(self, integers: IntegerMatrix) -> Ints32:
        return np.zeros(len(integers), dtype=np.int32)

    def value(self, similarity: Floats, n_features: int) -> KernelTable:
        return np.clip(similarity / self.precision.scale(n_features) ** 2, 0.0, 1.0)

    def squared_distance(self, similarity: Ints, n_features: int) -> Floats:
        squares = 2.0 * (self.precision.scale(n_features) ** 2 - similarity)
        return np.asarray(np.maximum(squares, 1.0))

    def similarity_at(self, value: float, n_features: int) -> int:
        value = checks.check_real("radius", value, least=-1, most=1)
        return math.ceil(value * self.precision.scale(n_features) ** 2)


class RBF(Kernel):
    """The Gaussian kernel ``exp(-|x - q|^2 / bandwidth^2)`` in a ball of radius `bound`.

    Parameters
    ----------
    bandwidth : float
        nu, in the units of the features. (ZZGW23 print nu = e^1.5, so nu^2 = e^3.)
    bound : float
        Public bound on the norm of a feature vector; longer ones are pulled back to it.
    precision : Precision
        How features become integers.

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
        self.level_shift = _shift_to_levels(self.level_origin - 1)

    def encode(self, X: FloatMatrix) -> IntegerMatrix:
        return _rounded(X, _within(self.bound), self.precision)

    def offsets(self, integers: IntegerMatrix) -> Ints32:
        wide = np.float32 if integers.dtype == np.float32 else np.int32
        return np.asarray(np.einsum("ij,ij->i", integers, integers, dtype=wide), dtype=np.int32)

    def unit(self, n_features: int) -> float:
        """Return the length of one integer step in the units of the features."""
        return self.bound / self.precision.scale(n_features)

    def _exponent(self, n_features: int) -> float:
        """Return what one unit of similarity adds to the logarithm of the kernel value."""
        return (self.unit(n_features) / self.bandwidth) ** 2

    def value(self, similarity: Floats, n_features: int) -> KernelTable:
        return np.exp(np.minimum(similarity, 0.0) * self._exponent(n_features))

    def squared_distance(
        self,
        similarity: Ints,
        n_features: int,  # noqa: ARG002 (the same for any)
    ) -> Floats:
        return np.asarray(np.maximum(-similarity.astype(np.float64), 1.0))

    def similarity_at(self, value: float, n_features: int) -> int:
        value = checks.check_real("radius", value, above=0, most=1)
        lowest = -((2 * self.precision.norm) ** 2)
        return max(lowest, math.ceil(math.log(value) / self._exponent(n_features)))


def _shift_to_levels(largest: int) -> int:
    """Return by how many bits `largest` must be shifted to be a level."""
    return max(0, largest.bit_length() - (LEVELS - 1).bit_length())
