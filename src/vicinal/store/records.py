"""Additions of records: checked as a whole, with or without ids, once per idempotency key.

Of a request with a key the ledger keeps a keyed digest of its records, which only serves to
recognize a repetition. An erasure deletes all digests, because they could confirm a guess of an
erased record. The keys themselves stay used, so that a late repetition cannot add erased subjects
again.
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
from vicinal.ledger.id_encoding import frame_ids
from vicinal.ledger.ledger import Ledger
from vicinal.ledger.tables import Tables
from vicinal.mechanisms.subject_table import RecordTargets
from vicinal.neighbours.kernels import IntegerMatrix
from vicinal.predictors.inputs import checked_subjects
from vicinal.store.opening import OpenStore
from vicinal.store.record_files import note_added_slots, tiles_from, write_digests
from vicinal.store.store_schema import StoreSchema

NAMING = "subjects"
"""Name in the ledger's database of :data:`WITH_IDS` or :data:`WITHOUT_IDS`."""

WITH_IDS = "given"
"""Records came with subject ids."""

WITHOUT_IDS = "numbered"
"""Records came without subject ids: each got a number as its id."""

NEXT_NUMBER = "next_number"
"""Name in the ledger's database of the number that the next record without an id may get."""


def write_naming(database: Database, *, by_holder: bool) -> None:
    """Note inside a change of the ledger whether records came with ids (`by_holder`)."""
    database.put(NAMING, WITH_IDS if by_holder else WITHOUT_IDS)


def refuse_similar_ids(n_similar: int) -> None:
    """Raise IdsAlike unless `n_similar`, the number of new ids similar to other ones, is 0."""
    if n_similar:
        raise IdsAlike(
            f"Private: {n_similar} of the new ids differ from known ones, or from each other, by "
            "leading zeros, case, blanks or width only, as 007 differs from 7. The same people "
            "would get second budgets. Write their ids as they were written first; if they are "
            "other people, set the 'ids_differ' parameter. Nothing was changed."
        )


def came_with_ids(database: Database) -> bool:
    """Return whether the first records came with ids. Public."""
    return database.get(NAMING) == WITH_IDS


@dataclass(frozen=True, eq=False)
class StoredRecords:
    """Records in the form in which a store keeps them. Private.

    - `integers`, int8 or float32 (n, d): integer features.
    - `targets`, int32 (n,) or RecordVectors: class index or target vector of each record.
    - `rows`, int32 (n, w): the targets as rows of the record file.
    - `ids`: subject id of each record; None if each is a new subject.
    """

    integers: IntegerMatrix
    targets: RecordTargets
    rows: Ints32
    ids: list[SubjectId] | None

    @classmethod
    def from_features(
        cls, schema: StoreSchema, X: FloatMatrix, y: npt.ArrayLike, subjects: npt.ArrayLike | None
    ) -> Self:
        """Return records of checked features (n, d), labels and subjects.

        Raises InvalidInput if labels or subjects are unusable.
        """
        targets = schema.encode_targets(y, len(X))
        ids: list[Any] | None = None if subjects is None else checked_subjects(subjects, len(X))
        frame_ids(ids or ())  # raises InvalidInput for an id that is too long
        integers = schema.kernel_of(None).encode(X)
        return cls(integers, targets, schema.target.encode_rows(targets), ids)

    def __len__(self) -> int:
        return len(self.rows)


_NO_AUDIENCE = ""
"""Stands for the audience in the name of an addition. No audience has an empty name, so no key of
a request for answers has the same digest."""


@dataclass(frozen=True, slots=True)
class Addition:
    """A request to add records, with an idempotency key.

    - `name`: digest of curator and key.
    - `body`: keyed digest of the records.
    """

    name: bytes
    body: bytes

    @classmethod
    def from_records(cls, ledger: Ledger, curator: str, key: str, records: StoredRecords) -> Self:
        """Return the request of a curator to add these records under an idempotency key."""
        subjects = b"everyone new" if records.ids is None else b"".join(frame_ids(records.ids))
        content = hashlib.sha256(str(records.integers.shape).encode())
        for column in (records.integers.tobytes(), records.rows.tobytes(), subjects):
            content.update(column)
        name = digest_request(_NO_AUDIENCE, curator, key)
        return cls(name, ledger.keyed_digest(content.digest()))

    def find_version(self, database: Database) -> int | None:
        """Return the data version that this request made earlier; None if it is new.

        Raises KeyReused if the key was used for other records, or subjects were erased since.
        """
        rows = database.read("SELECT body, version FROM additions WHERE name = ?", (self.name,))
        if not rows:
            return None
        body, version = rows[0]
        if body != self.body:
            raise KeyReused(
                "The 'idempotency_key' parameter must be new for new records. It was used for "
                "others, or somebody was erased since; the history tells when records were added."
            )
        return int(version)

    def write(self, database: Database, version: int) -> None:
        """Write the request and its data version, in the transaction that adds the records."""
        database.insert(Tables.ADDITIONS, [(self.name, self.body, version)])


def add_records(store: OpenStore, records: StoredRecords) -> None:
    """Add records inside a change of the ledger; without ids each is a new subject.

    The files get the records before the commit, beyond the number of rows that counts until then.
    """
    old_size = len(store.shard)
    new_size = old_size + len(records)
    ids = _assign_numbers(store, len(records)) if records.ids is None else records.ids
    slots = store.shard.add(records.integers, records.targets, ids)
    store.record_files.append(old_size, records.integers, records.rows, slots)
    note_added_slots(store.database, slots)
    write_digests(store.database, store.record_files, new_size, tiles_from(old_size, new_size))


def find_unused_numbers(
    first: int, size: int, list_standings: Callable[[Sequence[SubjectId]], Iterable[int]]
) -> list[SubjectId]:
    """Return `size` numbers from `first` on that no subject has, or had before an erasure.

    `list_standings`: returns the standing of each id, 0 for an unknown one.
    """
    numbers: list[SubjectId] = []
    while len(numbers) < size:
        candidates = range(first, first + size - len(numbers))
        standings = list_standings(candidates)
        numbers += [
            number for number, standing in zip(candidates, standings, strict=True) if not standing
        ]
        first = candidates.stop
    return numbers


def _assign_numbers(store: OpenStore, size: int) -> list[SubjectId]:
    """Return `size` unused numbers as ids of new subjects, inside a change of the ledger."""
    first = int(store.database.get(NEXT_NUMBER) or 0)
    numbers = find_unused_numbers(first, size, store.ledger.find_statuses)
    store.database.put(NEXT_NUMBER, str(int(numbers[-1]) + 1 if numbers else first))
    return numbers
