"""Data sets from tables in CSV, Parquet and Excel files, and from npz files.

Arguments of several functions: `path`, the file; `form`, the format of a CSV file (delimiter,
decimal mark, encoding, quote, escape and comment), which has no effect on other files; `lookup`,
all columns of a table by name; `name`, the normalized name of a column
(:func:`normalize_column_name`); `description`, words for a column in messages, such as "label
column".

A CSV file is read with a given format, first its header and then all rows, as strings. If the
header has one name, there is no delimiter: every line is one field (:data:`_UNUSED_DELIMITER`). The
format of private files is never detected to read them, only to name it when they are refused: if
the rows cannot be read, or have one column (:func:`_parse_file`).
"""

import codecs
import csv as python_csv
import datetime as dt
import io
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from vicinal import checks
from vicinal.arrays import AnyArray, Bools, Floats
from vicinal.datasets.dataset import Dataset, build_label_column, build_subject_column, load_npz
from vicinal.declared_sizes import require_csv_memory, require_parquet_memory, require_sheet_memory
from vicinal.errors import InvalidInput, UnusableRows
from vicinal.features.csv_form import PLAIN_CSV, CsvForm, swap_decimal_marks
from vicinal.features.table_columns import find_id_faults, is_text, parse_numbers, plain_text
from vicinal.features.table_schema import TableSchema
from vicinal.lazy import import_from_extra

_BLOCK = 1 << 24  # bytes of a CSV file read at a time; a longer row cannot be read

_CSV_NAME = re.compile(r".*\.(csv|tsv|txt)(\.gz)?", re.IGNORECASE)
_DELIMITERS = ",;\t|"
_READ_ERRORS = (
    OSError,
    ValueError,
    LookupError,
    pa.lib.ArrowTypeError,
    pa.lib.ArrowNotImplementedError,
    pa.lib.ArrowCapacityError,
    pa.lib.ArrowSerializationError,
    python_csv.Error,
)
"""Errors of a damaged file. Too little memory, also pyarrow's ArrowMemoryError, is none of them."""

_UNUSED_DELIMITER = "\x1f"
"""Delimiter of files of one column: the unit separator, which occurs in no text."""


def load_table(
    path: str | Path,
    label: str | None = None,
    subject: str | None = None,
    columns: Sequence[str] | None = None,
    text: str | None = None,
    *,
    schema: TableSchema | None = None,
    form: CsvForm = PLAIN_CSV,
    targets: Sequence[str] = (),
) -> Dataset:
    r"""Return the records of a file.

    Raises InvalidInput if the file is missing, damaged or of an unknown kind; if a column is
    missing, has two of the roles below, or has wrong or missing values (no message holds values or
    record counts); TooLittleMemory if the content needs more memory than there is.

    Parameters
    ----------
    path
        A table with a header: .csv, .tsv or .txt, also as .gz; .parquet; or the first sheet of an
        .xlsx file (extra `excel`). Or .npz with the keys x, y and subjects, or x_train, ... and
        x_test, ...; only x is required, and the parameters below do not apply.
    label
        Column of labels: whole numbers, strings or truth values.
    subject
        Column of subject ids: whole numbers or strings (:func:`vicinal.checks.check_subject_id`).
        Without it every record is its own subject.
    columns
        Feature columns, in this order; without it all that are neither label nor subject.
    text
        Column of texts as features. An empty or blank cell is refused; "NA" is a text.
    schema
        Public schema. With it, the features are a pyarrow Table of all columns except labels and
        subjects, to be encoded by :class:`~vicinal.features.TableFeatures`.
    form
        The format of a CSV file; by default commas, decimal points and UTF-8. It must be declared,
        because one private record could change how a detector reads the other records.
    targets
        Columns of numeric targets in place of a label; the labels are then float64 (n, p).

    Returns
    -------
    Dataset
        Features are float64 (n, d), a tuple of n texts, or with a `schema` a pyarrow Table; from
        an npz file they are as stored. Labels (n,) are int64 if every value is a whole number,
        bool if every value is true or false, else strings. A text counts as a whole number in
        canonical form only: 7, not 07 or 7.0, and at most 18 characters. Subjects (n,) are int64 if
        every id is a whole number, else strings.

    Examples
    --------
    >>> from pathlib import Path
    >>> from vicinal.datasets import load_table
    >>> _ = Path("patients.csv").write_text("id,age,dose,ill\n7,31,2.5,no\n8,64,1.0,yes\n")
    >>> table = load_table("patients.csv", label="ill", subject="id")
    >>> table.features.shape, table.labels, table.subjects
    ((2, 2), array(['no', 'yes'], dtype='<U3'), array([7, 8]))
    """
    path = _check_exists(path)
    if isinstance(columns, str):
        raise InvalidInput("The 'columns' must be a list of names. Got one; put it into a list.")
    if path.name.endswith(".npz"):
        if schema or targets or not (label is subject is columns is text is None):
            raise InvalidInput("An npz file has keys, not columns: leave the column names out.")
        return load_npz(path)
    roles = _ColumnRoles(label, subject, columns, text, schema, targets)
    return roles.build_dataset(read_table(path, form, roles.holds_numbers))


