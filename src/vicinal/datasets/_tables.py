"""Data sets from tables: CSV and Parquet files, and npz files with one array a part."""

import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from vicinal._arrays import AnyArray, Floats, Ints
from vicinal.datasets._dataset import Dataset, Features, array_npz, subject_column
from vicinal.errors import InvalidInput

_MISSING = ("", "NA", "N/A", "NaN", "nan", "null", "NULL", "None")
"""How files write that a value is missing."""

_INT64_DIGITS = 19
"""Integers of fewer digits fit int64; longer ones, as some ids are, stay strings."""

_BLOCK = 1 << 24
"""Bytes of a CSV file read at a time; a longer row cannot be read."""


def load_table(
    path: str | Path,
    label: str | None = None,
    subject: str | None = None,
    columns: Sequence[str] | None = None,
    text: str | None = None,
    *,
    named: bool = False,
    targets: Sequence[str] = (),
) -> Dataset:
    r"""Return the records of a file.

    Parameters
    ----------
    path
        .csv or .csv.gz (UTF-8, comma separated, with a header), .parquet, or .npz, which has the
        keys x, y and subjects, or x_train, ... and x_test, ...; all but the x may be absent, and
        the parameters below are for the other kinds of file.
    label
        Column of labels: whole numbers or strings. Without it there are no labels.
    subject
        Column of persons: whole numbers or strings, see :func:`vicinal._checks.subject_id`.
        Without it every record is its own person.
    columns
        Feature columns, in this order; without it all that are neither label nor subject.
    text
        Column of texts, which are then the features instead of numbers.
    targets
        Columns of numbers that records carry in place of a label: the labels then are float64
        (n, p), in this order.
    named
        Keep all columns but those of labels and subjects as they are, by name, for
        :class:`~vicinal.features.TableFeatures`.

    Returns
    -------
    Dataset
        Features are float64 (n, d), a tuple of n texts, or a pyarrow Table if they are `named`;
        from an npz file they are as stored.
        Labels are int64 (n,) when every value is a whole number written plainly (7, not 07 or
        7.0, of at most 18 digits), or is true or false in a Parquet file (1 or 0); else strings
        (n,). Subjects are int64 (n,) when every one is a whole number, else strings (n,).

    Raises
    ------
    InvalidInput
        If the file is missing, of another kind or damaged; if a column is missing, holds something
        else than it should, or lacks values. No message repeats anything from the file, but one
        says how many rows lack a subject.

    Examples
    --------
    >>> from pathlib import Path
    >>> from vicinal.datasets import load_table
    >>> rows = "id,age,dose,ill\n7,31,2.5,no\n8,64,1.0,yes\n"
    >>> _ = Path("patients.csv").write_text(rows)
    >>> table = load_table("patients.csv", label="ill", subject="id")
    >>> table.features.shape, table.labels, table.subjects
    ((2, 2), array(['no', 'yes'], dtype='<U3'), array([7, 8]))
    """
    path = _existing(path)
    if path.name.endswith(".npz"):
        if named or targets or not (label is subject is columns is text is None):
            raise InvalidInput("An npz file has keys, not columns: leave the column names out.")
        return array_npz(path)
    if text is not None and columns is not None:
        raise InvalidInput("Give either 'text' or 'columns', as features are one or the other.")
    table = read_table(path)
    carried = _carried(table, label, targets)
    subjects = None if subject is None else _subjects(table, subject)
    others = {name for name in (label, subject, *targets) if name is not None}
    if named:
        return Dataset(table.drop_columns(sorted(others)), carried, subjects)
    return Dataset(_features(table, columns, text, others), carried, subjects)


def _carried(table: pa.Table, label: str | None, targets: Sequence[str]) -> AnyArray | None:
    """Return what records carry: numbers, labels, or nothing."""
    if targets:
        return _targets(table, targets)
    return None if label is None else _labels(table, label)


def read_table(path: str | Path) -> pa.Table:
    """Return the whole table of a CSV or Parquet file; from CSV all columns are strings.

    No message quotes anything from it.
    """
    path = _existing(path)
    if path.name.endswith((".csv", ".csv.gz")):
        reader = _read_csv
    elif path.suffix == ".parquet":
        reader = _read_parquet
    else:
        raise InvalidInput(f"{path} must end in .csv, .csv.gz, .parquet or .npz.")
    try:
        table = reader(path)
    except (OSError, ValueError, pa.ArrowException):
        # Arrow's own messages quote the offending row.
        raise InvalidInput(
            f"{path} is damaged, or is not what its name says. (A CSV file must be UTF-8, with a "
            "header, and as many fields in every row.)"
        ) from None
    if table.num_rows == 0:
        raise InvalidInput(f"{path} holds no records.")
    if len(set(table.column_names)) != table.num_columns:
        raise InvalidInput(f"{path} has two columns of one name.")
    return table


def _existing(path: str | Path) -> Path:
    if not Path(path).is_file():
        raise InvalidInput(f"There is no file {path}.")
    return Path(path)


