"""The inner loops of the accounting; what they compute is explained where they are used.

They are numpy's, not compiled: a plan is priced before a compiler's tables are even loaded. Arrays
are float64, shapes as stated; nothing is checked here.
"""

from __future__ import annotations

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from vicinal._arrays import Floats, Places

_SERIES_BELOW = 0.05
_NEGLIGIBLE = 1e-18
_FAR = 30.0


def log_gaps(power: Floats, log_ratio: Floats) -> Floats:
    """Return log G_b(L) elementwise, b = `power` > 1 or < 0; see `_divergence`. Broadcasts."""
    power, log_ratio = np.broadcast_arrays(power, log_ratio)
    scaled = power * log_ratio
    top = np.maximum(scaled, log_ratio)
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        gap = _gap(power, log_ratio)
        result = np.where(gap > 0, np.log(gap), -np.inf)
    near = np.maximum(np.abs(scaled), np.abs(log_ratio)) < _SERIES_BELOW
    result[near] = _log_gap_series(power[near], log_ratio[near])
    far = (top > _FAR) & (top < np.inf)
    with np.errstate(over="ignore", invalid="ignore"):
        result[far] = top[far] + np.log(_divided_gap(power[far], log_ratio[far], top[far]))
    result[top == np.inf] = np.inf
    return np.asarray(result)


def _gap(power: Floats, log_ratio: Floats) -> Floats:
    """Return e^bL - 1 - b (e^L - 1), written so that no b near 1 or 0 costs precision."""
    less = power - 1
    from_one = np.exp(log_ratio) * np.expm1(less * log_ratio) - less * np.expm1(log_ratio)
    from_zero = np.expm1(power * log_ratio) - power * np.expm1(log_ratio)
    return np.where(power > 1, from_one, from_zero)


def _divided_gap(power: Floats, log_ratio: Floats, top: Floats) -> Floats:
    """Return the same divided by e^top, top = max(bL, L), before it can overflow."""
    less = power - 1
    from_one = -np.expm1(-less * log_ratio) - less * np.exp(-less * log_ratio)
    from_zero = np.exp(power * log_ratio - top) - power * np.exp(log_ratio - top)
    return np.where(power > 1, from_one, from_zero) + less * np.exp(-top)


def _log_gap_series(power: Floats, log_ratio: Floats) -> Floats:
    """Return log of (1+u)^b - 1 - b u by its power series in u = e^L - 1, for small b u (m,)."""
    u = np.expm1(log_ratio)
    term, total, j = np.ones_like(u), np.ones_like(u), 2
    while (np.abs(term) > _NEGLIGIBLE).any():
        term *= u * (power - j) / (j + 1)
        total += term
        j += 1
    with np.errstate(divide="ignore"):  # no ratio, no gap
        return np.asarray(np.log(power * (power - 1) / 2) + 2 * np.log(np.abs(u)) + np.log(total))


def log_expected_gap(power: float, log_mass: Floats, log_ratio: Floats) -> float:
    """Return log of the sum of mass * G_b(log ratio) over nodes (m,)."""
    terms = log_mass + log_gaps(np.full_like(log_ratio, power), log_ratio)
    top = float(terms.max())
    if not np.isfinite(top):
        return top
    return top + float(np.log(np.exp(terms - top).sum()))


def largest_sums(powers: Floats, laws: tuple[Floats, ...], block: int) -> Floats:
    """Return, for every power b (m,), the largest log(q G_b(U) + (1-q) G_b(V)) over positions.

    `laws` are log q, log(1 - q), U and V at the n positions, see `_screening.Screening.laws`.
    Positions ascend within blocks of `block`, of which n is a multiple; a block is left out where
    the bound of `_screening` for all of it, from its two ends, does not exceed what was found at
    the first positions of blocks.
    """
    log_q, log_miss, up, down = laws
    low = np.arange(0, len(log_q), block)
    high, b = low + block - 1, powers[:, None]
    answer = _log_sums(b, log_q[low], log_miss[low], up[low], down[low]).max(axis=1)
    bound = _log_sums(b, log_q[high], log_miss[low], up[low], down[high])
    row, blocks = np.nonzero(bound > answer[:, None])
    if len(row):
        inside = low[blocks][:, None] + np.arange(block)
        values = _log_sums(powers[row][:, None], *(law[inside] for law in laws))
        np.maximum.at(answer, row, values.max(axis=1))
    return np.asarray(answer)


def _log_sums(power: Floats, log_q: Floats, log_miss: Floats, up: Floats, down: Floats) -> Floats:
    return np.logaddexp(log_q + log_gaps(power, up), log_miss + log_gaps(power, down))


def largest_profiles(
    own: Floats, cells: Places, near: Floats, far: Floats, reach: Places
) -> Floats:
    """Return C_0 ... C_m of `_screening_batch`, as (m + 1, 2 h + 1).

    `own` (o, 2 h + 1) is the excess of every option alone. `cells`, `near`, `far` (o, k) are, for
    each outcome of an option, the shift of the profile in grid steps, -h <= cell < h, and the
    weights of the two grid points around it. `reach` (m + 1,) is how far from the middle C_j is
    worked out; beyond, the value there, which is larger, stands.
    """
    half = own.shape[1] // 2
    values = np.zeros((len(reach), own.shape[1]))
    weights = np.concatenate([near, far], axis=1)
    starts = half + np.concatenate([cells, cells + 1], axis=1)
    shifts = [
        (start[some], part[some])
        for start, part, some in zip(starts, weights, weights != 0, strict=True)
    ]
    for j in range(1, len(reach)):
        low, high = half - int(reach[j]), half + int(reach[j]) + 1
        windows = sliding_window_view(np.pad(values[j - 1], half, mode="edge"), high - low)
        best = values[j, low:high]
        for alone, (start, weight) in zip(own, shifts, strict=True):
            np.maximum(best, alone[low:high] + weight @ windows[low + start], out=best)
        values[j, :low], values[j, high:] = best[0], best[-1]
    return values
