r"""Privacy loss distributions: dominating pairs on a grid, composed by one Fourier transform.

Grid. H is convex in x = e^eps. Joining its values at the grid points eps_i = i h by straight lines
in x gives a larger convex function, which is the profile of a discrete pair: Q has the mass "change
of slope at x_i", P has x_i times that, and the value of H at the last point is a mass of infinite
loss (connect the dots: Doroshenko, Ghazi, Kamath, Kumar & Manurangsi 2022). The discrete pair
dominates, and composition preserves domination (Zhu, Dong & Wang 2022, Theorem 10), also adaptive
composition. The grid is fine enough that all roundings together widen the loss by a relative 3e-5
or so. The grids of the releases and the range of the transform omit at most a stated mass, which is
added to delta; for an epsilon it is 1e-6 of delta, or 1e-18 if that is more.

Transform. The distribution of the sum of all losses is the inverse transform of the product of
powers. Mass below the range wraps around to its top (a larger loss: safe); the mass above it is
bounded by Chernoff and counted as infinite loss. The rounding errors of the transform are estimated
from the norm of the spectrum and added to delta, too.

`pairs`, everywhere in this module: dominating pairs, each with its number of releases.
"""

import dataclasses
import math
from collections.abc import Sequence

import numpy as np

from vicinal.accounting._divergence import DominatingPair, GaussianPair
from vicinal.arrays import Complexes, Floats

# Relative amount by which the grid may widen the standard deviation of the composed loss.
_WIDENING = 3e-5
_MAX_POINTS = 1 << 20  # The largest number of grid points of the composed loss
_COARSE_POINTS = 1024  # Points of the coarser grids on which Chernoff's bound is computed
_ROUNDED_UP = 1 + 1e-9  # Factor on divergences and epsilon: far more than their rounding errors
# Rounding error of the transform, for each factor and level, relative to the spectrum's norm.
FFT_ERROR = 8 * 2.0**-53
# Exponents r of Chernoff's bound for sums of many losses, in units of 1 / standard deviation.
_RATES = np.geomspace(0.2, 50, 16)
# Exponents r of Chernoff's bound for few rare losses, in units of 1 / loss.
_RARE_RATES = np.geomspace(0.05, 50, 16)
_MIN_STD = 1e-12  # The smallest standard deviation that the rates are divided by
# Integration nodes of the excess divergence, as fractions of the range's end.
_INTEGRATION_POINTS = np.append(0.0, np.geomspace(1e-5, 1, 400))
# Losses above this are not represented: e^loss comes close to the largest double. A pair that
# reaches further gives next to no protection.
_MAX_LOSS = 600.0
# Losses among which the end of a release's grid is chosen.
_CANDIDATE_ENDS = np.append(np.geomspace(1e-13, _MAX_LOSS, 500)[:-1], _MAX_LOSS)


def compute_pld_epsilon(pairs: Sequence[tuple[DominatingPair, int]], delta: float) -> float:
    """Return an upper bound on epsilon >= 0 of a composition at `delta`; infinite if none holds."""
    totals = compose_losses(pairs, max(delta * 1e-6, 1e-18))
    return max(total.compute_epsilon(delta) for total in totals) if totals else math.inf


