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
(grid steps squared) under noise of scale s costs v2 / (2 s^2 B) of the budget. ``unit_rate(s, B)``
is the cost of one squared step in units, rounded up far enough that the two roundings inside
`charges.charge` (integer to double, product) cannot take the result below the true cost:
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
    return _find_smallest(lambda epsilon: gdp_delta(mu, epsilon) <= delta)


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
    """Return the largest budget B that guarantees (`epsilon`, `delta`), for checked arguments.

    `method`: "rdp" or "gdp", as of :func:`zcdp_budget`. Cached, as a fit uses it several times.
    """
    if method == "gdp":
        return _find_largest(lambda rho: gdp_delta(math.sqrt(2 * rho), epsilon) <= delta)
    return _find_largest(lambda rho: zcdp_epsilon(rho, delta) <= epsilon)


def _find_largest(holds: Callable[[float], bool]) -> float:
    """Return the largest number > 0 at which `holds` is true, to double precision.

    `holds` is true up to some number and false above. Raises InvalidInput if it is false at 1e-30.
    """
    low, high = 1e-30, 1.0
    if not holds(low):
        raise InvalidInput(
            "The 'epsilon' and 'delta' parameters leave too little budget to compute with. "
            "Take a larger epsilon or delta."
        )
    while holds(high):
        low, high = high, 2 * high
    for _ in range(_MAX_BISECTIONS):
        middle = math.sqrt(low * high)
        if not low < middle < high:
            break
        if holds(middle):
            low = middle
        else:
            high = middle
    return low


def _find_smallest(holds: Callable[[float], bool]) -> float:
    """Return the smallest number >= 0 at which `holds` is true, to double precision.

    `holds` is false below some number and true from there on.
    """
    if holds(0.0):
        return 0.0
    low, high = 0.0, 1.0
    while not holds(high):
        low, high = high, 2 * high
    for _ in range(_MAX_BISECTIONS):
        middle = (low + high) / 2
        if not low < middle < high:
            break
        if holds(middle):
            high = middle
        else:
            low = middle
    return high


UNITS = 1 << 48  # Integer units of every subject's full budget
# The largest norm of a contribution, in grid steps: its square stays inside int64.
MAX_NORM = 1 << 31
MAX_SCALE = 1 << 40  # The largest noise scale, in grid steps
# Factor on rates that covers the two roundings of a charge, see the module's text.
_ROUNDED_UP = 1 + Fraction(1, 1 << 50)


def unit_rate(scale: int, budget: float) -> float:
    """Return the charge in units of a contribution of one squared grid step, rounded up.

    `scale` is the noise scale s in grid steps, 1 <= s <= 2^40; `budget` is the full budget B in
    zCDP, which ``UNITS`` units stand for.
    """
    scale = checks.check_integer("scale", scale, minimum=1, maximum=MAX_SCALE)
    return _compute_rate(scale, checks.check_real("budget", budget, above=0))


@lru_cache(maxsize=256)
def _compute_rate(scale: int, budget: float) -> float:
    """Return the charge in units of one squared grid step, rounded up, for checked arguments.

    `scale`, `budget`: those of :func:`unit_rate`. Cached, because fractions take .1 ms.
    """
    exact = UNITS / (2 * Fraction(scale) ** 2 * Fraction(budget))
    return math.nextafter(float(exact * _ROUNDED_UP), math.inf)
