"""A first schema, drafted from a public table for a person to edit; and rows made up from one."""

import math
import re
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from vicinal import _checks
from vicinal.errors import InvalidInput
from vicinal.features import _table_columns as cells
from vicinal.features import _table_columns as kinds
from vicinal.features._csv_form import PLAIN_CSV, CsvForm, with_points
from vicinal.features._table_schema import IGNORED, TEXT, TableSchema, nfc, table_columns
from vicinal.mechanisms import public_draws

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
_CERTAIN = 10.0
"""Pairs expected to be equal, from which on it is no accident that none is."""

_FITTING = 0.9
"""A column of texts is one of numbers or dates if this share of its values are."""

_LEADING_ZERO = re.compile(r"-?0\d+")
_LEVEL = re.compile(r"\s*([<>≤≥]?)\s*(\d+(?:\.\d+)?)")

_DATE_FORMS = (
    None, "%d.%m.%Y", "%d/%m/%Y", "%m/%d/%Y", "%d-%m-%Y", "%m-%d-%Y", "%Y/%m/%d", "%Y.%m.%d",
    "%d %b %Y", "%d-%b-%Y", "%d.%m.%y", "%m/%d/%y", "%d/%m/%y",
)  # fmt: skip
"""How dates are written, None: 2026-01-31; of two that fit equally well the first is drafted."""

_DRESSED = re.compile(r"[€$£]?\s?-?\d+([.,'\u2019\s]\d{3})*([.,]\d+)?\s?[%€$£]?")
"""A number as people read it; a plain one, too."""

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
    absent = set(map(nfc, leave_out))
    drafts = {
        name: (IGNORED, "") if name in absent else _sound(*_drafted(table, name, file))
        for name in names
    }
    notes = [
        f"{name!r} is {getattr(draft, 'kind', draft)}: {note}."
        for name, (draft, note) in drafts.items()
        if note
    ]
    columns = tuple(draft for draft, _ in drafts.values() if isinstance(draft, kinds.TableColumn))
    ignored, texts = (
        tuple(name for name, (draft, _) in drafts.items() if draft == kind)
        for kind in (IGNORED, TEXT)
    )
    return TableSchema(columns, ignored, texts, file), notes


def _sound(draft: kinds.TableColumn | str, note: str) -> Draft:
    """Return a draft that the schema's own checks accept."""
    if isinstance(draft, kinds.TableColumn):
        try:
            TableSchema.from_dict(TableSchema((draft,)).to_dict())
        except InvalidInput:
            return IGNORED, "its numbers are too large, or too close together, to be compared"
    return draft, note


def _drafted(table: Any, name: str, file: CsvForm) -> Draft:
    try:
        column = table_columns(table, [name])[0][name]
    except InvalidInput:
        return IGNORED, "it holds several types of value, or one that tables do not have"
    kind, valid = column.type, len(column) - column.null_count
    if valid == 0:
        return IGNORED, "it is empty"
    if pa.types.is_date(kind) or pa.types.is_timestamp(kind):
        return _date(name, cells.days(column))
    if pa.types.is_boolean(kind):
        return _yes_no(name, cells.truths(column))
    if pa.types.is_integer(kind):
        return _numeric(name, cells.numbers(column))
    if pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        return _numeric(name, cells.numbers(column), may_be_whole=False)
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return _textual(name, column, _order_of(table, name), file)
    return IGNORED, "it holds a type of value that tables do not have"


def _order_of(table: Any, name: str) -> list[str] | None:
    """Return the order of an ordered dictionary, where the table has one."""
    if not isinstance(table, pa.Table) or name not in table.column_names:
        return None
    column = table[name]
    if not pa.types.is_dictionary(column.type) or not column.type.ordered:
        return None
    return list(map(cells.plain_text, column.combine_chunks().dictionary.to_pylist()))


def _common(reading: kinds.Reading) -> dict[str, Any]:
    """Return what all drafts have: missing values allowed, and how often they are met."""
    return {"missing": True, "missing_share": min(0.99, _rounded(np.isnan(reading.codes).mean()))}


def _rounded(value: float) -> float:
    return float(f"{value:.3g}")


