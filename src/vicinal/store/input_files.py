"""Files of records and queries as a store's extractor reads them, and answers as CSV.

The command line and the service share these functions, so that both read a file alike. Files of
records are tables, npz files or folders of images or texts. An `extractor` selects the columns of
features, or has the schema of the table. `label` and `subject` name the columns of labels and of
subject ids, `path` is the file or folder, and `public` states whether its rows are public.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vicinal.errors import InvalidInput, UnusableRows

if TYPE_CHECKING:
    import pyarrow as pa

    from vicinal.datasets.dataset import Dataset
    from vicinal.features.csv_form import CsvForm
    from vicinal.features.table_schema import TableSchema
    from vicinal.store.store_schema import StoreExtractor

FILE_COLUMN = "file"  # column of answers with the names of the files in a folder of images or texts


@contextmanager
def add_file_to_errors(path: Path, suffix: str = "", *, public: bool = False) -> Iterator[None]:
    """Prepend the file's name to messages of InvalidInput that lack it, and append `suffix`.

    For a `public` file, the messages also list the unusable rows, which are private in other files.
    """
    try:
        yield
    except InvalidInput as error:
        has_name = str(path) in str(error)
        if has_name and not suffix:
            raise
        message = error.located if public and isinstance(error, UnusableRows) else error
        prefix = "" if has_name else f"{path}: "
        raise InvalidInput(f"{prefix}{message}{suffix}") from None


def get_table_schema(extractor: StoreExtractor) -> TableSchema:
    """Return the schema of an extractor of the kind "table"."""
    from vicinal.features.table_schema import TableSchema

    return TableSchema.from_dict(extractor.options["schema"])


def is_table(path: Path) -> bool:
    """Return whether a file has named columns: it is no folder and no npz file."""
    return not path.is_dir() and path.suffix != ".npz"


def read_records(
    path: Path,
    extractor: StoreExtractor,
    label: str | None = None,
    subject: str | None = None,
    targets: Sequence[str] = (),
    *,
    public: bool = False,
    warn: bool = True,
) -> Dataset:
    """Return the raw records of a file or folder, as the store's extractor accepts them.

    `targets`: names of the columns of target numbers. The format of a `public` CSV file is
    detected; private ones have the format in the schema. `warn`: warn of unexpected values
    in a public file.
    """
    from vicinal.datasets.dataset import load_images, load_texts
    from vicinal.datasets.tables import load_table
    from vicinal.features.table_features import warn_of_unexpected_values

    if path.is_dir():
        if extractor.kind in ("columns", "table"):
            raise InvalidInput(
                f"{path} is a folder, so the 'features' option must be hog or image if it holds "
                f"images, or text if it holds texts. Got {extractor.kind}."
            )
        dataset = load_texts(path) if extractor.kind == "text" else load_images(path)
        if not public:
            _refuse_missing_columns(dataset, "LABEL/PERSON/FILE", label, subject)
        return dataset
    if path.name.endswith(".npz") and extractor.kind != "table":
        dataset = load_table(path)
        if not public:
            _refuse_missing_columns(dataset, "y and subjects", label, subject)
        return dataset
    options: dict[str, Any] = {"columns": extractor.columns}
    if extractor.kind == "table":
        options = {"schema": get_table_schema(extractor)}
    elif extractor.kind == "text":
        columns = extractor.columns or ["text"]
        if len(columns) > 1:
            raise InvalidInput("The 'columns' option must name one column of texts.")
        options = {"text": columns[0]}
    form = get_csv_form(path, extractor, public=public)
    with add_file_to_errors(path, public=public):
        dataset = load_table(path, label, subject, targets=targets, form=form, **options)
    if public and warn and "schema" in options:
        warn_of_unexpected_values(path.name, dataset.features, options["schema"])
    return dataset


def _refuse_missing_columns(
    dataset: Dataset, array_names: str, label: str | None, subject: str | None
) -> None:
    """Raise InvalidInput if a column is named that the data set of a folder or npz file lacks.

    `array_names`: the names of labels and subjects in such a file, for the message. Without
    subjects, every private row would have a budget of its own.
    """
    columns = {"label": (label, dataset.labels), "subject": (subject, dataset.subjects)}
    for option, (name, column) in columns.items():
        if name is not None and column is None:
            raise InvalidInput(
                f"The '{option}' option names a column of a table. In this file or folder they "
                f"are called {array_names}, and it has none."
            )


def get_csv_form(path: Path, extractor: StoreExtractor, *, public: bool) -> CsvForm:
    """Return the format of a CSV file: detected if it is public, and else as in the schema."""
    from vicinal.datasets.tables import detect_csv_format
    from vicinal.features.csv_form import CsvForm

    declared = get_table_schema(extractor).file if extractor.kind == "table" else CsvForm()
    return detect_csv_format(path, base_format=declared) if public else declared


def read_queries(
    path: Path,
    extractor: StoreExtractor,
    id_column: str | None,
    answer_columns: Sequence[str],
    *,
    warn: bool = True,
) -> tuple[dict[str, Any], Dataset]:
    """Return the column to copy in front of the answers, as {name: values}, and the queries.

    `id_column`: column of the file to copy; if None, the names of a folder's files are copied, and
    nothing (an empty mapping) for other files. `answer_columns`: names of the columns of answers,
    which the copied column must not have. `warn`: warn of unexpected values.
    """
    from vicinal.datasets.tables import normalize_column_name, read_table

    if id_column is None:
        if path.is_dir() and FILE_COLUMN in answer_columns:
            raise InvalidInput(
                f"The answers have a column {FILE_COLUMN!r}, in which the names of files would "
                "stand. Pass images as an npz file and texts as a table, without names."
            )
        dataset = read_records(path, extractor, public=True, warn=warn)
        return ({} if dataset.names is None else {FILE_COLUMN: list(dataset.names)}), dataset
    name = normalize_column_name(id_column)
    if name in answer_columns:
        raise InvalidInput(
            f"The 'id' option must not be {name!r}, because the answers have a column of that "
            "name. Rename the column in the file of queries."
        )
    if path.is_dir() or path.name.endswith(".npz"):
        raise InvalidInput("The 'id' option needs a table: folders and npz files have no columns.")
    table = read_table(path, get_csv_form(path, extractor, public=True))
    if name not in table.column_names:
        from vicinal import checks

        raise InvalidInput(
            f"{path} has no column {checks.quote_column(name)}, which the 'id' option names."
            f"{checks.suggest_columns([name], table.column_names)}"
        )
    if extractor.kind == "columns" and extractor.columns is None:
        feature_columns = [column for column in table.column_names if column != name]
        extractor = replace(extractor, columns=feature_columns)
    dataset = read_records(path, extractor, public=True, warn=warn)
    rows: Any = dataset.features
    schema_columns = extractor.options.get("schema", {}).get("columns", {})
    if extractor.kind == "table" and name not in schema_columns:
        dataset = replace(dataset, features=rows.drop_columns([name]))
    return {name: table[name]}, dataset


def format_answers_csv(table: pa.Table) -> str:
    """Return a table of answers as the text of a CSV file that is safe to open in a spreadsheet."""
    columns = [column.to_pylist() for column in table.columns]
    # The writer leaves a carriage return without quotes, and readers would end the row there.
    cells = chain(table.column_names, *columns)
    has_returns = any(isinstance(cell, str) and "\r" in cell for cell in cells)
    text = io.StringIO()
    writer = csv.writer(
        text,
        lineterminator="\n",
        quoting=csv.QUOTE_NONNUMERIC if has_returns else csv.QUOTE_MINIMAL,
    )
    writer.writerow(map(_escape_formula, table.column_names))
    for row in zip(*columns, strict=True):
        writer.writerow(["" if value is None else _escape_formula(value) for value in row])
    return text.getvalue()


def _escape_formula(value: Any) -> Any:
    """Return a cell of a CSV file; text that a spreadsheet would execute gets an apostrophe first.

    Such text begins like a formula and is no number. Parquet files hold every text unchanged. An id
    with the apostrophe is similar to the id without it, so it gets no second budget unnoticed.
    """
    from vicinal.ledger.id_encoding import FORMULA_OPENINGS

    is_text = isinstance(value, str) and len(value) > 1
    if not is_text or not value.startswith(tuple(FORMULA_OPENINGS)):
        return value
    try:
        float(value)
    except ValueError:
        return f"'{value}"
    return value
