"""Numbers that are known to lie between two others, as logarithms: deltas go far below 1e-308.

Upper ends are rounded up and lower ends down, so that nothing here claims more than was computed.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]

UNIT = 2.0**-52
LOG_10 = math.log(10)


@dataclass(frozen=True, slots=True)
class Log:
    """A positive number between exp(`low`) and exp(`high`); minus infinity stands for 0."""

    low: float
    high: float

    def capped(self, most: float = 0.0) -> Log:
        """Return this if its logarithm is known to be at most `most`."""
        return Log(min(self.low, most), min(self.high, most))


ZERO = Log(-math.inf, -math.inf)
ONE = Log(0.0, 0.0)


def known(value: float, slack: float) -> Log:
    """Return the number whose logarithm is `value` to within `slack`."""
    return ZERO if value == -math.inf else Log(value - slack, value + slack)


def largest(values: Iterable[Log]) -> Log:
    """Return the largest of several numbers; 0 if there are none."""
    found = list(values)
    return Log(
        max((value.low for value in found), default=-math.inf),
        max((value.high for value in found), default=-math.inf),
    )


def total(values: Iterable[Log]) -> Log:
    """Return the sum of several numbers; 0 if there are none."""
    found = list(values)
    slack = UNIT * (len(found) + 8)
    return Log(
        log_sum(np.array([value.low for value in found])) - slack,
        log_sum(np.array([value.high for value in found])) + slack,
    )


def log_sum(logs: Array) -> float:
    """Return log of the sum of exponentials, good to (size + 8) units; -inf if empty."""
    top = float(logs.max()) if len(logs) else -math.inf
    return top if math.isinf(top) else top + math.log(float(np.exp(logs - top).sum()))


def weighted_excess(
    log_p: Array, log_ratio: Array, log_e: float, slack: Array | float, log_weight: Array
) -> Log:
    """Return the sum over outcomes of (P - E P')+ times a weight.

    Parameters
    ----------
    log_p, log_ratio : ndarray, shape (r,)
        log P, and log P / P', which may be infinite.
    log_e : float
        The logarithm of E, so epsilon.
    slack : ndarray, shape (r,), or float
        Largest absolute error of `log_p` and `log_ratio`.
    log_weight : ndarray, shape (r,)
        Logarithms of the weights, at most 0; good to twice the slack.
    """
    wrong = slack + 4 * UNIT * (abs(log_e) + 1)
    rounding = UNIT * (len(log_p) + 16)
    with np.errstate(divide="ignore"):
        ends = [
            log_p + log_weight + np.log(-np.expm1(-np.maximum(log_ratio - log_e + sign * wrong, 0)))
            + 3 * sign * slack
            for sign in (-1, 1)
        ]  # fmt: skip
    return Log(log_sum(ends[0]) - rounding, log_sum(ends[1]) + rounding)


def from_sum(value: float, error: float) -> Log:
    """Return the number `value` >= 0 that is known to within `error`."""
    low, high = value - error, value + error
    slack = 4 * UNIT
    return Log(
        math.log(low) - slack if low > 0 else -math.inf,
        math.log(high) + slack if high > 0 else -math.inf,
    )
