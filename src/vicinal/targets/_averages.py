"""Averages over neighbours, from noisy sums: post-processing, which costs nothing.

A record's vector has length at most one. Its first coordinate is the record's weight `a`; the
others are b times what is averaged, with a^2 + b^2 = 1.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.special import log_ndtr

from vicinal.arrays import Floats

WEIGHT_SHARE = 1 / 3
"""a^2, the squared length of a record's weight: best where what is averaged is about half as large
as it may be."""

CENTRED_WEIGHT_SHARE = 0.1
"""The same where an answer is read off the sign of a sum."""


def parts(weight_share: float) -> tuple[float, float]:
    """Return (a, b), the lengths of a record's weight and of what it says."""
    return math.sqrt(weight_share), math.sqrt(1 - weight_share)


def noisy_averages(sums: Floats, noise: Floats, a: float, b: float) -> tuple[Floats, Floats]:
    """Return what neighbours say on average, and its standard errors, both float64 (q, m); public.

    The errors are what the noise does, not how unlike each other the neighbours are.

    `sums`, float64 (q, 1 + m): as released, in units of a unit vote. `noise`, float64 (q,):
    standard deviation of the noise on every coordinate. `a`, `b`: what a record's weight, and
    what it says, were multiplied by.
    """
    weight_error = noise / a
    weight = _positive(sums[:, 0] / a, weight_error)
    means = sums[:, 1:] / b / weight[:, None]
    return means, np.hypot(noise[:, None] / b, means * weight_error[:, None]) / weight[:, None]


def _positive(noisy: Floats, noise: Floats) -> Floats:
    """Return the expectation of what is above 0 and anything there equally likely, given noise."""
    z = noisy / noise
    mean = z + np.exp(-0.5 * z * z - 0.5 * np.log(2 * np.pi) - log_ndtr(z))
    deep = np.maximum(-z, 50.0)
    return np.asarray(noise * np.where(z < -50, 1 / deep - 2 / deep**3, mean))
