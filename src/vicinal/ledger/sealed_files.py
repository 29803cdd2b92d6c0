"""Files with digests, and strict readers for JSON files that may be damaged or forged.

A *sealed* file holds a SHA-256 of its content, which detects damage. It has no key, so it does not
prevent forgery. `path` is the path of the file.
"""

import errno
import hashlib
import io
import json
import math
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from vicinal import checks
from vicinal.arrays import AnyArray
from vicinal.declared_sizes import open_npz, read_bytes
from vicinal.errors import InvalidInput, OtherFormat, StoreDamaged, VicinalError
from vicinal.ledger.files import replace_file, translate_os_errors

_MAX_BYTES = 16 << 20
"""Maximal size of a JSON file: ten times the largest plan, schema or list of keys."""

_MAX_DEPTH = 32
"""Maximal number of nested levels in JSON."""

_DIGEST_DIGITS = 64
"""Hexadecimal digits of a SHA-256."""


def parse_json(
    content: bytes | str, source: object = "The ledger", error: type[VicinalError] = StoreDamaged
) -> Any:
    """Return the value of a JSON text.

    `source`: where the text comes from, for the message of the error. `error`: class of the error
    to raise if the text is no JSON, has more than 32 levels, has a key twice in an object, or a
    number that is infinite in float64 or NaN, which JSON does not have.
    """
    try:
        value = json.loads(
            content,
            object_pairs_hook=_refuse_duplicates,
            parse_constant=_parse_finite,
            parse_float=_parse_finite,
            parse_int=_parse_integer,
        )
        _check_depth(value, _MAX_DEPTH)
        return value
    except RecursionError:
        reason = f"it has more than {_MAX_DEPTH} levels"
    except ValueError as problem:
        reason = str(problem)
    raise error(f"{source} is not valid JSON: {reason}.")


def read_json(path: Path, noun: str) -> Any:
    """Return the value of a JSON file of the user.

    `noun`: name of the kind of file in messages, such as "plan". Raises InvalidInput if it cannot
    be read, is longer than 16 MiB (:data:`_MAX_BYTES`), or is refused by :func:`parse_json`.
    """
    try:
        with path.open("rb") as file:
            content = _read_limited(file)
    except OSError as error:
        raise InvalidInput(f"The {noun} {path} cannot be read: {error.strerror}.") from None
    return parse_json(content, f"The {noun} {path}", InvalidInput)


def write_sealed(
    path: Path, file_format: int, fields: Mapping[str, Any], *, owner: int | None = None
) -> None:
    """Write a small JSON file with a digest of the whole content.

    `file_format`: version of the file's format. `fields`: values by name, in JSON types. `owner`:
    user id of the only account to which root gives a new file; None for that of an existing file.
    """
    content = {"format": file_format, **fields}
    content["digest"] = _compute_digest(content)
    replace_file(path, json.dumps(content, indent=2).encode(), owner=owner)


def read_sealed(
    path: Path, file_format: int, kinds: Mapping[str, type], missing: str
) -> dict[str, Any]:
    """Return the fields of a JSON file after its digest, version and field types are verified.

    :func:`write_sealed` writes such files.

    - `file_format`: expected version of the format.
    - `kinds`: the type of every field, by name.
    - `missing`: message of the InvalidInput that is raised if the file does not exist.

    Raises OtherFormat if it has another version; StoreDamaged if it was changed or damaged;
    StorageFailed if it is a link, or cannot be read.
    """
    damaged = StoreDamaged(f"{path} was changed or damaged. Restore a backup.")
    try:
        if not path.is_file():
            raise InvalidInput(missing)
        with (
            translate_os_errors(path),
            os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW), "rb") as file,
        ):
            content = parse_json(_read_limited(file))
        found_format = content.pop("format")
        digest = content.pop("digest")
    except (StoreDamaged, KeyError, AttributeError, TypeError):
        raise damaged from None
    checks.check_file_format(path, found_format, file_format)
    has_types = {name: type(value) for name, value in content.items()} == kinds
    if not has_types or digest != _compute_digest({"format": found_format, **content}):
        raise damaged
    return dict(content)


def seal_archive(archive: bytes) -> bytes:
    """Return a zip archive with its SHA-256 as the archive's comment.

    `archive`: the bytes of the archive without a comment.
    """
    # The last two bytes before the comment hold its length.
    archive = archive[:-2] + _DIGEST_DIGITS.to_bytes(2, "little")
    return archive + hashlib.sha256(archive).hexdigest().encode()


def check_archive(path: Path, content: bytes) -> None:
    """Raise InvalidInput if a sealed archive (:func:`seal_archive`) was changed or damaged.

    `path`: of the file, for the message. `content`: all its bytes.
    """
    if seal_archive(content[:-_DIGEST_DIGITS]) != content:
        raise InvalidInput(f"{path} was changed or damaged: its digest does not match.")


def write_arrays(path: Path, arrays: Mapping[str, AnyArray]) -> None:
    """Write arrays by name to a private npz file with a digest of its content."""
    replace_file(path, pack_arrays(arrays))


def pack_arrays(arrays: Mapping[str, AnyArray]) -> bytes:
    """Return the content of an npz file with arrays by name and a digest of its content."""
    content = io.BytesIO()
    np.savez(content, allow_pickle=False, **arrays)
    return seal_archive(content.getvalue())


def read_arrays(path: Path) -> dict[str, AnyArray]:
    """Return the arrays in a file written by :func:`write_arrays`, by name.

    Raises InvalidInput if the digest does not match, TooLittleMemory, and NumPy's errors for other
    contents.
    """
    content = read_bytes(path)
    check_archive(path, content)
    with open_npz(path, io.BytesIO(content)) as stored:
        return dict(stored)


@contextmanager
def translate_damage(message: str) -> Iterator[None]:
    """Return a context that raises InvalidInput if its body cannot read a file.

    `message`: text of the error. A damaged file can cause any error. But a file that is missing,
    has another format or needs too much memory is not damaged: these errors are raised unchanged.
    """
    try:
        yield
    except (FileNotFoundError, MemoryError, OtherFormat):
        raise
    except Exception as error:  # a damaged or foreign file can raise any error
        raise InvalidInput(message) from error


def _read_limited(file: BinaryIO) -> bytes:
    """Return the content of an open file; raises OSError if it is too long (:data:`_MAX_BYTES`)."""
    content = file.read(_MAX_BYTES + 1)
    if len(content) > _MAX_BYTES:
        raise OSError(errno.EFBIG, os.strerror(errno.EFBIG))
    return content


def _compute_digest(content: Mapping[str, Any]) -> str:
    """Return the SHA-256, in hexadecimal digits, of fields in JSON types as sorted JSON."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _refuse_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return a JSON object as a dict of its pairs (key, value); ValueError if a key repeats."""
    fields = dict(pairs)
    if len(fields) != len(pairs):
        raise ValueError("a key appears twice")
    return fields


def _parse_finite(text: str) -> float:
    """Return the number of a JSON `text`; raise ValueError if it is NaN, or infinite in float64."""
    number = float(text)
    if not math.isfinite(number):
        raise ValueError("a number is not finite")
    return number


def _parse_integer(text: str) -> int:
    """Return the integer of a JSON `text`; raise ValueError if it is infinite in float64."""
    _parse_finite(text)
    return int(text)


def _check_depth(value: Any, max_depth: int) -> None:
    """Raise RecursionError if a JSON value has more than `max_depth` nested levels."""
    if max_depth < 0:
        raise RecursionError
    if isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            _check_depth(item, max_depth - 1)
