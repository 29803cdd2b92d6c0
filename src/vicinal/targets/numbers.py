"""Numbers: between declared bounds, averaged as they are or as logarithms."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from vicinal import checks
from vicinal.arrays import AnyArray, Floats
from vicinal.errors import InvalidInput
from vicinal.mechanisms.subject_table import RecordVectors
from vicinal.parameters import (
    Check,
    Choice,
    Given,
    Unless,
    number_or_text,
    parameter,
    parameter_table,
    split_list,
)
from vicinal.tabular import align_columns, read_column, read_numbers, refuse_missing
from vicinal.targets._averages import WEIGHT_SHARE, noisy_averages, parts
from vicinal.targets.target import NUMBERS, ExpectedError, VectorTarget

LINEAR = "linear"
LOG = "log"

NUMBERS_PER_NOISE = 60
"""Neighbours for each unit of noise and dimension: more than for a vote, as all of the noise is in
the answer."""

_LEAST_LENGTH = 0.01  # of typical vectors: a fiftieth of the bounds, at one of their ends

TYPICAL = 0.75
"""Where a number's expected error is stated: this part of the way through its typical range."""


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
        return len(self.low)

    @property
    def plain(self) -> Any:
        """What declares them, as JSON has it."""
        pairs = np.stack([self.low, self.high], axis=1).tolist()
        return pairs[0] if self.names is None else dict(zip(self.names, pairs, strict=True))

    def logarithms(self) -> TargetBounds:
        """Return the bounds of the targets' logarithms."""
        return TargetBounds(self.names, np.log(self.low), np.log(self.high))


@dataclass(frozen=True, slots=True)
class BoundsOfTargets(Check):
    """(low, high) of one target, or a mapping of several targets' names to such pairs."""

    type_name = "pair of float, or mapping"

    metavar: ClassVar[str] = "NAME=LOW..HIGH,..."
    option_type = "each target's column with its bounds"

    repeatable = True

    def parsed(self, text: str) -> dict[str, tuple[float | str, ...]]:
        return self.parsed_items(split_list(text))

    def parsed_items(self, texts: Sequence[str]) -> dict[str, tuple[float | str, ...]]:
        # A name may hold an equals sign, its bounds cannot.
        named = [part.rpartition("=") if "=" in part else (part, "", "") for part in texts]
        names = checks.distinct_names("bounds", [name.strip() for name, _, _ in named])
        pairs = [pair.split("..") for _, _, pair in named]
        bounds = [tuple(number_or_text(bound, float) for bound in pair) for pair in pairs]
        return dict(zip(names, bounds, strict=True))

    def __call__(self, name: str, value: object) -> TargetBounds:
        if not isinstance(value, Mapping):
            low, high = _pair(name, value)
            return TargetBounds(None, np.array([low]), np.array([high]))
        if not value or not all(isinstance(each, str) and each for each in value):
            raise InvalidInput(f"The {name!r} parameter must map names of targets to pairs.")
        names = checks.distinct_names(name, value)
        pairs = np.array([_pair(name, pair) for pair in value.values()])
        return TargetBounds(tuple(names), pairs[:, 0], pairs[:, 1])


def _pair(name: str, value: object) -> tuple[float, float]:
    message = f"The {name!r} parameter must be a pair (low, high) of numbers with low < high."
    if isinstance(value, tuple) and any(isinstance(each, str) for each in value):
        # What an option could not read stays a text.
        raise InvalidInput(
            f"The {name!r} parameter must be written NAME=LOW..HIGH with numbers, as in age=0..110."
        )
    if isinstance(value, str) or not isinstance(value, Sequence) or len(value) != 2:
        raise InvalidInput(message)
    low, high = (checks.check_real(name, each) for each in value)
    if not low < high or not math.isfinite(high - low):
        raise InvalidInput(message)
    return low, high


