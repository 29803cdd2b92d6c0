"""Number targets within declared bounds, averaged arithmetically or as logarithms.

Everywhere in this module: a record has p numbers. `sums`, float64 (q, 1 + p), are released noisy
sums of target vectors for q queries; `noise`, float64 (q,), is the standard deviation of the noise
on each coordinate of a sum. Both are in votes: a neighbour of kernel weight 1 adds its vector once.
*Transformed* numbers or bounds are the logarithms with ``scale="log"``, else unchanged. *Relative*
numbers are transformed ones mapped linearly so that the bounds are -1 and 1.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import compress
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from vicinal import checks
from vicinal.arrays import Floats
from vicinal.errors import InvalidInput, SmallDataWarning, warn_caller
from vicinal.mechanisms.subject_table import RecordVectors
from vicinal.parameters import (
    Check,
    Choice,
    Given,
    Unless,
    parameter,
    parameter_table,
    parse_number_or_text,
    split_list,
)
from vicinal.tabular import align_columns, read_column, read_numbers, refuse_nonfinite
from vicinal.targets._averages import WEIGHT_SHARE, compute_noisy_averages, split_unit_length
from vicinal.targets.target import NUMBERS, ExpectedError, VectorAnswers, VectorTarget

LINEAR = "linear"
LOG = "log"

NEIGHBORS_PER_NOISE_FOR_NUMBERS = 60
"""Planned number of neighbours per unit of noise multiplier and of the features' intrinsic
dimension: more than for votes, as the noise enters a mean directly. Measured in
docs/decisions/0073-vectors.md (R2 on log price)."""

_MIN_TYPICAL_NORM = 0.01
"""Smallest permitted norm of a typical target vector, of at most 1: the typical range must be at
least about a fiftieth of the bounds."""

_MIN_COMPARED_ANSWERS = 20
"""Smallest number of answers whose variance is compared with that of their noise."""

_MAX_NOISE_SHARE = 0.75
"""Share of the answers' variance from which on noise is said to dominate. In 17 settings of
synthetic targets with up to 20,000 records, shares of .78 and more went with R2 of -.54 to .05, and
shares of up to .69 with R2 of -.01 to .89."""

_TYPICAL_POSITION = 0.75
"""Position in the typical range, from 0 to 1, of the number whose expected error is reported."""


@dataclass(frozen=True, slots=True)
class TargetBounds:
    """Public lower and upper bounds of p targets.

    `names`: names of the targets; None for a single target without a name. `low`, `high`, float64
    (p,): bounds of each target.
    """

    names: tuple[str, ...] | None
    low: Floats
    high: Floats

    def __len__(self) -> int:
        """Return p, the number of targets."""
        return len(self.low)

    @property
    def json_value(self) -> Any:
        """The bounds in JSON types: a pair, or a mapping of names to pairs."""
        pairs = np.stack([self.low, self.high], axis=1).tolist()
        return pairs[0] if self.names is None else dict(zip(self.names, pairs, strict=True))


@dataclass(frozen=True, slots=True)
class BoundsOfTargets(Check):
    """The check of a parameter that is a pair (low, high), or a mapping of names to pairs."""

    type_name = "pair of float, or mapping"

    metavar: ClassVar[str] = "NAME=LOW..HIGH,..."
    option_type = "each target's column with its bounds"

    repeatable = True

    def parse_text(self, text: str) -> dict[str, tuple[float | str, ...]]:
        """Return the bounds by target name of a text such as ``age=0..110,weight=30..200``."""
        return self.parse_items(split_list(text))

    def parse_items(self, texts: Sequence[str]) -> dict[str, tuple[float | str, ...]]:
        """Return bounds by target name from `texts` such as ``age=0..110``; bad bounds stay str."""
        # A name may contain an equals sign, bounds cannot: the last one separates them.
        items = [text.rpartition("=") if "=" in text else (text, "", "") for text in texts]
        names = checks.check_distinct_names("bounds", [name.strip() for name, _, _ in items])
        pairs = [pair.split("..") for _, _, pair in items]
        bounds = [tuple(parse_number_or_text(bound, float) for bound in pair) for pair in pairs]
        return dict(zip(names, bounds, strict=True))

    def __call__(self, name: str, value: object) -> TargetBounds:
        """Return `value` of the parameter `name` as bounds; raise InvalidInput if unusable."""
        if not isinstance(value, Mapping):
            low, high = _check_low_high(name, value)
            return TargetBounds(None, np.array([low]), np.array([high]))
        if not value or not all(isinstance(target, str) and target for target in value):
            raise InvalidInput(f"The {name!r} parameter must map names of targets to pairs.")
        names = checks.check_distinct_names(name, value)
        pairs = np.array([_check_low_high(name, pair) for pair in value.values()])
        return TargetBounds(tuple(names), pairs[:, 0], pairs[:, 1])


def _check_low_high(name: str, value: object) -> tuple[float, float]:
    """Return the `value` of the parameter `name` as (low, high); raise InvalidInput if unusable.

    Both numbers must be finite, and low < high.
    """
    message = f"The {name!r} parameter must be a pair (low, high) of numbers with low < high."
    if isinstance(value, tuple) and any(isinstance(bound, str) for bound in value):
        # A tuple with strings comes from the command line: a bound that is not a number.
        raise InvalidInput(
            f"The {name!r} parameter must be written NAME=LOW..HIGH with numbers, as in age=0..110."
        )
    if isinstance(value, str) or not isinstance(value, Sequence) or len(value) != 2:
        raise InvalidInput(message)
    low, high = (checks.check_real(name, bound) for bound in value)
    if not low < high or not math.isfinite(high - low):
        raise InvalidInput(message)
    return low, high


@parameter_table
class NumbersParameters:
    """The parameters that declare number targets."""

    bounds: Given[Sequence[float] | Mapping[str, Sequence[float]], TargetBounds] = parameter(
        BoundsOfTargets(),
        kw_only=False,
        doc="""Public bounds (low, high) of the numbers. Never derive them from private numbers,
        which are clipped to them. For several targets, pass a mapping of names to such pairs; the
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
        for numbers in it, so a narrow range means less noise. Numbers beyond are not clipped, but
        their subjects pay more for an answer and take part in fewer. A wrong range costs accuracy,
        never privacy. For several targets pass a mapping, as for `bounds`. None: the bounds.""",
    )


class Numbers(NumbersParameters, VectorTarget):
    """Targets that are numbers, encoded as vectors of a weight and one value per number."""

    kind = NUMBERS
    description = "numbers"
    answer_prefixes = ("error_",)
    public_metadata = ("the names and bounds of the targets",)

    def complete_and_check(self) -> None:
        """Raise InvalidInput if bounds, typical range and scale contradict each other.

        The names of answer columns are checked, too; no value is completed.
        """
        super().complete_and_check()
        typical = self.typical_range
        bounds = self.bounds
        if typical is not None and (
            typical.names != bounds.names
            or (typical.low < bounds.low).any()
            or (typical.high > bounds.high).any()
        ):
            raise InvalidInput(
                "The 'typical_range' parameter must lie within the 'bounds' parameter, and name "
                "the same targets in the same order."
            )
        if self.scale == LOG and not (self.bounds.low > 0).all():
            raise InvalidInput("The 'bounds' parameter must be above 0 with scale='log'.")
        if self.typical_norm < _MIN_TYPICAL_NORM:
            raise InvalidInput(
                "The 'typical_range' parameter must be at least a fiftieth of the 'bounds' "
                "parameter. Give narrower bounds: numbers beyond are clipped to them."
            )

    @property
    def names(self) -> list[Any]:
        """The names of the targets; "number" for a single target without a name."""
        return list(self.bounds.names or ("number",))

    @property
    def declaration(self) -> Any:
        """The bounds in JSON types: a pair, or a mapping of names to pairs."""
        return self.bounds.json_value

    def encode(self, y: npt.ArrayLike | None, n_records: int) -> RecordVectors:
        """Return the target vectors of `n_records` records, (n, 1 + p); private.

        `y`: numbers, (n,) or (n, p). With z the p relative numbers of a record, its vector is
        (a, b (z - centre) / half_width / sqrt(p)), where the relative typical range of a number is
        centre - half_width to centre + half_width.
        """
        values = compute_relative_numbers(y, n_records, self.bounds, log=self.scale == LOG)
        centre, half_width = self._relative_typical_range
        a, b = self._vector_factors
        components = (values - centre) / half_width
        components = components * (b / math.sqrt(values.shape[1]))
        return RecordVectors.from_rows(np.column_stack([np.full(n_records, a), components]))

    @property
    def neighbors_per_noise(self) -> float:
        """Planned number of neighbours per unit of noise multiplier and intrinsic dimension."""
        return NEIGHBORS_PER_NOISE_FOR_NUMBERS / self.typical_norm

    @property
    def typical_norm(self) -> float:
        """Norm of a vector with all targets at ends of typical ranges; the largest norm is 1."""
        centre, half_width = self._relative_typical_range
        max_deviation = (1 + np.abs(centre)) / half_width
        square = WEIGHT_SHARE + (1 - WEIGHT_SHARE) * float(np.square(max_deviation).mean())
        return 1 / math.sqrt(square)

    @property
    def _vector_factors(self) -> tuple[float, float]:
        """Factors (a, b) of the constant first coordinate and of the numbers in a target vector."""
        a, b = split_unit_length(WEIGHT_SHARE)
        return self.typical_norm * a, self.typical_norm * b

    @cached_property
    def _relative_typical_range(self) -> tuple[Floats, Floats]:
        """Centres and half widths of the relative typical ranges, (p,) each.

        Without a declared range they are 0 and 1.
        """
        bounds = self.transformed_bounds
        if self.typical_range is None:
            return np.zeros(len(bounds)), np.ones(len(bounds))
        typical = self._transform_bounds(self.typical_range)
        half_bounds = (bounds.high - bounds.low) / 2
        centre = (typical.low + typical.high) / 2 - (bounds.low + bounds.high) / 2
        return centre / half_bounds, (typical.high - typical.low) / 2 / half_bounds

    @property
    def transformed_bounds(self) -> TargetBounds:
        """The bounds of the averaged numbers: transformed by ``scale``."""
        return self._transform_bounds(self.bounds)

    def _transform_bounds(self, bounds: TargetBounds) -> TargetBounds:
        """Return `bounds` unchanged, or their logarithms with ``scale="log"``."""
        if self.scale != LOG:
            return bounds
        return TargetBounds(bounds.names, np.log(bounds.low), np.log(bounds.high))

    @property
    def n_coordinates(self) -> int:
        """Number of coordinates of a target vector: the weight, and one for each number."""
        return 1 + len(self.bounds)

    def compute_answers(self, sums: Floats, noise: Floats) -> VectorAnswers:
        """Return predictions and standard errors, both (q, p), in the units of the targets."""
        a, b = self._vector_factors
        b /= math.sqrt(len(self.bounds))
        means, errors = compute_noisy_averages(sums, noise, a, b)
        centre, half_width = self._relative_typical_range
        bounds = self.transformed_bounds
        half_bounds = (bounds.high - bounds.low) / 2
        relative_means = np.clip(means * half_width + centre, -1, 1)
        values = bounds.low + half_bounds * (relative_means + 1)
        slopes = half_bounds  # derivatives of the values with respect to the relative means
        if self.scale == LOG:
            values = np.exp(values)
            slopes = values * half_bounds
        return VectorAnswers(values, slopes * (errors * half_width))  # delta method

    def compute_expected_errors(self, weight: float, noise_std: Floats) -> list[ExpectedError]:
        """Return the standard error that the noise causes in each number's typical answer.

        A typical answer is at `_TYPICAL_POSITION` (three quarters) of the typical range.
        `weight`: total kernel weight of the neighbours, in votes. `noise_std`, (1,): the `noise`.
        """
        typical = self._transform_bounds(self.typical_range or self.bounds)
        y = typical.low + _TYPICAL_POSITION * (typical.high - typical.low)
        y = np.exp(y) if self.scale == LOG else y
        sums = weight * self.encode(y if self.bounds.names is None else y[None], 1).to_dense()
        errors = self.compute_answers(sums, noise_std).errors[0]
        number_errors = zip(self.names, y.tolist(), errors.tolist(), strict=True)
        return [ExpectedError(name, value, error) for name, value, error in number_errors]

    def make_examples(self, n_records: int) -> Floats:
        """Return the lower bounds as the numbers of `n_records` records, in the form of `y`."""
        return np.tile(self.bounds.low, n_records if self.bounds.names is None else (n_records, 1))

    @property
    def weight_coordinate(self) -> float:
        """The first coordinate of every target vector: the factor a."""
        return self._vector_factors[0]

    @property
    def residual_norm(self) -> float:
        """Typical distance of a record's number coordinates from their mean: half the factor b."""
        # At the ends of the typical range the distance from its centre is b.
        return self._vector_factors[1] / 2

    @property
    def extremes(self) -> tuple[Any, Any]:
        """The upper and the lower bounds, each in the form of a row of `y`."""
        low, high = self.bounds.low.tolist(), self.bounds.high.tolist()
        return (high[0], low[0]) if self.bounds.names is None else (high, low)

    def describe(self) -> str:
        """Return a description of the numbers with their names and bounds, for messages."""
        bounds = zip(self.names, self.bounds.low, self.bounds.high, strict=True)
        return "the numbers " + ", ".join(f"{name} ({a:g} to {b:g})" for name, a, b in bounds)

    @property
    def parameters(self) -> dict[str, Any]:
        """The declaring parameters in JSON types; those with default values are left out."""
        typical = self.typical_range
        ranges = {} if typical is None else {"typical_range": typical.json_value}
        return {**super().parameters, **ranges}


