"""A first schema, drafted from a public table for a person to edit; and rows made up from one."""

import itertools
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

from vicinal import checks
from vicinal.errors import InvalidInput
from vicinal.features import _table_missing as gaps
from vicinal.features import table_columns as cells
from vicinal.features import table_columns as kinds
from vicinal.features._table_times import find_zone, split_moment
from vicinal.features.csv_form import PLAIN_CSV, CsvForm, with_points
from vicinal.features.table_features import check_table
from vicinal.features.table_schema import IGNORED, TEXT, TableSchema, named_columns, table_columns
from vicinal.mechanisms.noise_sources import public_draws

MOST_CATEGORIES = 60
"""Values that a draft declares; rarer ones are "other"."""

_IDENTIFYING = 0.5
"""Texts of which more than this share differ identify rows, or are prose."""

_PROSE = 3
"""Words that a text of prose has on average, at least."""

_NORMAL_IQR = 1.3489795003921634
_SKEWED = 4.0
_FAR = 10.0
_COUNTED = 20
_ROWS_SHOWN = 5
_CERTAIN = 10.0
"""Pairs expected to be equal, from which on it is no accident that none is."""

_FITTING = 0.9
"""A column of texts is one of numbers or dates if this share of its values are."""

_MISSING_WORD = 0.05
"""A word for a missing value in so large a share of rows may be an answer."""

_LEVEL = re.compile(
    r"\s*([<>≤≥]?)=?\s*(?P<low>\d+(?:\.\d+)?)(?P<letter>[^\W\d_])?"
    r"(?:\s*[-\u2013]\s*(?P<high>\d+(?:\.\d+)?))?"
)
"""The text of a level: its number, or both numbers of a range. 1A has a letter, as codes have."""

_DATE_FORMS = (
    None, "%d.%m.%Y", "%d/%m/%Y", "%m/%d/%Y", "%d-%m-%Y", "%m-%d-%Y", "%Y/%m/%d", "%Y.%m.%d",
    "%d %b %Y", "%d-%b-%Y", "%d.%m.%y", "%m/%d/%y", "%d/%m/%y",
)  # fmt: skip
"""How dates are written, None: 2026-01-31; of two that fit equally well the first is drafted."""

_DRESSED = re.compile(r"[€$£]?\s?-?\d+([.,'\u2019\s]\d{3})*([.,]\d+)?\s?[%€$£]?")
"""A number as people read it; a plain one, too."""
_MARKS = re.compile(r"[€$£%,'\u2019\s]|\..*\.")
"""Marks that a number for people has, and a plain number or a code of digits has not."""
_THOUSANDS = re.compile(r"\D*[1-9]\d{0,2}([.,'\u2019\s]\d{3})+(?!\d).*")
_POINTS_BEFORE_THREE_DIGITS = re.compile(r"[<>≤≥]?=?\s*-?(0|[1-9]\d{0,2}(\.\d{3})*)")
_DAY_DIGITS = re.compile(r"(19|20)\d{6}", re.ASCII)
_MIN_DAYS = 5  # at least 5 different numbers such as 20260131 are dates if all can be

_NANOSECONDS = re.compile(r":\d\d[.,]\d{6}0*[1-9]")

_MAX_EXACT = 2**53
"""Whole numbers up to this one are exact as float64."""

_CONSTANT = "all its values are equal"
_EMPTY = "it has no values here; if private rows have some, declare its kind"

Draft = tuple[kinds.TableColumn | str, str]
"""A column, or a kind without features; and a note for the person who edits it, or nothing."""


