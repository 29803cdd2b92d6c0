"""Drafts of schemas from public tables, for a person to edit; and rows sampled from a schema."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from vicinal import checks
from vicinal.errors import InvalidInput
from vicinal.features import _draft_values as values
from vicinal.features import table_columns as cells
from vicinal.features import table_kinds as kinds
from vicinal.features._draft_texts import draft_text_column
from vicinal.features._draft_values import Draft
from vicinal.features.arrow_columns import list_columns, read_arrow_columns
from vicinal.features.csv_form import PLAIN_CSV, CsvForm, swap_decimal_marks
from vicinal.features.table_features import check_table
from vicinal.features.table_schema import IGNORED, TEXT, TableSchema
from vicinal.mechanisms.noise_sources import public_draws

_MAX_ROWS_LISTED = 5  # largest number of rows that a note lists as examples


def draft_schema(
    table: Any, leave_out: Sequence[str] = (), file: CsvForm = PLAIN_CSV
) -> tuple[TableSchema, list[str]]:
    """Return a schema for tables like this public one, and notes for the person who edits it.

    Raises InvalidInput if the table has no rows, or two columns of one name.

    Parameters
    ----------
    table
        **Public** rows, in a form that :class:`~vicinal.features.TableFeatures` accepts. Their
        values are written into the schema: never draft one from private records.
    leave_out : sequence of str
        Names of columns without features, such as the label's and the subject's.
    file : CsvForm, optional
        The format of the CSV file from which the rows were read.

    Examples
    --------
    >>> from vicinal.features import draft_schema
    >>> schema, notes = draft_schema({"age": [31, 45, 64, 28] * 25, "sex": ["f", "m"] * 50})
    >>> schema.names
    ('age', 'sex')
    """
    _, n_rows, names = read_arrow_columns(table, ())
    if n_rows == 0:
        raise InvalidInput("The public table must have at least one row.")
    if len(set(names)) != len(names):
        raise InvalidInput("The public table has two columns with the same name. Drop one.")
    excluded = set(map(checks.normalize_text, leave_out))
    drafts = {
        name: Draft(IGNORED)
        if name in excluded
        else _drop_invalid_draft(_draft_column(table, name, file))
        for name in names
    }
    notes = [
        f"{checks.quote_column(name)} is {getattr(draft.column, 'kind', draft.column)}: "
        f"{draft.note}."
        for name, draft in drafts.items()
        if draft.note
    ]
    codes = [checks.quote_column(name) for name, draft in drafts.items() if draft.has_codes]
    if codes:
        notes.append(
            f"{checks.join_first(codes)}: numbers 0 and 1 are read as no and yes, and a table with "
            "any other code is refused. If there may be others, declare a category, such as "
            '{"kind": "category", "values": ["0", "1", "2"]}.'
        )
    schema = TableSchema(
        tuple(
            draft.column for draft in drafts.values() if isinstance(draft.column, kinds.TableColumn)
        ),
        tuple(name for name, draft in drafts.items() if draft.column == IGNORED),
        tuple(name for name, draft in drafts.items() if draft.column == TEXT),
        file,
    )
    return schema, [*notes, *_describe_misfits(table, schema)]


def _describe_misfits(table: Any, schema: TableSchema) -> list[str]:
    """Return notes on cells of a public `table` that its drafted `schema` refuses or clips."""
    if not schema.columns:
        return []
    columns = read_arrow_columns(table, schema.names)[0]
    if schema.file.decimal == ",":
        for name, column in columns.items():
            if schema.reads_numbers(name) and cells.is_text(column):
                columns[name] = swap_decimal_marks(column)
    kind_of = {column.name: column.kind for column in schema.columns}
    notes = []
    for misfit in check_table(pa.table(columns), schema):
        problem = misfit.fault
        if misfit.rows:
            noun = "row holds" if len(misfit.rows) == 1 else "rows hold"
            examples = ", ".join(map(str, misfit.rows[:_MAX_ROWS_LISTED]))
            problem = f"{len(misfit.rows)} {noun} {misfit.fault}, for example row {examples}"
        name = str(misfit.column)
        notes.append(f"{checks.quote_column(name)} is {kind_of[name]}: {problem}. {misfit.fix}.")
    return notes


def _drop_invalid_draft(draft: Draft) -> Draft:
    """Return the draft of a column, or one that ignores it if a schema with it is not valid."""
    if isinstance(draft.column, kinds.TableColumn):
        try:
            TableSchema.from_dict(TableSchema((draft.column,)).to_dict())
        except InvalidInput:
            reason = "its numbers are too large, or too close together, to be compared"
            return Draft(IGNORED, reason)
    return draft


def _draft_column(table: Any, name: str, file: CsvForm) -> Draft:
    """Return the draft of the column `name` of a public table, by its Arrow type.

    `file`: the CSV format of the table's file.
    """
    try:
        column = read_arrow_columns(table, [name])[0][name]
    except InvalidInput:
        return Draft(IGNORED, "it holds several types of value, or one that tables do not have")
    kind = column.type
    if len(column) == column.null_count:
        return Draft(IGNORED, values.EMPTY)
    if pa.types.is_date(kind) or pa.types.is_timestamp(kind):
        return values.note_rounded_times(column, values.draft_dates(name, column))
    if pa.types.is_time(kind):
        draft = values.draft_times(name, cells.parse_times_of_day(column))
        return values.note_rounded_times(column, draft)
    if pa.types.is_duration(kind):
        draft = values.draft_durations(name, cells.parse_durations(column))
        return values.note_rounded_times(column, draft)
    if pa.types.is_boolean(kind):
        return values.draft_yes_no(name, cells.parse_truth_values(column), allow_constant=True)
    if cells.is_text(column):
        return draft_text_column(name, column, _get_category_order(table, name), file)
    is_integer = pa.types.is_integer(kind)
    if not (is_integer or pa.types.is_floating(kind) or pa.types.is_decimal(kind)):
        return Draft(IGNORED, "it holds a type of value that tables do not have")
    dates = values.draft_compact_dates(name, column)
    if is_integer and dates is not None:
        return dates
    draft = values.draft_numbers(name, cells.parse_numbers(column), allow_whole=is_integer)
    draft = values.note_rounded_numbers(column, draft)
    note = "its numbers look like dates such as 20260131, which are read from integers"
    return draft if dates is None else draft.add_notes(note)


def _get_category_order(table: Any, name: str) -> list[str] | None:
    """Return the texts of an ordered category of Arrow or pandas, in this order; else None."""
    named_columns = list_columns(table)[0]
    column = next(column for key, column in named_columns if checks.normalize_text(key) == name)
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    kind: Any = getattr(column, "type", getattr(column, "dtype", None))
    if not getattr(kind, "ordered", False):
        return None
    categories = kind.categories if hasattr(kind, "categories") else column.dictionary.to_pylist()
    return list(dict.fromkeys(filter(None, map(cells.plain_text, categories))))


def rows_from_schema(schema: TableSchema, size: int = 2000, seed: int | None = None) -> pa.Table:
    """Return a table of rows sampled from the public schema, every column independently.

    Numbers have a normal distribution if centre and spread are declared, else a uniform one. Other
    values have the declared shares, else equal ones. Columns of real rows are not independent, so
    prefer real public rows.

    Parameters
    ----------
    schema : TableSchema
        Public.
    size : int
        Number of rows.
    seed : int, optional
        Makes the rows repeatable. They are public, so no privacy depends on it.

    Examples
    --------
    >>> from vicinal.features import draft_schema, rows_from_schema
    >>> schema, notes = draft_schema({"age": [31, 45, 64, 28] * 25, "sex": ["f", "m"] * 50})
    >>> rows_from_schema(schema, size=3, seed=0).num_rows
    3
    """
    size = checks.check_integer("size", size, minimum=1)
    generator = public_draws(seed)
    columns = {}
    for column in schema.require_features().columns:
        codes = column.sample_codes(generator.random(size))
        is_missing = generator.random(size) < column.missing_share
        columns[column.name] = column.format_cells(np.where(is_missing, np.nan, codes))
    return pa.table(columns)
