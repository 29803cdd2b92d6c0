"""Where every subject of a store goes, in columns: no object for each of them outlives its page."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from vicinal._arrays import Ints, Ints16, Slots
from vicinal._checks import SubjectId
from vicinal.ledger._database import Database
from vicinal.ledger._id_encoding import unframed

FREE = -1
"""In place of a shard, for slots that nobody has."""


@dataclass(frozen=True, slots=True, eq=False)
class PlacedSubjects:
    """The subjects of a ledger by the shard that they go to. Private.

    - `shards`, int16 (slots,): the shard of every slot, or :data:`FREE`.
    - `new_slots`, int32 (slots,): the slot that a subject gets on its shard.
    - `ids`: by shard: framed ids in the order of the new slots, one after the other.
    """

    shards: Ints16
    new_slots: Slots
    ids: list[bytearray]

    @classmethod
    def of(
        cls, database: Database, size: int, n_shards: int, place: Callable[[SubjectId], int]
    ) -> PlacedSubjects:
        """Return the subjects at the `size` slots of a ledger; `place` returns a shard for each."""
        placed = cls(
            np.full(size, FREE, dtype=np.int16),
            np.zeros(size, dtype=np.int32),
            [bytearray() for _ in range(n_shards)],
        )
        counts = np.zeros(n_shards, dtype=np.int64)
        for slots, ids in _pages(database):
            chosen = np.fromiter((place(unframed(one)) for one in ids), np.int16, len(ids))
            placed.shards[slots] = chosen
            for shard in np.unique(chosen).tolist():
                here = np.flatnonzero(chosen == shard)
                placed.ids[shard] += b"".join([ids[one] for one in here.tolist()])
                placed.new_slots[slots[here]] = counts[shard] + np.arange(len(here))
                counts[shard] += len(here)
        return placed

    def slots(self, shard: int) -> Ints:
        """Return the earlier slots of the subjects of a shard, by their new ones."""
        here = np.flatnonzero(self.shards == shard)
        earlier = np.empty(len(here), dtype=np.int64)
        earlier[self.new_slots[here]] = here
        return earlier


def _pages(database: Database) -> Iterator[tuple[Slots, list[bytes]]]:
    """Yield slots and framed ids, some hundred at a time."""
    for rows in database.scan("subject_pages"):
        for _, _, slots, ids in rows:
            framed = [one + b">" for one in ids.split(b">")[:-1]]
            yield np.frombuffer(slots, dtype="<i4"), framed
