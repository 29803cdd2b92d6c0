"""The delta of one database, the gain of an adversary, and joint releases of one database.

The argument `weighting` selects the weights of outcomes with probabilities P and P' in a
divergence: DIVERGENCE (1), POSTERIOR_X (P / (P + P')) or POSTERIOR_OTHER (P' / (P + P')).
"""

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from vicinal import checks
from vicinal.arrays import Counts
from vicinal.errors import InvalidInput, PrivacyRefused
from vicinal.smoothed._pairs import sum_divergence
from vicinal.smoothed.intervals import (
    BOUND,
    EXACT,
    LOG_ABSOLUTE_ERROR,
    MACHINE_EPSILON,
    DatabaseDelta,
    Delta,
    LogInterval,
    log_or_minus_inf,
    make_delta,
    max_interval,
)
from vicinal.smoothed.mechanism import (
    Histogram,
    ListedMechanism,
    Mechanism,
    NeighbourMechanism,
    align_distributions,
)
from vicinal.smoothed.rules import Decision


def database_delta(mechanism: Mechanism, database: npt.ArrayLike, epsilon: float) -> DatabaseDelta:
    """Return delta(x), the privacy loss of one database: Definition 2 of LWX23, both directions.

    With E = exp(epsilon), it is the largest sum over outcomes of (P_x - E P_x')+ or of
    (P_x' - E P_x)+ over all neighbours x', in which one record is replaced. The result is private.
    Raises InvalidInput if the database does not suit the mechanism, or unless epsilon >= 0.

    Parameters
    ----------
    mechanism : Mechanism
        The mechanism whose outcome is published.
    database : array-like
        Counts (m,) of the types; for ``KNNVotes`` the labels (n,), nearest first.
    epsilon : float
        At least 0.

    Examples
    --------
    >>> from vicinal.smoothed import FixedSize, Histogram, database_delta
    >>> print(database_delta(Histogram(FixedSize(5)), [4, 6], epsilon=1.0))
    PRIVATE 0.03846 (exact)
    """
    checked_epsilon = checks.check_real("epsilon", epsilon, minimum=0)
    checked = validate_mechanism(mechanism).validate_database(database)
    try:
        largest = compute_log_delta(mechanism, checked, checked_epsilon)
    finally:
        forget_databases(mechanism)
    return DatabaseDelta(largest.low, largest.high)


def compute_log_delta(mechanism: Mechanism, database: Counts, epsilon: float) -> LogInterval:
    """Return the interval of delta(x) at `epsilon` of one database x: the largest divergence.

    `database`: labels (n,) or counts (m,), as ``mechanism.validate_database`` returns them.
    """
    return max_interval(mechanism.iterate_divergences(database, epsilon))


