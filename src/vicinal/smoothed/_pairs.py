"""Divergence of two neighbouring databases when the counts of a random sample are published.

A pair (a, b) of neighbours: X has a + 1 records of a first type and b of a second, X' has a and
b + 1, and their other records are equal. P and P' are the distributions of the published counts of
X and X', E = exp(epsilon). The divergence of X from X' is the sum over outcomes of
weight (P - E P')+.

Two types: T of the a + b + 1 records are sampled without replacement, and o of the first type are
among them. With u = a + 1 - o unsampled records of the first type in X and w = b + 1 - T + o
unsampled records of the second type in X',

    P(o) / P'(o) = (a + 1) w / ((b + 1) u)          (theory.md, section 8b),

so P - E P' = P (A - B) / A with A = (a + 1) w and B = E (b + 1) u. A - B grows by the same step
with every o, so it is computed once, in doubled precision, and nothing cancels afterwards. The
terms are log-concave: if a term t is followed by a term that is rho times as large, all terms
after t add up to at most t rho / (1 - rho), which is added to the upper end.

More types: the number s of sampled records of the two types in which the neighbours differ follows
from the published counts. Given s, everything else has the same distribution in both databases. The
divergence is therefore exactly the mean over s of the two-type divergence with sample size s, for
sampling without replacement, Poisson sampling and sampling with replacement (theory.md, section
8c).

Arguments of the functions: `a` and `b` as above; `size` is the sample size T, `exp_eps` is E,
accurate to two units in the last place. `weighting` selects the weight of each outcome: DIVERGENCE
(1), POSTERIOR_X (P / (P + P')) or POSTERIOR_OTHER (P' / (P + P')).
"""

import math
from collections.abc import Callable

import numpy as np

from vicinal.arrays import Floats, Ints
from vicinal.compiled import compiled
from vicinal.smoothed.intervals import (
    LOG_ABSOLUTE_ERROR,
    LOG_RELATIVE_ERROR,
    MACHINE_EPSILON,
    ZERO,
    LogInterval,
    log_binomial_pmf,
    log_hypergeometric,
    log_sum,
    subtract_product,
)

DIVERGENCE, POSTERIOR_X, POSTERIOR_OTHER = 0, 1, 2
"""Values of `weighting`: 1 gives the hockey-stick divergence; sums with the posterior probabilities
of X and X' make up the adversary's gain (:func:`vicinal.smoothed.databases.adjusted_utility`)."""

_TAIL_TOLERANCE = 2.0**-54
"""A sum stops when the bound of its tail is below this share of it, less than a rounding."""


@compiled
def _find_first_outcome(a: int, b: int, size: int, exp_eps: float) -> int:
    """Return an outcome o just below the first one with P > E P', inside the support of P."""
    excess_step = (a + 1) + exp_eps * (b + 1)
    crossing = (a + 1) * (((exp_eps - 1) * (b + 1) + size) / excess_step)
    return max(0, size - b, min(math.floor(crossing) - 1, min(a + 1, size) + 1))


@compiled
def _compute_weight(p_share: float, p_other_share: float, weighting: int) -> float:
    """Return the weight of an outcome: 1 or a posterior probability.

    `p_share` and `p_other_share` are two numbers in the ratio P to P'.
    """
    if weighting == DIVERGENCE:
        return 1.0
    return (p_share if weighting == POSTERIOR_X else p_other_share) / (p_share + p_other_share)


@compiled
def compute_pair_divergence(
    a: int, b: int, size: int, exp_eps: float, weighting: int
) -> tuple[float, float]:
    """Return lower and upper bounds of the log divergence of a pair without other records.

    The sample `size` is at most a + b + 1. The bounds include the rounding errors of E, of the
    first term and of the sum, and the omitted tail.
    """
    n_first, last_outcome = a + 1, min(a + 1, size)
    o = _find_first_outcome(a, b, size, exp_eps)
    while (
        o <= last_outcome
        and subtract_product(n_first * (b + 1 - size + o), exp_eps, (b + 1) * (n_first - o)) <= 0
    ):
        o += 1
    if o > last_outcome:
        return -np.inf, -np.inf
    start = log_hypergeometric(o, n_first, b, size)
    excess = subtract_product(n_first * (b + 1 - size + o), exp_eps, (b + 1) * (n_first - o))
    excess_step = n_first + exp_eps * (b + 1)
    # P - E P' = P (A - B) / ((a + 1) w). P(first o) / (a + 1) is factored out, so the first term is
    # (A - B) / w, and each term needs one division.
    scaled_p = 1.0 / (b + 1 - size + o)
    total, total_mass, n_terms, tail = 0.0, 0.0, 0, 0.0
    while True:
        n_lost = b + 1 - size + o
        term = scaled_p * excess
        weight = _compute_weight(float(n_first) * n_lost, (b + 1.0) * (n_first - o), weighting)
        total += term * weight
        total_mass += scaled_p * n_lost * weight
        n_terms += 1
        if o >= last_outcome:
            break
        ratio = (float(n_first - o) * float(size - o)) / (float(o + 1) * float(n_lost + 1))
        growth = ratio * (excess + excess_step) / excess
        tail = term * growth / (1 - growth) if growth < 1 else np.inf
        if tail < _TAIL_TOLERANCE * total:
            break
        scaled_p *= ratio
        excess += excess_step
        o += 1
        tail = 0.0
    # The sum was relative to P(first o) / n_first; `start` becomes the logarithm of that factor.
    start -= math.log(float(n_first))
    error = (
        LOG_RELATIVE_ERROR * abs(start) + LOG_ABSOLUTE_ERROR + MACHINE_EPSILON * (8 * n_terms + 16)
    )
    # An excess near 0 is only as accurate as E, so its error is absolute.
    excess_error = 6 * MACHINE_EPSILON * n_first * total_mass
    low = math.log(total - excess_error) if total > excess_error else -np.inf
    high = math.log(total + excess_error + tail) if total + excess_error + tail > 0 else -np.inf
    return start + low - error, start + high + error


