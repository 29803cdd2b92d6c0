r"""Privacy loss distributions: dominating pairs on a grid, composed by one Fourier transform.

Grid. H is convex in x = e^eps. Joining its values at the grid points eps_i = i h by straight lines
in x gives a larger convex function, which is the profile of a discrete pair: the law Q has mass
"change of slope at x_i", P has x_i times that, and what is left above the last point is infinite
loss (connect the dots: Doroshenko, Ghazi, Kamath, Kumar & Manurangsi 2022). It dominates, and
composition keeps domination (Zhu, Dong & Wang 2022, Theorem 10), also adaptively. The grid is fine
enough that all roundings together widen the loss by a relative 3e-5 or so, and both the release
grids and the window of the transform leave out at most a stated mass, which is added to delta.

Transform. The mass of the sum of all losses is the inverse transform of the product of powers.
Mass below the window wraps round to its top (more loss: safe); mass above it is bounded by Chernoff
and counted as infinite loss. Rounding errors of the transform are estimated from the norm of the
spectrum and added to delta, too.
"""

import dataclasses
import math
from collections.abc import Sequence

import numpy as np

from vicinal.accounting._divergence import GaussianPair, Pair
from vicinal.arrays import Complexes, Floats

_WIDENING = 3e-5
_MAX_POINTS = 1 << 20
_COARSE = 1024
_SAFETY = 1 + 1e-9
_ROUNDING = 8 * 2.0**-53
# In units of one over the spread, for sums of many losses; and as they are, for a few rare ones.
_RATES = np.geomspace(0.2, 50, 16)
_RARE_RATES = np.geomspace(0.05, 50, 16)
_LEAST_SPREAD = 1e-12
_SHAPE = np.append(0.0, np.geomspace(1e-5, 1, 400))
# Ends of a grid are looked for among these. A pair that reaches further protects next to nothing.
_LARGEST = 600.0
_SIZES = np.append(np.geomspace(1e-13, _LARGEST, 500)[:-1], _LARGEST)


@dataclasses.dataclass(frozen=True)
class LossMass:
    """The law of one release's loss under P on the grid (first + i) h, and beyond it."""

    first: int
    probabilities: Floats
    infinite: float


def pld_epsilon(pairs: Sequence[tuple[Pair, int]], delta: float) -> float:
    """Return epsilon >= 0 of all `pairs`, each with its count, at `delta`; infinite if none holds.

    The larger of both directions, rounded up.
    """
    totals = composed_losses(pairs, max(delta * 1e-6, 1e-18))
    return max(total.epsilon(delta) for total in totals) if totals else math.inf


@dataclasses.dataclass(frozen=True)
class ComposedLoss:
    """The composed loss: probabilities at losses (first + i) h, and a mass of infinite loss."""

    step: float
    first: int
    probabilities: Floats
    infinite: float

    def delta(self, epsilon: float) -> float:
        """Return the hockey-stick divergence at `epsilon`."""
        losses = self.step * (self.first + np.arange(len(self.probabilities)))
        above = losses > epsilon
        gains = -np.expm1(epsilon - losses[above]) * self.probabilities[above]
        return (float(gains.sum()) + self.infinite) * _SAFETY

    def epsilon(self, delta: float) -> float:
        """Return the least epsilon >= 0 whose divergence is at most `delta`; infinite if far."""
        if self.infinite * _SAFETY >= delta:
            return math.inf
        if self.delta(0.0) <= delta:
            return 0.0
        start = max(0, 1 - self.first)
        losses = self.step * (self.first + np.arange(start, len(self.probabilities)))
        mass = self.probabilities[start:]
        upper = np.cumsum(mass[::-1])[::-1] + self.infinite
        lower = np.cumsum((mass * np.exp(-losses))[::-1])[::-1]
        # At every loss, and between it and the one before, only what lies at or above it counts.
        near = int(np.searchsorted(losses, _LARGEST))
        divergence = (upper[:near] - np.exp(losses[:near]) * lower[:near]) * _SAFETY
        affordable = divergence <= delta
        if not affordable.any():
            return math.inf
        place = int(np.argmax(affordable))
        root = math.log((upper[place] - delta / _SAFETY) / lower[place])
        return max(0.0, root) * _SAFETY


