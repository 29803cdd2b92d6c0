"""Readers of tables and columns that callers pass, whichever library made them.

:func:`read_numbers` and :func:`read_matrix` read every table (features, public rows, queries,
targets), and :func:`read_column` every column of ids or labels. Names of columns are public;
values never appear in a message. pandas, polars and scikit-learn are not imported here: a process
that passes their objects has imported them already.
"""

import re
import unicodedata
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, TypeVar

import numpy as np

from vicinal.arrays import AnyArray, FloatMatrix
from vicinal.errors import InvalidInput, InvalidType

T = TypeVar("T")

Names = tuple[Any, ...]
"""Labels of columns, in their order: texts as a rule; pandas also has numbers and tuples."""

_MAX_LISTED = 5
"""Names that a message lists at most, as many as in scikit-learn's messages."""

_MISSING_TYPES = ("NoneType", "NAType", "NaTType")
"""None, and the missing values of pandas."""

_ENCODE = (
    "Convert numbers that are written as text with astype(float). Encode categories and dates: "
    "pass 'schema' to fit of an Ind-KNN estimator, or use TableFeatures."
)
_DENSE = (
    "Call its toarray() method first, or make it dense where it is made, as with "
    "OneHotEncoder(sparse_output=False)."
)


@dataclass(frozen=True, slots=True, eq=False)
class NumberTable:
    """Numbers of a table.

    `values`: booleans, integers or floats, (n, d); of an array or a column also of another shape.
    `names`: labels of the columns; None of an array or a list.
    """

    values: AnyArray
    names: Names | None


def read_numbers(argument: str, table: Any) -> NumberTable:
    """Return the numbers of a table, an array or a column; missing values are NaN.

    `argument`: the caller's parameter, for messages. `table`: an array, nested lists, a pandas,
    polars or Arrow table or column, a mapping of names to columns, a list of mappings, or a
    structured array.
    Raises InvalidInput for sparse and masked input, and naming a column without numbers.
    """
    refuse_sparse(argument, refuse_masked(argument, table))
    if isinstance(table, np.ndarray) and table.dtype.names is None:
        return NumberTable(_array_numbers(argument, table), None)
    if _is_frame(table):
        return _frame_numbers(argument, table)
    columns = _named_columns(argument, table)
    if columns is not None:
        return _join_columns(argument, columns)
    if is_column(table):
        names = read_names(argument, table)
        location = None if names is None else names[0]
        return NumberTable(_column_numbers(argument, location, table), names)
    try:
        values = np.asarray(table)
    except ValueError:
        raise InvalidInput(
            f"The {argument!r} parameter must be a matrix of numbers, all rows of one length."
        ) from None
    return NumberTable(_array_numbers(argument, values), None)


def read_names(argument: str, table: Any) -> Names | None:
    """Return the labels of a table's columns; None of an array, and of anything without names."""
    if _is_frame(table):
        return _checked_names(argument, table.columns)
    columns = _named_columns(argument, table)
    if columns is not None:
        return _checked_names(argument, (name for name, _ in columns))
    name = getattr(table, "name", None) if is_column(table) else None
    return (name,) if isinstance(name, str) and name else None


def read_matrix(argument: str, table: Any) -> NumberTable:
    """Return the finite numbers of a table as a matrix with at least one row and one column.

    Parameters and errors as for :func:`read_numbers`.
    """
    numbers = read_numbers(argument, table)
    values = numbers.values
    if values.ndim != 2:
        got = "scalar array" if values.ndim == 0 else f"{values.ndim}D array"
        raise InvalidInput(
            f"The {argument!r} parameter must be a matrix (n, d). Expected 2D array, got {got} "
            f"instead. Got {values.ndim} dimensions. Reshape your data: X.reshape(1, -1) if it is "
            "a single row, X.reshape(-1, 1) if it is a single column."
        )
    if 0 in values.shape:
        lacking = "sample(s)" if len(values) == 0 else "feature(s)"
        raise InvalidInput(
            f"The {argument!r} parameter must have at least one row and one column. Found array "
            f"with 0 {lacking} (shape={values.shape}) while a minimum of 1 is required."
        )
    _refuse_infinite(argument, numbers)
    return numbers