@dataclasses.dataclass(frozen=True)
class LossDistribution:
    """The distribution under P of the privacy loss of one release, or of a composition.

    `probabilities` (m,) are those of the losses (`first` + i) `step`; `infinite` of infinite loss.
    """

    step: float
    first: int
    probabilities: Floats
    infinite: float

    def compute_delta(self, epsilon: float) -> float:
        """Return delta at `epsilon`, the hockey-stick divergence, rounded up."""
        losses = self.step * (self.first + np.arange(len(self.probabilities)))
        is_above = losses > epsilon
        gains = -np.expm1(epsilon - losses[is_above]) * self.probabilities[is_above]
        return (float(gains.sum()) + self.infinite) * _ROUNDED_UP

    def compute_epsilon(self, delta: float) -> float:
        """Return the smallest epsilon >= 0 at `delta`, rounded up; infinite above `_MAX_LOSS`."""
        if self.infinite * _ROUNDED_UP >= delta:
            return math.inf
        if self.compute_delta(0.0) <= delta:
            return 0.0
        start = max(0, 1 - self.first)
        losses = self.step * (self.first + np.arange(start, len(self.probabilities)))
        mass = self.probabilities[start:]
        # At a loss, and between it and the previous one, only the mass at or above it counts.
        mass_with = np.cumsum(mass[::-1])[::-1] + self.infinite
        mass_without = np.cumsum((mass * np.exp(-losses))[::-1])[::-1]
        n_searched = int(np.searchsorted(losses, _MAX_LOSS))
        divergence = (
            mass_with[:n_searched] - np.exp(losses[:n_searched]) * mass_without[:n_searched]
        ) * _ROUNDED_UP
        is_affordable = divergence <= delta
        if not is_affordable.any():
            return math.inf
        index = int(np.argmax(is_affordable))
        root = math.log((mass_with[index] - delta / _ROUNDED_UP) / mass_without[index])
        return max(0.0, root) * _ROUNDED_UP


def compose_losses(
    pairs: Sequence[tuple[DominatingPair, int]], tail: float
) -> list[LossDistribution]:
    """Return the distribution of the total loss of a composition, (P, Q) and then (Q, P).

    Only (P, Q) if all pairs are symmetric; empty if the losses are out of range. `tail`: the
    probability that the grids and the transform may omit; it counts as infinite loss.
    """
    # Unsampled Gaussian releases are merged into one, because mu adds up in squares.
    mus = [(pair.get_gaussian_mu(), count) for pair, count in pairs]
    square = math.fsum(count * mu**2 for mu, count in mus if mu is not None)
    merged = [(pair, count) for pair, count in pairs if pair.get_gaussian_mu() is None]
    if square:
        merged.insert(0, (GaussianPair(math.sqrt(square)), 1))
    counts = [count for _, count in merged]
    ranges = [_find_loss_range(pair, tail / (4 * sum(counts))) for pair, _ in merged]
    loss_std = _estimate_loss_std(merged, ranges)
    if loss_std**2 > _MAX_LOSS or any(max(high, -low) == _MAX_LOSS for low, high in ranges):
        return []
    # Rounding to a grid of step h adds at most h^2/4 to the variance of each loss.
    reach = max(20 * loss_std + 2 * loss_std**2, *(2 * (high - low) for low, high in ranges))
    step = max(loss_std * math.sqrt(8 * _WIDENING / sum(counts)), reach / _MAX_POINTS)
    directions = (False,) if all(pair.is_symmetric for pair, _ in merged) else (False, True)
    totals = []
    for is_mirrored in directions:
        distributions = [
            _discretize_pair(pair, loss_range, step, is_mirrored and not pair.is_symmetric)
            for (pair, _), loss_range in zip(merged, ranges, strict=True)
        ]
        totals.append(_convolve_losses(distributions, counts, step, loss_std, tail))
    return totals


def _find_loss_range(pair: DominatingPair, tail: float) -> tuple[float, float]:
    """Return (low, high), the range of losses that the grid of `pair` must cover.

    The hockey-stick divergence at `high`, and in the reverse direction at -`low`, is at most `tail`
    each, not counting the mass of infinite loss; +-`_MAX_LOSS` if no smaller range is enough.
    """
    infinite_with, infinite_without = pair.infinite_masses
    high = _find_first_negligible(pair.compute_excess(_CANDIDATE_ENDS) - infinite_with, tail)
    if pair.is_symmetric:
        return -high, high
    mirrored = np.exp(_CANDIDATE_ENDS) * pair.compute_excess(-_CANDIDATE_ENDS)
    return -_find_first_negligible(mirrored - infinite_without, tail), high


