"""What every column of a table schema does, and the kinds that hold numbers and dates.

Two rows that differ by one standard deviation of a number, by a category, or by yes and no, are
one apart in that column, times its weight. Everything here works row by row.
"""

import datetime as dt
import math
import re
import unicodedata
from abc import ABC, abstractmethod
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from scipy.special import ndtri

from vicinal import _checks
from vicinal._arrays import Bools, Floats

# ---------------------------------------------------------------- cells to codes

Codes = Floats
Faults = npt.NDArray[np.uint8]

MISSING_WORDS = frozenset({"", "NA", "N/A", "NaN", "nan", "null", "NULL", "None"})
"""How files write that a value is missing, unless the schema declares the word as a value."""

OK, NUMBER, FINITE, WHOLE, DECLARED, YES_NO, DATE, TYPE, MISSING, ID, CLASS = range(11)
"""Kinds of fault; 0 is none."""

WORDS = {
    NUMBER: "values that are not numbers",
    FINITE: "numbers that are not finite",
    WHOLE: "numbers that are not whole",
    DECLARED: "values that the schema does not declare",
    YES_NO: "values that are neither yes nor no",
    DATE: "values that are not dates",
    TYPE: "values of another type than the schema declares",
    MISSING: "missing values, which are not allowed there",
    ID: "values that cannot be ids",
    CLASS: "labels outside the classes",
}
FIXES = {
    NUMBER: (
        'Write plain decimal numbers, declare "limits": true for cells such as <0.5, or declare a '
        "category"
    ),
    FINITE: "Leave a cell empty if its number is unknown",
    WHOLE: "Round them, or declare the kind 'number'",
    DECLARED: 'Add these values to the schema, or give a category "other": true',
    YES_NO: "Write yes and no, true and false, or 1 and 0, or declare a category",
    DATE: 'Write dates as 2026-01-31, or declare their format, as in "form": "%d.%m.%Y"',
    TYPE: "Convert the column, or declare its kind",
    MISSING: 'Fill them in, drop these rows, or declare "missing": true for a feature',
    ID: "Write whole numbers, or text without blanks around it",
    CLASS: "Declare every class, or drop these rows",
}

