"""Drafts of columns of public texts: as parsed values if they fit, else as levels or categories.

A *draft* is the proposed schema entry of a column, with notes for the person who edits the schema;
functions called draft_... return one. An *interpretation* is a possible meaning of all its texts.
*Levels* are ordered categories. Everywhere in this module, `name` is the column's name, `column`
its texts (n,), with nulls in place of the missing-value markers that the draft declares, `file` the
CSV format of the public file, and `order` the texts of an ordered category, from the lowest to the
highest, or None. The draft of an ordered category declares no markers.
"""

import itertools
import re
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa

from vicinal.features import _draft_values as values
from vicinal.features import _table_missing as missing
from vicinal.features import table_columns as cells
from vicinal.features import table_kinds as kinds
from vicinal.features._draft_values import SMALL_SAMPLE, Draft, list_distinct_texts
from vicinal.features.csv_form import CsvForm, swap_decimal_marks
from vicinal.features.table_columns import ParsedColumn
from vicinal.features.table_schema import IGNORED, TEXT

_MAX_CATEGORIES = 60
"""Largest number of values that a draft declares; rarer ones are "other"."""

_MAX_DISTINCT_SHARE = 0.5
"""If more than this share of the rows have distinct texts, the texts are identifiers or prose."""

_PROSE_WORDS = 3  # smallest mean number of words in texts of prose

_MIN_FITTING_SHARE = 0.9
"""A column with many distinct texts is one of numbers or dates if at least this share of its cells
can be read as such; and at most this share of a category's rows may have undeclared values."""

_FREQUENT_WORD_SHARE = 0.05
"""A word such as None in this share of the rows may be an answer instead of a missing value."""

_LEVEL = re.compile(
    r"\s*([<>≤≥]?)=?\s*(?P<low>\d+(?:\.\d+)?)(?P<letter>[^\W\d_])?"
    r"(?:\s*[-\u2013]\s*(?P<high>\d+(?:\.\d+)?))?"
)
"""The text of a level: a number or a range. A letter behind it, as in 1A, is a sign of a code."""

_DATE_FORMAT_LIST = (
    "%d.%m.%Y|%d/%m/%Y|%m/%d/%Y|%d-%m-%Y|%m-%d-%Y|%Y/%m/%d|%Y.%m.%d|%d %b %Y|%d-%b-%Y|"
    "%d.%m.%y|%m/%d/%y|%d/%m/%y"
)
_DATE_FORMATS = _DATE_FORMAT_LIST.split("|")
"""Formats (strptime) of dates besides 2026-01-31. Of two that fit equally well, the first one is
drafted."""

_FORMATTED_NUMBER = re.compile(r"[€$£]?\s?-?\d+([.,'\u2019\s]\d{3})*([.,]\d+)?\s?[%€$£]?")
"""A number as formatted for readers, or a plain number."""

_FORMAT_MARK = re.compile(r"[€$£%,'\u2019\s]|\..*\.")
"""Marks of formatted numbers, which plain numbers and codes of digits do not have."""

_THOUSANDS = re.compile(r"\D*[1-9]\d{0,2}([.,'\u2019\s]\d{3})+(?!\d).*")
"""A number with separators of thousands, such as 1,200 or 12 500.50."""

_POINTS_BEFORE_THREE_DIGITS = re.compile(r"[<>≤≥]?=?\s*-?(0|[1-9]\d{0,2}(\.\d{3})*)")
"""An integer, or a number with three digits after every point, which may separate thousands."""


def draft_text_column(
    name: str, column: pa.ChunkedArray, order: list[str] | None, file: CsvForm
) -> Draft:
    """Return the draft of a column of texts: parsed values, levels, a category, or no features.

    The markers are not yet replaced in `column`.
    """
    distinct = list_distinct_texts(column)
    if len(distinct) < 2:
        return Draft(IGNORED, values.CONSTANT if distinct else values.EMPTY)
    if order is not None:
        return _draft_categories(name, column, order, file)
    symbols, nouns = missing.find_missing_texts(distinct)
    for missing_texts in ([*symbols, *nouns], symbols) if nouns else (symbols,):
        present = _remove_texts(column, missing_texts)
        draft = _draft_parsed_texts(name, present, file)
        # "unknown" may be an answer beside yes and no, but is no number and no date.
        has_noun = not set(missing_texts).isdisjoint(nouns)
        if draft is not None and not (has_noun and isinstance(draft.column, kinds.YesNoColumn)):
            return draft.declare_missing(missing_texts)
    if len(list_distinct_texts(_remove_texts(column, symbols))) < 2:
        nouns = [*symbols, *nouns]
        symbols = []
    draft = _draft_categories(name, _remove_texts(column, symbols), None, file)
    return draft.declare_missing(symbols, [*nouns, *missing.find_number_texts(distinct)])