def read_label_columns(
    table: pa.Table, label: str, subject: str | None
) -> tuple[Bools, AnyArray, AnyArray | None]:
    """Return the labels and subject ids of the rows of a **public** table that have both.

    Returns a mask of these rows among all, bool (n,), their labels (m,) and their ids (m,); None
    without a `subject` column. Types and errors are those of :func:`load_table`. `table`: from
    :func:`read_table`. `label`, `subject`: names of its columns.
    """
    lookup = _ColumnLookup(table)
    is_complete = np.ones(table.num_rows, dtype=np.bool_)
    for description, name in (("label column", label), ("subject column", subject)):
        if name is None:
            continue
        column = lookup.get(normalize_column_name(name), description, allow_missing=True)
        is_complete &= ~np.asarray(pc.is_null(column, nan_is_null=True))
        if is_text(column):
            is_complete &= np.array([bool(plain_text(text)) for text in column.to_pylist()])
    complete = _ColumnLookup(table.filter(pa.array(is_complete)))
    labels = _read_labels(complete, normalize_column_name(label))
    subjects = None
    if subject is not None:
        subjects = _read_subjects(complete, normalize_column_name(subject))
    return is_complete, labels, subjects


def normalize_column_name(name: str) -> str:
    """Return a column's name in the form in which names are compared: stripped, and in NFC."""
    return checks.normalize_text(name.strip())


@dataclass(frozen=True)
class _ColumnRoles:
    """The roles of a table's columns, with normalized names (:func:`normalize_column_name`).

    `label`, `subject`: columns of labels and ids, if any. `columns`, `text`: columns of numbers or
    of texts as features; without both, all other columns. `schema`: declares the features in place
    of `columns` and `text`. `targets`: columns of numeric targets, in place of `label`. Raises
    InvalidInput if a column has two roles, such as label and feature.
    """

    label: str | None
    subject: str | None
    columns: Sequence[str] | None
    text: str | None
    schema: TableSchema | None
    targets: Sequence[str]

    def __post_init__(self) -> None:
        if self.text is not None and self.columns is not None:
            raise InvalidInput("Give either 'text' or 'columns', as features are one or the other.")
        for role in ("label", "subject", "text"):
            name = getattr(self, role)
            if name is not None:
                object.__setattr__(self, role, normalize_column_name(name))
        for role in ("columns", "targets"):
            names = getattr(self, role)
            if names is not None:
                object.__setattr__(self, role, tuple(map(normalize_column_name, names)))
        self._refuse_conflicts()

    def _refuse_conflicts(self) -> None:
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
            self.schema.refuse_features((self.label, self.subject, *self.targets))

    def holds_numbers(self, name: str) -> bool:
        """Return whether the column `name` is read as numbers: a target or a numeric feature."""
        if self.schema is not None:
            return name in self.targets or self.schema.reads_numbers(name)
        return name in self.targets or name not in (self.label, self.subject, self.text)

    def build_dataset(self, table: pa.Table) -> Dataset:
        """Return the records of a `table` with normalized column names."""
        lookup = _ColumnLookup(table)
        labels = None if self.label is None else _read_labels(lookup, self.label)
        if self.targets:
            labels = _read_matrix(
                lookup, {name: f"target column {name!r}" for name in self.targets}
            )
        subjects = None if self.subject is None else _read_subjects(lookup, self.subject)
        return Dataset(self._read_features(lookup), labels, subjects)

    def _read_features(self, lookup: "_ColumnLookup") -> Any:
        """Return the features: a pyarrow Table for a schema, n texts, or float64 (n, d)."""
        roles = (self.label, self.subject, *self.targets)
        label_columns = {name for name in roles if name is not None}
        if self.schema is not None:
            return lookup.table.drop_columns(sorted(label_columns))
        if self.text is not None:
            return _read_texts(lookup, self.text)
        if self.columns is not None:
            descriptions = {name: f"feature column {name!r}" for name in self.columns}
        else:
            # Without names, because in a file without a header a name is a private value.
            descriptions = {
                name: f"column {number} of the file"
                for number, name in enumerate(lookup.table.column_names, 1)
                if name not in label_columns
            }
        if not descriptions:
            raise InvalidInput("The table must have at least one feature column.")
        return _read_matrix(lookup, descriptions)


