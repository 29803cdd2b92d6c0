"""Probabilities of the outcomes of a rule on the sampled counts of two types.

A sample of fixed size has o records of the first type. A rule maps every o to an outcome, so an
outcome is a set of runs of consecutive o. The probabilities of o are log-concave: each run is
summed from its most probable o in both directions by ratios of successive terms, and the geometric
bound of the omitted tail is part of the error. All terms are positive, so nothing cancels, and
tiny outcome probabilities are as accurate as large ones.

Arguments of the functions: `k` of the `n` records of a database are of the first type, and `size`
are sampled, perhaps `with_replacement`; `o` of these are of the first type. `runs` are those of the
rule for samples of this size.
"""

import math
from typing import NamedTuple

import numpy as np

from vicinal.arrays import Floats, Ints
from vicinal.compiled import compiled
from vicinal.smoothed.intervals import (
    LOG_ABSOLUTE_ERROR,
    LOG_RELATIVE_ERROR,
    MACHINE_EPSILON,
    log_binomial,
    log_hypergeometric,
)

_TAIL_TOLERANCE = 2.0**-50
"""A sum stops when the bound of its tail is below this share of it; part of the error."""


class OutcomeRuns(NamedTuple):
    """The outcomes of a rule: run r has the sampled counts o = ``firsts[r]`` .. ``lasts[r]``.

    For each o of run r, outcome ``outcomes[r]``, an index below `n_outcomes`, is published with log
    probability ``log_weights[r]``. If the outcome is random, a run occurs once for each possible
    outcome. All arrays have shape (runs,). Samples have `size` records.
    """

    firsts: Ints
    lasts: Ints
    outcomes: Ints
    log_weights: Floats
    n_outcomes: int
    size: int
    with_replacement: bool


@compiled
def _log_count_probability(o: int, k: int, n: int, size: int, with_replacement: bool) -> float:
    """Return log Pr[o sampled records are of the first type]."""
    if not with_replacement:
        return log_hypergeometric(o, k, n - k, size)  # type: ignore[no-any-return]
    if 2 * k > n:  # the smaller probability is the more accurate one
        return log_binomial(size - o, size, (n - k) / n, k / n)  # type: ignore[no-any-return]
    return log_binomial(o, size, k / n, (n - k) / n)  # type: ignore[no-any-return]


@compiled
def _compute_count_ratio(o: int, k: int, n: int, size: int, with_replacement: bool) -> float:
    """Return Pr[o + 1] / Pr[o], where Pr[o] is the probability of `o` records of the first type."""
    if with_replacement:
        return float(size - o) * float(k) / (float(o + 1) * float(n - k))
    return float(k - o) * float(size - o) / (float(o + 1) * float(n - k - size + o + 1))


@compiled
def _sum_run(
    first: int, last: int, k: int, n: int, size: int, with_replacement: bool
) -> tuple[float, float]:
    """Return the log probability of `first` <= o <= `last`, all of them possible, and its error.

    The error bounds that of the sum and of a rounded k / n. The error of a single log probability
    is not included.
    """
    mode = ((size + 1) * k) // n if with_replacement else ((size + 1) * (k + 1)) // (n + 2)
    start = min(max(mode, first), last)
    total, n_terms = 1.0, 1
    term = 1.0
    for o in range(start, last):
        ratio = _compute_count_ratio(o, k, n, size, with_replacement)
        term *= ratio
        total += term
        n_terms += 1
        # The ratios decrease, so all further terms add up to at most term * ratio / (1 - ratio).
        if ratio < 1 and term * ratio < _TAIL_TOLERANCE * total * (1 - ratio):
            break
    term = 1.0
    for o in range(start - 1, first - 1, -1):
        ratio = 1 / _compute_count_ratio(o, k, n, size, with_replacement)
        term *= ratio
        total += term
        n_terms += 1
        if ratio < 1 and term * ratio < _TAIL_TOLERANCE * total * (1 - ratio):
            break
    error = 2 * _TAIL_TOLERANCE + MACHINE_EPSILON * (4 * n_terms + 16)
    # The probability of `start` is smaller than the sum, so its relative error is a little larger.
    error += LOG_RELATIVE_ERROR * math.log(total)
    if with_replacement and 0 < k < n and size > 0:
        # k / n and 1 - k / n are rounded. The derivative of log Pr[o] by either expected count is
        # at most its deviation in units of the expected count.
        expected = size * (k / n)
        rest = size - expected
        deviations = (
            abs(start - expected)
            + expected * abs(math.log((start + 1) / expected))
            + rest * abs(math.log((size - start + 1) / rest))
        )
        error += 4 * MACHINE_EPSILON * deviations
    return _log_count_probability(start, k, n, size, with_replacement) + math.log(total), error


@compiled
def _add_logs(log_x: float, log_y: float) -> float:
    """Return log(x + y), given the logs of x >= 0 and y >= 0."""
    larger, smaller = max(log_x, log_y), min(log_x, log_y)
    if smaller == -np.inf:
        return larger
    return larger + math.log1p(math.exp(smaller - larger))


