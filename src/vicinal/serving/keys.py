"""API keys: who may ask what, in a file of the store's folder that holds no key, only digests.

A key is 256 random bits, so that nobody can guess it and a plain SHA-256 digest gives nothing
away; a slow hash would only help weak secrets, and would let anybody keep the service busy by
sending wrong ones. Keys are added and revoked while the service runs.
"""

import hashlib
import hmac
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from vicinal import checks
from vicinal.distributed.folders import is_cluster
from vicinal.errors import InvalidInput, OtherFormat, PrivacyRefused, StorageFailed
from vicinal.ledger.files import PRIVATE_FILE, translate_os_errors
from vicinal.ledger.sealed_files import read_sealed, write_sealed
from vicinal.mechanisms.noise_sources import fresh_key
from vicinal.store.requests import checked_name

ANALYST, CURATOR, MONITOR = "analyst", "curator", "monitor"
ROLES = (ANALYST, CURATOR, MONITOR)
_FORMAT = 1
_ID_BYTES, _SECRET_BYTES = 8, 32
_LENGTH = len("vic_") + 2 * _ID_BYTES + 1 + 2 * _SECRET_BYTES


@dataclass(frozen=True, slots=True)
class ApiKey:
    """What is known of a key once its holder has it; the holder chooses none of it."""

    id: str  # the part of the key that names it, 16 hexadecimal digits; no secret
    name: str  # whose quota it uses; an analyst may have several keys
    role: str  # analysts ask, monitors read metrics, curators do both, add records and erase
    audience: str  # whose budgets it spends
    digest: str  # SHA-256 of the whole key, in hexadecimal digits
    created: str  # UTC
    revoked: str | None = None


class KeyFile:
    """The file `keys.json` in the folder of a store."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "keys.json"
        self._lock = folder / "keys.lock"
        if not (folder / "store.json").is_file() and not is_cluster(folder):
            raise InvalidInput(f"There is no store at {folder}.")

    def all(self) -> list[ApiKey]:
        """Return all keys, revoked ones too.

        StorageFailed if the file is damaged or has another format: then nobody is let in.
        """
        if not self.path.exists():
            return []
        try:
            entries = read_sealed(self.path, _FORMAT, {"keys": list}, "There are no keys.")["keys"]
            return [ApiKey(**entry) for entry in entries]
        except OtherFormat as error:  # whoever calls the service has done nothing wrong
            raise StorageFailed(str(error)) from None

    def add(self, name: str, role: str, audience: str) -> str:
        """Make a key and return it. It is nowhere kept, so this is the only time it is seen.

        PrivacyRefused if the same name ever had a key of another audience: audiences are assumed
        not to share answers, and one who is in both shares them with themselves.
        """
        name = checked_name("name", name)
        checks.check_choice("role", role, ROLES)
        audience = checked_name("audience", audience)
        with self._changing() as keys:
            if any(key.name == name and key.audience != audience for key in keys):
                raise PrivacyRefused(
                    f"{name!r} has, or had, a key of another audience. Whoever sees the answers "
                    "to two audiences breaks the assumption that both guarantees rest on."
                )
            key_id, secret = fresh_key(_ID_BYTES).hex(), fresh_key(_SECRET_BYTES).hex()
            token = f"vic_{key_id}_{secret}"
            keys.append(ApiKey(key_id, name, role, audience, _digest(token), _now()))
        return token

    def revoke(self, key_id: str) -> None:
        """Let a key in no more; revoking twice does no harm."""
        with self._changing() as keys:
            places = [i for i, key in enumerate(keys) if key.id == key_id]
            if not places:
                raise InvalidInput("The 'id' parameter must be the id of a key. See: keys list")
            key = keys[places[0]]
            keys[places[0]] = replace(key, revoked=key.revoked or _now())

    @contextmanager
    def _changing(self) -> Iterator[list[ApiKey]]:
        """Yield the keys; write what the body makes of them, one process at a time."""
        import fcntl

        with translate_os_errors(self._lock):
            descriptor = os.open(self._lock, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, PRIVATE_FILE)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            keys = self.all()
            yield keys
            write_sealed(self.path, _FORMAT, {"keys": [asdict(key) for key in keys]})
        finally:
            os.close(descriptor)


class KeyCache:
    """The keys that are let in, read again whenever the file has changed."""

    def __init__(self, file: KeyFile) -> None:
        self._file = file
        self._stamp: tuple[int, ...] | None = None
        self._keys: dict[str, ApiKey] = {}

    def find(self, token: str) -> ApiKey | None:
        """Return the key that `token` is, or None; a digest is always computed and compared."""
        stamp = self._stamp_of_file()
        if stamp != self._stamp:
            self._keys = {key.id: key for key in self._file.all() if key.revoked is None}
            self._stamp = stamp
        if len(token) != _LENGTH or not token.isascii():
            return None
        key = self._keys.get(token[4 : 4 + 2 * _ID_BYTES])
        expected = key.digest if key is not None else _NOBODY
        same = hmac.compare_digest(_digest(token), expected)
        return key if same else None

    def _stamp_of_file(self) -> tuple[int, ...]:
        try:
            status = self._file.path.stat()
        except FileNotFoundError:
            return ()
        return status.st_ino, status.st_mtime_ns, status.st_size


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


def _now() -> str:
    return datetime.now(UTC).isoformat("T", "seconds")


_NOBODY = "0" * 64
"""Compared with where there is no such key, so that both cases take the same path."""
