"""Records that are about to be added: checked as a whole, with ids or without, once for a key.

What is kept of a request with a key is a keyed digest of its records, which only tells whether
another request is the same. An erasure forgets all of them, as one could confirm a guess of who was
erased; the keys themselves stay used, so that a late repetition cannot bring anybody back.
"""

import hashlib
from dataclasses import dataclass
from typing import Any, Self

import numpy.typing as npt

from vicinal.arrays import FloatMatrix, Ints32
from vicinal.checks import SubjectId
from vicinal.errors import IdsAlike, KeyReused
from vicinal.ledger.answers import request_name
from vicinal.ledger.database import Database
from vicinal.ledger.id_encoding import framed_all
from vicinal.ledger.ledger import Ledger
from vicinal.ledger.tables import Tables
from vicinal.mechanisms.subject_table import RecordTargets
from vicinal.neighbours.kernels import IntegerMatrix
from vicinal.predictors.inputs import checked_subjects
from vicinal.store.opening import OpenStore
from vicinal.store.record_files import note_added_slots, tiles_from, write_digests
from vicinal.store.store_schema import StoreSchema

NAMING = "subjects"
"""Fact of a ledger: :data:`GIVEN` or :data:`NUMBERED`."""

GIVEN, NUMBERED = "given", "numbered"
NEXT_NUMBER = "next_number"
"""Fact of a ledger: the number that the next record without an id may get."""


def write_naming(database: Database, *, by_holder: bool) -> None:
    """Note, inside a change, whether records came with ids."""
    database.put(NAMING, GIVEN if by_holder else NUMBERED)


def refuse_alike(n_alike: int) -> None:
    """Raise IdsAlike if so many new ids differ so little that they may be the same people's."""
    if n_alike:
        raise IdsAlike(
            f"Private: {n_alike} of the new ids differ from known ones, or from each other, by "
            "leading zeros, case, blanks or width only, as 007 differs from 7. The same people "
            "would get second budgets. Write their ids as they were written first; if they are "
            "other people, set the 'ids_differ' parameter. Nothing was changed."
        )


def came_with_ids(database: Database) -> bool:
    """Tell whether the first records came with ids. Public."""
    return database.get(NAMING) == GIVEN


@dataclass(frozen=True, eq=False)
class StoredRecords:
    """Records as the store keeps them.

    - `integers`, int8 or float32 (n, d): integer features.
    - `targets`, int32 (n,) or RecordVectors: what each carries: its class index, or its vector.
    - `rows`, int32 (n, w): the same, as the file holds it.
    - `ids`: whose each is; None if everyone is new.
    """

    integers: IntegerMatrix
    targets: RecordTargets
    rows: Ints32
    ids: list[SubjectId] | None

    @classmethod
    def of(
        cls, schema: StoreSchema, X: FloatMatrix, y: npt.ArrayLike, subjects: npt.ArrayLike | None
    ) -> Self:
        """Return records of checked features (n, d), labels and subjects.

        Raises InvalidInput if labels or subjects are unusable.
        """
        targets = schema.targets(y, len(X))
        ids: list[Any] | None = None if subjects is None else checked_subjects(subjects, len(X))
        framed_all(ids or ())  # raises InvalidInput for one that is too long
        integers = schema.kernel_of(None).encode(X)
        return cls(integers, targets, schema.target.rows(targets), ids)

    def __len__(self) -> int:
        return len(self.rows)


_NO_AUDIENCE = ""


@dataclass(frozen=True, slots=True)
class Addition:
    """A request to add records, with an idempotency key.

    `name`, `body`: digest of curator and key; keyed digest of the records.
    """

    name: bytes
    body: bytes

    @classmethod
    def of(cls, ledger: Ledger, curator: str, key: str, records: StoredRecords) -> Self:
        ids = records.ids
        people = b"everyone new" if ids is None else b"".join(framed_all(ids))
        content = hashlib.sha256(str(records.integers.shape).encode())
        for part in (records.integers.tobytes(), records.rows.tobytes(), people):
            content.update(part)
        # No audience has an empty name, so no key for answers has this digest.
        name = request_name(_NO_AUDIENCE, curator, key)
        return cls(name, ledger.keyed_digest(content.digest()))

    def done(self, database: Database) -> int | None:
        """Return the version of the data that it made; None if it is new.

        Raises KeyReused if the key was used for other records, or people were erased since.
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
        """Put it on record, in the transaction that adds the records."""
        database.insert(Tables.ADDITIONS, [(self.name, self.body, version)])


def add_records(parts: OpenStore, records: StoredRecords) -> None:
    """Add records, inside a change of the ledger; without ids each is a new subject.

    They are in the files before the commit, beyond the end of what counts until then.
    """
    before = len(parts.shard)
    size = before + len(records)
    ids = _new_numbers(parts, len(records)) if records.ids is None else records.ids
    slots = parts.shard.add(records.integers, records.targets, ids)
    parts.record_files.append(before, records.integers, records.rows, slots)
    note_added_slots(parts.database, slots)
    write_digests(parts.database, parts.record_files, size, tiles_from(before, size))


def _new_numbers(parts: OpenStore, size: int) -> list[SubjectId]:
    """Return ids for new subjects, in a change: the next numbers that nobody has, or had."""
    number = int(parts.database.get(NEXT_NUMBER) or 0)
    numbers: list[SubjectId] = []
    while len(numbers) < size:
        tried = range(number, number + size - len(numbers))
        standings = parts.ledger.standings(tried)
        numbers += [one for one, known in zip(tried, standings, strict=True) if not known]
        number = tried.stop
    parts.database.put(NEXT_NUMBER, str(number))
    return numbers
