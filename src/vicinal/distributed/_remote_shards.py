"""All shards of a cluster as the engine of one audience sees them: sums of votes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

import numpy as np

from vicinal._arrays import Steps
from vicinal.distributed._messages import (
    COUNT,
    COUNTED,
    VOTES,
    SearchAhead,
    VoteRequest,
    block_name,
)
from vicinal.distributed._sum_tree import SumTree
from vicinal.errors import ShardMissing, StorageFailed
from vicinal.mechanisms import NoisyCount, fresh_key
from vicinal.mechanisms._votes import BlockRelease
from vicinal.neighbours._kernels import IntegerMatrix
from vicinal.predictors.ind_knn._shard import Following, TwoRounds, summed

_NO_SCALES = np.zeros(0, dtype=np.int64)


@dataclass(eq=False)
class RemoteShards:
    """Remote shards, charged for one audience: :class:`~vicinal.predictors.ind_knn._shard.Shards`.

    A block is named after the coordinator's clock, its place among the blocks of that clock, its
    queries, radii and noise scales. The clock goes on when answers have become durable. So a block
    that was broken off before that, by the death of the coordinator too, finds its own votes if the
    same comes again, and nobody is charged twice; its noise was never released, and is drawn anew.
    Where scales follow from noise that was lost, of a count or of the block before, the name is
    another one, and the broken block is abandoned with its charge.

    - `cluster`: the cluster's id.
    - `audience`: whose budgets pay.
    - `tree`: the ways to all shards.
    - `clock`: returns the coordinator's clock.
    - `sequence`: returns the place of a new block in the order of charges, for all audiences.
    - `next_batch`: returns what is searched first for the batch that comes next, or None.
    - `missing`: shards that blocks since :meth:`begin_batch` were answered without. Public.
    """

    cluster: bytes
    audience: str
    tree: SumTree
    clock: Callable[[], int]
    sequence: Callable[[], int]
    next_batch: Callable[[], SearchAhead | None]
    missing: set[int] = field(default_factory=set)
    _number: int = 0
    _following: Following | None = None

    def begin_batch(self) -> None:
        """Begin a new batch of blocks."""
        self._number = 0
        self._following = None
        self.missing = set()

    def charge_and_sum(
        self, release: BlockRelease, queries: IntegerMatrix, thresholds: Steps
    ) -> Steps:
        """Have every shard charge its neighbours, and sum their votes. Private."""
        named = release.scales.tobytes()
        request = self._request(queries, thresholds, release.scales, named, VOTES)
        shape = (len(queries), release.mechanism.n_classes)
        sums, missing = self.tree.gather(request, range(len(self.tree)), self._search_ahead)
        self.missing |= missing
        return _summed(sums, shape)

    def rounds(
        self, queries: IntegerMatrix, thresholds: Steps, *, together: bool
    ) -> Iterator[TwoRounds]:
        """Yield the queries for two rounds: all `together`, or one after the other."""
        step = len(queries) if together else 1
        for start in range(0, len(queries), step):
            part = slice(start, min(start + step, len(queries)))
            radii = thresholds[part]
            yield RemoteRounds(
                self, part, self._request(queries[part], radii, _NO_SCALES, fresh_key(), COUNT)
            )

    def expect(self, following: Following | None) -> None:
        """Say what is searched while answers to the next block are made."""
        self._following = following

    def _search_ahead(self) -> None:
        """Have all shards search the block that comes next, without waiting for them."""
        following, self._following = self._following, None
        if following is None:
            search = self.next_batch()
        else:
            block = following()
            search = block and SearchAhead(self.audience, *block)
        if search is not None:
            self.tree.search_ahead(search)

    def _request(
        self, queries: IntegerMatrix, thresholds: Steps, scales: Steps, more: bytes, kind: str
    ) -> VoteRequest:
        """Return a new request, named after its place and content, and `more`."""
        clock = self.clock()
        place = clock.to_bytes(8) + self._number.to_bytes(8)
        content = np.ascontiguousarray(queries).tobytes(), thresholds.tobytes()
        name = block_name(self.cluster, place, self.audience.encode(), *content, more)
        self._number += 1
        return VoteRequest(
            name, clock, self.audience, kind, queries, thresholds, scales, self.sequence()
        )


@dataclass(slots=True)
class RemoteRounds:
    """One block of queries in two rounds; a shard that missed the first is not in the second."""

    shards: RemoteShards
    queries: slice
    request: VoteRequest
    _counted: set[int] = field(default_factory=set)

    def charge_counts(self, counter: NoisyCount) -> Steps:  # noqa: ARG002 (every shard has its own)
        """Have every shard charge and count its neighbours. Private."""
        every = set(range(len(self.shards.tree)))
        counts, missing = self.shards.tree.gather(self.request, every)
        self.shards.missing |= missing
        self._counted = every - missing
        return _summed(counts, (len(self.request.queries),))

    def charge_and_sum(self, release: BlockRelease) -> Steps:
        """Have every shard charge those who were counted, and sum their votes. Private."""
        request = replace(self.request, round=COUNTED, scales=release.scales)
        shape = (len(request.queries), release.mechanism.n_classes)
        sums, missing = self.shards.tree.gather(request, self._counted)
        self.shards.missing |= missing
        return _summed(sums, shape)


def _summed(sums: list[Steps], shape: tuple[int, ...]) -> Steps:
    """Sum what shards sent, or raise StorageFailed if it is not of this shape."""
    if not sums:
        raise ShardMissing("No shard came back, so the block is not answered.")
    if any(one.dtype != np.int64 or one.shape != shape for one in sums):
        raise StorageFailed("A shard sent something else than sums. Is it of the same version?")
    return summed(sums)
