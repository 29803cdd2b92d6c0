"""Audiences of a coordinator: planned here, answered and evaluated by the shards."""

import dataclasses
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count

import numpy as np

from vicinal.arrays import Steps
from vicinal.distributed import messages as tasks
from vicinal.distributed._fan_out import ShardClient, gather
from vicinal.distributed._membership import ShardRecords
from vicinal.distributed.changes import ClusterChanges
from vicinal.distributed.splitting import private_counts_refused
from vicinal.engine.shard import TwoRounds, sum_steps
from vicinal.errors import StorageFailed
from vicinal.ledger.answers import AnswerBlock
from vicinal.ledger.audiences import Audience
from vicinal.ledger.database import Database
from vicinal.ledger.id_encoding import framed_all
from vicinal.ledger.ledger import Ledger
from vicinal.ledger.memory import ForkSafeLock
from vicinal.mechanisms.tally import NoisyTally
from vicinal.mechanisms.votes import BlockRelease
from vicinal.neighbours.kernels import IntegerMatrix
from vicinal.store.audience_state import AudienceState, open_audience_state
from vicinal.store.evaluation import CountedRows
from vicinal.store.opening import OpenStore


class CoordinatorLedger(Ledger):
    """The coordinator's ledger: also how far shards are.

    - `cluster`: the cluster's id.
    - `sequence`: places of new blocks in the order of charges, for all audiences.
    """

    def __init__(self, database: Database, key: bytes, records: ShardRecords) -> None:
        super().__init__(database, key)
        self._records = records
        self.cluster = bytes.fromhex(records.cluster or "")
        self.sequence = count(1)

    @contextmanager
    def release(self, audience: Audience) -> Iterator[None]:
        with super().release(audience):
            yield
            self._records.write()  # how far the shards are that paid for it

    def keep_charges(self, audiences: Iterable[Audience]) -> None:
        """Do nothing: shards keep them, and know the block by its number when it comes again."""

    def _enter(self, block: AnswerBlock) -> None:
        super()._enter(block)
        self._records.write()  # what paid for the answer is known as long as the answer


@dataclass(eq=False)
class RemoteShards:
    """Remote shards, charged for one audience: :class:`~vicinal.engine.shard.Shards`.

    A block is named after the coordinator's clock, its place among the blocks of that clock, its
    queries, radii and noise scales. The clock goes on when answers have become durable. So a block
    that was broken off before that, by the death of the coordinator too, finds its own votes if the
    same comes again, and nobody is charged twice; its noise was never released, and is drawn anew.

    - `ledger`: the coordinator's.
    - `audience`: whose budgets pay.
    - `shards`: all of them.
    - `deadline`: seconds that a block waits for all of them.
    """

    ledger: CoordinatorLedger
    audience: str
    shards: Sequence[ShardClient]
    deadline: float
    _number: int = 0

    def begin_batch(self) -> None:
        self._number = 0

    def charge_and_sum(
        self, release: BlockRelease, queries: IntegerMatrix, thresholds: Steps
    ) -> Steps:
        ledger, audience = self.ledger, self.audience
        place = ledger.clock.to_bytes(8) + self._number.to_bytes(8)
        content = (each.tobytes() for each in (queries, thresholds, release.scales))
        name = tasks.block_name(ledger.cluster, place, audience.encode(), *content)
        self._number += 1
        own = name, ledger.clock, audience, queries, thresholds, release.scales
        request = tasks.VoteRequest(*own, next(ledger.sequence))
        sums = gather(dict(enumerate(self.shards)), request, self.deadline)
        return summed_from(sums.values(), (len(queries), release.mechanism.n_classes))

    def rounds(self, *_: object, **__: object) -> Iterator[TwoRounds]:
        raise private_counts_refused()


def summed_from(sums: Collection[Steps], shape: tuple[int, ...]) -> Steps:
    """Sum what shards sent, or raise StorageFailed if it is not of this shape."""
    if any(one.dtype != np.int64 or one.shape != shape for one in sums):
        raise StorageFailed("A shard sent something other than sums. Does it run the same version?")
    return sum_steps(sums)


def open_sharded_state(
    parts: OpenStore, audience: Audience, shards: RemoteShards, lock: ForkSafeLock
) -> AudienceState:
    """Return the state of an audience whose engine works on the shards."""
    state, _ = open_audience_state(parts, audience, parts.ledger.version, lock)
    return dataclasses.replace(state, engine=dataclasses.replace(state.engine, shard=shards))


def tally_on_shards(
    ledger: Ledger,
    changes: ClusterChanges,
    audience: Audience,
    tally: NoisyTally,
    counted: CountedRows,
) -> Steps:
    """Have every shard charge the subjects it knows, or will know; return the private sum.

    A tally is named after the coordinator's clock and, by a keyed digest, all that is in it. So one
    that was broken off finds its own sums if the same comes again, and nobody is charged twice.

    Raises ShardMissing if a shard is missing: there is no evaluation of some of the subjects.
    """
    subjects = list(dict.fromkeys(counted.subjects))
    shard_of = dict(zip(subjects, changes.places_of(subjects).tolist(), strict=True))
    where = np.array([shard_of[who] for who in counted.subjects], dtype=np.int64)
    plan = counted.plan
    content = [repr((plan.sizes, plan.share)).encode(), counted.cells.astype("<i8").tobytes()]
    content += framed_all(counted.subjects)
    # Keyed, as the name lies on every shard, and a plain digest would confirm a guess.
    private = ledger.keyed_digest(tasks.joined_parts(content))
    name = tasks.block_name(
        tasks.TALLY.encode(), ledger.clock.to_bytes(8), audience.name.encode(), private
    )

    def request(shard: int) -> tasks.TallyRequest:
        rows = np.flatnonzero(where == shard)
        return tasks.TallyRequest(
            name, ledger.clock, audience.name, plan.sizes, plan.share, tally.scale,
            counted.cells[rows], [counted.subjects[row] for row in rows.tolist()],
        )  # fmt: skip

    counts = changes.on_all(request)
    return summed_from(counts.values(), (sum(plan.sizes),))
