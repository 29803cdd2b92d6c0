"""The delta of one database, and what an adversary gains from it."""

import math
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from vicinal import checks
from vicinal.arrays import Counts, Floats
from vicinal.errors import InvalidInput, PrivacyRefused
from vicinal.smoothed._edges import compute_profile, sum_divergence
from vicinal.smoothed.intervals import (
    BOUND,
    EXACT,
    LOG_ABSOLUTE_ERROR,
    DatabaseDelta,
    Delta,
    LogInterval,
    as_delta,
    largest,
    log_or_minus_inf,
    stack_ends,
    within,
)
from vicinal.smoothed.mechanism import (
    ComparedMechanism,
    Comparison,
    FixedSize,
    Histogram,
    ListedMechanism,
    Mechanism,
    align_distributions,
    exp_epsilon,
    make_comparison,
    replacements,
)  # fmt: skip

_MOST_PROFILE = 10**7


def database_delta(mechanism: Mechanism, database: npt.ArrayLike, epsilon: float) -> DatabaseDelta:
    """Return delta(x) of one database: Definition 2 of LWX23, both directions.

    The largest, over all neighbours x' that replace one record, of the sums over outcomes of
    (P_x - E P_x')+ and (P_x' - E P_x)+, E = exp(epsilon). The result is private.

    Parameters
    ----------
    mechanism : Mechanism
        What is published.
    database : array-like
        Counts (m,) of the types; for ``KNNVotes`` the labels (n,), nearest first.
    epsilon : float
        At least 0.

    Raises
    ------
    InvalidInput
        If the database does not suit the mechanism, or epsilon is not a number >= 0.

    Examples
    --------
    >>> from vicinal.smoothed import FixedSize, Histogram, database_delta
    >>> print(database_delta(Histogram(FixedSize(5)), [4, 6], epsilon=1.0))
    PRIVATE 0.03845 (exact)
    """
    eps = checks.check_real("epsilon", epsilon, least=0)
    checked = check_mechanism(mechanism).check(database)
    best = compute_log_delta(mechanism, checked, eps)
    return DatabaseDelta(best.low, best.high)


def compute_log_delta(mechanism: Mechanism, database: Counts, epsilon: float) -> LogInterval:
    """Return the same for a checked database, as an interval of logarithms."""
    return largest(mechanism.losses(database, epsilon))


def adjusted_utility(
    mechanism: Mechanism, database: npt.ArrayLike, threshold: float
) -> DatabaseDelta:
    """Return u_t(x): what an adversary who lacks one entry gains above an accuracy threshold.

    The largest over neighbours x' of the mean, under the true database, of
    max(0, 1 - 2 loss - t) / (1 - t), where the loss is that of guessing between x and x' with equal
    prior odds: 0 for guesses no better than (1 + t) / 2, 1 for certainty (LWX23, eq. 3; two
    hypotheses). By Lemma 10 in its sharp form, max(u(P;Q), u(Q;P)) is between E/(1+E) and
    (E+2)/(E+1) times the larger loss at E = (1 + t) / (1 - t). The result is private.

    Parameters
    ----------
    mechanism, database
        As for :func:`database_delta`.
    threshold : float
        t in [0, 1).

    Examples
    --------
    >>> from vicinal.smoothed import FixedSize, Histogram, adjusted_utility
    >>> print(adjusted_utility(Histogram(FixedSize(5)), [4, 6], threshold=0.5))
    PRIVATE 0.02646 (exact)
    """
    t = checks.check_real("threshold", threshold, least=0, below=1)
    checked = check_mechanism(mechanism).check(database)
    best = largest(mechanism.gains(checked, math.log1p(t) - math.log1p(-t))).cap_log()
    return DatabaseDelta(best.low, best.high)


def profile(mechanism: Mechanism, n: int, epsilon: float) -> Floats:
    """Return log delta of every database with two types, as float64 (2, n + 1).

    Row 0 holds lower and row 1 upper ends; column k is the database with k records of the first
    type and n - k of the second. -inf is a delta of 0.

    Raises
    ------
    InvalidInput
        If n is above 10^7, or the mechanism needs more than two types.

    Examples
    --------
    >>> from vicinal.smoothed import FixedSize, Histogram, profile
    >>> lower, upper = profile(Histogram(FixedSize(5)), n=10, epsilon=1.0)
    >>> upper.shape
    (11,)
    """
    eps, count = (
        checks.check_real("epsilon", epsilon, least=0),
        checks.check_integer("n", n, least=1, most=_MOST_PROFILE),
    )
    checked = check_mechanism(mechanism)
    checked.check([count, 0])
    if isinstance(checked, Histogram) and isinstance(checked.sampler, FixedSize):
        return np.minimum(compute_profile(count, checked.sampler.size, exp_epsilon(eps)), 0.0)
    return stack_ends(compute_log_delta(checked, np.array([k, count - k]), eps) for k in range(count + 1))