class _ColumnLookup:
    """The columns of a `table` by their normalized names; a lookup takes constant time."""

    def __init__(self, table: pa.Table) -> None:
        self.table = table
        self._index_of = {name: index for index, name in enumerate(table.column_names)}

    def get(self, name: str, description: str, *, allow_missing: bool = False) -> pa.ChunkedArray:
        """Return the column `name`, with dictionary codes replaced by their values.

        Raises InvalidInput if there is none, and for missing values unless `allow_missing`.
        """
        if name not in self._index_of:
            is_feature = description.startswith("feature")
            role = "a feature column" if is_feature else f"the {description}"
            raise InvalidInput(
                f"The table has no column {checks.quote_column(name)}, which you named as {role}."
                f"{checks.suggest_columns([name], self._index_of)}"
            )
        column = self.table.column(self._index_of[name])
        if pa.types.is_dictionary(column.type):
            column = column.cast(column.type.value_type)
        if column.null_count and not allow_missing:
            raise _build_missing_values_error(description)
        return column


def detect_csv_format(
    path: str | Path,
    delimiter: str | None = None,
    decimal: str | None = None,
    encoding: str | None = None,
    base_format: CsvForm = PLAIN_CSV,
) -> CsvForm:
    """Return the format of a **public** CSV file: as given, the rest as detected.

    `delimiter`: None detects the one in the header with which all rows can be read and that gives
    most columns. `decimal`: None detects a comma if fields have another delimiter and at least as
    many columns have numbers with commas as with points. `encoding`: None detects UTF-8 or UTF-16
    if the content is valid, else Windows-1252. `base_format`: the format from which quote, escape
    and comment are taken. For another kind of file, what is not given is as in plain CSV.
    """
    path = _check_exists(path)
    declared = replace(
        base_format,
        delimiter=delimiter or ",",
        decimal=decimal or ".",
        encoding=encoding or "utf-8",
    )
    if _find_reader(path) is not _read_csv:
        return declared
    require_csv_memory(path)
    try:
        form, n_columns = _detect_delimiter(path, delimiter, encoding, base_format)
        if decimal is None and (form.delimiter != "," or n_columns == 1):
            decimal = _detect_decimal(_read_csv(path, form))
        return replace(form, decimal=decimal or ".")
    except _READ_ERRORS:
        raise _build_damage_error(path) from None


