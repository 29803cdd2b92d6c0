"""Data sets from tables: CSV, Parquet and Excel files, and npz files with one array a part."""

import codecs
import csv as csv_format
import datetime as dt
import io
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from vicinal import checks
from vicinal.arrays import AnyArray, Floats
from vicinal.datasets.dataset import Dataset, array_npz, label_column, subject_column
from vicinal.errors import InvalidInput, UnusableRows
from vicinal.features.csv_form import CsvForm, with_points
from vicinal.features.table_columns import mark_ids, parse_numbers, plain_text
from vicinal.features.table_schema import TableSchema
from vicinal.lazy import of_extra

_BLOCK = 1 << 24
"""Bytes of a CSV file read at a time; a longer row cannot be read."""

_CSV = re.compile(r".*\.(csv|tsv|txt)(\.gz)?", re.IGNORECASE)
_DELIMITERS = ",;\t|"
_UNREADABLE = (OSError, ValueError, LookupError, pa.ArrowException, csv_format.Error)
_PLAIN = CsvForm()

_NO_DELIMITER = "\x1f"
"""Stands for the delimiter in a file of one column. Unicode's unit separator is in no text."""

_LISTED_ROWS = 20
"""Rows that a message lists at most."""


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
        Column of persons: whole numbers or strings, see :func:`vicinal.checks.subject_id`.
        Without it every record is its own person.
    columns
        Feature columns, in this order; without it all that are neither label nor subject.
    text
        Column of texts, which are then the features instead of numbers. A missing text is refused
        in every format: an empty cell, or one that holds blanks only. "NA" is a text.
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
        If the file is missing, of another kind or damaged; if a column is missing, has two of the
        roles above, holds something else than it should, or lacks values. No message repeats
        anything from the file, but one says how many rows lack a subject.

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
    path = _require_file(path)
    if isinstance(columns, str):
        raise InvalidInput("The 'columns' must be a list of names. Got one; put it into a list.")
    roles = _ColumnRoles(
        _column_name(label),
        _column_name(subject),
        None if columns is None else tuple(map(column_name, columns)),
        _column_name(text),
        schema,
        tuple(map(column_name, targets)),
    )
    if path.name.endswith(".npz"):
        if schema or targets or not (label is subject is columns is text is None):
            raise InvalidInput("An npz file has keys, not columns: leave the column names out.")
        return array_npz(path)
    if text is not None and columns is not None:
        raise InvalidInput("Give either 'text' or 'columns', as features are one or the other.")
    roles.check()
    return roles.dataset(read_table(path, form, roles.holds_numbers))


def column_name(name: str) -> str:
    """Return a column's name as names are compared: without blanks around it, in NFC."""
    return checks.normalize_text(name.strip())


def _column_name(name: str | None) -> str | None:
    return None if name is None else column_name(name)


@dataclass(frozen=True)
class _ColumnRoles:
    """The roles of a table's columns, with names as :func:`column_name` writes them."""

    label: str | None
    subject: str | None
    columns: tuple[str, ...] | None
    text: str | None
    schema: TableSchema | None
    targets: tuple[str, ...]

    @cached_property
    def _no_features(self) -> frozenset[str]:
        named = (self.label, self.subject, *self.targets)
        return frozenset(name for name in named if name is not None)

    def check(self) -> None:
        """Raise InvalidInput if a column has two roles, such as label and feature."""
        roles = [("label", self.label), ("subject", self.subject), ("text column", self.text)]
        roles += [("target column", name) for name in self.targets]
        roles += [("feature column", name) for name in self.columns or ()]
        role_of: dict[str, str] = {}
        for role, name in roles:
            if name is None:
                continue
            if name in role_of:
                pair = "twice as" if role_of[name] == role else f"as {role_of[name]} and as"
                raise InvalidInput(
                    f"The column {name!r} is named {pair} {role}. Every column has one role; name "
                    "another column, or leave one of the two out."
                )
            role_of[name] = role
        if self.schema is not None:
            self.schema.refuse(self._no_features, "labels or subjects")

    def holds_numbers(self, name: str) -> bool:
        if self.schema is not None:
            return name in self.targets or self.schema.reads_numbers(name)
        return name in self.targets or name not in (self.label, self.subject, self.text)

    def dataset(self, table: pa.Table) -> Dataset:
        columns = _Columns(table)
        carried = None if self.label is None else _read_labels(columns, self.label)
        if self.targets:
            which = [f"target column {name!r}" for name in self.targets]
            carried = _read_matrix(columns, self.targets, which)
        subjects = None if self.subject is None else _read_subjects(columns, self.subject)
        return Dataset(self._features(columns), carried, subjects)

    def _features(self, columns: "_Columns") -> Any:
        if self.schema is not None:
            return columns.table.drop_columns(sorted(self._no_features))
        if self.text is not None:
            return _read_texts(columns, self.text)
        if self.columns is not None:
            names = list(self.columns)
            which = [f"feature column {name!r}" for name in names]
        else:
            numbered = list(enumerate(columns.table.column_names, 1))
            names = [name for _, name in numbered if name not in self._no_features]
            # Names that nobody declared may be a record: messages number these columns.
            which = [
                f"column {number} of the file"
                for number, name in numbered
                if name not in self._no_features
            ]
        if not names:
            raise InvalidInput("The table must have at least one feature column.")
        return _read_matrix(columns, names, which)


