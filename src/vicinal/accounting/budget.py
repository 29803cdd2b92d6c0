r"""Conversion between (epsilon, delta) and a zCDP budget B, and the integer units of budgets.

A budget B bounds the privacy loss of one subject over a whole interaction. Two interpretations of
it are valid for an individual filter over Gaussian releases:

``rdp``
    the interaction is (alpha, B alpha)-RDP for every alpha, that is B-zCDP (Feldman & Zrnic 2021);
    converted by Balle, Barthe, Gaboardi, Hsu & Sato 2020:
    epsilon = min over alpha of  B alpha + log(1 - 1/alpha) - (log delta + log alpha)/(alpha - 1).
``gdp``
    the interaction is mu-GDP with mu = sqrt(2 B) (Koskela, Tobaben & Honkela 2023; Smith &
    Thakurta 2022); converted exactly (Dong, Roth & Su 2022):
    delta = Phi(-epsilon/mu + mu/2) - exp(epsilon) Phi(-epsilon/mu - mu/2).

All results are rounded to the safe side: epsilon and delta up, budgets down. The individual filter
keeps budgets and charges as integers, so that sums of charges are exact.

A budget B is represented by ``UNITS`` = 2^48 integer units. A contribution whose squared norm is v2
(grid steps squared) under noise of scale s costs v2 / (2 s^2 B) of the budget. The cost of one
squared step in units, :func:`compute_unit_rate`, is rounded up far enough that the two roundings in
`charges.compute_charge` (integer to double, product) cannot take the result below the true cost:
double(v2) >= v2 (1 - 2^-53), product >= exact (1 - 2^-53), and the rate carries (1 + 2^-50).
``ceil`` then rounds up to whole units. One multiplication and one ``ceil`` of IEEE doubles give
the same result on every machine.
"""

import math
from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache

from scipy.special import log_ndtr

from vicinal import checks
from vicinal.errors import InvalidInput

METHODS = ("gdp", "rdp")  # Interpretations of a budget, see the module's text
# Relative allowance for rounding errors: log_ndtr and exp are exact to a few 1e-16, and the longest
# chain of operations below loses less than 1e-11.
_ROUNDING = 1e-10
_MAX_BISECTIONS = 200  # Bisections until two neighbouring doubles are reached, at most


def gdp_delta(mu: float, epsilon: float) -> float:
    """Return the smallest delta of a `mu`-GDP mechanism at `epsilon` >= 0, rounded up.

    Source: Dong, Roth & Su 2022, Corollary 1; Balle & Wang 2018.
    """
    mu = checks.check_real("mu", mu, minimum=0)
    epsilon = checks.check_real("epsilon", epsilon, minimum=0)
    if mu == 0:
        return 0.0
    log_first = float(log_ndtr(mu / 2 - epsilon / mu))
    log_second = epsilon + float(log_ndtr(-mu / 2 - epsilon / mu))
    difference = -math.expm1(min(log_second - log_first, 0.0))
    # An absolute error in either exponent becomes a relative one in the subtracted term.
    allowance = _ROUNDING * max(1.0, abs(log_first))
    bound = math.exp(log_first) * min(1.0, difference + allowance)
    # Below the smallest double the bound is that double: zero would claim pure DP.
    return min(1.0, max(bound, math.nextafter(0.0, 1.0)))


def gdp_epsilon(mu: float, delta: float) -> float:
    """Return the smallest epsilon >= 0 at which a `mu`-GDP mechanism has `delta`, rounded up."""
    mu = checks.check_real("mu", mu, minimum=0)
    delta = checks.check_real("delta", delta, above=0, below=1)
    if gdp_delta(mu, 0.0) <= delta:
        return 0.0
    _, epsilon = _bracket_change(
        lambda epsilon: not gdp_delta(mu, epsilon) <= delta, 0.0, lambda low, high: (low + high) / 2
    )
    return epsilon