def _find_first_negligible(excess: Floats, tail: float) -> float:
    """Return the smallest candidate for the end of a range of losses beyond which C is negligible.

    `excess` (m,): the excess divergence C at the candidates, `_CANDIDATE_ENDS` (m,). Negligible
    values are <= `tail`; if there is none, the last candidate is returned.
    """
    is_small = excess <= tail
    return float(_CANDIDATE_ENDS[int(np.argmax(is_small))]) if is_small.any() else _MAX_LOSS


def _estimate_loss_std(
    pairs: Sequence[tuple[DominatingPair, int]], ranges: Sequence[tuple[float, float]]
) -> float:
    """Return about the standard deviation of the total loss; `ranges`: (low, high) of each grid."""
    # The variance of a loss is about twice its Kullback-Leibler divergence, which is the integral
    # of the excess divergence over all real eps.
    variance = 0.0
    for (pair, count), loss_range in zip(pairs, ranges, strict=True):
        for end in loss_range:
            points = np.asarray(end * _INTEGRATION_POINTS, dtype=np.float64)
            integral = float(np.trapezoid(pair.compute_excess(points), points))
            variance += 2 * count * abs(integral)
    return math.sqrt(variance)


def _discretize_pair(
    pair: DominatingPair, loss_range: tuple[float, float], step: float, is_mirrored: bool
) -> LossDistribution:
    """Return the loss distribution of (P, Q), or with `is_mirrored` of (Q, P), on the grid.

    The values of the profile at multiples of `step` = h, from the lower to the upper loss of
    `loss_range`, are joined. In terms of the excess divergence C the mass at x_i = e^(i h) is
    (C_{i+1} - C_i - e^h (C_i - C_{i-1})) / (e^h - 1), plus 1 at x = 1, where max(0, 1 - x) has its
    kink. Below the first point the profile is replaced by the line from x = 0.
    """
    low, high = loss_range
    if is_mirrored:
        low, high = -high, -low
    first, last = math.floor(low / step), math.ceil(high / step)
    losses = np.asarray(step * np.arange(first, last + 1), dtype=np.float64)
    if is_mirrored:
        excess = np.exp(losses) * pair.compute_excess(-losses)
    else:
        excess = pair.compute_excess(losses)
    rise = np.diff(excess) / math.expm1(step)
    mass = np.append(rise, 0.0) - math.exp(step) * np.insert(rise, 0, 0.0)
    mass[0] = rise[0] - excess[0]
    mass[-first] += 1
    return LossDistribution(step, first, np.maximum(mass, 0.0), float(excess[-1]))


