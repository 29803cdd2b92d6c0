"""Which shard a record goes to, and what ids records get that come without."""

from __future__ import annotations

from collections.abc import Callable

from vicinal._checks import SubjectId
from vicinal.distributed._cluster_changes import ADD, ClusterChange, ClusterChanges, places_of
from vicinal.distributed._splitting import place_by_hash
from vicinal.distributed._tasks import KnownSubjects
from vicinal.ledger._ledger import Ledger
from vicinal.store._idempotent_adds import Addition
from vicinal.store._naming import NEXT_NUMBER, write_naming
from vicinal.store._records import StoredRecords


class Routing:
    """Makes a change of records that come: everybody goes where they are known.

    Parameters
    ----------
    book : Ledger
        The coordinator's ledger.
    changes : ClusterChanges
        The way to all shards.
    shards : int
        How many there are.
    """

    def __init__(self, book: Ledger, changes: ClusterChanges, shards: int) -> None:
        self._book = book
        self._changes = changes
        self._shards = shards

    def adding(
        self, records: StoredRecords, addition: Addition | None
    ) -> Callable[[], ClusterChange]:
        """Ask all shards whom they know; return what makes the change, inside its transaction.

        Raises
        ------
        ShardMissing
            If a shard is missing: it may know somebody. Nothing is changed.
        """
        database, version = self._book.database, self._book.version + 1
        first = int(database.get(NEXT_NUMBER) or 0)
        people = self._numbers(first, len(records)) if records.ids is None else records.ids
        places = places_of(people, self._changes.every(KnownSubjects(people)), self._place)

        def made() -> ClusterChange:
            if addition is not None:
                addition.write(database, version)
            write_naming(database, given=records.ids is not None)
            if records.ids is None:
                database.put(NEXT_NUMBER, str(int(people[-1]) + 1))
            return ClusterChange(ADD, people, records.integers, records.labels, places)

        return made

    def _place(self, subject: SubjectId) -> int:
        return place_by_hash(self._book.hash(subject), self._shards)

    def _numbers(self, first: int, size: int) -> list[SubjectId]:
        """Return ids for new subjects: the next numbers that nobody has, or had, on any shard."""
        numbers: list[SubjectId] = []
        while len(numbers) < size:
            asked: list[SubjectId] = list(range(first, first + size - len(numbers)))
            known = self._changes.every(KnownSubjects(asked)).values()
            numbers += [
                number for number, *found in zip(asked, *known, strict=True) if not any(found)
            ]
            first += len(asked)
        return numbers