def draft_schema(
    table: Any, leave_out: Sequence[str] = (), file: CsvForm = PLAIN_CSV
) -> tuple[TableSchema, list[str]]:
    """Return a schema for tables like this public one, and notes for the person who edits it.

    Parameters
    ----------
    table
        **Public** rows, as :class:`~vicinal.features.TableFeatures` takes tables. Their values are
        written into the schema: never draft one from private records.
    leave_out : sequence of str
        Columns that are no features, such as the label's and the subject's.
    file : CsvForm, optional
        How the file was written that the rows came from, where it was CSV.

    Raises
    ------
    InvalidInput
        If the table has no rows, or two columns of one name.

    Examples
    --------
    >>> from vicinal.features import draft_schema
    >>> schema, notes = draft_schema({"age": [31, 45, 64, 28] * 25, "sex": ["f", "m"] * 50})
    >>> schema.names
    ('age', 'sex')
    """
    _, size, names = table_columns(table, ())
    if size == 0:
        raise InvalidInput("The public table must have at least one row.")
    if len(set(names)) != len(names):
        raise InvalidInput("The public table has two columns with the same name. Drop one.")
    absent = set(map(checks.normalize_text, leave_out))
    drafts = {
        name: (IGNORED, "")
        if name in absent
        else _validate_draft(*_draft_column(table, name, file))
        for name in names
    }
    notes = [
        f"{name or '(no name)'!r} is {getattr(draft, 'kind', draft)}: {note}."
        for name, (draft, note) in drafts.items()
        if note
    ]
    columns = tuple(draft for draft, _ in drafts.values() if isinstance(draft, kinds.TableColumn))
    ignored, texts = (
        tuple(name for name, (draft, _) in drafts.items() if draft == kind)
        for kind in (IGNORED, TEXT)
    )
    schema = TableSchema(columns, ignored, texts, file)
    return schema, [*notes, *_describe_misfits(table, schema)]


def _describe_misfits(table: Any, schema: TableSchema) -> list[str]:
    """Return a note for everything that a check of the public table against its draft finds."""
    kind_of = {column.name: column.kind for column in schema.columns}
    columns = table_columns(table, schema.names)[0]
    if schema.file.decimal == ",":
        for name, column in columns.items():
            if schema.reads_numbers(name) and str(column.type) in ("string", "large_string"):
                columns[name] = with_points(column)
    notes = []
    for misfit in check_table(pa.table(columns), schema) if columns else []:
        rows = misfit.rows or ()
        shown = ", ".join(map(str, rows[:_ROWS_SHOWN]))
        problem = misfit.fault
        if rows:
            noun = "row holds" if len(rows) == 1 else "rows hold"
            problem = f"{len(rows)} {noun} {misfit.fault}, for example row {shown}"
        name = str(misfit.column)
        notes.append(f"{name or '(no name)'!r} is {kind_of[name]}: {problem}. {misfit.fix}.")
    return notes


def _validate_draft(draft: kinds.TableColumn | str, note: str) -> Draft:
    """Return a draft that the schema's own checks accept."""
    if isinstance(draft, kinds.TableColumn):
        try:
            TableSchema.from_dict(TableSchema((draft,)).to_dict())
        except InvalidInput:
            return IGNORED, "its numbers are too large, or too close together, to be compared"
    return draft, note


def _draft_column(table: Any, name: str, file: CsvForm) -> Draft:
    try:
        column = table_columns(table, [name])[0][name]
    except InvalidInput:
        return IGNORED, "it holds several types of value, or one that tables do not have"
    kind = column.type
    if len(column) == column.null_count:
        return IGNORED, _EMPTY
    if pa.types.is_date(kind) or pa.types.is_timestamp(kind):
        return _exact_time(column, _draft_date(name, column))
    if pa.types.is_time(kind):
        return _exact_time(column, _draft_time(name, cells.times_of_day(column)))
    if pa.types.is_duration(kind):
        return _exact_time(column, _draft_duration(name, cells.durations(column)))
    if pa.types.is_boolean(kind):
        return _yes_no(name, cells.truths(column), may_be_constant=True)
    if pa.types.is_integer(kind):
        days = _days_as_digits(name, column)
        return days or _note_rounded_numbers(
            column, _draft_number(name, cells.parse_numbers(column))
        )
    if pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        draft = _note_rounded_numbers(
            column, _draft_number(name, cells.parse_numbers(column), may_be_whole=False)
        )
        note = "its numbers look like dates such as 20260131, which are read from integers"
        return _with_note(draft, note if _days_as_digits(name, column) else "")
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return _draft_text(name, column, _order_of(table, name), file)
    return IGNORED, "it holds a type of value that tables do not have"


