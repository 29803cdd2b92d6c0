"""Parsers of the columns of a table: Arrow cells become numeric codes, and the kinds of fault.

The code of a cell is a float64: the number itself, days since 1970, seconds, the index of a
declared value, or NaN for a missing or faulty cell. The code of a cell depends on that cell and on
the public schema only. Everywhere in this module, `column` is a column of a table, with n cells of
any Arrow type, and `zone` the name of a time zone.
"""

import datetime as dt
import math
import re
import unicodedata
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass
from enum import IntEnum
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
"""Texts that mark a missing value in files, unless the schema declares the text as a value."""

Fault = IntEnum(
    "Fault",
    "NONE NOT_NUMBER NOT_FINITE NOT_WHOLE UNDECLARED NOT_YES_NO NOT_DATE OTHER_TYPE MISSING "
    "INVALID_ID UNKNOWN_CLASS NOT_TIME NOT_DURATION",
    start=0,
)
"""Reasons why a cell cannot be used. Messages list the faults of a column in this order."""

FAULT_DESCRIPTIONS: dict[int, str] = {
    Fault.NOT_NUMBER: "values that are not numbers",
    Fault.NOT_FINITE: "numbers that are not finite",
    Fault.NOT_WHOLE: "numbers that are not whole",
    Fault.UNDECLARED: "values that the schema does not declare",
    Fault.NOT_YES_NO: "values that are neither yes nor no",
    Fault.NOT_DATE: "values that are not dates",
    Fault.NOT_TIME: "values that are not times of day",
    Fault.NOT_DURATION: "values that are not durations",
    Fault.OTHER_TYPE: "values of another type than the schema declares",
    Fault.MISSING: "missing values, which are not allowed there",
    Fault.INVALID_ID: "values that cannot be ids",
    Fault.UNKNOWN_CLASS: "labels outside the classes",
}
FAULT_FIXES: dict[int, str] = {
    Fault.NOT_NUMBER: (
        'Write plain decimal numbers, declare "limits": true for cells such as <0.5, or declare a '
        "category"
    ),
    Fault.NOT_FINITE: "Leave a cell empty if its number is unknown",
    Fault.NOT_WHOLE: "Round them, or declare the kind 'number'",
    Fault.UNDECLARED: 'Add these values to the schema, or give a category "other": true',
    Fault.NOT_YES_NO: "Write yes and no, true and false, or 1 and 0, or declare a category",
    Fault.NOT_DATE: 'Write dates as 2026-01-31, or declare their format, as in "form": "%d.%m.%Y"',
    Fault.NOT_TIME: "Write times of day as 14:30:00 or 2:30 PM, or declare the kind 'duration'",
    Fault.NOT_DURATION: "Write durations as PT5M30S, 26:15:00 or 1 days 02:00:00",
    Fault.OTHER_TYPE: "Convert the column, or declare its kind",
    Fault.MISSING: 'Fill them in, drop these rows, or declare "missing": true for a feature',
    Fault.INVALID_ID: "Write whole numbers, or text without blanks around it",
    Fault.UNKNOWN_CLASS: (
        "Declare every class (--classes splits at ; or commas: repeat it), or drop these rows"
    ),
}

VALUE_FIXES: dict[int, str] = FAULT_FIXES | {
    Fault.NOT_NUMBER: "Write plain decimal numbers",
    Fault.NOT_WHOLE: "Round them",
    Fault.UNDECLARED: "Use the declared values",
    Fault.NOT_YES_NO: "Write yes and no, true and false, or 1 and 0",
    Fault.NOT_DATE: "Write dates as 2026-01-31, or in the declared format",
    Fault.NOT_TIME: "Write times of day as 14:30:00 or 2:30 PM",
    Fault.OTHER_TYPE: "Convert the column",
    Fault.MISSING: "Fill them in, or drop these rows",
}
"""Remedies for clients of a service, who cannot change the schema."""

