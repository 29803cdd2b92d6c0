"""Numbers: between declared bounds, averaged as they are or as logarithms."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from vicinal import _checks
from vicinal._arrays import AnyArray, Floats, Objects
from vicinal._parameters import (
    Check,
    Choice,
    Given,
    Integer,
    Unless,
    listed,
    number_or_text,
    parameter,
    table,
)
from vicinal.errors import InvalidInput
from vicinal.mechanisms import RecordVectors
from vicinal.targets._averages import (
    WEIGHT_SHARE,
    NeighborhoodSummary,
    NoisyAverages,
    NoisyEstimate,
    distribution,
    parts,
    quantile,
)
from vicinal.targets._target import NUMBERS, ExpectedError, VectorTarget

LINEAR = "linear"
LOG = "log"

NUMBERS_PER_NOISE = 60
"""Neighbours for each unit of noise and dimension: more than for a vote, as all of the noise is in
the answer."""

_QUARTILES = (0.25, 0.5, 0.75)

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

    @property
    def refused(self) -> tuple[object, ...]:
        bad = (None, 3.0, (1,), (1, 2, 3), (2, 1), (1, 1), (0, math.nan), (0, math.inf), "01")
        return (*bad, {}, {"age": 3}, {"age": (2, 1)}, {5: (0, 1)})

    metavar: ClassVar[str] = "NAME=LOW..HIGH,..."
    option_type = "each target's column with its bounds"

    def parsed(self, text: str) -> dict[str, tuple[float | str, ...]]:
        named = (part.partition("=") for part in listed(text))
        return {
            name: tuple(number_or_text(bound, float) for bound in pair.split(".."))
            for name, _, pair in named
        }

    def __call__(self, name: str, value: object) -> TargetBounds:
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


@table
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
    n_thresholds: int | None = parameter(
        Unless(None, Integer(least=2, most=1000)),
        default=None,
        doc="""Number of public thresholds (J) for quantiles and histograms. Each record then says
        on which side of every threshold its number lies. Means are no noisier, but each record is
        rounded to (high - low) / J.""",
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
    """Records carry numbers: a weight, and each number, or its side of every threshold."""

    kind, words = NUMBERS, "numbers"
    public_facts = ("the names and bounds of the targets",)

    def check_together(self) -> None:
        self._check_typical_range()
        if self.scale == LOG and not (self.bounds.low > 0).all():
            raise InvalidInput("The 'bounds' parameter must be above 0 with scale='log'.")
        if self.typical_scale.length < _LEAST_LENGTH:
            raise InvalidInput(
                "The 'typical_range' parameter must be a fiftieth of the 'bounds' parameter at "
                "least. Give narrower bounds: numbers beyond them are cut."
            )

    def _check_typical_range(self) -> None:
        typical, bounds = self.typical_range, self.bounds
        if typical is None:
            return
        if self.n_thresholds is not None:
            raise InvalidInput(
                "The 'typical_range' parameter must be None with 'n_thresholds': every number then "
                "contributes the same length."
            )
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
        """Return the vectors of records with numbers (n,) or (n, p), scaled to z in -1..1.

        Without thresholds v = (a, b (z - centre) / half / sqrt(p)). With J of them each number
        becomes the signs of its distances to them, over sqrt(J): they tell its share below each
        threshold, and their mean is the number itself, rounded to 2 / J.
        """
        values = numbers(y, size, self.bounds, log=self.scale == LOG)
        count, scale = self.n_thresholds, self.typical_scale
        a, b = scale.parts
        components = (values - scale.centre) / scale.half
        if count is not None:
            above = values[:, :, None] >= thresholds(count)
            components = np.where(above, 1.0, -1.0).reshape(size, -1) / math.sqrt(count)
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
        return 1 + len(self.bounds) * (self.n_thresholds or 1)

    def answers(self, sums: Floats, noise: Floats) -> NumberAnswers:
        a, b = self.typical_scale.parts
        b /= math.sqrt(len(self.bounds) * (self.n_thresholds or 1))
        averages = NoisyAverages.of(sums, noise, a, b)
        return NumberAnswers(self, averages, *_in_units(self, *_scaled(self, averages)))

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
        # Signs have the full length. Numbers are half-way to the ends of their range.
        _, longest = self.typical_scale.parts
        return longest if self.n_thresholds else longest / 2

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


def numbers(y: npt.ArrayLike | None, size: int, bounds: TargetBounds, *, log: bool) -> Floats:
    """Return targets on a scale from -1, the lower bound, to 1, (n, p); beyond them they are cut.

    Raises InvalidInput if they are not finite numbers, one for each record and target; no value is
    quoted.
    """
    if y is None:
        raise InvalidInput(
            "The 'y' parameter must hold a number for each record: fit requires y to be passed, "
            "but the target y is None."
        )
    table = np.asarray(_checks.unmasked("y", y))
    if table.dtype.kind == "O":
        table = _as_floats(table)
    if bounds.names is None and table.ndim == 2 and table.shape[1] == 1:
        from sklearn.utils.validation import column_or_1d  # slow to load; few need it

        table = column_or_1d(table, warn=True)
    shape = (size,) if len(bounds) == 1 else (size, len(bounds))
    if table.dtype.kind not in "biuf" or table.shape not in {shape, (size, len(bounds))}:
        raise InvalidInput(f"The 'y' parameter must hold numbers in shape {shape}.")
    values = table.reshape(size, len(bounds)).astype(np.float64)
    if not np.isfinite(values).all():
        raise InvalidInput("The 'y' parameter must hold finite numbers: no NaN or infinity.")
    low, high = bounds.low, bounds.high
    values = np.clip(values, low, high)
    if log:
        values, low, high = np.log(values), np.log(low), np.log(high)
    return np.clip((values - low) / (high - low) * 2 - 1, -1.0, 1.0)


def _as_floats(table: Objects) -> Floats:
    try:
        return table.astype(np.float64)
    except (TypeError, ValueError):
        raise InvalidInput("The 'y' parameter must hold numbers.") from None


def thresholds(count: int) -> Floats:
    """Return `count` thresholds between -1 and 1, in the middles of as many equal intervals."""
    return (2 * np.arange(count) + 1) / count - 1


@dataclass(frozen=True, slots=True)
class NumberAnswers:
    """Predictions of p targets for q queries, with what is known of them.

    `target`: how numbers became vectors. `averages`: of what records said, (q, p), or (q, p J)
    with J thresholds. `means`, `errors`, float64 (q, p): predictions and their standard errors from
    the noise, in units of the targets.
    """

    target: Numbers
    averages: NoisyAverages
    means: Floats
    errors: Floats

    @property
    def fields(self) -> dict[str, AnyArray | None]:
        """What a reply says: predictions as its labels, errors, and quartiles, if paid for."""
        paid = self.target.n_thresholds is not None and len(self.means)
        quartiles = self.quantiles(_QUARTILES) if paid else None
        return {"labels": self.means, "errors": self.errors, "quartiles": quartiles}

    def summaries(self) -> list[NeighborhoodSummary]:
        """Return the mean of every number, and histograms with thresholds, around each query."""
        shares = None if self.target.n_thresholds is None else self.shares_below()
        names = self.target.bounds.names or ("mean",)
        return [
            NeighborhoodSummary(
                self.averages.weight_of(i),
                means={
                    name: NoisyEstimate(float(self.means[i, j]), float(self.errors[i, j]))
                    for j, name in enumerate(names)
                },
                histograms={}
                if shares is None
                else {
                    name: (self.edges(j), np.diff(shares[i, j], prepend=0.0, append=1.0))
                    for j, name in enumerate(names)
                },
            )
            for i in range(len(self.means))
        ]

    def quantiles(self, levels: Sequence[float]) -> Floats:
        """Return the neighbours' quantiles at checked `levels`, (q, p, levels)."""
        shares = self.shares_below()
        quantiles = [
            [quantile(shares[:, j], self.edges(j), level) for level in levels]
            for j in range(shares.shape[1])
        ]
        return np.moveaxis(np.array(quantiles), 2, 0)

    def shares_below(self) -> Floats:
        """Return the shares of numbers below each threshold, (q, p, J), never falling."""
        count = self.target.n_thresholds or 1
        above = self.averages.means.reshape(len(self.means), -1, count)
        rows = ((1 - above) / 2).reshape(-1, count)
        return distribution(rows).reshape(above.shape)

    def edges(self, target: int) -> Floats:
        """Return the lower bound, all thresholds, and the upper bound of a target, (J + 2,)."""
        assert self.target.n_thresholds is not None  # noqa: S101 (checked by callers)
        inner = thresholds(self.target.n_thresholds)
        bounds = self.target.scaled_bounds
        places = (np.concatenate([[-1.0], inner, [1.0]]) + 1) / 2
        edges = bounds.low[target] + places * (bounds.high[target] - bounds.low[target])
        return np.asarray(np.exp(edges) if self.target.scale == LOG else edges)


