"""Readers of tables and columns that callers pass, of any library.

:func:`read_numbers` and :func:`read_matrix` read all tables (features, public rows, queries,
targets), and :func:`read_column` all columns of ids or labels. Column names are public; values
never appear in a message. pandas, polars and scikit-learn are not imported here: a process that
passes their objects has imported them already.

In all functions, `argument` is the name of the caller's parameter, for messages. `location` is the
column as it is named in a message, such as " in column 'age'"; empty if unknown.
"""

import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np

from vicinal.arrays import AnyArray, FloatMatrix
from vicinal.errors import InvalidInput, InvalidType, warn_caller

Names = tuple[Any, ...]
"""Labels of columns, in their order: usually texts; pandas also has numbers and tuples."""

_MAX_LISTED = 5  # largest number of names that a message lists, as in scikit-learn's messages

_MISSING_TYPES = ("NoneType", "NAType", "NaTType")
"""Types of None, and of the missing values of pandas."""

_ENCODE_ADVICE = (
    "Convert numbers that are written as text with astype(float). Encode categories and dates by a "
    "schema, which vicinal.features.draft_schema drafts from public rows: pass it as 'schema' to "
    "fit of an Ind-KNN estimator, use TableFeatures(schema).transform, or give a store "
    'extractor=StoreExtractor("table", {"schema": schema}), which also transforms its public rows.'
)
_SINGLE_VALUE = "Got a single value; put it into a list."
_DENSE_ADVICE = (
    "Call its toarray() method first, or make it dense where it is made, as with "
    "OneHotEncoder(sparse_output=False)."
)


@dataclass(frozen=True, slots=True, eq=False)
class NumberTable:
    """The numbers and column names of a table.

    `values`: booleans, integers or floats, (n, d); of an array or a column also of another shape.
    `names`: labels of the columns; None for an array or a list.
    """

    values: AnyArray
    names: Names | None


def read_numbers(argument: str, table: Any) -> NumberTable:
    """Return the numbers of a table, an array or a column; missing values are NaN.

    `table`: an array, nested lists, a pandas, polars or Arrow table or column, a mapping of names
    to columns, a list of mappings, or a structured array.
    Raises InvalidInput for sparse and masked input, and for other values, with their column's name.
    """
    refuse_masked_and_sparse(argument, table)
    if isinstance(table, np.ndarray) and table.dtype.names is None:
        return NumberTable(_require_numbers(argument, table), None)
    if _is_frame(table):
        return _read_frame(argument, table)
    columns = list_columns(argument, table)
    if columns is not None:
        return _stack_columns(argument, columns)
    if is_column(table):
        names = read_names(argument, table)
        name = None if names is None else names[0]
        return NumberTable(_read_number_column(argument, name, table), names)
    try:
        values = np.asarray(table)
    except ValueError:
        raise InvalidInput(
            f"The {argument!r} parameter must be a matrix of numbers, all rows of one length."
        ) from None
    return NumberTable(_require_numbers(argument, values), None)


def read_names(argument: str, table: Any) -> Names | None:
    """Return the labels of a table's columns; None for an array, and for all else without names."""
    if _is_frame(table):
        return _check_names(argument, table.columns)
    columns = list_columns(argument, table)
    if columns is not None:
        return _check_names(argument, (name for name, _ in columns))
    name = getattr(table, "name", None) if is_column(table) else None
    return (name,) if isinstance(name, str) and name else None


def read_matrix(argument: str, table: Any) -> NumberTable:
    """Return the finite numbers of a table as a matrix with at least one row and one column.

    `table`: of any library, in a form that :func:`read_numbers` accepts.
    """
    matrix = read_numbers(argument, table)
    values = matrix.values
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
    _refuse_nonfinite_columns(argument, matrix)
    return matrix