def zcdp_epsilon(rho: float, delta: float) -> float:
    """Return epsilon of a `rho`-zCDP mechanism at `delta` by its RDP rho alpha, rounded up.

    Any order alpha gives a valid epsilon, so an inexact minimum is still an upper bound.
    Source: Balle et al. 2020, Theorem 21.
    """
    from scipy.optimize import minimize_scalar  # takes a third of a second; few plans need it

    rho = checks.check_real("rho", rho, minimum=0)
    delta = checks.check_real("delta", delta, above=0, below=1)

    def compute_epsilon(log_alpha_less_1: float) -> float:
        """Return epsilon by the order alpha, for log(alpha - 1)."""
        alpha_less_1 = math.exp(log_alpha_less_1)
        alpha = 1 + alpha_less_1
        return (
            rho * alpha
            - math.log1p(1 / alpha_less_1)
            - (math.log(delta) + math.log1p(alpha_less_1)) / alpha_less_1
        )

    # The best order is close to 1 + sqrt(log(1/delta)/rho); without a cost it is infinite.
    centre = 0.5 * math.log(math.log(1 / delta) / rho + 1) if rho > 0 else 25.0
    minimum = minimize_scalar(
        compute_epsilon,
        bounds=(centre - 12, centre + 12),
        method="bounded",
        options={"xatol": 1e-9},
    )
    return max(0.0, float(minimum.fun)) * (1 + _ROUNDING)


def zcdp_budget(epsilon: float, delta: float, method: str = "gdp") -> float:
    """Return the largest budget B, in zCDP, that guarantees (epsilon, delta)-DP, rounded down.

    `method` is the interpretation of the budget, "rdp" or "gdp"; see the module's text.
    """
    epsilon = checks.check_real("epsilon", epsilon, above=0)
    delta = checks.check_real("delta", delta, above=0, below=1)
    return _compute_budget(epsilon, delta, checks.check_choice("method", method, METHODS))


@lru_cache(maxsize=256)
def _compute_budget(epsilon: float, delta: float, method: str) -> float:
    """Return :func:`zcdp_budget` of checked arguments; cached, as a fit uses it several times."""

    def is_affordable(rho: float) -> bool:
        """Return whether the budget `rho` guarantees (`epsilon`, `delta`)."""
        if method == "gdp":
            return gdp_delta(math.sqrt(2 * rho), epsilon) <= delta
        return zcdp_epsilon(rho, delta) <= epsilon

    min_budget = 1e-30
    if not is_affordable(min_budget):
        raise InvalidInput(
            "The 'epsilon' and 'delta' parameters leave too little budget to compute with. "
            "Take a larger epsilon or delta."
        )
    budget, _ = _bracket_change(is_affordable, min_budget, lambda low, high: math.sqrt(low * high))
    return budget


def _bracket_change(
    holds: Callable[[float], bool], low: float, compute_mean: Callable[[float, float], float]
) -> tuple[float, float]:
    """Return the two neighbouring doubles >= `low` between which `holds` becomes false.

    `holds` is true at `low` and up to some number, and false above it. `compute_mean`: the number
    at which an interval (low, high) is divided.
    """
    high = 1.0
    while holds(high):
        low, high = high, 2 * high
    for _ in range(_MAX_BISECTIONS):
        middle = compute_mean(low, high)
        if not low < middle < high:
            break
        if holds(middle):
            low = middle
        else:
            high = middle
    return low, high


UNITS = 1 << 48  # Integer units of every subject's full budget
# The largest norm of a contribution, in grid steps: its square stays inside int64.
MAX_NORM = 1 << 31
MAX_SCALE = 1 << 40  # The largest noise scale, in grid steps
# Factor on rates that covers the two roundings of a charge, see the module's text.
_ROUNDED_UP = 1 + Fraction(1, 1 << 50)


def compute_unit_rate(scale: int, budget: float) -> float:
    """Return the charge, in units, of a contribution of one squared grid step, rounded up.

    `scale`: the noise scale s in grid steps, 1 to 2^40. `budget`: the full budget B in zCDP.
    """
    scale = checks.check_integer("scale", scale, minimum=1, maximum=MAX_SCALE)
    return _compute_rate(scale, checks.check_real("budget", budget, above=0))


@lru_cache(maxsize=256)
def _compute_rate(scale: int, budget: float) -> float:
    """Return :func:`compute_unit_rate` of checked arguments; cached, as fractions take .1 ms."""
    exact = UNITS / (2 * Fraction(scale) ** 2 * Fraction(budget))
    return math.nextafter(float(exact * _ROUNDED_UP), math.inf)