def _detect_delimiter(
    path: Path, delimiter: str | None, encoding: str | None, base_format: CsvForm
) -> tuple[CsvForm, int]:
    """Return a CSV file's format, with its delimiter and encoding, and its number of columns.

    The arguments are those of :func:`detect_csv_format`; the decimal mark is ".". Only delimiters
    in the header are tried, because a text field may contain any. Raises ValueError if rows have
    different lengths with every delimiter.
    """
    encoding = encoding or _detect_encoding(path)
    used_marks = (base_format.quote, base_format.escape, base_format.comment[:1])
    delimiters = [mark for mark in delimiter or _DELIMITERS if mark not in used_marks]
    forms = [
        replace(base_format, delimiter=mark, decimal=".", encoding=encoding) for mark in delimiters
    ]
    n_names = [len(_read_header(path, form)) for form in forms]
    n_columns = [
        number if number > 1 and _is_readable(path, form, number) else 0
        for form, number in zip(forms, n_names, strict=True)
    ]
    if max(n_columns) > 0:
        return forms[n_columns.index(max(n_columns))], max(n_columns)
    if max(n_names) > 1 or not _is_readable(path, forms[0], 1):
        raise ValueError("Rows have different lengths with every delimiter.")
    return forms[0], 1


def _detect_encoding(path: Path) -> str:
    """Return a text file's encoding: utf-16, utf-8 or cp1252; raise ValueError if binary."""
    with pa.input_stream(str(path)) as stream:  # decompresses .gz
        content = bytes(stream.read())
    if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    if b"\0" in content:
        raise ValueError  # The content is binary.
    try:
        content.decode("utf-8")
    except UnicodeDecodeError:
        return "cp1252"
    return "utf-8"


def _is_readable(path: Path, form: CsvForm, n_columns: int) -> bool:
    """Return whether all rows in the first block (16 MiB) of a CSV file have `n_columns` fields."""
    from pyarrow import csv

    try:
        with csv.open_csv(_open_source(path, form), *_build_options(form, n_columns)) as stream:
            return len(stream.schema.names) == n_columns
    except _READ_ERRORS:
        return False


def _detect_decimal(table: pa.Table) -> str:
    """Return the mark of decimals in most columns of strings: "." if none has any, "," on a tie."""

    def count_columns(pattern: str) -> int:
        matches = (pc.any(pc.match_substring_regex(c, pattern)).as_py() for c in table.columns)
        return sum(map(bool, matches))

    n_commas, n_points = (count_columns(rf"^\s*[<>]?-?\d+{mark}\d+\s*$") for mark in (",", r"\."))
    return "," if n_commas and n_commas >= n_points else "."


def read_table(
    path: str | Path,
    form: CsvForm | None = None,
    is_numeric: Callable[[str], bool] = lambda name: False,  # noqa: ARG005
) -> pa.Table:
    """Return the table of a file with normalized column names; from CSV all columns are strings.

    `form`: the format of a CSV file; None detects it, which is allowed for public files only.
    `is_numeric`: returns whether the column with a normalized name has numbers, in which decimal
    commas become points. No message contains anything from the file.
    """
    path = _check_exists(path)
    if form is None:
        form = detect_csv_format(path)
    elif _find_reader(path) is _read_csv:
        require_csv_memory(path, form.encoding)
    table = _parse_file(path, form)
    if table.num_rows == 0:
        raise InvalidInput(f"{path} holds no records.")
    names = [normalize_column_name(name) for name in table.column_names]
    _refuse_repeated_names(path, names)
    columns = table.columns
    if form.decimal == "," and _find_reader(path) is _read_csv:
        columns = [
            swap_decimal_marks(column) if is_numeric(name) else column
            for name, column in zip(names, columns, strict=True)
        ]
    return pa.Table.from_arrays(columns, names=names)


def _refuse_repeated_names(path: Path, names: list[str]) -> None:
    """Raise InvalidInput, with the numbers of the columns from 1, if two of `names` are equal."""
    number_of: dict[str, int] = {}
    for number, name in enumerate(names, 1):
        first_number = number_of.setdefault(name, number)
        if first_number != number:
            raise InvalidInput(
                f"{path} has two columns of one name, column {first_number} and column {number}. "
                "Rename one, or drop it."
            )