def convert_to_floats(argument: str, matrix: NumberTable, dtype: Any = None) -> FloatMatrix:
    """Return the finite numbers of a matrix as an array in C order.

    `dtype`: of the result; None keeps float32, and converts all other types to float64.
    Raises InvalidInput if a number is too large for that type.
    """
    values = matrix.values
    if dtype is None:
        dtype = values.dtype if values.dtype in (np.float32, np.float64) else np.float64
    with np.errstate(all="ignore"):  # a warning would be about a private value
        floats = np.ascontiguousarray(values, dtype=dtype)
    if floats.dtype != values.dtype:
        _refuse_nonfinite_columns(argument, NumberTable(floats, matrix.names))
    return floats


# ---------------------------------------------------------------- names


def align_columns(
    argument: str,
    table: Any,
    expected: Names | None,
    expected_source: str,
    read_values: Callable[[str, Any], NumberTable] = read_matrix,
    advice: str = "",
) -> AnyArray:
    """Return the numbers of a table with its columns in the `expected` order.

    Columns are matched by name if both sides have names, otherwise by position; 0, 1, ... are names
    only if both sides have these. Raises InvalidInput with the names that differ.

    `expected`: names of the columns; None stands for 0, 1, ..., the columns of an array.
    `expected_source`: the table or parameter that has these names. `read_values`: reader of the
    numbers. `advice`: a further remedy for the message.
    """
    names = read_names(argument, table)
    if names is None:
        return read_values(argument, table).values
    if expected is None:
        expected = tuple(range(len(names)))
    differences = _compare_names(names, expected)
    if differences is None:
        return read_values(argument, table).values
    unexpected, missing = differences
    if unexpected or missing:
        sentences = [f"The {argument!r} parameter must have the columns of {expected_source}."]
        if unexpected:
            is_public = _are_public(unexpected, missing, names, expected)
            shown = _quote_names(unexpected) if is_public else _hide_names(unexpected)
            sentences.append(f"It has {shown}, unknown there.")
        if missing:
            sentences.append(f"It lacks {_quote_names(missing)}.")
        sentences.append("Rename, add or drop columns; to match them by position, pass an array.")
        raise InvalidInput(" ".join([*sentences, advice]).rstrip())
    index_of = {name: index for index, name in enumerate(_normalize_names(names))}
    order = [index_of[name] for name in _normalize_names(expected)]
    values = read_values(argument, table).values
    return values if order == list(range(len(order))) else values[:, order]


def _compare_names(names: Names, expected: Names) -> tuple[list[str], list[str]] | None:
    """Return the unexpected and the missing names of a table's columns, two lists of text.

    None if columns are matched by position: pandas numbers columns without names from 0, and such
    numbers are names only if both the table's `names` and the `expected` ones have them.
    """
    present = set(_normalize_names(names))
    required = set(_normalize_names(expected))
    if present != required and (_are_numbered(names) or _are_numbered(expected)):
        return None
    return sorted(present - required), sorted(required - present)


def _are_public(
    unexpected: Sequence[str], missing: Sequence[str], names: Names, expected: Names
) -> bool:
    """Return whether a message may show unexpected names: not if they may be private values.

    A file that is read without its header has the values of a record as names, and a transposed
    table has subject ids. If most expected names are present there is a header, and all are public.
    `missing`: those of the `expected` names that are not among the table's `names`.
    """
    has_header = 2 * (len(expected) - len(missing)) >= len(expected)
    may_be_values = _have_number(unexpected) or len(names) > 2 * len(expected)
    return has_header or not may_be_values


def _hide_names(names: Sequence[str]) -> str:
    """Return the number of columns whose names may be private values, for a message."""
    return f"{len(names)} other columns (is the header missing, or the table transposed?)"


def _have_number(names: Iterable[str]) -> bool:
    """Return whether one of some names is a number, as a value in a file without a header is."""
    return any(re.fullmatch(r"[-+]?[\d.,]*\d[\d.,]*(e[-+]?\d+)?", name, re.I) for name in names)