def checked_floats(argument: str, numbers: NumberTable, dtype: Any = None) -> FloatMatrix:
    """Return finite numbers as an array in C order.

    `dtype`: of the result; without it float32 stays float32, and all else becomes float64.
    Raises InvalidInput if a number is too large for that type.
    """
    values = numbers.values
    if dtype is None:
        dtype = values.dtype if values.dtype in (np.float32, np.float64) else np.float64
    with np.errstate(all="ignore"):  # a warning would be about a private value
        floats = np.ascontiguousarray(values, dtype=dtype)
    if floats.dtype != values.dtype:
        _refuse_infinite(argument, NumberTable(floats, numbers.names))
    return floats


# ------------------------------------------------ names


def align_columns(
    argument: str,
    table: Any,
    expected: Names | None,
    owner: str,
    read: Callable[[str, Any], NumberTable] = read_matrix,
    advice: str = "",
) -> AnyArray:
    """Return the numbers of a table with its columns in the `expected` order.

    They are matched by name if both sides have names, otherwise by position. `expected`: None of an
    array, whose columns are numbered from 0. `owner`: the table that has these names. `read`: how
    the numbers are read, once the names are right. `advice`: what else may help, for the message.
    Raises InvalidInput with the names that differ, and as `read` does.
    """
    names = read_names(argument, table)
    if names is None:
        return read(argument, table).values
    if expected is None:
        expected = tuple(range(len(names)))
    if not comparable(names, expected):
        return read(argument, table).values
    unexpected, missing = differing_names(names, expected)
    if unexpected or missing:
        described = _describe_unexpected(unexpected, names, expected)
        parts = [f"It has {described}, unknown there."] if unexpected else []
        parts += [f"It lacks {_list_names(missing)}."] if missing else []
        remedy = "Rename, add or drop columns; to match them by position, pass an array."
        parts += [remedy, advice] if advice else [remedy]
        raise InvalidInput(
            f"The {argument!r} parameter must have the columns of {owner}. {' '.join(parts)}"
        )
    index_of = {name: index for index, name in enumerate(_collect_keys(names))}
    order = [index_of[name] for name in _collect_keys(expected)]
    values = read(argument, table).values
    return values if order == list(range(len(order))) else values[:, order]


def comparable(names: Names, expected: Names) -> bool:
    """Return whether two tables can be matched by name.

    pandas numbers columns without names from 0: such numbers are names only for a table that has
    the same numbers, in another order perhaps.
    """
    if set(_collect_keys(names)) == set(_collect_keys(expected)):
        return True
    return not (_are_numbered(names) or _are_numbered(expected))


def differing_names(names: Names, expected: Names) -> tuple[list[str], list[str]]:
    """Return the names that are not expected, and the expected ones that are missing."""
    present, wanted = _collect_keys(names), _collect_keys(expected)
    unexpected = sorted(set(present) - set(wanted))
    return unexpected, sorted(set(wanted) - set(present))


def _describe_unexpected(unexpected: Sequence[str], names: Names, expected: Names) -> str:
    """Return unexpected names for a message, or only their number if they may be private values.

    A file that is read without its header has the values of a record as names, and a transposed
    table has subject ids. If most expected names are present there is a header, and all are quoted.
    """
    n_known = len(_collect_keys(expected)) - len(differing_names(names, expected)[1])
    has_header = 2 * n_known >= len(expected)
    if has_header or not (_hold_a_number(unexpected) or len(names) > 2 * len(expected)):
        return _list_names(unexpected)
    return f"{len(unexpected)} other columns (is the header missing, or the table transposed?)"


def _hold_a_number(names: Iterable[str]) -> bool:
    """Return whether a name reads as a number, as one of a file without a header does."""
    return any(re.fullmatch(r"[-+]?[\d.,]*\d[\d.,]*(e[-+]?\d+)?", name, re.I) for name in names)


def refuse_other_names(names: Names | None, expected: Names | None) -> None:
    """Raise InvalidInput, in scikit-learn's words, if X has other columns than `fit` had.

    Columns in another order are refused, too, as scikit-learn does.
    """
    if names is None:
        return
    if expected is None:
        expected = tuple(range(len(names)))
    if not comparable(names, expected):
        return
    if _collect_keys(names) == _collect_keys(expected):
        return
    unexpected, missing = differing_names(names, expected)
    message = "The feature names should match those that were passed during fit.\n"
    described = _describe_unexpected(unexpected, names, expected)
    if unexpected and described == _list_names(unexpected):
        message += f"Feature names unseen at fit time:\n{_format_list(unexpected)}"
    elif unexpected:
        message += f"Feature names unseen at fit time:\n- {described}\n"
    if missing:
        message += f"Feature names seen at fit time, yet now missing:\n{_format_list(missing)}"
    if not unexpected and not missing:
        message += "Feature names must be in the same order as they were in fit.\n"
        message += f"That order is:\n{_format_list(_collect_keys(expected))}"
    raise InvalidInput(f"{message}Select the columns of fit, in their order, by these names.")


