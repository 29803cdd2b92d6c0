r"""Lower bounds: an epsilon that no analysis of a plan can go below.

An *attained pair* of a release is a pair of output distributions that two neighbouring data sets
attain (a fixed largest vote count for screening, a move by the whole sensitivity for a Gaussian),
or a coarsening of such a pair. The composed hockey-stick divergence of the attained pairs is a
lower bound on delta(epsilon) of the plan, so the epsilon at which it crosses delta is a lower bound
on the plan's epsilon. Sampling and composition are exact in it, against an attacker who knows the
sampling coins of all other subjects (as in every analysis of sampling). The gap to the upper bound
is the cost of Rényi orders, or of an adversary who changes the data between answers.

Arithmetic, rounded down. Outcomes are merged into finitely many (a coarsening: less divergence).
Each loss is rounded down to the grid, loss = g + f with 0 <= f < h; the sum of all f is at least
its mean less h (sqrt(2 V l) + l/3), V h^2 its variance, except with probability e^-l (Bernstein),
which is subtracted from delta. Two outcomes repeated n times are n + 1 outcomes with binomial
weights, rounded once. The mass that wraps around in the transform and the transform's rounding
errors are subtracted too.

`gamma`, everywhere in this module: the probability of Poisson sampling; 1 is no sampling.
"""

import dataclasses
import math
from collections.abc import Sequence

import numpy as np
from scipy.special import gammaln, log_ndtr, ndtr

from vicinal.accounting._divergence import compute_log_tail_ratios, subsample_log_ratio
from vicinal.accounting.pld import (
    FFT_ERROR,
    compute_chernoff_bounds,
    compute_spectrum_power,
    round_up_fft_length,
)
from vicinal.arrays import Floats

# Grid points of the composed loss: the smallest and the largest number.
_MIN_POINTS = 1 << 15
_MAX_POINTS = 1 << 18
_FULL_GRID_COUNT = 1000  # Number of releases from which the grid has its largest number of points
_GAUSSIAN_CELLS = 4000  # Intervals into which a standard normal is discretized
# Standard deviations at which a normal is cut; its mass beyond is dropped (2e-19).
_GAUSSIAN_REACH = 9.0
# Losses above this are not searched: e^epsilon would come close to the largest double, e^709.
_MAX_EPSILON = 600.0
# Probability of passing below which a threshold test is dropped: too close to underflow.
_MIN_PROBABILITY = 1e-290
_MAX_EXPONENT = 700.0  # Losses above this are not exponentiated: e^709 is the largest double
_ROUNDED_DOWN = 1 - 1e-9  # Factor on bounds: far more than their rounding errors


@dataclasses.dataclass(frozen=True)
class AttainedPair:
    """Output distributions of `count` equal releases, which neighbouring data sets attain.

    `masses` (m,): probabilities of the m outcomes of one release with the subject; they may sum to
    less than 1. `losses` (m,): log(probability with the subject / probability without).
    """

    masses: Floats
    losses: Floats
    count: int


def build_gaussian_pair(mu: float, gamma: float, count: int) -> AttainedPair:
    """Return the pair of `count` Gaussian releases that a subject moves by the whole sensitivity.

    Outcomes are discretized; without sampling the releases are merged into one. `mu`: sensitivity
    over noise scale.
    """
    if gamma == 1:
        mu = mu * math.sqrt(count)
        count = 1
    edges = np.linspace(
        -_GAUSSIAN_REACH,
        _GAUSSIAN_REACH + mu,
        _GAUSSIAN_CELLS + math.ceil(_GAUSSIAN_CELLS * mu / 18),
    )
    log_masses_without = _compute_log_normal_masses(edges)
    log_ratios = _compute_log_normal_masses(edges - mu) - log_masses_without
    losses = subsample_log_ratio(log_ratios, gamma)
    return AttainedPair(np.exp(log_masses_without + losses), losses, count)


def _compute_log_normal_masses(edges: Floats) -> Floats:
    """Return log probabilities (m,) of N(0, 1) between consecutive ascending `edges` (m + 1,)."""
    # Intervals right of 0 are mirrored, so that both tails are precise.
    is_mirrored = edges[:-1] > 0
    low = np.where(is_mirrored, -edges[1:], edges[:-1])
    high = np.where(is_mirrored, -edges[:-1], edges[1:])
    return np.asarray(log_ndtr(high) + np.log(-np.expm1(log_ndtr(low) - log_ndtr(high))))


def build_threshold_test_pair(
    margin: float, shift: float, gamma: float, count: int
) -> AttainedPair:
    """Return the pair of `count` threshold tests, as one release of the number of passed tests.

    A test is passed with probability Phi(`margin`) without the subject and Phi(`margin` + `shift`)
    with it; both in noise scales, `shift` > 0. If passing is too rare for doubles, the pair has no
    outcomes.
    """
    pass_ratio, fail_ratio = compute_log_tail_ratios(np.array([margin]), shift)
    losses = np.array(
        [subsample_log_ratio(pass_ratio, gamma)[0], subsample_log_ratio(fail_ratio, gamma)[0]]
    )
    if losses[0] > _MAX_EXPONENT:
        pass_probability = math.exp(min(float(log_ndtr(margin)) + losses[0], 0.0))
    else:
        pass_probability = float(ndtr(margin)) * math.exp(losses[0])
    if pass_probability < _MIN_PROBABILITY:
        return AttainedPair(np.empty(0), np.empty(0), 1)
    pass_probability = min(pass_probability, 1 - 2.0**-53)
    # Numbers of passes further from the mean than 40 standard deviations are dropped.
    mean = count * pass_probability
    reach = 40 * math.sqrt(count * pass_probability * (1 - pass_probability)) + 100
    first, last = max(0, int(mean - reach)), min(count, int(mean + reach))
    n_passes = np.arange(first, last + 1).astype(np.float64)
    total_losses = n_passes * losses[0] + (count - n_passes) * losses[1]
    # Binomial probabilities, rounded down: gammaln has relative errors of 1e-15.
    log_choices = gammaln(count + 1) - gammaln(n_passes + 1) - gammaln(count - n_passes + 1)
    log_masses = (
        log_choices
        + n_passes * math.log(pass_probability)
        + (count - n_passes) * math.log1p(-pass_probability)
    )
    masses = np.exp(log_masses - 1e-14 * (1 + count * math.log1p(count)))
    return AttainedPair(masses, total_losses, 1)


