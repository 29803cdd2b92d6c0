"""Numbers enclosed between certified bounds, stored as natural logarithms.

Deltas go far below 1e-308, the smallest float, so every interval holds logarithms. Upper ends are
rounded up and lower ends down: an interval always contains the exact value.

:class:`Delta` is an interval returned to the user, with the method that gave it and a note;
:class:`DatabaseDelta` marks it as private. The end of the module has the log probabilities of
binomial and hypergeometric distributions with certified errors.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_EVEN, Context, Decimal, localcontext

import numpy as np

from vicinal.arrays import Floats
from vicinal.compiled import compiled

MACHINE_EPSILON = 2.0**-52
"""Distance from 1 to the next float64; a rounded operation errs by at most half of it."""
LOG_10 = math.log(10)
"""Divisor that turns natural into decimal logarithms."""


@dataclass(frozen=True, slots=True)
class LogInterval:
    """A nonnegative number between exp(`low`) and exp(`high`); minus infinity stands for 0."""

    low: float
    high: float

    def cap_at_one(self) -> LogInterval:
        """Return the interval with both ends at most 1, for a number known to be at most 1."""
        return LogInterval(min(self.low, 0.0), min(self.high, 0.0))


ZERO = LogInterval(-math.inf, -math.inf)


def max_interval(numbers: Iterable[LogInterval]) -> LogInterval:
    """Return the interval of the largest of several enclosed numbers; 0 if there are none."""
    intervals = list(numbers)
    return LogInterval(
        max((number.low for number in intervals), default=-math.inf),
        max((number.high for number in intervals), default=-math.inf),
    )


def sum_intervals(numbers: Iterable[LogInterval]) -> LogInterval:
    """Return the interval of the sum of several enclosed numbers; 0 if there are none."""
    intervals = list(numbers)
    slack = MACHINE_EPSILON * (len(intervals) + 8)
    return LogInterval(
        log_sum(np.array([number.low for number in intervals])) - slack,
        log_sum(np.array([number.high for number in intervals])) + slack,
    )


def log_sum(logs: Floats) -> float:
    """Return log(sum of exp(`logs`)), minus infinity for no terms.

    The error is at most (number of terms + 8) times 2^-52.
    """
    max_log = float(logs.max()) if len(logs) else -math.inf
    if math.isinf(max_log):
        return max_log
    return max_log + math.log(float(np.exp(logs - max_log).sum()))


def log_or_minus_inf(value: float) -> float:
    """Return the natural logarithm of `value`, minus infinity if it is not positive."""
    return math.log(value) if value > 0 else -math.inf


EXACT = "exact"
SANDWICH = "sandwich"
BOUND = "bound"
MONTE_CARLO = "monte carlo"
"""The methods of :class:`Delta`."""


@dataclass(frozen=True)
class Delta:
    """A delta (or another number in [0, 1]) enclosed between `lower` and `upper`.

    Attributes
    ----------
    log_lower, log_upper : float
        Natural logarithms, as deltas go far below the smallest float; -inf stands for 0.
    method : {"exact", "sandwich", "bound", "monte carlo"}
        Exact: the two ends differ by rounding only. Sandwich: both ends are computed, by different
        sums. Bound: the upper end comes from a theorem, the lower end may be 0. Monte Carlo:
        databases were sampled, and the interval holds with the confidence that the note states.
    note : str
        Limits of the result, for example the confidence of a Monte Carlo interval; may be empty.

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
        """The lower end, rounded down; 0 where it is too small for a float."""
        return min(_exp_rounded(self.log_lower, -math.inf), 1.0)

    @property
    def upper(self) -> float:
        """The upper end, rounded up: positive unless the number is exactly 0."""
        return min(_exp_rounded(self.log_upper, math.inf), 1.0)

    @property
    def log10_lower(self) -> float:
        """Decimal logarithm of the lower end."""
        return self.log_lower / LOG_10

    @property
    def log10_upper(self) -> float:
        """Decimal logarithm of the upper end."""
        return self.log_upper / LOG_10

    @property
    def value(self) -> float:
        """The geometric mean of the two ends; 0 if the lower end is 0."""
        return math.exp((self.log_lower + self.log_upper) / 2)

    def to_dict(self) -> dict[str, object]:
        """Return plain values for JSON. A logarithm of 0 is None, as JSON has no infinities."""
        logs = {"log10_lower": self.log10_lower, "log10_upper": self.log10_upper}
        return {
            "lower": self.lower,
            "upper": self.upper,
            **{name: value if math.isfinite(value) else None for name, value in logs.items()},
            "method": self.method,
            "note": self.note,
        }

    def __str__(self) -> str:
        """Return both ends and the method as text, such as ``0.03846 (exact)``."""
        is_exact = self.method == EXACT
        text = format_interval(self.log_lower, self.log_upper, merge_close_ends=is_exact)
        return f"{text} ({self.method})"


