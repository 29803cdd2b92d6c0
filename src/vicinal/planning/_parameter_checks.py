"""What parameters must be; each check names some values that it refuses, for tests."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

from vicinal import _checks
from vicinal.mechanisms import interactions

AUTO = "auto"

Number = TypeVar("Number", int, float)


class Check(ABC):
    """What a parameter must be: calling it returns the checked value or raises InvalidInput.

    `type_name`: the type, as numpydoc writes it after the parameter's name. `refused`: some values
    that it refuses, one on each side of every bound.
    """

    @property
    @abstractmethod
    def type_name(self) -> str:
        """The type, as numpydoc writes it."""

    @property
    @abstractmethod
    def refused(self) -> tuple[object, ...]:
        """Some values that are refused."""

    metavar: ClassVar[str] = "TEXT"

    @abstractmethod
    def __call__(self, name: str, value: Any) -> Any:
        """Return `value` in the type that the code works with."""

    @property
    def option_type(self) -> str:
        """The type, as the help of an option on the command line says it."""
        return self.type_name.replace('"', "").removesuffix(", optional")

    def parsed(self, text: str) -> Any:
        """Return what an option on the command line passes; what cannot be read stays a text."""
        return text


@dataclass(frozen=True, slots=True, kw_only=True)
class Real(Check):
    """A finite number; `above` and `below` are strict bounds, `least` and `most` are not."""

    above: float | None = None
    below: float | None = None
    least: float | None = None
    most: float | None = None

    metavar: ClassVar[str] = "NUMBER"
    type_name = "float"

    def parsed(self, text: str) -> float | str:
        """Return a number."""
        return number_or_text(text, float)

    @property
    def refused(self) -> tuple[object, ...]:
        """Beyond every bound; at the strict ones; and what is no number."""
        strict = [bound for bound in (self.above, self.below) if bound is not None]
        low = [math.nextafter(b, -math.inf) for b in (self.above, self.least) if b is not None]
        high = [math.nextafter(b, math.inf) for b in (self.below, self.most) if b is not None]
        return (*strict, *low, *high, math.nan, math.inf, -math.inf, "1", True, [1.0])

    def __call__(self, name: str, value: object) -> float:
        """Return `value` as a float."""
        bounds = {"above": self.above, "below": self.below, "least": self.least, "most": self.most}
        return _checks.real(name, value, **bounds)


@dataclass(frozen=True, slots=True, kw_only=True)
class Integer(Check):
    """An integer in ``least .. most``."""

    least: int
    most: int | None = None

    metavar: ClassVar[str] = "INTEGER"
    type_name = "int"

    def parsed(self, text: str) -> int | str:
        """Return an integer."""
        return number_or_text(text, int)

    @property
    def refused(self) -> tuple[object, ...]:
        """Beyond every bound, and what is no integer."""
        high = () if self.most is None else (self.most + 1,)
        return (self.least - 1, *high, self.least + 0.5, math.nan, "1", True, [1])

    def __call__(self, name: str, value: object) -> int:
        """Return `value` as an int."""
        return _checks.integer(name, value, least=self.least, most=self.most)


@dataclass(frozen=True, slots=True)
class Choice(Check):
    """One of a few words."""

    options: Sequence[str]

    @property
    def type_name(self) -> str:
        """The words in braces."""
        return "{" + ", ".join(f'"{option}"' for option in self.options) + "}"

    @property
    def refused(self) -> tuple[object, ...]:
        """Another word, and what is no word."""
        return ("another", "", self.options[0].upper(), None, 1, True, [self.options[0]])

    def __call__(self, name: str, value: object) -> str:
        """Return `value`."""
        return _checks.choice(name, value, self.options)


@dataclass(frozen=True, slots=True)
class Unless(Check):
    """What another check asks for, or a value in its place (None, or a word); None stands for it.

    `automatic`: the value in its place. `check`: what all other values must be.
    """

    automatic: str | None
    check: Check

    @property
    def type_name(self) -> str:
        """The type, with the value in its place."""
        if self.automatic is None:
            return f"{self.check.type_name}, optional"
        return f'{self.check.type_name} or "{self.automatic}"'

    @property
    def refused(self) -> tuple[object, ...]:
        """What the check refuses, and the other kind of automatic value."""
        others = (AUTO,) if self.automatic is None else (None, "another")
        return (*(bad for bad in self.check.refused if bad is not self.automatic), *others)

    def parsed(self, text: str) -> Any:
        """Return the value in its place as it is, else what the check reads."""
        return text if text == self.automatic else self.check.parsed(text)

    def __call__(self, name: str, value: object) -> Any:
        """Return None for the automatic value, else what the check returns."""
        if value is None and self.automatic is None:
            return None
        if isinstance(value, str) and value == self.automatic:
            return None
        return self.check(name, value)


@dataclass(frozen=True, slots=True)
class ClassNames(Check):
    """All class names: at least two different integers or strings."""

    type_name = "sequence of int or str"
    refused: ClassVar[tuple[object, ...]] = (None, [], [1], [1, 1], "abc", [[1, 2]], [1.5, 2.5], 3)
    option_type = "separated by commas or semicolons"

    def parsed(self, text: str) -> list[Any]:
        """Return the names of a list; integers if all of them are, as a column is read."""
        names = listed(text)
        are_integers = all(n.removeprefix("-").isdecimal() and str(int(n)) == n for n in names)
        return [int(name) for name in names] if are_integers else list(names)

    def __call__(self, name: str, value: object) -> Any:
        """Return them as an array (c,)."""
        return _checks.class_names(value, name)


@dataclass(frozen=True, slots=True)
class InteractionCount(Check):
    """How many interactions share the budget, or "public", which is 0."""

    type_name = 'int or "public"'
    refused: ClassVar[tuple[object, ...]] = (0, -1, 10**6 + 1, 1.5, "some", None, True)

    def __call__(self, name: str, value: object) -> int:  # noqa: ARG002 (the name is fixed)
        """Return the number, 0 for public records."""
        return interactions(value)


def number_or_text(text: str, kind: Callable[[str], Number]) -> Number | str:
    """Return a number that stands in a text; the text, which no check takes, if there is none."""
    try:
        return kind(text)
    except ValueError:
        return text


def listed(text: str) -> list[str]:
    """Return the parts of a list that is separated by semicolons, or else by commas."""
    return [part.strip() for part in text.split(";" if ";" in text else ",")]


SEED = Unless(None, Integer(least=0))
