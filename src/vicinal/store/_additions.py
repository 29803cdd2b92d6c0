"""Adding people while answers go on: prepared beside them, current after one short commit.

All that takes long is done without the turn of the store: looking up ids, giving them slots,
writing records beyond the end of the files, digesting them, copying what memory holds of all
records. It changes nothing that an answer follows from. What is prepared holds for one state of the
register; if that has changed since, by an erasure say, it is thrown away and prepared anew.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace

from vicinal._checks import SubjectId
from vicinal.engine import PreparedRecords
from vicinal.ledger import Enrollment, ForkSafeLock, Turn
from vicinal.store._checksums import put_digests
from vicinal.store._opening import OpenStore
from vicinal.store._record_files import StagingEndedError, tiles_from
from vicinal.store._records import FORGOTTEN, NEXT_NUMBER, Addition, StoredRecords, write_naming
from vicinal.store._store_schema import StoreSchema

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
        """Take note of an erasure that was decided."""
        self._erased |= set(subjects)
        self._was_erasure = True

    def left_of(self, schema: StoreSchema, records: StoredRecords) -> StoredRecords:
        """Return the records of those who were not erased meanwhile."""
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