def _with_note(draft: Draft, *notes: str) -> Draft:
    """Return a draft with further notes; empty ones are left out."""
    column, note = draft
    return column, "; ".join(filter(None, (note, *notes)))


def _note_rounded_numbers(column: pa.ChunkedArray, draft: Draft) -> Draft:
    """Return the draft of a column of numbers, with a note if some are rounded."""
    if not isinstance(draft[0], kinds.NumberColumn) or pa.types.is_floating(column.type):
        return draft
    values = column.drop_null().unique().to_pylist()
    is_integer = pa.types.is_integer(column.type)
    is_rounded = any(abs(v) > _MAX_EXACT if is_integer else _is_rounded(v) for v in values)
    return _with_note(draft, "numbers of more than 15 digits are rounded" if is_rounded else "")


def _exact_time(column: pa.ChunkedArray, draft: Draft) -> Draft:
    """Return the draft of a column of times, with a note if some are rounded."""
    if not isinstance(draft[0], kinds.TableColumn):
        return draft
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        is_rounded = any(map(_NANOSECONDS.search, column.drop_null().unique().to_pylist()))
    else:
        units = column.cast(pa.int64()) if getattr(column.type, "unit", "s") == "ns" else column[:0]
        is_rounded = any(n % 1000 for n in units.drop_null().unique().to_pylist())
    return _with_note(draft, "its times are rounded to microseconds" if is_rounded else "")


def _is_rounded(value: object) -> bool:
    """Return whether a decimal number, or its text, has more digits than float64."""
    text = str(value).strip()
    if not cells.PLAIN_NUMBER.fullmatch(text):
        return False
    nearest = float(text)
    return math.isfinite(nearest) and Decimal(text) != Decimal(repr(nearest))


def _describe_missing(certain: Iterable[object], possible: Iterable[object] = ()) -> list[str]:
    """Return notes on values that the draft declares missing, and on those that may be."""
    declared = ", ".join(map(repr, certain))
    suspected = ", ".join(map(repr, possible))
    notes = ["", ""]
    if declared:
        notes[0] = f"these count as missing: {declared}; take out those that are values"
    if suspected:
        notes[1] = f'these may stand for missing values: {suspected}; if so, add "missing_values"'
    return notes


def _as_json(numbers: Iterable[float]) -> tuple[int, ...]:
    return tuple(int(number) for number in numbers)


def _drop(reading: kinds.Reading, codes: Sequence[float]) -> kinds.Reading:
    """Return a reading with these codes missing."""
    present = ~np.isin(reading.codes, codes)
    return kinds.Reading(np.where(present, reading.codes, np.nan), reading.faults)


def _order_of(table: Any, name: str) -> list[str] | None:
    """Return the texts of an ordered category of Arrow or pandas in their order, else None."""
    named = named_columns(table)[0]
    column = next(column for key, column in named if checks.normalize_text(key) == name)
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    kind: Any = getattr(column, "type", getattr(column, "dtype", None))
    if not getattr(kind, "ordered", False):
        return None
    values = kind.categories if hasattr(kind, "categories") else column.dictionary.to_pylist()
    return list(dict.fromkeys(filter(None, map(cells.plain_text, values))))


def _missing_options(reading: kinds.Reading) -> dict[str, Any]:
    """Return what all drafts have: missing values allowed, and how often they are met."""
    return {
        "missing": True,
        "missing_share": min(0.99, _round_share(np.isnan(reading.codes).mean())),
    }


def _round_share(value: float) -> float:
    return float(f"{value:.3g}")


def _yes_no(name: str, reading: kinds.Reading, *, may_be_constant: bool = False) -> Draft:
    valid_codes = reading.codes[~np.isnan(reading.codes)]
    if len(valid_codes) == 0:
        return IGNORED, _EMPTY
    if not may_be_constant and len(np.unique(valid_codes)) < 2:
        return IGNORED, _CONSTANT
    yes = _round_share(float(valid_codes.mean()))
    return kinds.YesNoColumn(
        name, **_missing_options(reading), shares=(_round_share(1 - yes), yes)
    ), ""