def _remove_texts(column: pa.ChunkedArray, texts: Iterable[str]) -> pa.ChunkedArray:
    """Return a column of texts with nulls in place of all cells equal to one of `texts`."""
    excluded = set(map(cells.normalize_value, texts))
    return cells.replace_by_null(column, excluded) if excluded else column


@dataclass(frozen=True)
class _Interpretation:
    """One possible meaning of a column of texts, which is parsed with it.

    `create_draft`: returns the draft from the column's name, `parsed` and the keyword arguments
    `options`; a draft of dates needs the column in place of `parsed`.
    """

    parsed: ParsedColumn
    create_draft: Callable[..., Draft]
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def date_format(self) -> str | None:
        """The strptime format of dates; None for dates such as 2026-01-31 and for other values."""
        return self.options.get("date_format")


def _list_interpretations(
    column: pa.ChunkedArray, pointed: pa.ChunkedArray, distinct: list[str]
) -> list[_Interpretation]:
    """Return the possible meanings of a column of texts, the most probable first.

    Texts with leading zeros are codes, and neither numbers nor truth values. `pointed`: the texts
    with decimal points in place of decimal commas, if the file has these. `distinct`: the distinct
    texts of `column` that are not missing.
    """
    meanings = []
    if not any(map(cells.LEADING_ZERO.fullmatch, distinct)):
        meanings += [
            _Interpretation(cells.parse_truth_values(pointed), values.draft_yes_no),
            _Interpretation(cells.parse_numbers(pointed), values.draft_numbers),
        ]
        if len(distinct) > SMALL_SAMPLE:  # few texts are levels, of which <10 is one
            parsed = cells.parse_numbers(pointed, accept_censored=True)
            options = {"has_censored_cells": True}
            meanings.append(_Interpretation(parsed, values.draft_numbers, options))
    sample = pa.chunked_array([distinct[: values.DATE_FORMAT_SAMPLE]])
    for date_format in (None, *_DATE_FORMATS):
        if not cells.parse_days(sample, date_format).faults.all():
            parsed = cells.parse_days(column, date_format)
            date_options = {"date_format": date_format}
            meanings.append(_Interpretation(parsed, values.draft_dates, date_options))
    times = cells.parse_times_of_day(column)
    durations = cells.parse_durations(column)
    time_options = {"may_be_durations": not durations.faults.any()}
    duration_options = {"may_be_times": not times.faults.any()}
    as_times = _Interpretation(times, values.draft_times, time_options)
    as_durations = _Interpretation(durations, values.draft_durations, duration_options)
    # Times of which none reaches 01:00 are more probably durations.
    seconds = times.present_codes
    is_short = len(seconds) > 0 and seconds.max() < 3600
    return [*meanings, as_durations, as_times] if is_short else [*meanings, as_times, as_durations]