def _scaled(target: Numbers, averages: NoisyAverages) -> tuple[Floats, Floats]:
    """Return means and errors, (q, p), on the scale whose bounds are -1 and 1."""
    count = target.n_thresholds or 1
    averaged = averages.means.reshape(len(averages.means), len(target.bounds), count)
    means = averaged.mean(axis=2)
    # The numerators' noises are independent, the denominator's is theirs together.
    relative = (averages.weight_error / averages.weight)[:, None]
    own = averages.errors.reshape(averaged.shape) ** 2 - (averaged * relative[:, None]) ** 2
    errors = np.hypot(np.sqrt(np.maximum(own, 0).sum(axis=2)) / count, means * relative)
    scale = target.typical_scale
    return means * scale.half + scale.centre, errors * scale.half


def _in_units(target: Numbers, means: Floats, errors: Floats) -> tuple[Floats, Floats]:
    bounds = target.scaled_bounds
    half = (bounds.high - bounds.low) / 2
    values = bounds.low + half * (np.clip(means, -1, 1) + 1)
    if target.scale == LOG:
        values = np.exp(values)
        return values, values * half * errors
    return values, half * errors


def checked_levels(target: Numbers, quantiles: Sequence[float]) -> list[float]:
    """Return levels of quantiles, or raise InvalidInput if they are none, or not paid for."""
    if target.n_thresholds is None:
        raise InvalidInput(
            "The 'quantiles' parameter must be None without thresholds: records told their "
            "numbers, not on which side of a threshold they lie. Fit with 'n_thresholds'."
        )
    return [_checks.real("quantiles", each, least=0, most=1) for each in quantiles]
