"""Drafts of columns of public numbers, truth values, dates and times.

A *draft* is the proposed schema entry of a column, with notes for the person who edits the schema.
In all functions, `name` is the column's name, `column` its cells (n,), and `parsed` their codes,
float64 (n,): numbers, days since 1970, seconds, or 1 and 0 for truth values; NaN means a missing
value. Other arrays of codes or numbers have no missing values.
"""

import math
import re
from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from vicinal.features import _table_missing as missing
from vicinal.features import _table_times as times
from vicinal.features import table_columns as cells
from vicinal.features import table_kinds as kinds
from vicinal.features.table_columns import Codes, ParsedColumn
from vicinal.features.table_schema import IGNORED

SMALL_SAMPLE = 20
"""Up to this number of distinct values, a column has too few for statistics of its distribution."""

DATE_FORMAT_SAMPLE = 20
"""Number of values that are parsed first, which rejects most date formats without all values."""

CONSTANT = "all its values are equal"
EMPTY = "it has no values here; if private rows have some, declare its kind"
ROUNDED = "numbers of more than 15 digits are rounded"

_NORMAL_IQR = 1.3489795003921634
"""Interquartile range of the standard normal distribution, which turns quartiles into a spread."""

_SKEW_RATIO = 4.0
"""A logarithm is drafted if the 95 % quantile is more than this many times as far from the median
as the 5 % quantile."""

_MAX_BOUND_DISTANCE = 10.0
"""Largest distance of a drafted bound from the centre, in spreads, so that an absurd value does not
become a bound."""

_MIN_EXPECTED_PAIRS = 10.0
"""Expected number of equal pairs from which on distinct numbers are taken as row ids: if pairs were
equal by chance, none would be with probability exp(-10)."""

_MAX_EXACT = 2**53  # integers up to this one are exact as float64

_MIN_COMPACT_DATES = 5
"""Smallest number of distinct integers such as 20260131 that are drafted as dates, if all of them
are valid dates."""

_COMPACT_DATE = re.compile(r"(19|20)\d{6}", re.ASCII)
_NANOSECONDS = re.compile(r":\d\d[.,]\d{6}0*[1-9]")


class Draft(NamedTuple):
    """The draft of a column.

    `column`: the declaration, or only its kind if it has no features. `note`: remarks for the
    editor of the schema, separated by semicolons; empty if there are none. `has_codes`: whether the
    column is yes_no because its numbers are 0 and 1.
    """

    column: kinds.TableColumn | str
    note: str = ""
    has_codes: bool = False

    def add_notes(self, *notes: str) -> "Draft":
        """Return the draft with further notes; empty ones are left out."""
        return self._replace(note="; ".join(filter(None, (self.note, *notes))))

    def declare_missing(
        self, certain: Sequence[object], possible: Sequence[object] = ()
    ) -> "Draft":
        """Return the draft with markers of missing values, and notes on them for the editor.

        `certain`: values, as numbers or texts, that mark a missing cell. `possible`: values that
        may mark one, for a note only.
        """
        if not isinstance(self.column, kinds.TableColumn):
            return self
        values = (*certain, *self.column.missing_values)
        draft = self._replace(column=replace(self.column, missing_values=values))
        notes = []
        if certain:
            quoted = ", ".join(map(repr, certain))
            notes.append(f"these count as missing: {quoted}; take out those that are values")
        if possible:
            quoted = ", ".join(map(repr, possible))
            notes.append(
                f'these may stand for missing values: {quoted}; if so, add "missing_values"'
            )
        return draft.add_notes(*notes)


def describe_constant(codes: Codes) -> str:
    """Return the reason to ignore codes (n,) if fewer than two differ, else an empty text."""
    if len(np.unique(codes)) >= 2:
        return ""
    return CONSTANT if len(codes) else EMPTY


def get_missing_options(parsed: ParsedColumn) -> dict[str, Any]:
    """Return the options "missing" and "missing_share", the share of missing and faulty cells."""
    share = round_digits(np.isnan(parsed.codes).mean())
    return {"missing": True, "missing_share": min(0.99, share)}


def round_digits(number: float) -> float:
    """Return a number rounded to three significant digits."""
    return float(f"{number:.3g}")