def adjusted_utility(
    mechanism: Mechanism, database: npt.ArrayLike, threshold: float
) -> DatabaseDelta:
    """Return u_t(x), the gain of an adversary who guesses one entry above an accuracy threshold.

    The adversary knows all records but one and sees the outcome. The gain is the largest mean over
    outcomes, over all neighbours x', of max(0, 1 - 2 loss - t) / (1 - t) under the true database x.
    The loss is the probability of a wrong guess between x and x' with equal prior odds: the gain is
    0 for guesses no better than (1 + t) / 2 and 1 for certainty (LWX23, eq. 3; two hypotheses). By
    Lemma 10 in its sharp form, the larger of the gains with x and with x' as the true database is
    between E/(1+E) and (E+2)/(E+1) times the larger divergence at E = (1 + t) / (1 - t). The result
    is private.

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
    t = checks.check_real("threshold", threshold, minimum=0, below=1)
    checked = validate_mechanism(mechanism).validate_database(database)
    epsilon = math.log1p(t) - math.log1p(-t)
    try:
        largest = max_interval(mechanism.iterate_gains(checked, epsilon)).cap_at_one()
    finally:
        forget_databases(mechanism)
    return DatabaseDelta(largest.low, largest.high)


def forget_databases(mechanism: Mechanism) -> None:
    """Clear the values that `mechanism` and its joint releases cache of private databases."""
    if isinstance(mechanism, Decision):
        mechanism.forget_databases()
    for release in getattr(mechanism, "releases", ()):
        forget_databases(release.mechanism)


def worst_case_delta(
    mechanism: Mechanism, n: int, epsilon: float, *, n_types: int | None = None
) -> Delta:
    """Return the delta of differential privacy: the largest delta of any database of `n` records.

    By coupling it is at most the probability that a given record is sampled. For counts it is that
    probability at *every* epsilon: T / n, gamma, 1 - (1 - 1/n)^T (Theorem 3 of LWX23, sharpened).
    For other mechanisms, whose outcome need not reveal a lone record, only the bound is returned.
    The exception is a ``Decision`` with a fixed sample size on databases of `n_types` = 2 types:
    all their deltas are computed. Raises InvalidInput if the sample is larger than n.

    Examples
    --------
    >>> from vicinal.smoothed import FixedSize, Histogram, worst_case_delta
    >>> print(worst_case_delta(Histogram(FixedSize(499_000)), 500_000, epsilon=2.0))
    0.998 (exact)
    """
    checked_epsilon = checks.check_real("epsilon", epsilon, minimum=0)
    n_records = checks.check_integer("n", n, minimum=1)
    probability = validate_mechanism(mechanism).compute_inclusion_probability(n_records)
    if probability > 1:
        raise InvalidInput("The 'n' parameter must be at least the size of the sample. Got less.")
    if isinstance(mechanism, Decision) and n_types == 2 and mechanism.can_tabulate(n_records, 2):
        low, high = mechanism.compute_profile(n_records, checked_epsilon).max(axis=1).tolist()
        return make_delta(LogInterval(low, high), EXACT, "the largest of all databases")
    log_probability = log_or_minus_inf(probability)
    slack = 2.0**-50 + MACHINE_EPSILON * abs(max(log_probability, -1e9))
    interval = LogInterval(log_probability - slack, log_probability + slack)
    if mechanism.attains_inclusion_probability:
        return make_delta(interval, EXACT, "attained at every epsilon where a record is alone")
    return make_delta(
        LogInterval(-math.inf, interval.high), BOUND, "chance that a record is sampled"
    )


def validate_mechanism(mechanism: Mechanism) -> Mechanism:
    """Return `mechanism`; raise InvalidInput if it is not a Mechanism."""
    if not isinstance(mechanism, Mechanism):
        raise InvalidInput(f"The 'mechanism' parameter must be a Mechanism. Got {mechanism!r}.")
    return mechanism


# ----- several releases of one database: exact with independent coins, refused with shared coins

_MAX_JOINT_OUTCOMES = 4 * 10**6
"""Maximal number of outcomes of a joint release: two float64 arrays of this length take 64 MB."""


@dataclass(frozen=True)
class NamedMechanism:
    """A mechanism and the name of the random coins it uses.

    Parameters
    ----------
    mechanism : Histogram or ListedMechanism
        A mechanism with a method ``compute_distribution`` that lists its outcomes.
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
class JointMechanism(NeighbourMechanism):
    """Independent releases of the same database, audited together exactly.

    Examples
    --------
    >>> from vicinal.smoothed import FixedSize, Histogram, NamedMechanism, compose
    >>> both = compose([NamedMechanism(Histogram(FixedSize(2)), coins) for coins in "ab"])
    >>> len(both.releases)
    2
    """

    releases: tuple[NamedMechanism, ...]

    def check_record_count(self, n: int) -> None:
        """Raise InvalidInput if one of the mechanisms cannot sample `n` records."""
        for release in self.releases:
            release.mechanism.check_record_count(n)

    def compute_inclusion_probability(self, n: int) -> float:
        """Return an upper bound of the probability that one of `n` records influences a release."""
        p_missed = math.prod(
            1 - release.mechanism.compute_inclusion_probability(n) for release in self.releases
        )
        return min(1 - p_missed + 2.0**-50, 1.0)

    def compute_divergence(
        self, database: Counts, neighbour: Counts, epsilon: float, weighting: int
    ) -> LogInterval:
        """Return the divergence of the joint outcomes of `database` from those of `neighbour`."""
        log_p, log_ratio = np.zeros(1), np.zeros(1)
        for release in self.releases:
            log_release_p, log_release_ratio = align_distributions(
                release.mechanism.compute_distribution(database),
                release.mechanism.compute_distribution(neighbour),
            )
            if len(log_p) * len(log_release_p) > _MAX_JOINT_OUTCOMES:
                raise InvalidInput(
                    "The 'releases' parameter must have few enough outcomes together "
                    f"({_MAX_JOINT_OUTCOMES}). Got more; add their epsilons and deltas instead."
                )
            log_p = np.add.outer(log_p, log_release_p).ravel()
            log_ratio = np.add.outer(log_ratio, log_release_ratio).ravel()
        extra_error = LOG_ABSOLUTE_ERROR * (len(self.releases) - 1)
        return sum_divergence(
            log_p, log_ratio, epsilon, weighting, extra_error, n_rounded=4
        ).cap_at_one()


def compose(releases: Sequence[NamedMechanism]) -> JointMechanism:
    """Return the joint mechanism of several releases with independent coins.

    Proposition 5 of LWX23 (epsilons and deltas add up) holds for independent coins only: publishing
    both halves of one split publishes everything. The joint mechanism is audited exactly, which
    gives a smaller delta than the sum. Raises PrivacyRefused if two releases use the same coins;
    InvalidInput if there is no release, or the distribution of one cannot be listed.

    Parameters
    ----------
    releases : sequence of NamedMechanism
        At least one; their coins have different names.

    Examples
    --------
    >>> from vicinal.smoothed import FixedSize, Histogram, NamedMechanism, compose, database_delta
    >>> first, second = (NamedMechanism(Histogram(FixedSize(2)), coins) for coins in "ab")
    >>> database_delta(compose([first, second]), [4, 6], epsilon=2.0).log_upper < 0
    True
    """
    named_releases = tuple(releases)
    if not named_releases or not all(
        isinstance(release, NamedMechanism) for release in named_releases
    ):
        raise InvalidInput(
            "The 'releases' parameter must be NamedMechanism(mechanism, coins). Got others."
        )
    for release in named_releases:
        if not isinstance(release.mechanism, Histogram | ListedMechanism):
            raise InvalidInput(
                "The 'releases' parameter must hold Histogram or ListedMechanism. Got "
                f"{type(release.mechanism).__name__}."
            )
    if len({release.coins for release in named_releases}) < len(named_releases):
        raise PrivacyRefused(
            "Releases that share their coins do not compose: publishing both halves of one split "
            "publishes everything. Audit them as one, with ListedMechanism over all their outcomes."
        )
    return JointMechanism(named_releases)