@parameter_table
class NumbersParameters:
    """What declares that records carry numbers."""

    bounds: Given[Sequence[float] | Mapping[str, Sequence[float]], TargetBounds] = parameter(
        BoundsOfTargets(),
        kw_only=False,
        doc="""Public bounds (low, high) of the numbers. Never read them off the private numbers,
        which are cut to them. For several targets, pass a mapping of names to such pairs; the
        columns of `y` follow its order. A target in (0, 1) may be a yes or no.""",
    )

    scale: str = parameter(
        Choice((LINEAR, LOG)),
        default=LINEAR,
        doc="""How numbers are averaged. "log" averages logarithms, for numbers with heavy tails;
        answers are geometric means.""",
    )
    typical_range: Given[
        Sequence[float] | Mapping[str, Sequence[float]] | None, TargetBounds | None
    ] = parameter(
        Unless(None, BoundsOfTargets()),
        default=None,
        doc="""Public range (low, high) inside the bounds that holds most numbers. Noise is planned
        for numbers in it, so a narrow range means less noise. Numbers beyond it are not cut, but
        their subjects pay more for an answer and take part in fewer. A wrong range costs accuracy,
        never privacy. For several targets pass a mapping, as for `bounds`. None: the bounds.""",
    )


@dataclass(frozen=True, slots=True, eq=False)
class TypicalScale:
    """Where numbers in -1..1 typically lie: their middle and how far from it.

    `centre`, `half`, float64 (p,): typical numbers z of a target have |z - centre| <= half. By
    default all are typical.
    """

    centre: Floats
    half: Floats

    @classmethod
    def of(cls, bounds: TargetBounds, typical: TargetBounds | None) -> Self:
        """Return the middle and half the width of typical ranges, by bounds that are -1 and 1."""
        if typical is None:
            return cls(np.zeros(len(bounds)), np.ones(len(bounds)))
        width = (bounds.high - bounds.low) / 2
        centre = (typical.low + typical.high) / 2 - (bounds.low + bounds.high) / 2
        return cls(centre / width, (typical.high - typical.low) / 2 / width)

    @property
    def length(self) -> float:
        """Length of the vectors at the ends of the typical ranges, where the longest have 1."""
        farthest = (1 + np.abs(self.centre)) / self.half
        square = WEIGHT_SHARE + (1 - WEIGHT_SHARE) * float(np.square(farthest).mean())
        return 1 / math.sqrt(square)

    @property
    def parts(self) -> tuple[float, float]:
        """(a, b) of a number's vector (a, b (z - centre) / half)."""
        a, b = parts(WEIGHT_SHARE)
        return self.length * a, self.length * b