def _parse_file(path: Path, form: CsvForm) -> pa.Table:
    """Return a file's table; raise InvalidInput, with the detected format, if it is not `form`.

    The format is detected only for a CSV file that cannot be read, or that has a single column.
    """
    reader, table = _find_reader(path), None
    try:
        table = reader(path, form)
        if reader is not _read_csv or table.num_columns > 1:
            return table
    except _READ_ERRORS as error:
        # Arrow's own messages quote the invalid row.
        if reader is not _read_csv:
            is_own = isinstance(error, InvalidInput)
            raise (error if is_own else _build_damage_error(path)) from None
    detected = detect_csv_format(path, base_format=form)
    if table is None:
        differs = detected.delimiter != form.delimiter
    else:
        differs = len(_read_header(path, detected)) > 1
    if differs or detected.encoding != form.encoding:
        raise InvalidInput(
            f"{path} is not written as expected ({form}); it looks like {detected}. Declare its "
            'format as "file" in the schema, as vicinal schema does for a public table; or save it '
            "as plain CSV in UTF-8, as .parquet or as .xlsx."
        )
    if table is None:
        raise _build_damage_error(path)
    return table


CSV_OPTIONS_HINT = (
    '; declare comments, quotes other than " and escapes: on the command line with --comment, '
    "--quote and --escape"
)
"""Part of an error on a CSV file that is left out where there is no command line."""


def _build_damage_error(path: Path) -> InvalidInput:
    """Return the error for a file that its reader refuses, with the remedy if it is known."""
    with suppress(OSError, ValueError), pa.input_stream(str(path)) as stream:
        if stream.read(8).replace(b"\0", b"").lstrip(b"\xef\xbb\xbf\xff\xfe").startswith(b"sep="):
            return InvalidInput(f"{path} begins with a line for Excel, sep=. Delete that line.")
    return InvalidInput(
        f"{path} is damaged, or is not what its name says. (A CSV file needs a header, and as many "
        f"fields in every row. Delete a title above the header{CSV_OPTIONS_HINT}.)"
    )


def _find_reader(path: Path) -> Callable[[Path, CsvForm], pa.Table]:
    """Return the function of path and CSV format that reads files with this name's ending."""
    suffix = path.suffix.lower()
    if _CSV_NAME.fullmatch(path.name):
        return _read_csv
    if suffix == ".parquet":
        return _read_parquet
    if suffix in (".xlsx", ".xls", ".ods"):
        return _read_excel
    raise InvalidInput(f"{path} must end in .csv, .tsv, .txt, .parquet, .xlsx, .xls, .ods or .npz.")


def _check_exists(path: str | Path) -> Path:
    """Return the path; raise InvalidInput if there is no such file."""
    if not Path(path).is_file():
        raise InvalidInput(f"There is no file {path}.")
    return Path(path)


def _build_options(form: CsvForm, n_columns: int) -> tuple[Any, Any]:
    """Return Arrow's ReadOptions and ParseOptions for a CSV file with `n_columns` in its header.

    In a file of one column every line is one field with all its characters, and an empty line is an
    empty field.
    """
    from pyarrow import csv

    return (
        csv.ReadOptions(block_size=_BLOCK, encoding="utf-8" if form.comment else form.encoding),
        csv.ParseOptions(
            delimiter=form.delimiter if n_columns > 1 else _UNUSED_DELIMITER,
            quote_char=form.quote or False,
            escape_char=form.escape or False,
            newlines_in_values=True,
            ignore_empty_lines=n_columns > 1,
        ),
    )


def _read_csv(path: Path, form: CsvForm) -> pa.Table:
    """Return the table of a CSV file; all columns are strings."""
    names = _read_header(path, form)
    if names[:1] == ["sep="]:
        raise ValueError
    table = _read_strings(path, form, names)
    # Where Arrow and Python read a header differently, Arrow's names are the table's.
    return table if table.column_names == names else _read_strings(path, form, table.column_names)


def _read_strings(path: Path, form: CsvForm, names: list[str]) -> pa.Table:
    """Return the table of a CSV file whose header has `names`, with all columns as strings."""
    # They are converted later, because types guessed from the first rows may not fit the rest.
    from pyarrow import csv

    types = csv.ConvertOptions(column_types=dict.fromkeys(names, pa.string()))
    return csv.read_csv(_open_source(path, form), *_build_options(form, len(names)), types)


