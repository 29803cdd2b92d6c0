"""Features of a private linear model: a table's columns and random trees, or kernel components.

Columns are centered and divided by their public standard deviation. Then all rows are divided by
the largest norm of a public row and cut to norm 1; they are not normalized to unit vectors, since a
linear model uses lengths. Shared leaves of random trees add nonlinear features. Beyond a number of
features, principal components of a kernel of public rows replace all of these.

Encoded rows are integer features (n, d) of a cosine kernel, by which neighbours are searched. They
are `lifted` if their last column was appended to give all rows the same norm; it is no feature of a
model. D is the number of model features with the bias, c that of scores.
"""

import math
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cache
from typing import Self

import numpy as np
from threadpoolctl import ThreadpoolController

from vicinal.arrays import AnyArray, FloatMatrix, Floats, Ints16
from vicinal.compiled import compiled
from vicinal.errors import InvalidInput
from vicinal.linear._random_trees import LANDMARKS, RandomTrees
from vicinal.linear.kernel_map import COMPONENTS, KERNEL_ARRAYS, IntegerRows, KernelMap
from vicinal.mechanisms.gradients import WEIGHT_STEPS
from vicinal.neighbours.kernels import FLOAT32, quantise_directions
from vicinal.neighbours.scan import map_in_threads

BIAS = 0.3
"""Value of the constant bias feature, relative to other features of norm at most 1."""

COLUMNS_NORM, TREES_NORM = 0.9, 0.44
"""Norm of the longest public row's columns, and typical norm of leaf counts; 1 together."""

CHUNK = 1024
"""Rows encoded at a time: their features fit into a core's cache."""

MIN_KERNEL_FEATURES = 64
"""Minimum number of features for the kernel, as embeddings and image gradients have, unless they
are :func:`columns of a table <are_columns>`."""

MAX_COLUMNS = 400
"""Maximum number of table columns as features: the number of kernel components."""

MAX_KERNEL_RECORDS = 1 << 21
"""Maximum number of records for the kernel: components of more would take more than 4 GB."""

_ARRAYS_MISMATCH = "The features of a model must be those of the same public rows."


