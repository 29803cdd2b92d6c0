r"""How many of many different coins fall on one side: log probabilities down to 1e-300 and below.

A plain Fourier transform is good to 1e-16 of the largest probability only. Tilting every coin, its
odds times e^s, multiplies the probability of k by e^{s k} / M(s), which is known; with s chosen so
that k is the tilted mean, k sits where the transform is most precise. One transform of a few
thousand points serves all k within a few tilted standard deviations of its centre.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
from scipy import fft
from scipy.optimize import brentq
from scipy.special import expit, logit

from vicinal.smoothed._intervals import Array

Counts = npt.NDArray[np.int64]

_REACH = 2.5
_WIDTH = 40.0
_LEAST_POINTS = 64
_FARTHEST = 700.0


def log_pmf(counts: Counts, chances: Array, low: int, high: int) -> tuple[Array, Array]:
    """Return log Pr[sum = k] for low <= k < high, and the largest error of each.

    Parameters
    ----------
    counts : ndarray, shape (g,)
        Coins in each group.
    chances : ndarray, shape (g,)
        Their probability, in [0, 1].
    low, high : int
        Which sums, inside 0 .. number of coins + 1.
    """
    sure = int(counts[chances == 1].sum())
    open_ = (chances > 0) & (chances < 1) & (counts > 0)
    logs, errors = np.full(high - low, -np.inf), np.zeros(high - low)
    n, place = int(counts[open_].sum()), max(low - sure, 0)
    stop = min(high - sure, n + 1)
    if n == 0:
        logs[sure - low if low <= sure < high else slice(0)] = 0.0
        return logs, errors
    while place < stop:
        values, slack, reached = _block(counts[open_], chances[open_], place, stop)
        into = slice(place + sure - low, reached + sure - low)
        logs[into], errors[into] = values, slack
        place = reached
    return logs, errors


def _block(counts: Counts, chances: Array, first: int, stop: int) -> tuple[Array, Array, int]:
    """Return log probabilities from `first` on, as far as one tilt reaches."""
    n = int(counts.sum())
    if first in (0, n):
        return _end(counts, chances, first == 0), np.array([2.0**-44 * n]), first + 1
    tilt = _tilt(counts, chances, first)
    tilted = expit(logit(chances) + tilt)
    deviation = math.sqrt(float((counts * tilted * (1 - tilted)).sum()))
    reached = min(stop, n, first + max(1, int(_REACH * deviation)))
    points = max(_LEAST_POINTS, 1 << math.ceil(math.log2(_WIDTH * deviation + 16)))
    law, noise = _transform(counts, tilted, first, points)
    wanted = law[: reached - first]
    # log M(s) = sum of counts log(1 - p + p e^s), stable for either sign of s.
    moment = float((counts * np.logaddexp(np.log1p(-chances), np.log(chances) + tilt)).sum())
    with np.errstate(divide="ignore", invalid="ignore"):
        values = np.log(np.maximum(wanted, 0)) + moment - tilt * np.arange(first, reached)
        error = noise / wanted + 2.0**-45 * (abs(moment) + abs(tilt) * reached + 16)
    return values, np.where(wanted > noise, error, np.inf), reached


def _end(counts: Counts, chances: Array, none: bool) -> Array:
    logs = np.log1p(-chances) if none else np.log(chances)
    return np.array([float((counts * logs).sum())])


def _tilt(counts: Counts, chances: Array, mean: int) -> float:
    odds = logit(chances)

    def off(tilt: float) -> float:
        return float((counts * expit(odds + tilt)).sum()) - mean

    return float(brentq(off, -_FARTHEST - odds.max(), _FARTHEST - odds.min(), xtol=1e-10))


def _transform(counts: Counts, tilted: Array, first: int, points: int) -> tuple[Array, float]:
    """Return probabilities of first, first + 1, ... and their absolute error.

    What is farther than points / 2 from the mean wraps round: less than 2 exp(-points^2 / (8 v +
    4 points / 3)), Bernstein's inequality; with 40 standard deviations below 1e-40.
    """
    angles = 2 * math.pi * np.arange(points // 2 + 1) / points
    turned = np.exp(1j * angles) - 1
    log_law = np.zeros(len(angles), dtype=np.complex128)
    for count, p in zip(counts.tolist(), tilted.tolist(), strict=True):
        log_law += count * np.log1p(p * turned)
    # Centre on `first`, so that the angle of every term stays small: less rounding.
    law = fft.irfft(np.conj(np.exp(log_law - 1j * first * angles)), points)
    size = float(np.abs(log_law).max()) + math.pi * first
    weight = np.exp(log_law.real)
    noise = 2.0**-51 * float(((np.abs(log_law) + angles * first + 8) * weight).sum()) / points
    return law, 8 * noise + 2.0**-52 * size * 2.0**-52