def refuse_other_width(values: AnyArray, n_features: int, owner: str) -> None:
    """Raise InvalidInput, in scikit-learn's words, if X has another number of columns."""
    if values.shape[1] != n_features:
        raise InvalidInput(
            f"X has {values.shape[1]} features, but {owner} is expecting {n_features} features as "
            "input."
        )


def note_columns(estimator: Any, n_features: int, names: Names | None) -> None:
    """Note on a scikit-learn estimator how many columns it was fitted with, and their names.

    scikit-learn's own attribute holds texts only.
    """
    estimator.n_features_in_ = n_features
    estimator._column_names = names
    texts = text_names(names)
    if texts is not None:
        estimator.feature_names_in_ = np.asarray(texts, dtype=object)
    elif hasattr(estimator, "feature_names_in_"):
        del estimator.feature_names_in_


def _format_list(names: Sequence[str]) -> str:
    more = "- ...\n" if len(names) > _MAX_LISTED else ""
    return "".join(f"- {name}\n" for name in names[:_MAX_LISTED]) + more


def given_names(names: Names | None) -> list[str] | None:
    """Return names as texts; None if there are none, or if pandas numbered the columns itself."""
    return None if names is None or _are_numbered(names) else list(map(str, names))


def text_names(names: Names | None) -> Names | None:
    """Return names if they are texts, which alone scikit-learn takes for names; None otherwise."""
    return names if names and all(isinstance(name, str) for name in names) else None


def _collect_keys(names: Names) -> list[str]:
    return [unicodedata.normalize("NFC", str(name)) for name in names]


def _are_numbered(names: Names) -> bool:
    return names == tuple(range(len(names)))


def _list_names(names: Sequence[str]) -> str:
    more = ", ..." if len(names) > _MAX_LISTED else ""
    return ", ".join(map(repr, names[:_MAX_LISTED])) + more


def _checked_names(argument: str, labels: Iterable[Any]) -> Names:
    names = tuple(labels)
    n_texts = sum(isinstance(name, str) for name in names)
    if 0 < n_texts < len(names):
        raise InvalidType(
            f"The {argument!r} parameter must have columns whose names are all texts, or all "
            "numbers. Convert them, as with frame.columns = frame.columns.astype(str)."
        )
    keys = _collect_keys(names)
    if len(set(keys)) < len(keys):
        twice = sorted({key for key in keys if keys.count(key) > 1})
        # Without a header the names are values of a record.
        named = "equal names" if _hold_a_number(twice) else f"the name {_list_names(twice)} twice"
        raise InvalidInput(
            f"The {argument!r} parameter has columns with {named}. Rename or drop all but one."
        )
    return names


# ------------------------------------------------ kinds of input


def refuse_masked(argument: str, values: T) -> T:
    """Return values unless they are a masked array, or a list of masked arrays.

    NumPy shows what stands behind a mask as if it were there, or turns all of it into one None.
    """
    rows = values if isinstance(values, list | tuple) else ()
    if any(isinstance(item, np.ma.MaskedArray) for item in (values, *rows)):
        raise InvalidInput(
            f"The {argument!r} parameter must not be a masked array, because masked values would "
            "count. Drop or fill those rows, and pass a plain array."
        )
    return values


def refuse_sparse(argument: str, values: Any) -> None:
    """Raise InvalidInput if values are a sparse matrix or array of SciPy."""
    # SciPy's classes stand in modules of this name, so SciPy need not be imported here.
    if hasattr(values, "toarray") and "sparse" in type(values).__module__:
        raise InvalidInput(f"The {argument!r} parameter must be dense. Got sparse data. {_DENSE}")


