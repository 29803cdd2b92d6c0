"""Tables in memory, whatever library holds them, as Arrow columns by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from vicinal.errors import InvalidInput
from vicinal.features._table_schema import nfc

_FORMS = (
    "a pandas, polars or Arrow table, a dict of columns, a list of dicts, or a structured array"
)


def table_columns(
    rows: Any, required: Sequence[str], names: Sequence[str] | None = None
) -> tuple[dict[str, pa.ChunkedArray], int, list[str]]:
    """Return the required columns of a table by name, its number of rows, and all names it has.

    `rows`: anything that exports Arrow (pandas, polars, pyarrow), a mapping of names to columns, a
    list of mappings, a structured array; or a plain matrix if `names` are given. `required`:
    columns to return. Others are not looked at. `names`: names of the columns of a plain matrix.
    Raises InvalidInput if a required column is not there, or twice, or cannot be read; no message
    quotes a value.
    """
    table, size = _by_name(rows, names)
    column_of: dict[str, Any] = {}
    for name, column in table:
        key = nfc(name)
        if key in column_of and key in required:
            raise InvalidInput(f"The table has two columns of the name {key!r}. Drop one.")
        column_of[key] = column
    if lacking := [name for name in required if name not in column_of]:
        raise InvalidInput(
            f"The table lacks {'column' if len(lacking) == 1 else 'columns'} "
            f"{', '.join(map(repr, lacking))} of the schema. Add what is lacking (empty where "
            "nothing is known), or take it out of the schema."
        )
    columns = {name: _arrow(name, column_of[name]) for name in required}
    for name, column in columns.items():
        if len(column) != size:
            raise InvalidInput(f"The column {name!r} must be as long as the others.")
    return columns, size, list(column_of)


def _by_name(rows: Any, names: Sequence[str] | None) -> tuple[list[tuple[str, Any]], int]:
    """Return columns with their names, not yet converted, and how many rows there are."""
    if isinstance(rows, pa.Table | pa.RecordBatch):
        return list(zip(rows.schema.names, rows.columns, strict=True)), rows.num_rows
    if hasattr(rows, "iloc") and hasattr(rows, "columns"):  # pandas, whose columns may be objects
        places = range(len(rows.columns))
        return [(str(rows.columns[i]), rows.iloc[:, i]) for i in places], len(rows)
    if hasattr(rows, "__arrow_c_stream__"):
        table = pa.table(rows)
        return list(zip(table.schema.names, table.columns, strict=True)), table.num_rows
    if isinstance(rows, Mapping):
        listed = [(str(name), column) for name, column in rows.items()]
        return listed, _length(listed[0][1]) if listed else 0
    if isinstance(rows, list | tuple) and rows and all(isinstance(row, Mapping) for row in rows):
        return _of_dicts(rows), len(rows)
    if isinstance(rows, np.ndarray) and rows.dtype.names is not None and rows.ndim == 1:
        return [(name, rows[name]) for name in rows.dtype.names], len(rows)
    return _of_matrix(rows, names)


def _of_dicts(rows: Sequence[Mapping[Any, Any]]) -> list[tuple[str, Any]]:
    names = set(rows[0])
    if any(set(row) != names for row in rows):
        raise InvalidInput(
            "Every row must have the same columns; write null where nothing is known."
        )
    return [(str(name), [row[name] for row in rows]) for name in rows[0]]


def _of_matrix(rows: Any, names: Sequence[str] | None) -> tuple[list[tuple[str, Any]], int]:
    if names is None:
        raise InvalidInput(
            f"The rows must have named columns: {_FORMS}. A plain matrix also needs the "
            "'columns' parameter, which names them."
        )
    try:
        matrix = np.asarray(rows)
    except ValueError:
        raise InvalidInput("The rows of a matrix must all have the same length.") from None
    if matrix.ndim != 2 or matrix.shape[1] != len(names):
        raise InvalidInput(
            f"A plain matrix must have shape (n, {len(names)}), as the 'columns' parameter names "
            f"so many. Got {matrix.shape}."
        )
    return [(str(name), matrix[:, i]) for i, name in enumerate(names)], len(matrix)


def _length(column: Any) -> int:
    try:
        return len(column)
    except TypeError:
        raise InvalidInput("Every column must be a list or an array of its values.") from None


def _arrow(name: str, column: Any) -> pa.ChunkedArray:
    """Return one column as Arrow has it, dictionaries and views resolved."""
    try:
        array = _converted(column)
        if isinstance(array.type, pa.ExtensionType):
            array = array.cast(array.type.storage_type)
        if pa.types.is_dictionary(array.type):
            array = _decoded(array)
        return array.cast(pa.large_string()) if str(array.type) == "string_view" else array
    except InvalidInput:
        raise
    except (TypeError, ValueError, OverflowError, pa.ArrowException):
        # Arrow's own message quotes the value.
        raise InvalidInput(
            f"The column {name!r} must hold one type of value. It holds several, or one that "
            "tables do not have. Convert it first."
        ) from None


def _decoded(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return a column without its dictionaries, one a chunk."""
    kind = column.type.value_type
    if str(kind) == "string_view":  # polars' categories; Arrow cannot take from views
        kind = pa.large_string()
    parts = [part.dictionary.cast(kind).take(part.indices) for part in column.chunks]
    return pa.chunked_array(parts, kind)


def _converted(column: Any) -> pa.ChunkedArray:
    if isinstance(column, pa.ChunkedArray):
        return column
    if isinstance(column, pa.Array):
        return pa.chunked_array([column])
    if isinstance(column, str | bytes):
        raise InvalidInput("Every column must be a list or an array of its values.")
    if isinstance(column, np.ndarray) and column.ndim != 1:
        raise InvalidInput("Every column must be flat: one value a row.")
    array = pa.array(column, from_pandas=True)
    return array if isinstance(array, pa.ChunkedArray) else pa.chunked_array([array])
