"""Files of ours, which a disk may have damaged, or somebody else made: JSON, and zip archives."""

import errno
import hashlib
import io
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from vicinal import checks
from vicinal.arrays import AnyArray
from vicinal.errors import InvalidInput, StoreDamaged, VicinalError
from vicinal.ledger.files import replace_file, translate_os_errors

_MOST = 16 << 20
"""Bytes: ten times what the largest plan, schema or list of keys needs."""

_DEEPEST = 32
_DIGITS = 64


def parse_json(
    content: bytes | str, place: object = "The ledger", error: type[VicinalError] = StoreDamaged
) -> Any:
    """Return what JSON says.

    Raises `error`, which names the `place`, if it is no JSON, has more than 32 levels or a key
    twice.
    """
    try:
        found = json.loads(content, object_pairs_hook=_without_twins)
        _check_depth(found, _DEEPEST)
    except RecursionError:
        reason = f"it has more than {_DEEPEST} levels"
    except ValueError as fault:
        reason = str(fault)
    else:
        return found
    raise error(f"{place} is not valid JSON: {reason}.")


def read_json(path: Path, noun: str) -> Any:
    """Return what a JSON file of the user says; `noun` is it, in errors: "plan".

    Raises InvalidInput if it cannot be read, or as :func:`parse_json`.
    """
    try:
        with path.open("rb") as file:
            content = _read(file)
    except OSError as error:
        raise InvalidInput(f"The {noun} {path} cannot be read: {error.strerror}.") from None
    return parse_json(content, f"The {noun} {path}", InvalidInput)


def write_sealed(path: Path, file_format: int, fields: Mapping[str, Any]) -> None:
    """Write a small JSON file with its format and a digest of all of it.

    The digest tells a flipped bit from an operator's decision; it stops nobody who can write.
    """
    content = {"format": file_format, **fields}
    content["digest"] = _digest(content)
    replace_file(path, json.dumps(content, indent=2).encode())


def read_sealed(
    path: Path, file_format: int, kinds: Mapping[str, type], missing: str
) -> dict[str, Any]:
    """Return the fields of a file that :func:`write_sealed` wrote; `kinds` are their types.

    Raises InvalidInput with the sentence `missing` if it is not there; OtherFormat if it has
    another format; StoreDamaged if it was changed or damaged; StorageFailed if it is no plain
    file, or cannot be read.
    """
    damaged = StoreDamaged(f"{path} was changed or damaged. Restore a backup.")
    try:
        if not path.is_file():
            raise InvalidInput(missing)
        with (
            translate_os_errors(path),
            os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW), "rb") as file,
        ):
            content = parse_json(_read(file))
        found = content.pop("format")
        digest = content.pop("digest")
    except (StoreDamaged, KeyError, AttributeError, TypeError):
        raise damaged from None
    checks.file_format(path, found, file_format)
    sound = {name: type(value) for name, value in content.items()} == kinds
    if not sound or digest != _digest({"format": found, **content}):
        raise damaged
    return dict(content)


def sealed_archive(archive: bytes) -> bytes:
    """Return a zip archive with the digest of all before it as its comment."""
    # The last two bytes before the comment say how long it is.
    archive = archive[:-2] + _DIGITS.to_bytes(2, "little")
    return archive + hashlib.sha256(archive).hexdigest().encode()


def check_archive(path: Path, content: bytes) -> None:
    """Raise InvalidInput unless the archive in a file is what :func:`sealed_archive` returned."""
    if sealed_archive(content[:-_DIGITS]) != content:
        raise InvalidInput(f"{path} was changed or damaged: its digest does not match.")


def write_arrays(path: Path, arrays: Mapping[str, AnyArray]) -> None:
    """Write an npz file with a digest of all of it."""
    content = io.BytesIO()
    np.savez(content, allow_pickle=False, **arrays)
    replace_file(path, sealed_archive(content.getvalue()))


def read_arrays(path: Path) -> dict[str, AnyArray]:
    """Return what :func:`write_arrays` wrote; of another file, raise whatever that makes."""
    content = path.read_bytes()
    check_archive(path, content)
    with np.load(io.BytesIO(content), allow_pickle=False) as stored:
        return dict(stored)


def _read(file: BinaryIO) -> bytes:
    content = file.read(_MOST + 1)
    if len(content) > _MOST:
        raise OSError(errno.EFBIG, os.strerror(errno.EFBIG))
    return content


def _digest(content: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _without_twins(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) != len(pairs):
        raise ValueError("a key appears twice")
    return fields


def _check_depth(value: Any, left: int) -> None:
    if left < 0:
        raise RecursionError
    if isinstance(value, dict | list):
        for part in value.values() if isinstance(value, dict) else value:
            _check_depth(part, left - 1)