def is_missing(value: object) -> bool:
    """Return whether a value stands for one that is missing: None, NaN, or those of pandas."""
    if type(value).__name__ in _MISSING_TYPES:
        return True
    if isinstance(value, Decimal):
        return value.is_nan()  # a comparison of a signalling NaN raises
    return isinstance(value, float | np.floating) and bool(value != value)


def is_column(values: Any) -> bool:
    """Return whether values are one column of a library: of pandas, polars or Arrow."""
    if isinstance(values, np.ndarray | list | tuple | str | bytes):
        return False
    return any(hasattr(values, convert) for convert in ("to_pylist", "to_list"))


def is_table(values: Any) -> bool:
    """Return whether values are a table with names of columns, of any library."""
    return _is_frame(values) or hasattr(values, "num_columns") or hasattr(values, "get_columns")


def _is_frame(table: Any) -> bool:
    return hasattr(table, "iloc") and hasattr(table, "columns")


def _named_columns(argument: str, table: Any) -> list[tuple[Any, Any]] | None:
    """Return the columns of a table with their names; None of anything that is not a table."""
    if isinstance(table, list | tuple):
        if not table or not all(isinstance(row, Mapping) for row in table):
            return None
        if any(row.keys() != table[0].keys() for row in table):
            raise InvalidInput(
                f"The {argument!r} parameter must have the same columns in all rows."
            )
        return [(name, [row[name] for row in table]) for name in table[0]]
    if isinstance(table, Mapping):
        return list(table.items())
    if isinstance(table, np.ndarray):
        fields = table.dtype.names or ()
        return [(name, table[name]) for name in fields] if table.ndim == 1 else None
    if hasattr(table, "num_columns") or (
        hasattr(table, "__arrow_c_stream__") and not is_column(table)
    ):
        import pyarrow as pa  # as slow to import as NumPy; arrays need none of it

        arrow = table if isinstance(table, pa.Table) else pa.table(table)
        return list(zip(arrow.schema.names, arrow.columns, strict=True))
    return None


# ------------------------------------------------ numbers


def _frame_numbers(argument: str, frame: Any) -> NumberTable:
    """Return the numbers of a pandas table."""
    names = _checked_names(argument, frame.columns)
    dtypes = list(frame.dtypes)
    if dtypes and all(isinstance(item, np.dtype) and item.kind in "biuf" for item in dtypes):
        values = np.array(frame.to_numpy(dtype=_common_dtype(dtypes)), order="C")
        return NumberTable(values, names)
    columns = [(name, frame.iloc[:, index]) for index, name in enumerate(names)]
    if not columns:
        return NumberTable(np.empty((len(frame), 0)), names)
    return _join_columns(argument, columns)


def _join_columns(argument: str, columns: list[tuple[Any, Any]]) -> NumberTable:
    """Return the numbers of named columns."""
    names = _checked_names(argument, (name for name, _ in columns))
    arrays = [_column_numbers(argument, name, column) for name, column in columns]
    if any(column.ndim != 1 or len(column) != len(arrays[0]) for column in arrays):
        raise InvalidInput(f"The {argument!r} parameter must have flat columns of one length.")
    if not arrays:
        return NumberTable(np.empty((0, 0)), names)
    values = np.empty(
        (len(arrays[0]), len(arrays)), dtype=_common_dtype([item.dtype for item in arrays])
    )
    for index, column in enumerate(arrays):
        values[:, index] = column
    return NumberTable(values, names)


def _common_dtype(dtypes: list[Any]) -> Any:
    """Return the type that holds all columns; float64 for booleans beside numbers."""
    different = set(dtypes)
    if len(different) > 1 and any(item.kind == "b" for item in different):
        return np.dtype(np.float64)
    return np.result_type(*different)


def _column_numbers(argument: str, name: Any, column: Any) -> AnyArray:
    """Return the numbers of one column; missing ones are NaN."""
    location = "" if name is None else f" in column {str(name)!r}"
    dtype = getattr(column, "dtype", None)
    if isinstance(column, np.ndarray) or isinstance(dtype, np.dtype):
        return _array_numbers(argument, np.asarray(column), location)
    if hasattr(column, "to_pylist"):
        column = _arrow_numbers(column)
        if isinstance(column, np.ndarray):
            return _array_numbers(argument, column, location)
    if hasattr(column, "iloc"):  # an extension type of pandas
        kind = getattr(dtype, "kind", "O")
        if kind in "biuf":
            return np.asarray(column.to_numpy(dtype=np.float64, na_value=np.nan))
        if kind in "mM":
            raise _no_numbers(argument, location, "dates or times")
    return _array_numbers(argument, _to_objects(_list_values(column)), location)


