"""Additions of records: checked as a whole, with or without ids, once per idempotency key.

For a request with a key the ledger stores a keyed digest of its records, by which a repetition is
recognized. An erasure deletes all digests, because they could confirm a guess of an erased record.
The keys themselves stay used, so that a late repetition cannot add erased subjects again.
"""

import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy.typing as npt

from vicinal.arrays import FloatMatrix, Ints32
from vicinal.checks import SubjectId
from vicinal.errors import IdsAlike, KeyReused
from vicinal.ledger.answers import digest_request
from vicinal.ledger.database import Database
from vicinal.ledger.id_encoding import SPELLING, frame_ids
from vicinal.ledger.ledger import Ledger
from vicinal.ledger.tables import Tables
from vicinal.mechanisms.subject_table import RecordTargets
from vicinal.neighbours.kernels import IntegerMatrix
from vicinal.predictors.inputs import read_subject_list
from vicinal.store.opening import OpenStore
from vicinal.store.record_files import list_tiles, update_slot_checksum, write_size_and_digests
from vicinal.store.store_schema import StoreSchema

ID_MODE = "subjects"
"""Name in the ledger's database of the mode of ids: :data:`_GIVEN_IDS` or "numbered"."""

_GIVEN_IDS = "given"  # mode of ids if records came with them; else each record got a number

NEXT_NUMBER = "next_number"
"""Name in the ledger's database of the smallest number for the next record without an id."""


def write_id_mode(database: Database, *, has_ids: bool) -> None:
    """Write whether records came with ids (`has_ids`), within a transaction of the ledger."""
    database.put(ID_MODE, _GIVEN_IDS if has_ids else "numbered")


def refuse_similar_ids(n_similar: int) -> None:
    """Raise IdsAlike unless `n_similar`, the number of new ids that resemble another id, is 0.

    Similar ids differ in spelling only, as "007" and 7.
    """
    if n_similar:
        raise IdsAlike(
            f"Private: {n_similar} of the new ids differ from known ones, or from each other, in "
            f"{SPELLING}, as 007 differs from 7. The same people would get second budgets. Write "
            "their ids as they were written first; if they are other people, set the 'ids_differ' "
            "parameter. Nothing was changed."
        )


def has_subject_ids(database: Database) -> bool:
    """Return whether the first records of a store came with subject ids. Public."""
    return database.get(ID_MODE) == _GIVEN_IDS


@dataclass(frozen=True, eq=False)
class StoredRecords:
    """Records as a store keeps them: encoded features and targets, with subject ids. Private.

    - `integers`, int8 or float32 (n, width): integer features.
    - `targets`, int32 (n,) or RecordVectors: class index or target vector of each record.
    - `target_rows`, int32 (n, w): the targets as rows of the record file "labels".
    - `ids`: subject id of each record; None if each record is a new subject.
    """

    integers: IntegerMatrix
    targets: RecordTargets
    target_rows: Ints32
    ids: list[SubjectId] | None

    @classmethod
    def from_features(
        cls, schema: StoreSchema, X: FloatMatrix, y: npt.ArrayLike, subjects: npt.ArrayLike | None
    ) -> Self:
        """Return the encoded records of a store with this `schema`.

        `X` (n, d): checked features. `y` (n,), or (n, p) for numbers: targets as the curator gave
        them. `subjects` (n,): ids, or None if each record is a new subject. Raises InvalidInput if
        targets or ids are unusable.
        """
        targets = schema.target.encode(y, len(X))
        ids: list[Any] | None = None if subjects is None else read_subject_list(subjects, len(X))
        frame_ids(ids or ())  # raises InvalidInput for an id that is too long
        integers = schema.create_kernel().encode(X)
        return cls(integers, targets, schema.target.encode_rows(targets), ids)

    def __len__(self) -> int:
        return len(self.target_rows)