def _read_csv(path: Path) -> pa.Table:
    # Read as strings and converted later: types guessed from the first rows may not fit the rest.
    from pyarrow import csv

    blocks = csv.ReadOptions(block_size=_BLOCK)
    layout = csv.ParseOptions(newlines_in_values=True)
    with csv.open_csv(path, blocks, layout) as peek:
        names = peek.schema.names
    types = csv.ConvertOptions(column_types=dict.fromkeys(names, pa.string()))
    return csv.read_csv(path, blocks, layout, types)


def _read_parquet(path: Path) -> pa.Table:
    from pyarrow import parquet

    table = parquet.read_table(path, partitioning=None)
    # What pandas keeps its row numbers in: nobody's feature.
    return table.select(
        [c for c in table.column_names if not re.fullmatch(r"__index_level_\d+__", c)]
    )


def _features(
    table: pa.Table, columns: Sequence[str] | None, text: str | None, others: set[str]
) -> Features:
    if text is not None:
        return tuple(_strings(_column(table, "text", text), "text"))
    if isinstance(columns, str):
        raise InvalidInput("The 'columns' must be a list of names. Got one; put it into a list.")
    names = columns if columns is not None else [n for n in table.column_names if n not in others]
    if not names:
        raise InvalidInput("The table must have at least one feature column.")
    out = np.empty((table.num_rows, len(names)))
    for place, name in enumerate(names):
        which = f"feature column number {place + 1}"
        out[:, place] = _numbers(_column(table, which, name), which)
    return out


def _targets(table: pa.Table, names: Sequence[str]) -> Floats:
    """Return columns of numbers, float64 (n, p)."""
    which = [f"target column {name!r}" for name in names]
    columns = (_column(table, *pair) for pair in zip(which, names, strict=True))
    return np.stack([_numbers(*pair) for pair in zip(columns, which, strict=True)], axis=1)


def _column(table: pa.Table, which: str, name: str, *, gaps: bool = False) -> pa.ChunkedArray:
    """Return a column with dictionaries resolved; without `gaps` missing values are refused."""
    if name not in table.column_names:
        raise InvalidInput(f"The table has no column {name!r}, which was asked for as {which}.")
    column = table[name]
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if column.null_count and not gaps:
        raise _lacks(which)
    return column


def _numbers(column: pa.ChunkedArray, which: str) -> Floats:
    """Return a column of numbers, or of strings that read as numbers, as float64 (n,)."""
    if _is_string(column.type):
        column = pc.utf8_trim_whitespace(column)
        if pc.any(pc.is_in(column, pa.array(_MISSING, column.type))).as_py():
            raise _lacks(which)
    try:
        numbers = column.cast(pa.float64(), safe=False).to_numpy()
    except (ValueError, pa.ArrowException):
        raise InvalidInput(f"The {which} must hold numbers only.") from None
    if np.isnan(numbers).any():
        raise _lacks(which)
    if np.isinf(numbers).any():
        raise InvalidInput(f"The {which} must hold finite numbers only.")
    return np.asarray(numbers)


def _labels(table: pa.Table, name: str) -> AnyArray:
    """Return a column of labels as int64 or str (n,)."""
    column = _column(table, "label", name)
    if pa.types.is_integer(column.type) or pa.types.is_boolean(column.type):
        return _integers(column)
    strings = _strings(column, "label")
    if "" in strings:
        raise _lacks("label")
    if all(_written_plainly(string) for string in strings):
        return _integers(column)
    return np.array(strings, dtype=np.str_)


def _subjects(table: pa.Table, name: str) -> AnyArray:
    """Return a column of subjects as int64 or str (n,)."""
    column = _column(table, "subject", name, gaps=True)
    missing = column.null_count
    if _is_string(column.type):
        missing += pc.sum(pc.is_in(column, pa.array(_MISSING, column.type))).as_py() or 0
    elif pa.types.is_floating(column.type):
        missing += pc.sum(pc.is_nan(column)).as_py() or 0
    elif pa.types.is_boolean(column.type):
        column = column.cast(pa.int8())
    if missing:
        raise InvalidInput(
            f"The subject column lacks an id in {missing} of {len(column)} rows. Give these rows "
            "their ids, or drop them; a record of nobody's cannot be charged to anybody."
        )
    return subject_column(column.to_numpy() if _is_whole(column.type) else column)


def _is_whole(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind))


def _integers(column: pa.ChunkedArray) -> Ints:
    try:
        return np.asarray(column.cast(pa.int64()).to_numpy())
    except (ValueError, pa.ArrowException):
        raise InvalidInput("The label column must hold integers of at most 64 bits.") from None


def _written_plainly(string: str) -> bool:
    """Tell whether a string is a whole number and what str() would write for it."""
    digits = string.removeprefix("-")
    is_integer = digits.isascii() and digits.isdigit() and len(digits) < _INT64_DIGITS
    return is_integer and (digits[0] != "0" or string == "0")


def _strings(column: pa.ChunkedArray, which: str) -> list[str]:
    if not _is_string(column.type):
        kinds = "strings" if which == "text" else "integers or strings"
        raise InvalidInput(f"The {which} column must hold {kinds}.")
    strings: list[str] = column.to_pylist()
    return strings


def _is_string(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _lacks(which: str) -> InvalidInput:
    return InvalidInput(f"The {which} lacks values; fill them in or drop these records first.")