def refuse_other_names(names: Names | None, expected: Names | None) -> None:
    """Raise InvalidInput, in scikit-learn's words, if X has other column names than `fit` had.

    The order must be the same, too. `names`: column names of X. `expected`: those of `fit`. None
    stands for columns without names.
    """
    if names is None:
        return
    if expected is None:
        expected = tuple(range(len(names)))
    differences = _compare_names(names, expected)
    if differences is None or _normalize_names(names) == _normalize_names(expected):
        return
    unexpected, missing = differences
    message = "The feature names should match those that were passed during fit.\n"
    if unexpected:
        is_public = _are_public(unexpected, missing, names, expected)
        items = _itemize_names(unexpected) if is_public else f"- {_hide_names(unexpected)}\n"
        message += f"Feature names unseen at fit time:\n{items}"
    if missing:
        message += f"Feature names seen at fit time, yet now missing:\n{_itemize_names(missing)}"
    if not unexpected and not missing:
        message += "Feature names must be in the same order as they were in fit.\n"
        message += f"That order is:\n{_itemize_names(_normalize_names(expected))}"
    raise InvalidInput(f"{message}Select the columns of fit, in their order, by these names.")


def refuse_other_width(values: AnyArray, n_features: int, holder: str) -> None:
    """Raise InvalidInput, in scikit-learn's words, if `values` do not have `n_features` columns.

    `holder`: the name of the estimator or store that expects them.
    """
    if values.shape[1] != n_features:
        raise InvalidInput(
            f"X has {values.shape[1]} features, but {holder} is expecting {n_features} features as "
            "input."
        )


def set_column_attributes(estimator: Any, n_features: int, names: Names | None) -> None:
    """Set the attributes of a fitted estimator: number and `names` of the columns of its data.

    scikit-learn's attribute `feature_names_in_` is set only if all names are texts.
    """
    estimator.n_features_in_ = n_features
    estimator._column_names = names
    texts = get_text_names(names)
    if texts is not None:
        estimator.feature_names_in_ = np.asarray(texts, dtype=object)
    elif hasattr(estimator, "feature_names_in_"):
        del estimator.feature_names_in_


def get_explicit_names(names: Names | None) -> list[str] | None:
    """Return column names as texts; None if there are none, or if pandas numbered the columns."""
    return None if names is None or _are_numbered(names) else list(map(str, names))


def get_text_names(names: Names | None) -> Names | None:
    """Return column names if all are texts, as scikit-learn requires of names; None otherwise."""
    return names if names and all(isinstance(name, str) for name in names) else None


def _normalize_names(names: Names) -> list[str]:
    """Return column names as texts in Unicode's composed form (NFC), in which they are compared."""
    return [unicodedata.normalize("NFC", str(name)) for name in names]


def _are_numbered(names: Names) -> bool:
    """Return whether names are 0, 1, ..., which pandas gives to columns without names."""
    return names == tuple(range(len(names)))


def _itemize_names(names: Sequence[str]) -> str:
    """Return the first :data:`_MAX_LISTED` names as lines of a list, as scikit-learn's messages."""
    ellipsis = "- ...\n" if len(names) > _MAX_LISTED else ""
    return "".join(f"- {name}\n" for name in names[:_MAX_LISTED]) + ellipsis


def _quote_names(names: Sequence[str]) -> str:
    """Return the first :data:`_MAX_LISTED` names in quotation marks, separated by commas."""
    ellipsis = ", ..." if len(names) > _MAX_LISTED else ""
    return ", ".join(map(repr, names[:_MAX_LISTED])) + ellipsis


def _check_names(argument: str, labels: Iterable[Any]) -> Names:
    """Return column names as a tuple; raise if two are equal or only some of them are texts."""
    names = tuple(labels)
    n_texts = sum(isinstance(name, str) for name in names)
    if 0 < n_texts < len(names):
        raise InvalidType(
            f"The {argument!r} parameter must have columns whose names are all texts, or all "
            "numbers. Convert them, as with frame.columns = frame.columns.astype(str)."
        )
    keys = _normalize_names(names)
    if len(set(keys)) < len(keys):
        repeated = sorted({key for key in keys if keys.count(key) > 1})
        # Without a header the names are values of a record.
        described = (
            "equal names" if _have_number(repeated) else f"the name {_quote_names(repeated)} twice"
        )
        raise InvalidInput(
            f"The {argument!r} parameter has columns with {described}. Rename or drop all but one."
        )
    return names


