"""Parsers of the columns of a table: Arrow cells become numeric codes, and the kinds of fault.

The code of a cell is a float64: the number itself, days since 1970, seconds, the index of a
declared value, or NaN for a missing or faulty cell. The code of a cell depends on that cell and on
the public schema only.
"""

import datetime as dt
import math
import re
import unicodedata
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import partial
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from vicinal import checks
from vicinal.arrays import Bools, Floats
from vicinal.features import _table_times as times

Codes = Floats
Faults = npt.NDArray[np.uint8]

MISSING_WORDS = frozenset({"", "NA", "N/A", "NaN", "nan", "null", "NULL", "None"})
"""Texts for a missing value in files, unless the schema declares the text as a value."""

Fault = IntEnum(
    "Fault",
    "NONE NUMBER FINITE WHOLE DECLARED YES_NO DATE TYPE MISSING ID CLASS TIME DURATION",
    start=0,
)
"""Reasons why a cell cannot be used. Messages list the faults of a column in this order."""

FAULT_DESCRIPTIONS: dict[int, str] = {
    Fault.NUMBER: "values that are not numbers",
    Fault.FINITE: "numbers that are not finite",
    Fault.WHOLE: "numbers that are not whole",
    Fault.DECLARED: "values that the schema does not declare",
    Fault.YES_NO: "values that are neither yes nor no",
    Fault.DATE: "values that are not dates",
    Fault.TIME: "values that are not times of day",
    Fault.DURATION: "values that are not durations",
    Fault.TYPE: "values of another type than the schema declares",
    Fault.MISSING: "missing values, which are not allowed there",
    Fault.ID: "values that cannot be ids",
    Fault.CLASS: "labels outside the classes",
}
FAULT_FIXES: dict[int, str] = {
    Fault.NUMBER: (
        'Write plain decimal numbers, declare "limits": true for cells such as <0.5, or declare a '
        "category"
    ),
    Fault.FINITE: "Leave a cell empty if its number is unknown",
    Fault.WHOLE: "Round them, or declare the kind 'number'",
    Fault.DECLARED: 'Add these values to the schema, or give a category "other": true',
    Fault.YES_NO: "Write yes and no, true and false, or 1 and 0, or declare a category",
    Fault.DATE: 'Write dates as 2026-01-31, or declare their format, as in "form": "%d.%m.%Y"',
    Fault.TIME: "Write times of day as 14:30:00 or 2:30 PM, or declare the kind 'duration'",
    Fault.DURATION: "Write durations as PT5M30S, 26:15:00 or 1 days 02:00:00",
    Fault.TYPE: "Convert the column, or declare its kind",
    Fault.MISSING: 'Fill them in, drop these rows, or declare "missing": true for a feature',
    Fault.ID: "Write whole numbers, or text without blanks around it",
    Fault.CLASS: (
        "Declare every class (--classes splits at ; or commas: repeat it), or drop these rows"
    ),
}

PLAIN_NUMBER = re.compile(r"-?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
LEADING_ZERO = re.compile(r"-?0\d+")
"""Digits with a leading zero are a code, such as a ZIP code, and not a number."""
COMPACT_DATE = "%Y%m%d"
"""The form of dates such as 20260131, which may also be stored as integers."""

_EPOCH = dt.date(1970, 1, 1).toordinal()
_ISO_DATE = re.compile(r"(\d{4}-\d{2}-\d{2})([T ][0-9:.,+Z -]*)?", re.ASCII)
_TRAILING_TIME = re.compile(r"[T ]\d{1,2}:[0-9:.,+Z -]*(?:[AaPp]\.?[Mm]\.?)?$", re.ASCII)
_LIMIT_SIGN = re.compile(r"[<>≤≥]=?\s*(?=[-.\d])")
_YES = frozenset({"yes", "y", "true", "t", "1"})
_NO = frozenset({"no", "n", "false", "f", "0"})
_UNITS_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}

_TEXT_TYPES = (pa.types.is_string, pa.types.is_large_string)
_VALUE_TYPES = (
    *_TEXT_TYPES,
    pa.types.is_integer,
    pa.types.is_floating,
    pa.types.is_boolean,
    pa.types.is_decimal,
)


@dataclass(frozen=True)
class Reading:
    """The codes and faults of a column.

    `codes`, float64 (n,): NaN for a missing or faulty cell. `faults`, uint8 (n,): the
    :class:`Fault` of every cell; 0 for none.
    """

    codes: Codes
    faults: Faults

    @property
    def present_codes(self) -> Codes:
        """The codes of all cells that are neither missing nor faulty."""
        return self.codes[~np.isnan(self.codes)]

    def refuse_missing(self) -> Self:
        """Return a reading in which missing values are faults."""
        is_missing = np.isnan(self.codes) & (self.faults == 0)
        faults = np.where(is_missing, np.uint8(Fault.MISSING), self.faults)
        return type(self)(self.codes, faults)

    def mark_faults(self, is_valid: Bools, fault: Fault) -> Self:
        """Return a reading in which codes that are not valid (n,) have a fault, unless missing."""
        is_faulty = ~(is_valid | np.isnan(self.codes))
        faults = np.where(is_faulty, np.uint8(fault), self.faults)
        return type(self)(np.where(is_faulty, np.nan, self.codes), faults)


