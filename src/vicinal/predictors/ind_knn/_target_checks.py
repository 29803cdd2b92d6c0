"""What is declared of classes, numbers and words: checks of public inputs."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from re import compile as pattern
from typing import ClassVar

import numpy as np

from vicinal import _checks
from vicinal._arrays import Floats
from vicinal.errors import InvalidInput
from vicinal.mechanisms._record_vectors import MOST_COORDINATES
from vicinal.predictors._common.parameter_checks import Check, listed, number_or_text


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


_WORDS = pattern(r"[^\W_]+")


def words(text: str) -> Iterator[str]:
    """Yield the words of a text in small letters."""
    return (match[0].lower() for match in _WORDS.finditer(text))


@dataclass(frozen=True, slots=True)
class WordWeights(Check):
    """A public vocabulary: words, or a mapping of words to their weights, above 0."""

    type_name = "sequence of str, or mapping"
    _words: ClassVar[tuple[object, ...]] = (
        None,
        [],
        "words",
        [1, 2],
        ["a", "a"],
        [""],
        ["Knee"],
        ["knee pain"],
    )
    refused: ClassVar[tuple[object, ...]] = (*_words, {"a": 0.0}, {"a": math.nan}, {"a": "b"})
    metavar: ClassVar[str] = "FILE"
    option_type = "a word a line, with its weight after a comma if it has one"

    def parsed(self, text: str) -> dict[str, float | str]:
        """Return the words of a file, with their weights."""
        try:
            lines = Path(text).read_text(encoding="utf-8").split("\n")
        except (OSError, ValueError):
            raise InvalidInput(f"There is no file of words {text}.") from None
        pairs = (line.strip().partition(",") for line in lines if line.strip())
        named = [(word.strip(), number_or_text(w, float) if w else 1.0) for word, _, w in pairs]
        if len(dict(named)) < len(named):
            raise InvalidInput("The 'vocabulary' parameter must hold each word once.")
        return dict(named)

    def __call__(self, name: str, value: object) -> dict[str, float]:
        """Return every word's weight, in order."""
        mapping = isinstance(value, Mapping)
        if isinstance(value, str) or not isinstance(value, Mapping | Sequence | np.ndarray):
            raise InvalidInput(f"The {name!r} parameter must be a sequence or mapping of words.")
        named = [str(word) if isinstance(word, np.str_) else word for word in value]
        if not named or not all(isinstance(word, str) and word for word in named):
            raise InvalidInput(f"The {name!r} parameter must hold words, at least one.")
        if not all(next(words(word), None) == word for word in named):
            raise InvalidInput(
                f"The {name!r} parameter must hold single words in small letters, of letters and "
                "digits: texts are read so, and any other word would never be found."
            )
        if len(set(named)) < len(named) or len(named) > MOST_COORDINATES:
            raise InvalidInput(
                f"The {name!r} parameter must hold each word once, {MOST_COORDINATES} at most."
            )
        weights = value.values() if mapping else [1.0] * len(named)  # type: ignore[union-attr]
        numbers = [_checks.real(name, weight, above=0) for weight in weights]
        return dict(zip(named, numbers, strict=True))
