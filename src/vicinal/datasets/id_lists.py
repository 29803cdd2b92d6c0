"""Read lists of subject ids from files or pipes; Ctrl-C interrupts the reading of a pipe."""

import os
import re
import select
from pathlib import Path

from vicinal import checks
from vicinal.checks import SubjectId
from vicinal.declared_sizes import require_memory
from vicinal.errors import InvalidInput

_HEADERS = frozenset({
    "id", "ids", "identifier", "key", "name", "number", "person", "personid", "people",
    "patient", "patientid", "patients", "subject", "subjectid", "subjects", "user", "userid",
    "uid", "customer", "customerid", "client", "clientid", "member", "memberid", "case",
    "caseid", "record", "recordid", "who",
})  # fmt: skip
_WORD_BREAKS = re.compile(r"[\s_.:-]+")
_SEPARATORS = {",": "a comma", ";": "a semicolon", "\t": "a tab", '"': "a quotation mark"}

_SIGNAL_INTERVAL_S = 0.1
"""Longest wait, in seconds, for a pipe before Python handles pending signals such as Ctrl-C."""

_CHUNK_BYTES = 1 << 16  # bytes requested by one read


def read_ids(path: str | Path) -> list[SubjectId]:
    """Return the subject ids of a file in its order, each in canonical form.

    The file is UTF-8 text with one id per line. Lines end in LF, CR LF or CR; a byte order mark at
    the start and blank lines at the end are ignored.
    Raises InvalidInput if a line looks like a header, has several fields, is blank or is no id. The
    message gives the line's number and never its content.
    """
    try:
        with Path(path).open("rb", buffering=0) as file:
            require_memory(path, os.fstat(file.fileno()).st_size)
            text = read_to_end(file.fileno()).decode("utf-8-sig")
    except (OSError, ValueError):
        raise InvalidInput(f"The file {path} cannot be read as UTF-8 text.") from None
    content = text.replace("\r\n", "\n").replace("\r", "\n").rstrip("\n")
    if not content:
        raise InvalidInput(f"The file {path} holds no id.")
    lines = content.split("\n")
    ids = [_parse_id(path, line_number, line) for line_number, line in enumerate(lines, 1)]
    if _is_header(lines[0], lines[1:]):
        raise _build_line_error(
            path, 1, "looks like a header. Remove it; if it is an id, put it on another line"
        )
    return ids


def _parse_id(path: str | Path, line_number: int, line: str) -> SubjectId:
    """Return the canonical id in a `line`; `path` and `line_number`, from 1, are for messages."""
    for separator, name in _SEPARATORS.items():
        if separator in line:
            reason = f"holds {name}. Write one id per line, and nothing else"
            raise _build_line_error(path, line_number, reason)
    problem = checks.describe_id_problem(line)
    if problem:
        raise _build_line_error(path, line_number, f"must be an id. The problem: {problem}")
    return checks.check_subject_id("subjects", line)


def _is_header(first_line: str, other_lines: list[str]) -> bool:
    """Return whether the first line is a usual column name, or the only one without a digit."""
    if _WORD_BREAKS.sub("", first_line).casefold() in _HEADERS:
        return True
    has_digit = [any(map(str.isdigit, line)) for line in (first_line, *other_lines)]
    return bool(other_lines) and not has_digit[0] and all(has_digit[1:])


def _build_line_error(path: str | Path, line_number: int, reason: str) -> InvalidInput:
    """Return the error for a line (from 1) of a file; `reason`: its problem, a verb phrase."""
    return InvalidInput(f"Line {line_number} of {path} {reason}. Nothing was done.")


def read_to_end(descriptor: int) -> bytes:
    """Return all bytes up to the end of a file or pipe, given its file `descriptor`.

    Between short waits Python handles signals, which a read of a pipe could delay for ever.
    """
    chunks: list[bytes] = []
    while True:
        while not select.select([descriptor], [], [], _SIGNAL_INTERVAL_S)[0]:
            pass
        chunk = os.read(descriptor, _CHUNK_BYTES)
        if not chunk:
            return b"".join(chunks)
        chunks.append(chunk)
