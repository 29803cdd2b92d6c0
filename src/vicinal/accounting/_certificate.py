r"""Certificates of tightness: an epsilon that a plan cannot be better than.

A *witness* of a release is a pair of laws that some two neighbouring data sets really give (a fixed
largest vote for screening, a full step for a Gaussian), or a coarsening of them. The composed
divergence of the witnesses is a lower bound on delta(epsilon) of the plan, so the epsilon at which
it crosses delta bounds epsilon from below. Sampling and composition are exact in it, against
somebody who knows all others' coins (as in every analysis of sampling); what is left
between it and the upper bound is the price of Rényi orders, or of an adversary who would change the
data from answer to answer.

Arithmetic, rounded down. Outcomes are merged into finitely many (a coarsening: less divergence).
Each loss is rounded down to the grid, loss = g + f with 0 <= f < h; the sum of all f is at least
its mean less h (sqrt(2 V l) + l/3), V h^2 its variance, except with probability e^-l (Bernstein),
which is subtracted from delta. Two outcomes repeated n times are n + 1 outcomes with binomial
weights, rounded once. What wraps round in the transform, and its rounding errors, are subtracted
too.
"""

import dataclasses
import math
from collections.abc import Sequence

import numpy as np
from scipy.special import gammaln, log_ndtr, ndtr

from vicinal.accounting._divergence import mixed_ratio, tail_ratios
from vicinal.accounting.pld import chernoff_window, fast_length, spectral_power
from vicinal.arrays import Floats

_POINTS = (1 << 15, 1 << 18)
_MANY = 1000
_CELLS = 4000
_REACH = 9.0
_LARGEST = 600.0
_SMALLEST = 1e-290
_SAFETY = 1 - 1e-9
_ROUNDING = 8 * 2.0**-53


@dataclasses.dataclass(frozen=True)
class WorstCasePair:
    """Finitely many outcomes of `count` equal releases: masses with the subject, and log ratios.

    `masses` may sum to less than 1; `losses` are log(probability with / probability without).
    """

    masses: Floats
    losses: Floats
    count: int


def gaussian_worst_case(mu: float, gamma: float, count: int) -> WorstCasePair:
    """Return the witness of `count` sampled Gaussian releases that a subject moves by a full step.

    Without sampling they are one release with mu sqrt(count).
    """
    if gamma == 1:
        mu, count = mu * math.sqrt(count), 1
    edges = np.linspace(-_REACH, _REACH + mu, _CELLS + math.ceil(_CELLS * mu / 18))
    log_without = _log_cells(edges)
    ratio = _log_cells(edges - mu) - log_without
    losses = mixed_ratio(ratio, gamma)
    return WorstCasePair(np.exp(log_without + losses), losses, count)


def _log_cells(edges: Floats) -> Floats:
    """Return log of the normal mass between consecutive `edges`, precise in both tails."""
    left, right = edges[:-1], edges[1:]
    flip = left > 0
    low, high = np.where(flip, -right, left), np.where(flip, -left, right)
    return np.asarray(log_ndtr(high) + np.log(-np.expm1(log_ndtr(low) - log_ndtr(high))))


def threshold_worst_case(position: float, shift: float, gamma: float, count: int) -> WorstCasePair:
    """Return the witness of `count` answers Bernoulli(Phi(position)), moved by `shift` > 0.

    Without outcomes where a pass is too rare for doubles.
    """
    up, down = tail_ratios(np.array([position]), shift)
    losses = np.array([mixed_ratio(up, gamma)[0], mixed_ratio(down, gamma)[0]])
    passed = float(ndtr(position)) * math.exp(losses[0])
    if passed < _SMALLEST:
        return WorstCasePair(np.empty(0), np.empty(0), 1)
    passed = min(passed, 1 - 2.0**-53)
    middle, reach = count * passed, 40 * math.sqrt(count * passed * (1 - passed)) + 100
    first, last = max(0, int(middle - reach)), min(count, int(middle + reach))
    wins = np.arange(first, last + 1).astype(np.float64)
    total = wins * losses[0] + (count - wins) * losses[1]
    return WorstCasePair(_binomial(wins, count, passed), total, 1)