def _draft_number(
    name: str, reading: kinds.Reading, *, may_be_whole: bool = True, limits: bool = False
) -> Draft:
    candidates = gaps.find_missing_numbers(reading.codes[~np.isnan(reading.codes)])
    draft = _number(
        name, _drop(reading, candidates.certain), may_be_whole=may_be_whole, limits=limits
    )
    return _with_missing(draft, _as_json(candidates.certain), _as_json(candidates.possible))


def _with_missing(
    draft: Draft, certain: Sequence[object], possible: Sequence[object] = ()
) -> Draft:
    """Return a draft that declares missing values, with notes on them."""
    column, _ = draft
    if not isinstance(column, kinds.TableColumn):
        return draft
    declared = replace(column, missing_values=(*certain, *column.missing_values))
    return _with_note((declared, draft[1]), *_describe_missing(certain, possible))


def _number(name: str, reading: kinds.Reading, *, may_be_whole: bool, limits: bool) -> Draft:
    valid_codes = reading.codes[~np.isnan(reading.codes)]
    distinct = np.unique(valid_codes)
    if len(distinct) < 2:
        return IGNORED, _CONSTANT if len(distinct) else _EMPTY
    if set(distinct.tolist()) <= {0.0, 1.0} and not limits:
        return _yes_no(name, reading)
    are_integers = may_be_whole and bool((valid_codes % 1 == 0).all())
    if are_integers and _is_identifier(valid_codes, distinct):
        return IGNORED, "every row has a different number, as row numbers and ids have"
    log = _is_skewed(valid_codes, distinct)
    column_class = kinds.WholeColumn if are_integers else kinds.NumberColumn
    bounds = _range_of(valid_codes, log=log, integers=are_integers)
    note = "a cell such as <0.5 counts as its limit, 0.5" if limits else ""
    return column_class(name, **_missing_options(reading), **bounds, limits=limits), note


def _is_identifier(valid_codes: kinds.Codes, distinct: kinds.Codes) -> bool:
    """Tell whether whole numbers differ in all rows although random ones would coincide.

    Of n numbers spread evenly over a range of N about n^2 / (2 N) pairs are equal, of others more.
    """
    pairs = len(valid_codes) ** 2 / (2 * (float(distinct[-1] - distinct[0]) + 1))
    return len(valid_codes) == len(distinct) > _COUNTED and pairs >= _CERTAIN


def _days_as_digits(name: str, column: pa.ChunkedArray) -> Draft | None:
    """Return the draft of days written as 20260131, None of other texts or numbers."""
    if not all(map(_DAY_DIGITS.fullmatch, _distinct_texts(column.slice(0, _COUNTED)))):
        return None  # known from a few rows of most columns
    distinct = _distinct_texts(column)
    days = cells.days(pa.chunked_array([distinct], pa.string()), cells.DAY_DIGITS)
    n_days = sum(_DAY_DIGITS.fullmatch(text) is not None for text in distinct)
    if n_days < max(_MIN_DAYS, len(distinct)) or days.faults.any():
        return None
    note = "its numbers are read as dates such as 20260131; if they are none, declare 'whole'"
    return _with_note(_draft_date(name, column.cast(pa.string()), cells.DAY_DIGITS), note)


