"""A store's folder: which files there are, who the store is, and where its other parts lie."""

import hashlib
import json
import os
import re
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self
from urllib.parse import unquote

from vicinal import _checks
from vicinal.errors import InvalidInput, PrivacyRefused, StoreDamaged
from vicinal.ledger import (
    PRIVATE_FILE,
    PRIVATE_FOLDER,
    Database,
    PostgresDatabase,
    SQLiteDatabase,
    default_witness_path,
    guarded,
    replace_file,
)
from vicinal.mechanisms import fresh_key

LEDGER = "ledger.db"
KEY = "key"
CONFIG = "store.json"
FORMAT = 1
"""The format of `store.json`, and of the folder around it."""

_SQLITE = "sqlite"


@dataclass(frozen=True, slots=True)
class Folder:
    """Where a store lies: its folder, its id in hexadecimal digits, its ledger and its witness.

    `ledger`: "sqlite", or the URL of a PostgreSQL database. `witness`: the file outside the folder
    that remembers how far the store had come.
    """

    path: Path
    identity: str
    ledger: str
    witness: Path

    @classmethod
    def create(cls, path: Path, ledger: str | None, witness: Path | None) -> Self:
        """Make the folder of a new store, with a new id and a new key.

        Raises InvalidInput if there is something in that place already, or the URL is none, or
        holds a password.
        """
        check_new(path)
        witness_path = default_witness_path(path) if witness is None else witness.absolute()
        if witness_path.exists():
            raise InvalidInput(
                f"{witness_path} is the witness of another store. Move it away first."
            )
        url = _checked_url(ledger or _SQLITE)
        private_folder(path)
        replace_file(path / KEY, fresh_key())
        return cls(path, fresh_key(16).hex(), url, witness_path)

    @classmethod
    def read(cls, path: Path) -> Self:
        """Return the folder of a store that is there.

        Raises InvalidInput if there is none. Raises PrivacyRefused if it is a backup.
        """
        config = read_config(path)
        if config["backup"]:
            raise PrivacyRefused(
                f"{path} is a backup, which does not know what was charged since. Restore it into "
                "a store with: vicinal restore"
            )
        witness = Path(config["witness"])
        if not witness.is_absolute():
            witness = path.absolute().parent / witness.name
        return cls(path, config["id"], config["ledger"], witness)

    def save(self) -> None:
        """Write who the store is, which makes the folder a store."""
        beside = self.witness == default_witness_path(self.path)
        witness = f"../{self.witness.name}" if beside else str(self.witness)
        write_config(self.path, self.identity, self.ledger, witness, backup=False)

    def discard(self) -> None:
        """Remove what :meth:`create` and those after it have made: nobody has used it yet."""
        shutil.rmtree(self.path, ignore_errors=True)
        self.witness.unlink(missing_ok=True)

    def database(self, *, create: bool = False) -> Database:
        """Return a connection to the ledger's database; to read, unless it is made."""
        if self.ledger == _SQLITE:
            return SQLiteDatabase(self.path / LEDGER, create=create, reading=not create)
        return PostgresDatabase(_checked_url(self.ledger), create=create)

    def key(self) -> bytes:
        """Return the key of the hashes of those who left."""
        with guarded(self.path / KEY):
            return (self.path / KEY).read_bytes()


def check_new(path: Path) -> None:
    """Raise InvalidInput if there is something at `path` already."""
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise InvalidInput(
            f"{path} must be a new folder, or an empty one. If a command was broken off there, it "
            "holds no store.json and no cluster.json: then delete it."
        )


def private_folder(path: Path) -> None:
    """Make a folder that only its owner may enter, whatever the umask, if it is not there."""
    with guarded(path):
        path.mkdir(mode=PRIVATE_FOLDER, parents=True, exist_ok=True)
        path.chmod(PRIVATE_FOLDER)


def read_config(path: Path) -> dict[str, Any]:
    """Return what `store.json` says.

    Raises InvalidInput if it is not there, or has another format; StoreDamaged if it is not what
    was written.
    """
    if not (path / CONFIG).is_file():
        raise InvalidInput(f"There is no store at {path}.")
    try:
        with guarded(path / CONFIG):
            config = dict(json.loads((path / CONFIG).read_bytes()))
        form, check = config["format"], config.pop("check")
    except (ValueError, KeyError, TypeError, RecursionError):
        form, check, config = FORMAT, None, {}
    _checks.file_format(path / CONFIG, form, FORMAT)
    texts = all(isinstance(config.get(name), str) for name in ("id", "ledger", "witness"))
    whole = texts and isinstance(config.get("backup"), bool)
    if not whole or re.fullmatch("[0-9a-f]{32}", config["id"]) is None or check != check_of(config):
        raise StoreDamaged(f"{path / CONFIG} is damaged. Restore a backup.")
    return config


def write_config(path: Path, identity: str, ledger: str, witness: str, *, backup: bool) -> None:
    """Write `store.json`."""
    config = {
        "format": FORMAT, "id": identity, "ledger": ledger, "witness": witness, "backup": backup,
    }  # fmt: skip
    config["check"] = check_of(config)
    replace_file(path / CONFIG, json.dumps(config, indent=2).encode())


def check_of(config: dict[str, Any]) -> str:
    """Return a digest of all fields, which tells a flipped bit from an operator's decision."""
    return hashlib.sha256(json.dumps(config, sort_keys=True).encode()).hexdigest()


def copy_file(source: Path, target: Path) -> None:
    """Copy a file of a store, durably."""
    with guarded(source), guarded(target), source.open("rb") as old:
        descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, PRIVATE_FILE)
        with os.fdopen(descriptor, "wb") as new:
            while chunk := old.read(1 << 24):
                new.write(chunk)
            new.flush()
            os.fsync(new.fileno())


def _checked_url(ledger: str) -> str:
    if ledger == _SQLITE:
        return ledger
    if not ledger.startswith(("postgresql://", "postgres://")):
        raise InvalidInput("The 'ledger' parameter must be 'sqlite' or a postgresql:// URL.")
    plain = unquote(ledger)
    user = plain.split("://", 1)[1].split("/", 1)[0].rpartition("@")[0]
    if ":" in user or "password=" in plain:
        raise InvalidInput(
            "The 'ledger' URL must hold no password, as it is written to disk. Give it through "
            "PGPASSWORD or ~/.pgpass."
        )
    return ledger