class _Columns:
    """The columns of a table by name: looking a name up takes the same time in a wide table."""

    def __init__(self, table: pa.Table) -> None:
        self.table = table
        self._index_of = {name: index for index, name in enumerate(table.column_names)}

    def lacking(self, names: Iterable[str]) -> list[str]:
        return [name for name in names if name not in self._index_of]

    def get(self, name: str, which: str, *, gaps: bool = False) -> pa.ChunkedArray:
        """Return a column with dictionaries resolved; without `gaps` missing values are refused."""
        if name not in self._index_of:
            role = "a feature column" if which.startswith("feature") else f"the {which}"
            raise InvalidInput(f"The table has no column {name!r}, which you named as {role}.")
        column = self.table.column(self._index_of[name])
        if pa.types.is_dictionary(column.type):
            column = column.cast(column.type.value_type)
        if column.null_count and not gaps:
            raise _missing_value_error(which)
        return column


def csv_form(
    path: str | Path,
    delimiter: str | None = None,
    decimal: str | None = None,
    encoding: str | None = None,
    marks: CsvForm = _PLAIN,
) -> CsvForm:
    """Return how a **public** CSV file is written: what is given, and the rest as found.

    Found is the delimiter that gives most columns, of those that stand in the header, with which
    the rows can be read; UTF-8 or UTF-16 if the file is that, else Windows-1252; and a decimal
    comma if fields are separated otherwise, and most columns of numbers with a mark have it.
    Quote, escape and comment are those of `marks`: they are declared, never found. Of another file
    than CSV the result is plain.
    """
    path = _require_file(path)
    given = replace(
        marks, delimiter=delimiter or ",", decimal=decimal or ".", encoding=encoding or "utf-8"
    )
    if _open_reader(path) is not _read_csv:
        return given
    try:
        form, n_columns = _found_form(path, delimiter, encoding, marks)
        if decimal is None and (form.delimiter != "," or n_columns == 1):
            decimal = _detect_decimal_mark(_read_csv(path, form))
        return replace(form, decimal=decimal or ".")
    except _UNREADABLE:
        raise _damaged_file_error(path) from None


def _found_form(
    path: Path, delimiter: str | None, encoding: str | None, marks: CsvForm
) -> tuple[CsvForm, int]:
    """Return how a CSV file is written but for its decimal mark, and how many columns it has.

    Raises ValueError if rows have different lengths, whatever separates their fields. The header
    alone says which characters can be delimiters: a text may hold any of them.
    """
    encoding = encoding or _detect_encoding(path)
    taken = (marks.quote, marks.escape, marks.comment[:1])
    delimiters = [mark for mark in delimiter or _DELIMITERS if mark not in taken]
    forms = [replace(marks, delimiter=mark, decimal=".", encoding=encoding) for mark in delimiters]
    n_names = [len(_header_names(path, form)) for form in forms]
    n_columns = [
        number if number > 1 and _is_readable(path, form, number) else 0
        for form, number in zip(forms, n_names, strict=True)
    ]
    if max(n_columns) > 0:
        return forms[n_columns.index(max(n_columns))], max(n_columns)
    if max(n_names) > 1 or not _is_readable(path, forms[0], 1):
        raise ValueError
    return forms[0], 1