def _draft_date(name: str, column: pa.ChunkedArray, form: str | None = None) -> Draft:
    """Return the draft of dates, with the time of day where it differs between rows."""
    zone, zone_note = _find_zone_of(column)
    reading = cells.days(column, form, zone, with_time=True)
    notes = [zone_note]
    plain_reading = cells.days(column, form)
    if (reading.faults != cells.OK).sum() > (plain_reading.faults != cells.OK).sum():
        reading, zone = plain_reading, None
        notes = ["some of its times of day cannot be read, so all are left out"]
    candidates = gaps.find_missing_days(reading.codes[~np.isnan(reading.codes)])
    reading = _drop(reading, candidates.certain)
    valid_codes = reading.codes[~np.isnan(reading.codes)]
    if len(np.unique(valid_codes)) < 2:
        return IGNORED, _CONSTANT if len(valid_codes) else _EMPTY
    fractions = np.unique(valid_codes % 1)
    if with_time := len(fractions) > 1:
        notes.append('its time of day counts, too; to leave it out, remove "time"')
    elif fractions[0]:
        notes.append("its time of day is always the same, and is left out")
    if not with_time:
        valid_codes = np.floor(valid_codes)
    if with_time and valid_codes.max() - valid_codes.min() < 2:  # hardly more than the time of day
        first, last = math.floor(valid_codes.min()), math.floor(valid_codes.max())
        bounds: dict[str, Any] = {"low": float(first), "high": last + 1.0}
    else:
        bounds = _range_of(valid_codes, log=False, integers=True)
        for key in ("low", "high", "center"):  # a date has four digits for its year
            bounds[key] = cells.day_number(cells.date_of(round(bounds[key])))
    draft = kinds.DateColumn(
        name, **_missing_options(reading), **bounds, form=form, time=with_time, zone=zone
    )
    dates = [
        [cells.date_of(day) for day in days] for days in (candidates.certain, candidates.possible)
    ]
    return _with_note(_with_missing((draft, ""), *dates), *notes)


def _find_zone_of(column: pa.ChunkedArray) -> tuple[str | None, str]:
    """Return the time zone in which moments are read, None where they have none; and a note."""
    if pa.types.is_timestamp(column.type):
        names = [] if column.type.tz is None else [column.type.tz]
    elif pa.types.is_date(column.type):
        names = []
    else:
        texts = column.drop_null().unique().to_pylist()
        offsets = {split_moment(text.strip())[2] for text in texts}
        names = sorted(offset for offset in offsets if offset is not None)
    if not names:
        return None, ""
    zones = set()
    for zone_name in names:
        try:
            zones.add(find_zone(zone_name))
        except ValueError:
            return "UTC", 'its days and times are those of UTC; to change that, edit "zone"'
    if len(zones) > 1:
        return "UTC", (
            "its values have several offsets from UTC, and are converted to UTC; if they come from "
            'one place, write its time zone as "zone", such as Europe/Berlin'
        )
    zone = "UTC" if names[0].upper() in ("Z", "GMT", "UTC") else names[0]
    return zone, f"its days and times are those of {zone}"


def _draft_time(name: str, reading: kinds.Reading, *, may_be_elapsed: bool = False) -> Draft:
    valid_codes = reading.codes[~np.isnan(reading.codes)]
    if len(np.unique(valid_codes)) < 2:
        return IGNORED, _CONSTANT if len(valid_codes) else _EMPTY
    note = "its values are read as times of day; if they are durations, declare that kind"
    return kinds.TimeColumn(name, **_missing_options(reading)), note if may_be_elapsed else ""


def _draft_duration(name: str, reading: kinds.Reading, *, may_be_clock: bool = False) -> Draft:
    valid_codes = reading.codes[~np.isnan(reading.codes)]
    distinct = np.unique(valid_codes)
    if len(distinct) < 2:
        return IGNORED, _CONSTANT if len(valid_codes) else _EMPTY
    bounds = _range_of(valid_codes, log=_is_skewed(valid_codes, distinct), integers=False)
    note = "its values are read as durations; if they are times of day, declare the kind 'time'"
    draft = kinds.DurationColumn(name, **_missing_options(reading), **bounds)
    return draft, note if may_be_clock else ""


def _is_skewed(valid_codes: kinds.Codes, distinct: kinds.Codes) -> bool:
    """Return whether numbers are so right-skewed that distances need a logarithm."""
    if valid_codes.min() < 0 or len(distinct) < _COUNTED:
        return False
    low, middle, high = np.quantile(valid_codes, [0.05, 0.5, 0.95])
    return bool(high - middle > _SKEWED * max(middle - low, 1e-12 * abs(high)))