def _convolve_losses(
    distributions: Sequence[LossDistribution],
    counts: Sequence[int],
    step: float,
    loss_std: float,
    tail: float,
) -> LossDistribution:
    """Return the distribution of a sum of losses: `counts[i]` of each of the `distributions[i]`.

    `step` is the grid step of all, `loss_std` the standard deviation of the sum. Omitted mass, at
    most `tail`, counts as infinite loss.
    """
    # The range of the sum is found on coarser grids, and is at least one step wide.
    coarse_distributions = [
        (*_coarsen_grid(step * loss.first, step, loss.probabilities), count)
        for loss, count in zip(distributions, counts, strict=True)
    ]
    low, high = compute_chernoff_bounds(coarse_distributions, loss_std, tail)
    high = max(high, low + step)
    start = math.floor(low / step)
    size = round_up_fft_length(math.ceil(high / step) - start + 2)
    spectrum = np.ones(size // 2 + 1, dtype=np.complex128)
    first_cell = 0
    infinite = tail
    for loss, count in zip(distributions, counts, strict=True):
        # Probabilities are added up by index modulo `size`.
        wrapped = np.zeros(-(-len(loss.probabilities) // size) * size)
        wrapped[: len(loss.probabilities)] = loss.probabilities
        wrapped = wrapped.reshape(-1, size).sum(axis=0)
        spectrum *= compute_spectrum_power(np.fft.rfft(wrapped), count)
        first_cell += count * loss.first
        infinite += count * loss.infinite
    norm = math.sqrt(2) * float(np.linalg.norm(spectrum))
    infinite += FFT_ERROR * (sum(counts) + math.log2(size)) * norm
    probabilities = np.roll(np.fft.irfft(spectrum, size), (first_cell - start) % size)
    return LossDistribution(step, start, np.maximum(probabilities, 0.0), infinite)


def round_up_fft_length(min_length: int) -> int:
    """Return the smallest length >= `min_length` with no prime factor above 5: transforms are fast.

    numpy's transforms give the same bits as scipy's, whose import takes .05 s.
    """
    best = 1 << (min_length - 1).bit_length()
    power_of_5 = 1
    while power_of_5 < best:
        product = power_of_5
        while product < best:
            best = min(best, product << max(0, (-(-min_length // product) - 1).bit_length()))
            product *= 3
        power_of_5 *= 5
    return best


def compute_spectrum_power(spectrum: Complexes, count: int) -> Complexes:
    """Return the Fourier transform `spectrum` (m,) of a distribution to the power `count` >= 1.

    It is the transform of a sum of `count` losses. Values of magnitude below 1e-40 are zero.
    """
    # For a large count most powers are that small, and a complex power is slow.
    if count == 1:
        return spectrum
    square = spectrum.real**2 + spectrum.imag**2
    is_significant = square > 10.0 ** (-80 / count)
    result = np.zeros_like(spectrum)
    result[is_significant] = spectrum[is_significant] ** count
    return result


def compute_chernoff_bounds(
    distributions: Sequence[tuple[Floats, Floats, int]], loss_std: float, tail: float
) -> tuple[float, float]:
    """Return (low, high): a sum of losses is outside with probability <= `tail` on either side.

    Each of `distributions` is (losses (m,), probabilities (m,), number of such losses in the sum);
    `loss_std`, about the standard deviation of the sum, scales the rates r that are tried only.
    Chernoff: P(sum > u) <= exp(K(r) - r u) for every r > 0, K the log moment generating function.
    """
    rates = np.concatenate([_RATES / max(loss_std, _MIN_STD), _RARE_RATES])
    log_moments_above, log_moments_below = (
        sum(
            count * _compute_log_moments(losses, probabilities, signed_rates)
            for losses, probabilities, count in distributions
        )
        for signed_rates in (rates, -rates)
    )
    depth = -math.log(tail)
    low = float(-((log_moments_below + depth) / rates).min())
    high = float(((log_moments_above + depth) / rates).min())
    return low, high


def _coarsen_grid(first_loss: float, step: float, probabilities: Floats) -> tuple[Floats, Floats]:
    """Return losses and probabilities, both (k,), on a grid of about `_COARSE_POINTS` points.

    `probabilities` (m,) are those of the losses `first_loss` + i `step`. Each is divided between
    the two coarse points around it, so that the moment generating function can only grow.
    """
    width = -(-len(probabilities) // _COARSE_POINTS)
    index, offset = np.divmod(np.arange(len(probabilities)), width)
    size = int(index[-1]) + 2
    coarse = np.bincount(index, probabilities * (1 - offset / width), size)
    coarse += np.bincount(index + 1, probabilities * (offset / width), size)
    losses = np.asarray(first_loss + step * width * np.arange(size))
    return losses, np.asarray(coarse, dtype=np.float64)


def _compute_log_moments(losses: Floats, probabilities: Floats, rates: Floats) -> Floats:
    """Return log E[e^{r loss}] at `rates` r (k,), for `losses` (m,) with `probabilities` (m,)."""
    largest_exponents = np.maximum(rates * losses.min(), rates * losses.max())
    return np.array(
        [
            largest + math.log(float(probabilities @ np.exp(rate * losses - largest)) + 1e-300)
            for rate, largest in zip(rates, largest_exponents, strict=True)
        ]
    )
