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
from functools import cached_property, partial
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from scipy.special import ndtri

from vicinal import checks
from vicinal.arrays import Bools, Floats
from vicinal.features import _table_times as times

# ---------------------------------------------------------------- cells to codes

Codes = Floats
Faults = npt.NDArray[np.uint8]

MISSING_WORDS = frozenset({"", "NA", "N/A", "NaN", "nan", "null", "NULL", "None"})
"""How files write that a value is missing, unless the schema declares the word as a value."""

OK, NUMBER, FINITE, WHOLE, DECLARED, YES_NO, DATE, TYPE, MISSING, ID, CLASS = range(11)
TIME, DURATION = 11, 12
"""Kinds of fault; 0 is none."""

WORDS = {
    NUMBER: "values that are not numbers",
    FINITE: "numbers that are not finite",
    WHOLE: "numbers that are not whole",
    DECLARED: "values that the schema does not declare",
    YES_NO: "values that are neither yes nor no",
    DATE: "values that are not dates",
    TIME: "values that are not times of day",
    DURATION: "values that are not durations",
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
    TIME: "Write times of day as 14:30:00 or 2:30 PM, or declare the kind 'duration'",
    DURATION: "Write durations as PT5M30S, 26:15:00 or 1 days 02:00:00",
    TYPE: "Convert the column, or declare its kind",
    MISSING: 'Fill them in, drop these rows, or declare "missing": true for a feature',
    ID: "Write whole numbers, or text without blanks around it",
    CLASS: "Declare every class (--classes splits at ; or commas: repeat it), or drop these rows",
}

