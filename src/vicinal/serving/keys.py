"""API keys, stored as digests in a file of the store's folder.

The secret of a key has 256 random bits, so its plain SHA-256 digest reveals nothing. A slow hash
would help only weak secrets, and wrong keys could then overload the service. Keys can be added and
revoked while the service runs.
"""

import hashlib
import hmac
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from vicinal import checks
from vicinal.distributed.folders import is_cluster
from vicinal.errors import InvalidInput, OtherFormat, PrivacyRefused, StorageFailed
from vicinal.ledger.files import create_file, translate_os_errors
from vicinal.ledger.sealed_files import read_sealed, write_sealed
from vicinal.mechanisms.noise_sources import fresh_key
from vicinal.store.requests import normalize_name

ANALYST = "analyst"
CURATOR = "curator"
MONITOR = "monitor"
ROLES = (ANALYST, CURATOR, MONITOR)
_FORMAT = 1
_ID_BYTES = 8
_SECRET_BYTES = 32
_TOKEN_LENGTH = len("vic_") + 2 * _ID_BYTES + 1 + 2 * _SECRET_BYTES
_DUMMY_DIGEST = "0" * 64
"""Compared with tokens of an unknown id, so that they take the same time as those of a known id."""


@dataclass(frozen=True, slots=True)
class ApiKey:
    """The stored entry of an API key, which does not contain its secret."""

    id: str  # public part of the token, 16 hexadecimal digits
    name: str  # holder of the quota that it uses; a holder may have several keys
    role: str  # analysts query, monitors read metrics, curators do both, add and erase records
    audience: str  # audience to which its queries are charged
    digest: str  # SHA-256 of the token, in hexadecimal digits
    created: str  # time in UTC
    revoked: str | None = None  # time in UTC


class KeyFile:
    """The file `keys.json` in the `folder` of a store; InvalidInput if there is no store."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "keys.json"
        self._lock = folder / "keys.lock"
        if not (folder / "store.json").is_file() and not is_cluster(folder):
            raise InvalidInput(f"There is no store at {folder}.")

    def load_keys(self) -> list[ApiKey]:
        """Return all keys, including revoked ones. Raises StorageFailed for a damaged file."""
        if not self.path.exists():
            return []
        try:
            entries = read_sealed(self.path, _FORMAT, {"keys": list}, "There are no keys.")["keys"]
            return [ApiKey(**entry) for entry in entries]
        except OtherFormat as error:  # not an error of the client
            raise StorageFailed(str(error)) from None

    def add(
        self, name: str, role: str, audience: str, show: Callable[[str], object] | None = None
    ) -> str:
        """Create a key and return its token, which is not stored and cannot be shown again.

        `name`, `role`, `audience`: as in :class:`ApiKey`. `show`: receives the token before the key
        becomes valid. If it raises, no key is added: a valid key that was never shown could only be
        revoked.

        Raises PrivacyRefused if the holder ever had a key of another audience: the guarantees
        assume that audiences do not share answers.
        """
        name = normalize_name("name", name)
        checks.check_choice("role", role, ROLES)
        audience = normalize_name("audience", audience)
        _refuse_second_audience(self.load_keys(), name, audience)
        key_id, secret = fresh_key(_ID_BYTES).hex(), fresh_key(_SECRET_BYTES).hex()
        token = f"vic_{key_id}_{secret}"
        if show is not None:
            show(token)  # outside the lock: a stalled terminal must not delay a revocation
        created = datetime.now(UTC).isoformat("T", "seconds")
        key = ApiKey(key_id, name, role, audience, _hash_token(token), created)
        with self._edit_keys() as keys:
            _refuse_second_audience(keys, name, audience)  # another process may have added a key
            keys.append(key)
        return token

    def revoke(self, key_id: str) -> None:
        """Revoke a key; a key that is revoked already keeps its time of revocation."""
        with self._edit_keys() as keys:
            index = next((i for i, key in enumerate(keys) if key.id == key_id), None)
            if index is None:
                raise InvalidInput("The 'id' parameter must be the id of a key. See: keys list")
            revoked = keys[index].revoked or datetime.now(UTC).isoformat("T", "seconds")
            keys[index] = replace(keys[index], revoked=revoked)

    @contextmanager
    def _edit_keys(self) -> Iterator[list[ApiKey]]:
        """Yield the list of keys and write it afterwards, under a lock between processes."""
        import fcntl

        with translate_os_errors(self._lock):
            owner = self.path.parent.stat().st_uid  # of the store, whose service reads the keys
            descriptor = create_file(self._lock, os.O_RDWR, owner=owner)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            keys = self.load_keys()
            yield keys
            fields = {"keys": [asdict(key) for key in keys]}
            write_sealed(self.path, _FORMAT, fields, owner=owner)
        finally:
            os.close(descriptor)


def _refuse_second_audience(keys: list[ApiKey], name: str, audience: str) -> None:
    """Raise PrivacyRefused if the holder `name` has any of `keys` for another audience."""
    if any(key.name == name and key.audience != audience for key in keys):
        raise PrivacyRefused(
            f"{name!r} has, or had, a key of another audience. Access to the answers of two "
            "audiences would violate an assumption of both guarantees."
        )


class KeyCache:
    """The valid keys, read again whenever the file has changed."""

    def __init__(self, file: KeyFile) -> None:
        self._file = file
        self._file_version: tuple[int, ...] | None = None
        self._keys: dict[str, ApiKey] = {}

    def find(self, token: str) -> ApiKey | None:
        """Return the key of a token, or None. The time does not reveal which ids exist."""
        file_version: tuple[int, ...] = ()
        with suppress(FileNotFoundError):
            status = self._file.path.stat()
            file_version = (status.st_ino, status.st_mtime_ns, status.st_size)
        if file_version != self._file_version:
            self._keys = {key.id: key for key in self._file.load_keys() if key.revoked is None}
            self._file_version = file_version
        if len(token) != _TOKEN_LENGTH or not token.isascii():
            return None
        key = self._keys.get(token[4 : 4 + 2 * _ID_BYTES])
        expected = key.digest if key is not None else _DUMMY_DIGEST
        is_equal = hmac.compare_digest(_hash_token(token), expected)
        return key if is_equal else None


def _hash_token(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()
