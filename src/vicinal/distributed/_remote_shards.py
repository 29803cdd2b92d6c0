"""All shards of a cluster as the engine of one audience sees them: sums, whoever computed them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from vicinal.distributed._fan_out import MissingShardPolicy, ShardMissing, ShardTransport, gather
from vicinal.distributed._vote_request import COUNT, COUNTED, VOTES, Steps, VoteRequest, block_name
from vicinal.errors import StorageFailed
from vicinal.mechanisms import NoisyCount, fresh_key
from vicinal.mechanisms._votes import BlockRelease
from vicinal.neighbours._integer_features import IntegerMatrix
from vicinal.predictors.ind_knn._shards import TwoRounds, summed

_NO_SCALES = np.zeros(0, dtype=np.int64)


@dataclass(eq=False)
class RemoteShards:
    """Shards behind links, charged for one audience: :class:`~vicinal.predictors.ind_knn._shards.Shards`.

    A block is named after the turn, its place among the blocks of the turn, its queries, radii and
    noise scales. The turn goes on when answers have become durable. So a block that was broken off
    before that, by the death of the coordinator too, meets its own votes if the same comes again,
    and nobody is charged twice; its noise was never released, and is drawn anew. Where scales
    follow from noise that was lost, of a count or of the block before, the name is another one,
    and the broken block is abandoned with its charge.

    Attributes
    ----------
    cluster : bytes
        The cluster's id.
    audience : str
        Whose budgets pay.
    links : sequence of ShardTransport
        The way to every shard.
    absence : MissingShardPolicy
        What to do if one is missing.
    turn : callable
        Returns how far the coordinator has come, a number that never goes back.
    missing : set of int
        Shards that blocks since :meth:`fresh` were answered without. Public.
    """

    cluster: bytes
    audience: str
    links: Sequence[ShardTransport]
    absence: MissingShardPolicy
    turn: Callable[[], int]
    missing: set[int] = field(default_factory=set)
    _number: int = 0

    def fresh(self) -> None:
        """Begin a new batch of blocks."""
        self._number = 0
        self.missing = set()

    def charge_and_sum(
        self, release: BlockRelease, queries: IntegerMatrix, thresholds: Steps
    ) -> Steps:
        """Have every shard charge its neighbours, and sum their votes. Private."""
        order = self._order(queries, thresholds, release.scales, release.scales.tobytes(), VOTES)
        found = self.ask(order, range(len(self.links)))
        return summed(checked(found, (len(queries), release.mechanism.n_classes)))

    def rounds(
        self, queries: IntegerMatrix, thresholds: Steps, *, together: bool
    ) -> Iterator[TwoRounds]:
        """Yield the queries for two rounds: all `together`, or one after the other."""
        step = len(queries) if together else 1
        for start in range(0, len(queries), step):
            part = slice(start, min(start + step, len(queries)))
            order = self._order(queries[part], thresholds[part], _NO_SCALES, fresh_key(), COUNT)
            yield RemoteRounds(self, part, order)

    def ask(self, order: VoteRequest, which: Sequence[int]) -> dict[int, Steps]:
        """Send an order to some shards; return what came back, by shard."""
        back = gather({number: self.links[number] for number in which}, order, self.absence)
        self.missing.update(set(which) - set(back))
        return back

    def _order(
        self, queries: IntegerMatrix, thresholds: Steps, scales: Steps, more: bytes, kind: str
    ) -> VoteRequest:
        """Return a new order, named after its place and content, and `more`."""
        turn = self.turn()
        place = turn.to_bytes(8) + self._number.to_bytes(8)
        asked = np.ascontiguousarray(queries).tobytes(), thresholds.tobytes()
        name = block_name(self.cluster, place, self.audience.encode(), *asked, more)
        self._number += 1
        return VoteRequest(name, turn, self.audience, kind, queries, thresholds, scales)


@dataclass(slots=True)
class RemoteRounds:
    """One block of queries in two rounds; a shard that missed the first is not in the second."""

    shards: RemoteShards
    queries: slice
    order: VoteRequest
    _counted: Sequence[int] = ()

    def charge_counts(self, counter: NoisyCount) -> Steps:  # noqa: ARG002 (every shard has its own)
        """Have every shard charge and count its neighbours. Private."""
        found = self.shards.ask(self.order, range(len(self.shards.links)))
        self._counted = sorted(found)
        return summed(checked(found, (len(self.order.queries),)))

    def charge_and_sum(self, release: BlockRelease) -> Steps:
        """Have every shard charge those who were counted, and sum their votes. Private."""
        order = replace(self.order, round=COUNTED, scales=release.scales)
        found = self.shards.ask(order, self._counted)
        return summed(checked(found, (len(order.queries), release.mechanism.n_classes)))


def checked(found: dict[int, Steps], shape: tuple[int, ...]) -> list[Steps]:
    """Return what shards sent, or raise StorageFailed if it is not of this shape."""
    if not found:
        raise ShardMissing("No shard came back, so the block is not answered.")
    if any(one.dtype != np.int64 or one.shape != shape for one in found.values()):
        raise StorageFailed("A shard sent something else than sums. Is it of the same version?")
    return list(found.values())
