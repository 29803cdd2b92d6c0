"""Signed receipts: that somebody was erased, at one link of the chain.

A receipt names no person: it holds the keyed digest of an id, which only the store's key can make
from the id. It holds the clock and the head of the chain, so a store that goes on from there can be
told from any other. Signatures are Ed25519 (RFC 8032) over the receipt's canonical JSON.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vicinal import checks
from vicinal.checks import SubjectId
from vicinal.errors import InvalidInput, PrivacyRefused
from vicinal.ledger.database import is_descendant
from vicinal.ledger.files import PRIVATE_FILE, translate_os_errors
from vicinal.ledger.ledger import Standing
from vicinal.store.opening import OpenStore

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

_FORMAT = 1
_DOMAIN = b"vicinal receipt\x01"
_SIGNATURE = "signature"
_MODULUS = 2**255 - 19
_OF_ORDER_8 = 2707385501144840649318225287225658788936804267575313519463743609750303402022
_OF_SMALL_ORDER = {0, 1, _OF_ORDER_8, _MODULUS - _OF_ORDER_8, _MODULUS - 1}
"""Second coordinates of the eight points under which one signature passes for many messages."""

_FIELDS = {"format", "kind", "public_key", _SIGNATURE}


class SigningKey:
    """The key of an installation, in a file that only its owner reads.

    `path`: the file: 32 bytes. :meth:`create` makes it. Raises InvalidInput if there is no key
    there, or others may read the file.
    """

    def __init__(self, path: Path) -> None:
        if not path.is_file():
            raise InvalidInput(f"There is no key at {path}. Make one with: vicinal receipt key")
        with translate_os_errors(path):
            mode, content = path.stat().st_mode, path.read_bytes()
        if mode & 0o077:
            raise InvalidInput(f"The key {path} may be read by others. Set its mode to 0600.")
        if len(content) != 32:
            raise InvalidInput(f"The file {path} is not a key: it must hold 32 bytes.")
        self._key = _ed25519().from_private_bytes(content)

    @classmethod
    def create(cls, path: Path) -> SigningKey:
        """Make a new key at `path`, which must be free, and return it."""
        content = _ed25519().generate().private_bytes_raw()
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, PRIVATE_FILE)
        except FileExistsError:
            raise InvalidInput(f"{path} exists. Keys are never overwritten.") from None
        except OSError as error:
            raise InvalidInput(f"{path} cannot be written: {error.strerror}.") from None
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        return cls(path)

    @property
    def public(self) -> str:
        """The public key in hexadecimal digits, for whoever verifies."""
        return self._key.public_key().public_bytes_raw().hex()

    def signed(self, receipt: Mapping[str, Any]) -> dict[str, Any]:
        content = {**receipt, "public_key": self.public}
        return {**content, _SIGNATURE: self._key.sign(_message(content)).hex()}


def erasure_receipt(
    parts: OpenStore, subjects: Sequence[SubjectId], key: SigningKey, *, models_kept: bool = False
) -> dict[str, Any]:
    """Return a signed receipt that subjects are erased from an open store.

    It says so where private models were trained before (`models_kept`): their weights stay.

    Raises PrivacyRefused if one of them is still there, or never was: then there is nothing to
    certify.
    """
    ledger = parts.ledger
    if not subjects:
        raise InvalidInput("The 'subject' option must be given: at least one id.")
    if not all(ledger.standing(subject) == Standing.ERASED for subject in subjects):
        raise PrivacyRefused("Not all of these ids were erased from this store. Nothing is signed.")
    clock, head = ledger.last_commit
    return key.signed({
        "format": _FORMAT,
        "kind": "erasure",
        "store": parts.folder.identity,
        "clock": clock,
        "chain": head.hex(),
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "digests": sorted({ledger.hash(subject).hex() for subject in subjects}),
        **({"models": "kept"} if models_kept else {}),
    })  # fmt: skip


def check_receipt(receipt: Any, public_key: str) -> dict[str, Any]:
    """Return a receipt whose signature is that of `public_key`.

    Raises InvalidInput if it is none, was changed, has another format, or another key signed it; or
    if that is a key under which anybody can sign.
    """
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    if not isinstance(receipt, dict) or not set(receipt) >= _FIELDS:
        raise InvalidInput("The file holds no receipt.")
    content = {name: value for name, value in receipt.items() if name != _SIGNATURE}
    try:
        key = bytes.fromhex(public_key)
        verifier = Ed25519PublicKey.from_public_bytes(key)
        verifier.verify(bytes.fromhex(receipt[_SIGNATURE]), _message(content))
    except (InvalidSignature, ValueError, TypeError):
        raise InvalidInput("The receipt was changed, or signed with another key.") from None
    # Without the bit of the sign, and also where it is not reduced.
    if int.from_bytes(key, "little") % 2**255 % _MODULUS in _OF_SMALL_ORDER:
        raise InvalidInput("Anybody can sign under this public key. Ask the signer for another.")
    if content["public_key"] != public_key.lower():
        raise InvalidInput("The receipt names another key than the one that signed it.")
    checks.file_format("The receipt", content["format"], _FORMAT)
    return content


def faults_of_receipt(
    parts: OpenStore, receipt: Mapping[str, Any], subjects: Sequence[SubjectId]
) -> list[str]:
    """Return in words why a checked receipt is not in force in an open store; empty if it is.

    `receipt`: as :func:`check_receipt` returned it. `subjects`: ids that it must be about; none to
    leave that open.
    """
    ledger = parts.ledger
    if receipt["store"] != parts.folder.identity:
        return ["The receipt belongs to another store."]
    faults = []
    if not is_descendant(parts.database, receipt["clock"], bytes.fromhex(receipt["chain"])):
        faults.append("The store does not continue the one that the receipt was written for.")
    digests = set(receipt.get("digests", ()))
    if digests and any(
        ledger.hash(subject).hex() in digests for subject, _ in ledger.slot_table.entries()
    ):
        faults.append("Somebody whom the receipt covers is in the store again.")
    if any(ledger.hash(subject).hex() not in digests for subject in subjects):
        faults.append("The receipt does not cover all of these ids.")
    return faults


def _message(content: Mapping[str, Any]) -> bytes:
    return _DOMAIN + json.dumps(content, sort_keys=True, separators=(",", ":")).encode()


def _ed25519() -> type[Ed25519PrivateKey]:
    try:
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    except ImportError:
        raise InvalidInput(
            "Receipts need the package cryptography: pip install 'vicinal[receipts]'."
        ) from None
    return Ed25519PrivateKey