def _yes_no(name: str, reading: kinds.Reading) -> Draft:
    known = reading.codes[~np.isnan(reading.codes)]
    if len(known) == 0:
        return IGNORED, "it is empty"
    yes = _rounded(float(known.mean()))
    return kinds.YesNoColumn(name, **_common(reading), shares=(_rounded(1 - yes), yes)), ""


def _numeric(
    name: str, reading: kinds.Reading, *, may_be_whole: bool = True, limits: bool = False
) -> Draft:
    known = reading.codes[~np.isnan(reading.codes)]
    distinct = np.unique(known)
    if len(distinct) < 2:
        return IGNORED, "it has no values, or only one"
    if set(distinct.tolist()) <= {0.0, 1.0}:
        return _yes_no(name, reading)
    are_integers = may_be_whole and bool((known % 1 == 0).all())
    if are_integers and _identifies(known, distinct):
        return IGNORED, "every row has a different number, as row numbers and ids have"
    log = _is_skewed(known, distinct)
    column_class = kinds.WholeColumn if are_integers else kinds.NumberColumn
    bounds = _range_of(known, log=log, integers=are_integers)
    return column_class(name, **_common(reading), **bounds, limits=limits), ""


def _identifies(known: kinds.Codes, distinct: kinds.Codes) -> bool:
    """Tell whether whole numbers differ in all rows although so many would coincide by chance.

    Of n numbers spread evenly over a range of N about n^2 / (2 N) pairs are equal, of others more.
    """
    pairs = len(known) ** 2 / (2 * (float(distinct[-1] - distinct[0]) + 1))
    return len(known) == len(distinct) > _COUNTED and pairs >= _CERTAIN


def _date(name: str, reading: kinds.Reading, form: str | None = None) -> Draft:
    known = reading.codes[~np.isnan(reading.codes)]
    if len(np.unique(known)) < 2:
        return IGNORED, "it has no values, or only one"
    bounds = _range_of(known, log=False, integers=True)
    for key in ("low", "high", "center"):  # a date has four digits for its year
        bounds[key] = cells.day_number(cells.date_of(round(bounds[key])))
    return kinds.DateColumn(name, **_common(reading), **bounds, form=form), ""


def _is_skewed(known: kinds.Codes, distinct: kinds.Codes) -> bool:
    """Tell whether numbers reach so much further up than down that distances need a logarithm."""
    if known.min() < 0 or len(distinct) < _COUNTED:
        return False
    low, middle, high = np.quantile(known, [0.05, 0.5, 0.95])
    return bool(high - middle > _SKEWED * max(middle - low, 1e-12 * abs(high)))


def _range_of(known: kinds.Codes, *, log: bool, integers: bool) -> dict[str, Any]:
    """Return bounds, centre and spread: median and quartiles, the deviation where these agree."""
    smallest, largest = float(known.min()), float(known.max())
    scaled = cells.each(math.log if smallest > 0 else math.log1p, known) if log else known
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
    return {"low": low, "high": high, "center": center, "spread": _rounded(spread), "log": log}


def _textual(name: str, column: pa.ChunkedArray, order: list[str] | None, file: CsvForm) -> Draft:
    texts = [cells.plain_text(value) for value in column.drop_null().to_pylist()]
    texts = [text for text in texts if not cells.is_missing(text)]
    counts = Counter(texts)
    distinct = sorted(counts)
    if len(distinct) < 2:
        return IGNORED, "it has no values, or only one"
    if order is None and (draft := _read_as(name, column, distinct, file)):
        return draft
    if len(distinct) > _COUNTED and all(map(_DRESSED.fullmatch, distinct)):
        return IGNORED, (
            "its numbers have separators of thousands, a % or a currency, which are not read; "
            "write them as 1234.5"
        )
    common = [text for text, _ in sorted(counts.items(), key=lambda of: -of[1])][:MOST_CATEGORIES]
    others = 1 - sum(counts[text] for text in common) / len(texts)
    words = sum(len(text.split()) for text in texts) / len(texts)
    own = len(distinct) > _IDENTIFYING * len(texts) and len(texts) > _COUNTED
    if words >= _PROSE and (own or (words >= 2 * _PROSE and others)):
        return TEXT, (
            "it holds free text, which --features table cannot use; set its kind to ignored, or "
            "use --features text"
        )
    if (own and (others or len(distinct) == len(texts))) or others > _FITTING:
        return IGNORED, "nearly every value differs, as with identifiers"
    levels = order if order is not None else _levels(distinct)
    if levels is not None and 2 <= len(levels) <= MOST_CATEGORIES:
        return _declared(kinds.LevelsColumn, name, column, tuple(levels), len(texts)), ""
    note = f"{others:.0%} of the rows have other values than the {MOST_CATEGORIES} declared"
    found = _declared(kinds.CategoryColumn, name, column, tuple(sorted(common)), len(texts))
    return found, note if others > 1 - _FITTING else ""


