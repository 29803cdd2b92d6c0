"""What a shard has searched before it was asked to charge: neighbours, in memory, of one block.

Neighbours follow from queries, thresholds and records alone, never from budgets (proof note:
docs/decisions/0129-two-blocks-under-way.md). So they may be found while an earlier block is still
charged, and are the same; unless the records have changed since, which the version tells.
"""

from __future__ import annotations

from collections.abc import Iterator

from vicinal.distributed._messages import SearchAhead
from vicinal.neighbours import NeighbourLists
from vicinal.neighbours._index import MOST_HITS
from vicinal.predictors.ind_knn._shard import LocalShardBase


class SearchedBlock:
    """The neighbours of a block that is charged next; private, and gone with the process.

    `most`: hits after which no more are kept.
    """

    def __init__(self, most: int = MOST_HITS) -> None:
        self._most = most
        self._name: tuple[bytes, int] | None = None
        self._ready: list[NeighbourLists] = []

    def search(self, shard: LocalShardBase, search: SearchAhead, version: int) -> None:
        """Search records of a `version`; keep who was found for as many queries as memory allows.

        What was kept before is forgotten.
        """
        self.forget()
        hits = 0
        for neighbours in shard.parts(search.queries, search.thresholds):
            self._ready.append(neighbours)
            hits += len(neighbours.rows)
            if hits > self._most:
                break
        self._name = search.digest(), version

    def parts(
        self, shard: LocalShardBase, search: SearchAhead, version: int
    ) -> Iterator[NeighbourLists]:
        """Yield the neighbours of consecutive queries among the records of a `version`.

        What was kept for them is handed out once; for the others the search is now.
        """
        start = 0
        if self._name == (search.digest(), version):
            ready, self._ready, self._name = self._ready, [], None
            for neighbours in ready:
                yield neighbours
                start += len(neighbours)
        if start < len(search.queries):
            yield from shard.parts(search.queries[start:], search.thresholds[start:])

    def forget(self) -> None:
        """Let go of everything."""
        self._name, self._ready = None, []