@dataclass(frozen=True, slots=True, eq=False)
class ModelFeatures:
    """The features of a model, computed from encoded rows (n, d), and a constant bias.

    - `n_columns`: number of columns used: d, or d - 1 if rows are lifted.
    - `trees`: random trees; counts of leaves shared with each landmark are features.
    - `center`, float64 (n_columns + landmarks,): integers, subtracted from columns and counts.
    - `factors`, float64 of the same shape: multiply the differences.
    - `kernel`: its components replace columns and trees; None without.
    """

    n_columns: int
    trees: RandomTrees
    center: Floats
    factors: Floats
    kernel: KernelMap | None = None

    @classmethod
    def for_training(
        cls, public: FloatMatrix, n_records: int, *, lifted: bool, with_trees: bool = True
    ) -> Self:
        """Return the features of a new model: kernel components, or columns and trees.

        `public`: encoded public rows (m, d). `n_records`: number of private records, which decides
        with d whether a kernel is used. `with_trees`: whether the trees of a model without a kernel
        are used; False if all its features have the same prior.
        """
        needs_kernel = _allows_kernel(public.shape[1], n_records) and not lifted
        with limit_blas_threads():
            kernel = KernelMap.from_public_rows(public) if needs_kernel else None
            return cls.from_rows(public, kernel, lifted=lifted, with_trees=with_trees)

    @staticmethod
    def compute_max_width(n_features: int, n_records: int) -> int:
        """Return the maximum number of model features, whatever the public rows.

        `n_features`: number of features of an encoded row. `n_records`: number of private records.
        """
        may_use_kernel = _allows_kernel(n_features, n_records)
        max_columns = min(n_features, MAX_COLUMNS) if may_use_kernel else n_features
        return 1 + max(COMPONENTS * may_use_kernel, LANDMARKS + max_columns)

    @classmethod
    def from_rows(
        cls,
        public: FloatMatrix,
        kernel: KernelMap | None = None,
        *,
        lifted: bool,
        with_trees: bool = True,
    ) -> Self:
        """Return features fitted to encoded public rows: of a kernel, or of columns and trees.

        `public`: the rows (m, d). `kernel`: its components are the features; None for columns.
        `with_trees`: whether columns are supplemented by trees.
        """
        rows = public.astype(np.float64)[:, : public.shape[1] - lifted]
        # Components replace the trees, which would take seconds to grow on many features.
        trees = RandomTrees(rows if with_trees and kernel is None else rows[:0])
        column_center, squares = _center_columns(rows)
        # As if one more row had the mean square in all columns, so that no variance is 0.
        variances = (squares.sum(axis=0) + max(squares.mean(), 1.0)) / (len(rows) + 1)
        max_norm = float(np.sqrt((squares / variances).sum(axis=1)).max())
        column_norm = COLUMNS_NORM if with_trees else 1
        column_factors = column_norm / (np.sqrt(variances) * max(max_norm, 1e-12))
        leaf_center, leaf_squares = _center_columns(trees.count_shared_leaves(rows))
        typical_norm = math.sqrt(max(float(leaf_squares.sum(axis=1).mean()), 1.0))
        leaf_factors = np.full(len(leaf_center), TREES_NORM / typical_norm)
        center = np.append(column_center, leaf_center)
        factors = np.append(column_factors, leaf_factors)
        return cls(len(column_center), trees, center, factors, kernel)

    @classmethod
    def from_arrays(
        cls, public: FloatMatrix, arrays: Mapping[str, AnyArray], *, lifted: bool
    ) -> Self:
        """Return the features restored from their stored :meth:`to_arrays`.

        Features without a kernel are computed again. `public`: the encoded public rows (m, d) that
        they were made from. Raises InvalidInput if the arrays do not fit such rows.
        """
        names = arrays.keys() & set(KERNEL_ARRAYS)
        if not names:
            return cls.from_rows(public, lifted=lifted)
        if len(names) < len(KERNEL_ARRAYS):
            raise InvalidInput(_ARRAYS_MISMATCH)
        landmarks, projection, shifts = (arrays[name] for name in KERNEL_ARRAYS)
        shapes = (len(landmarks), public.shape[1]), (len(landmarks), len(shifts)), (len(shifts),)
        # The compiled kernels do not check array bounds.
        if (landmarks.shape, projection.shape, shifts.shape) != shapes or any(
            arrays[name].dtype != np.int16 for name in KERNEL_ARRAYS
        ):
            raise InvalidInput(_ARRAYS_MISMATCH)
        return cls.from_rows(public, KernelMap(landmarks, projection, shifts), lifted=lifted)

    def to_arrays(self) -> dict[str, AnyArray]:
        """Return the arrays to store, by name: the kernel's. Other features are recomputed."""
        return {} if self.kernel is None else {**self.kernel.to_arrays()}

    @property
    def width(self) -> int:
        """D, the number of features with the bias."""
        return sum(self.block_sizes) + 1

    @property
    def block_sizes(self) -> tuple[int, ...]:
        """Sizes of the blocks of features without the bias: columns and trees, or components."""
        if self.kernel is not None:
            return (self.kernel.width,)
        return self.n_columns, len(self.center) - self.n_columns

    @property
    def steps_per_unit(self) -> float:
        """Integer steps per feature value of 1."""
        return FLOAT32.compute_unit_norm(self.width - 1)

    def compute_rows(self, X: FloatMatrix) -> IntegerRows:
        """Return the model features of encoded rows `X`, (n, d), in whole steps, float32 (n, D)."""
        rows = np.empty((len(X), self.width), dtype=np.float32)

        def encode_chunk(start: int) -> None:
            """Write the features of a chunk of rows, from index `start` on, to `rows`."""
            chunk = slice(start, start + CHUNK)
            rows[chunk] = self.encode_chunk_rows(X[chunk])

        map_in_threads(encode_chunk, range(0, len(X), CHUNK))
        return rows

    def encode_chunk_rows(self, X: FloatMatrix) -> IntegerRows:
        """Return the model features of a chunk of encoded rows, in whole steps, float32 (n, D).

        `X`, (n, d): the rows; n is at most :data:`CHUNK`, so that they fit a core's cache.
        """
        steps_per_unit = self.steps_per_unit
        if self.kernel is None:
            # Not normalized to one length, so that equal values of a column stay equal.
            columns = X[:, : self.n_columns]
            counts = self.trees.count_shared_leaves(columns)
            rows = (np.hstack([columns, counts]) - self.center) * self.factors
            norms = np.sqrt(np.square(rows).sum(axis=1))  # no row's sum depends on other rows
            rows = np.rint(rows * (steps_per_unit / np.maximum(norms, 1.0))[:, None])
        else:
            rows = quantise_directions(self.kernel.compute_components(quantise_directions(X)))
        bias = np.full((len(X), 1), round(BIAS * steps_per_unit))
        return np.hstack([rows, bias]).astype(np.float32)