def _range_of(valid_codes: kinds.Codes, *, log: bool, integers: bool) -> dict[str, Any]:
    """Return bounds, centre and spread: median and quartiles, the deviation where these agree."""
    smallest, largest = float(valid_codes.min()), float(valid_codes.max())
    scaled = (
        cells.each(math.log if smallest > 0 else math.log1p, valid_codes) if log else valid_codes
    )
    quartiles = np.quantile(scaled, [0.25, 0.5, 0.75])
    center, spread = float(quartiles[1]), float((quartiles[2] - quartiles[0]) / _NORMAL_IQR)
    if not spread > 0 or not math.isfinite(spread):
        unit = float(np.abs(scaled - center).max())
        spread = unit * float(np.sqrt(np.square((scaled - center) / unit).mean()))
    low, high = smallest, largest
    if not log:  # what lies absurdly far out is no bound
        low = max(smallest, center - _FAR * spread)
        high = min(largest, center + _FAR * spread)
    if integers:
        low, high = float(math.floor(low)), float(math.ceil(high))
    if not low < high:
        low, high = smallest, largest
    digits = 2 - math.floor(math.log10(spread))
    center = round(center, digits)
    return {"low": low, "high": high, "center": center, "spread": _round_share(spread), "log": log}


def _draft_text(
    name: str, column: pa.ChunkedArray, order: list[str] | None, file: CsvForm
) -> Draft:
    distinct = _distinct_texts(column)
    if len(distinct) < 2:
        return IGNORED, _CONSTANT if distinct else _EMPTY
    if order is not None:
        return _draft_category(name, column, order, file)
    symbols, nouns = gaps.find_missing_texts(distinct)
    for missing in ([*symbols, *nouns], symbols) if nouns else (symbols,):
        present = _mask_texts(column, missing)
        values = _distinct_texts(present)
        draft = _read_as(name, present, values, file) if len(values) > 1 else None
        # "unknown" may be an answer beside yes and no, but is no number and no date.
        if draft and not (isinstance(draft[0], kinds.YesNoColumn) and set(missing) & set(nouns)):
            return _with_missing(draft, missing)
    if len(_distinct_texts(_mask_texts(column, symbols))) < 2:
        nouns = [*symbols, *nouns]
        symbols = []
    draft = _draft_category(name, _mask_texts(column, symbols), None, file)
    possible = [*nouns, *gaps.find_number_texts(distinct)]
    return _with_missing(draft, symbols, possible)


def _distinct_texts(column: pa.ChunkedArray) -> list[str]:
    """Return all different texts of a column, sorted, without those for a missing value."""
    texts = set(map(cells.plain_text, column.drop_null().unique().to_pylist()))
    return sorted(text for text in texts if not cells.is_missing(text))


def _mask_texts(column: pa.ChunkedArray, texts: list[str]) -> pa.ChunkedArray:
    return cells.without_values(column, {*map(cells.comparable, texts)}) if texts else column


def _draft_category(
    name: str, column: pa.ChunkedArray, order: list[str] | None, file: CsvForm
) -> Draft:
    """Return the draft of texts that are neither numbers nor dates: levels, a category, prose."""
    counts = Counter(cells.plain_text(value) for value in column.drop_null().to_pylist())
    absent = Counter({text: n for text, n in counts.items() if cells.is_missing(text)})
    counts -= absent
    frequent = {text for text, n in absent.items() if n >= _MISSING_WORD * len(column)}
    answers = ", ".join(map(repr, sorted(frequent - {"", *(order or ())})))
    texts = list(counts.elements())
    distinct = sorted(counts)
    notes = [_describe_dressed(distinct, file) if order is None else ""]
    if notes[0] and (len(distinct) > _COUNTED or any(map(_THOUSANDS.fullmatch, distinct))):
        return IGNORED, notes[0]
    if answers:
        notes.append(f'counted as missing: {answers}; add answers among them to "values"')
    common = [text for text, _ in sorted(counts.items(), key=lambda of: -of[1])][:MOST_CATEGORIES]
    n_others = len(texts) - sum(counts[text] for text in common)
    others = n_others / len(texts)
    words = sum(len(text.split()) for text in texts) / len(texts)
    own = len(distinct) > _IDENTIFYING * len(texts) and len(texts) > _COUNTED
    if words >= _PROSE and (own or (words >= 2 * _PROSE and others)):
        return TEXT, (
            "it holds free text, which --features table cannot use; set its kind to ignored, or "
            "use --features text"
        )
    if own and (others or len(distinct) == len(texts)):
        return IGNORED, "nearly every value differs, as with identifiers"
    if others > _FITTING:
        return IGNORED, (
            f"it has {len(distinct)} different values, and the {MOST_CATEGORIES} most frequent "
            "ones are less than a tenth of the rows; write coarser ones, such as the first digits"
        )
    levels, level_note = (order, "") if order is not None else _order_levels(distinct)
    if levels is not None and 2 <= len(levels) <= MOST_CATEGORIES:
        column_draft = _declare_column(kinds.LevelsColumn, name, column, tuple(levels), len(texts))
        return _with_note((column_draft, level_note), *notes)
    if order is not None:
        notes.append(f"the order of its values is lost, as levels have 2 to {MOST_CATEGORIES}")
    if len(set(map(cells.fold_spelling, common))) < len(common):
        notes.append("some of its values differ only in spelling, and count as different ones")
    verb = "row has a value" if n_others == 1 else "rows have values"
    note = f"{n_others} {verb} other than the {MOST_CATEGORIES} declared, and count as one value"
    column_draft = _declare_column(
        kinds.CategoryColumn, name, column, tuple(sorted(common)), len(texts)
    )
    return _with_note((column_draft, note if n_others else ""), *notes)