def draft_yes_no(name: str, parsed: ParsedColumn, *, allow_constant: bool = False) -> Draft:
    """Return the draft of truth values; they are ignored if equal, unless `allow_constant`."""
    codes = parsed.present_codes
    reason = describe_constant(codes)
    if reason and not (allow_constant and len(codes)):
        return Draft(IGNORED, reason)
    yes_share = round_digits(float(codes.mean()))
    shares = (round_digits(1 - yes_share), yes_share)
    return Draft(kinds.YesNoColumn(name, **get_missing_options(parsed), shares=shares))


def draft_numbers(
    name: str, parsed: ParsedColumn, *, allow_whole: bool = True, has_censored_cells: bool = False
) -> Draft:
    """Return the draft of a column of numbers, in which sentinels such as -999 are missing.

    The column is ignored if it is constant or has row ids; its kind is "yes_no" if all numbers are
    0 or 1, else "whole" or "number". `allow_whole`: whether the kind may be "whole"; false for
    Arrow's floating types. `has_censored_cells`: whether cells such as <0.5 occur.
    """
    certain, possible = missing.find_sentinels(parsed.present_codes)
    parsed = parsed.exclude_codes(certain)
    numbers = parsed.present_codes
    reason = describe_constant(numbers)
    if reason:
        return Draft(IGNORED, reason)
    distinct = np.unique(numbers)
    are_whole = bool((numbers % 1 == 0).all())
    are_integers = allow_whole and are_whole
    if set(distinct.tolist()) <= {0.0, 1.0} and not has_censored_cells:
        draft = draft_yes_no(name, parsed)._replace(has_codes=True)
    # Also integers that a missing value has turned into floating-point numbers.
    elif are_whole and _are_row_ids(numbers, distinct):
        return Draft(IGNORED, "every row has a different number, as row numbers and ids have")
    else:
        scale = _draft_scale(numbers, log=_is_skewed(numbers, distinct), integers=are_integers)
        column_class = kinds.WholeColumn if are_integers else kinds.NumberColumn
        options = get_missing_options(parsed)
        column = column_class(name, **options, **scale, limits=has_censored_cells)
        note = "a cell such as <0.5 counts as its limit, 0.5" if has_censored_cells else ""
        draft = Draft(column, note)
    return draft.declare_missing(list(map(int, certain)), list(map(int, possible)))


def _are_row_ids(numbers: Codes, distinct: Codes) -> bool:
    """Return whether integers are probably row ids: all differ, where chance makes some equal.

    Of n numbers with a uniform distribution over a range of N, about n^2 / (2 N) pairs are equal;
    with any other distribution, more are. `numbers`: all integers (n,). `distinct`: the distinct
    ones, sorted.
    """
    expected_pairs = len(numbers) ** 2 / (2 * (float(distinct[-1] - distinct[0]) + 1))
    return len(numbers) == len(distinct) > SMALL_SAMPLE and expected_pairs >= _MIN_EXPECTED_PAIRS


def _is_skewed(numbers: Codes, distinct: Codes) -> bool:
    """Return whether numbers (n,) are nonnegative with a tail so long that it needs a logarithm.

    `distinct`: the distinct ones; if they are fewer than 20, the result is False.
    """
    if numbers.min() < 0 or len(distinct) < SMALL_SAMPLE:
        return False
    low, middle, high = np.quantile(numbers, [0.05, 0.5, 0.95])
    return bool(high - middle > _SKEW_RATIO * max(middle - low, 1e-12 * abs(high)))


