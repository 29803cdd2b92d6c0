"""Signed receipts that subjects were erased, at one link of the chain of commits.

A receipt is a JSON object. It has no ids, but keyed digests of them, which can only be computed
with the store's key. It has the number and the hash of the last commit, so a store that continues
from there can be distinguished from any other store. Signatures are Ed25519 (RFC 8032) over the
receipt's canonical JSON.

Everywhere in this module `subjects` are ids, `store` is open, and a receipt or its `content`
(without the signature) is a mapping of fields by name.
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
from vicinal.ledger.database import has_commit
from vicinal.ledger.files import create_file, translate_os_errors
from vicinal.ledger.ledger import EnrollmentStatus
from vicinal.store.opening import OpenStore

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

_FORMAT = 1  # version of the format of receipts

_DOMAIN = b"vicinal receipt\x01"
"""Precedes every signed message, so that no signature of a receipt is valid for other data."""

_SIGNATURE = "signature"  # field of the signature, which is not part of the signed message
_FIELD_PRIME = 2**255 - 19  # prime of the field of the curve (RFC 8032, section 5.1)

_Y_OF_ORDER_8 = 2707385501144840649318225287225658788936804267575313519463743609750303402022
"""The y coordinate of two points of order 8 on the curve."""

_Y_OF_SMALL_ORDER = {0, 1, _Y_OF_ORDER_8, _FIELD_PRIME - _Y_OF_ORDER_8, _FIELD_PRIME - 1}
"""The y coordinates of the eight points of small order. As public keys they are refused, because
one signature is valid for many messages under them."""

_REQUIRED_FIELDS = {"format", "kind", "public_key", _SIGNATURE}  # fields of every receipt


class SigningKey:
    """The private signing key of an installation, in a file that only its owner may read.

    `path`: the file of 32 bytes, which :meth:`create` writes. Raises InvalidInput if there is no
    key, or other users may read the file.
    """

    def __init__(self, path: Path) -> None:
        if not path.is_file():
            raise InvalidInput(f"There is no key at {path}. Make one with: vicinal receipt key")
        with translate_os_errors(path):
            mode = path.stat().st_mode
            with path.open("rb") as file:
                content = file.read(33)  # one byte more than a key has
        if mode & 0o077:
            raise InvalidInput(f"The key {path} may be read by others. Set its mode to 0600.")
        if len(content) != 32:
            raise InvalidInput(f"The file {path} is not a key: it must hold 32 bytes.")
        self._key = _load_ed25519().from_private_bytes(content)

    @classmethod
    def create(cls, path: Path) -> SigningKey:
        """Write a new key to the file `path`, which must not exist, and return it."""
        content = _load_ed25519().generate().private_bytes_raw()
        try:
            descriptor = create_file(path, os.O_WRONLY | os.O_EXCL)
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
    def public_key(self) -> str:
        """The public key in hexadecimal digits, for the verification of receipts."""
        return self._key.public_key().public_bytes_raw().hex()

    def sign(self, receipt: Mapping[str, Any]) -> dict[str, Any]:
        """Return `receipt` with the public key and the signature added."""
        content = {**receipt, "public_key": self.public_key}
        return {**content, _SIGNATURE: self._key.sign(_encode_message(content)).hex()}


def create_erasure_receipt(
    store: OpenStore, subjects: Sequence[SubjectId], key: SigningKey, *, models_kept: bool = False
) -> dict[str, Any]:
    """Return a receipt, signed with `key`, that `subjects` are erased from a store.

    `models_kept`: state in the receipt that the weights of private models were not changed. Raises
    PrivacyRefused if a subject is enrolled, or never was; InvalidInput without a subject.
    """
    ledger = store.ledger
    if not subjects:
        raise InvalidInput("The 'subject' option must be given: at least one id.")
    if not all(ledger.find_status(subject) == EnrollmentStatus.ERASED for subject in subjects):
        raise PrivacyRefused("Not all of these ids were erased from this store. Nothing is signed.")
    clock, head = ledger.last_commit
    receipt = {
        "format": _FORMAT,
        "kind": "erasure",
        "store": store.folder.identity,
        "clock": clock,
        "chain": head.hex(),
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "digests": sorted({ledger.hash_id(subject).hex() for subject in subjects}),
    }
    if models_kept:
        receipt["models"] = "kept"
    return key.sign(receipt)


def check_receipt(receipt: Any, public_key: str) -> dict[str, Any]:
    """Return the content of a receipt, after verifying that `public_key` signed it.

    `receipt`: parsed JSON of any type. `public_key`: in hexadecimal digits. Raises InvalidInput if
    `receipt` is no receipt, was changed, has another format, or was signed with another key; or if
    signatures under `public_key` can be forged.
    """
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    if not isinstance(receipt, dict) or not set(receipt) >= _REQUIRED_FIELDS:
        raise InvalidInput("The file holds no receipt.")
    content = {name: value for name, value in receipt.items() if name != _SIGNATURE}
    try:
        key = bytes.fromhex(public_key)
        verifier = Ed25519PublicKey.from_public_bytes(key)
        verifier.verify(bytes.fromhex(receipt[_SIGNATURE]), _encode_message(content))
    except (InvalidSignature, ValueError, TypeError):
        raise InvalidInput("The receipt was changed, or signed with another key.") from None
    # The y coordinate, without the sign bit of x, reduced in case the encoding is not canonical.
    if int.from_bytes(key, "little") % 2**255 % _FIELD_PRIME in _Y_OF_SMALL_ORDER:
        raise InvalidInput("Anybody can sign under this public key. Ask the signer for another.")
    if content["public_key"] != public_key.lower():
        raise InvalidInput("The receipt names another key than the one that signed it.")
    checks.check_file_format("The receipt", content["format"], _FORMAT)
    return content


def find_receipt_faults(
    store: OpenStore, receipt: Mapping[str, Any], subjects: Sequence[SubjectId]
) -> list[str]:
    """Return a sentence for each reason why a receipt is not valid for a store.

    `receipt`: verified by :func:`check_receipt`. `subjects`: those that it must cover, if any.
    """
    ledger = store.ledger
    if receipt["store"] != store.folder.identity:
        return ["The receipt belongs to another store."]
    faults = []
    if not has_commit(store.database, receipt["clock"], bytes.fromhex(receipt["chain"])):
        faults.append("The store does not continue the one that the receipt was written for.")
    digests = set(receipt.get("digests", ()))
    if digests and any(
        ledger.hash_id(subject).hex() in digests for subject, _ in ledger.slot_table.iterate_slots()
    ):
        faults.append("A subject that the receipt covers is in the store again.")
    if any(ledger.hash_id(subject).hex() not in digests for subject in subjects):
        faults.append("The receipt does not cover all of these ids.")
    return faults


def _encode_message(content: Mapping[str, Any]) -> bytes:
    """Return the bytes that are signed for a content: :data:`_DOMAIN`, then canonical JSON."""
    return _DOMAIN + json.dumps(content, sort_keys=True, separators=(",", ":")).encode()


def _load_ed25519() -> type[Ed25519PrivateKey]:
    """Return the class of private keys; raise InvalidInput if its package is not installed."""
    try:
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    except ImportError:
        raise InvalidInput(
            "Receipts need the package cryptography: pip install 'vicinal[receipts]'."
        ) from None
    return Ed25519PrivateKey
