"""Tables of any library as Arrow columns. Values never appear in a message."""

import datetime as dt
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from vicinal import checks, tabular
from vicinal.errors import InvalidInput, UnusableRows
from vicinal.features.table_columns import plain_text

_NO_TABLE = (
    "The rows must have named columns: a pandas, polars or Arrow table, a dict of columns, a "
    "list of dicts, or a structured array. A single row is a table too, such as df.iloc[[0]]."
)


def read_arrow_columns(
    table: Any, required: Sequence[str]
) -> tuple[dict[str, pa.ChunkedArray], int, list[str]]:
    """Return the required columns of a table by name, its number of rows, and all column names.

    `table`: as for :func:`list_columns`. `required`: names of the columns to return. All names are
    in composed form (NFC), in the order of the table; repeated ones are kept. Raises InvalidInput
    if a required column is missing, occurs twice, or cannot be converted.
    """
    named_columns, n_rows = list_columns(table)
    names = [checks.normalize_text(name) for name, _ in named_columns]
    column_of: dict[str, Any] = {}
    for name, (_, column) in zip(names, named_columns, strict=True):
        if name in column_of and name in required:
            raise InvalidInput(f"The table has two columns named {name!r}. Drop one.")
        column_of[name] = column
    missing_names = [name for name in required if name not in column_of]
    if missing_names:
        problem = (
            f"The table lacks {'column' if len(missing_names) == 1 else 'columns'} "
            f"{', '.join(map(checks.quote_column, missing_names))} of the schema."
            f"{checks.suggest_columns(missing_names, names)} Add what is missing (empty where "
            "nothing is known)"
        )
        remedy = "take it out of the schema; a label or an id does not belong there"
        message = f"{problem}, or {remedy}."
        raise UnusableRows(message, message, for_clients=f"{problem}.")
    columns = {name: _convert_column(name, column_of[name]) for name in required}
    for name, column in columns.items():
        if len(column) != n_rows:
            raise InvalidInput(f"The column {name!r} must be as long as the others.")
    return columns, n_rows, names


def list_columns(table: Any) -> tuple[list[tuple[str, Any]], int]:
    """Return pairs of name and unconverted column of a table, and its number of rows.

    `table`: anything that exports Arrow (pandas, polars, pyarrow), a mapping of names to columns, a
    list of mappings, or a structured array. Raises InvalidInput for other values.
    """
    named_columns = tabular.list_columns("rows", table)
    if named_columns is None:
        raise InvalidInput(_NO_TABLE)
    if isinstance(table, list | tuple):
        named_columns = [(name, _unify_types(column)) for name, column in named_columns]
    try:
        n_rows = len(named_columns[0][1]) if named_columns else 0
    except TypeError:
        raise InvalidInput("Every column must be a list or an array of its values.") from None
    return [(str(name), column) for name, column in named_columns], n_rows


def _unify_types(values: list[Any]) -> list[Any]:
    """Return a column's values as texts if texts and numbers are mixed, which Arrow refuses."""
    types = {type(value) for value in values}
    if str not in types or not types & {bool, int, float}:
        return values
    return [None if value is None or value != value else plain_text(value) for value in values]


def _convert_column(name: str, column: Any) -> pa.ChunkedArray:
    """Return a column of any library, called `name`, as an Arrow column without dictionaries."""
    try:
        array = _build_chunked_array(column)
        if isinstance(array.type, pa.ExtensionType):
            array = array.cast(array.type.storage_type)
        if pa.types.is_dictionary(array.type):
            value_type = array.type.value_type
            if str(value_type) == "string_view":  # of polars; Arrow cannot take from views
                value_type = pa.large_string()
            # Each chunk may have its own dictionary.
            chunks = [
                chunk.dictionary.cast(value_type).take(chunk.indices) for chunk in array.chunks
            ]
            array = pa.chunked_array(chunks, value_type)
        return array.cast(pa.large_string()) if str(array.type) == "string_view" else array
    except InvalidInput:
        raise
    except (TypeError, ValueError, OverflowError, pa.ArrowException):
        # Arrow's own message quotes the value.
        raise InvalidInput(
            f"The column {name!r} must hold one type of value. It holds several, or one that "
            "tables do not have. Convert it first."
        ) from None


def _build_chunked_array(column: Any) -> pa.ChunkedArray:
    """Return a list, array, or column of any library as an Arrow column of any type."""
    if isinstance(column, pa.ChunkedArray):
        return column
    if isinstance(column, str | bytes):
        raise InvalidInput("Every column must be a list or an array of its values.")
    if isinstance(column, np.ndarray) and column.ndim != 1:
        raise InvalidInput("Every column must be flat: one value a row.")
    dtype = getattr(column, "dtype", None)
    has_objects = isinstance(dtype, np.dtype) and dtype.hasobject
    if isinstance(column, list | tuple) or has_objects:
        column = _unify_times(column)
    array = column if isinstance(column, pa.Array) else pa.array(column, from_pandas=True)
    return array if isinstance(array, pa.ChunkedArray) else pa.chunked_array([array])


_TIME_TYPES = (dt.datetime, dt.date, dt.time, dt.timedelta, np.datetime64, np.timedelta64)
"""Python's and NumPy's types of times; a datetime is also a date, so it comes first."""


def _unify_times(values: Any) -> Any:
    """Return a column's Python objects with times of one type; raise TypeError for mixed types.

    Dates beside moments without a time zone become midnight. From mixed types, Arrow would drop
    times of day, read a moment without a time zone as UTC, and numbers as days.
    """
    if not any(issubclass(value_type, _TIME_TYPES) for value_type in set(map(type, values))):
        return values
    # NaN and NaT, which are missing, differ from themselves.
    present = [value for value in values if value is not None and value == value]
    have_zone = {value.tzinfo is not None for value in present if isinstance(value, dt.datetime)}
    types = {
        next((kind for kind in _TIME_TYPES if isinstance(value, kind)), type(value))
        for value in present
    }
    if types == {dt.date, dt.datetime} and have_zone == {False}:
        midnight = dt.time()
        return [
            dt.datetime.combine(value, midnight) if type(value) is dt.date else value
            for value in values
        ]
    if len(types) > 1 or len(have_zone) > 1:
        raise TypeError  # several types
    return values