PLAIN_NUMBER = re.compile(r"-?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
LEADING_ZERO = re.compile(r"-?0\d+")
"""Digits with a leading zero are a code, such as a ZIP code, and not a number."""
COMPACT_DATE = "%Y%m%d"
"""The strptime format of dates such as 20260131, which may also be stored as integers."""

_EPOCH = dt.date(1970, 1, 1).toordinal()
_ISO_DATE = re.compile(r"(\d{4}-\d{2}-\d{2})([T ][0-9:.,+Z -]*)?", re.ASCII)
_TRAILING_TIME = re.compile(r"[T ]\d{1,2}:[0-9:.,+Z -]*(?:[AaPp]\.?[Mm]\.?)?$", re.ASCII)
_CENSORING_SIGN = re.compile(r"[<>≤≥]=?\s*(?=[-.\d])")
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
class ParsedColumn:
    """The codes, float64 (n,), and the :class:`Fault` of each cell of a column, uint8 (n,)."""

    codes: Codes
    faults: Faults

    @property
    def present_codes(self) -> Codes:
        """The codes of all cells that are neither missing nor faulty."""
        return self.codes[~np.isnan(self.codes)]

    def mark_missing(self) -> Self:
        """Return the column with missing values as faults."""
        is_missing = np.isnan(self.codes) & (self.faults == 0)
        faults = np.where(is_missing, np.uint8(Fault.MISSING), self.faults)
        return type(self)(self.codes, faults)

    def mark_faults(self, is_valid: Bools, fault: Fault) -> Self:
        """Return the column with the `fault` in present cells where `is_valid` (n,) is False."""
        is_faulty = ~(is_valid | np.isnan(self.codes))
        faults = np.where(is_faulty, np.uint8(fault), self.faults)
        return type(self)(np.where(is_faulty, np.nan, self.codes), faults)

    def exclude_codes(self, excluded: Codes | Sequence[float]) -> Self:
        """Return the column with missing values (NaN) in place of the `excluded` codes."""
        is_present = ~np.isin(self.codes, excluded)
        return type(self)(np.where(is_present, self.codes, np.nan), self.faults)


# ---------------------------------------------------------------- numbers


def parse_numbers(column: pa.ChunkedArray, *, accept_censored: bool = False) -> ParsedColumn:
    """Return the numbers of a column; texts are parsed as decimal numbers with a point.

    `accept_censored`: whether a text such as <0.5 is read as 0.5; otherwise it is a fault.
    """
    kind = column.type
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        values = column.cast(pa.float64(), safe=False).to_numpy().astype(np.float64)
        parsed = ParsedColumn(values, np.zeros(len(values), np.uint8))
    else:

        def parse_number(text: str) -> float | None:
            """Return a decimal number, which may be infinite; None for other texts."""
            if accept_censored:
                text = _CENSORING_SIGN.sub("", text, count=1)
            return float(text) if PLAIN_NUMBER.fullmatch(text) else None

        parsed = _parse_texts(column, parse_number, Fault.NOT_NUMBER)
    return parsed.mark_faults(np.isfinite(parsed.codes), Fault.NOT_FINITE)


def apply_to_distinct(function: Callable[[float], float], values: Codes) -> Codes:
    """Return the results of `function` for values (n,), called once for each number; NaN stays NaN.

    Equal numbers have equal results. A vectorised loop may round an array's last numbers otherwise.
    """
    distinct, indices = np.unique(values, return_inverse=True)
    results = [value if math.isnan(value) else function(value) for value in distinct.tolist()]
    return np.asarray(results, dtype=np.float64)[indices.reshape(values.shape)]


# ---------------------------------------------------------------- dates, times and durations


def parse_days(
    column: pa.ChunkedArray,
    date_format: str | None = None,
    zone: str | None = None,
    *,
    with_time: bool = False,
) -> ParsedColumn:
    """Return the dates or moments of a column as codes, in days since 1970.

    - `date_format`: the strptime format of texts, such as "%d.%m.%Y". Texts such as 2026-01-31 are
      always dates.
    - `zone`: of the days and times of day, and of values without a zone. None: timestamps have the
      days of UTC, and texts the days that they contain; with `with_time`, all moments are in UTC.
    - `with_time`: whether the time of day is the fraction of the day; otherwise it is left out.
    """
    if date_format == COMPACT_DATE and pa.types.is_integer(column.type):
        column = column.cast(pa.string())
    kind = column.type
    if not (pa.types.is_timestamp(kind) or pa.types.is_date(kind)):

        def parse(text: str) -> float | None:
            """Return the days since 1970 of a date or moment; None or ValueError if it is none."""
            if not with_time and zone is None:
                return _parse_day(text, date_format)
            moment = times.parse_moment(text, date_format, zone or "UTC")
            return moment if with_time else float(math.floor(moment))

        return _parse_texts(column, parse, Fault.NOT_DATE)
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
    return _build_parsed_column(column, codes)


def _parse_day(text: str, date_format: str | None) -> float | None:
    """Return the days from 1970 to a date without its time; None or ValueError for other texts.

    `date_format`: the strptime format, such as "%d.%m.%Y"; None for dates such as 2026-01-31.
    """
    match = _ISO_DATE.fullmatch(text)
    if match is not None:
        return parse_iso_date(match[1])
    if date_format is None:
        return None
    date = dt.datetime.strptime(_TRAILING_TIME.sub("", text), date_format)  # noqa: DTZ007 (a day)
    return float(date.toordinal() - _EPOCH)


def parse_iso_date(date: str) -> float:
    """Return the days since 1970 of a date such as 2026-01-31; raises ValueError."""
    return float(dt.date.fromisoformat(date).toordinal() - _EPOCH)


def format_day(day: float) -> str:
    """Return the date, such as 2026-01-31, or the nearest one possible, of days since 1970."""
    ordinal = min(max(int(day) + _EPOCH, dt.date.min.toordinal()), dt.date.max.toordinal())
    return dt.date.fromordinal(ordinal).isoformat()


def has_zone(column: pa.ChunkedArray) -> bool:
    """Return whether a column of timestamps or texts has moments with a time zone."""
    if pa.types.is_timestamp(column.type):
        return column.type.tz is not None
    if not is_text(column):
        return False
    return any(times.split_moment(text)[2] for text in column.drop_null().unique().to_pylist())


def parse_times_of_day(column: pa.ChunkedArray) -> ParsedColumn:
    """Return the times of day of a column as codes, in seconds since midnight."""
    if pa.types.is_time(column.type):
        return _build_parsed_column(column, _convert_to_seconds(column))
    return _parse_texts(column, times.parse_clock, Fault.NOT_TIME)


def parse_durations(column: pa.ChunkedArray) -> ParsedColumn:
    """Return the durations of a column as codes, in seconds."""
    if pa.types.is_duration(column.type):
        return _build_parsed_column(column, _convert_to_seconds(column))
    return _parse_texts(column, times.parse_duration, Fault.NOT_DURATION)


def _get_time_units(column: pa.ChunkedArray) -> tuple[npt.NDArray[np.int64], int]:
    """Return Arrow times as integers, int64 (n,), 0 for null, and the units in a second."""
    storage = pa.int32() if column.type.bit_width == 32 else pa.int64()  # of time32
    units = column.cast(storage).cast(pa.int64()).fill_null(0).to_numpy()
    return units, _UNITS_PER_SECOND[column.type.unit]


def _convert_to_seconds(column: pa.ChunkedArray) -> Codes:
    """Return codes (n,) in seconds, rounded to microseconds, of Arrow times or durations."""
    units, units_per_second = _get_time_units(column)
    if units_per_second <= times.MICROSECONDS:
        return np.asarray(units / float(units_per_second))
    return np.asarray(np.rint(units / 1e3) / times.MICROSECONDS)


def _build_parsed_column(column: pa.ChunkedArray, codes: Codes) -> ParsedColumn:
    """Return the codes (n,) as a column without faults; NaN for the nulls of `column`."""
    if column.null_count:
        codes = np.where(column.is_valid().to_numpy(), codes, np.nan)
    return ParsedColumn(codes, np.zeros(len(codes), np.uint8))


# ---------------------------------------------------------------- declared values, labels and ids


def parse_truth_values(column: pa.ChunkedArray) -> ParsedColumn:
    """Return a column of truth values as codes: 1 for yes, 0 for no, in words or as numbers."""
    return _parse_distinct(column, _parse_truth_value)


def _parse_truth_value(value: Any) -> float | Fault:
    """Return 1 for yes, 0 for no, NaN for a missing value, or the fault of another cell."""
    text = plain_text(value).lower()
    if is_missing_text(plain_text(value)):
        return math.nan
    if PLAIN_NUMBER.fullmatch(text) and float(text) in (0.0, 1.0):  # also -0.0, 1e0 and 1.00
        return float(text) + 0.0
    if text in _YES:
        return 1.0
    return 0.0 if text in _NO else Fault.NOT_YES_NO


def parse_declared_values(
    column: pa.ChunkedArray, values: Sequence[Any], other_code: float | None
) -> ParsedColumn:
    """Return the index of every cell in the declared `values` (any JSON types) as its code.

    `other_code`: the code of undeclared values; None if they are faults.
    """
    if are_numbers(values):
        parsed = parse_numbers(column)
        other_number = math.inf if other_code is None else other_code
        code_of_number = {float(value): float(index) for index, value in enumerate(values)}
        codes = apply_to_distinct(
            lambda number: code_of_number.get(number, other_number), parsed.codes
        )
        return ParsedColumn(codes, parsed.faults).mark_faults(np.isfinite(codes), Fault.UNDECLARED)
    other = Fault.UNDECLARED if other_code is None else other_code
    code_of = {plain_text(value): float(index) for index, value in enumerate(values)}

    def find_code(value: Any) -> float | Fault:
        """Return the code of a cell's value, NaN for a missing value, or the fault."""
        text = plain_text(value)
        return math.nan if is_missing_text(text, code_of) else code_of.get(text, other)

    return _parse_distinct(column, find_code)


def find_label_faults(column: pa.ChunkedArray, classes: Sequence[Any] | None) -> ParsedColumn:
    """Return the faults of a column of labels; valid labels have code 0, missing ones are faults.

    `classes`: the names of all classes; None if every label is valid.
    """
    index_of = None if classes is None else checks.build_class_index(classes)

    def validate_label(value: Any) -> float | Fault:
        """Return 0 for a valid label, NaN for a missing one, else the fault."""
        text = plain_text(value)
        if is_missing_text(text, index_of or ()):
            return math.nan
        if index_of is None or text in index_of or checks.parse_label(text) in index_of:
            return 0.0
        is_class = checks.parse_integer_label(text, index_of) in index_of
        return 0.0 if is_class else Fault.UNKNOWN_CLASS

    return _parse_distinct(column, validate_label).mark_missing()


def find_id_faults(column: pa.ChunkedArray) -> ParsedColumn:
    """Return the faults of a column of subject ids; valid ids have code 0, missing ones NaN."""

    def validate_id(value: Any) -> float | Fault:
        """Return 0 for a valid id, NaN for a missing one, else the fault."""
        if plain_text(value) in MISSING_WORDS:
            return math.nan
        is_id = isinstance(value, bool) or checks.describe_id_problem(value) is None
        return 0.0 if is_id else Fault.INVALID_ID

    return _parse_distinct(column, validate_id)


# ---------------------------------------------------------------- distinct values of a column


def is_text(column: pa.ChunkedArray) -> bool:
    """Return whether a column has an Arrow type of texts."""
    return _has_type(column, _TEXT_TYPES)


def _has_type(column: pa.ChunkedArray, type_tests: Sequence[Callable[[Any], bool]]) -> bool:
    """Return whether one of Arrow's tests, such as `is_string`, is true for the column's type."""
    return any(is_type(column.type) for is_type in type_tests)


def _parse_texts(
    column: pa.ChunkedArray, parse: Callable[[str], float | None], fault: Fault
) -> ParsedColumn:
    """Return the codes of a column of texts; all cells of a column of another type are faulty.

    `parse`: maps a stripped text to its code; None or ValueError mean that it has the `fault`.
    """

    def parse_text(value: str) -> float | Fault:
        """Return the code of a text, NaN for a missing value, or the fault."""
        text = value.strip()
        if is_missing_text(text):
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
    type_tests: Sequence[Callable[[Any], bool]] = _VALUE_TYPES,
) -> ParsedColumn:
    """Return the codes and faults of a column, of which every distinct value is parsed once.

    `parse`: maps a value to its code or its fault. `type_tests`: Arrow's tests of the types that
    can be parsed; in a column of another type all values have the fault `OTHER_TYPE`.
    """
    if not _has_type(column, type_tests):
        faults = np.where(column.is_valid(), np.uint8(Fault.OTHER_TYPE), np.uint8(Fault.NONE))
        return ParsedColumn(np.full(len(column), np.nan), faults)
    dictionary = _encode_distinct(column)
    results = [*map(parse, dictionary.dictionary.to_pylist()), math.nan]  # the last is of nulls
    indices = dictionary.indices.fill_null(len(results) - 1).to_numpy(zero_copy_only=False)
    codes = np.array([math.nan if isinstance(code, Fault) else code for code in results])
    faults = np.array([code if isinstance(code, Fault) else 0 for code in results], dtype=np.uint8)
    return ParsedColumn(codes[indices], faults[indices])