def _draft_parsed_texts(name: str, column: pa.ChunkedArray, file: CsvForm) -> Draft | None:
    """Return the draft of texts that are truth values, numbers, dates or times, else None.

    In a column with more than 20 (:data:`SMALL_SAMPLE`) distinct texts, one cell in ten may have a
    text that cannot be parsed.
    """
    distinct = list_distinct_texts(column)
    if len(distinct) < 2:
        return None
    draft = values.draft_compact_dates(name, column)
    if draft is not None:
        return draft
    pointed = swap_decimal_marks(column) if file.decimal == "," else column
    meanings = _list_interpretations(column, pointed, distinct)
    n_faults = [values.count_faults(meaning.parsed) for meaning in meanings]
    max_fault_share = 1 - _MIN_FITTING_SHARE if len(distinct) > SMALL_SAMPLE else 0
    if min(n_faults) > max_fault_share * len(column):
        return None
    fitting = [
        meaning for meaning, count in zip(meanings, n_faults, strict=True) if count == min(n_faults)
    ]
    meaning = fitting[0]
    if meaning.create_draft is values.draft_dates:
        return _draft_dates(name, column, [meaning.date_format for meaning in fitting])
    draft = meaning.create_draft(name, meaning.parsed, **meaning.options)
    if meaning.create_draft in (values.draft_times, values.draft_durations):
        draft = values.note_rounded_times(column, draft)
    if meaning.create_draft is values.draft_yes_no and isinstance(draft.column, kinds.YesNoColumn):
        draft = draft._replace(has_codes=not cells.parse_numbers(pointed).faults.any())
    if meaning.create_draft is values.draft_numbers:
        draft = draft.add_notes(*_describe_doubtful_numbers(list_distinct_texts(pointed), file))
    return draft


def _draft_dates(name: str, column: pa.ChunkedArray, formats: list[str | None]) -> Draft:
    """Return the draft of dates in the first of the `formats`, with a note on others that fit."""
    date_format = formats[0]
    if date_format is not None and date_format.endswith("%y"):
        return Draft(IGNORED, "its years have two digits; write four, or declare the date's form")
    draft = values.draft_dates(name, column, date_format=date_format)
    if date_format is not None:
        other_formats = [other for other in formats if other not in (date_format, None)]
        doubt = f'; {other_formats[0]} fits too, so check "form"' if other_formats else ""
        draft = draft.add_notes(f"its dates are read as {date_format}{doubt}")
    return values.note_rounded_times(column, draft)


def _describe_doubtful_numbers(texts: list[str], file: CsvForm) -> list[str]:
    """Return notes on numbers that float64 rounds, or whose points may separate thousands.

    `texts`: the distinct numbers of a column, with decimal points.
    """
    notes = []
    if any(map(values.loses_digits, texts)):
        notes.append(values.ROUNDED)
    has_points = any("." in text for text in texts)
    if has_points and all(map(_POINTS_BEFORE_THREE_DIGITS.fullmatch, texts)):
        notes.append(
            f"if its {file.decimal!r} separates thousands, write 12345: three digits follow each"
        )
    return notes


def _draft_categories(
    name: str, column: pa.ChunkedArray, order: list[str] | None, file: CsvForm
) -> Draft:
    """Return the draft of texts that are not parsed: levels, a category, or prose."""
    all_counts = Counter(map(cells.plain_text, column.drop_null().to_pylist()))
    counts = Counter({text: n for text, n in all_counts.items() if not cells.is_missing_text(text)})
    distinct = sorted(counts)
    format_note = _describe_formatted_numbers(distinct, file) if order is None else ""
    has_many = len(distinct) > SMALL_SAMPLE
    if format_note and (has_many or any(map(_THOUSANDS.fullmatch, distinct))):
        return Draft(IGNORED, format_note)
    notes = [format_note, _describe_frequent_words(all_counts, order, len(column))]
    declared = [text for text, _ in counts.most_common(_MAX_CATEGORIES)]
    n_others = counts.total() - sum(counts[text] for text in declared)
    refusal = _refuse_texts(counts, n_others)
    if refusal is not None:
        return refusal
    levels, note = _order_levels(distinct) if order is None else (order, "")
    declaration: kinds.LevelsColumn | kinds.CategoryColumn
    if levels is not None and 2 <= len(levels) <= _MAX_CATEGORIES:
        declaration = kinds.LevelsColumn(name, values=tuple(levels))
    else:
        declaration = kinds.CategoryColumn(name, values=tuple(sorted(declared)))
        note = ""
        if n_others:
            verb = "row has a value" if n_others == 1 else "rows have values"
            note = (
                f"{n_others} {verb} other than the {_MAX_CATEGORIES} declared, and count as one "
                "value"
            )
        if order is not None:
            notes.append(f"the order of its values is lost, as levels have 2 to {_MAX_CATEGORIES}")
        if len(set(map(cells.fold_spelling, declared))) < len(declared):
            notes.append("some of its values differ only in spelling, and count as different ones")
    parsed = declaration.parse_cells(column)
    value_counts = np.bincount(
        parsed.present_codes.astype(np.int64), minlength=declaration.n_values
    )
    shares = tuple(values.round_digits(count / counts.total()) for count in value_counts.tolist())
    options = values.get_missing_options(parsed)
    drafted = replace(declaration, **options, shares=shares if sum(shares) else ())
    return Draft(drafted, note).add_notes(*notes)


