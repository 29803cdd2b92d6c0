"""Several releases of one database: exact where their coins are independent, refused where not."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from vicinal._arrays import Counts, Floats
from vicinal.errors import InvalidInput, PrivacyRefused
from vicinal.smoothed._edges import finite_size, gain_weight
from vicinal.smoothed._intervals import LogInterval, weighted_excess
from vicinal.smoothed._mechanism import (
    ComparedMechanism,
    Comparison,
    CountMechanism,
    Histogram,
    Law,
    LawMechanism,
    aligned,
    replacements,
)  # fmt: skip
from vicinal.smoothed._saddle import FLOOR, SLOPE

_MOST_OUTCOMES = 4 * 10**6


@dataclass(frozen=True)
class NamedMechanism:
    """A mechanism and the name of the coins it uses.

    Parameters
    ----------
    mechanism : Histogram, Winner, Custom or JointMechanism
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

    mechanism: CountMechanism
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
        """Refuse databases that one of the releases cannot sample."""
        for release in self.releases:
            release.mechanism.check_size(n)

    def touched(self, n: int) -> float:
        """Return the chance that a record is in at least one of the samples."""
        missed = math.prod(1 - release.mechanism.touched(n) for release in self.releases)
        return min(1 - missed + 2.0**-50, 1.0)

    def comparisons(self, database: Counts, epsilon: float) -> Iterator[Comparison]:
        """Yield all replacements of a record, compared by all releases together."""
        for change, neighbour in replacements(database):
            yield (
                change,
                partial(self._excess, database, neighbour, epsilon),
                partial(self._excess, neighbour, database, epsilon),
            )

    def _excess(self, own: Counts, other: Counts, epsilon: float, measure: int) -> LogInterval:
        log_p, log_ratio = np.zeros(1), np.zeros(1)
        for release in self.releases:
            p, ratio = aligned(law_of(release.mechanism, own), law_of(release.mechanism, other))
            if len(log_p) * len(p) > _MOST_OUTCOMES:
                raise InvalidInput(
                    "The 'releases' parameter must have few enough outcomes together "
                    f"({_MOST_OUTCOMES}). Got more; add their epsilons and deltas instead."
                )
            log_p = _sums(log_p, p)
            log_ratio = _sums(log_ratio, ratio)
        slack = 4 * (FLOOR * len(self.releases) + SLOPE * (np.abs(log_p) + finite_size(log_ratio)))
        weight = gain_weight(log_ratio, measure)
        return weighted_excess(log_p, log_ratio, epsilon, slack, weight).capped()


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
        if not isinstance(release.mechanism, Histogram | LawMechanism):
            raise InvalidInput(
                "The 'releases' parameter must hold Histogram, Winner or Custom. Got "
                f"{type(release.mechanism).__name__}."
            )
    if len({release.coins for release in listed}) < len(listed):
        raise PrivacyRefused(
            "Releases that share their coins do not compose: publishing both halves of one split "
            "publishes everything. Audit them as one, with Custom over all their outcomes."
        )
    return JointMechanism(listed)


def law_of(mechanism: CountMechanism, database: Counts) -> Law:
    """Return the listed law of a mechanism that has one."""
    if isinstance(mechanism, Histogram | LawMechanism):
        return mechanism.law(database)
    raise InvalidInput(f"The law of {type(mechanism).__name__} cannot be listed.")


def _sums(first: Floats, second: Floats) -> Floats:
    return np.asarray((first[:, None] + second[None, :]).ravel())