def _detect_encoding(path: Path) -> str:
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


def _is_readable(path: Path, form: CsvForm, n_columns: int) -> bool:
    """Return whether the first block of a CSV file can be read in this form."""
    from pyarrow import csv

    try:
        with csv.open_csv(_open_source(path, form), *_build_csv_options(form, n_columns)) as stream:
            return len(stream.schema.names) == n_columns
    except _UNREADABLE:
        return False


def _detect_decimal_mark(table: pa.Table) -> str:
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
    whether numbers stand there, which get decimal points. Names are as :func:`column_name` writes
    them. No message quotes anything from the file.
    """
    path = _require_file(path)
    form = form or csv_form(path)
    table = _parse_file(path, form)
    if table.num_rows == 0:
        raise InvalidInput(f"{path} holds no records.")
    names = [column_name(name) for name in table.column_names]
    _refuse_repeated_names(path, names)
    columns = table.columns
    if form.decimal == "," and _open_reader(path) is _read_csv:
        columns = [
            with_points(column) if numeric(name) else column
            for name, column in zip(names, columns, strict=True)
        ]
    return pa.Table.from_arrays(columns, names=names)


def _refuse_repeated_names(path: Path, names: list[str]) -> None:
    number_of: dict[str, int] = {}
    for number, name in enumerate(names, 1):
        first = number_of.setdefault(name, number)
        if first != number:
            raise InvalidInput(
                f"{path} has two columns of one name, column {first} and column {number}. Rename "
                "one, or drop it."
            )


def _parse_file(path: Path, form: CsvForm) -> pa.Table:
    reader, table = _open_reader(path), None
    try:
        table = reader(path, form)
        if reader is not _read_csv or table.num_columns > 1:
            return table
    except _UNREADABLE:
        # Arrow's own messages quote the offending row.
        if reader is not _read_csv:
            raise _damaged_file_error(path) from None
    found = csv_form(path, marks=form)
    is_other = found.delimiter != form.delimiter and table is None
    if table is not None:
        is_other = len(_header_names(path, found)) > 1
    if is_other or found.encoding != form.encoding:
        raise InvalidInput(
            f"{path} is not written as expected ({form}); it looks like {found}. Say so in the "
            'schema\'s "file", which vicinal schema drafts from a public table; or save it as '
            "plain CSV in UTF-8, as .parquet or as .xlsx."
        )
    if table is None:
        raise _damaged_file_error(path)
    return table


def _damaged_file_error(path: Path) -> InvalidInput:
    with suppress(OSError, ValueError), pa.input_stream(str(path)) as stream:
        if stream.read(8).replace(b"\0", b"").lstrip(b"\xef\xbb\xbf\xff\xfe").startswith(b"sep="):
            return InvalidInput(f"{path} begins with a line for Excel, sep=. Delete that line.")
    return InvalidInput(
        f"{path} is damaged, or is not what its name says. (A CSV file needs a header, and as many "
        "fields in every row. Delete a title above the header; declare comments, quotes other than "
        '" and escapes: on the command line with --comment, --quote and --escape.)'
    )


def _open_reader(path: Path) -> Callable[[Path, CsvForm], pa.Table]:
    if _CSV.fullmatch(path.name):
        return _read_csv
    kinds = {".parquet": _read_parquet} | dict.fromkeys((".xlsx", ".xls", ".ods"), _read_excel)
    if path.suffix.lower() not in kinds:
        raise InvalidInput(
            f"{path} must end in .csv, .tsv, .txt, .parquet, .xlsx, .xls, .ods or .npz."
        )
    return kinds[path.suffix.lower()]


def _require_file(path: str | Path) -> Path:
    if not Path(path).is_file():
        raise InvalidInput(f"There is no file {path}.")
    return Path(path)


def _build_csv_options(form: CsvForm, n_columns: int) -> tuple[Any, Any]:
    """Return the options with which Arrow reads a CSV file of `n_columns` columns.

    In a file of one column every line is a field, whatever characters it holds; an empty line is an
    empty field.
    """
    from pyarrow import csv

    return (
        csv.ReadOptions(block_size=_BLOCK, encoding="utf-8" if form.comment else form.encoding),
        csv.ParseOptions(
            delimiter=form.delimiter if n_columns > 1 else _NO_DELIMITER,
            quote_char=form.quote or False,
            escape_char=form.escape or False,
            newlines_in_values=True,
            ignore_empty_lines=n_columns > 1,
        ),
    )


def _read_csv(path: Path, form: CsvForm) -> pa.Table:
    names = _header_names(path, form)
    if names[:1] == ["sep="]:
        raise ValueError
    table = _read_strings(path, form, names)
    # Where Arrow and Python read a header differently, Arrow's names are the table's.
    return table if table.column_names == names else _read_strings(path, form, table.column_names)


def _read_strings(path: Path, form: CsvForm, names: list[str]) -> pa.Table:
    # Read as strings and converted later: types guessed from the first rows may not fit the rest.
    from pyarrow import csv

    types = csv.ConvertOptions(column_types=dict.fromkeys(names, pa.string()))
    return csv.read_csv(_open_source(path, form), *_build_csv_options(form, len(names)), types)


def _header_names(path: Path, form: CsvForm) -> list[str]:
    """Return the names in the header of a CSV file: its first line that is not empty."""
    with _text_of(path, form) as text:
        return next((row for _, row in _csv_rows(text, form) if row), [])


def _open_source(path: Path, form: CsvForm) -> Any:
    """Return what Arrow reads: the file, or its content without comments, in UTF-8."""
    if not form.comment:
        return path
    kept = io.StringIO(newline="")
    with _text_of(path, form) as text:
        for lines, _ in _csv_rows(text, form):
            kept.writelines(lines)
    return pa.BufferReader(kept.getvalue().encode())


def _text_of(path: Path, form: CsvForm) -> io.TextIOWrapper:
    """Return a CSV file to read as text, unpacked, without a byte order mark."""
    encoding = "utf-8-sig" if form.encoding == "utf-8" else form.encoding
    return io.TextIOWrapper(pa.input_stream(str(path)), encoding=encoding, newline="")


def _csv_rows(text: Iterable[str], form: CsvForm) -> Iterator[tuple[list[str], list[str]]]:
    """Yield the lines and the fields of every row that is no comment.

    A line is a comment if it begins with the form's comment where a row begins: within a quoted
    field it is a part of the field.
    """
    lines: list[str] = []

    def lines_of_rows() -> Iterator[str]:
        for line in text:
            if form.comment and not lines and line.startswith(form.comment):
                continue
            lines.append(line)
            yield line

    # The cap of Python's parser is for the whole process; a row is no longer than a block here.
    csv_format.field_size_limit(max(_BLOCK, csv_format.field_size_limit()))
    rows = csv_format.reader(
        lines_of_rows(),
        delimiter=form.delimiter,
        quotechar=form.quote or None,
        escapechar=form.escape or None,
        quoting=csv_format.QUOTE_MINIMAL if form.quote else csv_format.QUOTE_NONE,
    )
    for fields in rows:
        yield lines, fields
        lines.clear()


def _read_parquet(path: Path, form: CsvForm) -> pa.Table:  # noqa: ARG001 (of CSV files)
    from pyarrow import parquet

    with parquet.ParquetFile(path) as file:  # read_table cannot read two columns of one name
        table = file.read()
    # What pandas keeps its row numbers in: nobody's feature.
    # By number, as a name may stand twice.
    numbered = enumerate(table.column_names)
    return table.select([i for i, c in numbered if not re.fullmatch(r"__index_level_\d+__", c)])


def _read_excel(path: Path, form: CsvForm) -> pa.Table:  # noqa: ARG001 (of CSV files)
    calamine = of_extra("excel", "python_calamine", "Reading Excel files")
    try:
        sheet = calamine.CalamineWorkbook.from_path(str(path)).get_sheet_by_index(0)
    except calamine.CalamineError:
        raise ValueError from None
    header, *rows = sheet.to_python() or [[]]
    columns = zip(*rows, strict=True) if rows else [()] * len(header)
    cells = [
        _convert_excel_column([None if value == "" else value for value in column])
        for column in columns
    ]
    return pa.table(cells, names=list(map(plain_text, header)))


def _convert_excel_column(values: list[Any]) -> pa.Array:
    """Return a column of an Excel sheet: whole numbers as such, several types as texts."""
    kinds = {type(value) for value in values if value is not None}
    if kinds <= {int, float}:
        whole = all(float(value).is_integer() for value in values if value is not None)
        return pa.array(values, pa.int64() if whole else pa.float64())
    if len(kinds) == 1 and not kinds & {dt.time, dt.timedelta}:
        return pa.array(values)
    return pa.array([None if value is None else plain_text(value) for value in values])


def _read_texts(columns: _Columns, name: str) -> tuple[str, ...]:
    """Return a column of texts; a missing one is refused, whatever the format calls missing."""
    column = columns.get(name, "text column", gaps=True)
    is_missing = column.is_null()
    if _is_string(column.type):
        is_missing = pc.or_kleene(is_missing, pc.equal(pc.utf8_trim_whitespace(column), ""))
    missing_rows = np.flatnonzero(is_missing.to_numpy()) + 1
    if len(missing_rows):
        listed = ", ".join(map(str, missing_rows[:_LISTED_ROWS]))
        more = ", ..." if len(missing_rows) > _LISTED_ROWS else ""
        fault, remedy = "The text column has empty cells", "Fill them in, or drop these rows."
        raise UnusableRows(f"{fault}. {remedy}", f"{fault}, in row {listed}{more}. {remedy}")
    if not _is_string(column.type):
        raise InvalidInput("The text column must hold strings.")
    return tuple(column.to_pylist())


def _read_matrix(columns: _Columns, names: Sequence[str], which: Sequence[str]) -> Floats:
    """Return columns of numbers, or of texts that read as numbers, float64 (n, d)."""
    lacking = columns.lacking(names)
    if len(lacking) > 1:
        shown = ", ".join(map(repr, lacking[:_LISTED_ROWS]))
        more = ", ..." if len(lacking) > _LISTED_ROWS else ""
        raise InvalidInput(f"The table has no columns {shown}{more}, which hold features.")
    return np.stack(
        [_read_numbers(columns, *pair) for pair in zip(names, which, strict=True)], axis=1
    )


def _read_numbers(columns: _Columns, name: str, which: str) -> Floats:
    column = columns.get(name, which)
    reading = parse_numbers(column.cast(pa.int8()) if pa.types.is_boolean(column.type) else column)
    if reading.faults.any():
        raise InvalidInput(
            f"The {which} must hold finite numbers only. If it holds ids, name it as the subject. "
            "A table with texts, dates or gaps needs a schema and the features 'table'."
        )
    if np.isnan(reading.codes).any():
        raise _missing_value_error(which)
    return reading.codes


def _read_labels(columns: _Columns, name: str) -> AnyArray:
    """Return a column of labels as int64, bool or str (n,)."""
    column = columns.get(name, "label column")
    if pa.types.is_boolean(column.type):
        return np.asarray(column.to_numpy())
    if not _is_string(column.type):
        return _read_integers(column)
    strings = list(map(plain_text, column.to_pylist()))
    if "" in strings:
        raise _missing_value_error("label column")
    return label_column(strings)


def _read_subjects(columns: _Columns, name: str) -> AnyArray:
    """Return a column of subjects as int64 or str (n,)."""
    column = columns.get(name, "subject column", gaps=True)
    if pa.types.is_boolean(column.type):
        column = column.cast(pa.int8())
    reading = mark_ids(column)
    missing = int((np.isnan(reading.codes) & (reading.faults == 0)).sum())
    if missing:
        raise InvalidInput(
            f"The subject column has no id in {missing} of {len(column)} rows. Fill in the ids, "
            "or drop these rows, because a record without an id cannot be charged to anybody."
        )
    return subject_column(column.to_numpy() if pa.types.is_integer(column.type) else column)


def _read_integers(column: pa.ChunkedArray) -> AnyArray:
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


def _missing_value_error(which: str) -> InvalidInput:
    return InvalidInput(f"The {which} lacks values; fill them in or drop these records first.")