def composed_losses(pairs: Sequence[tuple[Pair, int]], tail: float) -> list[ComposedLoss]:
    """Return the composed loss, in both directions unless they are equal; none if out of range."""
    merged = _merge_gaussians(pairs)
    counts = [count for _, count in merged]
    ranges = [_range(pair, tail / (4 * sum(counts))) for pair, _ in merged]
    spread = _spread(merged, ranges)
    if spread**2 > _LARGEST or any(max(high, -low) == _LARGEST for low, high in ranges):
        return []
    step = _step(spread, sum(counts), ranges)
    directions = (False,) if all(pair.symmetric for pair, _ in merged) else (False, True)
    totals = []
    for mirrored in directions:
        masses = [
            _mass(pair, span, step, mirrored and not pair.symmetric)
            for (pair, _), span in zip(merged, ranges, strict=True)
        ]
        totals.append(_convolve(masses, counts, step, spread, tail))
    return totals


def _merge_gaussians(pairs: Sequence[tuple[Pair, int]]) -> list[tuple[Pair, int]]:
    """Return the same composition with all plain Gaussian pairs made one: mu adds up in squares."""
    square = math.fsum(n * mu**2 for pair, n in pairs if (mu := pair.gaussian()) is not None)
    others = [(pair, n) for pair, n in pairs if pair.gaussian() is None]
    return [(GaussianPair(math.sqrt(square)), 1), *others] if square else others


def _range(pair: Pair, tail: float) -> tuple[float, float]:
    """Return the losses beyond which the excess is at most `tail`, in either direction.

    Beside the mass of infinite loss, which stays however far the grid goes.
    """
    first, second = pair.missing
    high = _first_beyond(pair.excess(_SIZES) - first, tail)
    if pair.symmetric:
        return -high, high
    return -_first_beyond(np.exp(_SIZES) * pair.excess(-_SIZES) - second, tail), high


def _first_beyond(excess: Floats, tail: float) -> float:
    """Return the first of the sizes whose excess is at most `tail`; the last if none is."""
    small = excess <= tail
    return float(_SIZES[int(np.argmax(small))]) if small.any() else _LARGEST


def _spread(pairs: Sequence[tuple[Pair, int]], ranges: Sequence[tuple[float, float]]) -> float:
    """Return about the standard deviation of the whole loss.

    A loss has a variance of about twice its Kullback-Leibler divergence, which is the integral of
    the excess over all real eps.
    """
    variance = 0.0
    for (pair, count), span in zip(pairs, ranges, strict=True):
        for end in span:
            points = np.asarray(end * _SHAPE, dtype=np.float64)
            variance += 2 * count * abs(float(np.trapezoid(pair.excess(points), points)))
    return math.sqrt(variance)


def _step(spread: float, count: int, ranges: Sequence[tuple[float, float]]) -> float:
    """Return the grid step h: rounding adds at most h^2/4 to the variance of each loss."""
    reach = max(20 * spread + 2 * spread**2, *(2 * (high - low) for low, high in ranges))
    return max(spread * math.sqrt(8 * _WIDENING / count), reach / _MAX_POINTS)


def _mass(pair: Pair, span: tuple[float, float], step: float, mirrored: bool) -> LossMass:
    """Return the law of the loss of (P, Q), or of (Q, P), by joining the dots of its profile.

    In terms of the excess C the mass at x_i = e^(i h) is (C_{i+1} - C_i - e^h (C_i - C_{i-1})) /
    (e^h - 1), plus 1 at x = 1, where max(0, 1 - x) has its kink. Below the first point the profile
    is replaced by the line from x = 0.
    """
    low, high = (-span[1], -span[0]) if mirrored else span
    first, last = math.floor(low / step), math.ceil(high / step)
    losses = np.asarray(step * np.arange(first, last + 1), dtype=np.float64)
    excess = np.exp(losses) * pair.excess(-losses) if mirrored else pair.excess(losses)
    rise = np.diff(excess) / math.expm1(step)
    mass = np.append(rise, 0.0) - math.exp(step) * np.insert(rise, 0, 0.0)
    mass[0] = rise[0] - excess[0]
    mass[-first] += 1
    return LossMass(first, np.maximum(mass, 0.0), float(excess[-1]))


