"""From the columns of an Arrow table to codes: one float64 a cell, NaN where nothing stands.

A code is a function of the cell and of the public declaration alone. Whatever cannot be read as
declared is a *fault*: it is counted for the owner of the table and never quoted.
"""

from __future__ import annotations

import datetime as dt
import math
import re
import unicodedata
from collections.abc import Callable, Container
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from vicinal._arrays import Bools, Floats

Codes = Floats
Faults = npt.NDArray[np.uint8]

MISSING_WORDS = frozenset({"", "NA", "N/A", "NaN", "nan", "null", "NULL", "None"})
"""How files write that a value is missing, unless the schema declares the word as a value."""

OK, NUMBER, FINITE, WHOLE, DECLARED, YES_NO, DATE, TYPE, MISSING = range(9)
"""Kinds of fault; 0 is none."""

WORDS = {
    NUMBER: "values that are no numbers",
    FINITE: "numbers that are not finite",
    WHOLE: "numbers that are not whole",
    DECLARED: "values that the schema does not declare",
    YES_NO: "values that are neither yes nor no",
    DATE: "values that are no dates",
    TYPE: "another type of value than declared",
    MISSING: "missing values, which the schema does not allow",
}
FIXES = {
    NUMBER: "Write plain decimal numbers with a point, or declare a category",
    FINITE: "Leave cells without a number empty",
    WHOLE: "Round them, or declare the kind 'number'",
    DECLARED: 'Declare these values; a category also takes "other": true',
    YES_NO: "Write yes and no, true and false, or 1 and 0, or declare a category",
    DATE: "Write dates as 2026-01-31",
    TYPE: "Convert the column, or declare the kind that it has",
    MISSING: 'Fill them in, or declare "missing": true',
}

_EPOCH = dt.date(1970, 1, 1).toordinal()
_PLAIN = re.compile(r"-?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_ISO = re.compile(r"(\d{4}-\d{2}-\d{2})([T ][0-9:.,+Z -]*)?", re.ASCII)
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


def numbers(column: pa.ChunkedArray) -> Reading:
    """Return the numbers of a column; text is read as decimal numbers with a point."""
    kind = column.type
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        values = column.cast(pa.float64(), safe=False).to_numpy().astype(np.float64)
        return Reading(values, np.zeros(len(values), np.uint8)).checked(np.isfinite(values), FINITE)
    return _by_value(column, _number, TYPE if _is_other(kind) or _is_bool(kind) else OK)


def days(column: pa.ChunkedArray) -> Reading:
    """Return dates as days since 1970; of a time, its day (in UTC where it has a zone)."""
    if pa.types.is_timestamp(column.type) or pa.types.is_date(column.type):
        timestamps = column.cast(pa.timestamp("s", getattr(column.type, "tz", None)), safe=False)
        seconds = timestamps.cast(pa.int64()).cast(pa.float64(), safe=False).to_numpy()
        return Reading(np.floor(seconds / 86400.0), np.zeros(len(seconds), np.uint8))
    return _by_value(column, _day, OK if _is_text(column.type) else TYPE)


def truths(column: pa.ChunkedArray) -> Reading:
    """Return 1 for yes and 0 for no."""
    return _by_value(column, _truth, TYPE if _is_other(column.type) else OK)


def places(column: pa.ChunkedArray, place_of: dict[str, float], other: float | None) -> Reading:
    """Return the code of every declared text; `other` for all else, or a fault without it."""

    def place(value: Any) -> float | int:
        text = plain_text(value)
        if is_missing(text, place_of):
            return math.nan
        position = place_of.get(text, other)
        return DECLARED if position is None else position

    return _by_value(column, place, TYPE if _is_other(column.type) else OK)


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


def _number(value: str) -> float | int:
    text = value.strip()
    if is_missing(text):
        return math.nan
    if not _PLAIN.fullmatch(text):
        return NUMBER
    number = float(text)
    return number if math.isfinite(number) else FINITE


def _day(value: str) -> float | int:
    text = value.strip()
    if is_missing(text):
        return math.nan
    match = _ISO.fullmatch(text)
    try:
        return day_number(match[1]) if match else DATE
    except ValueError:
        return DATE


def _truth(value: Any) -> float | int:
    text = plain_text(value).lower()
    if is_missing(plain_text(value)):
        return math.nan
    return 1.0 if text in _YES else 0.0 if text in _NO else YES_NO


def _by_value(column: pa.ChunkedArray, code: Callable[[Any], float | int], fault: int) -> Reading:
    """Return codes made of every different value once: a float is a code, an int is a fault.

    With `fault` nothing of the column can be read, and every value that stands there is at fault.
    """
    valid = np.asarray(column.is_valid())
    if fault or pa.types.is_null(column.type):
        faults = np.where(valid, np.uint8(fault), np.uint8(OK))
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


def _is_text(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_null(kind)
    )


def _is_bool(kind: pa.DataType) -> bool:
    return bool(pa.types.is_boolean(kind))


def _is_other(kind: pa.DataType) -> bool:
    """Tell whether a type is neither text nor numbers nor truth values."""
    known = (pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean)
    return not (_is_text(kind) or any(is_kind(kind) for is_kind in known))
