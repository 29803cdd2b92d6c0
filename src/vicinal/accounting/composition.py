r"""What many releases cost together: one type, four readings.

A :class:`Composition` is a formal sum of releases, each with a count. Nothing is lost when it is
made; a reading turns it into (epsilon, delta):

``rdp``
    RDP adds up order by order (Mironov 2017, Prop. 1), D = sum of count * D_release(alpha), and
    epsilon = min over alpha of D + log(1 - 1/alpha) - (log delta + log alpha)/(alpha - 1)
    (Balle, Barthe, Gaboardi, Hsu & Sato 2020, Theorem 21).
``rdp_mironov``
    the same curve with D + log(1/delta)/(alpha - 1) (Mironov 2017, Prop. 3): looser, and what
    older papers print. For comparison only.
``gdp``
    for Gaussian releases without sampling: mu adds up in squares, converted exactly (Dong, Roth &
    Su 2022).
``pld``
    privacy loss distributions, see :mod:`vicinal.accounting.pld`.

Curves are functions of a real order, so the search over orders refines itself around the minimum;
any order gives a valid bound, so an inexact minimum is still an upper bound. Every reading is an
upper bound, rounded up, for add/remove-one-subject neighbours, also if each release is chosen after
the answers of the earlier ones (its cost being fixed).
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Iterable
from typing import Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from vicinal import checks
from vicinal.accounting import budget
from vicinal.accounting._counts import OpenFailure
from vicinal.accounting._divergence import Pair
from vicinal.accounting.pld import pld_epsilon
from vicinal.accounting.screening import Screening, batches, worth_it
from vicinal.arrays import Floats
from vicinal.errors import InvalidInput

_CURVES = ("rdp_mironov", "rdp")
"""Readings that any release has, as each has an RDP curve."""

METHODS = ("rdp_mironov", "rdp", "gdp", "pld")
MAX_COUNT = 10**9

# The best order for epsilon lies near 1 + sqrt(log(1/delta)/rho).
_COARSE = 1 + np.geomspace(1e-4, 1e9, 27)
_ZOOMS = 4
_SHARES = np.linspace(0, 1, 11)
# Curves are good to a few 1e-12; see `_divergence`.
_SAFETY = 1 + 1e-10
_ROUNDING = 1e-9
"""Share added to a sum of failure probabilities: far above the rounding errors of the sum."""


@runtime_checkable
class PricedRelease(Protocol):
    """One release of a mechanism, or many equal ones counted elsewhere.

    A release that is only known at some orders has them as its attribute ``orders``.
    A release is hashable, and equal to any other that costs the same for the same reason.
    ``rdp(orders)`` states: for data sets that differ in one subject the release satisfies
    (alpha, rdp(alpha))-RDP, in both directions, at every real order alpha > 1. ``pair()`` gives a
    dominating pair of laws, or None where only the RDP curve is known.
    """

    def rdp(self, orders: Floats) -> Floats:
        """Return the RDP at `orders` (m,) > 1 as (m,), rounded up, never NaN."""

    def pair(self) -> Pair | None:
        """Return laws that dominate the release in terms of hockey-stick divergence."""

    def __hash__(self) -> int:
        """Return a number that equal releases share."""


@dataclasses.dataclass(frozen=True)
class Composition:
    """A sum of releases, each with a count; the count is multiplied in once, here.

    Equal releases are merged, and the order in which they were added makes no difference to any
    result, to the last bit.
    """

    terms: tuple[tuple[PricedRelease, int], ...] = ()

    @classmethod
    def of(cls, release: PricedRelease, count: int = 1) -> Composition:
        """Return `count` times one release."""
        return cls(((release, 1),)).repeat(count)

    def add(self, other: Composition) -> Composition:
        """Return both, one after the other."""
        counts: dict[PricedRelease, int] = {}
        for release, count in self.terms + other.terms:
            counts[release] = counts.get(release, 0) + count
        return Composition(tuple(sorted(counts.items(), key=lambda term: repr(term[0]))))

    def repeat(self, count: int) -> Composition:
        """Return this `count` >= 0 times over."""
        count = checks.check_integer("count", count, least=0, most=MAX_COUNT)
        terms = tuple((release, count * times) for release, times in self.terms)
        return Composition(terms if count else ())

    def rdp(self, orders: npt.ArrayLike) -> Floats:
        """Return the RDP of everything together at `orders` (m,), as (m,)."""
        orders = np.atleast_1d(np.asarray(orders, dtype=np.float64))
        if not (np.isfinite(orders).all() and (orders > 1).all()):
            raise InvalidInput("The 'orders' parameter must hold finite numbers > 1.")
        parts = [count * _rdp(release, orders.tobytes()) for release, count in self.terms]
        # Sorted first: the sum follows from the values alone, not from the order of the releases.
        total = np.sort(np.stack(parts), axis=0).sum(axis=0) if parts else np.zeros_like(orders)
        if np.isnan(total).any() or (total < 0).any():
            raise InvalidInput("A release of the 'terms' parameter has no valid RDP curve.")
        return total * _SAFETY

    def _split_failures(self) -> tuple[Composition, float]:
        """Return the releases that do not fail openly, and the probability that another fails.

        The probability is the sum over all :class:`OpenFailure`, rounded up (union bound).
        """
        failures = [
            count * release.probability
            for release, count in self.terms
            if isinstance(release, OpenFailure)
        ]
        others = tuple(term for term in self.terms if not isinstance(term[0], OpenFailure))
        probability = math.fsum(failures) * (1 + _ROUNDING) if failures else 0.0
        return Composition(others), probability

    def methods(self) -> tuple[str, ...]:
        """Return the readings that are valid for these releases, a subset of ``METHODS``."""
        valid = [*_CURVES]
        others, _ = self._split_failures()
        pairs = [release.pair() for release, _ in others.terms]
        if all(pair is not None and pair.gaussian() is not None for pair in pairs):
            valid.append("gdp")
        if all(pair is not None for pair in pairs):
            valid.append("pld")
        return tuple(valid)

    def to_epsilon(self, delta: float, method: str = "rdp") -> float:
        """Return epsilon >= 0 at 0 < `delta` < 1, by one of ``METHODS``, rounded up.

        Infinite where the reading gives no bound at this delta.
        """
        delta = checks.check_real("delta", delta, above=0, below=1)
        method = self._valid(method)
        if not self.terms:
            return 0.0
        others, failure = self._split_failures()
        if failure and method != "pld":
            rest = delta - failure
            return others.to_epsilon(rest, method) if rest > 0 else math.inf
        if method == "gdp":
            parts = [(pair.gaussian(), count) for pair, count in self._pairs()]
            square = math.fsum(count * mu**2 for mu, count in parts if mu is not None)
            return budget.gdp_epsilon(math.sqrt(square), delta)
        if method == "pld":
            # Batches reach no further than their grid; beyond it single answers have to do.
            value = pld_epsilon(self._batched_pairs(), delta)
            return value if math.isfinite(value) else pld_epsilon(self._pairs(), delta)
        excess = _mironov if method == "rdp_mironov" else _balle
        return max(0.0, self._minimum(lambda orders, rdp: rdp + excess(orders, delta))[1])

    def least_epsilon(self, delta: float) -> float:
        """Return the smallest epsilon at `delta` of all readings; Mironov's is never that."""
        methods = [method for method in self.methods() if method != "rdp_mironov"]
        return min(self.to_epsilon(delta, method) for method in methods)

    def best_order(self, delta: float) -> float:
        """Return the order alpha that gives epsilon by ``rdp``; where shares are compared."""
        delta = checks.check_real("delta", delta, above=0, below=1)
        others, _ = self._split_failures()  # which have the same price at every order
        return others._minimum(lambda orders, rdp: rdp + _balle(orders, delta))[0]

    def _valid(self, method: str) -> str:
        method = checks.check_choice("method", method, METHODS)
        if method not in _CURVES and method not in self.methods():
            raise InvalidInput(
                f"The 'method' parameter must be one of {', '.join(map(repr, self.methods()))} "
                f"for these releases. Got {method!r}."
            )
        return method

    def _pairs(self) -> list[tuple[Pair, int]]:
        pairs = [(release.pair(), count) for release, count in self.terms]
        return [(pair, count) for pair, count in pairs if pair is not None]

    def _batched_pairs(self) -> list[tuple[Pair, int]]:
        """Return the pairs with every family of screenings in batches, see screening.py."""
        batched: list[tuple[Pair, int]] = []
        others = []
        for release, count in self.terms:
            if isinstance(release, Screening) and worth_it(release):
                batched += batches(release, count)
            else:
                others.append((release, count))
        return [*batched, *Composition(tuple(others))._pairs()]

    def _minimum(self, value: Callable[[Floats, Floats], Floats]) -> tuple[float, float]:
        """Return (order, value) next to the minimum over orders > 1 of value(orders, rdp)."""
        known = [getattr(release, "orders", ()) for release, _ in self.terms]
        orders = np.union1d(_COARSE, [order for some in known for order in some])
        best = (math.inf, math.inf)
        for _ in range(1 + _ZOOMS):
            values = value(orders, self.rdp(orders))
            place = int(np.argmin(values))
            best = min(best, (float(values[place]), float(orders[place])))
            low, high = orders[max(place - 1, 0)], orders[min(place + 1, len(orders) - 1)]
            orders = 1 + (low - 1) * ((high - 1) / (low - 1)) ** _SHARES
        return best[1], best[0]


@functools.lru_cache(maxsize=4096)
def _rdp(release: PricedRelease, orders: bytes) -> Floats:
    """Return the curve of one release; the orders of a search begin alike for all of them."""
    return release.rdp(np.frombuffer(orders, dtype=np.float64))


def compose(parts: Iterable[Composition]) -> Composition:
    """Return all of `parts`, one after the other."""
    total = Composition()
    for part in parts:
        total = total.add(part)
    return total


def _mironov(orders: Floats, delta: float) -> Floats:
    return -math.log(delta) / (orders - 1)


def _balle(orders: Floats, delta: float) -> Floats:
    return np.log1p(-1 / orders) - (math.log(delta) + np.log(orders)) / (orders - 1)