# ---------------------------------------------------------------- types of input


def refuse_masked_and_sparse(argument: str, values: Any) -> None:
    """Raise InvalidInput for a masked array, a list of them, and a sparse matrix of SciPy.

    NumPy reads the masked values as if they were valid, or a whole array as one None.
    """
    rows = values if isinstance(values, list | tuple) else ()
    if any(isinstance(row, np.ma.MaskedArray) for row in (values, *rows)):
        raise InvalidInput(
            f"The {argument!r} parameter must not be a masked array, because masked values would "
            "count. Drop or fill those rows, and pass a plain array."
        )
    # SciPy's classes are in modules of this name, so SciPy need not be imported here.
    if hasattr(values, "toarray") and "sparse" in type(values).__module__:
        raise InvalidInput(
            f"The {argument!r} parameter must be dense. Got sparse data. {_DENSE_ADVICE}"
        )


def is_missing(value: object) -> bool:
    """Return whether a value is None, NaN, or a missing value of pandas."""
    if type(value).__name__ in _MISSING_TYPES:
        return True
    if isinstance(value, Decimal):
        return value.is_nan()  # a comparison of a signalling NaN raises
    return isinstance(value, float | np.floating) and bool(value != value)


def is_column(values: Any) -> bool:
    """Return whether values are a column of pandas, polars or Arrow."""
    if isinstance(values, np.ndarray | list | tuple | str | bytes):
        return False
    return any(hasattr(values, method) for method in ("to_pylist", "to_list"))


def is_table(values: Any) -> bool:
    """Return whether values are a table of pandas, polars or Arrow."""
    return _is_frame(values) or hasattr(values, "num_columns") or hasattr(values, "get_columns")


def _is_frame(table: Any) -> bool:
    """Return whether a table is of pandas, or has the same interface."""
    return hasattr(table, "iloc") and hasattr(table, "columns")


def list_columns(argument: str, table: Any) -> list[tuple[Any, Any]] | None:
    """Return pairs of name and column of a table; None for other input.

    `table`: of pandas or Arrow, or any other that exports Arrow; a mapping of names to columns, a
    list of mappings, or a structured array.
    """
    if _is_frame(table):
        return [(name, table.iloc[:, index]) for index, name in enumerate(table.columns)]
    if isinstance(table, list | tuple):
        if not table or not all(isinstance(row, Mapping) for row in table):
            return None
        if any(row.keys() != table[0].keys() for row in table):
            raise InvalidInput(
                f"The {argument!r} parameter must have the same columns in all rows. Write None "
                "where nothing is known."
            )
        return [(name, [row[name] for row in table]) for name in table[0]]
    if isinstance(table, Mapping):
        return list(table.items())
    if isinstance(table, np.ndarray):
        if table.dtype.names is None or table.ndim != 1:
            return None
        return [(name, table[name]) for name in table.dtype.names]
    if hasattr(table, "num_columns") or (
        hasattr(table, "__arrow_c_stream__") and not is_column(table)
    ):
        import pyarrow as pa  # as slow to import as NumPy, and not needed for arrays

        arrow = table if isinstance(table, pa.Table) else pa.table(table)
        return list(zip(arrow.schema.names, arrow.columns, strict=True))
    return None


# ---------------------------------------------------------------- numbers


def _read_frame(argument: str, frame: Any) -> NumberTable:
    """Return the numbers and column names of a pandas table; missing values are NaN."""
    dtypes = list(frame.dtypes)
    if not dtypes:
        return NumberTable(np.empty((len(frame), 0)), ())
    if all(isinstance(dtype, np.dtype) and dtype.kind in "biuf" for dtype in dtypes):
        # Faster than column by column.
        values = np.array(frame.to_numpy(dtype=_find_common_dtype(dtypes)), order="C")
        return NumberTable(values, _check_names(argument, frame.columns))
    return _stack_columns(argument, list_columns(argument, frame) or [])


