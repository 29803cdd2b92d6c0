"""Features of the rows of a table by a public schema, and checks of a table for its owner."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from vicinal import checks
from vicinal.arrays import Bools
from vicinal.errors import InvalidInput, UnusableRows, warn_caller
from vicinal.features import table_columns as cells
from vicinal.features import table_kinds as kinds
from vicinal.features.arrow_columns import read_arrow_columns
from vicinal.features.fixed import FixedFeatures, Vectors
from vicinal.features.table_columns import Codes, Fault, ParsedColumn
from vicinal.features.table_schema import TableSchema

_MAX_ROWS_LISTED = 20  # largest number of rows that a message lists


class TableFeatures(FixedFeatures):
    """Features of the rows of a table, as a public schema declares its columns.

    Row i of the output is a function of row i of the table and of the schema alone. Columns are
    found by name, in any order. Columns that the schema does not name are left out, with a warning;
    a missing column is an error.

    Parameters
    ----------
    schema : TableSchema, dict or path
        The kind and options of every column: a schema, its JSON object, or the path of its file.
        **It must be public**; :func:`~vicinal.features.draft_schema` drafts one from a public
        table.

    Examples
    --------
    >>> schema = {
    ...     "format": "vicinal table schema",
    ...     "version": 1,
    ...     "columns": {
    ...         "age": {"kind": "whole", "low": 0, "high": 100, "missing": False},
    ...         "sex": {"kind": "category", "values": ["f", "m"], "other": False, "missing": False},
    ...     },
    ... }
    >>> TableFeatures(schema).transform({"age": [50, 100], "sex": ["f", "m"]}).round(2)
    array([[0.  , 0.71, 0.  ],
           [1.73, 0.  , 0.71]], dtype=float32)

    Notes
    -----
    A number is clipped to its bounds, centred and divided by the spread, the scale that the schema
    declares for it (by default a standard deviation); numbers more than four spreads from the
    centre count as four. A category is one-hot; two rows of different categories have distance one,
    as have two numbers that differ by one spread. A missing value has the features of the centre,
    or zeros, and one more feature that indicates it.
    """

    def __init__(self, schema: TableSchema | Mapping[str, Any] | str | Path) -> None:
        self.schema = schema

    def transform(self, X: Any) -> Vectors:
        """Return the features of a table's rows, float32 (n, d), see :meth:`get_feature_names_out`.

        `X`: a pandas, polars or Arrow table, a dict of columns, a list of dicts, or a structured
        array. Raises InvalidInput if a column is missing or has values that the schema does not
        allow. The message names the column, the kind of fault and the fix; never a value, and no
        number of rows.
        """
        codes = self.codes(X)
        columns = as_schema(self.schema).columns
        blocks = [column.compute_features(codes[:, index]) for index, column in enumerate(columns)]
        return np.ascontiguousarray(np.column_stack(blocks), dtype=np.float32)

    def codes(self, X: Any) -> Codes:
        """Return the codes of all cells, float64 (n, columns), before they are scaled.

        The code is a number, days since 1970, seconds, or the index of a declared value; NaN if the
        value is missing. `X` is a table, and errors are those of :meth:`transform`.
        """
        schema = as_schema(self.schema).require_features()
        columns, n_rows, names = read_arrow_columns(X, schema.names)
        if n_rows == 0:
            raise InvalidInput("The table must have at least one row.")
        _warn_of_undeclared_columns(schema, names)
        parsed = {
            column.name: column.parse_cells(columns[column.name]) for column in schema.columns
        }
        _refuse_faults(parsed)
        return np.column_stack([column.codes for column in parsed.values()])

    def transform_empty_row(self) -> Vectors | None:
        """Return the features (1, d) of a row without any value; None if such rows are refused."""
        with suppress(InvalidInput):
            return self.transform({name: [None] for name in as_schema(self.schema).names})
        return None

    def get_feature_names_out(
        self,
        input_features: object = None,  # noqa: ARG002 (scikit-learn's signature)
    ) -> npt.NDArray[np.object_]:
        """Return the names of the features, an array of str (d,)."""
        return np.asarray(as_schema(self.schema).feature_names, dtype=object)

    def __sklearn_is_fitted__(self) -> bool:
        """Return True, for scikit-learn: no fit is needed."""
        return True

    def __sklearn_tags__(self) -> Any:
        """Return scikit-learn's tags: the input may hold categories, texts and missing values."""
        tags = super().__sklearn_tags__()
        tags.input_tags.categorical = True
        tags.input_tags.string = True
        tags.input_tags.allow_nan = True
        return tags


