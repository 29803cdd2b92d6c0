"""The kinds of columns of a table schema: the features of every kind, and how cells are read.

Features are scaled so that two rows have distance one in a column, times its weight, if a number
differs by one standard deviation, or if a category or a truth value differs.

The *code* of a cell is a float64: the number, days since 1970, seconds, or the index of a declared
value; NaN for a missing or faulty cell. Everywhere in this module, `codes`, float64 (n,), are those
of n cells, and `column` is the Arrow column of these cells.
"""

import datetime as dt
import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
from scipy.special import ndtri

from vicinal.arrays import Bools, Floats
from vicinal.features import _table_times as times
from vicinal.features import table_columns as cells
from vicinal.features.table_columns import Codes, Fault, ParsedColumn

MAX_DEVIATIONS = 4.0
"""Largest distance of a number from the centre, in spreads. Numbers further away count as this far,
so that one absurd value does not dominate the distance over all other columns."""

OTHER = "(other)"
"""The text in feature names, and in sampled rows, for all undeclared values of a category."""

_UNIFORM_WIDTH = math.sqrt(12.0)
"""Width of an interval in standard deviations of the uniform distribution on it."""

_MAX_EXACT = 2.0**53  # from this magnitude on, not every integer is a float64

_ONE_HOT = math.sqrt(0.5)
"""Value of the one-hot features: two one-hot vectors of this length have distance one."""

_CIRCLE_NAMES = ("sin(time of day)", "cos(time of day)")


@dataclass(frozen=True)
class TableColumn(ABC):
    """A declared column.

    - `name`: the column's name in the table.
    - `weight`: factor of the column's features, 1 by default.
    - `missing`: whether values may be missing; then one more feature is nonzero for missing values.
    - `missing_share`: public share of rows without a value, for sampled rows.
    - `missing_values`, `schema_missing_values`: missing-value markers, such as "?" or -999, of the
      column, and of all columns of the schema.
    """

    kind: ClassVar[str]
    _missing_indicator: ClassVar[float] = 1.0
    """Value of the feature that indicates missing values."""

    name: str
    weight: float = 1.0
    missing: bool = True
    missing_share: float = 0.0
    missing_values: tuple[Any, ...] = ()
    schema_missing_values: tuple[Any, ...] = ()

    @abstractmethod
    def _parse(self, column: pa.ChunkedArray) -> ParsedColumn:
        """Return codes and faults of a column, without regard to missing-value markers.

        The caller has replaced them by nulls, or leaves out their codes afterwards.
        """

    @abstractmethod
    def _compute_value_features(self, codes: Codes) -> Floats:
        """Return unweighted features (n, w) of codes; NaN has those of the centre, or zeros."""

    @abstractmethod
    def sample_codes(self, uniforms: Floats) -> Codes:
        """Return codes of synthetic cells: the quantiles at `uniforms` (n,), in [0, 1)."""

    @abstractmethod
    def _format_cell(self, code: float) -> object:
        """Return a cell, a Python object, that would be parsed to `code`, which is not NaN."""

    def format_cells(self, codes: Codes) -> pa.Array:
        """Return an Arrow array of cells that would be parsed to these codes; null for NaN."""
        return pa.array(
            [None if math.isnan(code) else self._format_cell(code) for code in codes.tolist()]
        )

    def parse_cells(self, column: pa.ChunkedArray) -> ParsedColumn:
        """Return codes and faults of a column; missing values are faults if not allowed."""
        parsed = self._parse_cells_without_markers(column)
        return parsed if self.missing else parsed.mark_missing()

    def _parse_cells_without_markers(self, column: pa.ChunkedArray) -> ParsedColumn:
        """Return codes and faults of a column, with NaN for missing-value markers."""
        if self._normalized_markers:
            column = cells.replace_by_null(column, self._normalized_markers)
        return self._parse(column)

    @cached_property
    def _normalized_markers(self) -> frozenset[str]:
        """All missing-value markers of the column and the schema, normalized."""
        return frozenset(
            map(cells.normalize_value, (*self.missing_values, *self.schema_missing_values))
        )

    def find_out_of_bounds(self, codes: Codes) -> Bools:
        """Return whether each code is outside the declared bounds, bool (n,)."""
        return np.zeros(len(codes), dtype=np.bool_)

    def compute_features(self, codes: Codes) -> Floats:
        """Return the weighted features (n, d); the last one may indicate missing values."""
        features = self._compute_value_features(codes)
        if self.missing:
            features = np.column_stack([features, np.isnan(codes) * self._missing_indicator])
        return self.weight * features

    @property
    def declared_values(self) -> list[str] | None:
        """All values that a cell may have, as texts; None for kinds without a list of values."""
        return None

    @property
    def value_names(self) -> tuple[str, ...]:
        """Suffix of the name of each feature of values, (w,); "" is a name without suffix."""
        return ("",)

    @property
    def feature_names(self) -> tuple[str, ...]:
        """Names of all features of the column (d,)."""
        names = tuple(f"{self.name}={value}" if value else self.name for value in self.value_names)
        return (*names, f"{self.name} is missing") if self.missing else names