def _stack_columns(argument: str, named_columns: list[tuple[Any, Any]]) -> NumberTable:
    """Return the numbers (n, d) and names of d columns; missing values are NaN.

    `named_columns`: pairs of name and column (n,), of any library.
    """
    names = _check_names(argument, (name for name, _ in named_columns))
    columns = [_read_number_column(argument, name, column) for name, column in named_columns]
    if any(column.ndim != 1 or len(column) != len(columns[0]) for column in columns):
        raise InvalidInput(f"The {argument!r} parameter must have flat columns of one length.")
    if not columns:
        return NumberTable(np.empty((0, 0)), names)
    dtype = _find_common_dtype([column.dtype for column in columns])
    values = np.empty((len(columns[0]), len(columns)), dtype=dtype)
    for index, column in enumerate(columns):
        values[:, index] = column
    return NumberTable(values, names)


def _find_common_dtype(dtypes: list[Any]) -> Any:
    """Return the dtype of a matrix of columns with `dtypes`; float64 for bool beside numbers."""
    distinct = set(dtypes)
    if len(distinct) > 1 and any(dtype.kind == "b" for dtype in distinct):
        return np.dtype(np.float64)
    return np.result_type(*distinct)


def _read_number_column(argument: str, name: Any, column: Any) -> AnyArray:
    """Return the numbers (n,) of one column; missing ones are NaN.

    `name`: the column's name for messages; None if it has none. `column`: of any library.
    """
    location = "" if name is None else f" in column {str(name)!r}"
    dtype = getattr(column, "dtype", None)
    if isinstance(column, np.ndarray) or isinstance(dtype, np.dtype):
        return _require_numbers(argument, np.asarray(column), location)
    if hasattr(column, "to_pylist"):
        column = _convert_arrow_numbers(column)
        if isinstance(column, np.ndarray):
            return _require_numbers(argument, column, location)
    if hasattr(column, "iloc"):  # an extension type of pandas
        kind = getattr(dtype, "kind", "O")
        if kind in "biuf":
            return np.asarray(column.to_numpy(dtype=np.float64, na_value=np.nan))
        if kind in "mM":
            raise _build_not_numeric_error(argument, location, "dates or times")
    return _require_numbers(argument, _convert_to_array(_list_values(column)), location)


def _convert_arrow_numbers(column: Any) -> Any:
    """Return an Arrow column of numbers as an array, directly; other Arrow columns unchanged."""
    import pyarrow as pa

    kind = column.type
    if pa.types.is_boolean(kind) and column.null_count == 0:
        return np.asarray(column)
    if pa.types.is_integer(kind) or pa.types.is_floating(kind):
        return np.asarray(column if column.null_count == 0 else column.cast(pa.float64()))
    return column


def _convert_to_array(values: Any) -> AnyArray:
    """Return Python objects as an array (n,): of numbers if all have one type of number.

    `values`: n objects. Otherwise the array has the type object, with None for missing values.
    """
    objects = [None if type(value).__name__ in _MISSING_TYPES else value for value in values]
    types = set(map(type, objects))
    if types <= {int, float, bool} and len(types) == 1:
        return np.asarray(objects)
    array = np.empty(len(objects), dtype=object)
    array[:] = objects
    return array