_EPOCH = dt.date(1970, 1, 1).toordinal()
PLAIN_NUMBER = re.compile(r"-?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_ISO = re.compile(r"(\d{4}-\d{2}-\d{2})([T ][0-9:.,+Z -]*)?", re.ASCII)
_TIME = re.compile(r"[T ]\d{1,2}:[0-9:.,+Z -]*(?:[AaPp]\.?[Mm]\.?)?$", re.ASCII)
CODE = re.compile(r"-?0\d+")
"""Digits with a leading zero: a code, such as a ZIP code, and no number."""
DAY_DIGITS = "%Y%m%d"  # the form of dates that may be integers, such as 20260131
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


def parse_numbers(column: pa.ChunkedArray, *, limits: bool = False) -> Reading:
    """Return the numbers of a column; text is read as decimal numbers with a point.

    `limits`: whether <0.5 is read as 0.5, its limit.
    """
    kind = column.type
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        values = column.cast(pa.float64(), safe=False).to_numpy().astype(np.float64)
        return Reading(values, np.zeros(len(values), np.uint8)).checked(np.isfinite(values), FINITE)
    return _by_value(column, partial(_number, limits=limits), _TEXTS)


def days(
    column: pa.ChunkedArray,
    form: str | None = None,
    zone: str | None = None,
    *,
    with_time: bool = False,
) -> Reading:
    """Return moments as days since 1970; the time of day is the fraction, or left out.

    `form`: how texts are written, such as "%d.%m.%Y"; 2026-01-31 is always a date. `zone`: the time
    zone whose day and time count; values without a zone are local there. Without `zone` the days of
    timestamps are those of UTC, and the days of texts are as written; with times, all are in UTC.
    """
    if form == DAY_DIGITS and pa.types.is_integer(column.type):
        column = column.cast(pa.string())
    kind = column.type
    if not (pa.types.is_timestamp(kind) or pa.types.is_date(kind)):
        if with_time or zone is not None:
            read_moment = partial(_parse_moment, form=form, zone=zone or "UTC", with_time=with_time)
            return _by_value(column, read_moment, _TEXTS)
        return _by_value(column, partial(_parse_day, form=form), _TEXTS)
    units, per_second = _extract_ticks(
        column.cast(pa.timestamp("s")) if pa.types.is_date(kind) else column
    )
    seconds = units // per_second
    if zone not in (None, "UTC") and getattr(kind, "tz", None) is not None:
        seconds_ahead = times.find_offsets(seconds, zone)
    else:
        seconds_ahead = np.zeros((), np.int64)
    if with_time:
        fractions = (units - seconds * per_second) * times.MICROSECONDS // per_second
        microseconds = (seconds + seconds_ahead) * times.MICROSECONDS + fractions
        codes = microseconds / float(times.SECONDS_PER_DAY * times.MICROSECONDS)
    else:
        codes = ((seconds + seconds_ahead) // times.SECONDS_PER_DAY).astype(np.float64)
    return _with_nulls(column, codes)


def has_zone(column: pa.ChunkedArray) -> bool:
    """Return whether a column of timestamps or texts holds moments with a time zone."""
    if pa.types.is_timestamp(column.type):
        return column.type.tz is not None
    if not any(is_kind(column.type) for is_kind in _TEXTS):
        return False
    return any(times.split_moment(text)[2] for text in column.drop_null().unique().to_pylist())


def times_of_day(column: pa.ChunkedArray) -> Reading:
    """Return times of day as seconds since midnight."""
    if not pa.types.is_time(column.type):
        return _by_value(column, partial(_parse_cell, parse=times.parse_clock, fault=TIME), _TEXTS)
    return _with_nulls(column, _convert_to_seconds(column))


def durations(column: pa.ChunkedArray) -> Reading:
    """Return durations as seconds."""
    if not pa.types.is_duration(column.type):
        read_text = partial(_parse_cell, parse=times.parse_duration, fault=DURATION)
        return _by_value(column, read_text, _TEXTS)
    return _with_nulls(column, _convert_to_seconds(column))


_UNITS = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}


def _extract_ticks(column: pa.ChunkedArray) -> tuple[npt.NDArray[np.int64], int]:
    """Return times in their unit, 0 where they are missing, and how many units a second has."""
    storage = pa.int32() if column.type.bit_width == 32 else pa.int64()  # of time32
    units = column.cast(storage).cast(pa.int64()).fill_null(0).to_numpy()
    return units, _UNITS[column.type.unit]


def _convert_to_seconds(column: pa.ChunkedArray) -> Codes:
    """Return times or durations in seconds, rounded to microseconds."""
    units, per_second = _extract_ticks(column)
    if per_second <= times.MICROSECONDS:
        return np.asarray(units / float(per_second))
    return np.asarray(np.rint(units / 1e3) / times.MICROSECONDS)


def _with_nulls(column: pa.ChunkedArray, codes: Codes) -> Reading:
    """Return codes as they were read, with NaN where the column has nulls."""
    if column.null_count:
        codes = np.where(column.is_valid().to_numpy(), codes, np.nan)
    return Reading(codes, np.zeros(len(codes), np.uint8))


def truths(column: pa.ChunkedArray) -> Reading:
    """Return 1 for yes and 0 for no."""
    return _by_value(column, _parse_flag)


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
    read = parse_numbers(column)

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
    known = None if classes is None else checks.class_positions(classes)

    def is_label(value: Any) -> float | int:
        text = plain_text(value)
        if is_missing(text, known or ()):
            return math.nan
        if known is None or text in known or checks.label_name(text) in known:
            return 0.0
        return 0.0 if checks.plain_label(text, known) in known else CLASS

    return _by_value(column, is_label).refusing_missing()


def mark_ids(column: pa.ChunkedArray) -> Reading:
    """Return 0 for every id; texts that say that nothing stands there are missing."""

    def is_id(value: Any) -> float | int:
        if plain_text(value) in MISSING_WORDS:
            return math.nan
        return 0.0 if isinstance(value, bool) or checks.id_fault(value) is None else ID

    return _by_value(column, is_id)


def _number(value: str, *, limits: bool) -> float | int:
    text = _LIMIT.sub("", value.strip(), count=1) if limits else value.strip()
    if is_missing(text):
        return math.nan
    if not PLAIN_NUMBER.fullmatch(text):
        return NUMBER
    number = float(text)
    return number if math.isfinite(number) else FINITE


def _parse_day(value: str, form: str | None) -> float | int:
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


def _parse_moment(value: str, form: str | None, zone: str, *, with_time: bool) -> float | int:
    text = value.strip()
    if is_missing(text):
        return math.nan
    try:
        moment = times.parse_moment(text, form, zone)
    except ValueError:
        return DATE
    return moment if with_time else float(math.floor(moment))


def _parse_cell(value: str, parse: Callable[[str], float | None], fault: int) -> float | int:
    text = value.strip()
    if is_missing(text):
        return math.nan
    number = parse(text)
    return fault if number is None else number


def _parse_flag(value: Any) -> float | int:
    text = plain_text(value).lower()
    if is_missing(plain_text(value)):
        return math.nan
    if PLAIN_NUMBER.fullmatch(text) and float(text) in (0.0, 1.0):  # also -0.0, 1e0 and 1.00
        return float(text) + 0.0
    if text in _YES:
        return 1.0
    return 0.0 if text in _NO else YES_NO


_TEXTS = (pa.types.is_string, pa.types.is_large_string)
_VALUES = (
    *_TEXTS, pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean, pa.types.is_decimal,
)  # fmt: skip


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


def comparable(value: Any) -> str:
    """Return how a value is compared with declared missing ones: -9, -9.0 and "-9.00" are equal.

    A number with a leading zero is a code, and equals itself only.
    """
    text = plain_text(value)
    if not PLAIN_NUMBER.fullmatch(text) or CODE.fullmatch(text):
        return text
    return repr(float(text) + 0.0)


def fold_spelling(value: Any) -> str:
    """Return a value in the form of :func:`comparable`, without blanks and capitals."""
    return "".join(comparable(value).casefold().split())


def without_values(column: pa.ChunkedArray, excluded: Container[str]) -> pa.ChunkedArray:
    """Return a column of texts, numbers or truth values with nulls for values in `excluded`.

    `excluded`: as :func:`comparable` writes values. Other columns are returned as they are.
    """
    if not any(is_kind(column.type) for is_kind in _VALUES):
        return column
    encoded = pa.chunked_array([column.combine_chunks()]).dictionary_encode().chunk(0)
    values = encoded.dictionary.to_pylist()
    kept = [None if comparable(value) in excluded else value for value in values]
    if None not in kept:
        return column
    return pa.chunked_array([pa.array(kept, column.type).take(encoded.indices)])


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
    - `missing_values`: further values that stand for a missing one, such as "?" or -999.
    - `file_missing_values`: such values of all columns of the schema.
    """

    kind: ClassVar[str]

    name: str
    weight: float = 1.0
    missing: bool = True
    missing_share: float = 0.0
    missing_values: tuple[Any, ...] = ()
    file_missing_values: tuple[Any, ...] = ()

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
        reading = self._read(self._without_missing(column))
        return reading if self.missing else reading.refusing_missing()

    @cached_property
    def _missing(self) -> frozenset[str]:
        """All declared missing values, as :func:`comparable` writes them."""
        return frozenset(map(comparable, (*self.missing_values, *self.file_missing_values)))

    def _without_missing(self, column: pa.ChunkedArray) -> pa.ChunkedArray:
        return without_values(column, self._missing) if self._missing else column

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
        return parse_numbers(column, limits=self.limits)

    def read(self, column: pa.ChunkedArray) -> Reading:
        reading = self._read(self._without_missing(column))
        if self._missing_codes.size:
            is_value = ~np.isin(reading.codes, self._missing_codes)
            reading = Reading(np.where(is_value, reading.codes, np.nan), reading.faults)
        return reading if self.missing else reading.refusing_missing()

    @cached_property
    def _missing_codes(self) -> Codes:
        """Codes of the declared missing values that are numbers, dates or times themselves."""
        if not self._missing:
            return np.empty(0)
        codes = self._read(pa.chunked_array([sorted(self._missing)])).codes
        return codes[~np.isnan(codes)]

    def _without_missing(self, column: pa.ChunkedArray) -> pa.ChunkedArray:
        # Codes are compared in read, which is faster for columns of numbers.
        reads_numbers = self.kind in ("number", "whole")
        if reads_numbers and not any(is_kind(column.type) for is_kind in _TEXTS):
            return column
        return super()._without_missing(column)

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

    @property
    def value_names(self) -> tuple[str, ...]:
        return ("",)

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
    """A date, as days since 1970, perhaps with the time of day.

    `form`: how texts are written, besides 2026-01-31. `time`: whether the time of day counts, as
    the fraction of the day and as a point on a circle. `zone`: the time zone of days and times.
    """

    kind: ClassVar[str] = "date"

    form: str | None = None
    time: bool = False
    zone: str | None = None

    def _read(self, column: pa.ChunkedArray) -> Reading:
        return days(column, self.form, self.zone, with_time=self.time)

    def _value(self, code: float) -> object:
        date = dt.date.fromisoformat(date_of(math.floor(code)))
        if not self.time:
            return date
        return dt.datetime.combine(date, _clock_of(code % 1 * times.SECONDS_PER_DAY))

    def _rounded(self, values: Floats) -> Codes:
        if self.time:
            second = 1 / times.SECONDS_PER_DAY
            return self._bounded(np.rint(values / second) * second)
        return self._bounded(np.rint(values))

    def _encode(self, codes: Codes) -> Floats:
        features = super()._encode(codes)
        if not self.time:
            return features
        return np.column_stack([features, _on_circle(codes % 1)])

    @property
    def value_names(self) -> tuple[str, ...]:
        return ("", *_CIRCLE_NAMES) if self.time else ("",)


_CIRCLE_NAMES = ("sin(time of day)", "cos(time of day)")


def _on_circle(fractions: Floats) -> Floats:
    """Return points (n, 2) of fractions of a day on the unit circle; zeros where they are NaN.

    As for a standardised number, the mean squared distance of two random times is 2.
    """
    sines = each(lambda fraction: math.sin(2 * math.pi * fraction), fractions)
    cosines = each(lambda fraction: math.cos(2 * math.pi * fraction), fractions)
    return np.nan_to_num(np.column_stack([sines, cosines]))


def _clock_of(seconds: float) -> dt.time:
    """Return a time of day, rounded to seconds."""
    minutes, second = divmod(min(round(seconds), times.SECONDS_PER_DAY - 1), 60)
    return dt.time(*divmod(minutes, 60), second)


@dataclass(frozen=True)
class TimeColumn(NumberColumn):
    """A time of day, as seconds since midnight.

    `cyclic`: whether times are points on a circle, so that 23:59 is close to 00:01; otherwise they
    are numbers that are uniform over the day.
    """

    kind: ClassVar[str] = "time"

    low: float | None = 0.0
    high: float | None = float(times.SECONDS_PER_DAY)
    cyclic: bool = True

    def _read(self, column: pa.ChunkedArray) -> Reading:
        return times_of_day(column)

    def _value(self, code: float) -> object:
        return _clock_of(code)

    def _rounded(self, values: Floats) -> Codes:
        return np.minimum(np.rint(values), times.SECONDS_PER_DAY - 1.0)

    def _encode(self, codes: Codes) -> Floats:
        if not self.cyclic:
            return super()._encode(codes)
        return _on_circle(codes / times.SECONDS_PER_DAY)

    @property
    def value_names(self) -> tuple[str, ...]:
        return _CIRCLE_NAMES if self.cyclic else ("",)


@dataclass(frozen=True)
class DurationColumn(NumberColumn):
    """A duration, as seconds."""

    kind: ClassVar[str] = "duration"

    def _read(self, column: pa.ChunkedArray) -> Reading:
        return durations(column)

    def _value(self, code: float) -> object:
        sign = "-" if code < 0 else ""
        return f"{sign}PT{abs(int(code))}S"

    def _rounded(self, values: Floats) -> Codes:
        return np.trunc(self._bounded(values))


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

    @cached_property
    def _missing(self) -> frozenset[str]:
        """All declared missing values but those that the column declares as values."""
        return super()._missing - frozenset(map(comparable, self.values))

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