@dataclass(frozen=True)
class DatabaseDelta(Delta):
    """The delta (or the adjusted utility) of one database, a private value.

    It is a function of the records, so publishing it would be a release of its own.

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


_MAX_NUMBER_WIDTH = 1e-6
"""Largest width, in natural logarithms, of an interval that is printed as one number."""
_DIGITS = 4  # significant digits of printed numbers


def format_interval(log_lower: float, log_upper: float, *, merge_close_ends: bool) -> str:
    """Return the ends exp(`log_lower`) and exp(`log_upper`) as text, rounded outward.

    `merge_close_ends`: whether one number is printed for an interval narrower than
    1e-6: the smallest of four significant digits that is not below the lower end. It
    is exact if four digits suffice, and an upper bound otherwise.
    """
    if merge_close_ends and (log_lower == log_upper or log_upper - log_lower < _MAX_NUMBER_WIDTH):
        return format_power_of_ten(log_lower, round_up=True)
    low = format_power_of_ten(log_lower, round_up=False)
    return f"{low} to {format_power_of_ten(log_upper, round_up=True)}"


def format_power_of_ten(log: float, *, round_up: bool) -> str:
    """Return exp(`log`) as text with four significant digits, even below the smallest float.

    `round_up`: round up, for an upper bound; False rounds down.
    """
    if log == -math.inf:
        return "0"
    is_float = -700 < log < 700
    exponent = 0 if is_float else math.floor(log / LOG_10)
    number = Decimal(math.exp(log) if is_float else 10 ** (log / LOG_10 - exponent))
    rounded = Context(_DIGITS, ROUND_HALF_EVEN).plus(number)
    # Closer than the error of the exponential, the number of four digits is the result.
    if abs(rounded - number) > number * Decimal(MACHINE_EPSILON * (8 + 2 * abs(log))):
        rounded = Context(_DIGITS, ROUND_CEILING if round_up else ROUND_FLOOR).plus(number)
    if is_float:
        return f"{float(rounded):.{_DIGITS}g}"
    shift = rounded.adjusted()  # 1 for 10.00
    return f"{rounded.scaleb(-shift):.{_DIGITS - 1}f}e{exponent + shift}"


def make_delta(number: LogInterval, method: str = EXACT, note: str = "") -> Delta:
    """Return `number`, capped at 1, as a :class:`Delta` with its attributes `method` and `note`."""
    capped = number.cap_at_one()
    return Delta(capped.low, capped.high, method, note)


def _exp_rounded(log: float, direction: float) -> float:
    """Return exp(`log`), rounded up if `direction` is inf and down if it is -inf."""
    # The relative error of exp is about 2 + abs(log) units in the last place.
    if log == -math.inf:
        return 0.0
    value = math.exp(min(log, 709.0))  # exp(710) overflows
    for _ in range(2 + math.ceil(abs(log))):
        # Below log = -745 exp is 0 or the smallest float, which one step already exceeds.
        if log > -745 or value == 0:
            value = math.nextafter(value, direction)
        if value == 0 or abs(log) > 700:
            break
    return max(value, 0.0)


# ------- log probabilities of sampling, accurate to a few roundings even where they are very small

LOG_RELATIVE_ERROR = 2.0**-46
"""Bound of the relative error of a log probability, checked against 50 digits by the tests."""
LOG_ABSOLUTE_ERROR = 2.0**-45
"""Bound of the absolute error of a log probability near 0, checked in the same tests."""

_N_TABULATED = 16
"""s(x) for smaller x is read from a table; from here on five terms of the series suffice."""
_MAX_SERIES_ARGUMENT = 0.1
"""Below this abs(v), phi(v) is summed as a power series of 18 terms: .1^18 is below rounding."""
_DEKKER_SPLITTER = 134217729.0
"""2^27 + 1: splits a float64 into two halves of at most 26 bits (Dekker 1971)."""


def _tabulate_stirling_terms() -> Floats:
    """Return the values s(0) .. s(15) of :func:`stirling_term`, computed with 40 digits."""
    with localcontext() as context:
        context.prec = 40
        values = [
            Decimal(math.factorial(x)).ln() - x * Decimal(x).ln() + x
            for x in range(1, _N_TABULATED)
        ]
    return np.array([0.0, *map(float, values)])


_STIRLING_TERMS = _tabulate_stirling_terms()
_HALF_LOG_2_PI = 0.9189385332046727  # log(2 pi) / 2, the constant of Stirling's series


@compiled
def stirling_term(x: float) -> float:
    """Return s(x) = log(x!) - x log x + x for a whole number x >= 0 (Stirling's series)."""
    if x < _N_TABULATED:
        return _STIRLING_TERMS[int(x)]  # type: ignore[no-any-return]
    y = 1.0 / (x * x)
    series = 1 / 12 - y * (1 / 360 - y * (1 / 1260 - y * (1 / 1680 - y * (1 / 1188))))
    return _HALF_LOG_2_PI + 0.5 * math.log(x) + series / x


@compiled
def compute_phi(v: float) -> float:
    """Return phi(v) = (1 + v) log(1 + v) - v for v >= -1, without cancellation near 0."""
    if v <= -1.0:
        return 1.0
    if abs(v) >= _MAX_SERIES_ARGUMENT:
        return (1 + v) * math.log1p(v) - v
    series = 0.0
    for j in range(17, -1, -1):
        series = 1.0 / ((j + 1) * (j + 2)) - v * series
    return v * v * series


@compiled
def _compute_deviance(shift: float, expected: float) -> float:
    """Return x log(x / expected) - x + expected for a count x = `expected` + `shift`.

    This is the deviance term of Loader's saddle-point expansion.
    """
    return expected * compute_phi(shift / expected) if expected > 0 else 0.0


@compiled
def log_hypergeometric(o: int, n_type: int, n_rest: int, size: int) -> float:
    """Return log Pr[`o` of the `n_type` records of a type are sampled], by Loader's expansion.

    `o`: number of sampled records of the type. `size` of n_type + `n_rest` records are sampled
    without replacement.
    """
    n = n_type + n_rest
    if o < 0 or o > n_type or size - o < 0 or size - o > n_rest:
        return -np.inf
    if size == 0 or size == n:
        return 0.0
    shift = float(o * n - n_type * size) / n
    undrawn = n - size
    deviance = _compute_deviance(shift, n_type * (size / n)) + _compute_deviance(
        -shift, n_type * (undrawn / n)
    )
    deviance += _compute_deviance(-shift, n_rest * (size / n)) + _compute_deviance(
        shift, n_rest * (undrawn / n)
    )
    margin_terms = (
        stirling_term(n_type)
        + stirling_term(n_rest)
        + stirling_term(size)
        + stirling_term(undrawn)
        - stirling_term(n)
    )
    cell_terms = (
        stirling_term(o)
        + stirling_term(n_type - o)
        + stirling_term(size - o)
        + stirling_term(n_rest - size + o)
    )
    return min(margin_terms - cell_terms - deviance, 0.0)  # type: ignore[no-any-return]


@compiled
def subtract_product(minuend: int, factor: float, multiplier: int) -> float:
    """Return minuend - factor * multiplier with an error of about one rounding.

    The rounding error of the product is recovered by Dekker's algorithm, so that nothing is lost
    where the difference nearly vanishes.
    """
    y = float(multiplier)
    product = factor * y
    # Halves of 26 bits: the four partial products are exact, so their sum shows the error.
    scaled = _DEKKER_SPLITTER * factor
    factor_high = scaled - (scaled - factor)
    scaled = _DEKKER_SPLITTER * y
    y_high = scaled - (scaled - y)
    factor_low, y_low = factor - factor_high, y - y_high
    product_error = (
        (factor_high * y_high - product) + factor_high * y_low + factor_low * y_high
    ) + factor_low * y_low
    x = float(minuend)
    return (x - product) + (
        (float(minuend - int(x)) - product_error) - factor * float(multiplier - int(y))
    )


@compiled
def log_binomial(x: int, n: int, p: float, q: float) -> float:
    """Return log Pr[Bin(n, p) = x], by Loader's saddle-point expansion; q = 1 - p."""
    if x < 0 or x > n or (p == 0 and x > 0) or (q == 0 and x < n):
        return -np.inf
    shift = subtract_product(x, p, n)
    deviance = _compute_deviance(shift, n * p) + _compute_deviance(-shift, n * q)
    return min(stirling_term(n) - stirling_term(x) - stirling_term(n - x) - deviance, 0.0)  # type: ignore[no-any-return]


@compiled
def _compute_log_binomial_pmf(low: int, high: int, n: int, p: float, q: float) -> Floats:
    """Return log Pr[Bin(n, p) = x] for low <= x < high, float64 (high - low,); q = 1 - p."""
    values = np.empty(high - low)
    for x in range(low, high):
        values[x - low] = log_binomial(x, n, p, q)
    return values


def log_binomial_pmf(n: int, p: float, low: int = 0, high: int | None = None) -> Floats:
    """Return log Pr[Bin(n, p) = x] for low <= x < high (n + 1 if None), float64 (high - low,)."""
    stop = n + 1 if high is None else high
    return np.asarray(_compute_log_binomial_pmf(low, stop, n, p, 1 - p))


@compiled
def log_hypergeometric_pmf(n_type: int, n_rest: int, size: int, low: int, high: int) -> Floats:
    """Return log Pr[o of the `n_type` records of a type are sampled], float64 (high - low,).

    It is for `low` <= o < `high`; `size` of n_type + `n_rest` records are sampled without
    replacement.
    """
    values = np.empty(high - low)
    for o in range(low, high):
        values[o - low] = log_hypergeometric(o, n_type, n_rest, size)
    return values
