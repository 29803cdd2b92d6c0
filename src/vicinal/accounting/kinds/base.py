"""What a kind of release is made of, and the checks and words that several kinds share."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from vicinal import checks
from vicinal.accounting.certificate import Witness
from vicinal.accounting.curves import Composition
from vicinal.accounting.screening import MAX_VOTES

Values = Mapping[str, Any]
Check = Callable[[str, object], Any]
Witnesses = list[Witness] | None

POISSON = (
    "with gamma < 1 every subject takes part by an independent coin of probability gamma, tossed "
    "anew for every release; never a sample of fixed size"
)
KNOWN_COINS = (
    "with gamma < 1 the lower bound is for somebody who knows everybody else's coins, as every "
    "analysis of sampling lets them"
)
PRIVATE_COST = (
    "the cost of a release with 'votes' depends on private data: this epsilon is itself private, "
    "must not be published or decided by, and holds for these data sets only"
)
LABEL_ONLY = (
    "where only the label leaves, the noisy votes are seen by nobody, and nothing else is computed "
    "from them"
)
ONE_OF_K = (
    "a subject has at most one record among the k that vote, so that one subject moves the vote "
    "vector by at most one vote in and one vote out"
)


def positive(name: str, value: object) -> float:
    """Return `value` if it is a finite number > 0."""
    return checks.real(name, value, above=0)


def scale(name: str, value: object) -> float:
    """Return `value` if it is a noise scale."""
    return checks.real(name, value, least=1e-2, most=1e9)


def rate(name: str, value: object) -> float:
    """Return `value` if it is a probability > 0."""
    return checks.real(name, value, above=0, most=1)


def threshold(name: str, value: object) -> float:
    """Return `value` if it is a threshold in votes."""
    return checks.real(name, value, least=-1e7, most=1e7)


def vote_count(name: str, value: object) -> int:
    """Return `value` if it is a number of voting records."""
    return checks.integer(name, value, least=1, most=MAX_VOTES)


def private_vote_count(name: str, value: object) -> int:
    """Return `value` if it is a private number of votes."""
    return checks.integer(name, value, least=0, most=MAX_VOTES)


def classes(name: str, value: object) -> int:
    """Return `value` if it is a number of classes."""
    return checks.integer(name, value, least=2)


def what_leaves(name: str, value: object) -> str:
    """Return `value` if it is what leaves the mechanism."""
    return checks.choice(name, value, ("votes", "label"))


def fraction(name: str, value: object) -> float:
    """Return `value` if it is a number between 0 and 1."""
    return checks.real(name, value, above=0, below=1)


def _as_given(_name: str, values: dict[str, Any], _delta: float, _count: int) -> dict[str, Any]:
    return values


@dataclasses.dataclass(frozen=True)
class Kind:
    """One kind of release.

    Attributes
    ----------
    fields : dict of str to check
        Every field besides kind and count, with the check that it passes.
    defaults : dict
        Values of the fields that may be left out.
    cost : callable (values, count) -> Composition
        What `count` such releases cost.
    witness : callable (values, count, order) -> list of Witness, or None
        Laws that some neighbouring data sets give, for the certificate.
    words : callable (values) -> tuple of str
        What must be true for the cost to hold.
    complete : callable (name, values, delta, count) -> values
        Checks that concern several fields.
    optional : tuple of str
        Fields that may be missing altogether.
    """

    fields: dict[str, Check]
    cost: Callable[[Values, int], Composition]
    witness: Callable[[Values, int, float], Witnesses]
    words: Callable[[Values], tuple[str, ...]]
    defaults: dict[str, Any] = dataclasses.field(default_factory=dict)
    complete: Callable[[str, dict[str, Any], float, int], dict[str, Any]] = _as_given
    optional: tuple[str, ...] = ()

    @property
    def required(self) -> tuple[str, ...]:
        """Return the fields that must be given."""
        free = {*self.defaults, *self.optional}
        return tuple(name for name in self.fields if name not in free)