def _center_columns(rows: FloatMatrix) -> tuple[Floats, Floats]:
    """Return the rounded column means (d,) of `rows` (m, d), and squared deviations (m, d)."""
    center = np.rint(rows.mean(axis=0, dtype=np.float64))
    return center, np.square(rows - center)


def are_columns(public: FloatMatrix) -> bool:
    """Return whether the features of `public` rows (m, d) are columns of a table, no embedding.

    True for few columns, or if most columns have repeated values, as categories and counts have. On
    four tables of the tuning set with 67 to 132 columns, a linear model of the columns is better
    than one of kernel components by .085 of AUC and R2; on embeddings it is worse by .02 to .2.
    """
    if public.shape[1] < MIN_KERNEL_FEATURES:
        return True
    if public.shape[1] > MAX_COLUMNS:
        return False
    repeated = [len(np.unique(column)) < len(public) / 2 for column in public.T]
    return float(np.mean(repeated)) > 1 / 2


def _allows_kernel(n_features: int, n_records: int) -> bool:
    """Return whether a kernel may be used for `n_records` records of `n_features` features each."""
    return n_features >= MIN_KERNEL_FEATURES and n_records <= MAX_KERNEL_RECORDS


@cache
def _find_blas() -> ThreadpoolController:
    """Return the controller of the threads of all loaded BLAS libraries."""
    import scipy.linalg  # noqa: F401 (loads a BLAS of its own, which the controller must find)

    return ThreadpoolController()


def limit_blas_threads() -> AbstractContextManager[object]:
    """Return a context with one BLAS thread: weights must not depend on the number of threads."""
    return _find_blas().limit(limits=1, user_api="blas")  # type: ignore[no-any-return]


def compute_scores(
    rows: IntegerRows | Ints16 | Floats, integer_weights: Floats, steps_per_unit: float
) -> Floats:
    """Return the exact scores, float64 (n, c), of a linear model.

    `rows`, (n, D): model features in integer steps, `steps_per_unit` for a value of 1.
    `integer_weights`, (D, c): weights in steps of 1 / WEIGHT_STEPS. Sums of whole numbers below
    2^53 do not depend on their order, hence not on other rows.
    """
    sums = np.zeros((len(rows), integer_weights.shape[1]))
    _add_matrix_product(rows, np.ascontiguousarray(integer_weights), sums)
    return np.asarray(sums / (steps_per_unit * WEIGHT_STEPS))


@compiled
def _add_matrix_product(rows, weights, sums):  # type: ignore[no-untyped-def]
    """Add the product of `rows`, (n, D), and `weights`, (D, c), to `sums`, float64 (n, c)."""
    n_scores = weights.shape[1]
    last = rows.shape[1] - rows.shape[1] % 4  # four columns at a time up to here
    for i in range(len(rows)):
        for j in range(0, last, 4):
            a, b = np.float64(rows[i, j]), np.float64(rows[i, j + 1])
            c, d = np.float64(rows[i, j + 2]), np.float64(rows[i, j + 3])
            for k in range(n_scores):
                first_two = a * weights[j, k] + b * weights[j + 1, k]
                third = c * weights[j + 2, k]
                sums[i, k] += (first_two + third) + d * weights[j + 3, k]
        for j in range(last, rows.shape[1]):
            for k in range(n_scores):
                sums[i, k] += np.float64(rows[i, j]) * weights[j, k]


def softmax(scores: Floats) -> Floats:
    """Return the softmax along the last axis of `scores` (..., c): class probabilities (..., c)."""
    exponentials = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return np.asarray(exponentials / exponentials.sum(axis=-1, keepdims=True))


def compute_residual_squares(probabilities: Floats) -> Floats:
    """Return the squared norms |p - onehot(label)|^2 for each possible label, (..., c).

    `probabilities`, (..., c): the class probabilities p of each row.
    """
    norms = np.square(probabilities).sum(axis=-1, keepdims=True)
    return np.asarray(norms - 2 * probabilities + 1)