def _draft_scale(numbers: Codes, *, log: bool, integers: bool) -> dict[str, Any]:
    """Return the fields low, high, center, spread and log of a column of numbers (n,).

    The centre is the median. The spread is the interquartile range divided by that of the standard
    normal distribution; if both quartiles are equal, the root mean square distance from the median.
    `log`: whether centre and spread are those of the logarithm. `integers`: whether the bounds are
    rounded outward to integers.
    """
    smallest, largest = float(numbers.min()), float(numbers.max())
    scaled = numbers
    if log:
        scaled = cells.apply_to_distinct(math.log if smallest > 0 else math.log1p, numbers)
    quartiles = np.quantile(scaled, [0.25, 0.5, 0.75])
    center = float(quartiles[1])
    spread = float((quartiles[2] - quartiles[0]) / _NORMAL_IQR)
    if not spread > 0 or not math.isfinite(spread):
        unit = float(np.abs(scaled - center).max())
        spread = unit * float(np.sqrt(np.square((scaled - center) / unit).mean()))
    low, high = smallest, largest
    if not log:
        low = max(smallest, center - _MAX_BOUND_DISTANCE * spread)
        high = min(largest, center + _MAX_BOUND_DISTANCE * spread)
    if integers:
        low, high = float(math.floor(low)), float(math.ceil(high))
    if not low < high:
        low, high = smallest, largest
    center = round(center, 2 - math.floor(math.log10(spread)))
    return {"low": low, "high": high, "center": center, "spread": round_digits(spread), "log": log}


def note_rounded_numbers(column: pa.ChunkedArray, draft: Draft) -> Draft:
    """Return the draft with a note if float64 rounds some integers or decimals of the column."""
    if not isinstance(draft.column, kinds.NumberColumn) or pa.types.is_floating(column.type):
        return draft
    values = column.drop_null().unique().to_pylist()
    if pa.types.is_integer(column.type):
        are_rounded = any(abs(value) > _MAX_EXACT for value in values)
    else:
        are_rounded = any(map(loses_digits, values))
    return draft.add_notes(ROUNDED if are_rounded else "")


def loses_digits(value: object) -> bool:
    """Return whether a decimal number, given as a number or a text, loses digits as float64.

    0.1 loses none: the shortest text of the nearest double is 0.1 again.
    """
    text = str(value).strip()
    if not cells.PLAIN_NUMBER.fullmatch(text):
        return False
    nearest = float(text)
    return math.isfinite(nearest) and Decimal(text) != Decimal(repr(nearest))


def list_distinct_texts(column: pa.ChunkedArray) -> list[str]:
    """Return the distinct texts of a column, sorted, without those that mean a missing value."""
    texts = set(map(cells.plain_text, column.drop_null().unique().to_pylist()))
    return sorted(text for text in texts if not cells.is_missing_text(text))


def draft_compact_dates(name: str, column: pa.ChunkedArray) -> Draft | None:
    """Return the draft of dates such as 20260131, or None if five do not differ or others occur."""
    is_date = _COMPACT_DATE.fullmatch
    if not all(map(is_date, list_distinct_texts(column.slice(0, SMALL_SAMPLE)))):
        return None  # most columns are rejected by a few rows
    distinct = list_distinct_texts(column)
    parsed = cells.parse_days(pa.chunked_array([distinct], pa.string()), cells.COMPACT_DATE)
    has_enough = len(distinct) >= _MIN_COMPACT_DATES
    if not has_enough or not all(map(is_date, distinct)) or parsed.faults.any():
        return None
    note = "its numbers are read as dates such as 20260131; if they are none, declare 'whole'"
    return draft_dates(name, column.cast(pa.string()), cells.COMPACT_DATE).add_notes(note)


def draft_dates(name: str, column: pa.ChunkedArray, date_format: str | None = None) -> Draft:
    """Return the draft of dates, with the time of day if it differs between rows.

    `date_format`: the strptime format of texts, such as "%d.%m.%Y"; None for texts such as
    2026-01-31, and for Arrow's own dates.
    """
    zone, zone_note = _find_common_zone(column)
    parsed = cells.parse_days(column, date_format, zone, with_time=True)
    notes = [zone_note]
    dates_only = cells.parse_days(column, date_format)
    if count_faults(parsed) > count_faults(dates_only):
        parsed, zone = dates_only, None
        notes = ["some of its times of day cannot be read, so all are left out"]
    certain, possible = missing.find_sentinels(parsed.present_codes, are_days=True)
    parsed = parsed.exclude_codes(certain)
    days = parsed.present_codes
    reason = describe_constant(days)
    if reason:
        return Draft(IGNORED, reason)
    fractions = np.unique(days % 1)
    with_time = len(fractions) > 1
    if with_time:
        notes.append('its time of day counts, too; to leave it out, remove "time"')
    else:
        days = np.floor(days)
        if fractions[0]:
            notes.append("its time of day is always the same, and is left out")
    if with_time and days.max() - days.min() < 2:  # hardly more than the time of day
        low, high = math.floor(days.min()), math.floor(days.max()) + 1
        scale: dict[str, Any] = {"low": float(low), "high": float(high)}
    else:
        scale = _draft_scale(days, log=False, integers=True)
        for key in ("low", "high", "center"):  # a schema has only years of four digits
            scale[key] = cells.parse_iso_date(cells.format_day(round(scale[key])))
    options = get_missing_options(parsed)
    column_draft = kinds.DateColumn(
        name, **options, **scale, form=date_format, time=with_time, zone=zone
    )
    certain_dates = list(map(cells.format_day, certain))
    possible_dates = list(map(cells.format_day, possible))
    return Draft(column_draft).declare_missing(certain_dates, possible_dates).add_notes(*notes)