def _read_header(path: Path, form: CsvForm) -> list[str]:
    """Return the names in the header of a CSV file, the first row that is no comment and not empty.

    They are as written, not normalized. The list is empty if there is no such row.
    """
    with _open_text(path, form) as text:
        return next((row for _, row in _split_rows(text, form) if row), [])


def _open_source(path: Path, form: CsvForm) -> Any:
    """Return a CSV file for Arrow: its path, or the text without comments if it may have some."""
    if not form.comment:
        return path
    content = io.StringIO(newline="")
    with _open_text(path, form) as text:
        for lines, _ in _split_rows(text, form):
            content.writelines(lines)
    return pa.BufferReader(content.getvalue().encode())


def _open_text(path: Path, form: CsvForm) -> io.TextIOWrapper:
    """Return the decompressed text of a CSV file, without a byte order mark."""
    encoding = "utf-8-sig" if form.encoding == "utf-8" else form.encoding
    return io.TextIOWrapper(pa.input_stream(str(path)), encoding=encoding, newline="")


def _split_rows(text: Iterable[str], form: CsvForm) -> Iterator[tuple[list[str], list[str]]]:
    """Yield the lines and the fields of every row of a CSV text, without comments.

    `text`: its lines. The list of lines is reused for the next row. A line is a comment if it
    begins with the format's comment mark at the start of a row; within a quoted field it belongs to
    the field.
    """
    lines: list[str] = []

    def read_lines() -> Iterator[str]:
        """Yield the lines that are no comments, and keep those of the current row."""
        for line in text:
            if form.comment and not lines and line.startswith(form.comment):
                continue
            lines.append(line)
            yield line

    # The field limit belongs to the process, so it is only raised, to the longest row allowed here.
    python_csv.field_size_limit(max(_BLOCK, python_csv.field_size_limit()))
    rows = python_csv.reader(
        read_lines(),
        delimiter=form.delimiter,
        quotechar=form.quote or None,
        escapechar=form.escape or None,
        quoting=python_csv.QUOTE_MINIMAL if form.quote else python_csv.QUOTE_NONE,
    )
    for fields in rows:
        yield lines, fields
        lines.clear()


def _read_parquet(path: Path, form: CsvForm) -> pa.Table:  # noqa: ARG001 (for CSV files)
    """Return the table of a Parquet file, without the index columns of pandas."""
    from pyarrow import parquet

    with parquet.ParquetFile(path) as file:  # read_table cannot read two columns of one name.
        require_parquet_memory(path, file)
        table = file.read()
    # Columns are selected by index, because names may be repeated.
    indices = [
        index
        for index, name in enumerate(table.column_names)
        if not re.fullmatch(r"__index_level_\d+__", name)
    ]
    return table.select(indices)


def _read_excel(path: Path, form: CsvForm) -> pa.Table:  # noqa: ARG001 (for CSV files)
    """Return the table of the first sheet of an Excel or OpenDocument file."""
    calamine = import_from_extra("excel", "python_calamine", "Reading Excel files")
    require_sheet_memory(path)
    try:
        sheet = calamine.CalamineWorkbook.from_path(str(path)).get_sheet_by_index(0)
    except calamine.CalamineError:
        raise ValueError from None
    header, *rows = sheet.to_python() or [[]]
    columns = zip(*rows, strict=True) if rows else [()] * len(header)
    arrays = [
        _convert_excel_column([None if cell == "" else cell for cell in column])
        for column in columns
    ]
    return pa.table(arrays, names=list(map(plain_text, header)))


def _convert_excel_column(cells: list[Any]) -> pa.Array:
    """Return the `cells` of a sheet's column as an Arrow array; None becomes null.

    Numbers become int64 if all are whole, else float64; a column of empty cells becomes int64.
    Mixed types and times become strings; another single type is kept.
    """
    types = {type(cell) for cell in cells if cell is not None}
    if types <= {int, float}:
        are_whole = all(float(cell).is_integer() for cell in cells if cell is not None)
        return pa.array(cells, pa.int64() if are_whole else pa.float64())
    if len(types) == 1 and not types & {dt.time, dt.timedelta}:
        return pa.array(cells)
    return pa.array([None if cell is None else plain_text(cell) for cell in cells])