def worst_case_delta(mechanism: Mechanism, n: int, epsilon: float) -> Delta:
    """Return the delta of differential privacy: the largest delta of any database of n records.

    By coupling it is at most the chance that a given record is sampled, and for counts it is that
    chance at *every* epsilon: T / n, gamma, 1 - (1 - 1/n)^T (Theorem 3 of LWX23, made exact). For
    other mechanisms, whose outcome need not show a lone record, only the bound is given.

    Raises
    ------
    InvalidInput
        If no database of n records can be sampled so.

    Examples
    --------
    >>> from vicinal.smoothed import FixedSize, Histogram, worst_case_delta
    >>> print(worst_case_delta(Histogram(FixedSize(499_000)), 500_000, epsilon=2.0))
    0.998 (exact)
    """
    checks.check_real("epsilon", epsilon, least=0)
    count = checks.check_integer("n", n, least=1)
    chance = check_mechanism(mechanism).touched(count)
    if chance > 1:
        raise InvalidInput("The 'n' parameter must be at least the size of the sample. Got less.")
    value = within(log_or_minus_inf(chance), 2.0**-50)
    if mechanism.attains_touched:
        return as_delta(value, EXACT, "attained at every epsilon where a record is alone")
    return as_delta(LogInterval(-math.inf, value.high), BOUND, "chance that a record is sampled")


def check_mechanism(mechanism: Mechanism) -> Mechanism:
    """Return the mechanism if it is one."""
    if not isinstance(mechanism, Mechanism):
        raise InvalidInput(f"The 'mechanism' parameter must be a Mechanism. Got {mechanism!r}.")
    return mechanism


# Several releases of one database: exact where their coins are independent, refused where not

_MOST_OUTCOMES = 4 * 10**6


@dataclass(frozen=True)
class NamedMechanism:
    """A mechanism and the name of the coins it uses.

    Parameters
    ----------
    mechanism : Histogram or ListedMechanism
        A mechanism whose law can be listed.
    coins : hashable
        Equal names mean the same sample: the two halves of a cross-validation split, several
        queries or radii on one sample.

    Examples
    --------
    >>> from vicinal.smoothed import FixedSize, Histogram, NamedMechanism
    >>> NamedMechanism(Histogram(FixedSize(5)), coins="first fold").coins
    'first fold'
    """

    mechanism: Histogram | ListedMechanism
    coins: Hashable


@dataclass(frozen=True)
class JointMechanism(ComparedMechanism):
    """Independent releases of the same database, audited together without loss.

    Examples
    --------
    >>> from vicinal.smoothed import FixedSize, Histogram, NamedMechanism, compose
    >>> both = compose([NamedMechanism(Histogram(FixedSize(2)), coins) for coins in "ab"])
    >>> len(both.releases)
    2
    """

    releases: tuple[NamedMechanism, ...]

    def check_size(self, n: int) -> None:
        for release in self.releases:
            release.mechanism.check_size(n)

    def touched(self, n: int) -> float:
        missed = math.prod(1 - release.mechanism.touched(n) for release in self.releases)
        return min(1 - missed + 2.0**-50, 1.0)

    def comparisons(self, database: Counts, epsilon: float) -> Iterator[Comparison]:
        for neighbour in replacements(database):
            yield make_comparison(self._excess, database, neighbour, epsilon)

    def _excess(self, own: Counts, other: Counts, epsilon: float, measure: int) -> LogInterval:
        log_p, log_ratio = np.zeros(1), np.zeros(1)
        for release in self.releases:
            p, ratio = align_distributions(*(release.mechanism.law(counts) for counts in (own, other)))
            if len(log_p) * len(p) > _MOST_OUTCOMES:
                raise InvalidInput(
                    "The 'releases' parameter must have few enough outcomes together "
                    f"({_MOST_OUTCOMES}). Got more; add their epsilons and deltas instead."
                )
            log_p, log_ratio = (
                np.add.outer(log_p, p).ravel(),
                np.add.outer(log_ratio, ratio).ravel(),
            )
        further = LOG_ABSOLUTE_ERROR * (len(self.releases) - 1)
        return sum_divergence(log_p, log_ratio, epsilon, measure, further, terms=4).cap_log()


def compose(releases: Sequence[NamedMechanism]) -> JointMechanism:
    """Return the joint mechanism of several releases with independent coins.

    Proposition 5 of LWX23 (epsilons and deltas add up) holds for independent coins only: who
    publishes both halves of one split publishes everything. The joint mechanism is audited
    exactly, which is sharper than adding up.

    Raises
    ------
    PrivacyRefused
        If two releases use the same coins.
    InvalidInput
        If there is no release, or the law of one cannot be listed.

    Examples
    --------
    >>> from vicinal.smoothed import FixedSize, Histogram, NamedMechanism, compose, database_delta
    >>> first, second = (NamedMechanism(Histogram(FixedSize(2)), coins) for coins in "ab")
    >>> database_delta(compose([first, second]), [4, 6], epsilon=2.0).log_upper < 0
    True
    """
    listed = tuple(releases)
    if not listed or not all(isinstance(release, NamedMechanism) for release in listed):
        raise InvalidInput(
            "The 'releases' parameter must be NamedMechanism(mechanism, coins). Got others."
        )
    for release in listed:
        if not isinstance(release.mechanism, Histogram | ListedMechanism):
            raise InvalidInput(
                "The 'releases' parameter must hold Histogram or ListedMechanism. Got "
                f"{type(release.mechanism).__name__}."
            )
    if len({release.coins for release in listed}) < len(listed):
        raise PrivacyRefused(
            "Releases that share their coins do not compose: publishing both halves of one split "
            "publishes everything. Audit them as one, with ListedMechanism over all their outcomes."
        )
    return JointMechanism(listed)
