"""Lists of subject ids: files with one id a line, or pipes, read so that Ctrl-C is heard."""

import io
import os
import re
import select
from collections.abc import Iterator
from pathlib import Path

from vicinal import checks
from vicinal.checks import SubjectId
from vicinal.errors import InvalidInput

_HEADERS = frozenset({
    "id", "ids", "identifier", "key", "name", "number", "person", "personid", "people",
    "patient", "patientid", "patients", "subject", "subjectid", "subjects", "user", "userid",
    "uid", "customer", "customerid", "client", "clientid", "member", "memberid", "case",
    "caseid", "record", "recordid", "who",
})  # fmt: skip
_BETWEEN_WORDS = re.compile(r"[\s_.:-]+")
_SEPARATORS = ((",", "a comma"), (";", "a semicolon"), ("\t", "a tab"), ('"', "a quotation mark"))


def read_ids(path: str | Path) -> list[SubjectId]:
    """Return the ids of a file, each in its one form, in the file's order.

    It is UTF-8 text, one id a line; nothing else. Lines end in LF, CR LF or CR; a byte order mark
    at the start and blank lines at the end are passed over. A line that is a header, has several
    fields, is blank, or is no id is refused by its number, never with what it says.
    """
    try:
        with Path(path).open("rb", buffering=0) as file:
            text = io.StringIO(read_whole(file.fileno()).decode("utf-8-sig"), newline=None)
        lines = list(_without_blank_end(line.removesuffix("\n") for line in text))
    except (OSError, ValueError):
        raise InvalidInput(f"The file {path} cannot be read as UTF-8 text.") from None
    if not lines:
        raise InvalidInput(f"The file {path} holds no id.")
    ids = [_id_of(path, number, line) for number, line in enumerate(lines, 1)]
    if _is_header(lines[0], lines[1:]):
        raise _id_error(
            path, 1, "looks like a header. Remove it; if it is an id, put it on another line"
        )
    return ids


def _without_blank_end(lines: Iterator[str]) -> Iterator[str]:
    blank = 0
    for line in lines:
        if line:
            yield from [""] * blank
            blank = 0
            yield line
        else:
            blank += 1


def _id_of(path: str | Path, number: int, line: str) -> SubjectId:
    for separator, words in _SEPARATORS:
        if separator in line:
            raise _id_error(path, number, f"holds {words}. Write one id per line, and nothing else")
    if fault := checks.id_fault(line):
        raise _id_error(path, number, f"must be an id. It is, or holds, {fault}")
    return checks.subject_id("subjects", line)


def _is_header(first: str, others: list[str]) -> bool:
    """Tell whether a first line names the column, or is the only one without a digit."""
    if _BETWEEN_WORDS.sub("", first).casefold() in _HEADERS:
        return True
    return bool(others) and not _has_digit(first) and all(map(_has_digit, others))


def _has_digit(line: str) -> bool:
    return any(character.isdigit() for character in line)


def _id_error(path: str | Path, number: int, reason: str) -> InvalidInput:
    return InvalidInput(f"Line {number} of {path} {reason}. Nothing was done.")


_PATIENCE_S = 0.1
_CHUNK = 1 << 16


def read_whole(descriptor: int) -> bytes:
    """Return everything up to the end of a file or pipe, given its descriptor.

    Python looks for signals when one of its reads is interrupted. A signal that comes between two
    reads of one call is heard only once more content comes: from a pipe, that may be never.
    """
    return b"".join(iter(lambda: _next_chunk(descriptor), b""))


def _next_chunk(descriptor: int) -> bytes:
    """Return what there is, b"" at the end; look for signals while there is nothing."""
    while not select.select([descriptor], [], [], _PATIENCE_S)[0]:
        pass
    return os.read(descriptor, _CHUNK)