def as_schema(schema: object) -> TableSchema:
    """Return a schema, given as such, as its JSON object, or as the path of its file.

    Raises InvalidInput for other values, and for an object or file that is no valid schema.
    """
    if isinstance(schema, TableSchema):
        return schema
    if isinstance(schema, str | Path):
        return TableSchema.load(schema)
    return TableSchema.from_dict(schema)


def _refuse_faults(parsed_columns: Mapping[str, ParsedColumn]) -> None:
    """Raise UnusableRows, whose private message lists the rows, if one of the columns has faults.

    `parsed_columns`: parsed columns by name.
    """
    sentences = []
    private_sentences = []
    client_sentences = []
    for name, parsed in parsed_columns.items():
        for fault in _list_fault_kinds(parsed):
            problem = f"The column {name!r} holds {cells.FAULT_DESCRIPTIONS[fault]}"
            row_numbers = np.flatnonzero(parsed.faults == fault) + 1
            located = f"{problem}, in row {list_rows(row_numbers.tolist())}."
            sentences.append(f"{problem}. {cells.FAULT_FIXES[fault]}.")
            private_sentences.append(f"{located} {cells.FAULT_FIXES[fault]}.")
            client_sentences.append(f"{located} {cells.VALUE_FIXES[fault]}.")
    if sentences:
        sentences.append("A check of the table against the schema counts the rows.")
        messages = (sentences, private_sentences, client_sentences)
        raise UnusableRows(*map(" ".join, messages))


def list_rows(row_numbers: Sequence[int]) -> str:
    """Return the first :data:`_MAX_ROWS_LISTED` of `row_numbers`, from 1, as text."""
    ellipsis = ", ..." if len(row_numbers) > _MAX_ROWS_LISTED else ""
    return ", ".join(map(str, row_numbers[:_MAX_ROWS_LISTED])) + ellipsis


def _warn_of_undeclared_columns(schema: TableSchema, names: Sequence[str]) -> None:
    """Warn of columns, of a table with these `names`, that the schema does not declare.

    The names may be private, so the warning has only their number.
    """
    declared = {*schema.names, *schema.ignored, *schema.texts}
    n_undeclared = sum(name not in declared for name in names)
    if n_undeclared:
        noun, verb = ("column", "It is") if n_undeclared == 1 else ("columns", "They are")
        warn_caller(
            f"The table has {n_undeclared} {noun} that the schema does not name. {verb} left out."
        )


_MAX_UNEXPECTED_SHARE = 0.5
"""If more than this share of a column is outside its bounds or undeclared, the schema probably has
other units or spellings."""


@dataclass(frozen=True)
class Misfit:
    """A problem of a table, or a remark. **For the owner of the table only**: it counts rows.

    - `column`: the name in the schema; None for the table as a whole.
    - `fault`: a noun phrase such as "numbers that are not finite" if there are `rows`, otherwise a
      verb phrase such as "is not in the schema".
    - `fix`: a remedy or a consequence, as a sentence without its period.
    - `stops`: whether the check fails because of it.
    - `rows`: the numbers of the rows, from 1; private. None if it is no fault of single rows.
    """

    column: str | None
    fault: str
    fix: str
    stops: bool
    rows: tuple[int, ...] | None = None

    @classmethod
    def from_row_mask(
        cls, column: str, fault: str, fix: str, is_faulty: Bools, *, stops: bool = True
    ) -> list[Self]:
        """Return a list of one problem for all rows where `is_faulty`, (n,); empty if none is."""
        rows = tuple((np.flatnonzero(is_faulty) + 1).tolist())
        return [cls(column, fault, fix, stops, rows)] if rows else []

    def __str__(self) -> str:
        """Return a sentence on the column, the fault and the number of rows, then the fix."""
        owner = "the table" if self.column is None else f"column {checks.quote_column(self.column)}"
        if self.rows is None:
            return f"{owner} {self.fault}. {self.fix}."
        rows = "1 row holds" if len(self.rows) == 1 else f"{len(self.rows)} rows hold"
        return f"{owner}: {rows} {self.fault}. {self.fix}."