def _encode_distinct(column: pa.ChunkedArray) -> pa.DictionaryArray:
    """Return a column in dictionary encoding: its distinct values, and an index for every row."""
    return pa.chunked_array([column.combine_chunks()]).dictionary_encode().chunk(0)


# ---------------------------------------------------------------- comparison of values


def plain_text(value: Any) -> str:
    """Return the text of a value, in the form in which it is compared with declared values.

    Texts are stripped and composed (NFC), whole floats are written as integers, and truth values
    in lower case.
    """
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return unicodedata.normalize("NFC", str(value).strip())


def is_missing_text(text: str, declared: Container[str] = ()) -> bool:
    """Return whether a stripped text is empty, or in `MISSING_WORDS` and no `declared` value."""
    return text == "" or (text in MISSING_WORDS and text not in declared)


def normalize_value(value: Any) -> str:
    """Return the form in which a value is compared with missing-value markers.

    It is equal for -9, -9.0 and "-9.00". Digits with a leading zero are a code and stay unchanged.
    """
    text = plain_text(value)
    if not PLAIN_NUMBER.fullmatch(text) or LEADING_ZERO.fullmatch(text):
        return text
    return repr(float(text) + 0.0)


def fold_spelling(value: Any) -> str:
    """Return the text of a value without blanks and capitals, to find misspelt declared values."""
    return "".join(normalize_value(value).casefold().split())


def replace_by_null(column: pa.ChunkedArray, excluded: Container[str]) -> pa.ChunkedArray:
    """Return a column with nulls in place of values whose :func:`normalize_value` is `excluded`.

    Only texts, numbers and truth values can be excluded.
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
