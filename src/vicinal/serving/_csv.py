"""Queries from an uploaded CSV file, read by the same functions as `vicinal predict --data`."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from vicinal.datasets.tables import CSV_OPTIONS_HINT
from vicinal.errors import InvalidInput, TooLittleMemory
from vicinal.serving._problems import Problem
from vicinal.store.base_store import BaseStore
from vicinal.store.input_files import read_queries

CSV_MEDIA_TYPE = "text/csv"
_FILE_NAME = "queries.csv"  # the client's own name of the file is not sent
_OPENINGS_OF_WORKBOOKS = (b"PK\x03\x04", b"\xd0\xcf\x11\xe0")
"""First bytes of .xlsx and .ods files, which are ZIP archives, and of .xls files."""
_OPEN_FILES = Path("/proc/self/fd")
"""Folder of Linux with a link to each open file of this process. Other systems lack it."""


def decode_csv(
    content: bytes, store: BaseStore, id_column: str | None, max_rows: int
) -> tuple[dict[str, Any], Any, int]:
    """Return the id column of an uploaded CSV file (by name), its queries, and their number.

    `id_column`: name of the column that the reply repeats beside the answers; None for none, and
    then the first result is empty. Raises problem 422 if the file does not fit the store, 413 for
    more than `max_rows` queries, 503 if there is too little space on disk or in memory.
    """
    extractor = store.schema.extractor
    if extractor.raw_form == "images":
        detail = "This store accepts images. Send them as JSON to POST /v1/predict."
        raise Problem(422, "unusable", detail)
    if content.startswith(_OPENINGS_OF_WORKBOOKS):
        detail = "This is an Excel workbook, or another archive. Save it as CSV, and send that."
        raise Problem(422, "unusable", detail)
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryFile() as file:
        path = Path(folder) / _FILE_NAME
        try:
            if _OPEN_FILES.is_dir():
                # The file has no name, so that a killed process leaves no row on the disk.
                file.write(content)
                file.flush()
                path.symlink_to(_OPEN_FILES / str(file.fileno()))
            else:
                path.write_bytes(content)
            answer_columns = store.schema.target.answer_columns
            copied, dataset = read_queries(path, extractor, id_column, answer_columns, warn=False)
        except InvalidInput as error:
            detail = str(error).replace(str(path), "The uploaded file")
            detail = detail.replace(CSV_OPTIONS_HINT, "")
            raise Problem(422, "unusable", detail) from None
        except (OSError, TooLittleMemory):
            raise Problem.from_overload() from None
    n_rows = len(dataset.features)
    if not n_rows:
        raise Problem(422, "unusable", "The file must have at least one row of queries.")
    if n_rows > max_rows:
        raise Problem(413, "too-many", f"A request must have at most {max_rows} rows.")
    return copied, dataset.features, n_rows