@dataclass(frozen=True)
class NumberColumn(TableColumn):
    """A number, clipped to its bounds, perhaps replaced by its logarithm, and standardised.

    - `low`, `high`: bounds; None if open.
    - `center`, `spread`: public location and scale, after the logarithm if there is one; None:
      mean and standard deviation of the uniform distribution between the bounds.
    - `log`: whether log(x) is standardised, or log(1 + x) if `low` is 0.
    - `limits`: whether a censored cell such as <0.5 is read as 0.5.
    """

    kind: ClassVar[str] = "number"

    low: float | None = None
    high: float | None = None
    center: float | None = None
    spread: float | None = None
    log: bool = False
    limits: bool = False

    def _parse(self, column: pa.ChunkedArray) -> ParsedColumn:
        """Return the numbers of a column."""
        return cells.parse_numbers(column, accept_censored=self.limits)

    def _parse_cells_without_markers(self, column: pa.ChunkedArray) -> ParsedColumn:
        """Return codes and faults of a column, with NaN for markers and cells of equal code.

        For example, 1e3 is missing if 1000 is a marker.
        """
        # In columns of numbers it is faster to compare codes only.
        if self.kind in ("number", "whole") and not cells.is_text(column):
            parsed = self._parse(column)
        else:
            parsed = super()._parse_cells_without_markers(column)
        return parsed.exclude_codes(self._missing_codes) if self._missing_codes.size else parsed

    @cached_property
    def _missing_codes(self) -> Codes:
        """Codes of the missing-value markers that are numbers, dates or times themselves."""
        if not self._normalized_markers:
            return np.empty(0)
        return self._parse(pa.chunked_array([sorted(self._normalized_markers)])).present_codes

    def find_out_of_bounds(self, codes: Codes) -> Bools:
        """Return whether each code is below `low` or above `high`, bool (n,)."""
        low, high = self._bounds
        return (codes < low) | (codes > high)

    def _compute_value_features(self, codes: Codes) -> Floats:
        """Return the standardised numbers (n, 1), clipped to four spreads; 0 for NaN."""
        center, spread = self.scale
        numbers = self._clip_to_bounds(codes)
        if self.log:
            numbers = cells.apply_to_distinct(self._apply_log, numbers)
        scaled = (numbers - center) / spread
        return np.nan_to_num(np.clip(scaled, -MAX_DEVIATIONS, MAX_DEVIATIONS))[:, None]

    @property
    def scale(self) -> tuple[float, float]:
        """Centre and spread of the numbers, or of their logarithms if the column declares `log`."""
        if self.center is not None and self.spread is not None:
            return self.center, self.spread
        low, high = self._transformed_bounds
        return (low + high) / 2, (high - low) / _UNIFORM_WIDTH

    @property
    def _transformed_bounds(self) -> tuple[float, float]:
        """Lowest and highest number that is standardised, or its logarithm if `log` is declared.

        They are at most four spreads from a declared centre. Without one, an open bound is NaN.
        """
        low = math.nan if self.low is None else self._apply_log(self.low)
        high = math.nan if self.high is None else self._apply_log(self.high)
        if self.center is not None and self.spread is not None:
            max_distance = MAX_DEVIATIONS * self.spread
            lowest = self.center - max_distance
            highest = self.center + max_distance
            low = lowest if math.isnan(low) else max(low, lowest)
            high = highest if math.isnan(high) else min(high, highest)
        return low, high

    @property
    def _bounds(self) -> tuple[float, float]:
        """The bounds `low` and `high`; infinite if open."""
        low = -math.inf if self.low is None else self.low
        return low, math.inf if self.high is None else self.high

    def _clip_to_bounds(self, codes: Codes) -> Codes:
        """Return codes, with the nearest bound in place of codes outside the bounds."""
        return np.clip(codes, *self._bounds)

    def _apply_log(self, number: float) -> float:
        """Return log(number), or log(1 + number) if `low` is 0; the number without `log`."""
        if not self.log:
            return number
        return math.log(number) if self.low else math.log1p(number)

    def _round_to_codes(self, numbers: Floats) -> Codes:
        """Return the code nearest to each number (n,) that a cell can have, inside the bounds."""
        return self._clip_to_bounds(numbers)

    def _format_cell(self, code: float) -> object:
        """Return the number, which is its own code."""
        return code

    def sample_codes(self, uniforms: Floats) -> Codes:
        """Return codes of synthetic cells, clipped to the bounds, given `uniforms` (n,) in [0, 1).

        They are normal with declared centre and spread, otherwise uniform.
        """
        low, high = self._transformed_bounds
        if self.center is not None and self.spread is not None:
            inner = np.clip(uniforms, 1e-6, 1 - 1e-6)  # quantiles of 0 and 1 are infinite
            transformed = self.center + self.spread * ndtri(inner)
        else:
            transformed = low + (high - low) * uniforms
        transformed = np.clip(transformed, min(low, high), max(low, high))
        if not self.log:
            return self._round_to_codes(transformed)
        return self._round_to_codes(np.exp(transformed) if self.low else np.expm1(transformed))