@compiled
def _compute_pair_divergences(
    first_a: int, stop_a: int, n: int, size: int, exp_eps: float
) -> tuple[Floats, Floats]:
    """Return lower and upper bounds of the log divergence of pairs (a, n - 1 - a), each (pairs,).

    a = `first_a` .. `stop_a` - 1; `n` is the number of records. The divergence is the larger of
    both directions.
    """
    lows, highs = np.empty(stop_a - first_a), np.empty(stop_a - first_a)
    for a in range(first_a, stop_a):
        forward = compute_pair_divergence(a, n - 1 - a, size, exp_eps, DIVERGENCE)
        backward = compute_pair_divergence(n - 1 - a, a, size, exp_eps, DIVERGENCE)
        lows[a - first_a] = max(forward[0], backward[0])
        highs[a - first_a] = max(forward[1], backward[1])
    return lows, highs


def compute_profile(n: int, size: int, exp_eps: float, low: int, high: int) -> Floats:
    """Return bounds of log delta(k) for `low` <= k <= `high`, float64 (2, high - low + 1).

    Row 0 has lower, row 1 upper bounds. delta(k) is that of the database with k records of the
    first type and `n` - k of the second (Definition 2 of LWX23): the largest divergence, in both
    directions, from its neighbours with k - 1 and k + 1.
    """
    pairs = np.stack(_compute_pair_divergences(max(low - 1, 0), min(high + 1, n), n, size, exp_eps))
    padded = np.pad(pairs, ((0, 0), (int(low == 0), int(high == n))), constant_values=-np.inf)
    return np.asarray(np.maximum(padded[:, :-1], padded[:, 1:]))


_DROPPED_MASS = 2.0**-55
"""Share of a mean over sample sizes that may be left out: less than a rounding."""
_N_SEARCHED_SIZES = 64
"""Sample sizes at which a mean is evaluated to find out which sizes are negligible."""