@compiled
def compute_outcome_logs(k: int, n: int, runs: OutcomeRuns) -> tuple[Floats, float]:
    """Return the log probability of each outcome (outcomes,) for a database, and an extra error.

    The error of a log probability l is at most ``LOG_ABSOLUTE_ERROR + LOG_RELATIVE_ERROR abs(l)``
    plus the extra error.
    """
    size = runs.size
    if runs.with_replacement:
        min_count, max_count = (size if k == n else 0), (size if k > 0 else 0)
    else:
        min_count, max_count = max(0, size - (n - k)), min(k, size)
    logs = np.full(runs.n_outcomes, -np.inf)
    max_error, max_rounding, n_summed = 0.0, 0.0, 0
    for run in range(len(runs.firsts)):
        first, last = max(runs.firsts[run], min_count), min(runs.lasts[run], max_count)
        if first <= last:
            log_run, error = _sum_run(first, last, k, n, size, runs.with_replacement)
            log_run += runs.log_weights[run]
            outcome = runs.outcomes[run]
            previous = logs[outcome]
            logs[outcome] = _add_logs(previous, log_run)
            if logs[outcome] != max(previous, log_run):
                max_rounding = max(max_rounding, abs(logs[outcome]) + 1)
            max_error = max(max_error, error)
            n_summed += 1
    # A sum over runs adds their entropy, at most log(runs), to the relative errors of its terms.
    max_error += (LOG_RELATIVE_ERROR + 4 * MACHINE_EPSILON) * math.log(n_summed + 1.0)
    return np.minimum(logs, 0.0), max_error + 4 * MACHINE_EPSILON * n_summed * max_rounding


@compiled
def _sum_outcome_divergence(
    log_p: Floats, log_q: Floats, epsilon: float, extra_error: float, omitted: int
) -> tuple[float, float]:
    """Return lower and upper bounds of the log of the sum over outcomes of (P - E Q)+.

    `log_p` and `log_q` (outcomes,) are log probabilities of :func:`compute_outcome_logs` for two
    databases, `extra_error` is the larger of their extra errors, and E = exp(`epsilon`). The sum
    leaves out the outcome with index `omitted`, so that a probability near 1 does not cancel; none
    if it is -1.
    """
    low, high = -np.inf, -np.inf
    for outcome in range(len(log_p)):
        p, q = log_p[outcome], log_q[outcome]
        if p == -np.inf or outcome == omitted:
            continue
        error_p = LOG_ABSOLUTE_ERROR + LOG_RELATIVE_ERROR * abs(p) + extra_error
        error = error_p + 4 * MACHINE_EPSILON * (epsilon + 1)
        log_excess = np.inf
        if q > -np.inf:
            error += LOG_ABSOLUTE_ERROR + LOG_RELATIVE_ERROR * abs(q) + extra_error
            log_excess = p - q - epsilon
        # P - E Q = P (1 - E Q / P)
        if log_excess > error:
            low = _add_logs(low, p - error_p + math.log(-math.expm1(error - log_excess)))
        if log_excess > -error:
            high = _add_logs(high, p + error_p + math.log(-math.expm1(-log_excess - error)))
    if high == -np.inf:
        return low, high
    rounding = MACHINE_EPSILON * (len(log_p) + 16) * (1 + abs(high))
    return low - rounding, high + rounding


@compiled
def compute_outcome_profile(
    low: int, high: int, n: int, runs: OutcomeRuns, epsilon: float
) -> Floats:
    """Return lower and upper log delta(k) for `low` <= k <= `high`, float64 (2, high - low + 1).

    delta(k) is the largest divergence at `epsilon`, in both directions, of the database with k
    records of the first type from those with k - 1 and k + 1.
    """
    deltas = np.full((2, high - low + 1), -np.inf)
    first, last = max(low - 1, 0), min(high + 1, n)
    previous, previous_error = compute_outcome_logs(first, n, runs)
    for k in range(first + 1, last + 1):
        logs, error = compute_outcome_logs(k, n, runs)
        extra_error = max(error, previous_error)
        # At epsilon 0 both directions are the total variation, and the larger of both sums without
        # one outcome equals it. Omitting an outcome of probability near 1 avoids cancellation.
        omitted = np.argmax(logs) if epsilon == 0 else -1
        forward = _sum_outcome_divergence(previous, logs, epsilon, extra_error, omitted)
        backward = _sum_outcome_divergence(logs, previous, epsilon, extra_error, omitted)
        for column in (k - 1 - low, k - low):
            if 0 <= column <= high - low:
                deltas[0, column] = max(deltas[0, column], forward[0], backward[0])
                deltas[1, column] = max(deltas[1, column], forward[1], backward[1])
        previous, previous_error = logs, error
    return np.minimum(deltas, 0.0)  # type: ignore[no-any-return]