def count_faults(parsed: ParsedColumn) -> int:
    """Return the number of cells of a column that cannot be parsed."""
    return int(np.count_nonzero(parsed.faults))


def _find_common_zone(column: pa.ChunkedArray) -> tuple[str | None, str]:
    """Return the zone to declare for moments, None if none of them has one; and a note on it."""
    zone_names: list[str] = []
    if pa.types.is_timestamp(column.type):
        zone_names = [] if column.type.tz is None else [column.type.tz]
    elif not pa.types.is_date(column.type):
        texts = column.drop_null().unique().to_pylist()
        offsets = {times.split_moment(text.strip())[2] for text in texts}
        zone_names = sorted(offset for offset in offsets if offset is not None)
    if not zone_names:
        return None, ""
    zones = set()
    for zone_name in zone_names:
        try:
            zones.add(times.find_zone(zone_name))
        except ValueError:
            return "UTC", 'its days and times are those of UTC; to change that, edit "zone"'
    if len(zones) > 1:
        return "UTC", (
            "its values have several offsets from UTC, and are converted to UTC; if they come from "
            'one place, write its time zone as "zone", such as Europe/Berlin'
        )
    zone = "UTC" if zone_names[0].upper() in ("Z", "GMT", "UTC") else zone_names[0]
    return zone, f"its days and times are those of {zone}"


def draft_times(name: str, parsed: ParsedColumn, *, may_be_durations: bool = False) -> Draft:
    """Return the draft of times of day; a note states if all cells `may_be_durations`."""
    reason = describe_constant(parsed.present_codes)
    if reason:
        return Draft(IGNORED, reason)
    note = "its values are read as times of day; if they are durations, declare that kind"
    column = kinds.TimeColumn(name, **get_missing_options(parsed))
    return Draft(column, note if may_be_durations else "")


def draft_durations(name: str, parsed: ParsedColumn, *, may_be_times: bool = False) -> Draft:
    """Return the draft of durations; a note states if all cells `may_be_times` of day."""
    seconds = parsed.present_codes
    reason = describe_constant(seconds)
    if reason:
        return Draft(IGNORED, reason)
    scale = _draft_scale(seconds, log=_is_skewed(seconds, np.unique(seconds)), integers=False)
    note = "its values are read as durations; if they are times of day, declare the kind 'time'"
    column = kinds.DurationColumn(name, **get_missing_options(parsed), **scale)
    return Draft(column, note if may_be_times else "")


def note_rounded_times(column: pa.ChunkedArray, draft: Draft) -> Draft:
    """Return the draft with a note if some times of the column have nanoseconds, which are lost."""
    if not isinstance(draft.column, kinds.TableColumn):
        return draft
    if cells.is_text(column):
        are_rounded = any(map(_NANOSECONDS.search, column.drop_null().unique().to_pylist()))
    elif getattr(column.type, "unit", "s") == "ns":
        nanoseconds = column.cast(pa.int64()).drop_null().unique().to_pylist()
        are_rounded = any(count % 1000 for count in nanoseconds)
    else:
        are_rounded = False
    return draft.add_notes("its times are rounded to microseconds" if are_rounded else "")