@compiled
def _compute_size_terms(
    log_size_p: Floats, min_size: int, a: int, b: int, exp_eps: float, weighting: int
) -> tuple[Floats, Floats]:
    """Return lower and upper bounds of log(Pr[s] divergence given s) for each sample size s.

    `log_size_p` (sizes,) holds log Pr[s] for s = `min_size`, `min_size` + 1, ... Sizes with a total
    probability below 2^-55 of the largest term are left out: their terms are -inf.
    """
    n_sizes = len(log_size_p)
    # The largest of about 64 terms is a lower bound of the largest of all; -inf if these are 0.
    max_log_term = -np.inf
    stride = max(1, n_sizes // _N_SEARCHED_SIZES)
    for index in range(n_sizes - 1, -1, -stride):
        log_divergence = compute_pair_divergence(a, b, min_size + index, exp_eps, weighting)[0]
        max_log_term = max(max_log_term, log_size_p[index] + log_divergence)
    min_log_p = max_log_term + math.log(_DROPPED_MASS / max(1, n_sizes))
    lows, highs = np.full(n_sizes, -np.inf), np.full(n_sizes, -np.inf)
    for index in range(n_sizes):
        if log_size_p[index] > min_log_p:
            divergence = compute_pair_divergence(a, b, min_size + index, exp_eps, weighting)
            error = LOG_RELATIVE_ERROR * abs(log_size_p[index]) + LOG_ABSOLUTE_ERROR
            lows[index] = log_size_p[index] + divergence[0] - error
            highs[index] = log_size_p[index] + divergence[1] + error
    return lows, highs


def average_pair_divergence(
    log_size_p: Floats, min_size: int, a: int, b: int, exp_eps: float, weighting: int
) -> LogInterval:
    """Return the mean divergence of a pair over a random number s of sampled records of both types.

    `log_size_p` (sizes,) holds log Pr[s] for s = `min_size`, `min_size` + 1, ... The probability of
    sizes that are left out is added to the upper end, as no divergence is above 1.
    """
    lows, highs = _compute_size_terms(log_size_p, min_size, a, b, exp_eps, weighting)
    error = MACHINE_EPSILON * (len(log_size_p) + 16)
    return LogInterval(log_sum(lows) - error, log_sum(highs) + error + 2 * _DROPPED_MASS)


def compute_divergence_with_replacement(
    a: int, b: int, size: int, epsilon: float, weighting: int
) -> LogInterval:
    """Return the divergence of a pair when `size` of its records are sampled with replacement.

    Each of the draws gives the first type with probability (a + 1) / (a + b + 1) in X and
    a / (a + b + 1) in X', so P / P' = ((a + 1) / a)^o (b / (b + 1))^(size - o).
    """
    if size == 0:
        return ZERO
    log_p = log_binomial_pmf(size, (a + 1) / (a + b + 1))
    n_sampled = np.arange(size + 1, dtype=np.int64)  # o, the outcomes
    is_possible = log_p > -math.inf
    log_p, n_sampled = log_p[is_possible], n_sampled[is_possible]
    log_ratio_first = math.inf if a == 0 else math.log1p(1 / a)
    log_ratio_second = math.inf if b == 0 else math.log1p(1 / b)
    log_ratio = _multiply_counts(n_sampled, log_ratio_first) - _multiply_counts(
        size - n_sampled, log_ratio_second
    )
    # The probability of the first type is rounded once; the error grows with the distance of o from
    # its mean.
    probability_error = MACHINE_EPSILON * np.abs(n_sampled - size * ((a + 1) / (a + b + 1)))
    return sum_divergence(log_p, log_ratio, epsilon, weighting, probability_error)


def sum_divergence(
    log_p: Floats,
    log_ratio: Floats,
    epsilon: float,
    weighting: int,
    extra_error: Floats | float = 0.0,
    n_rounded: int = 1,
) -> LogInterval:
    """Return the divergence of any two distributions P and P' of a mechanism's outcome.

    `log_p` and `log_ratio` (outcomes,): log P and log(P / P'), which may be infinite. Their errors
    are at most `n_rounded` times the sum of `extra_error`, one number or (outcomes,), and the error
    of one computed log probability.
    """
    # An infinite ratio has no error.
    magnitudes = np.abs(log_p) + np.where(np.isfinite(log_ratio), np.abs(log_ratio), 0.0)
    slack = n_rounded * (LOG_ABSOLUTE_ERROR + extra_error + LOG_RELATIVE_ERROR * magnitudes)
    if weighting == DIVERGENCE:
        log_weights = np.zeros_like(log_ratio)
    else:
        log_weights = -np.logaddexp(0.0, -log_ratio if weighting == POSTERIOR_X else log_ratio)
    ratio_error = slack + 4 * MACHINE_EPSILON * (abs(epsilon) + 1)
    rounding = MACHINE_EPSILON * (len(log_p) + 16)
    ends = []
    for sign in (-1, 1):  # the lower end, then the upper end
        log_excess_ratio = np.maximum(log_ratio - epsilon + sign * ratio_error, 0)
        # P - E P' = P (1 - E P' / P); an outcome with P <= E P' contributes exp(-inf) = 0. The
        # error of a log weight is at most half of the slack.
        with np.errstate(divide="ignore"):
            log_excess = np.log(-np.expm1(-log_excess_ratio))
            log_terms = log_p + log_weights + log_excess + 3 * sign * slack
        ends.append(log_sum(log_terms))
    return LogInterval(ends[0] - rounding, ends[1] + rounding)


def _multiply_counts(counts: Ints, factor: float) -> Floats:
    """Return `counts` times `factor`, which may be infinite, with 0 times infinity = 0."""
    return np.where(counts > 0, np.maximum(counts, 1) * factor, 0.0)


def average_over_sizes(
    log_size_p: Floats, compute_divergence: Callable[[int], LogInterval]
) -> LogInterval:
    """Return the mean of `compute_divergence(s)`, at most 1, over a random sample size s.

    `log_size_p` (sizes,) holds log Pr[s] for s = 0, 1, ... `compute_divergence(s)`: the divergence
    given the sample size s.
    """
    lows, highs = [], []
    max_depth = 0.0  # the largest -log probability of a size that contributes
    for size, log_weight in enumerate(log_size_p):
        if log_weight > -math.inf:
            conditional = compute_divergence(size)
            lows.append(log_weight + conditional.low)
            highs.append(log_weight + conditional.high)
            max_depth = max(max_depth, -float(log_weight) if conditional.high > -math.inf else 0.0)
    slack = (
        LOG_RELATIVE_ERROR * max_depth
        + LOG_ABSOLUTE_ERROR
        + 2 * MACHINE_EPSILON * (len(log_size_p) + 16)
    )
    return LogInterval(log_sum(np.array(lows)) - slack, log_sum(np.array(highs)) + slack)
