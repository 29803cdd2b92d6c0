"""The inner loops of the accounting, compiled; what they compute is explained where they are used.

Arrays are float64 and contiguous, shapes as stated; nothing is checked here.
"""

from __future__ import annotations

import math

import numpy as np

from vicinal._compiled import compiled

_SERIES_BELOW = 0.05
_NEGLIGIBLE = 1e-18
_FAR = 30.0


@compiled
def log_gap(power, log_ratio):  # type: ignore[no-untyped-def]
    """Return log G_b(L) of two numbers, b = `power` > 1 or < 0; see `_divergence`."""
    scaled = power * log_ratio
    if max(abs(scaled), abs(log_ratio)) < _SERIES_BELOW:
        return _log_gap_series(power, log_ratio)
    top = max(scaled, log_ratio)
    if top == math.inf:
        return math.inf
    if top > _FAR:
        # What a direct evaluation gives, divided by e^top before it can overflow.
        gap = math.exp(scaled - top) - power * math.exp(log_ratio - top)
        return top + math.log(gap + (power - 1) * math.exp(-top))
    gap = math.expm1(scaled) - power * math.expm1(log_ratio)
    return math.log(gap) if gap > 0 else -math.inf


@compiled
def _log_gap_series(power, log_ratio):  # type: ignore[no-untyped-def]
    """Return log of (1+u)^b - 1 - b u by its power series in u = e^L - 1, for small b u."""
    u = math.expm1(log_ratio)
    if u == 0:
        return -math.inf
    term, total, j = 1.0, 1.0, 2
    while abs(term) > _NEGLIGIBLE:
        term *= u * (power - j) / (j + 1)
        total += term
        j += 1
    return math.log(power * (power - 1) / 2) + 2 * math.log(abs(u)) + math.log(total)


@compiled
def log_gaps(power, log_ratio):  # type: ignore[no-untyped-def]
    """Return log G of every pair of entries of two flat arrays (m,), as (m,)."""
    result = np.empty(len(power))
    for i in range(len(power)):
        result[i] = log_gap(power[i], log_ratio[i])
    return result


@compiled
def log_expected_gap(power, log_mass, log_ratio):  # type: ignore[no-untyped-def]
    """Return log of the sum of mass * G_b(log ratio) over nodes (m,)."""
    terms = np.empty(len(log_mass))
    for i in range(len(log_mass)):
        terms[i] = log_mass[i] + log_gap(power, log_ratio[i])
    top = terms.max()
    if top == -math.inf or top == math.inf:
        return top
    total = 0.0
    for term in terms:
        total += math.exp(term - top)
    return top + math.log(total)


@compiled
def largest_sums(powers, log_q, log_miss, up, down, block):  # type: ignore[no-untyped-def]
    """Return, for every power b (m,), the largest log(q G_b(U) + (1-q) G_b(V)) over positions (n,).

    Positions ascend within blocks of `block`; a block is left out where the bound of `_screening`
    for all of it, from its two ends, does not exceed what was found already.
    """
    answer = np.empty(len(powers))
    place = 0
    for row in range(len(powers)):
        power = powers[row]
        # The best position of the last power is a good beginning.
        best = _log_sum(power, log_q[place], log_miss[place], up[place], down[place])
        for low in range(0, len(log_q), block):
            high = min(low + block, len(log_q)) - 1
            if _log_sum(power, log_q[high], log_miss[low], up[low], down[high]) <= best:
                continue
            for i in range(low, high + 1):
                value = _log_sum(power, log_q[i], log_miss[i], up[i], down[i])
                if value > best:
                    best, place = value, i
        answer[row] = best
    return answer


@compiled
def _log_sum(power, log_q, log_miss, up, down):  # type: ignore[no-untyped-def]
    """Return log(q G_b(up) + (1 - q) G_b(down))."""
    first, second = log_q + log_gap(power, up), log_miss + log_gap(power, down)
    top, other = max(first, second), min(first, second)
    if top == -math.inf or top == math.inf:
        return top
    return top + math.log1p(math.exp(other - top))


@compiled
def largest_profiles(own, cells, near, far, reach):  # type: ignore[no-untyped-def]
    """Return C_0 ... C_m of `_screening_batch`, as (m + 1, 2 h + 1).

    `own` (o, 2 h + 1) is the excess of every option alone. `cells`, `near`, `far` (o, k) are, for
    each outcome of an option, the shift of the profile in grid steps, -h <= cell < h, and the
    weights of the two grid points around it. `reach` (m + 1,) is how far from the middle C_j is
    worked out; beyond, the value there, which is larger, stands.
    """
    options, width = own.shape
    half = width // 2
    values = np.zeros((len(reach), width))
    padded = np.empty(width + 2 * half)
    total = np.empty(width)
    for j in range(1, len(reach)):
        padded[:half] = values[j - 1, 0]
        padded[half : half + width] = values[j - 1]
        padded[half + width :] = values[j - 1, -1]
        low, high = half - reach[j], half + reach[j] + 1
        best = values[j]
        for option in range(options):
            total[low:high] = own[option, low:high]
            for outcome in range(cells.shape[1]):
                _add(total[low:high], padded, low + half + cells[option, outcome],
                     near[option, outcome], far[option, outcome])  # fmt: skip
            for x in range(low, high):
                best[x] = max(best[x], total[x])
        best[:low] = best[low]
        best[high:] = best[high - 1]
    return values


@compiled
def _add(total, values, start, near, far):  # type: ignore[no-untyped-def]
    """Add to `total` (n,) the two shifts of `values` that begin at `start` and one later."""
    if near == 0 and far == 0:
        return
    first, second = values[start : start + len(total)], values[start + 1 : start + 1 + len(total)]
    for x in range(len(total)):
        total[x] += near * first[x] + far * second[x]
