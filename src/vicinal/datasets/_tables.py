"""Data sets from tables: CSV, Parquet and Excel files, and npz files with one array a part."""

import codecs
import datetime as dt
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from vicinal._arrays import AnyArray, Floats
from vicinal._lazy import of_extra
from vicinal.datasets._dataset import Dataset, array_npz, label_column, subject_column
from vicinal.errors import InvalidInput
from vicinal.features import CsvForm, TableSchema, ids, numbers, plain_text, with_points

_BLOCK = 1 << 24
"""Bytes of a CSV file read at a time; a longer row cannot be read."""

_CSV = re.compile(r".*\.(csv|tsv|txt)(\.gz)?", re.IGNORECASE)
_DELIMITERS = ",;\t|"
_UNREADABLE = (OSError, ValueError, LookupError, pa.ArrowException)
_PLAIN = CsvForm()


def load_table(
    path: str | Path,
    label: str | None = None,
    subject: str | None = None,
    columns: Sequence[str] | None = None,
    text: str | None = None,
    *,
    schema: TableSchema | None = None,
    form: CsvForm = _PLAIN,
    targets: Sequence[str] = (),
) -> Dataset:
    r"""Return the records of a file.

    Parameters
    ----------
    path
        A table with a header: .csv, .tsv or .txt, also as .gz; .parquet; or .xlsx, whose first
        sheet is read, with the extra `excel`. Or .npz, which has the keys x, y and subjects, or
        x_train, ... and x_test, ...; all but the x may be absent, and the parameters below are for
        tables.
    label
        Column of labels: whole numbers, strings or truth values. Without it there are no labels.
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
    schema
        Keep all columns but those of labels and subjects, by name, for
        :class:`~vicinal.features.TableFeatures` with this schema.
    form
        How a CSV file is written; without it, with commas and decimal points in UTF-8. It is
        declared, not found: one private record could change how the others are read.

    Returns
    -------
    Dataset
        Features are float64 (n, d), a tuple of n texts, or with a `schema` a pyarrow Table; from
        an npz file they are as stored.
        Labels are int64 (n,) when every value is a whole number, in texts one written plainly (7,
        not 07 or 7.0, of at most 18 digits); bool (n,) when every one is true or false; else
        strings (n,). Subjects are int64 (n,) when every one is a whole number, else strings (n,).

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
    roles = _ColumnRoles(label, subject, columns, text, schema, tuple(targets))
    if path.name.endswith(".npz"):
        if schema or targets or not (label is subject is columns is text is None):
            raise InvalidInput("An npz file has keys, not columns: leave the column names out.")
        return array_npz(path)
    if text is not None and columns is not None:
        raise InvalidInput("Give either 'text' or 'columns', as features are one or the other.")
    return roles.dataset(read_table(path, form, roles.holds_numbers))


@dataclass(frozen=True, slots=True)
class _ColumnRoles:
    """What the columns of a table are, as :func:`load_table` is told."""

    label: str | None
    subject: str | None
    columns: Sequence[str] | None
    text: str | None
    schema: TableSchema | None
    targets: tuple[str, ...]

    def holds_numbers(self, name: str) -> bool:
        if self.schema is not None:
            return name in self.targets or self.schema.reads_numbers(name)
        return name in self.targets or name not in (self.label, self.subject, self.text)

    def dataset(self, table: pa.Table) -> Dataset:
        carried = None if self.label is None else _labels(table, self.label)
        if self.targets:
            which = [f"target column {name!r}" for name in self.targets]
            carried = _matrix(table, self.targets, which)
        subjects = None if self.subject is None else _subjects(table, self.subject)
        return Dataset(self._features(table), carried, subjects)

    def _features(self, table: pa.Table) -> Any:
        named = (self.label, self.subject, *self.targets)
        others = sorted({name for name in named if name is not None})
        if self.schema is not None:
            return table.drop_columns(others)
        if self.text is not None:
            return _texts(table, self.text)
        if isinstance(self.columns, str):
            raise InvalidInput(
                "The 'columns' must be a list of names. Got one; put it into a list."
            )
        columns = self.columns
        # Names that nobody declared may be a record: they stand for their places then.
        which = [f"feature column {name!r}" for name in columns or ()]
        if columns is None:
            columns = [name for name in table.column_names if name not in others]
            which = [f"column {table.column_names.index(name) + 1} of the file" for name in columns]
        if not columns:
            raise InvalidInput("The table must have at least one feature column.")
        return _matrix(table, columns, which)


def csv_form(
    path: str | Path,
    delimiter: str | None = None,
    decimal: str | None = None,
    encoding: str | None = None,
) -> CsvForm:
    """Return how a **public** CSV file is written: what is given, and the rest as found.

    Found is the delimiter that gives most columns; UTF-8 or UTF-16 if the file is that, else
    Windows-1252; and a decimal comma if fields are separated otherwise, and most columns of numbers
    with a mark have it. Of another file than CSV the result is plain.
    """
    path = _existing(path)
    plain = CsvForm(delimiter or ",", decimal or ".", encoding or "utf-8")
    if _reader(path) is not _read_csv:
        return plain
    try:
        encoding = encoding or _encoding(path)
        forms = [CsvForm(mark, ".", encoding) for mark in delimiter or _DELIMITERS]
        widths = [_width(path, each) for each in forms]
        if max(widths) < 2 and 0 in widths:
            raise ValueError  # rows of different lengths, whatever separates their fields
        form = forms[widths.index(max(widths))]
        if decimal is None and form.delimiter != ",":
            decimal = _decimal(_read_csv(path, form))
        return replace(form, decimal=decimal or ".")
    except _UNREADABLE:
        raise _damaged(path) from None


def _encoding(path: Path) -> str:
    with pa.input_stream(str(path)) as stream:  # unpacks .gz
        content = bytes(stream.read())
    if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    if b"\0" in content:
        raise ValueError  # no text
    try:
        content.decode("utf-8")
    except UnicodeDecodeError:
        return "cp1252"
    return "utf-8"


def _width(path: Path, form: CsvForm) -> int:
    """Return how many columns the first block has in this form; 0 if it cannot be read."""
    from pyarrow import csv

    try:
        with csv.open_csv(path, *_options(form)) as stream:
            return len(stream.schema.names)
    except _UNREADABLE:
        return 0


def _decimal(table: pa.Table) -> str:
    """Return the mark that more columns of numbers have."""

    def count(number: str) -> int:
        found = (pc.any(pc.match_substring_regex(c, number)).as_py() for c in table.columns)
        return sum(map(bool, found))

    commas, points = (count(rf"^\s*[<>]?-?\d+{mark}\d+\s*$") for mark in (",", r"\."))
    return "," if commas and commas >= points else "."


def read_table(
    path: str | Path,
    form: CsvForm | None = None,
    numeric: Callable[[str], bool] = lambda name: False,  # noqa: ARG005
) -> pa.Table:
    """Return the whole table of a file; from CSV all columns are strings.

    `form`: of a CSV file; None finds it, which is for public ones. `numeric`: tells of a name
    whether numbers stand there, which get decimal points. Names lose blanks around them. No message
    quotes anything from the file.
    """
    path = _existing(path)
    form = form or csv_form(path)
    table = _parsed(path, form)
    if table.num_rows == 0:
        raise InvalidInput(f"{path} holds no records.")
    table = table.rename_columns([name.strip() for name in table.column_names])
    if len(set(table.column_names)) != table.num_columns:
        raise InvalidInput(f"{path} has two columns of one name. Rename one, or drop it.")
    if form.decimal == "," and _reader(path) is _read_csv:
        for place, name in enumerate(table.column_names):
            if numeric(name):
                table = table.set_column(place, name, with_points(table[name]))
    return table


def _parsed(path: Path, form: CsvForm) -> pa.Table:
    reader, table = _reader(path), None
    try:
        table = reader(path, form)
        if reader is not _read_csv or table.num_columns > 1:
            return table
    except _UNREADABLE:
        # Arrow's own messages quote the offending row.
        if reader is not _read_csv:
            raise _damaged(path) from None
    found = csv_form(path)
    if (found.delimiter, found.encoding) != (form.delimiter, form.encoding):
        raise InvalidInput(
            f"{path} is not written as expected ({form}); it looks like {found}. Say so in the "
            'schema\'s "file", which vicinal schema drafts from a public table; or save it as '
            "plain CSV in UTF-8, as .parquet or as .xlsx."
        )
    if table is None:
        raise _damaged(path)
    return table


def _damaged(path: Path) -> InvalidInput:
    with suppress(OSError, ValueError), pa.input_stream(str(path)) as stream:
        if stream.read(8).replace(b"\0", b"").lstrip(b"\xef\xbb\xbf\xff\xfe").startswith(b"sep="):
            return InvalidInput(f"{path} begins with a line for Excel, sep=. Delete that line.")
    return InvalidInput(
        f"{path} is damaged, or is not what its name says. (A CSV file needs a header, and as many "
        "fields in every row.)"
    )


def _reader(path: Path) -> Callable[[Path, CsvForm], pa.Table]:
    if _CSV.fullmatch(path.name):
        return _read_csv
    kinds = {".parquet": _read_parquet} | dict.fromkeys((".xlsx", ".xls", ".ods"), _read_excel)
    if path.suffix.lower() not in kinds:
        raise InvalidInput(
            f"{path} must end in .csv, .tsv, .txt, .parquet, .xlsx, .xls, .ods or .npz."
        )
    return kinds[path.suffix.lower()]


def _existing(path: str | Path) -> Path:
    if not Path(path).is_file():
        raise InvalidInput(f"There is no file {path}.")
    return Path(path)


def _options(form: CsvForm) -> tuple[Any, Any]:
    from pyarrow import csv

    return (
        csv.ReadOptions(block_size=_BLOCK, encoding=form.encoding),
        csv.ParseOptions(delimiter=form.delimiter, newlines_in_values=True),
    )


def _read_csv(path: Path, form: CsvForm) -> pa.Table:
    # Read as strings and converted later: types guessed from the first rows may not fit the rest.
    from pyarrow import csv

    with csv.open_csv(path, *_options(form)) as peek:
        names = peek.schema.names
    if names[0] == "sep=":
        raise ValueError
    types = csv.ConvertOptions(column_types=dict.fromkeys(names, pa.string()))
    return csv.read_csv(path, *_options(form), types)


def _read_parquet(path: Path, form: CsvForm) -> pa.Table:  # noqa: ARG001 (of CSV files)
    from pyarrow import parquet

    table = parquet.read_table(path, partitioning=None)
    # What pandas keeps its row numbers in: nobody's feature.
    return table.select(
        [c for c in table.column_names if not re.fullmatch(r"__index_level_\d+__", c)]
    )


def _read_excel(path: Path, form: CsvForm) -> pa.Table:  # noqa: ARG001 (of CSV files)
    calamine = of_extra("excel", "python_calamine", "Reading Excel files")
    try:
        sheet = calamine.CalamineWorkbook.from_path(str(path)).get_sheet_by_index(0)
    except calamine.CalamineError:
        raise ValueError from None
    header, *rows = sheet.to_python() or [[]]
    columns = zip(*rows, strict=True) if rows else [()] * len(header)
    cells = [_cells([None if value == "" else value for value in column]) for column in columns]
    return pa.table(cells, names=list(map(plain_text, header)))


def _cells(values: list[Any]) -> pa.Array:
    """Return a column of an Excel sheet: whole numbers as such, several types as texts."""
    kinds = {type(value) for value in values if value is not None}
    if kinds <= {int, float}:
        whole = all(float(value).is_integer() for value in values if value is not None)
        return pa.array(values, pa.int64() if whole else pa.float64())
    if len(kinds) == 1 and not kinds & {dt.time, dt.timedelta}:
        return pa.array(values)
    return pa.array([None if value is None else plain_text(value) for value in values])


def _texts(table: pa.Table, name: str) -> tuple[str, ...]:
    column = _column(table, name, "text column")
    if not _is_string(column.type):
        raise InvalidInput("The text column must hold strings.")
    return tuple(column.to_pylist())


def _matrix(table: pa.Table, names: Sequence[str], which: Sequence[str]) -> Floats:
    """Return columns of numbers, or of texts that read as numbers, float64 (n, d)."""
    return np.stack([_numbers(table, *pair) for pair in zip(names, which, strict=True)], axis=1)


def _numbers(table: pa.Table, name: str, which: str) -> Floats:
    column = _column(table, name, which)
    reading = numbers(column.cast(pa.int8()) if pa.types.is_boolean(column.type) else column)
    if reading.faults.any():
        raise InvalidInput(
            f"The {which} must hold finite numbers only. If it holds ids, name it as the subject. "
            "A table with texts, dates or gaps needs a schema and the features 'table'."
        )
    if np.isnan(reading.codes).any():
        raise _lacks(which)
    return reading.codes


def _column(table: pa.Table, name: str, which: str, *, gaps: bool = False) -> pa.ChunkedArray:
    """Return a column with dictionaries resolved; without `gaps` missing values are refused."""
    if name not in table.column_names:
        role = "a feature column" if which.startswith("feature") else f"the {which}"
        raise InvalidInput(f"The table has no column {name!r}, which you named as {role}.")
    column = table[name]
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if column.null_count and not gaps:
        raise _lacks(which)
    return column


def _labels(table: pa.Table, name: str) -> AnyArray:
    """Return a column of labels as int64, bool or str (n,)."""
    column = _column(table, name, "label column")
    if pa.types.is_boolean(column.type):
        return np.asarray(column.to_numpy())
    if not _is_string(column.type):
        return _integers(column)
    strings = list(map(plain_text, column.to_pylist()))
    if "" in strings:
        raise _lacks("label column")
    return label_column(strings)


def _subjects(table: pa.Table, name: str) -> AnyArray:
    """Return a column of subjects as int64 or str (n,)."""
    column = _column(table, name, "subject column", gaps=True)
    if pa.types.is_boolean(column.type):
        column = column.cast(pa.int8())
    reading = ids(column)
    missing = int((np.isnan(reading.codes) & (reading.faults == 0)).sum())
    if missing:
        raise InvalidInput(
            f"The subject column has no id in {missing} of {len(column)} rows. Fill in the ids, "
            "or drop these rows, because a record without an id cannot be charged to anybody."
        )
    return subject_column(column.to_numpy() if pa.types.is_integer(column.type) else column)


def _integers(column: pa.ChunkedArray) -> AnyArray:
    kinds = (pa.types.is_integer, pa.types.is_floating, _is_string)
    try:
        if any(is_kind(column.type) for is_kind in kinds):
            return np.asarray(column.cast(pa.int64()).to_numpy())  # 1.5 is refused
    except (ValueError, pa.ArrowException):
        pass
    raise InvalidInput(
        "The label column must hold integers or strings; integers have at most 64 bits."
    )


def _is_string(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _lacks(which: str) -> InvalidInput:
    return InvalidInput(f"The {which} lacks values; fill them in or drop these records first.")