_NO_AUDIENCE = ""
"""The audience in the digest of the key of an addition. No audience has an empty name, so no key of
a request for answers has the same digest."""


@dataclass(frozen=True, slots=True)
class Addition:
    """A request to add records, with an idempotency key.

    - `key_digest`: digest of curator and idempotency key, which identifies the request.
    - `records_digest`: keyed digest of the records, targets and subject ids.
    """

    key_digest: bytes
    records_digest: bytes

    @classmethod
    def from_records(cls, ledger: Ledger, curator: str, key: str, records: StoredRecords) -> Self:
        """Return the request of a curator to add `records` under the idempotency key `key`.

        `ledger`: has the secret key of the digest. `curator`, `key`: normalized texts.
        """
        subjects = b"everyone new" if records.ids is None else b"".join(frame_ids(records.ids))
        content = hashlib.sha256(str(records.integers.shape).encode())
        for column in (records.integers.tobytes(), records.target_rows.tobytes(), subjects):
            content.update(column)
        key_digest = digest_request(_NO_AUDIENCE, curator, key)
        return cls(key_digest, ledger.keyed_digest(content.digest()))

    def find_data_version(self, database: Database) -> int | None:
        """Return the data version that the same request created earlier; None if it is new.

        `database`: the ledger's. Raises KeyReused if the key was used for other records, or
        subjects were erased since.
        """
        rows = database.read(
            "SELECT body, version FROM additions WHERE name = ?", (self.key_digest,)
        )
        if not rows:
            return None
        records_digest, version = rows[0]
        if records_digest != self.records_digest:
            raise KeyReused(
                "The 'idempotency_key' parameter must be new for new records. It was used for "
                "others, or subjects were erased since; the history tells when records were added."
            )
        return int(version)

    def write(self, database: Database, version: int) -> None:
        """Write the request into the ledger's database, within the transaction of the addition.

        `version`: the data version that the addition creates.
        """
        database.insert(Tables.ADDITIONS, [(self.key_digest, self.records_digest, version)])


def add_records(store: OpenStore, records: StoredRecords) -> None:
    """Add records to the index and the record files; if they have no ids, each is a new subject.

    Call it within a ledger transaction. The record files are appended before the commit; readers
    ignore the new rows until the commit raises the number of valid rows.
    """
    old_size = len(store.shard)
    new_size = old_size + len(records)
    ids = _assign_subject_ids(store, len(records)) if records.ids is None else records.ids
    slots = store.shard.add(records.integers, records.targets, ids)
    store.record_files.append(old_size, records.integers, records.target_rows, slots)
    update_slot_checksum(store.database, slots)
    changed_tiles = list_tiles(new_size, start=old_size)
    write_size_and_digests(store.database, store.record_files, new_size, changed_tiles)


def find_unused_numbers(
    first: int, n_numbers: int, get_statuses: Callable[[Sequence[SubjectId]], Iterable[int]]
) -> list[SubjectId]:
    """Return the next `n_numbers` from `first` on that no subject has, or had before an erasure.

    `get_statuses`: returns the enrollment status of each id: 0 for an unknown id, another number
    for a subject that is enrolled, erased or was evaluated.
    """
    numbers: list[SubjectId] = []
    while len(numbers) < n_numbers:
        candidates = range(first, first + n_numbers - len(numbers))
        statuses = get_statuses(candidates)
        numbers += [
            number for number, status in zip(candidates, statuses, strict=True) if not status
        ]
        first = candidates.stop
    return numbers


def _assign_subject_ids(store: OpenStore, n_subjects: int) -> list[SubjectId]:
    """Return unused numbers as ids of `n_subjects` new subjects, within a ledger transaction."""
    first = int(store.database.get(NEXT_NUMBER) or 0)
    numbers = find_unused_numbers(first, n_subjects, store.ledger.find_statuses)
    store.database.put(NEXT_NUMBER, str(int(numbers[-1]) + 1 if numbers else first))
    return numbers
