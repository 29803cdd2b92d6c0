"""Files of models that a store depends on: told apart by digest, copied where they are one file."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

from vicinal.errors import InvalidInput
from vicinal.ledger._files import guarded

_CHUNK = 1 << 22


def digest_of(model: Path) -> str:
    """Return the SHA-256 of a file, or of a folder's files with their names, in hexadecimal.

    Raises InvalidInput if there is neither. Raises StorageFailed if it cannot be read.
    """
    if model.is_file():
        return _digest(_contents(model))
    if not model.is_dir():
        raise InvalidInput(f"There is no model at {model}.")
    with guarded(model):
        files = sorted(path for path in model.rglob("*") if path.is_file())
    listed = (f"{path.relative_to(model).as_posix()} {digest_of(path)}\n" for path in files)
    return _digest(line.encode() for line in listed)


def _digest(parts: Iterator[bytes]) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part)
    return digest.hexdigest()


def _contents(path: Path) -> Iterator[bytes]:
    with guarded(path), path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            yield chunk