def _read_texts(lookup: _ColumnLookup, name: str) -> tuple[str, ...]:
    """Return the texts of a column; an empty cell is refused in every format."""
    column = lookup.get(name, "text column", allow_missing=True)
    is_missing = column.is_null()
    if is_text(column):
        is_missing = pc.or_kleene(is_missing, pc.equal(pc.utf8_trim_whitespace(column), ""))
    missing_rows = np.flatnonzero(is_missing.to_numpy()) + 1
    if len(missing_rows):
        problem, remedy = "The text column has empty cells", "Fill them in, or drop these rows."
        listed_rows = checks.join_first(list(map(str, missing_rows)))
        raise UnusableRows(f"{problem}. {remedy}", f"{problem}, in row {listed_rows}. {remedy}")
    if not is_text(column):
        raise InvalidInput("The text column must hold strings.")
    return tuple(column.to_pylist())


def _read_matrix(lookup: _ColumnLookup, descriptions: Mapping[str, str]) -> Floats:
    """Return columns of numbers as float64 (n, d), given their `descriptions` by name."""
    present_names = set(lookup.table.column_names)
    missing_names = [name for name in descriptions if name not in present_names]
    if len(missing_names) > 1:
        listed_names = checks.join_first(list(map(repr, missing_names)))
        raise InvalidInput(
            f"The table has no columns {listed_names}, which hold features."
            f"{checks.suggest_columns(missing_names, lookup.table.column_names)}"
        )
    return np.stack([_read_numbers(lookup, *item) for item in descriptions.items()], axis=1)


def _read_numbers(lookup: _ColumnLookup, name: str, description: str) -> Floats:
    """Return a column of finite numbers as float64 (n,)."""
    column = lookup.get(name, description)
    parsed = parse_numbers(column.cast(pa.int8()) if pa.types.is_boolean(column.type) else column)
    if parsed.faults.any():
        raise InvalidInput(
            f"The {description} must hold finite numbers only. If it holds ids, name it as the "
            "subject. A table with texts, dates or gaps needs a schema and the features 'table'."
        )
    if np.isnan(parsed.codes).any():
        raise _build_missing_values_error(description)
    return parsed.codes


def _read_labels(lookup: _ColumnLookup, name: str) -> AnyArray:
    """Return a column of labels as int64, bool or str (n,)."""
    column = lookup.get(name, "label column")
    if pa.types.is_boolean(column.type):
        return np.asarray(column.to_numpy())
    if is_text(column):
        texts = list(map(plain_text, column.to_pylist()))
        if "" in texts:
            raise _build_missing_values_error("label column")
        return build_label_column(texts)
    if pa.types.is_integer(column.type) or pa.types.is_floating(column.type):
        with suppress(ValueError, pa.ArrowException):  # fractions, and integers of more bits
            return np.asarray(column.cast(pa.int64()).to_numpy())
    raise InvalidInput(
        "The label column must hold integers or strings; integers have at most 64 bits."
    )


def _read_subjects(lookup: _ColumnLookup, name: str) -> AnyArray:
    """Return a column of subject ids as int64 or str (n,)."""
    column = lookup.get(name, "subject column", allow_missing=True)
    if pa.types.is_boolean(column.type):
        column = column.cast(pa.int8())
    parsed = find_id_faults(column)
    if (np.isnan(parsed.codes) & (parsed.faults == 0)).any():
        raise InvalidInput(
            "The subject column has rows without an id. Fill in the ids, or drop these rows, "
            "because a record without an id cannot be charged to any subject."
        )
    return build_subject_column(column.to_numpy() if pa.types.is_integer(column.type) else column)


def _build_missing_values_error(description: str) -> InvalidInput:
    """Return the error for a column with missing values, which `description` names."""
    return InvalidInput(
        f"The {description} lacks values; fill them in or drop these records first."
    )