def _convolve(
    masses: Sequence[LossMass], counts: Sequence[int], step: float, spread: float, tail: float
) -> ComposedLoss:
    """Return the law of the sum, with all that was left out counted as infinite loss."""
    low, high = _window(masses, counts, step, spread, tail)
    start = math.floor(low / step)
    size = fast_length(math.ceil(high / step) - start + 2)
    spectrum = np.ones(size // 2 + 1, dtype=np.complex128)
    base, infinite = 0, tail
    for mass, count in zip(masses, counts, strict=True):
        spectrum *= spectral_power(np.fft.rfft(folded(mass.probabilities, size)), count)
        base += count * mass.first
        infinite += count * mass.infinite
    norm = math.sqrt(2) * float(np.linalg.norm(spectrum))
    infinite += _ROUNDING * (sum(counts) + math.log2(size)) * norm
    wrapped = np.roll(np.fft.irfft(spectrum, size), (base - start) % size)
    return ComposedLoss(step, start, np.maximum(wrapped, 0.0), infinite)


def fast_length(least: int) -> int:
    """Return the smallest size from `least` on with no prime factor above 5: transforms are fast.

    numpy's transforms give the same bits as scipy's, whose import costs .05 s.
    """
    best, fives = 1 << (least - 1).bit_length(), 1
    while fives < best:
        threes = fives
        while threes < best:
            best = min(best, threes << max(0, (-(-least // threes) - 1).bit_length()))
            threes *= 3
        fives *= 5
    return best


def spectral_power(spectrum: Complexes, count: int) -> Complexes:
    """Return `spectrum` to the power `count` >= 1; powers below 1e-40 are zero.

    Most are, when count is large, and a complex power is slow.
    """
    if count == 1:
        return spectrum
    square = spectrum.real**2 + spectrum.imag**2
    significant = square > 10.0 ** (-80 / count)
    result = np.zeros_like(spectrum)
    result[significant] = spectrum[significant] ** count
    return result


def folded(values: Floats, size: int) -> Floats:
    """Return `values` added up modulo `size`, as (size,)."""
    padded = np.zeros(-(-len(values) // size) * size)
    padded[: len(values)] = values
    return np.asarray(padded.reshape(-1, size).sum(axis=0))


def _window(
    masses: Sequence[LossMass], counts: Sequence[int], step: float, spread: float, tail: float
) -> tuple[float, float]:
    """Return bounds that the sum stays between but for a mass of `tail` on either side.

    Chernoff: P(sum > u) <= exp(K(r) - r u) for every r > 0, K the logarithm of the moment function.
    """
    laws = [
        (*_spread_out(step * mass.first, step, mass.probabilities), count)
        for mass, count in zip(masses, counts, strict=True)
    ]
    low, high = chernoff_window(laws, spread, tail)
    return low, max(high, low + step)


def chernoff_window(
    laws: Sequence[tuple[Floats, Floats, int]], spread: float, tail: float
) -> tuple[float, float]:
    """Return bounds that a sum of standard deviation `spread` leaves with probability `tail` each.

    A law is losses, masses, and how many such losses are added up.
    """
    rates = np.concatenate([_RATES / max(spread, _LEAST_SPREAD), _RARE_RATES])
    above = sum(count * _log_moments(losses, masses, rates) for losses, masses, count in laws)
    below = sum(count * _log_moments(losses, masses, -rates) for losses, masses, count in laws)
    depth = -math.log(tail)
    return float(-((below + depth) / rates).min()), float(((above + depth) / rates).min())


def _spread_out(first: float, step: float, probabilities: Floats) -> tuple[Floats, Floats]:
    """Return losses and masses on a coarser grid, every mass shared by the two points around it.

    The mean stays, so the mean of every convex function (a moment) can only grow.
    """
    width = -(-len(probabilities) // _COARSE)
    index, place = np.divmod(np.arange(len(probabilities)), width)
    size = int(index[-1]) + 2
    coarse = np.bincount(index, probabilities * (1 - place / width), size)
    coarse += np.bincount(index + 1, probabilities * (place / width), size)
    return np.asarray(first + step * width * np.arange(size)), np.asarray(coarse, dtype=np.float64)


def _log_moments(losses: Floats, probabilities: Floats, rates: Floats) -> Floats:
    """Return log of the sum of p e^{r loss} at every rate r (m,), as (m,)."""
    tops = np.maximum(rates * losses.min(), rates * losses.max())
    return np.array(
        [
            top + math.log(float(probabilities @ np.exp(rate * losses - top)) + 1e-300)
            for rate, top in zip(rates, tops, strict=True)
        ]
    )
