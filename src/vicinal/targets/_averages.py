"""Averages of targets over neighbours, computed from noisy sums (post-processing: not charged).

A record's target vector has length at most 1. Its first coordinate is the constant a, so that the
weighted sum over records is a times their total kernel weight; the other coordinates are b times
the target values, where a^2 + b^2 = 1. An average is the ratio of these noisy sums. Sums and their
noise are in votes: a neighbour of kernel weight 1 adds its target vector once.
"""

import math

import numpy as np
from scipy.special import log_ndtr

from vicinal.arrays import Floats

WEIGHT_SHARE = 1 / 3
"""a^2, the share of the weight coordinate in the squared length of a target vector. It minimises
the variance of the ratio, (1 / b^2 + m^2 / a^2) times a constant, where the average m is 1/2
(docs/decisions/0073-vectors.md)."""

CENTRED_WEIGHT_SHARE = 0.1
"""a^2 for label sets with values -1 and 1. Smaller, because a label is predicted by the sign of
its noisy sum, for which the weight is irrelevant; only the reported shares need the weight."""


def split_unit_length(weight_share: float) -> tuple[float, float]:
    """Return factors (a, b) of a target vector: a^2 = `weight_share` and a^2 + b^2 = 1."""
    return math.sqrt(weight_share), math.sqrt(1 - weight_share)


def compute_noisy_averages(
    sums: Floats, noise: Floats, a: float, b: float
) -> tuple[Floats, Floats]:
    """Return the average of each target value over the neighbours, and its standard error.

    Both are public, float64 (q, m), in units of the values. The errors cover the noise alone, not
    the variance of the neighbours' values.

    `sums`, float64 (q, 1 + m): the released noisy sums of target vectors, for q queries. `noise`,
    float64 (q,): standard deviation of the noise on every coordinate. `a`, `b`: the factors of the
    weight coordinate and of the values in a target vector.
    """
    weight_error = noise / a
    weight = _compute_nonnegative_posterior_mean(sums[:, 0] / a, weight_error)
    means = sums[:, 1:] / b / weight[:, None]
    return means, np.hypot(noise[:, None] / b, means * weight_error[:, None]) / weight[:, None]


def _compute_nonnegative_posterior_mean(observed: Floats, noise: Floats) -> Floats:
    """Return the posterior mean of a nonnegative value under a flat prior, float64 (q,).

    `observed`, float64 (q,): the value plus Gaussian noise of standard deviation `noise`, (q,).
    """
    z = observed / noise
    mean = z + np.exp(-0.5 * z * z - 0.5 * np.log(2 * np.pi) - log_ndtr(z))
    # The sum cancels for very negative z, so its asymptotic expansion replaces it below -50.
    tail = np.maximum(-z, 50.0)
    return np.asarray(noise * np.where(z < -50, 1 / tail - 2 / tail**3, mean))