def _require_numbers(argument: str, values: AnyArray, location: str = "") -> AnyArray:
    """Return `values`, of any shape, as numbers; raise InvalidInput for others than numbers."""
    kind = values.dtype.kind
    if kind in "biuf":
        return values
    if kind == "c":
        raise InvalidInput(
            f"The {argument!r} parameter must hold real numbers{location}. "
            "Complex data not supported."
        )
    if kind in "mM":
        raise _build_not_numeric_error(argument, location, "dates or times")
    if kind == "O":
        try:
            types = set(map(type, values.flat))
            if not any(issubclass(value_type, str | bytes) for value_type in types):
                return values.astype(np.float64)
        except (TypeError, ValueError, OverflowError):
            pass  # the conversion below finds the column and the type
        if not location and values.ndim == 2:
            columns = [
                _require_numbers(argument, values[:, index], f" in column {index + 1}")
                for index in range(values.shape[1])
            ]
            return np.stack(columns, axis=1)
        return _convert_objects(argument, values, location)
    content = "text" if kind in "UST" else f"dtype {values.dtype}"
    # The context, an outer error, could show a value.
    raise _build_not_numeric_error(argument, location, content) from None


def _convert_objects(argument: str, values: AnyArray, location: str) -> AnyArray:
    """Return an array of objects as float64 of the same shape, with NaN for missing ones.

    Raises InvalidInput, or InvalidType with the type of the first object that is not a number.
    """
    numbers = []
    for value in values.ravel().tolist():
        if isinstance(value, str | bytes):
            raise _build_not_numeric_error(argument, location, "text")
        try:
            numbers.append(np.nan if is_missing(value) else float(value))
        except TypeError:
            content = type(value).__name__
            raise _build_not_numeric_error(argument, location, content, InvalidType) from None
        except (ValueError, OverflowError):
            content = "a number that is too large for a float"
            raise _build_not_numeric_error(argument, location, content) from None
    return np.asarray(numbers, dtype=np.float64).reshape(values.shape)


def _build_not_numeric_error(
    argument: str, location: str, content: str, error_type: type[InvalidInput] = InvalidInput
) -> InvalidInput:
    """Return the error, an `error_type`, for values that are no numbers; `content`: their type."""
    # scikit-learn's checks of estimators search for Python's message of a TypeError.
    is_type_error = error_type is InvalidType
    quote = " (float() argument must be a string or a real number)" if is_type_error else ""
    return error_type(
        f"The {argument!r} parameter must hold numbers{quote}. Got {content}{location}. "
        f"{_ENCODE_ADVICE}"
    )


def refuse_nonfinite(argument: str, values: AnyArray) -> None:
    """Raise InvalidInput if numbers of any shape are NaN or infinite."""
    if values.dtype.kind == "f" and not np.isfinite(values).all():
        raise InvalidInput(
            f"The {argument!r} parameter must hold finite numbers: no NaN (a missing value) or "
            "infinity. Drop those rows."
        )


def _refuse_nonfinite_columns(argument: str, matrix: NumberTable) -> None:
    """Raise InvalidInput, naming the columns, if numbers of a matrix are NaN or infinite."""
    values = matrix.values
    if values.dtype.kind != "f":
        return
    with np.errstate(all="ignore"):
        # The sum is nearly always finite. Only if it is not, each number must be checked.
        if np.isfinite(values.sum(dtype=np.float64)) or np.isfinite(values).all():
            return
    indices = np.flatnonzero(~np.isfinite(values).all(axis=0)).tolist()
    names = [str(index + 1 if matrix.names is None else matrix.names[index]) for index in indices]
    noun = "column" if len(names) == 1 else "columns"
    raise InvalidInput(
        f"The {argument!r} parameter must hold finite numbers. Got NaN (a missing value) or "
        f"infinity in {noun} {_quote_names(names)}. Fill them in, drop those rows, or pass "
        "'schema' to fit of an Ind-KNN estimator with \"missing\": true for the column."
    )


# ---------------------------------------------------------------- columns of ids and labels