def _arrow_numbers(column: Any) -> Any:
    """Return the numbers of an Arrow column without a detour over Python objects.

    A column of any other type is returned as it is.
    """
    import pyarrow as pa

    kind = column.type
    if pa.types.is_boolean(kind) and column.null_count == 0:
        return np.asarray(column)
    if pa.types.is_integer(kind) or pa.types.is_floating(kind):
        return np.asarray(column if column.null_count == 0 else column.cast(pa.float64()))
    return column


def _to_objects(values: Any) -> AnyArray:
    """Return numbers as an array of them, and all else as a flat array of Python objects."""
    listed = [None if type(item).__name__ in _MISSING_TYPES else item for item in values]
    kinds = set(map(type, listed))
    if kinds <= {int, float, bool} and len(kinds) == 1:
        return np.asarray(listed)
    objects = np.empty(len(listed), dtype=object)
    objects[:] = listed
    return objects


def _array_numbers(argument: str, values: AnyArray, location: str = "") -> AnyArray:
    """Return an array of numbers; objects that are numbers are converted to float64."""
    kind = values.dtype.kind
    if kind in "biuf":
        return values
    if kind == "c":
        raise InvalidInput(
            f"The {argument!r} parameter must hold real numbers{location}. "
            "Complex data not supported."
        )
    if kind in "mM":
        raise _no_numbers(argument, location, "dates or times")
    if kind == "O":
        try:
            if not any(issubclass(item, str | bytes) for item in set(map(type, values.flat))):
                return values.astype(np.float64)
        except (TypeError, ValueError, OverflowError):
            pass  # the loops below find the column and the type
        if not location and values.ndim == 2:
            columns = range(values.shape[1])
            numbers = [
                _array_numbers(argument, values[:, i], f" in column {i + 1}") for i in columns
            ]
            return np.stack(numbers, axis=1)
        return _convert_objects(argument, values, location)
    held = "text" if kind in "UST" else f"dtype {values.dtype}"
    raise _no_numbers(argument, location, held) from None  # an outer error's context shows no value


def _convert_objects(argument: str, values: AnyArray, location: str) -> AnyArray:
    """Return objects as float64 with NaN where one is missing, or say which type is no number."""
    numbers = []
    for value in values.ravel().tolist():
        if isinstance(value, str | bytes):
            raise _no_numbers(argument, location, "text")
        try:
            numbers.append(np.nan if is_missing(value) else float(value))
        except TypeError:
            raise _no_numbers(argument, location, type(value).__name__, InvalidType) from None
        except (ValueError, OverflowError):
            raise _no_numbers(
                argument, location, "a number that is too large for a float"
            ) from None
    return np.asarray(numbers, dtype=np.float64).reshape(values.shape)


def _no_numbers(
    argument: str, location: str, content: str, kind: type[InvalidInput] = InvalidInput
) -> InvalidInput:
    # scikit-learn's checks of estimators look for Python's words: "argument must be a string or a
    # real number".
    python = " (float() argument must be a string or a real number)" if kind is InvalidType else ""
    return kind(
        f"The {argument!r} parameter must hold numbers{python}. Got {content}{location}. {_ENCODE}"
    )


def refuse_missing(argument: str, values: AnyArray) -> None:
    """Raise InvalidInput if numbers of any shape are NaN, or infinite."""
    if values.dtype.kind == "f" and not np.isfinite(values).all():
        raise InvalidInput(
            f"The {argument!r} parameter must hold finite numbers: no NaN (a missing value) or "
            "infinity. Drop those rows."
        )


def _refuse_infinite(argument: str, numbers: NumberTable) -> None:
    values = numbers.values
    if values.dtype.kind != "f":
        return
    with np.errstate(all="ignore"):
        # The sum of all is finite as a rule; only if it is not each number has to be looked at.
        if np.isfinite(values.sum(dtype=np.float64)) or np.isfinite(values).all():
            return
    at_fault = np.flatnonzero(~np.isfinite(values).all(axis=0)).tolist()
    names = [
        str(index + 1 if numbers.names is None else numbers.names[index]) for index in at_fault
    ]
    noun = "column" if len(names) == 1 else "columns"
    raise InvalidInput(
        f"The {argument!r} parameter must hold finite numbers. Got NaN (a missing value) or "
        f"infinity in {noun} {_list_names(names)}. Fill them in, or drop those rows."
    )


