"""What a kind of release is made of, and the checks and words that several kinds share."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from numbers import Real
from typing import Any

from vicinal import _checks
from vicinal.accounting._certificate import WorstCasePair
from vicinal.accounting._composition import Composition
from vicinal.accounting._screening import MAX_VOTES
from vicinal.errors import InvalidInput

Values = Mapping[str, Any]
Check = Callable[[str, object], Any]
Witnesses = list[WorstCasePair] | None

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
    return _checks.real(name, value, above=0)


def scale(name: str, value: object) -> float:
    """Return `value` if it is a noise scale."""
    return _checks.real(name, value, least=1e-2, most=1e9)


def rate(name: str, value: object) -> float:
    """Return `value` if it is a probability > 0."""
    return _checks.real(name, value, above=0, most=1)


def threshold(name: str, value: object) -> float:
    """Return `value` if it is a threshold in votes."""
    return _checks.real(name, value, least=-1e7, most=1e7)


def vote_count(name: str, value: object) -> int:
    """Return `value` if it is a number of voting records."""
    return _checks.integer(name, value, least=1, most=MAX_VOTES)


def largest_votes(name: str, value: object) -> tuple[int, ...]:
    """Return the largest vote of every query, PRIVATE, from a number for all or a list of them."""
    values: list[Any] = list(value) if isinstance(value, list | tuple) and value else [value]
    if not all(_is_count(entry) and entry == int(entry) <= MAX_VOTES for entry in values):
        raise InvalidInput(
            f"The {name!r} parameter must be an integer >= 0 and <= {MAX_VOTES}, the largest vote "
            "of every query, or a list of such, one for each query. What was given is not shown."
        )
    return tuple(int(entry) for entry in values)


def vote_table(name: str, value: object) -> tuple[tuple[float, ...], ...]:
    """Return the votes of every query, PRIVATE: a list of rows with a count for every class."""
    rows = value if isinstance(value, list | tuple) else []
    if not (rows and all(isinstance(row, list | tuple) and len(row) >= 2 for row in rows)):
        raise _no_table(name)
    if len({len(row) for row in rows}) > 1 or not all(_is_count(n) for row in rows for n in row):
        raise _no_table(name)
    return tuple(tuple(float(count) for count in row) for row in rows)


def _is_count(value: object) -> bool:
    number = isinstance(value, Real) and not isinstance(value, bool)
    return number and math.isfinite(value) and value >= 0  # type: ignore[arg-type, operator]


def _no_table(name: str) -> InvalidInput:
    return InvalidInput(
        f"The {name!r} parameter must be a list with a row for each query, every row a list of "
        "finite counts >= 0, one for each class, at least two. What was given is not shown."
    )


def one_row_each(name: str, values: Mapping[str, Any], count: int) -> None:
    """Refuse a 'votes' field whose length is not the count of the release."""
    if len(values["votes"]) != count:
        raise InvalidInput(
            f"The '{name}.count' parameter must be the number of queries that '{name}.votes' has, "
            f"{len(values['votes'])}. Got {count}."
        )


def labels_only(name: str, values: Mapping[str, Any]) -> None:
    """Refuse that noisy votes leave where the cost is that of a label."""
    if values["release"] != "label":
        raise InvalidInput(
            f"The '{name}.release' parameter must be 'label' where '{name}.votes' is given: the "
            "cost of noisy votes that leave does not depend on the data."
        )


def classes(name: str, value: object) -> int:
    """Return `value` if it is a number of classes."""
    return _checks.integer(name, value, least=2)


def check_release(name: str, value: object) -> str:
    """Return `value` if it is what leaves the mechanism."""
    return _checks.choice(name, value, ("votes", "label"))


def fraction(name: str, value: object) -> float:
    """Return `value` if it is a number between 0 and 1."""
    return _checks.real(name, value, above=0, below=1)


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
    witness : callable (values, count, order) -> list of WorstCasePair, or None
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
    worst_case: Callable[[Values, int, float], Witnesses]
    assumptions: Callable[[Values], tuple[str, ...]]
    defaults: dict[str, Any] = dataclasses.field(default_factory=dict)
    complete: Callable[[str, dict[str, Any], float, int], dict[str, Any]] = _as_given
    optional: tuple[str, ...] = ()

    @property
    def required(self) -> tuple[str, ...]:
        """Return the fields that must be given."""
        free = {*self.defaults, *self.optional}
        return tuple(name for name in self.fields if name not in free)