@dataclass(frozen=True)
class WholeColumn(NumberColumn):
    """A number without decimals."""

    kind: ClassVar[str] = "whole"

    def _parse(self, column: pa.ChunkedArray) -> ParsedColumn:
        """Return the numbers of a column; numbers with decimals are faults."""
        parsed = super()._parse(column)
        with np.errstate(invalid="ignore"):
            return parsed.mark_faults(parsed.codes % 1 == 0, Fault.NOT_WHOLE)

    def _format_cell(self, code: float) -> object:
        """Return the number as an int; as a float from 2^53 on."""
        return int(code) if abs(code) < _MAX_EXACT else code

    def _round_to_codes(self, numbers: Floats) -> Codes:
        """Return numbers (n,) rounded to integers, inside the bounds."""
        return self._clip_to_bounds(np.rint(numbers))


@dataclass(frozen=True)
class DateColumn(NumberColumn):
    """A date in days since 1970, perhaps with the time of day.

    - `form`: the strptime format of texts, besides 2026-01-31.
    - `time`: whether the time of day counts, as the fraction of the day and as a point on a circle.
    - `zone`: the time zone of days and times of day.
    """

    kind: ClassVar[str] = "date"

    form: str | None = None
    time: bool = False
    zone: str | None = None

    def _parse(self, column: pa.ChunkedArray) -> ParsedColumn:
        """Return the dates of a column in days since 1970; with `time`, with fractions of days."""
        return cells.parse_days(column, self.form, self.zone, with_time=self.time)

    def _format_cell(self, code: float) -> object:
        """Return the date of a code; with `time` the date and time of day, in whole seconds."""
        date = dt.date.fromisoformat(cells.format_day(math.floor(code)))
        if not self.time:
            return date
        return dt.datetime.combine(date, _round_to_clock_time(code % 1 * times.SECONDS_PER_DAY))

    def _round_to_codes(self, numbers: Floats) -> Codes:
        """Return numbers (n,) rounded to days, or with `time` to seconds, inside the bounds."""
        if self.time:
            second = 1 / times.SECONDS_PER_DAY
            return self._clip_to_bounds(np.rint(numbers / second) * second)
        return self._clip_to_bounds(np.rint(numbers))

    def _compute_value_features(self, codes: Codes) -> Floats:
        """Return the standardised dates (n, 1), clipped to four spreads; 0 for NaN.

        With `time` (n, 3): the last two are the time of day as a point on a circle.
        """
        features = super()._compute_value_features(codes)
        if not self.time:
            return features
        return np.column_stack([features, _map_to_circle(codes % 1)])

    @property
    def value_names(self) -> tuple[str, ...]:
        """Suffixes of the names of features: an empty one, then those of the time of day."""
        return ("", *_CIRCLE_NAMES) if self.time else ("",)


