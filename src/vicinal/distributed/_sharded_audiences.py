"""Charging of queries and evaluations on all shards of a cluster, and the coordinator's ledger.

An evaluation counts labelled rows in tables, for example by true and answered class. A *cell* is
one entry of such a table.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count

import numpy as np

from vicinal.arrays import Steps
from vicinal.distributed import messages as tasks
from vicinal.distributed._fan_out import ShardClient, gather_results
from vicinal.distributed._membership import ShardRecords
from vicinal.distributed.changes import ClusterChanges
from vicinal.distributed.splitting import create_private_count_error
from vicinal.engine.shard import TwoRounds
from vicinal.errors import StorageFailed
from vicinal.ledger.answers import AnswerBlock
from vicinal.ledger.audiences import Audience
from vicinal.ledger.database import Database
from vicinal.ledger.id_encoding import frame_ids
from vicinal.ledger.ledger import Ledger
from vicinal.mechanisms.tally import NoisyTally
from vicinal.mechanisms.votes import BlockRelease
from vicinal.neighbours.kernels import IntegerMatrix
from vicinal.store.evaluation import CountedRows


class CoordinatorLedger(Ledger):
    """The coordinator's ledger, which also stores the last seen states of the shards.

    `database`, `key`: the coordinator's database, and its key of keyed hashes. `shard_records`: its
    records of the shards. Attributes: `cluster`, the cluster's id as bytes; `sequence`, an iterator
    that numbers new blocks in the order of charges, over all audiences.
    """

    def __init__(self, database: Database, key: bytes, shard_records: ShardRecords) -> None:
        super().__init__(database, key)
        self._shard_records = shard_records
        self.cluster = bytes.fromhex(shard_records.cluster or "")
        self.sequence = count(1)

    @contextmanager
    def release(self, audience: Audience) -> Iterator[None]:
        """Make the with-block's release to an audience durable, with the shards' states."""
        with super().release(audience):
            yield
            self._shard_records.write()  # the states after the shards' charges for the release

    def commit_interrupted_charges(self, audiences: Iterable[Audience]) -> None:
        """Do nothing, for any `audiences`: shards store charges and recognise repeated blocks."""

    def _write_block(self, block: AnswerBlock) -> None:
        """Write a block of queries with answers, and the shards' states after their charges."""
        super()._write_block(block)
        self._shard_records.write()


@dataclass(eq=False)
class RemoteShards:
    """All shards of a cluster as the engine of one audience uses them (the `Shards` protocol).

    The name of a block is a digest of the coordinator's clock, the number of the block within that
    clock, and its queries, radii and noise scales. The clock advances when answers become durable.
    If a block is interrupted before that, even by the end of the coordinator's process, the same
    block finds its own votes when it is repeated, and no subject is charged twice. Its noise was
    never released and is sampled anew.
    """

    ledger: CoordinatorLedger
    audience: str  # name of the audience that is charged
    shards: Sequence[ShardClient]  # by number of the shard
    deadline: float  # seconds that a block waits for all shards
    _block_number: int = 0

    def begin_batch(self) -> None:
        """Start a new batch of requests, whose blocks are numbered from 0."""
        self._block_number = 0

    def charge_and_sum(
        self, release: BlockRelease, queries: IntegerMatrix, thresholds: Steps
    ) -> Steps:
        """Have every shard charge a query block, and return the sum of their votes, int64 (q, c).

        `release`: the mechanism of the votes, and the noise scale of each query in grid steps.
        `queries`, int8 or float32 (q, d): integer features. `thresholds`, int64 (q,): radii, as
        smallest similarities of a neighbour. Raises ShardMissing if a shard does not answer in
        time.
        """
        ledger, audience = self.ledger, self.audience
        position = ledger.clock.to_bytes(8) + self._block_number.to_bytes(8)
        content = (array.tobytes() for array in (queries, thresholds, release.scales))
        name = tasks.create_request_name(ledger.cluster, position, audience.encode(), *content)
        self._block_number += 1
        request = tasks.VoteRequest(
            name, ledger.clock, audience, queries, thresholds, release.scales, next(ledger.sequence)
        )
        sums = gather_results(dict(enumerate(self.shards)), request, self.deadline)
        return sum_shard_answers(sums.values(), (len(queries), release.mechanism.n_coordinates))

    def search_for_two_rounds(self, *_: object, **__: object) -> Iterator[TwoRounds]:
        """Raise InvalidInput: private neighbour counts need two rounds a query, on one machine."""
        raise create_private_count_error()


def sum_shard_answers(sums: Collection[Steps], shape: tuple[int, ...]) -> Steps:
    """Return the total of the shards' private `sums`, which must be int64 of the given `shape`.

    Raises StorageFailed otherwise.
    """
    if any(shard_sum.dtype != np.int64 or shard_sum.shape != shape for shard_sum in sums):
        raise StorageFailed("A shard sent something other than sums. Does it run the same version?")
    total = np.zeros(shape, dtype=np.int64)
    for shard_sum in sums:
        total += shard_sum
    return total


def charge_evaluation_on_shards(
    ledger: Ledger,
    changes: ClusterChanges,
    audience: Audience,
    tally: NoisyTally,
    counted: CountedRows,
) -> Steps:
    """Have every shard charge its subjects for an evaluation; return the private sum of each cell.

    The sums are int64 (cells,), in grid steps. Unknown subjects are charged on the shard that their
    records would be added to. The name of the request is a digest of the coordinator's clock and a
    keyed digest of its content. An interrupted evaluation therefore finds its own sums when it is
    repeated, and no subject is charged twice.

    `ledger`: the coordinator's. `audience`: whose budgets are charged. `changes`: sends requests,
    as for a change of the data, and finds the subjects' shards. `tally`: the mechanism, which
    determines the noise scale and with it the charge. `counted`: the cells and the subject of every
    evaluated row; private.

    Raises ShardMissing if a shard is missing: an evaluation never omits some of the subjects.
    """
    subjects = list(dict.fromkeys(counted.subjects))
    shard_of = dict(zip(subjects, changes.find_shards(subjects).tolist(), strict=True))
    shard_numbers = np.array([shard_of[subject] for subject in counted.subjects], dtype=np.int64)
    plan = counted.plan
    content = [repr((plan.sizes, plan.share)).encode(), counted.cells.astype("<i8").tobytes()]
    content += frame_ids(counted.subjects)
    # The digest is keyed, because every shard stores the name, and a plain digest would let a
    # reader of one shard confirm a guess of the private content.
    content_digest = ledger.keyed_digest(tasks.join_with_lengths(content))
    name = tasks.create_request_name(
        tasks.EVALUATION.encode(), ledger.clock.to_bytes(8), audience.name.encode(), content_digest
    )

    def create_request(shard: int) -> tasks.EvaluationRequest:
        """Return the request for the rows of one shard, given its number."""
        rows = np.flatnonzero(shard_numbers == shard)
        return tasks.EvaluationRequest(
            name,
            ledger.clock,
            audience.name,
            plan.sizes,
            plan.share,
            tally.scale,
            counted.cells[rows],
            [counted.subjects[row] for row in rows.tolist()],
        )

    sums = changes.run_on_shards(create_request)
    return sum_shard_answers(sums.values(), (sum(plan.sizes),))
