"""Averages over neighbours, from noisy sums: post-processing, which costs nothing.

A record's vector has length at most one. Its first coordinate is the record's weight `a`; the
others are b times what is averaged, with a^2 + b^2 = 1.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from scipy.special import log_ndtr

from vicinal._arrays import Floats

WEIGHT_SHARE = 1 / 3
"""a^2, the squared length of a record's weight: best where what is averaged is about half as large
as it may be."""

CENTRED_WEIGHT_SHARE = 0.1
"""The same where an answer is read off the sign of a sum."""


def parts(weight_share: float) -> tuple[float, float]:
    """Return (a, b), the lengths of a record's weight and of what it says."""
    return math.sqrt(weight_share), math.sqrt(1 - weight_share)


@dataclass(frozen=True, slots=True)
class NoisyAverages:
    """What neighbours say on average, from noisy sums; all of it public.

    `weight`, `weight_error`, float64 (q,): the neighbours' summed kernel weight, above 0, and the
    standard deviation of its noise. `means`, `errors`, float64 (q, m): averages of what the other
    coordinates say, and their standard errors: what the noise does to them, not how unlike each
    other the neighbours are.
    """

    weight: Floats
    weight_error: Floats
    means: Floats
    errors: Floats

    @classmethod
    def of(cls, sums: Floats, noise: Floats, a: float, b: float) -> NoisyAverages:
        """Return averages from sums whose first coordinate is `a` times the weight.

        `sums`, float64 (q, 1 + m): as released, in units of a unit vote. `noise`, float64 (q,):
        standard deviation of the noise on every coordinate. `a`, `b`: what a record's weight, and
        what it says, were multiplied by.
        """
        weight_error = noise / a
        weight = _positive(sums[:, 0] / a, weight_error)
        means = sums[:, 1:] / b / weight[:, None]
        errors = np.hypot(noise[:, None] / b, means * weight_error[:, None]) / weight[:, None]
        return cls(weight, weight_error, means, errors)

    def weight_of(self, query: int) -> NoisyEstimate:
        """Return the weight of a query's neighbours."""
        return NoisyEstimate(float(self.weight[query]), float(self.weight_error[query]))


def _positive(noisy: Floats, noise: Floats) -> Floats:
    """Return the expectation of what is above 0 and anything there equally likely, given noise."""
    z = noisy / noise
    mean = z + np.exp(-0.5 * z * z - 0.5 * np.log(2 * np.pi) - log_ndtr(z))
    deep = np.maximum(-z, 50.0)
    return np.asarray(noise * np.where(z < -50, 1 / deep - 2 / deep**3, mean))


def distribution(shares: Floats) -> Floats:
    """Return the nearest shares, (q, J), that lie in 0..1 and do not fall along a row.

    `shares` are those below J ascending thresholds, each with equal noise.
    """
    from sklearn.isotonic import isotonic_regression  # slow to load; few answers need it

    return np.array([isotonic_regression(row, y_min=0.0, y_max=1.0) for row in shares])


def quantile(shares: Floats, edges: Floats, level: float) -> Floats:
    """Return where each row's distribution reaches `level`, (q,), straight between the edges.

    `shares` (q, J) are those below the inner `edges` (J + 2,), as :func:`distribution` gives them.
    """
    cumulative = np.column_stack([np.zeros(len(shares)), shares, np.ones(len(shares))])
    after = np.maximum((cumulative < level).sum(axis=1), 1)
    after = np.minimum(after, cumulative.shape[1] - 1)
    rows = np.arange(len(cumulative))
    low, high = cumulative[rows, after - 1], cumulative[rows, after]
    part = np.where(high > low, (level - low) / np.where(high > low, high - low, 1.0), 0.5)
    return np.asarray(edges[after - 1] + np.clip(part, 0, 1) * (edges[after] - edges[after - 1]))


@dataclass(frozen=True, slots=True)
class NoisyEstimate:
    """A number read off noisy sums.

    `value`: the estimate. `error`: its standard error from the noise alone, which is public.
    """

    value: float
    error: float

    def __str__(self) -> str:
        return f"{self.value:.3g} +- {self.error:.2g}"


@dataclass(frozen=True, slots=True)
class NeighborhoodSummary:
    """What the records near one query say together; all of it was paid for, and is public.

    - `weight`: their summed kernel weight: about how many there are; beside a private model drawn
      towards how many were expected.
    - `means`: averages of numbers.
    - `shares`: shares of classes or labels, between 0 and 1.
    - `histograms`, mapping of str to (float64 (J + 2,), float64 (J + 1,)): edges of bins, and the
      share of the numbers in each.
    """

    weight: NoisyEstimate
    means: Mapping[str, NoisyEstimate] = field(default_factory=dict)
    shares: Mapping[object, NoisyEstimate] = field(default_factory=dict)
    histograms: Mapping[str, tuple[Floats, Floats]] = field(default_factory=dict)

    def __str__(self) -> str:
        shares = sorted(self.shares.items(), key=lambda item: -item[1].value)
        phrases = [f"{name}: {100 * e.value:.0f} % +- {100 * e.error:.0f}" for name, e in shares]
        phrases += [f"{name}: {estimate}" for name, estimate in self.means.items()]
        return f"records near, by weight: {self.weight}; " + ", ".join(phrases)


def share_errors(shares: Floats, votes: Floats, noise: Floats) -> Floats:
    """Return the standard errors of shares, (q, c), to first order in the noise; at most 1.

    The noise on a class moves its share by (1 - share) / total, that on the others by -share /
    total each.

    `shares`, `votes`, float64 (q, c): of all classes; votes as released. `noise`, float64 (q,):
    standard deviation of the noise in each vote, above 0.
    """
    total = np.maximum(votes.sum(axis=1), noise)[:, None]
    moved = np.sqrt((1 - shares) ** 2 + (votes.shape[1] - 1) * shares**2)
    return np.asarray(np.minimum(noise[:, None] * moved / total, 1.0))