def _read_as(
    name: str, column: pa.ChunkedArray, distinct: list[str], file: CsvForm
) -> Draft | None:
    """Return the draft of texts that are truth values, numbers or dates; None of others.

    Of many different values one in ten may be none: a fault of the table, which a note tells of.
    """
    tried: list[tuple[kinds.Reading, Callable[..., Draft], dict[str, Any]]] = []
    many = len(distinct) > _COUNTED
    if not any(_LEADING_ZERO.fullmatch(text) for text in distinct):
        pointed = with_points(column) if file.decimal == "," else column
        tried += [(cells.truths(column), _yes_no, {}), (cells.numbers(pointed), _numeric, {})]
        if many:  # few are levels, of which <10 is one
            tried.append((cells.numbers(pointed, limits=True), _numeric, {"limits": True}))
    some = pa.chunked_array([distinct[:_COUNTED]])
    forms = [form for form in _DATE_FORMS if not cells.days(some, form).faults.all()]
    tried += [(cells.days(column, form), _date, {"form": form}) for form in forms]
    sizes = [int((reading.faults != cells.OK).sum()) for reading, _, _ in tried]
    least = min(sizes, default=len(column))
    if least > (1 - _FITTING if many else 0) * len(column):
        return None
    fitting = [each for each, size in zip(tried, sizes, strict=True) if size == least]
    reading, draft, options = fitting[0]
    found, note = draft(name, reading, **options)
    notes = [note] if note else []
    if form := options.get("form"):
        if form.endswith("%y"):
            return IGNORED, "its years have two digits; write four, or declare the date's form"
        alike = [other for *_, other in fitting if other.get("form") not in (form, None)]
        other = f'; {alike[0]["form"]} fits too, so check "form"' if alike else ""
        notes.append(f"its dates are read as {form}{other}")
    if least:
        rows = ", ".join(map(str, (np.flatnonzero(reading.faults)[:5] + 1).tolist()))
        notes.append(f"{least} cells do not fit, for example in row {rows}; correct them")
    return found, "; ".join(notes)


def _levels(distinct: list[str]) -> list[str] | None:
    """Return texts in the order of the numbers that they all begin with, if they do."""
    matches = {text: _LEVEL.match(text) for text in distinct}
    keys = {
        text: (float(match[2]), {"<": -1, "≤": -1, "": 0}.get(match[1], 1), text)
        for text, match in matches.items()
        if match is not None
    }
    codes = any(_LEADING_ZERO.match(text) for text in distinct)
    if codes or len(keys) < len(distinct) or len(distinct) < 3:
        return None
    return sorted(distinct, key=lambda text: keys[text])


def _declared(
    column_class: type[kinds.LevelsColumn] | type[kinds.CategoryColumn],
    name: str,
    column: pa.ChunkedArray,
    values: tuple[str, ...],
    size: int,
) -> kinds.TableColumn:
    """Return a column of these values, with the shares that the public table shows."""
    bare = column_class(name, values=values)
    reading = bare.read(column)
    known = reading.codes[~np.isnan(reading.codes)].astype(np.int64)
    counts = np.bincount(known, minlength=bare.n_values)
    shares = tuple(_rounded(count / max(size, 1)) for count in counts.tolist())
    return column_class(
        name, **_common(reading), values=values, shares=shares if sum(shares) else ()
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
    size = _checks.integer("size", size, least=1)
    generator = public_draws(seed)
    cells = {}
    for column in schema.usable().columns:
        values = column.made_up(generator.random(size))
        absent = generator.random(size) < column.missing_share
        cells[column.name] = column.cells(np.where(absent, np.nan, values))
    return pa.table(cells)