def read_column(argument: str, column: Any) -> list[Any] | AnyArray:
    """Return the values of a column of ids or labels: a flat array, or a list of Python objects.

    `column`: an array, any iterable, a column of pandas, polars or Arrow, or a table of one column.
    Raises InvalidInput for a single value, and for several columns.
    """
    refuse_masked_and_sparse(argument, column)
    if isinstance(column, np.ndarray):
        return _flatten_array(argument, column)
    if isinstance(column, str | bytes | Mapping):
        raise _build_shape_error(argument, _SINGLE_VALUE)
    if is_table(column):
        columns = list_columns(argument, column) or []
        if len(columns) != 1:
            problem = f"Got a table of {len(columns)} columns. Choose one of them."
            raise _build_shape_error(argument, problem)
        _warn_of_column_vector(argument)
        return read_column(argument, columns[0][1])
    dtype = getattr(column, "dtype", None)
    if isinstance(dtype, np.dtype) and dtype.kind in "biuU":
        return _flatten_array(argument, np.asarray(column))
    return _list_values(column, argument)


def _list_values(column: Any, argument: str = "") -> list[Any]:
    """Return the values of a column of any library, or of an iterable, as Python objects."""
    for method in ("tolist", "to_pylist", "to_list"):
        if hasattr(column, method):
            column = getattr(column, method)()
            break
    else:
        if hasattr(column, "__array__"):
            return list(_flatten_array(argument, np.asarray(column)).tolist())
    if not isinstance(column, Iterable) or isinstance(column, str | bytes):
        raise _build_shape_error(argument, _SINGLE_VALUE)
    return list(column)


def _flatten_array(argument: str, values: AnyArray) -> AnyArray:
    """Return an array (n,) or a matrix of one column (n, 1) as a flat array (n,)."""
    if values.ndim == 0:
        raise _build_shape_error(argument, _SINGLE_VALUE)
    if values.ndim == 2 and values.shape[1] == 1:
        _warn_of_column_vector(argument)
        return values[:, 0]
    if values.ndim != 1 or values.dtype.names is not None:
        raise _build_shape_error(argument, "Got several columns. Choose one of them.")
    return values


def _build_shape_error(argument: str, problem: str) -> InvalidInput:
    """Return the error for values that are no flat column; `problem`: sentences for the message."""
    return InvalidInput(f"The {argument!r} parameter must be a flat list or column. {problem}")


def _warn_of_column_vector(argument: str) -> None:
    """Warn, as scikit-learn does, that a matrix of one column is used as a flat column."""
    from sklearn.exceptions import DataConversionWarning  # slow to import, and rarely needed

    warn_caller(
        f"A column-vector {argument} was passed when a 1d array was expected. Pass one column, as "
        "with ravel().",
        DataConversionWarning,
    )


# ---------------------------------------------------------------- order of rows


def check_row_order(X: Any, **columns: Any) -> None:
    """Raise InvalidInput if a column is a set, or has the row labels of `X` in another order.

    Rows are matched by position. pandas matches them by index elsewhere, so a column that was
    sorted or shuffled separately would give records the labels or ids of other records. `X`: a
    table or array. `columns`: columns of labels or ids, keyed by the caller's parameter.
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


def refuse_features_as_targets(features: Iterable[Any], **columns: Any) -> None:
    """Raise InvalidInput if a column of labels or ids has the name of a feature.

    Predictions would be right as long as queries hold the label, and useless afterwards.
    `features`: names of the feature columns. `columns`: of labels or ids, keyed by parameter.
    """
    known = set(_normalize_names(tuple(features)))
    for argument, column in columns.items():
        names = getattr(column, "columns", None)
        if names is None or is_column(column):
            names = [getattr(column, "name", None)]
        texts = tuple(name for name in names if isinstance(name, str))
        repeated = [name for name in _normalize_names(texts) if name in known]
        if repeated:
            raise InvalidInput(
                f"The {argument!r} parameter must not be a feature: column {repeated[0]!r} is "
                "among the features. Drop it from X, and from the schema if there is one, or set "
                'its kind to "ignored" there.'
            )


def _get_index(table: Any) -> Any:
    """Return the row labels of a pandas object; None for all other objects."""
    index = getattr(table, "index", None)
    return index if hasattr(index, "equals") and hasattr(index, "isin") else None