class Numbers(NumbersParameters, VectorTarget):
    """Records carry numbers: a weight, and each number."""

    kind, words = NUMBERS, "numbers"
    answer_prefixes = ("error_",)
    public_facts = ("the names and bounds of the targets",)

    def check_together(self) -> None:
        super().check_together()
        self._check_typical_range()
        if self.scale == LOG and not (self.bounds.low > 0).all():
            raise InvalidInput("The 'bounds' parameter must be above 0 with scale='log'.")
        if self.typical_scale.length < _LEAST_LENGTH:
            raise InvalidInput(
                "The 'typical_range' parameter must be at least a fiftieth of the 'bounds' "
                "parameter. Give narrower bounds: numbers beyond them are cut."
            )

    def _check_typical_range(self) -> None:
        typical, bounds = self.typical_range, self.bounds
        if typical is None:
            return
        inside = typical.names == bounds.names
        inside = inside and bool((typical.low >= bounds.low).all())
        if not inside or not bool((typical.high <= bounds.high).all()):
            raise InvalidInput(
                "The 'typical_range' parameter must lie within the 'bounds' parameter, and name "
                "the same targets in the same order."
            )

    @property
    def names(self) -> list[Any]:
        return list(self.bounds.names or ("number",))

    @property
    def declaration(self) -> Any:
        return self.bounds.plain

    def encode(self, y: npt.ArrayLike | None, size: int) -> RecordVectors:
        """Return (a, b (z - centre) / half / sqrt(p)) of numbers (n,) or (n, p), as z in -1..1."""
        values = scale_numbers(y, size, self.bounds, log=self.scale == LOG)
        scale = self.typical_scale
        a, b = scale.parts
        components = (values - scale.centre) / scale.half
        components = components * (b / math.sqrt(values.shape[1]))
        return RecordVectors.of_rows(np.column_stack([np.full(size, a), components]))

    @property
    def neighbors_per_noise(self) -> float:
        return NUMBERS_PER_NOISE / self.typical_length

    @property
    def typical_length(self) -> float:
        return self.typical_scale.length

    @cached_property
    def typical_scale(self) -> TypicalScale:
        """Where most numbers lie, on the scale on which they are averaged."""
        typical = self.typical_range
        if typical is not None and self.scale == LOG:
            typical = typical.logarithms()
        return TypicalScale.of(self.scaled_bounds, typical)

    @property
    def scaled_bounds(self) -> TargetBounds:
        """The bounds on the scale on which records are averaged."""
        return self.bounds.logarithms() if self.scale == LOG else self.bounds

    @property
    def n_coordinates(self) -> int:
        return 1 + len(self.bounds)

    def answers(self, sums: Floats, noise: Floats) -> NumberAnswers:
        a, b = self.typical_scale.parts
        b /= math.sqrt(len(self.bounds))
        means, errors = noisy_averages(sums, noise, a, b)
        typical, bounds = self.typical_scale, self.scaled_bounds
        half = (bounds.high - bounds.low) / 2
        scaled = np.clip(means * typical.half + typical.centre, -1, 1)
        values = bounds.low + half * (scaled + 1)
        if self.scale == LOG:
            values = np.exp(values)
            half = values * half
        return NumberAnswers(values, half * (errors * typical.half))

    def expected_errors(self, weight: float, noise: Floats) -> list[ExpectedError]:
        usual = self.typical_range or self.bounds
        usual = usual.logarithms() if self.scale == LOG else usual
        y = usual.low + TYPICAL * (usual.high - usual.low)
        y = np.exp(y) if self.scale == LOG else y
        sums = weight * self.encode(y if self.bounds.names is None else y[None], 1).dense()
        errors = self.answers(sums, noise).errors[0]
        pairs = zip(self.names, y.tolist(), errors.tolist(), strict=True)
        return [ExpectedError(*each) for each in pairs]

    def examples(self, size: int) -> Floats:
        low = self.bounds.low
        return np.full(size, low[0]) if self.bounds.names is None else np.tile(low, (size, 1))

    @property
    def weight(self) -> float:
        return self.typical_scale.parts[0]

    @property
    def residual(self) -> float:
        # Half-way to the ends of their range.
        return self.typical_scale.parts[1] / 2

    @property
    def extremes(self) -> tuple[Any, Any]:
        low, high = self.bounds.low.tolist(), self.bounds.high.tolist()
        return (high[0], low[0]) if self.bounds.names is None else (high, low)

    def described(self) -> str:
        pairs = zip(self.names, self.bounds.low, self.bounds.high, strict=True)
        return "the numbers " + ", ".join(f"{name} ({a:g} to {b:g})" for name, a, b in pairs)

    @property
    def parameters(self) -> dict[str, Any]:
        typical = self.typical_range
        ranges = {} if typical is None else {"typical_range": typical.plain}
        return {**super().parameters, **ranges}


def scale_numbers(y: Any, size: int, bounds: TargetBounds, *, log: bool) -> Floats:
    """Return targets on a scale from -1, the lower bound, to 1, (n, p); beyond them they are cut.

    The columns of a table are found by the names of the bounds.
    Raises InvalidInput if they are not finite numbers, one for each record and target; no value is
    quoted.
    """
    if y is None:
        raise InvalidInput(
            "The 'y' parameter must hold a number for each record: fit requires y to be passed, "
            "but the target y is None."
        )
    expected = None if bounds.names is None else tuple(bounds.names)
    table = align_columns("y", y, expected, "the 'bounds' parameter", read_numbers)
    refuse_missing("y", table)
    if bounds.names is None and table.ndim == 2 and table.shape[1] == 1:
        table = np.asarray(read_column("y", table))
    shape = (size,) if len(bounds) == 1 else (size, len(bounds))
    if table.shape not in {shape, (size, len(bounds))}:
        described = "(n,)" if len(bounds) == 1 else f"(n, {len(bounds)})"
        raise InvalidInput(
            f"The 'y' parameter must hold numbers in shape {described}, a row for each record."
        )
    values = table.reshape(size, len(bounds)).astype(np.float64)
    low, high = bounds.low, bounds.high
    values = np.clip(values, low, high)
    if log:
        values, low, high = np.log(values), np.log(low), np.log(high)
    return np.clip((values - low) / (high - low) * 2 - 1, -1.0, 1.0)


@dataclass(frozen=True, slots=True)
class NumberAnswers:
    """Predictions of p targets for q queries, and their standard errors from the noise.

    `means`, `errors`, float64 (q, p): both in units of the targets.
    """

    means: Floats
    errors: Floats

    @property
    def fields(self) -> dict[str, AnyArray]:
        """What a reply says: predictions as its labels, and errors."""
        return {"labels": self.means, "errors": self.errors}