_EPOCH = dt.date(1970, 1, 1).toordinal()
_PLAIN = re.compile(r"-?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_ISO = re.compile(r"(\d{4}-\d{2}-\d{2})([T ][0-9:.,+Z -]*)?", re.ASCII)
_TIME = re.compile(r"[T ]\d{1,2}:[0-9:.,+Z -]*$", re.ASCII)
_LIMIT = re.compile(r"[<>≤≥]=?\s*(?=[-.\d])")
_YES, _NO = frozenset({"yes", "y", "true", "t", "1"}), frozenset({"no", "n", "false", "f", "0"})


@dataclass(frozen=True)
class Reading:
    """A column as it was read.

    `codes`, float64 (n,): NaN where the value is missing or at fault. `faults`, uint8 (n,): the
    kind of fault of every row; 0 for none.
    """

    codes: Codes
    faults: Faults

    def refusing_missing(self) -> Self:
        """Return the same with every missing value at fault."""
        lacking = np.isnan(self.codes) & (self.faults == OK)
        return type(self)(self.codes, np.where(lacking, np.uint8(MISSING), self.faults))

    def checked(self, right: Bools, fault: int) -> Self:
        """Return the same with codes that are not `right` at fault; missing ones are right."""
        wrong = ~(right | np.isnan(self.codes))
        faults = np.where(wrong, np.uint8(fault), self.faults)
        return type(self)(np.where(wrong, np.nan, self.codes), faults)


def numbers(column: pa.ChunkedArray, *, limits: bool = False) -> Reading:
    """Return the numbers of a column; text is read as decimal numbers with a point.

    `limits`: whether <0.5 is read as 0.5, its limit.
    """
    kind = column.type
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        values = column.cast(pa.float64(), safe=False).to_numpy().astype(np.float64)
        return Reading(values, np.zeros(len(values), np.uint8)).checked(np.isfinite(values), FINITE)
    return _by_value(column, partial(_number, limits=limits), _TEXTS)


def days(column: pa.ChunkedArray, form: str | None = None) -> Reading:
    """Return dates as days since 1970; of a time, its day (in UTC where it has a zone).

    `form`: how texts are written, such as "%d.%m.%Y"; 2026-01-31 is always a date.
    """
    if pa.types.is_timestamp(column.type) or pa.types.is_date(column.type):
        timestamps = column.cast(pa.timestamp("s", getattr(column.type, "tz", None)), safe=False)
        seconds = timestamps.cast(pa.int64()).cast(pa.float64(), safe=False).to_numpy()
        return Reading(np.floor(seconds / 86400.0), np.zeros(len(seconds), np.uint8))
    return _by_value(column, partial(_day, form=form), _TEXTS)


def truths(column: pa.ChunkedArray) -> Reading:
    """Return 1 for yes and 0 for no."""
    return _by_value(column, _truth)


def places(column: pa.ChunkedArray, place_of: dict[str, float], other: float | None) -> Reading:
    """Return the code of every declared text; `other` for all else, or a fault without it."""

    def place(value: Any) -> float | int:
        text = plain_text(value)
        if is_missing(text, place_of):
            return math.nan
        position = place_of.get(text, other)
        return DECLARED if position is None else position

    return _by_value(column, place)


def places_of_numbers(
    column: pa.ChunkedArray, place_of: dict[float, float], other: float | None
) -> Reading:
    """Return the same where the declared values are numbers."""
    read = numbers(column)

    def place(value: float) -> float:
        position = place_of.get(value, other)
        return math.inf if position is None else position

    codes = each(place, read.codes)
    return Reading(codes, read.faults).checked(np.isfinite(codes), DECLARED)


def each(function: Callable[[float], float], values: Codes) -> Codes:
    """Return a function of every number, made once for each different one; NaN stays NaN.

    A vectorised loop may round the last numbers of an array otherwise than the first; here equal
    numbers have equal results wherever they stand.
    """
    distinct, where = np.unique(values, return_inverse=True)
    results = [value if math.isnan(value) else function(value) for value in distinct.tolist()]
    return np.asarray(results, dtype=np.float64)[where.reshape(values.shape)]


def plain_text(value: Any) -> str:
    """Return how a value is compared with declared ones: trimmed, NFC, whole numbers plainly."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return unicodedata.normalize("NFC", str(value).strip())


def is_missing(text: str, declared: Container[str] = ()) -> bool:
    """Tell whether a trimmed text says that nothing stands there."""
    return text == "" or (text in MISSING_WORDS and text not in declared)


def day_number(text: str) -> float:
    """Return the days since 1970 of a date written 2026-01-31; raises ValueError for others."""
    return float(dt.date.fromisoformat(text).toordinal() - _EPOCH)


def date_of(day: float) -> str:
    """Return a date as text; the inverse of :func:`day_number`, within the years 1 to 9999."""
    ordinal = min(max(int(day) + _EPOCH, dt.date.min.toordinal()), dt.date.max.toordinal())
    return dt.date.fromordinal(ordinal).isoformat()


def labels(column: pa.ChunkedArray, classes: Sequence[Any] | None) -> Reading:
    """Return 0 for every label; with `classes`, one that is none of them is at fault."""
    known = None if classes is None else _checks.class_positions(classes)

    def is_label(value: Any) -> float | int:
        text = plain_text(value)
        if is_missing(text, known or ()):
            return math.nan
        return 0.0 if known is None or text in known or _checks.label_name(text) in known else CLASS

    return _by_value(column, is_label).refusing_missing()


def ids(column: pa.ChunkedArray) -> Reading:
    """Return 0 for every id; texts that say that nothing stands there are missing."""

    def is_id(value: Any) -> float | int:
        if plain_text(value) in MISSING_WORDS:
            return math.nan
        return 0.0 if isinstance(value, bool) or _checks.id_fault(value) is None else ID

    return _by_value(column, is_id)


def _number(value: str, *, limits: bool) -> float | int:
    text = _LIMIT.sub("", value.strip(), count=1) if limits else value.strip()
    if is_missing(text):
        return math.nan
    if not _PLAIN.fullmatch(text):
        return NUMBER
    number = float(text)
    return number if math.isfinite(number) else FINITE


def _day(value: str, form: str | None) -> float | int:
    text = value.strip()
    if is_missing(text):
        return math.nan
    match = _ISO.fullmatch(text)
    try:
        if match is None and form is not None:
            date = dt.datetime.strptime(_TIME.sub("", text), form)  # noqa: DTZ007 (a day)
            return float(date.toordinal() - _EPOCH)
        return day_number(match[1]) if match else DATE
    except ValueError:
        return DATE


def _truth(value: Any) -> float | int:
    text = plain_text(value).lower()
    if is_missing(plain_text(value)):
        return math.nan
    return 1.0 if text in _YES else 0.0 if text in _NO else YES_NO


_TEXTS = (pa.types.is_string, pa.types.is_large_string)
_VALUES = (*_TEXTS, pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean)


def _by_value(
    column: pa.ChunkedArray, code: Callable[[Any], float | int], kinds: Sequence[Any] = _VALUES
) -> Reading:
    """Return codes made of every different value once: a float is a code, an int is a fault.

    In a column of none of these kinds every value that stands there is at fault.
    """
    if not any(is_kind(column.type) for is_kind in kinds):
        faults = np.where(column.is_valid(), np.uint8(TYPE), np.uint8(OK))
        return Reading(np.full(len(column), np.nan), faults)
    encoded = pa.chunked_array([column.combine_chunks()]).dictionary_encode().chunk(0)
    codes_or_faults = [code(value) for value in encoded.dictionary.to_pylist()]
    where = encoded.indices.fill_null(len(codes_or_faults)).to_numpy(zero_copy_only=False)
    codes = np.array(
        [*(m if isinstance(m, float) else math.nan for m in codes_or_faults), math.nan]
    )
    faults = np.array(
        [*(0 if isinstance(m, float) else m for m in codes_or_faults), 0], dtype=np.uint8
    )
    return Reading(codes[where], faults[where])


MOST_DEVIATIONS = 4.0
"""Numbers further than this from the centre, in spreads, count as this far: a value that is
absurd must not drown all other columns."""

_UNIFORM = math.sqrt(12.0)
"""An interval in standard deviations of a number that is uniform on it."""

_EXACT = 2.0**53


@dataclass(frozen=True)
class TableColumn(ABC):
    """One declared column.

    - `name`: as in the table.
    - `weight`: how much the column counts, 1 as a rule.
    - `missing`: whether values may be missing; then the column has a feature that says so.
    - `missing_share`: share of rows without a value, as far as the public knows; for made-up rows.
    """

    kind: ClassVar[str]

    name: str
    weight: float = 1.0
    missing: bool = True
    missing_share: float = 0.0

    @abstractmethod
    def _read(self, column: pa.ChunkedArray) -> Reading:
        """Return codes and faults of a column without dictionaries."""

    @abstractmethod
    def _encode(self, codes: Codes) -> Floats:
        """Return features (n, w) before weighting; NaN codes are those of missing values."""

    @property
    @abstractmethod
    def value_names(self) -> tuple[str, ...]:
        """Names of the features of values, w of them."""

    @abstractmethod
    def made_up(self, uniform: Floats) -> Codes:
        """Return codes as the declaration lets expect them, from uniform numbers."""

    @abstractmethod
    def _value(self, code: float) -> object:
        """Return a cell that reads as this code."""

    def cells(self, codes: Codes) -> pa.Array:
        """Return cells that read as these codes, an Arrow array with nulls where these are NaN."""
        listed = [None if math.isnan(code) else self._value(code) for code in codes.tolist()]
        return pa.array(listed)

    def read(self, column: pa.ChunkedArray) -> Reading:
        """Return codes and faults of a column of a table."""
        reading = self._read(column)
        return reading if self.missing else reading.refusing_missing()

    def clipped(self, codes: Codes) -> Bools:
        """Tell which codes lie outside the declared bounds."""
        return np.zeros(len(codes), dtype=np.bool_)

    def encode(self, codes: Codes) -> Floats:
        """Return features (n, w): those of the value, then whether it is missing."""
        features = self._encode(codes)
        if self.missing:
            features = np.column_stack([features, np.isnan(codes) * self._indicator])
        return self.weight * features

    @property
    def declared_values(self) -> list[str] | None:
        """What may stand in a cell, as text; None where there are too many values to list."""
        return None

    @property
    def _indicator(self) -> float:
        return 1.0

    @property
    def feature_names(self) -> tuple[str, ...]:
        """Names of all features of the column."""
        values = tuple(f"{self.name}{f'={value}' if value else ''}" for value in self.value_names)
        return (*values, f"{self.name} is missing") if self.missing else values


@dataclass(frozen=True)
class NumberColumn(TableColumn):
    """A number: clipped to its bounds, perhaps its logarithm, then centred and divided.

    `low`, `high`: declared bounds. `center`, `spread`: of the public, after the logarithm if there
    is one; None: of a number that is uniform between the bounds. `log`: whether distances are those
    of log(x) (of log(1 + x) where `low` is 0). `limits`: whether <0.5 counts as 0.5.
    """

    kind: ClassVar[str] = "number"

    low: float | None = None
    high: float | None = None
    center: float | None = None
    spread: float | None = None
    log: bool = False
    limits: bool = False

    def _read(self, column: pa.ChunkedArray) -> Reading:
        return numbers(column, limits=self.limits)

    def clipped(self, codes: Codes) -> Bools:
        low = -math.inf if self.low is None else self.low
        high = math.inf if self.high is None else self.high
        return (codes < low) | (codes > high)

    def _encode(self, codes: Codes) -> Floats:
        center, spread = self.scale
        scaled = (self._moved(self._bounded(codes)) - center) / spread
        return np.nan_to_num(np.clip(scaled, -MOST_DEVIATIONS, MOST_DEVIATIONS))[:, None]

    @property
    def scale(self) -> tuple[float, float]:
        """Centre and spread, after the logarithm if there is one."""
        if self.center is not None and self.spread is not None:
            return self.center, self.spread
        low, high = self._ends
        return (low + high) / 2, (high - low) / _UNIFORM

    @property
    def _ends(self) -> tuple[float, float]:
        """Return the bounds, after the logarithm; those that are open are closed by the spread."""
        low = high = math.nan
        if self.low is not None:
            low = self._one_moved(self.low)
        if self.high is not None:
            high = self._one_moved(self.high)
        if self.center is not None and self.spread is not None:
            reach = MOST_DEVIATIONS * self.spread
            low = self.center - reach if math.isnan(low) else max(low, self.center - reach)
            high = self.center + reach if math.isnan(high) else min(high, self.center + reach)
        return low, high

    def _bounded(self, codes: Codes) -> Codes:
        if self.low is None and self.high is None:
            return codes
        return np.clip(codes, self.low, self.high)

    def _one_moved(self, value: float) -> float:
        if not self.log:
            return value
        return math.log(value) if self.low else math.log1p(value)

    def _moved(self, codes: Codes) -> Codes:
        return each(self._one_moved, codes) if self.log else codes

    def _back(self, moved: Floats) -> Codes:
        """Return numbers from what stands after the logarithm."""
        low, high = self._ends
        inside = np.clip(moved, min(low, high), max(low, high))
        if not self.log:
            return self._rounded(inside)
        return self._rounded(np.exp(inside) if self.low else np.expm1(inside))

    def _rounded(self, values: Floats) -> Codes:
        return self._bounded(values)

    def _value(self, code: float) -> object:
        return code

    value_names = ("",)

    def made_up(self, uniform: Floats) -> Codes:
        low, high = self._ends
        if self.center is not None and self.spread is not None:
            inner = np.clip(uniform, 1e-6, 1 - 1e-6)
            return self._back(self.center + self.spread * ndtri(inner))
        return self._back(low + (high - low) * uniform)


@dataclass(frozen=True)
class WholeColumn(NumberColumn):
    """A number without decimals."""

    kind: ClassVar[str] = "whole"

    def _read(self, column: pa.ChunkedArray) -> Reading:
        reading = super()._read(column)
        with np.errstate(invalid="ignore"):
            return reading.checked(reading.codes % 1 == 0, WHOLE)

    def _value(self, code: float) -> object:
        return int(code) if abs(code) < _EXACT else code

    def _rounded(self, values: Floats) -> Codes:
        return self._bounded(np.rint(values))


@dataclass(frozen=True)
class DateColumn(NumberColumn):
    """A date, as days since 1970; `form`: how texts are written, besides 2026-01-31."""

    kind: ClassVar[str] = "date"

    form: str | None = None

    def _read(self, column: pa.ChunkedArray) -> Reading:
        return days(column, self.form)

    def _value(self, code: float) -> object:
        return dt.date.fromisoformat(date_of(code))

    def _rounded(self, values: Floats) -> Codes:
        return self._bounded(np.rint(values))


# ---------------------------------------------------------------- values declared one by one

OTHER = "(other)"
"""What made-up rows have where a value is none of the declared ones."""

_CATEGORY = math.sqrt(0.5)
"""Two one-hot vectors of this length are one apart."""


@dataclass(frozen=True)
class _DeclaredColumn(TableColumn):
    """A column of declared values.

    `values`: all declared values. `shares`: how often each is met, as far as the public knows; all
    alike without it. A category with "other" has a share more.
    """

    values: tuple[Any, ...] = ()
    shares: tuple[float, ...] = ()

    _other: ClassVar[bool] = False

    @property
    def declared_values(self) -> list[str]:
        others = self.n_values > len(self.values) and not all_numbers(self.values)
        return [*map(plain_text, self.values), *((OTHER,) if others else ())]

    @property
    def n_values(self) -> int:
        """How many values there are, "other" included."""
        return len(self.values)

    def _read(self, column: pa.ChunkedArray) -> Reading:
        other = float(len(self.values)) if self.n_values > len(self.values) else None
        if all_numbers(self.values):
            place_of = {float(value): float(place) for place, value in enumerate(self.values)}
            return places_of_numbers(column, place_of, other)
        named = {plain_text(value): float(i) for i, value in enumerate(self.values)}
        return places(column, named, other)

    def _value(self, code: float) -> object:
        numbers = all_numbers(self.values)
        if int(code) < len(self.values):
            return float(self.values[int(code)]) if numbers else str(self.values[int(code)])
        return max(self.values) + 1.0 if numbers else OTHER

    def made_up(self, uniform: Floats) -> Codes:
        shares = np.asarray(self.shares or np.ones(self.n_values), dtype=np.float64)
        upto = np.cumsum(shares) / shares.sum()
        return np.minimum(np.searchsorted(upto, uniform, side="right"), self.n_values - 1.0)


@dataclass(frozen=True)
class LevelsColumn(_DeclaredColumn):
    """Ordered levels, as equally distant numbers."""

    kind: ClassVar[str] = "levels"

    def _encode(self, codes: Codes) -> Floats:
        k = len(self.values)
        return np.nan_to_num((codes - (k - 1) / 2) / math.sqrt((k * k - 1) / 12))[:, None]

    value_names = ("",)


@dataclass(frozen=True)
class CategoryColumn(_DeclaredColumn):
    """A category, one-hot.

    `other`: whether all that is not declared is one more value, "other".
    """

    kind: ClassVar[str] = "category"

    other: bool = True

    @property
    def n_values(self) -> int:
        return len(self.values) + self.other

    def _encode(self, codes: Codes) -> Floats:
        return np.asarray((codes[:, None] == np.arange(self.n_values)) * _CATEGORY)

    @property
    def _indicator(self) -> float:
        return _CATEGORY

    @property
    def value_names(self) -> tuple[str, ...]:
        return (*map(plain_text, self.values), *((OTHER,) if self.other else ()))


@dataclass(frozen=True)
class YesNoColumn(_DeclaredColumn):
    """Yes or no."""

    kind: ClassVar[str] = "yes_no"

    values: tuple[Any, ...] = ("no", "yes")

    def _read(self, column: pa.ChunkedArray) -> Reading:
        return truths(column)

    def _value(self, code: float) -> object:
        return bool(code)

    def _encode(self, codes: Codes) -> Floats:
        return np.nan_to_num(codes - 0.5)[:, None]

    value_names = ("",)


def all_numbers(values: tuple[Any, ...]) -> bool:
    """Tell whether all declared values are numbers, so that 7, 7.0 and "7.0" are one value."""
    return all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)
