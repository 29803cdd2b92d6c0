r"""Theorems about publishing the counts of T of n records: bounds above and a floor below.

With lambda = 1 - T/n, E = exp(epsilon) and KL(a||b) the divergence of two coins (theory.md,
section 8b; types i have probability at least f_i in every plausible distribution):

* one-sided, E > 1 / lambda, K = KL(1 - 1/E || T/n): smoothed delta is at most the sum over types
  of (1 - f_i (1 - e^-K))^n. It is the argument of Theorem 3 (a) of LWX23 with its constants kept.
* two-sided, any epsilon > 0: choose c' in (1, min(E, 1 / lambda)], c = c' / E, K1 = KL(lambda c ||
  lambda), K2 = KL(lambda c' || lambda) and A = (1 - lambda c') log(c' (1 - lambda) /
  (1 - lambda c')). A swap of one i into a j loses at most e^(-h_i K1) + e^(A - h_j K2), and the
  smoothed delta is at most the sum over types of (1 - f_i (1 - e^-K1))^n +
  e^(A + K2) (1 - f_i (1 - e^-K2))^n; at c' = 1 / lambda the second part vanishes.
* floor, for *every* epsilon: a type of probability f that is absent from the n - T records left
  out is revealed, so smoothed delta >= (1 - f)^(n-T) - (1 - T/n) (1 - f)^n.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.special import logsumexp, xlogy

from vicinal import _checks
from vicinal._arrays import Floats
from vicinal.errors import InvalidInput
from vicinal.smoothed._intervals import LOG_10, UNIT, power_of_ten
from vicinal.smoothed._populations import Population

_GRID = 64
_SLACK = 64


@dataclass(frozen=True)
class Bounds:
    """Natural logarithms of the bounds of one setting; `upper` is the smallest upper one.

    Examples
    --------
    >>> from vicinal.smoothed import Hull, bounds
    >>> voters = Hull([[0.4, 0.6], [0.6, 0.4]])
    >>> found = bounds(voters, n=10_000, size=5_000, epsilon=1.0)
    >>> found.log_floor <= found.log_upper
    True
    """

    log_one_sided: float
    log_two_sided: float
    log_floor: float
    log_worst_case: float

    @property
    def log_upper(self) -> float:
        """The best of the upper bounds, each of them valid."""
        return min(self.log_one_sided, self.log_two_sided, self.log_worst_case)

    def to_dict(self) -> dict[str, float | None]:
        """Return powers of ten for JSON; None is the logarithm of 0."""
        logs = vars(self) | {"log_upper": self.log_upper}
        return {
            name.replace("log_", "log10_"): log / LOG_10 if math.isfinite(log) else None
            for name, log in logs.items()
        }

    def __str__(self) -> str:
        words = [f"{name[4:]} {power_of_ten(log)}" for name, log in vars(self).items()]
        return ", ".join(words)


def bounds(population: Population, n: int, size: int, epsilon: float) -> Bounds:
    """Return all bounds for ``Histogram(FixedSize(size))`` on n records of a population.

    Raises
    ------
    InvalidInput
        If the sample is larger than the database, or epsilon is not a number >= 0.

    Examples
    --------
    >>> from vicinal.smoothed import Hull, bounds
    >>> voters = Hull([[0.4, 0.6], [0.6, 0.4]])
    >>> bounds(voters, n=10_000, size=5_000, epsilon=1.0).log_upper < -100
    True
    """
    count = _checks.integer("n", n, least=1)
    drawn = _checks.integer("size", size, least=0, most=count)
    eps = _checks.real("epsilon", epsilon, least=0)
    if not isinstance(population, Population):
        raise InvalidInput(f"The 'population' parameter must be a Population. Got {population!r}.")
    population.check_records(count)
    shares = population.least
    return Bounds(
        min(one_sided(shares, count, drawn, eps), 0.0),
        min(two_sided(shares, count, drawn, eps), 0.0),
        max(floor(float(f), count, drawn) for f in floor_shares(population)),
        math.log(drawn / count) + 4 * UNIT if drawn else -math.inf,
    )


def floor_shares(population: Population) -> Floats:
    """Return the probabilities at which the floor holds: of some world, for all its records."""
    vertices = population.vertices
    counts = getattr(population, "counts", None)
    return vertices.ravel() if counts is None else vertices.max(axis=0)


def one_sided(shares: Floats, n: int, size: int, epsilon: float) -> float:
    """Return the logarithm of the one-sided bound; 0 where it does not apply."""
    unsampled = 1 - size / n
    if unsampled <= 0 or epsilon <= -math.log(unsampled) or size == 0:
        return 0.0 if size else -math.inf
    return _raised(_mean(shares, n, coin_divergence(-math.expm1(-epsilon), size / n)), n)


def two_sided(shares: Floats, n: int, size: int, epsilon: float) -> float:
    """Return the logarithm of the two-sided bound at the best c'; infinite at epsilon 0."""
    if size == 0:
        return -math.inf
    if size == n or epsilon == 0:
        return math.inf
    unsampled = (n - size) / n
    highest = min(epsilon, -math.log(unsampled))

    def at(step: float) -> float:
        return two_sided_at(shares, n, unsampled, epsilon, step * highest)

    grid = np.linspace(0, 1, _GRID + 1)[1:]
    best = int(np.argmin([at(float(step)) for step in grid]))
    around = (float(grid[max(best - 1, 0)]), float(grid[min(best + 1, _GRID - 1)]))
    polished = minimize_scalar(at, bounds=around, method="bounded", options={"xatol": 1e-9})
    return _raised(min(at(float(grid[best])), float(polished.fun)), n)