@dataclass(frozen=True)
class TimeColumn(NumberColumn):
    """A time of day, in seconds since midnight.

    `cyclic`: whether times are points on a circle, so that 23:59 is close to 00:01; otherwise they
    are numbers with a uniform distribution over the day.
    """

    kind: ClassVar[str] = "time"

    low: float | None = 0.0
    high: float | None = float(times.SECONDS_PER_DAY)
    cyclic: bool = True

    def _parse(self, column: pa.ChunkedArray) -> ParsedColumn:
        """Return the times of day of a column in seconds since midnight."""
        return cells.parse_times_of_day(column)

    def _format_cell(self, code: float) -> object:
        """Return the time of day of a code, in whole seconds."""
        return _round_to_clock_time(code)

    def _round_to_codes(self, numbers: Floats) -> Codes:
        """Return seconds since midnight (n,) rounded to whole seconds, before the next midnight."""
        return np.minimum(np.rint(numbers), times.SECONDS_PER_DAY - 1.0)

    def _compute_value_features(self, codes: Codes) -> Floats:
        """Return times of day as points on a circle (n, 2), or standardised (n, 1); 0 for NaN."""
        if not self.cyclic:
            return super()._compute_value_features(codes)
        return _map_to_circle(codes / times.SECONDS_PER_DAY)

    @property
    def value_names(self) -> tuple[str, ...]:
        """Suffixes of the names of the two coordinates; an empty one if not `cyclic`."""
        return _CIRCLE_NAMES if self.cyclic else ("",)


def _map_to_circle(fractions: Floats) -> Floats:
    """Return points (n, 2) on the unit circle for fractions of a day (n,); zeros for NaN.

    The mean squared distance of two random times is 2, as for a standardised number.
    """
    sines = cells.apply_to_distinct(lambda turns: math.sin(2 * math.pi * turns), fractions)
    cosines = cells.apply_to_distinct(lambda turns: math.cos(2 * math.pi * turns), fractions)
    return np.nan_to_num(np.column_stack([sines, cosines]))


def _round_to_clock_time(seconds: float) -> dt.time:
    """Return the time of day from seconds since midnight, rounded to whole seconds."""
    minutes, second = divmod(min(round(seconds), times.SECONDS_PER_DAY - 1), 60)
    hour, minute = divmod(minutes, 60)
    return dt.time(hour, minute, second)


@dataclass(frozen=True)
class DurationColumn(NumberColumn):
    """A duration, in seconds."""

    kind: ClassVar[str] = "duration"

    def _parse(self, column: pa.ChunkedArray) -> ParsedColumn:
        """Return the durations of a column in seconds."""
        return cells.parse_durations(column)

    def _format_cell(self, code: float) -> object:
        """Return a duration in whole seconds as a text of ISO 8601, such as PT330S."""
        sign = "-" if code < 0 else ""
        return f"{sign}PT{abs(int(code))}S"

    def _round_to_codes(self, numbers: Floats) -> Codes:
        """Return durations (n,) inside the bounds, in whole seconds, rounded toward 0."""
        return np.trunc(self._clip_to_bounds(numbers))