# ---------------------------------------------------------------- numbers


def parse_numbers(column: pa.ChunkedArray, *, limits: bool = False) -> Reading:
    """Return the numbers of a column; texts are parsed as decimal numbers with a point.

    `limits`: whether a text such as <0.5 is read as its limit, 0.5.
    """
    kind = column.type
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        values = column.cast(pa.float64(), safe=False).to_numpy().astype(np.float64)
        reading = Reading(values, np.zeros(len(values), np.uint8))
    else:
        reading = _parse_texts(column, partial(_parse_number, limits=limits), Fault.NUMBER)
    return reading.mark_faults(np.isfinite(reading.codes), Fault.FINITE)


def _parse_number(text: str, *, limits: bool) -> float | None:
    """Return a decimal number, which may be infinite; None for other texts."""
    if limits:
        text = _LIMIT_SIGN.sub("", text, count=1)
    return float(text) if PLAIN_NUMBER.fullmatch(text) else None


def apply_to_distinct(function: Callable[[float], float], values: Codes) -> Codes:
    """Return a function of every number, computed once per distinct number; NaN stays NaN.

    A vectorised loop may round the last numbers of an array differently from the first ones. Here
    equal numbers have equal results at every index.
    """
    distinct, indices = np.unique(values, return_inverse=True)
    results = [value if math.isnan(value) else function(value) for value in distinct.tolist()]
    return np.asarray(results, dtype=np.float64)[indices.reshape(values.shape)]


# ---------------------------------------------------------------- dates, times and durations


