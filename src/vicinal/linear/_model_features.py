"""What a private model is linear in: features, more where they are few or many, and a bias.

Few features get their products, many are replaced by components of a kernel of public rows.

A product of two features lets a linear model see that they act together, as columns of a table do.
Whether the private records bear that out is not known before; so what training found for all
products is shrunk towards nothing by as much as its noise alone explains (James & Stein 1961).
Weights are public by then, and so is their noise: it costs nothing.
"""

import math
from dataclasses import dataclass
from typing import Self

import numpy as np

from vicinal._arrays import FloatMatrix, Floats, Floats32
from vicinal._compiled import compiled
from vicinal.linear._kernel_map import KernelMap
from vicinal.mechanisms import WEIGHT_STEPS
from vicinal.neighbours import FLOAT32, map_in_threads, unit_vectors

IntegerRows = Floats32

BIAS = 0.3
"""A feature that every record has besides its own."""

PRODUCTS = 0.5
"""Length of all products together, beside features of length 1."""

CHUNK = 1024
"""Rows whose components stay in a core's cache."""

MOST_PRODUCTS = 300
"""With more products than these, so for more than 24 features, there are none."""


@dataclass(frozen=True, slots=True)
class ModelFeatures:
    """The features of a model: d, their d (d + 1) / 2 products or none, or components; and a bias.

    `n_features`: d. `with_products`: whether products are among them. `kernel`: makes components
    that stand in place of the features.
    """

    n_features: int
    with_products: bool
    kernel: KernelMap | None = None

    @classmethod
    def planned(cls, n_features: int, landmarks: FloatMatrix | None = None) -> Self:
        """Return what a model of d features is trained on; public.

        `landmarks`, (m, d), are public rows, where it is to have components of their kernel.
        """
        if landmarks is not None:
            return cls(n_features, with_products=False, kernel=KernelMap.of(landmarks))
        return cls(n_features, _n_products(n_features) <= MOST_PRODUCTS)

    @classmethod
    def of_weights(cls, n_features: int, weights: Floats, kernel: KernelMap | None = None) -> Self:
        """Return what a model with these weights, (D, c), was trained on."""
        products = len(weights) == cls(n_features, with_products=True).width
        return cls(n_features, products and kernel is None, kernel)

    @property
    def width(self) -> int:
        """D, how many there are, with the bias."""
        if self.kernel is not None:
            return self.kernel.width + 1
        return self.n_features + self.with_products * _n_products(self.n_features) + 1

    @property
    def unit(self) -> float:
        """So many integer steps are a feature of 1."""
        return FLOAT32.scale(self.n_features if self.kernel is None else self.kernel.width)

    @property
    def products(self) -> slice:
        """Where products stand in a row."""
        return slice(self.n_features, self.width - 1)

    def rows(self, X: FloatMatrix) -> IntegerRows:
        """Return integer rows, float32 (n, D), of norm below 1.2 units: every row by itself.

        Products are of whole numbers, and rounded one by one: exact in any company.
        """
        rows = np.empty((len(X), self.width), dtype=np.float32)

        def write(start: int) -> None:
            part = slice(start, start + CHUNK)
            rows[part] = self.of_unit(unit_vectors(X[part]))

        map_in_threads(write, range(0, len(X), CHUNK))
        return rows

    def of_unit(self, unit: IntegerRows) -> IntegerRows:
        """Return the same for integer rows of length one, (n, d)."""
        parts = [unit if self.kernel is None else unit_vectors(self.kernel.components(unit))]
        if self.with_products:
            parts.append(self._products(unit))
        bias = np.full((len(unit), 1), round(BIAS * self.unit), dtype=np.float32)
        return np.asarray(np.hstack([*parts, bias]))

    def _products(self, unit: IntegerRows) -> IntegerRows:
        first, second = np.triu_indices(self.n_features)
        same = first == second
        wide, steps = unit.astype(np.float64), self.unit
        each = wide[:, first] * wide[:, second] * np.where(same, 1.0, math.sqrt(2.0)) / steps
        centred = (each - same * (steps / self.n_features)) * PRODUCTS
        return np.asarray(np.rint(centred), dtype=np.float32)


def _n_products(n_features: int) -> int:
    return n_features * (n_features + 1) // 2


