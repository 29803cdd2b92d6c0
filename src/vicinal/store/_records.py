"""Records that are about to be added: checked as a whole, with ids or without, once for a key.

What is kept of a request with a key is a keyed digest of its records, which only tells whether
another request is the same. An erasure forgets all of them, as one could confirm a guess of who was
erased; the keys themselves stay used, so that a late repetition cannot bring anybody back.
"""

import hashlib
from collections.abc import Iterable, Iterator, Set
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy.typing as npt

from vicinal._arrays import FloatMatrix, Ints32
from vicinal._checks import SubjectId
from vicinal.engine import PreparedRecords
from vicinal.errors import IdsAlike, KeyReused
from vicinal.ledger import (
    Database,
    Enrollment,
    ForkSafeLock,
    Ledger,
    Tables,
    Turn,
    framed_all,
    request_name,
)
from vicinal.mechanisms import RecordTargets
from vicinal.neighbours import IntegerMatrix
from vicinal.predictors import checked_subjects
from vicinal.store._erasure import FORGOTTEN
from vicinal.store._opening import OpenStore
from vicinal.store._record_files import StagingEndedError, put_digests, tiles_from
from vicinal.store._store_schema import StoreSchema

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

    @property
    def labels(self) -> Ints32:
        return self.rows[:, 0]

    def without(self, schema: StoreSchema, subjects: Set[SubjectId]) -> Self:
        """Return those of everybody else; the same if none is of `subjects`."""
        ids = self.ids or []
        others = [place for place, who in enumerate(ids) if who not in subjects]
        if self.ids is None or len(others) == len(ids):
            return self
        integers, rows = self.integers[others], self.rows[others]
        return type(self)(integers, schema.target.of_rows(rows), rows, [ids[at] for at in others])

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


ATTEMPTS = 3
"""How often an addition is prepared beside answers; then it takes the turn, and they wait."""

_NUMBERS = 1 << 12
"""Numbers that are tried at a time."""


@dataclass(frozen=True, slots=True, eq=False)
class PreparedAddition:
    """Records that are about to be added to a store, and all that is written of them; private.

    - `records`: the records; their subjects are in `enrollment`.
    - `enrollment`, `prepared`: what the register and the shard will be.
    - `token`: of the records in the files, see :meth:`RecordFiles.stage`.
    - `size`: number of records with them.
    - `digests`: part, number and digest of the tiles of the files that they are in.
    - `next_number`: the number after those of new subjects without ids.
    """

    records: StoredRecords
    enrollment: Enrollment
    prepared: PreparedRecords
    token: object
    size: int
    digests: list[tuple[str, int, bytes]]
    next_number: int | None

    def commit(self, parts: OpenStore) -> None:
        """Make the records current, inside a change of the ledger.

        Raises PrivacyRefused or StagingEndedError if the register or the files have changed since.
        """
        if self.next_number is not None:
            parts.database.put(NEXT_NUMBER, str(self.next_number))
        parts.ledger.admit(self.enrollment)
        parts.record_files.settle(self.token)
        parts.shard.admit(self.prepared)
        put_digests(parts.database, self.size, self.digests)

    def is_current(self, parts: OpenStore) -> bool:
        """Tell whether nothing has changed since that it follows from. Asked in one's turn."""
        same = self.enrollment.basis == parts.ledger.register_version
        return same and parts.record_files.is_staged(self.token)


def prepare_addition(
    parts: OpenStore, records: StoredRecords, turn: Turn = nullcontext, basis: int | None = None
) -> PreparedAddition:
    """Prepare records to be added, without ids each as a new subject; nothing changes for answers.

    `basis` is the register's version that it is prepared for; by default the present one. Raises
    StagingEndedError if the data were changed since. Then, and if it is not committed,
    :meth:`RecordFiles.drop_staged` has to follow.
    """
    with turn():
        before, now = len(parts.shard), parts.ledger.register_version
        basis = now if basis is None else basis
    if basis != now:
        raise StagingEndedError
    subjects, next_number = records.ids, None
    if subjects is None:
        subjects, next_number = _new_numbers(parts, len(records), turn)
    enrollment = parts.ledger.enrollment_of(subjects, turn)
    with turn():
        if parts.ledger.register_version != basis or enrollment.basis != basis:
            raise StagingEndedError
        token = parts.record_files.begin_staging(before)
    slots, size = enrollment.slots, before + len(records)
    parts.record_files.stage(token, records.integers, records.rows, slots)
    prepared = parts.shard.prepared(
        records.integers, records.targets, slots, enrollment.slot_table.size
    )
    digests = parts.record_files.staged_digests(token, size, tiles_from(before, size))
    with turn():
        parts.database.shorten_log()
    return PreparedAddition(records, enrollment, prepared, token, size, digests, next_number)


def add_records(parts: OpenStore, records: StoredRecords) -> None:
    """Add records durably in one's turn; without ids each is a new subject."""
    prepared = prepare_addition(parts, records)
    with parts.ledger.change("add"):
        write_naming(parts.database, by_holder=records.ids is not None)
        prepared.commit(parts)


class AdditionTurns:
    """Lets one addition be prepared at a time, and knows who was erased meanwhile.

    Whoever is erased while a batch is under way is not added by it: an erasure covers everything
    that was handed in before.
    """

    def __init__(self) -> None:
        self._lock = ForkSafeLock()
        self._erased: set[SubjectId] = set()
        self._was_erasure = False

    @contextmanager
    def one(self) -> Iterator[None]:
        """Let the body prepare and commit an addition."""
        with self._lock:
            self._erased, self._was_erasure = set(), False
            yield

    def note_erased(self, subjects: Iterable[SubjectId]) -> None:
        self._erased |= set(subjects)
        self._was_erasure = True

    def left_of(self, schema: StoreSchema, records: StoredRecords) -> StoredRecords:
        return records.without(schema, self._erased) if self._erased else records

    def named(self, addition: Addition | None) -> Addition | None:
        """Return what is kept of a request's key: after an erasure not what the records were."""
        if addition is None or not self._was_erasure:
            return addition
        return replace(addition, body=FORGOTTEN)


def _new_numbers(parts: OpenStore, size: int, turn: Turn) -> tuple[list[SubjectId], int]:
    """Return ids for new subjects: the next numbers that nobody has, or had; and the one after."""
    with turn():
        number = int(parts.database.get(NEXT_NUMBER) or 0)
    numbers: list[SubjectId] = []
    while len(numbers) < size:
        tried = range(number, number + min(_NUMBERS, size - len(numbers)))
        standings = parts.ledger.standings(tried, turn)
        numbers += [one for one, known in zip(tried, standings, strict=True) if not known]
        number = tried.stop
    return numbers, number
