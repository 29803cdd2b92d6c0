"""Numbers that are known to lie between two others, as logarithms: deltas go far below 1e-308.

Upper ends are rounded up and lower ends down, so that nothing here claims more than was computed.

:class:`Delta` is such an interval as a result: with its method, a note, and whether it is private.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal, localcontext

import numpy as np

from vicinal.arrays import Floats
from vicinal.compiled import compiled

UNIT = 2.0**-52
LOG_10 = math.log(10)


@dataclass(frozen=True, slots=True)
class LogInterval:
    """A positive number between exp(`low`) and exp(`high`); minus infinity stands for 0."""

    low: float
    high: float

    def capped(self, most: float = 0.0) -> LogInterval:
        """Return this if its logarithm is known to be at most `most`."""
        return LogInterval(min(self.low, most), min(self.high, most))


ZERO = LogInterval(-math.inf, -math.inf)
ONE = LogInterval(0.0, 0.0)


def within(value: float, slack: float) -> LogInterval:
    """Return the number whose logarithm is `value` to within `slack`."""
    return ZERO if value == -math.inf else LogInterval(value - slack, value + slack)


def largest(values: Iterable[LogInterval]) -> LogInterval:
    """Return the largest of several numbers; 0 if there are none."""
    intervals = list(values)
    return LogInterval(
        max((value.low for value in intervals), default=-math.inf),
        max((value.high for value in intervals), default=-math.inf),
    )


def pairs_of(values: Iterable[LogInterval]) -> Floats:
    """Return lower ends and upper ends, float64 (2, n)."""
    return np.array([(value.low, value.high) for value in values]).T


def total(values: Iterable[LogInterval]) -> LogInterval:
    """Return the sum of several numbers; 0 if there are none."""
    intervals = list(values)
    slack = UNIT * (len(intervals) + 8)
    return LogInterval(
        log_sum(np.array([value.low for value in intervals])) - slack,
        log_sum(np.array([value.high for value in intervals])) + slack,
    )


def log_sum(logs: Floats) -> float:
    """Return log of the sum of exponentials, good to (size + 8) units; -inf if empty."""
    top = float(logs.max()) if len(logs) else -math.inf
    return top if math.isinf(top) else top + math.log(float(np.exp(logs - top).sum()))


def weighted_excess(
    log_p: Floats, log_ratio: Floats, log_e: float, slack: Floats | float, log_weight: Floats
) -> LogInterval:
    """Return the sum over outcomes of (P - E P')+ times a weight.

    `log_ratio` is log P / P' and may be infinite; `log_e` is epsilon. `slack` bounds the errors of
    both logs, and half of that of `log_weight` <= 0.
    """
    wrong = slack + 4 * UNIT * (abs(log_e) + 1)
    rounding = UNIT * (len(log_p) + 16)
    with np.errstate(divide="ignore"):
        ends = [
            log_p + log_weight + np.log(-np.expm1(-np.maximum(log_ratio - log_e + sign * wrong, 0)))
            + 3 * sign * slack
            for sign in (-1, 1)
        ]  # fmt: skip
    return LogInterval(log_sum(ends[0]) - rounding, log_sum(ends[1]) + rounding)


def log_of(value: float) -> float:
    """Return the logarithm of a number, minus infinity where it is not above 0."""
    return math.log(value) if value > 0 else -math.inf


def from_sum(value: float, error: float) -> LogInterval:
    """Return the number `value` >= 0 that is known to within `error`."""
    slack = 4 * UNIT
    return LogInterval(log_of(value - error) - slack, log_of(value + error) + slack)


EXACT = "exact"
SANDWICH = "sandwich"
BOUND = "bound"
MONTE_CARLO = "monte carlo"


@dataclass(frozen=True)
class Delta:
    """A number that is certain to lie between `lower` and `upper`.

    Attributes
    ----------
    log_lower, log_upper : float
        Natural logarithms, as deltas go far below the smallest float; -inf stands for 0.
    method : {"exact", "sandwich", "bound", "monte carlo"}
        Exact: the two ends differ by rounding only. Sandwich: both ends are computed, by different
        sums. Bound: the upper end is a theorem's, the lower end may be 0. Monte Carlo: databases
        were drawn, and the interval holds with the confidence that the note states.
    note : str
        What else has to be said.

    Examples
    --------
    >>> from vicinal.smoothed import FixedSize, Histogram, worst_case_delta
    >>> delta = worst_case_delta(Histogram(FixedSize(5)), 10, epsilon=1.0)
    >>> round(delta.upper, 3), delta.method
    (0.5, 'exact')
    """

    log_lower: float
    log_upper: float
    method: str = EXACT
    note: str = ""

    @property
    def lower(self) -> float:
        """The lower end; 0 where it is too small for a float."""
        return min(_rounded(self.log_lower, -math.inf), 1.0)

    @property
    def upper(self) -> float:
        """The upper end, rounded up: never 0 unless the number is."""
        return min(_rounded(self.log_upper, math.inf), 1.0)

    @property
    def log10_lower(self) -> float:
        """The lower end as a power of ten."""
        return self.log_lower / LOG_10

    @property
    def log10_upper(self) -> float:
        """The upper end as a power of ten."""
        return self.log_upper / LOG_10

    @property
    def value(self) -> float:
        """The middle of the interval, on the scale of logarithms; 0 if the lower end is 0."""
        return math.exp((self.log_lower + self.log_upper) / 2)

    def to_dict(self) -> dict[str, object]:
        """Return plain values for JSON, which has no infinities: None is the logarithm of 0."""
        logs = {"log10_lower": self.log10_lower, "log10_upper": self.log10_upper}
        return {
            "lower": self.lower,
            "upper": self.upper,
            **{name: value if math.isfinite(value) else None for name, value in logs.items()},
            "method": self.method,
            "note": self.note,
        }

    def __str__(self) -> str:
        ends = " to ".join(power_of_ten(end) for end in (self.log_lower, self.log_upper))
        if self.method == EXACT and self.log_upper - self.log_lower < 1e-6:
            ends = power_of_ten(self.log_upper)
        return f"{ends} ({self.method})"


@dataclass(frozen=True)
class DatabaseDelta(Delta):
    """The delta (or utility) of one database. It is private: a function of the records themselves.

    Publishing it is a release of its own.

    Examples
    --------
    >>> from vicinal.smoothed import FixedSize, Histogram, database_delta
    >>> delta = database_delta(Histogram(FixedSize(5)), [4, 6], epsilon=1.0)
    >>> 0 <= delta.log_upper - delta.log_lower < 1e-9 and delta.method == "exact"
    True
    """

    def __str__(self) -> str:
        return f"PRIVATE {super().__str__()}"

    def to_dict(self) -> dict[str, object]:
        return {"private": True, **super().to_dict()}


def power_of_ten(log: float) -> str:
    """Return exp(`log`) with four digits, also where it is too small for a float."""
    if log == -math.inf:
        return "0"
    if -700 < log < 700:
        return f"{math.exp(log):.4g}"
    exponent = math.floor(log / LOG_10)
    return f"{10 ** (log / LOG_10 - exponent):.3f}e{exponent}"


def delta_of(number: LogInterval, method: str = EXACT, note: str = "") -> Delta:
    """Return an interval of logarithms as an answer."""
    capped = number.capped()
    return Delta(capped.low, capped.high, method, note)


def _rounded(log: float, towards: float) -> float:
    """Return exp(log), moved by its error of a few roundings."""
    if log == -math.inf:
        return 0.0
    value = math.exp(min(log, 709.0))
    for _ in range(2 + math.ceil(abs(log))):
        if log > -745 or value == 0:
            value = math.nextafter(value, towards)
        if value == 0 or abs(log) > 700:
            break
    return max(value, 0.0)


# ------------------- log probabilities of sampling, to nearly full precision however small they are

SLOPE = 2.0**-46
"""Relative error of a log probability, rounded up."""
FLOOR = 2.0**-45
"""Absolute error of a log probability near 0, rounded up."""

_TABLE = 16
_SMALL = 0.1
_SPLIT = 134217729.0


def _stirling_table() -> Floats:
    """Return s(x) for x < 16, from 40 digits; s(0) = 0 makes an empty cell vanish."""
    with localcontext() as context:
        context.prec = 40
        values = [
            Decimal(math.factorial(x)).ln() - x * Decimal(x).ln() + x for x in range(1, _TABLE)
        ]
    return np.array([0.0, *map(float, values)])


_STIRLING = _stirling_table()
_HALF_LOG_2_PI = 0.9189385332046727


@compiled
def stirling(x: float) -> float:
    """Return s(x) = log(x!) - x log x + x for a whole number x >= 0."""
    if x < _TABLE:
        return _STIRLING[int(x)]  # type: ignore[no-any-return]
    y = 1.0 / (x * x)
    series = 1 / 12 - y * (1 / 360 - y * (1 / 1260 - y * (1 / 1680 - y * (1 / 1188))))
    return _HALF_LOG_2_PI + 0.5 * math.log(x) + series / x


@compiled
def phi(v: float) -> float:
    """Return (1 + v) log(1 + v) - v for v >= -1."""
    if v <= -1.0:
        return 1.0
    if abs(v) >= _SMALL:
        return (1 + v) * math.log1p(v) - v
    total = 0.0
    for j in range(17, -1, -1):
        total = 1.0 / ((j + 1) * (j + 2)) - v * total
    return v * v * total


@compiled
def _deviance(shift: float, expected: float) -> float:
    """Return x log(x/e) - x + e for x = e + shift."""
    return expected * phi(shift / expected) if expected > 0 else 0.0


@compiled
def log_hypergeometric(o: int, kind: int, others: int, size: int) -> float:
    """Return log Pr[`o` of `kind` equal records are among `size` drawn from kind + others]."""
    total = kind + others
    if o < 0 or o > kind or size - o < 0 or size - o > others:
        return -np.inf
    if size == 0 or size == total:
        return 0.0
    shift = float(o * total - kind * size) / total
    undrawn = total - size
    bulk = _deviance(shift, kind * (size / total)) + _deviance(-shift, kind * (undrawn / total))
    bulk += _deviance(-shift, others * (size / total)) + _deviance(
        shift, others * (undrawn / total)
    )
    margins = (
        stirling(kind) + stirling(others) + stirling(size) + stirling(undrawn) - stirling(total)
    )
    cells = stirling(o) + stirling(kind - o) + stirling(size - o) + stirling(others - size + o)
    return min(margins - cells - bulk, 0.0)  # type: ignore[no-any-return]


@compiled
def margin(big: int, factor: float, small: int) -> float:
    """Return big - factor small with an error of about one rounding, by Dekker's product."""
    y = float(small)
    product = factor * y
    head = _SPLIT * factor
    f_high = head - (head - factor)
    head = _SPLIT * y
    y_high = head - (head - y)
    f_low, y_low = factor - f_high, y - y_high
    error = ((f_high * y_high - product) + f_high * y_low + f_low * y_high) + f_low * y_low
    x = float(big)
    return (x - product) + ((float(big - int(x)) - error) - factor * float(small - int(y)))


@compiled
def log_binomial(x: int, n: int, p: float, q: float) -> float:
    """Return log Pr[Bin(n, p) = x]; q = 1 - p."""
    if x < 0 or x > n or (p == 0 and x > 0) or (q == 0 and x < n):
        return -np.inf
    shift = margin(x, p, n)
    bulk = _deviance(shift, n * p) + _deviance(-shift, n * q)
    return min(stirling(n) - stirling(x) - stirling(n - x) - bulk, 0.0)  # type: ignore[no-any-return]


@compiled
def _log_binomials(low: int, high: int, n: int, p: float, q: float) -> Floats:
    values = np.empty(high - low)
    for x in range(low, high):
        values[x - low] = log_binomial(x, n, p, q)
    return values


@compiled
def _log_hypergeometrics(low: int, high: int, kind: int, others: int, size: int) -> Floats:
    values = np.empty(high - low)
    for x in range(low, high):
        values[x - low] = log_hypergeometric(x, kind, others, size)
    return values


def binomial(n: int, p: float, low: int = 0, high: int | None = None) -> Floats:
    """Return log Pr[Bin(n, p) = x] for low <= x < high (n + 1 if None), float64."""
    stop = n + 1 if high is None else high
    return np.asarray(_log_binomials(low, stop, n, p, 1 - p))


def hypergeometric(kind: int, others: int, size: int, low: int, high: int) -> Floats:
    """Return log Pr[x of `kind` records among `size` drawn] for low <= x < high, float64."""
    return np.asarray(_log_hypergeometrics(low, high, kind, others, size))