def _list_fault_kinds(parsed: ParsedColumn) -> list[int]:
    """Return the kinds of fault, of :class:`Fault`, that occur in a parsed column."""
    return [int(fault) for fault in np.unique(parsed.faults[np.flatnonzero(parsed.faults)])]


def check_table(
    table: Any,
    schema: TableSchema,
    labels: Sequence[str] = (),
    subject: str | None = None,
    classes: Sequence[Any] | None = None,
    number_labels: Sequence[str] = (),
) -> list[Misfit]:
    """Return all problems of a private table, and remarks that do not stop it from being used.

    `table`: in a form that :class:`~vicinal.features.TableFeatures` accepts. `labels`: columns of
    class names. `subject`: the column of subject ids. `classes`: the names of all classes; without
    them, all labels are accepted. `number_labels`: columns of numbers, or of labels 0 and 1.
    """
    _, n_rows, names = read_arrow_columns(table, ())
    if n_rows == 0:
        return [Misfit(None, "has no rows", "Give at least one record", stops=True)]
    readers: dict[str, Callable[[pa.ChunkedArray], ParsedColumn]] = {}
    for name in map(checks.normalize_text, labels):
        readers[name] = partial(cells.find_label_faults, classes=classes)
    for name in map(checks.normalize_text, number_labels):
        readers[name] = lambda column: cells.parse_numbers(column).mark_missing()
    if subject is not None:
        id_column = checks.normalize_text(subject)
        readers[id_column] = lambda column: cells.find_id_faults(column).mark_missing()
    readers |= {column.name: column.parse_cells for column in schema.columns}
    misfits = [
        Misfit(name, "is missing", "Add it, or take it out of the schema", stops=True)
        for name in readers
        if name not in names
    ]
    if not misfits:  # without a header row, the names are values of a record
        declared = {*readers, *schema.ignored, *schema.texts}
        misfits += [
            Misfit(name, "is not in the schema", "It is left out", stops=False)
            for name in dict.fromkeys(names)
            if name not in declared
        ]
    column_of = {column.name: column for column in schema.columns}
    for name, read_column in readers.items():
        if names.count(name) > 1:
            misfits.append(Misfit(name, "appears twice", "Drop one of the two", stops=True))
        elif name in names:
            misfits += _check_column(table, name, read_column, column_of.get(name))
    return misfits


def _check_column(
    table: Any,
    name: str,
    read_column: Callable[[pa.ChunkedArray], ParsedColumn],
    declared: kinds.TableColumn | None,
) -> list[Misfit]:
    """Return the problems of the column `name` of a private table, as for :func:`check_table`.

    `read_column`: parses its cells. `declared`: its declaration; None for labels and ids.
    """
    try:
        values = read_arrow_columns(table, [name])[0][name]
        parsed = read_column(values)
    except InvalidInput:
        problem = "holds values of several types, or of a type that tables do not have"
        return [Misfit(name, problem, "Convert it", stops=True)]
    misfits = []
    for fault in _list_fault_kinds(parsed):
        texts = (cells.FAULT_DESCRIPTIONS[fault], cells.FAULT_FIXES[fault])
        misfits += Misfit.from_row_mask(name, *texts, parsed.faults == fault)
    if declared is None:
        return misfits
    lacks_zone = isinstance(declared, kinds.DateColumn) and declared.zone is None
    if lacks_zone and cells.has_zone(values):
        fix = 'Declare "zone", such as "UTC", so that texts and timestamps of a moment agree'
        misfits.append(Misfit(name, "holds moments with a time zone", fix, stops=False))
    return misfits + _list_remarks(declared, values, parsed.codes)


def warn_of_unexpected_values(source: object, table: Any, schema: TableSchema) -> None:
    """Warn of the values that :func:`describe_unexpected_values` describes, in a **public** table.

    `source`: the name of the table, or its file, for the message.
    """
    for note in describe_unexpected_values(table, schema):
        warn_caller(f"{source}: {note}")