def _describe_dressed(distinct: list[str], file: CsvForm) -> str:
    """Return a note if all texts are numbers, and some have marks that are not read."""
    joined = "\n".join(distinct)
    has_marks = (file.decimal == "," and "." in joined) or any(map(_MARKS.search, distinct))
    if not has_marks or not all(map(_DRESSED.fullmatch, distinct)):
        return ""
    may_be_decimal = file.decimal == "." and "," in joined and "." not in joined
    remedy = ', or declare "decimal": "," (--decimal ,)' if may_be_decimal else ""
    return (
        "its numbers have separators of thousands, a % or a currency, or another decimal mark, "
        f"which are not read; write them as 1234{file.decimal}5{remedy}"
    )


def _read_as(
    name: str, column: pa.ChunkedArray, distinct: list[str], file: CsvForm
) -> Draft | None:
    """Return the draft of texts that are truth values, numbers, dates or times; None of others.

    Of many different values one in ten may be none: a fault of the table, which a note describes.
    """
    if days := _days_as_digits(name, column):
        return days
    tried: list[tuple[kinds.Reading, Callable[..., Draft], dict[str, Any]]] = []
    many = len(distinct) > _COUNTED
    pointed = with_points(column) if file.decimal == "," else column
    if not any(cells.CODE.fullmatch(text) for text in distinct):
        tried += [
            (cells.truths(pointed), _yes_no, {}),
            (cells.parse_numbers(pointed), _draft_number, {}),
        ]
        if many:  # few are levels, of which <10 is one
            tried.append(
                (cells.parse_numbers(pointed, limits=True), _draft_number, {"limits": True})
            )
    some = pa.chunked_array([distinct[:_COUNTED]])
    forms = [form for form in _DATE_FORMS if not cells.days(some, form).faults.all()]
    tried += [(cells.days(column, form), _draft_date, {"form": form}) for form in forms]
    clock_times = cells.times_of_day(column)
    elapsed_times = cells.durations(column)
    valid_codes = clock_times.codes[~np.isnan(clock_times.codes)]
    times = (clock_times, _draft_time, {"may_be_elapsed": not elapsed_times.faults.any()})
    durations = (elapsed_times, _draft_duration, {"may_be_clock": not clock_times.faults.any()})
    # Clock times of which none reaches 01:00 are more probably durations.
    tried += (
        [durations, times] if len(valid_codes) and valid_codes.max() < 3600 else [times, durations]
    )
    sizes = [int((reading.faults != cells.OK).sum()) for reading, _, _ in tried]
    least = min(sizes)
    if least > (1 - _FITTING if many else 0) * len(column):
        return None
    fitting = [each for each, size in zip(tried, sizes, strict=True) if size == least]
    reading, draft, options = fitting[0]
    form = options.get("form")
    if form is not None and form.endswith("%y"):
        return IGNORED, "its years have two digits; write four, or declare the date's form"
    column_draft = draft(name, column if draft is _draft_date else reading, **options)
    if form is not None:
        alike = [other for *_, other in fitting if other.get("form") not in (form, None)]
        other = f'; {alike[0]["form"]} fits too, so check "form"' if alike else ""
        column_draft = _with_note(column_draft, f"its dates are read as {form}{other}")
    if draft in (_draft_date, _draft_time, _draft_duration):
        column_draft = _exact_time(column, column_draft)
    texts = _distinct_texts(pointed) if draft is _draft_number else []
    if any(map(_is_rounded, texts)):
        column_draft = _with_note(column_draft, "numbers of more than 15 digits are rounded")
    if any("." in t for t in texts) and all(map(_POINTS_BEFORE_THREE_DIGITS.fullmatch, texts)):
        note = f"if its {file.decimal!r} separates thousands, write 12345: three digits follow each"
        return _with_note(column_draft, note)
    return column_draft


