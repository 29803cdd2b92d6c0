"""From a folder to a cluster that can answer: a coordinator's store, and ways to its shards."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from vicinal.distributed._fan_out import CheckedTransport, MissingShardPolicy, gather
from vicinal.distributed._folders import COORDINATOR, ClusterDescription, ShardFolder, copy_path
from vicinal.distributed._membership import ShardRecords
from vicinal.distributed._messages import Ping
from vicinal.distributed._splitting import ready_cluster
from vicinal.distributed._transport import ShardTransport
from vicinal.errors import PrivacyRefused, ShardDamaged, ShardMissing, VicinalError
from vicinal.store._opening import OpenStore, open_folder

OPENING = 5.0
"""Seconds that an opening waits for shards; a block waits longer."""

Connect = Callable[[Sequence[Path]], Sequence[ShardTransport]]
"""Makes the ways to shards, given their folders."""


@dataclass(frozen=True, eq=False, slots=True)
class ClusterParts:
    """What an open cluster consists of: the coordinator's store, and what it knows of its shards.

    `transports`: the ways to all copies of all shards, one shard after the other.
    """

    parts: OpenStore
    description: ClusterDescription
    records: ShardRecords
    transports: Sequence[ShardTransport]

    def ways(self) -> list[list[ShardTransport]]:
        """Return the ways to the copies of each shard."""
        each = iter(self.transports)
        return [[next(each) for _ in record.copies] for record in self.records]


@contextmanager
def open_cluster(path: Path, connect: Connect) -> Iterator[ClusterParts]:
    """Open the parts of a cluster; if the body fails, all of them are let go of.

    Raises as :meth:`Coordinator.open`.
    """
    description = ready_cluster(path)
    shard_folder = ShardFolder.read(path / COORDINATOR)
    if shard_folder.cluster != description.identity:
        raise PrivacyRefused("The coordinator belongs to another cluster.")
    with ExitStack() as resources:
        parts = resources.enter_context(open_folder(shard_folder.folder))
        records = ShardRecords.of(parts.database, description)
        transports = connect(
            [copy_path(path, one.number, copy) for one in records for copy in one.copies]
        )
        for transport in transports:
            resources.callback(transport.close)
        cluster = ClusterParts(parts, description, records, transports)
        records.open()
        parts.mark()
        yield cluster
        resources.pop_all()


def compare_states(shards: Sequence[CheckedTransport], policy: MissingShardPolicy) -> None:
    """Have every reachable shard compare where it is; the others do when they are back."""
    patience = MissingShardPolicy(min(OPENING, policy.deadline), policy.answer_without)
    try:
        gather(dict(enumerate(shards)), Ping(), patience)
    except ShardMissing as error:
        if isinstance(error, ShardDamaged) and not policy.answer_without:
            raise


def reason_away(shard: CheckedTransport, seconds: float) -> str:
    """Return why a copy of a shard does not answer, or ""; looking gives none of them up."""
    policy = MissingShardPolicy(seconds)
    try:
        for place in range(len(shard.transports)):
            gather({shard.record.number: shard.copy(place)}, Ping(), policy)
    except VicinalError as error:
        return str(error)
    return ""