@dataclass(frozen=True)
class DeclaredColumn(TableColumn):
    """A column of declared values, with the index of the value as code.

    - `values`: all declared values.
    - `shares`: public relative frequencies of the values, and of "other" for a category that has
      it; empty: all are equally frequent.
    """

    values: tuple[Any, ...] = ()
    shares: tuple[float, ...] = ()

    @property
    def n_values(self) -> int:
        """Number of values, with "other" if the column has it."""
        return len(self.values)

    @property
    def declared_values(self) -> list[str]:
        """All declared values as texts, then :data:`OTHER` if the column has it and texts."""
        texts = list(map(cells.plain_text, self.values))
        if self.n_values > len(self.values) and not cells.are_numbers(self.values):
            texts.append(OTHER)
        return texts

    @cached_property
    def _normalized_markers(self) -> frozenset[str]:
        """All missing-value markers that the column does not declare as values, normalized."""
        return super()._normalized_markers - frozenset(map(cells.normalize_value, self.values))

    def _parse(self, column: pa.ChunkedArray) -> ParsedColumn:
        """Return the index of every cell in `values` as its code; ``len(values)`` is "other"."""
        other_code = float(len(self.values)) if self.n_values > len(self.values) else None
        return cells.parse_declared_values(column, self.values, other_code)

    def _format_cell(self, code: float) -> object:
        """Return the declared value, a float or str; for the code of "other" another value."""
        has_numbers = cells.are_numbers(self.values)
        if int(code) < len(self.values):
            value = self.values[int(code)]
            return float(value) if has_numbers else str(value)
        return max(self.values) + 1.0 if has_numbers else OTHER

    def sample_codes(self, uniforms: Floats) -> Codes:
        """Return codes of synthetic cells, given `uniforms` (n,), with the shares of the values."""
        shares = np.asarray(self.shares or np.ones(self.n_values), dtype=np.float64)
        cumulative = np.cumsum(shares) / shares.sum()
        codes = np.searchsorted(cumulative, uniforms, side="right")
        return np.minimum(codes, self.n_values - 1.0)


@dataclass(frozen=True)
class LevelsColumn(DeclaredColumn):
    """Ordered levels, as equidistant numbers of standard deviation one."""

    kind: ClassVar[str] = "levels"

    def _compute_value_features(self, codes: Codes) -> Floats:
        """Return the standardised indices of levels (n, 1) ; 0 for missing values."""
        k = len(self.values)
        return np.nan_to_num((codes - (k - 1) / 2) / math.sqrt((k * k - 1) / 12))[:, None]


@dataclass(frozen=True)
class CategoryColumn(DeclaredColumn):
    """A category, one-hot.

    `other`: whether all undeclared values are one more value, "other"; otherwise they are faults.
    """

    kind: ClassVar[str] = "category"
    _missing_indicator: ClassVar[float] = _ONE_HOT

    other: bool = True

    @property
    def n_values(self) -> int:
        """Number of values, with "other" if the column has it."""
        return len(self.values) + self.other

    def _compute_value_features(self, codes: Codes) -> Floats:
        """Return one-hot features (n, `n_values`) of codes; zeros for missing values."""
        return np.asarray((codes[:, None] == np.arange(self.n_values)) * _ONE_HOT)

    @property
    def value_names(self) -> tuple[str, ...]:
        """All declared values as texts, then :data:`OTHER` if the column has it."""
        texts = tuple(map(cells.plain_text, self.values))
        return (*texts, OTHER) if self.other else texts


@dataclass(frozen=True)
class YesNoColumn(DeclaredColumn):
    """Yes (code 1) or no (code 0)."""

    kind: ClassVar[str] = "yes_no"

    values: tuple[Any, ...] = ("no", "yes")

    def _parse(self, column: pa.ChunkedArray) -> ParsedColumn:
        """Return the truth values of a column: 1 for yes, 0 for no."""
        return cells.parse_truth_values(column)

    def _format_cell(self, code: float) -> object:
        """Return the truth value of a code, a bool."""
        return bool(code)

    def _compute_value_features(self, codes: Codes) -> Floats:
        """Return 1/2 for yes, -1/2 for no and 0 for missing values, (n, 1)."""
        return np.nan_to_num(codes - 0.5)[:, None]
