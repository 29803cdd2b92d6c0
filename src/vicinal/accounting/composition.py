r"""The composed privacy loss of many releases, converted to epsilon by four methods.

A :class:`Composition` is a multiset of releases: each release with its count. A method converts it
to epsilon at a given delta:

``rdp``
    RDP adds up order by order (Mironov 2017, Prop. 1), D = sum of count * D_release(alpha), and
    epsilon = min over alpha of D + log(1 - 1/alpha) - (log delta + log alpha)/(alpha - 1)
    (Balle, Barthe, Gaboardi, Hsu & Sato 2020, Theorem 21).
``rdp_mironov``
    the same curve with D + log(1/delta)/(alpha - 1) (Mironov 2017, Prop. 3): looser, the
    conversion of older papers. For comparison only.
``gdp``
    for Gaussian releases without sampling: mu adds up in squares, converted exactly (Dong, Roth &
    Su 2022).
``pld``
    privacy loss distributions, see :mod:`vicinal.accounting.pld`.

RDP curves are functions of a real order, so the search over orders refines its grid around the
minimum. Any order gives a valid bound, so an inexact minimum is still an upper bound. Every method
gives an upper bound, rounded up, for neighbouring data sets that differ by adding or removing one
subject. The bound also holds if each release is chosen after the answers of the earlier ones, as
long as its cost is fixed.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Iterable
from typing import ClassVar, Protocol

import numpy as np
import numpy.typing as npt

from vicinal import checks
from vicinal.accounting import budget
from vicinal.accounting._counts import ProbabilisticDisclosure
from vicinal.accounting._divergence import DominatingPair
from vicinal.accounting.pld import compute_pld_epsilon
from vicinal.accounting.screening import Screening, build_batch_pairs, can_be_batched
from vicinal.arrays import Floats
from vicinal.errors import InvalidInput

_RDP_METHODS = ("rdp_mironov", "rdp")  # Valid for all releases: all have an RDP curve
METHODS = (*_RDP_METHODS, "gdp", "pld")  # All conversions to epsilon, see the module's text
MAX_COUNT = 10**9  # The largest number of equal releases in a composition
# Rényi orders at which the search starts. The best order is near 1 + sqrt(log(1/delta)/rho).
_FIRST_ORDERS = 1 + np.geomspace(1e-4, 1e9, 27)
_N_REFINEMENTS = 4  # How often the search over orders refines its grid around the best order
# Points of a refined grid, as fractions of the logarithmic distance between two orders.
_GRID_FRACTIONS = np.linspace(0, 1, 11)
# Factor on RDP curves, whose relative errors are a few 1e-12 (see `_divergence`).
_ROUNDED_UP = 1 + 1e-10
# Relative addition to a sum of disclosure probabilities: far above the rounding errors of the sum.
_SUM_ROUNDING = 1e-9


class PricedRelease(Protocol):
    """One release of a mechanism, with its RDP curve and its dominating pair.

    Two releases are equal, and have the same hash, if they have the same type and parameters. For
    data sets that differ in one subject a release satisfies (alpha, rdp(alpha))-RDP in both
    directions, at every real order alpha > 1. A release whose curve is known at some orders only
    has them as its attribute ``orders``.

    `sort_name`: name of the type, by which a composition sorts its terms. It stays the same if the
    class is renamed, because the order of terms determines the last bit of an epsilon.
    """

    sort_name: ClassVar[str]

    def rdp(self, orders: Floats) -> Floats:
        """Return the RDP at `orders` (m,) > 1 as (m,), rounded up, never NaN."""

    def build_dominating_pair(self) -> DominatingPair | None:
        """Return a dominating pair of the release, or None if only its RDP curve is known."""

    def __hash__(self) -> int:
        """Return the hash, the same for equal releases."""


@dataclasses.dataclass(frozen=True)
class Composition:
    """The adaptive composition of releases: `terms` are pairs (release, number of such releases).

    Equal releases are merged, and terms are sorted by type and parameters of the release. So the
    order in which releases are added changes no result, not even in the last bit.
    """

    terms: tuple[tuple[PricedRelease, int], ...] = ()

    @classmethod
    def from_release(cls, release: PricedRelease, count: int = 1) -> Composition:
        """Return the composition of `count` >= 0 releases equal to `release`."""
        return cls(((release, 1),)).repeat(count)

    def add(self, other: Composition) -> Composition:
        """Return the composition of the releases of this one and of the `other`."""
        counts: dict[PricedRelease, int] = {}
        for release, count in self.terms + other.terms:
            counts[release] = counts.get(release, 0) + count
        return Composition(tuple(sorted(counts.items(), key=_build_sort_key)))

    def repeat(self, count: int) -> Composition:
        """Return this composition repeated `count` >= 0 times."""
        count = checks.check_integer("count", count, minimum=0, maximum=MAX_COUNT)
        terms = tuple((release, count * own_count) for release, own_count in self.terms)
        return Composition(terms if count else ())

    def rdp(self, orders: npt.ArrayLike) -> Floats:
        """Return the RDP of the whole composition at `orders` (m,) > 1, as (m,), rounded up."""
        orders = np.atleast_1d(np.asarray(orders, dtype=np.float64))
        if not (np.isfinite(orders).all() and (orders > 1).all()):
            raise InvalidInput("The 'orders' parameter must hold finite numbers > 1.")
        curves = [
            count * _compute_cached_rdp(release, orders.tobytes()) for release, count in self.terms
        ]
        # Sorted first, so that the rounded sum does not depend on the order of the releases.
        total = np.sort(np.stack(curves), axis=0).sum(axis=0) if curves else np.zeros_like(orders)
        if np.isnan(total).any() or (total < 0).any():
            raise InvalidInput("A release of the 'terms' parameter has no valid RDP curve.")
        return total * _ROUNDED_UP

    def split_disclosures(self) -> tuple[Composition, float]:
        """Return the composition without probabilistic disclosures, and their total probability.

        Such a release reveals all data with a probability p, which a conversion adds to delta.
        """
        probabilities = [
            count * release.probability
            for release, count in self.terms
            if isinstance(release, ProbabilisticDisclosure)
        ]
        remaining = tuple(
            term for term in self.terms if not isinstance(term[0], ProbabilisticDisclosure)
        )
        total = math.fsum(probabilities) * (1 + _SUM_ROUNDING) if probabilities else 0.0
        return Composition(remaining), total

    def list_methods(self) -> tuple[str, ...]:
        """Return the methods that are valid for these releases, a subset of ``METHODS``."""
        valid = [*_RDP_METHODS]
        without_disclosures, _ = self.split_disclosures()
        pairs = [release.build_dominating_pair() for release, _ in without_disclosures.terms]
        if all(pair is not None and pair.get_gaussian_mu() is not None for pair in pairs):
            valid.append("gdp")
        if all(pair is not None for pair in pairs):
            valid.append("pld")
        return tuple(valid)

    def to_epsilon(self, delta: float, method: str = "rdp") -> float:
        """Return epsilon >= 0 at 0 < `delta` < 1, by one of ``METHODS``, rounded up.

        Infinite if there is no bound at this delta. Raises InvalidInput if the method is not valid.
        """
        delta = checks.check_real("delta", delta, above=0, below=1)
        method = checks.check_choice("method", method, METHODS)
        if method not in _RDP_METHODS and method not in self.list_methods():
            raise InvalidInput(
                "The 'method' parameter must be one of "
                f"{', '.join(map(repr, self.list_methods()))} for these releases. Got {method!r}."
            )
        if not self.terms:
            return 0.0
        without_disclosures, disclosure_probability = self.split_disclosures()
        if disclosure_probability and method != "pld":
            remaining_delta = delta - disclosure_probability
            if remaining_delta <= 0:
                return math.inf
            return without_disclosures.to_epsilon(remaining_delta, method)
        if method == "gdp":
            mus = [(pair.get_gaussian_mu(), count) for pair, count in self.list_dominating_pairs()]
            square = math.fsum(count * mu**2 for mu, count in mus if mu is not None)
            return budget.gdp_epsilon(math.sqrt(square), delta)
        if method == "pld":
            # The profile of a batch ends at its grid. Beyond it answers are composed one by one.
            epsilon = compute_pld_epsilon(self._build_batched_pairs(), delta)
            if math.isfinite(epsilon):
                return epsilon
            return compute_pld_epsilon(self.list_dominating_pairs(), delta)
        convert = _convert_by_mironov if method == "rdp_mironov" else _convert_by_balle
        _, epsilon = self._minimize_over_orders(convert, delta)
        return max(0.0, epsilon)

    def compute_min_epsilon(self, delta: float) -> float:
        """Return the smallest epsilon at `delta` by any valid method except ``rdp_mironov``."""
        methods = [method for method in self.list_methods() if method != "rdp_mironov"]
        return min(self.to_epsilon(delta, method) for method in methods)

    def find_best_order(self, delta: float) -> float:
        """Return the Rényi order alpha at which the method ``rdp`` attains its epsilon at `delta`.

        Probabilistic disclosures are left out: their RDP is infinite at every order.
        """
        without_disclosures, _ = self.split_disclosures()
        order, _ = without_disclosures._minimize_over_orders(_convert_by_balle, delta)
        return order

    def list_dominating_pairs(self) -> list[tuple[DominatingPair, int]]:
        """Return the dominating pairs, with counts, of the releases that have one."""
        pairs = [(release.build_dominating_pair(), count) for release, count in self.terms]
        return [(pair, count) for pair, count in pairs if pair is not None]

    def _build_batched_pairs(self) -> list[tuple[DominatingPair, int]]:
        """Return dominating pairs with counts; equal screenings are one pair for each batch.

        A batch of screening answers costs less than the answers one by one (`screening.py`).
        """
        batched: list[tuple[DominatingPair, int]] = []
        single = []
        for release, count in self.terms:
            if isinstance(release, Screening) and can_be_batched(release):
                batched += build_batch_pairs(release, count)
            else:
                single.append((release, count))
        return [*batched, *Composition(tuple(single)).list_dominating_pairs()]

    def _minimize_over_orders(
        self, convert: Callable[[Floats, float], Floats], delta: float
    ) -> tuple[float, float]:
        """Return (order, epsilon): the Rényi order > 1 with about the smallest epsilon at `delta`.

        `convert` maps orders (m,) and delta to epsilon less RDP, (m,).
        """
        stated_orders = [getattr(release, "orders", ()) for release, _ in self.terms]
        orders = np.union1d(_FIRST_ORDERS, np.concatenate([[], *stated_orders]))
        best_epsilon, best_order = math.inf, math.inf
        for _ in range(1 + _N_REFINEMENTS):
            epsilons = self.rdp(orders) + convert(orders, delta)
            index = int(np.argmin(epsilons))
            best_epsilon, best_order = min(
                (best_epsilon, best_order), (float(epsilons[index]), float(orders[index]))
            )
            low, high = orders[max(index - 1, 0)], orders[min(index + 1, len(orders) - 1)]
            orders = 1 + (low - 1) * ((high - 1) / (low - 1)) ** _GRID_FRACTIONS
        return best_order, best_epsilon


def _build_sort_key(term: tuple[PricedRelease, int]) -> tuple[str, str]:
    """Return the key by which a composition sorts its terms: the release's type and parameters."""
    release, _ = term
    return release.sort_name, repr(tuple(vars(release).values()))


@functools.lru_cache(maxsize=4096)
def _compute_cached_rdp(release: PricedRelease, orders: bytes) -> Floats:
    """Return the RDP of one release, (m,), at `orders`, the bytes of a float64 array (m,).

    Cached, because every search starts with the same orders.
    """
    return release.rdp(np.frombuffer(orders, dtype=np.float64))


def compose(compositions: Iterable[Composition]) -> Composition:
    """Return the composition of all `compositions`."""
    total = Composition()
    for composition in compositions:
        total = total.add(composition)
    return total


def _convert_by_mironov(orders: Floats, delta: float) -> Floats:
    """Return epsilon - D_alpha at each of `orders` (m,) by Mironov 2017, Prop. 3."""
    return -math.log(delta) / (orders - 1)


def _convert_by_balle(orders: Floats, delta: float) -> Floats:
    """Return epsilon - D_alpha at each of `orders` (m,) by Balle et al. 2020, Theorem 21."""
    return np.log1p(-1 / orders) - (math.log(delta) + np.log(orders)) / (orders - 1)