def compute_relative_numbers(y: Any, n_records: int, bounds: TargetBounds, *, log: bool) -> Floats:
    """Return number targets mapped linearly so that the bounds are -1 and 1, float64 (n, p).

    They are private.

    `y`: numbers of `n_records` records, (n,) or (n, p), clipped to `bounds`; the columns of a table
    are matched with the names of the bounds. `log`: whether numbers and bounds are replaced by
    their logarithms first. Raises InvalidInput unless there is one finite number for each record
    and target; no value is quoted.
    """
    if y is None:
        raise InvalidInput(
            "The 'y' parameter must hold a number for each record: fit requires y to be passed, "
            "but the target y is None."
        )
    table = align_columns("y", y, bounds.names, "the 'bounds' parameter", read_numbers)
    refuse_nonfinite("y", table)
    if bounds.names is None and table.ndim == 2 and table.shape[1] == 1:
        table = np.asarray(read_column("y", table))
    shape = (n_records,) if len(bounds) == 1 else (n_records, len(bounds))
    if table.shape not in {shape, (n_records, len(bounds))}:
        described = "(n,)" if len(bounds) == 1 else f"(n, {len(bounds)})"
        raise InvalidInput(
            f"The 'y' parameter must hold numbers in shape {described}, a row for each record."
        )
    low, high = bounds.low, bounds.high
    values = np.clip(table.reshape(n_records, len(bounds)).astype(np.float64), low, high)
    if log:
        values, low, high = np.log(values), np.log(low), np.log(high)
    return np.clip((values - low) / (high - low) * 2 - 1, -1.0, 1.0)


def warn_of_noise(names: Sequence[str], means: Floats, errors: Floats) -> None:
    """Warn of targets, called `names`, for which most of the variance of answers is noise.

    `means`, `errors`, float64 (q, p): predictions for q queries, and their standard errors.
    """
    if len(means) < _MIN_COMPARED_ANSWERS:
        return
    # Not the mean: a few answers with almost no neighbours have enormous errors.
    noise_variances = np.square(np.median(errors, axis=0))
    is_noisy = noise_variances > _MAX_NOISE_SHARE * means.var(axis=0)
    if is_noisy.any():
        listed = checks.join_first([repr(name) for name in compress(names, is_noisy)])
        warn_caller(
            f"The answers for {listed} differ mostly by noise: a constant may be as accurate. Use "
            "fewer queries, a larger epsilon, more records, fewer features or a narrower "
            "typical range.",
            SmallDataWarning,
        )