def _order_levels(distinct: list[str]) -> tuple[list[str] | None, str]:
    """Return texts in the order of the numbers they all begin with, and a note on likely codes."""
    matches = {text: match for text in distinct if (match := _LEVEL.match(text))}
    keys = {
        text: (float(match["low"]), {"<": -1, "≤": -1, "": 0}.get(match[1], 1), text)
        for text, match in matches.items()
    }
    codes = any(cells.CODE.match(text) for text in distinct)
    if codes or len(keys) < len(distinct) or len(distinct) < 3:
        return None, ""
    levels = sorted(distinct, key=lambda text: keys[text])
    may_be_codes = any(match["letter"] for match in matches.values())
    for lower, upper in itertools.pairwise(levels):
        end = float(matches[lower]["high"] or keys[lower][0])
        may_be_codes |= end > keys[upper][0] or keys[lower][:2] == keys[upper][:2]
    note = "its values are read as ordered; if they are not, declare category"
    return levels, note if may_be_codes else ""


def _declare_column(
    column_class: type[kinds.LevelsColumn] | type[kinds.CategoryColumn],
    name: str,
    column: pa.ChunkedArray,
    values: tuple[str, ...],
    size: int,
) -> kinds.TableColumn:
    """Return a column of these values, with the shares that the public table shows."""
    bare = column_class(name, values=values)
    reading = bare.read(column)
    valid_codes = reading.codes[~np.isnan(reading.codes)].astype(np.int64)
    counts = np.bincount(valid_codes, minlength=bare.n_values)
    shares = tuple(_round_share(count / max(size, 1)) for count in counts.tolist())
    return column_class(
        name, **_missing_options(reading), values=values, shares=shares if sum(shares) else ()
    )


def rows_from_schema(schema: TableSchema, size: int = 2000, seed: int | None = None) -> pa.Table:
    """Return made-up rows, column by column from what the schema declares.

    Numbers follow a normal law where centre and spread are declared, else a uniform one; levels
    and categories come as often as their shares say, else alike; values are missing as often as
    "missing" says. Columns are independent: real rows are not, so take real public rows where
    there are some.

    Parameters
    ----------
    schema : TableSchema
        Public.
    size : int
        How many rows.
    seed : int, optional
        Makes the rows repeatable. They are public, and no privacy hangs on them.

    Returns
    -------
    pyarrow.Table
        As :class:`~vicinal.features.TableFeatures` takes tables.

    Examples
    --------
    >>> from vicinal.features import draft_schema, rows_from_schema
    >>> schema, notes = draft_schema({"age": [31, 45, 64, 28] * 25, "sex": ["f", "m"] * 50})
    >>> rows_from_schema(schema, size=3, seed=0).num_rows
    3
    """
    size = checks.check_integer("size", size, least=1)
    generator = public_draws(seed)
    cells = {}
    for column in schema.usable().columns:
        values = column.made_up(generator.random(size))
        absent = generator.random(size) < column.missing_share
        cells[column.name] = column.cells(np.where(absent, np.nan, values))
    return pa.table(cells)
