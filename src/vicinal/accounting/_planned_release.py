"""What the kinds of releases of a plan share: their base class, field checks and assumptions."""

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from functools import partial
from itertools import pairwise
from typing import Any, ClassVar, Self

from vicinal import _checks
from vicinal.accounting._certificate import WorstCasePair
from vicinal.accounting._composition import Composition
from vicinal.accounting._screening import MAX_VOTES
from vicinal.errors import InvalidInput

FieldCheck = Callable[[str, object], Any]

POISSON = (
    "with gamma < 1 every subject takes part by an independent coin of probability gamma, tossed "
    "anew for every release; never a sample of fixed size"
)
KNOWN_COINS = (
    "with gamma < 1 the lower bound is for somebody who knows all others' coins, as every "
    "analysis of sampling lets them"
)
LABEL_ONLY = (
    "where only the label leaves, the noisy votes are seen by nobody, and nothing else is computed "
    "from them"
)
ONE_OF_K = (
    "a subject has at most one record among the k that vote, so that one subject moves the vote "
    "vector by at most one vote in and one vote out"
)


def check_that(meaning: str, check: Callable[..., Any], **bounds: Any) -> FieldCheck:
    """Return a check with its bounds; `meaning` is what the reference says of the field."""
    bounded = partial(check, **bounds)
    bounded.__doc__ = meaning
    return bounded


positive = check_that("a finite number > 0", _checks.real, above=0)
fraction = check_that("a number between 0 and 1", _checks.real, above=0, below=1)
rate = check_that("a probability > 0", _checks.real, above=0, most=1)
scale = check_that("a noise scale", _checks.real, least=1e-2, most=1e9)
threshold = check_that("a threshold in votes", _checks.real, least=-1e7, most=1e7)
vote_count = check_that("a number of voting records", _checks.integer, least=1, most=MAX_VOTES)
classes = check_that("a number of classes", _checks.integer, least=2)
check_release = check_that("what leaves the mechanism", _checks.choice, options=("votes", "label"))


whole_step = check_that("a whole number", _checks.integer, least=1, most=10_000)

_MOST_NUMBERS = 20_000


def numbers(name: str, value: object, **bounds: float) -> tuple[float, ...]:
    """Return a list of numbers within bounds, not empty."""
    if not isinstance(value, list | tuple) or not 0 < len(value) <= _MOST_NUMBERS:
        raise InvalidInput(
            f"The '{name}' parameter must be a list of 1 to {_MOST_NUMBERS} numbers."
        )
    return tuple(_checks.real(name, each, **bounds) for each in value)


def growing(name: str, value: object, **bounds: float) -> tuple[float, ...]:
    """Return the same, each larger than the one before."""
    values = numbers(name, value, **bounds)
    if any(first >= second for first, second in pairwise(values)):
        raise InvalidInput(f"The '{name}' parameter must grow from number to number.")
    return values


def checked(check: FieldCheck, default: Any = dataclasses.MISSING) -> Any:
    """Return a dataclass field that `check` admits; default None: it may be missing altogether."""
    return dataclasses.field(default=default, metadata={"check": check})


@dataclasses.dataclass(frozen=True, kw_only=True)
class PlannedRelease(ABC):
    """One release of a plan.

    A kind of release is a subclass: its fields, each declared once. A plan calls it by its `kind`.
    """

    kind: ClassVar[str]

    @classmethod
    def field_names(cls) -> tuple[str, ...]:
        """Return the fields besides kind and count."""
        return tuple(field.name for field in dataclasses.fields(cls))

    @classmethod
    def required(cls) -> tuple[str, ...]:
        """Return the fields that must be given."""
        fields = dataclasses.fields(cls)
        return tuple(field.name for field in fields if field.default is dataclasses.MISSING)

    @classmethod
    def from_fields(cls, name: str, values: Mapping[str, Any]) -> Self:
        """Check every given field; `name` is how errors call the release."""
        checks = {field.name: field.metadata["check"] for field in dataclasses.fields(cls)}
        given_checks = {key: check for key, check in checks.items() if key in values}
        return cls(
            **{key: check(f"{name}.{key}", values[key]) for key, check in given_checks.items()}
        )

    @property
    def values(self) -> dict[str, Any]:
        """Return the fields that have a value, by name."""
        values = {key: getattr(self, key) for key in sorted(self.field_names())}
        return {key: value for key, value in values.items() if value is not None}

    def complete(self, name: str, delta: float, count: int) -> Self:  # noqa: ARG002
        """Check fields against each other and the plan; return them with what follows from it.

        Errors call the release `name`; `count` such are planned, at the plan's `delta`.
        """
        return self

    @abstractmethod
    def cost(self, count: int) -> Composition:
        """Return what `count` such releases cost."""

    def worst_case(self, count: int, order: float) -> list[WorstCasePair] | None:  # noqa: ARG002
        """Return laws that some neighbouring data sets give, bad at `order`; None if not known."""
        return None

    def parts(self, delta: float) -> list[dict[str, Any]]:  # noqa: ARG002
        """Return what one release is made of, each with its epsilon `alone` at `delta`."""
        return []

    @abstractmethod
    def assumptions(self) -> tuple[str, ...]:
        """Return what must be true for the cost to hold."""
