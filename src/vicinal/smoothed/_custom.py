"""A mechanism that its user describes: a function from a histogram to a law of outcomes."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from numbers import Real

from vicinal import _checks
from vicinal.errors import InvalidInput
from vicinal.smoothed._histogram import check_records
from vicinal.smoothed._mechanism import Counts, Law, LawMechanism

_SUM_TO = 1e-9


@dataclass(frozen=True)
class ListedMechanism(LawMechanism):
    """The law of the outcome, given as a function of the histogram.

    This is also how releases that share their coins are audited: let the outcome be all of them.

    Parameters
    ----------
    law_of : callable
        From a tuple of counts to a mapping from outcomes to probabilities (floats or fractions,
        at least 0, with sum 1). Probabilities are taken as exact to 2^-45 of themselves.
    types : int
        How many types there are.
    """

    law_of: Callable[[tuple[int, ...]], Mapping[Hashable, float | Fraction]]
    types: int

    def __post_init__(self) -> None:
        _checks.integer("types", self.types, least=2)
        if not callable(self.law_of):
            raise InvalidInput(f"The 'law_of' parameter must be a function. Got {self.law_of!r}.")

    def check_size(self, n: int) -> None:
        """Refuse databases for which counts would leave 64 bits."""
        check_records(n)

    def touched(self, n: int) -> float:  # noqa: ARG002 - nothing is known of the user's function
        """Return 1: what a record does to an unknown function is unknown."""
        return 1.0

    def law(self, database: Counts) -> Law:
        """Return log probabilities of all outcomes.

        Raises
        ------
        InvalidInput
            If the function does not return probabilities that sum to 1.
        """
        given = self.law_of(tuple(database.tolist()))
        if not _are_chances(given):
            raise InvalidInput("The 'law_of' parameter must return a mapping to probabilities.")
        if abs(math.fsum(map(float, given.values())) - 1) > _SUM_TO:
            raise InvalidInput("The probabilities that 'law_of' returns must sum to 1. They don't.")
        return {outcome: min(math.log(p), 0.0) if p else -math.inf for outcome, p in given.items()}


def _are_chances(given: object) -> bool:
    return isinstance(given, Mapping) and all(
        isinstance(p, Real) and 0 <= float(p) <= 1 + _SUM_TO for p in given.values()
    )