def compute_lower_epsilon(pairs: Sequence[AttainedPair], delta: float) -> float:
    """Return a lower bound >= 0 on epsilon of the composition of all `pairs` at `delta`."""
    # Dropping an outcome of infinite loss, or a release, can only lower the bound. Pairs with a
    # single remaining outcome are dropped, because one outcome has no grid.
    informative_pairs = []
    for pair in pairs:
        is_usable = np.isfinite(pair.losses) & (pair.masses > 0)
        if is_usable.sum() > 1:
            finite_pair = AttainedPair(pair.masses[is_usable], pair.losses[is_usable], pair.count)
            informative_pairs.append(finite_pair)
    if not informative_pairs:
        return 0.0
    total = _compose_rounded_down(informative_pairs, delta * 1e-4)
    first = max(0, math.ceil(-total.first_loss / total.step) + 1)
    losses = total.first_loss + total.step * np.arange(first, len(total.masses))
    mass = total.masses[first:]
    n_searched = int(np.searchsorted(losses, _MAX_EPSILON))
    # The divergence at each loss is sum over larger losses of P - e^epsilon Q.
    mass_with = np.cumsum(mass[::-1])[::-1][:n_searched]
    mass_without = np.cumsum((mass * np.exp(-losses))[::-1])[::-1][:n_searched]
    divergence = (mass_with - np.exp(losses[:n_searched]) * mass_without) * _ROUNDED_DOWN
    excluded = np.flatnonzero(divergence - total.error >= delta)
    return max(0.0, float(losses[excluded[-1]])) * _ROUNDED_DOWN if len(excluded) else 0.0


@dataclasses.dataclass(frozen=True)
class _RoundedLosses:
    """The distribution of a privacy loss: `masses` (n,) of the losses `first_loss` + i `step`.

    All are rounded down. `error`: the absolute error of a divergence computed from them.
    """

    step: float
    first_loss: float
    masses: Floats
    error: float


def _compose_rounded_down(
    pairs: Sequence[AttainedPair], failure_probability: float
) -> _RoundedLosses:
    """Return the distribution of the sum of all losses of the composed pairs, rounded down.

    `failure_probability`: of each of the bounds on the sum (Chernoff, Hoeffding, Bernstein).
    """
    variance = 0.0
    for pair in pairs:
        mean = float(pair.masses @ pair.losses)
        variance += pair.count * float(pair.masses @ (pair.losses - mean) ** 2)
    distributions = [(pair.losses, pair.masses, pair.count) for pair in pairs]
    low, high = compute_chernoff_bounds(distributions, math.sqrt(variance), failure_probability)
    n_releases = sum(pair.count for pair in pairs)
    # The error of rounding losses to the grid grows with the square root of their number.
    points = max(_MIN_POINTS, int(_MAX_POINTS * min(1.0, math.sqrt(n_releases / _FULL_GRID_COUNT))))
    step = (high - low) / points
    # Twice the deviation of the sum of fractions f from its mean, each at most half a cell.
    depth = -math.log(failure_probability)
    slack = 2 * math.ceil(math.sqrt(n_releases * depth / 2) + depth)
    # A release made once is rounded down by at most one cell; its mean fraction is not added back.
    n_single = sum(pair.count == 1 for pair in pairs)
    size = round_up_fft_length(points + slack + n_single + 2)
    spectrum = np.ones(size // 2 + 1, dtype=np.complex128)
    first_cell = 0
    mean_fraction, fraction_variance = 0.0, 0.0
    for pair in pairs:
        cells = np.floor(pair.losses / step).astype(np.int64)
        fractions = pair.losses / step - cells
        # Losses far beyond the range wrap around here, so no array is longer than `size`.
        cell_masses = np.bincount((cells - cells.min()) % size, pair.masses, size)
        spectrum = spectrum * compute_spectrum_power(np.fft.rfft(cell_masses), pair.count)
        first_cell += pair.count * int(cells.min())
        if pair.count > 1:
            mean = float(pair.masses @ fractions) / float(pair.masses.sum())
            mean_fraction += pair.count * mean
            square_deviation = float(pair.masses @ (fractions - mean) ** 2)
            fraction_variance += pair.count * square_deviation / float(pair.masses.sum())
    # Bernstein: the sum of fractions is below its mean by more than this if the bound fails.
    deviation = 0.0
    if fraction_variance:
        deviation = math.sqrt(2 * fraction_variance * depth) + depth / 3
    grid_start = math.floor(low / step - mean_fraction - deviation) - n_single
    norm = math.sqrt(2) * float(np.linalg.norm(spectrum))
    error = 4 * failure_probability + FFT_ERROR * (n_releases + math.log2(size)) * norm
    masses = np.roll(np.fft.irfft(spectrum, size), (first_cell - grid_start) % size)
    first_loss = step * (grid_start + mean_fraction - deviation)
    return _RoundedLosses(step, first_loss, np.maximum(masses, 0.0), error)
