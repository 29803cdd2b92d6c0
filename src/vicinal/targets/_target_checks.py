"""What is declared of classes and numbers: checks of public inputs."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from vicinal import _checks
from vicinal._arrays import Floats
from vicinal.errors import InvalidInput
from vicinal.planning import Check, listed, number_or_text


@dataclass(frozen=True, slots=True)
class ClassNumbers(Check):
    """A positive number for every class, in the order of `classes`, or a word in their place.

    `word`: the word, which is left as it is.
    """

    word: str | None = None

    @property
    def type_name(self) -> str:
        """The type."""
        word = "" if self.word is None else f', or "{self.word}"'
        return f"sequence of float{word}, optional"

    refused: ClassVar[tuple[object, ...]] = (
        [],
        [1.0, 0.0],
        [0.5, math.nan],
        [0.5, math.inf],
        [[0.5, 0.5]],
        "another",
        0.5,
    )

    def parsed(self, text: str) -> list[float | str] | str:
        """Return the word, or the numbers of a list."""
        return text if text == self.word else [number_or_text(n, float) for n in listed(text)]

    def __call__(self, name: str, value: object) -> tuple[float, ...] | str | None:
        """Return the numbers as a tuple, or the word, or None."""
        if value is None or (isinstance(value, str) and value == self.word):
            return value
        if isinstance(value, str) or not isinstance(value, Iterable):
            raise InvalidInput(f"The {name!r} parameter must hold a number for every class.")
        numbers = tuple(_checks.real(name, each, above=0) for each in value)
        if not numbers:
            raise InvalidInput(f"The {name!r} parameter must hold a number for every class.")
        return numbers


@dataclass(frozen=True, slots=True)
class TargetBounds:
    """Between which values each target lies; public.

    `names`: names of several targets; None for a single one without a name. `low`, `high`, float64
    (p,): bounds of each target.
    """

    names: tuple[str, ...] | None
    low: Floats
    high: Floats

    def __len__(self) -> int:
        """Return p, the number of targets."""
        return len(self.low)

    def logarithms(self) -> TargetBounds:
        """Return the bounds of the targets' logarithms."""
        return TargetBounds(self.names, np.log(self.low), np.log(self.high))


@dataclass(frozen=True, slots=True)
class BoundsOfTargets(Check):
    """(low, high) of one target, or a mapping of several targets' names to such pairs."""

    type_name = "pair of float, or mapping"

    @property
    def refused(self) -> tuple[object, ...]:
        """No pair, no order, no numbers."""
        bad = (None, 3.0, (1,), (1, 2, 3), (2, 1), (1, 1), (0, math.nan), (0, math.inf), "01")
        return (*bad, {}, {"age": 3}, {"age": (2, 1)}, {5: (0, 1)})

    metavar: ClassVar[str] = "NAME=LOW..HIGH,..."
    option_type = "each target's column with its bounds"

    def parsed(self, text: str) -> dict[str, tuple[float | str, ...]]:
        """Return the pairs of a list as age=0..110,readmitted=0..1."""
        named = (part.partition("=") for part in listed(text))
        return {
            name: tuple(number_or_text(bound, float) for bound in pair.split(".."))
            for name, _, pair in named
        }

    def __call__(self, name: str, value: object) -> TargetBounds:
        """Return the bounds as arrays."""
        if not isinstance(value, Mapping):
            low, high = _pair(name, value)
            return TargetBounds(None, np.array([low]), np.array([high]))
        if not value or not all(isinstance(each, str) for each in value):
            raise InvalidInput(f"The {name!r} parameter must map names of targets to pairs.")
        pairs = np.array([_pair(name, pair) for pair in value.values()])
        return TargetBounds(tuple(value), pairs[:, 0], pairs[:, 1])


def _pair(name: str, value: object) -> tuple[float, float]:
    message = f"The {name!r} parameter must be a pair (low, high) of numbers with low < high."
    if isinstance(value, tuple) and any(isinstance(each, str) for each in value):
        # What an option could not read stays a text.
        raise InvalidInput(
            f"The {name!r} parameter must be written NAME=LOW..HIGH with numbers, as in age=0..110."
        )
    if isinstance(value, str) or not isinstance(value, Sequence) or len(value) != 2:
        raise InvalidInput(message)
    low, high = (_checks.real(name, each) for each in value)
    if not low < high or not math.isfinite(high - low):
        raise InvalidInput(message)
    return low, high