def _binomial(wins: Floats, count: int, passed: float) -> Floats:
    """Return the binomial probabilities of `wins`, rounded down: gammaln errs by 1e-15."""
    choices = gammaln(count + 1) - gammaln(wins + 1) - gammaln(count - wins + 1)
    log_mass = choices + wins * math.log(passed) + (count - wins) * math.log1p(-passed)
    return np.asarray(np.exp(log_mass - 1e-14 * (1 + count * math.log1p(count))))


def lower_epsilon(witnesses: Sequence[WorstCasePair], delta: float) -> float:
    """Return an epsilon >= 0 that the composition of `witnesses` cannot go below at `delta`."""
    # A release that is left out can only lower the bound; one with a single outcome tells nothing.
    usable = [finite for witness in witnesses if len((finite := _finite(witness)).masses) > 1]
    if not usable:
        return 0.0
    step, start, masses, error = _compose(usable, delta * 1e-4)
    first = max(0, math.ceil(-start / step) + 1)
    losses = start + step * np.arange(first, len(masses))
    mass = masses[first:]
    # An epsilon beyond this is not looked for: e^epsilon would overflow.
    n_exact = int(np.searchsorted(losses, _LARGEST))
    upper = np.cumsum(mass[::-1])[::-1][:n_exact]
    lower = np.cumsum((mass * np.exp(-losses))[::-1])[::-1][:n_exact]
    divergence = (upper - np.exp(losses[:n_exact]) * lower) * _SAFETY - error
    above = np.flatnonzero(divergence >= delta)
    return max(0.0, float(losses[above[-1]])) * _SAFETY if len(above) else 0.0


def _finite(witness: WorstCasePair) -> WorstCasePair:
    usable = np.isfinite(witness.losses) & (witness.masses > 0)
    return WorstCasePair(witness.masses[usable], witness.losses[usable], witness.count)


def _compose(witnesses: Sequence[WorstCasePair], tail: float) -> tuple[float, float, Floats, float]:
    """Return (step, first loss, masses, error): the sum of all losses, rounded down."""
    low, high = _window(witnesses, tail)
    count = sum(witness.count for witness in witnesses)
    # What rounding to cells costs grows with the root of the count.
    least, most = _POINTS
    points = max(least, int(most * min(1.0, math.sqrt(count / _MANY))))
    step = (high - low) / points
    # Room for the deviation of the fractions from their mean, twice: at most half a cell each.
    slack = 2 * math.ceil(math.sqrt(-count * math.log(tail) / 2) - math.log(tail))
    # A release made once is rounded down by at most one cell, of which nothing is given back.
    singles = sum(witness.count == 1 for witness in witnesses)
    size = fast_length(points + slack + singles + 2)
    spectrum = np.ones(size // 2 + 1, dtype=np.complex128)
    base, mean, variance = 0, 0.0, 0.0
    for witness in witnesses:
        places = np.floor(witness.losses / step).astype(np.int64)
        residues = witness.losses / step - places
        # Losses far beyond the window wrap round at once: their cells are never all written out.
        cells = np.bincount((places - places.min()) % size, witness.masses, size)
        spectrum = spectrum * spectral_power(np.fft.rfft(cells), witness.count)
        base += witness.count * int(places.min())
        if witness.count > 1:
            expected = float(witness.masses @ residues) / float(witness.masses.sum())
            mean += witness.count * expected
            spread = float(witness.masses @ (residues - expected) ** 2)
            variance += witness.count * spread / float(witness.masses.sum())
    depth = -math.log(tail)
    missing = math.sqrt(2 * variance * depth) + depth / 3 if variance else 0.0
    first = math.floor(low / step - mean - missing) - singles
    norm = math.sqrt(2) * float(np.linalg.norm(spectrum))
    error = 4 * tail + _ROUNDING * (count + math.log2(size)) * norm
    masses = np.roll(np.fft.irfft(spectrum, size), (base - first) % size)
    return step, step * (first + mean - missing), np.maximum(masses, 0.0), error


def _window(witnesses: Sequence[WorstCasePair], tail: float) -> tuple[float, float]:
    """Return bounds that the sum of the losses leaves with probability at most `tail` each."""
    variance = 0.0
    for witness in witnesses:
        mean = float(witness.masses @ witness.losses)
        variance += witness.count * float(witness.masses @ (witness.losses - mean) ** 2)
    laws = [(witness.losses, witness.masses, witness.count) for witness in witnesses]
    return chernoff_window(laws, math.sqrt(variance), tail)