# ------------------------------------------------ columns of ids and labels


def read_column(argument: str, column: Any) -> list[Any] | AnyArray:
    """Return the values of a column of ids or labels: a flat array, or a list of Python objects.

    `column`: an array, any iterable, a column of pandas, polars or Arrow, or a table of one column.
    Raises InvalidInput if it is a single value or has several columns.
    """
    refuse_sparse(argument, refuse_masked(argument, column))
    if isinstance(column, np.ndarray):
        return _flat_array(argument, column)
    if isinstance(column, str | bytes | Mapping):
        raise _not_flat(argument, "Got a single value; put it into a list.")
    if is_table(column):
        columns = _columns_of(argument, column)
        if len(columns) != 1:
            raise _not_flat(argument, f"Got a table of {len(columns)} columns. Choose one of them.")
        _warn_of_matrix(argument)
        return read_column(argument, columns[0])
    dtype = getattr(column, "dtype", None)
    if isinstance(dtype, np.dtype) and dtype.kind in "biuU":
        return _flat_array(argument, np.asarray(column))
    return _list_values(column, argument)


def _columns_of(argument: str, table: Any) -> list[Any]:
    if _is_frame(table):
        return [table.iloc[:, index] for index in range(len(table.columns))]
    return [column for _, column in _named_columns(argument, table) or []]


def _list_values(column: Any, argument: str = "") -> list[Any]:
    """Return the values of a column of any library as a list of Python objects."""
    for convert in ("tolist", "to_pylist", "to_list"):
        if hasattr(column, convert):
            column = getattr(column, convert)()
            break
    else:
        if hasattr(column, "__array__"):
            return list(_flat_array(argument, np.asarray(column)).tolist())
    if not isinstance(column, Iterable) or isinstance(column, str | bytes):
        raise _not_flat(argument, "Got a single value; put it into a list.")
    return list(column)


def _flat_array(argument: str, values: AnyArray) -> AnyArray:
    if values.ndim == 0:
        raise _not_flat(argument, "Got a single value; put it into a list.")
    if values.ndim == 2 and values.shape[1] == 1:
        _warn_of_matrix(argument)
        return values[:, 0]
    if values.ndim != 1 or values.dtype.names is not None:
        raise _not_flat(argument, "Got several columns. Choose one of them.")
    return values


def _not_flat(argument: str, got: str) -> InvalidInput:
    return InvalidInput(f"The {argument!r} parameter must be a flat list or column. {got}")


def _warn_of_matrix(argument: str) -> None:
    from sklearn.exceptions import DataConversionWarning  # slow to import, and rarely needed

    warnings.warn(
        f"A column-vector {argument} was passed when a 1d array was expected. Pass one column, as "
        "with ravel().",
        DataConversionWarning,
        stacklevel=2,
    )


# ------------------------------------------------ order of rows


def check_row_order(X: Any, **columns: Any) -> None:
    """Raise InvalidInput if a column has the row labels of `X` in another order, or no order.

    Rows are matched by position. pandas matches them by index elsewhere, so a column that was
    sorted or shuffled by itself would give records the labels or ids of others.
    """
    for argument, column in columns.items():
        if isinstance(column, Set) and not isinstance(column, Sequence):
            raise InvalidInput(
                f"The {argument!r} parameter must be in the order of X. Got a set, which has no "
                "order. Pass a list."
            )
    index = _get_index(X)
    if index is None:
        return
    for argument, column in columns.items():
        other = _get_index(column)
        if other is None or len(other) != len(index) or index.equals(other):
            continue
        if other.nlevels != index.nlevels:
            continue
        if bool(index.isin(other).all()) and bool(other.isin(index).all()):
            raise InvalidInput(
                f"The {argument!r} parameter must be in the order of X. Its index holds the same "
                f"row labels in another order. Pass {argument}.loc[X.index], or "
                f"{argument}.to_numpy() to match rows by position."
            )


def _get_index(table: Any) -> Any:
    """Return the row labels of a pandas object; None of all others."""
    index = getattr(table, "index", None)
    return index if hasattr(index, "equals") and hasattr(index, "isin") else None