def two_sided_at(shares: Floats, n: int, unsampled: float, epsilon: float, log_c: float) -> float:
    """Return the logarithm of the two-sided bound for c' = exp(`log_c`), left = 1 - T/n."""
    k1, k2, a = exponents(unsampled, epsilon, log_c)
    first = _mean(shares, n, k1)
    return first if math.isinf(k2) else float(np.logaddexp(first, a + k2 + _mean(shares, n, k2)))


def exponents(unsampled: float, epsilon: float, log_c: float) -> tuple[float, float, float]:
    """Return K1, K2 and A of the two-sided bound; K2 infinite where its part vanishes."""
    k1 = coin_divergence(unsampled * math.exp(log_c - epsilon), unsampled)
    sampled = 1 - unsampled * math.exp(log_c)
    if sampled <= 1e-15:
        return k1, math.inf, 0.0
    k2 = coin_divergence(unsampled * math.exp(log_c), unsampled)
    return k1, k2, sampled * (log_c + math.log(1 - unsampled) - math.log(sampled))


def floor(share: float, n: int, size: int) -> float:
    """Return the logarithm of the floor, rounded down, for a type of probability `share`."""
    if size == 0 or share == 1:
        return math.log(size / n) - 4 * UNIT if share == 1 and size == n else -math.inf
    absent = (n - size) * math.log1p(-share)
    # (1-f)^(n-T) (1 - (1 - T/n) (1-f)^T), the bracket without cancellation.
    bracket = math.log((n - size) / n) + size * math.log1p(-share) if size < n else -math.inf
    value = absent + (math.log(-math.expm1(bracket)) if bracket < 0 else -math.inf)
    return value - _SLACK * UNIT * (1 + abs(absent))


def coin_divergence(a: float, b: float) -> float:
    """Return KL(a || b) of two coins, b strictly between 0 and 1."""
    return float(xlogy(a, a / b) + xlogy(1 - a, (1 - a) / (1 - b)))


def _mean(shares: Floats, n: int, rate: float) -> float:
    """Return log of the sum over types of E[e^(-h K)] for h ~ Bin(n, f)."""
    return float(logsumexp(n * np.log1p(np.maximum(shares * np.expm1(-rate), -1 + 1e-300))))


def _raised(log: float, n: int) -> float:
    """Round a bound up: exponents are good to a few units, and are multiplied by n."""
    return log + _SLACK * UNIT * (1 + abs(log) + n * UNIT)