def _describe_frequent_words(counts: Counter[str], order: list[str] | None, n_rows: int) -> str:
    """Return a note, else "", if frequent words that count as missing may be answers.

    `counts`: number of rows by text, of all `n_rows` rows.
    """
    answers = sorted(
        text
        for text, count in counts.items()
        if cells.is_missing_text(text)
        and count >= _FREQUENT_WORD_SHARE * n_rows
        and text not in ("", *(order or ()))
    )
    if not answers:
        return ""
    quoted = ", ".join(map(repr, answers))
    return f'counted as missing: {quoted}; add answers among them to "values"'


def _refuse_texts(counts: Counter[str], n_others: int) -> Draft | None:
    """Return a draft without features for prose, identifiers, and too many values; else None.

    `counts`: number of rows by text. `n_others`: number of rows with texts that are too rare to be
    declared as values of a category.
    """
    n_texts = counts.total()
    other_share = n_others / n_texts
    mean_words = sum(count * len(text.split()) for text, count in counts.items()) / n_texts
    are_distinct = len(counts) > _MAX_DISTINCT_SHARE * n_texts and n_texts > SMALL_SAMPLE
    are_long = mean_words >= 2 * _PROSE_WORDS and n_others > 0
    if mean_words >= _PROSE_WORDS and (are_distinct or are_long):
        return Draft(
            TEXT,
            "it holds free text, which --features table cannot use; set its kind to ignored, or "
            "use --features text",
        )
    if are_distinct and (n_others > 0 or len(counts) == n_texts):
        return Draft(IGNORED, "nearly every value differs, as with identifiers")
    if other_share > _MIN_FITTING_SHARE:
        return Draft(
            IGNORED,
            f"it has {len(counts)} different values, and the {_MAX_CATEGORIES} most frequent ones "
            "are less than a tenth of the rows; write coarser ones, such as the first digits",
        )
    return None


def _describe_formatted_numbers(distinct: list[str], file: CsvForm) -> str:
    """Return a note, else "", if all `distinct` texts are numbers, some in a form that is not read.

    Such forms have separators of thousands, a currency, a % or another decimal mark than `file`.
    """
    joined = "\n".join(distinct)
    has_points = file.decimal == "," and "." in joined
    has_marks = has_points or any(map(_FORMAT_MARK.search, distinct))
    if not has_marks or not all(map(_FORMATTED_NUMBER.fullmatch, distinct)):
        return ""
    may_be_decimal = file.decimal == "." and "," in joined and "." not in joined
    remedy = ', or declare "decimal": "," (--decimal ,)' if may_be_decimal else ""
    return (
        "its numbers have separators of thousands, a % or a currency, or another decimal mark, "
        f"which are not read; write them as 1234{file.decimal}5{remedy}"
    )


def _order_levels(distinct: list[str]) -> tuple[list[str] | None, str]:
    """Return `distinct` texts ordered by the numbers at their beginning, and a note for the editor.

    None for fewer than three texts, and if one begins without a number or with a leading zero. The
    note is empty unless the texts may be codes without an order.
    """
    matches = {}
    keys = {}
    for text in distinct:
        match = _LEVEL.match(text)
        if match is None or cells.LEADING_ZERO.match(text):
            return None, ""
        matches[text] = match
        sign_rank = {"<": -1, "≤": -1, "": 0}.get(match[1], 1)
        keys[text] = (float(match["low"]), sign_rank, text)
    if len(distinct) < 3:
        return None, ""
    levels = sorted(distinct, key=lambda text: keys[text])
    may_be_codes = any(match["letter"] for match in matches.values())
    for lower, upper in itertools.pairwise(levels):
        upper_end = float(matches[lower]["high"] or keys[lower][0])
        may_be_codes |= upper_end > keys[upper][0] or keys[lower][:2] == keys[upper][:2]
    note = "its values are read as ordered; if they are not, declare category"
    return levels, note if may_be_codes else ""