def describe_unexpected_values(table: Any, schema: TableSchema) -> list[str]:
    """Return notes on misspelt and many undeclared categories, and on clipped numbers and dates.

    `table`: a **public** one, because notes count its rows, in a form that
    :class:`~vicinal.features.TableFeatures` accepts. `schema`: declares its columns; missing ones
    are skipped.
    """
    _, n_rows, names = read_arrow_columns(table, ())
    notes: list[str] = []
    clipped = []
    for column in schema.columns if n_rows else ():
        if column.name not in names:
            continue
        values = read_arrow_columns(table, [column.name])[0][column.name]
        codes = column.parse_cells(values).codes
        if np.isnan(codes).all():  # permitted, and usual in a single query
            continue
        n_clipped = int(column.find_out_of_bounds(codes).sum())
        if n_clipped and n_clipped <= _MAX_UNEXPECTED_SHARE * (~np.isnan(codes)).sum():
            clipped.append(f"{checks.quote_column(column.name)} ({n_clipped})")
        elif n_clipped or isinstance(column, kinds.CategoryColumn):
            notes += map(str, _list_remarks(column, values, codes))
    if clipped:
        notes.append(
            "values outside the declared bounds count as the nearest bound. Columns, with their "
            f"numbers of such rows: {', '.join(clipped)}."
        )
    return notes


def refuse_rows_without_values(features: Vectors, empty_row: Vectors | None) -> None:
    """Raise UnusableRows if a query has no value at all: its answer would tell nothing of it.

    `features`, (q, d): of the queries. `empty_row`, (1, d): features of a row without any value;
    None if the schema refuses such rows.
    """
    if empty_row is None:
        return
    is_empty = (features == empty_row).all(axis=1)
    if is_empty.any():
        listed = list_rows((np.flatnonzero(is_empty) + 1).tolist())
        problem = "A query must have a value in at least one column of the schema"
        raise UnusableRows(f"{problem}.", f"{problem}. Row {listed} has none: remove it.")


def _list_remarks(column: kinds.TableColumn, values: pa.ChunkedArray, codes: Codes) -> list[Misfit]:
    """Return problems of readable values: an empty column, clipped and undeclared values.

    `column`: the declaration. `values`, `codes`: the cells of the column (n,), and their codes.
    """
    n_present = int((~np.isnan(codes)).sum())
    if n_present == 0:
        fix = "If that is normal, set its kind to ignored"
        return [Misfit(column.name, "holds nothing that can be read", fix, stops=False)]
    if isinstance(column, kinds.CategoryColumn) and column.other:
        return _list_undeclared_values(column, values, codes)
    is_outside = column.find_out_of_bounds(codes)
    fix = "They count as the nearest bound"
    if is_outside.sum() > _MAX_UNEXPECTED_SHARE * n_present:
        fix += ". There are so many that the units may differ from the schema's"
    fault = "values outside the declared bounds"
    return Misfit.from_row_mask(column.name, fault, fix, is_outside, stops=False)


def _list_undeclared_values(
    column: kinds.CategoryColumn, values: pa.ChunkedArray, codes: Codes
) -> list[Misfit]:
    """Return problems of misspelt declared values, and of undeclared ones in most rows.

    The arguments are those of :func:`_list_remarks`.
    """
    declared = set(map(cells.fold_spelling, column.values))
    undeclared = values.filter(pa.array(~(codes < len(column.values)))).drop_null().unique()
    misspelt = [value for value in undeclared.to_pylist() if cells.fold_spelling(value) in declared]
    is_misspelt = pc.is_in(values, value_set=pa.array(misspelt, values.type)).to_numpy()
    fault = "declared values in another spelling, such as other capitals or blanks"
    fix = 'They count as "other" or missing. Write them as the schema does, or declare them'
    # A file in which every value has another spelling loses the whole column without a message.
    is_lost = bool(is_misspelt.any()) and not (codes < len(column.values)).any()
    if is_lost:
        fix += ". No row holds a declared value, so the column is lost"
    misfits = Misfit.from_row_mask(column.name, fault, fix, is_misspelt, stops=is_lost)
    is_other = (codes == len(column.values)) & ~is_misspelt
    if is_other.sum() > _MAX_UNEXPECTED_SHARE * (~np.isnan(codes)).sum():
        fault = cells.FAULT_DESCRIPTIONS[Fault.UNDECLARED]
        fix = 'They count as "other". There are so many that they may be declared otherwise'
        misfits += Misfit.from_row_mask(column.name, fault, fix, is_other, stops=False)
    return misfits
