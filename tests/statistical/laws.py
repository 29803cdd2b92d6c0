"""Checks of draws against the discrete Gaussian: p-values that broken controls must push down."""

import numpy as np
from scipy.special import ndtr, ndtri
from scipy.stats import binomtest, chi2, norm

from statistical.power import LAW_DRAWS, LEAST_EXPECTED
from vicinal.noise.source import MAX_SCALE

FINE = 1 << 22
LAGS = (1, 2, 10)


def integer_law(scale):
    """Return cells of single integers, tails merged: (upper ends, probabilities)."""
    x = np.arange(-60 * scale, 60 * scale + 1)
    mass = np.exp(-((x / scale) ** 2) / 2)
    mass /= mass.sum()
    ends = x[mass * LAW_DRAWS >= LEAST_EXPECTED][:-1]
    return ends, cell_probabilities(ends, lambda end: mass[x <= end].sum())


def quantile_law(scale, cells=64):
    """Return `cells` cells of about equal probability at a large scale.

    By Euler and Maclaurin, P(X <= e) is that of the limit at (e + 1/2) / scale, up to 1 / scale^2.
    """
    ends = np.round(scale * ndtri(np.arange(1, cells) / cells)).astype(np.int64)
    return ends, cell_probabilities(ends, lambda end: float(ndtr((end + 0.5) / scale)))


def cell_probabilities(ends, cumulative):
    below = np.array([0.0, *(cumulative(end) for end in ends), 1.0])
    return np.diff(below)


def cells_of(scale):
    """Return the cells that a chi-square test of the law at `scale` counts in."""
    return integer_law(scale) if scale < 100 else quantile_law(scale)


def cells_p(draws, cells):
    """Return the p-value of Pearson's chi-square over `cells`."""
    ends, probabilities = cells
    found = np.bincount(np.searchsorted(ends, draws), minlength=len(probabilities))
    expected = probabilities * len(draws)
    assert expected.min() >= LEAST_EXPECTED / 2
    return float(chi2.sf(((found - expected) ** 2 / expected).sum(), len(expected) - 1))


def normal_scores(draws, scale):
    """Return the draws of a large scale as standard normals, so that all laws share the checks."""
    return ndtri(ndtr((draws + 0.5) / scale))


def moments_p(draws, scale):
    """Return the smaller p-value of the first two moments.

    At small scales of the discrete Gaussian itself: its moments are 0 and scale^2, up to a share of
    80 exp(-2 pi^2 scale^2) < 3e-7 of the latter.
    """
    unit = draws / scale
    centre = unit.mean() * np.sqrt(len(unit))
    spread = (np.square(unit).mean() - 1) * np.sqrt(len(unit) / 2)
    return min(two_sided(centre), two_sided(spread))


def tails_p(draws, scale):
    """Return the p-value of the number of draws in each tail of probability 1/1000."""
    beyond = int(np.ceil(-ndtri(np.array(1e-3)) * scale))
    if scale < 100:
        x = np.arange(-60 * scale, 60 * scale + 1)
        mass = np.exp(-((x / scale) ** 2) / 2)
        chance = float(mass[x >= beyond].sum() / mass.sum())
    else:
        chance = float(ndtr(np.array((0.5 - beyond) / scale)))
    sides = (draws >= beyond, draws <= -beyond)
    return min(float(binomtest(int(side.sum()), len(draws), chance).pvalue) for side in sides)


def two_sided(z):
    return float(2 * norm.sf(abs(z)))


def low_bits_p(draws):
    """Return the p-value of a uniform lowest byte, as at any scale far above 256."""
    found = np.bincount(draws & 255, minlength=256)
    expected = len(draws) / 256
    return float(chi2.sf(((found - expected) ** 2 / expected).sum(), 255))


def law_p(source, scale, size):
    """Return the smallest p-value of all checks of one scale, after checking the type."""
    draws = source.discrete_gaussian(scale, size)
    assert draws.dtype == np.int64, "draws live on the integer grid"
    assert draws.shape == (size,)
    found = [cells_p(draws, cells_of(scale)), tails_p(draws, scale), moments_p(draws, scale)]
    if scale >= 100:
        found.append(low_bits_p(draws))
    return min(found)


def dependence_p(source, size):
    """Return the smallest p-value of correlations: neighbours, and the same place in two calls.

    Values and their squares; under independence every mean of products is normal, 0 on average.
    """
    first, second = (normal_scores(source.discrete_gaussian(FINE, size), FINE) for _ in range(2))
    pairs = [(first[:-lag], first[lag:]) for lag in LAGS] + [(first, second)]
    found = []
    for a, b in pairs:
        found.append(two_sided((a * b).mean() * np.sqrt(len(a))))
        found.append(two_sided(((a**2 - 1) * (b**2 - 1)).mean() / 2 * np.sqrt(len(a))))
    return min(found)


def coincidence_p(source, size):
    """Return the p-value of equal draws at any distance, within and between two calls.

    At scale 2^40 two of `size` independent draws agree with probability of order 2^-40 a pair, so
    hardly ever; whatever repeats a stretch of noise agrees thousands of times.
    """
    draws = np.concatenate([source.discrete_gaussian(MAX_SCALE, size // 2) for _ in range(2)])
    agreeing = len(draws) - len(np.unique(draws))
    pairs = len(draws) * (len(draws) - 1) / 2
    expected = pairs * (1 / (2 * np.sqrt(np.pi))) / MAX_SCALE
    return 1.0 if agreeing == 0 else float(expected**agreeing)