@dataclass(frozen=True, slots=True)
class WeightNoise:
    """The noise on trained weights, as public rows let expect it.

    Near the end of training the loss is taken to be quadratic, with the curvature that public rows
    have under the model's own probabilities; then every direction of the curvature is a recursion
    of its own, and noise goes through it linearly.

    - `deviation`: standard deviation of the noise on each entry of a mean gradient.
    - `rates`: how long each step was.
    - `momentum`: of the descent.
    - `averaged`: steps at the end whose weights are averaged.
    """

    deviation: float
    rates: tuple[float, ...]
    momentum: float
    averaged: int

    @property
    def pull(self) -> float:
        """What a descent that ends early adds to every curvature."""
        return (1 - self.momentum) / sum(self.rates)

    def covariance(self, curvature: Floats) -> Floats:
        """Return the covariance of a class's weights, float64 (D, D), for their curvature."""
        along, directions = np.linalg.eigh(curvature)
        return np.asarray((directions * self._variances(along)) @ directions.T)

    def _variances(self, along: Floats) -> Floats:
        """Return the variance of averaged weights along directions of these curvatures."""
        variances, first = np.zeros_like(along), len(self.rates) - self.averaged
        for step, rate in enumerate(self.rates):
            velocity, moved = np.ones_like(along), np.full_like(along, -rate)
            total = moved * (step >= first)
            for later in range(step + 1, len(self.rates)):
                velocity = self.momentum * velocity + along * moved
                moved = moved - self.rates[later] * velocity
                total = total + moved * (later >= first)
            variances += np.square(total / self.averaged)
        return np.asarray(variances * self.deviation**2)


def shrunk(
    weights: Floats, features: ModelFeatures, rows: IntegerRows, chances: Floats, noise: WeightNoise
) -> Floats:
    """Return weights whose products count as much as they stand out from their noise.

    What is taken off them the other weights make up for, as far as they can: they become what
    they would be beside products of that weight, for that curvature.

    - `weights`, float64 (D, c): as trained.
    - `features`: what they are for.
    - `rows`, float32 (m, D): public integer rows.
    - `chances`, float64 (m, c): the model's probabilities for these.
    - `noise`: how noisy the weights are.
    """
    if not features.with_products:
        return weights
    part, unit = features.products, rows.astype(np.float64) / features.unit
    curvature, centered = _curvature(unit, chances), _away(weights[part])
    factor = product_factor(weights, features, rows, chances, noise)
    others = np.r_[: part.start, part.stop]
    steady = curvature[np.ix_(others, others)] + noise.pull * np.eye(len(others))
    less = weights.copy()
    less[part] *= factor
    less[others] += (1 - factor) * np.linalg.solve(steady, curvature[others, part] @ centered)
    return less


def product_factor(
    weights: Floats, features: ModelFeatures, rows: IntegerRows, chances: Floats, noise: WeightNoise
) -> float:
    """Return how far products stand out from their noise, 0 to 1; arguments of :func:`shrunk`."""
    n_classes, part = weights.shape[1], features.products
    unit = rows.astype(np.float64) / features.unit
    covariance = noise.covariance(_curvature(unit, chances))
    products = unit[:, part] - unit[:, part].mean(axis=0)
    spread = products.T @ products / len(products)
    centered = _away(weights[part])
    expected = (n_classes - 1) * float((covariance[part, part] * spread).sum())
    signal = float((centered * (spread @ centered)).sum())
    return max(0.0, 1 - expected / signal) if signal > 0 else 0.0


def _curvature(unit: Floats, chances: Floats) -> Floats:
    """Return the curvature of a class's weights, of those that add up to 0 over the classes.

    Probabilities depend on no others.
    """
    n_classes = chances.shape[1]
    certain = (chances * (1 - chances)).mean(axis=1) * n_classes / (n_classes - 1)
    return np.asarray((unit * certain[:, None]).T @ unit / len(unit))


def _away(weights: Floats) -> Floats:
    return np.asarray(weights - weights.mean(axis=1, keepdims=True))


def scores_of(rows: IntegerRows | Floats, integer_weights: Floats, unit: float) -> Floats:
    """Return the scores of integer rows under whole weights: exact in any company.

    Sums of whole numbers below 2^53 are those of any order; threads of a BLAS would only wait.
    """
    sums = np.zeros((len(rows), integer_weights.shape[1]))
    _add_products(rows, np.ascontiguousarray(integer_weights), sums)
    return np.asarray(sums / (unit * WEIGHT_STEPS))


@compiled
def _add_products(rows, weights, sums):  # type: ignore[no-untyped-def]
    """Add the product of rows (n, d) and weights (d, c) to `sums`, (n, c)."""
    n_classes, last = weights.shape[1], rows.shape[1] - rows.shape[1] % 4
    for i in range(len(rows)):
        for j in range(0, last, 4):
            a, b = np.float64(rows[i, j]), np.float64(rows[i, j + 1])
            c, d = np.float64(rows[i, j + 2]), np.float64(rows[i, j + 3])
            for k in range(n_classes):
                two, more = a * weights[j, k] + b * weights[j + 1, k], c * weights[j + 2, k]
                sums[i, k] += (two + more) + d * weights[j + 3, k]
        for j in range(last, rows.shape[1]):
            for k in range(n_classes):
                sums[i, k] += np.float64(rows[i, j]) * weights[j, k]


def softmax(scores: Floats) -> Floats:
    """Return probabilities of scores, (n, c)."""
    grown = np.exp(scores - scores.max(axis=1, keepdims=True))
    return np.asarray(grown / grown.sum(axis=1, keepdims=True))