def parse_days(
    column: pa.ChunkedArray,
    form: str | None = None,
    zone: str | None = None,
    *,
    with_time: bool = False,
) -> Reading:
    """Return dates and moments as days since 1970.

    - `form`: the form of texts, such as "%d.%m.%Y". Texts such as 2026-01-31 are always dates.
    - `zone`: the time zone of the days and times of day. Values without a zone are local there.
      Without `zone`, timestamps have the days of UTC, and texts the days that they contain; with
      `with_time`, all moments are in UTC.
    - `with_time`: whether the time of day is the fraction of the day; otherwise it is left out.
    """
    if form == COMPACT_DATE and pa.types.is_integer(column.type):
        column = column.cast(pa.string())
    kind = column.type
    if not (pa.types.is_timestamp(kind) or pa.types.is_date(kind)):
        if not with_time and zone is None:
            return _parse_texts(column, partial(_parse_day, form=form), Fault.DATE)
        parse = partial(_parse_moment, form=form, zone=zone or "UTC", with_time=with_time)
        return _parse_texts(column, parse, Fault.DATE)
    if pa.types.is_date(kind):
        column = column.cast(pa.timestamp("s"))
    units, units_per_second = _get_time_units(column)
    seconds = units // units_per_second
    if zone not in (None, "UTC") and getattr(kind, "tz", None) is not None:
        local_seconds = seconds + times.find_offsets(seconds, zone)
    else:
        local_seconds = seconds
    if with_time:
        subseconds = units - seconds * units_per_second
        microseconds = subseconds * times.MICROSECONDS // units_per_second
        total = local_seconds * times.MICROSECONDS + microseconds
        codes = total / float(times.SECONDS_PER_DAY * times.MICROSECONDS)
    else:
        codes = (local_seconds // times.SECONDS_PER_DAY).astype(np.float64)
    return _with_nulls(column, codes)


def _parse_day(text: str, form: str | None) -> float | None:
    """Return the days since 1970 of a date, with or without a time; raises ValueError."""
    match = _ISO_DATE.fullmatch(text)
    if match is not None:
        return count_days(match[1])
    if form is None:
        return None
    date = dt.datetime.strptime(_TRAILING_TIME.sub("", text), form)  # noqa: DTZ007 (a day)
    return float(date.toordinal() - _EPOCH)


def _parse_moment(text: str, form: str | None, zone: str, *, with_time: bool) -> float:
    """Return the days since 1970 of a moment, perhaps with its time; raises ValueError."""
    moment = times.parse_moment(text, form, zone)
    return moment if with_time else float(math.floor(moment))


def count_days(date: str) -> float:
    """Return the days since 1970 of a date such as 2026-01-31; raises ValueError."""
    return float(dt.date.fromisoformat(date).toordinal() - _EPOCH)


def format_day(day: float) -> str:
    """Return the date of a number of days since 1970, the inverse of :func:`count_days`.

    Days outside the years 1 to 9999 become the nearest day inside.
    """
    ordinal = min(max(int(day) + _EPOCH, dt.date.min.toordinal()), dt.date.max.toordinal())
    return dt.date.fromordinal(ordinal).isoformat()


def has_zone(column: pa.ChunkedArray) -> bool:
    """Return whether a column of timestamps or texts has moments with a time zone."""
    if pa.types.is_timestamp(column.type):
        return column.type.tz is not None
    if not is_text(column):
        return False
    return any(times.split_moment(text)[2] for text in column.drop_null().unique().to_pylist())


def parse_times_of_day(column: pa.ChunkedArray) -> Reading:
    """Return times of day in seconds since midnight."""
    if pa.types.is_time(column.type):
        return _with_nulls(column, _convert_to_seconds(column))
    return _parse_texts(column, times.parse_clock, Fault.TIME)


def parse_durations(column: pa.ChunkedArray) -> Reading:
    """Return durations in seconds."""
    if pa.types.is_duration(column.type):
        return _with_nulls(column, _convert_to_seconds(column))
    return _parse_texts(column, times.parse_duration, Fault.DURATION)


def _get_time_units(column: pa.ChunkedArray) -> tuple[npt.NDArray[np.int64], int]:
    """Return the integers stored for Arrow times (0 for null), and their units per second."""
    storage = pa.int32() if column.type.bit_width == 32 else pa.int64()  # of time32
    units = column.cast(storage).cast(pa.int64()).fill_null(0).to_numpy()
    return units, _UNITS_PER_SECOND[column.type.unit]


def _convert_to_seconds(column: pa.ChunkedArray) -> Codes:
    """Return Arrow times or durations in seconds, rounded to microseconds."""
    units, units_per_second = _get_time_units(column)
    if units_per_second <= times.MICROSECONDS:
        return np.asarray(units / float(units_per_second))
    return np.asarray(np.rint(units / 1e3) / times.MICROSECONDS)


def _with_nulls(column: pa.ChunkedArray, codes: Codes) -> Reading:
    """Return a reading without faults, with NaN for the nulls of the column."""
    if column.null_count:
        codes = np.where(column.is_valid().to_numpy(), codes, np.nan)
    return Reading(codes, np.zeros(len(codes), np.uint8))


# ---------------------------------------------------------------- declared values, labels and ids


def parse_truth_values(column: pa.ChunkedArray) -> Reading:
    """Return 1 for yes and 0 for no."""
    return _parse_distinct(column, _parse_truth)


def _parse_truth(value: Any) -> float | Fault:
    """Return 1 for yes and 0 for no, in words or as a number."""
    text = plain_text(value).lower()
    if is_missing(plain_text(value)):
        return math.nan
    if PLAIN_NUMBER.fullmatch(text) and float(text) in (0.0, 1.0):  # also -0.0, 1e0 and 1.00
        return float(text) + 0.0
    if text in _YES:
        return 1.0
    return 0.0 if text in _NO else Fault.YES_NO


def parse_declared(
    column: pa.ChunkedArray, values: Sequence[Any], other_code: float | None
) -> Reading:
    """Return the index of every cell among declared values.

    `other_code`: the code of undeclared values; None if they are faults.
    """
    if are_numbers(values):
        reading = parse_numbers(column)
        other_number = math.inf if other_code is None else other_code
        code_of_number = {float(value): float(index) for index, value in enumerate(values)}
        codes = apply_to_distinct(
            lambda number: code_of_number.get(number, other_number), reading.codes
        )
        return Reading(codes, reading.faults).mark_faults(np.isfinite(codes), Fault.DECLARED)
    other = Fault.DECLARED if other_code is None else other_code
    code_of = {plain_text(value): float(index) for index, value in enumerate(values)}

    def find_code(value: Any) -> float | Fault:
        text = plain_text(value)
        return math.nan if is_missing(text, code_of) else code_of.get(text, other)

    return _parse_distinct(column, find_code)


def check_labels(column: pa.ChunkedArray, classes: Sequence[Any] | None) -> Reading:
    """Return code 0 for every valid label; missing labels, and labels of no class, are faults.

    `classes`: the names of all classes; None if every label is valid.
    """
    index_of = None if classes is None else checks.class_positions(classes)

    def check_label(value: Any) -> float | Fault:
        text = plain_text(value)
        if is_missing(text, index_of or ()):
            return math.nan
        if index_of is None or text in index_of or checks.label_name(text) in index_of:
            return 0.0
        return 0.0 if checks.plain_label(text, index_of) in index_of else Fault.CLASS

    return _parse_distinct(column, check_label).refuse_missing()


def mark_ids(column: pa.ChunkedArray) -> Reading:
    """Return code 0 for every valid subject id, and NaN for texts that mean a missing value."""

    def check_id(value: Any) -> float | Fault:
        if plain_text(value) in MISSING_WORDS:
            return math.nan
        return 0.0 if isinstance(value, bool) or checks.id_fault(value) is None else Fault.ID

    return _parse_distinct(column, check_id)


# ---------------------------------------------------------------- distinct values of a column


def is_text(column: pa.ChunkedArray) -> bool:
    """Return whether a column has an Arrow type of texts."""
    return _has_type(column, _TEXT_TYPES)


def _has_type(column: pa.ChunkedArray, types: Sequence[Callable[[Any], bool]]) -> bool:
    return any(is_type(column.type) for is_type in types)


def _parse_texts(
    column: pa.ChunkedArray, parse: Callable[[str], float | None], fault: Fault
) -> Reading:
    """Return the codes of a column of texts.

    `parse`: maps a stripped text to its code; it returns None or raises ValueError for a text that
    has the `fault`. A column of another type is faulty.
    """

    def parse_text(value: str) -> float | Fault:
        text = value.strip()
        if is_missing(text):
            return math.nan
        try:
            code = parse(text)
        except ValueError:
            return fault
        return fault if code is None else code

    return _parse_distinct(column, parse_text, _TEXT_TYPES)


def _parse_distinct(
    column: pa.ChunkedArray,
    parse: Callable[[Any], float | Fault],
    types: Sequence[Callable[[Any], bool]] = _VALUE_TYPES,
) -> Reading:
    """Return the reading of a column in which every distinct value is parsed once.

    `parse`: maps a value to its code or its fault. `types`: Arrow's tests of the types that can be
    parsed; in a column of another type all values have the fault `TYPE`.
    """
    if not _has_type(column, types):
        faults = np.where(column.is_valid(), np.uint8(Fault.TYPE), np.uint8(Fault.NONE))
        return Reading(np.full(len(column), np.nan), faults)
    dictionary = _encode_distinct(column)
    parsed = [*map(parse, dictionary.dictionary.to_pylist()), math.nan]  # the last one is of nulls
    indices = dictionary.indices.fill_null(len(parsed) - 1).to_numpy(zero_copy_only=False)
    codes = np.array([math.nan if isinstance(code, Fault) else code for code in parsed])
    faults = np.array([code if isinstance(code, Fault) else 0 for code in parsed], dtype=np.uint8)
    return Reading(codes[indices], faults[indices])


def _encode_distinct(column: pa.ChunkedArray) -> pa.DictionaryArray:
    """Return a column as distinct values and an index of them for every row."""
    return pa.chunked_array([column.combine_chunks()]).dictionary_encode().chunk(0)


# ---------------------------------------------------------------- comparison of values


def plain_text(value: Any) -> str:
    """Return a value as the text to compare with declared values.

    Texts are stripped and composed (NFC), whole floats are written as integers, and truth values
    in lower case.
    """
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return unicodedata.normalize("NFC", str(value).strip())


def is_missing(text: str, declared: Container[str] = ()) -> bool:
    """Return whether a stripped text means a missing value, and is not a `declared` value."""
    return text == "" or (text in MISSING_WORDS and text not in declared)


def normalize_value(value: Any) -> str:
    """Return the text by which values are compared with missing ones: -9, -9.0 and "-9.00" agree.

    Digits with a leading zero are a code, and equal only the same digits.
    """
    text = plain_text(value)
    if not PLAIN_NUMBER.fullmatch(text) or LEADING_ZERO.fullmatch(text):
        return text
    return repr(float(text) + 0.0)


def fold_spelling(value: Any) -> str:
    """Return the normalized text of a value without blanks and capitals."""
    return "".join(normalize_value(value).casefold().split())


def remove_values(column: pa.ChunkedArray, excluded: Container[str]) -> pa.ChunkedArray:
    """Return a column of texts, numbers or truth values with nulls for the excluded values.

    `excluded`: values as :func:`normalize_value` returns them. Columns of other types are returned
    unchanged.
    """
    if not _has_type(column, _VALUE_TYPES):
        return column
    dictionary = _encode_distinct(column)
    values = [
        None if normalize_value(value) in excluded else value
        for value in dictionary.dictionary.to_pylist()
    ]
    if None not in values:
        return column
    return pa.chunked_array([pa.array(values, column.type).take(dictionary.indices)])


def are_numbers(values: Sequence[Any]) -> bool:
    """Return whether all declared values are numbers, so that 7, 7.0 and "7.0" are one value."""
    return all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)
