"""Giving up a copy of a shard, and making a new one: what the coordinator's ledger lists.

Which copies a shard has stands in the coordinator's ledger alone, and one transaction changes it.
A person does both while the cluster is closed; the running coordinator gives up copies by the same
steps. In both cases the ledger's lock is held.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from vicinal import _checks
from vicinal.distributed._fan_out import CheckedTransport, MissingShardPolicy, gather
from vicinal.distributed._folders import COORDINATOR, COPIES, MOST_SHARDS, ShardFolder, copy_path
from vicinal.distributed._local_transport import local_transports
from vicinal.distributed._membership import ShardRecord, ShardRecords
from vicinal.distributed._messages import Ping
from vicinal.distributed._shard_copies import write_copies
from vicinal.distributed._splitting import ready_cluster
from vicinal.distributed._takeover import Takeover
from vicinal.distributed._transport import ShardTransport
from vicinal.errors import InvalidInput, ShardMissing, ShardUnreachable
from vicinal.store._opening import OpenStore, open_folder

_LOG = logging.getLogger("vicinal.distributed")
_GIVEN_UP = (
    "Copy %d of shard %d was away for %g s and is given up; the other one goes on. Delete what is "
    "left of it, and make a new one while the cluster is closed: vicinal copy-shard --shard %d"
)

_PATIENCE = MissingShardPolicy(deadline=30.0)


def promote_copy(
    path: str | Path,
    shard: int,
    copy: int = 2,
    connect: Callable[[Sequence[Path]], Sequence[ShardTransport]] = local_transports,
) -> None:
    """Go on with one copy of a shard, and give the other one up for good.

    The copy must have been where the coordinator saw the shard last: then it has every charge of
    every answer that was given. From now on the other one is an old copy, and is refused.

    Parameters
    ----------
    path
        Folder of a closed cluster.
    shard
        Number of the shard.
    copy
        The copy to go on with: 1 or 2.
    connect
        Makes the way to it, as for :meth:`Coordinator.open`.

    Raises
    ------
    InvalidInput
        If there is no such cluster, shard or copy.
    PrivacyRefused
        If the cluster is open. StoreOutdated, if the copy is behind; then nothing is changed.
    ShardMissing
        If the copy cannot be reached, or is damaged.

    Examples
    --------
    >>> from vicinal.distributed import promote_copy
    >>> promote_copy("cluster", shard=0, copy=2)  # doctest: +SKIP
    """
    place = Path(path)
    with _opened(place, shard) as (parts, records, record):
        if copy not in record.copies:
            raise InvalidInput(
                f"The 'copy' parameter must be a copy that shard {shard} has: "
                f"{' or '.join(map(str, record.copies))}."
            )
        (transport,) = connect([copy_path(place, shard, copy)])
        try:
            cluster, clock = records.cluster or "", parts.ledger.clock
            way = CheckedTransport([transport], record, cluster, lambda: clock)
            go_on_with(parts, records, way, copy, _PATIENCE)
        finally:
            transport.close()


def go_on_with(
    parts: OpenStore,
    records: ShardRecords,
    way: CheckedTransport,
    copy: int,
    policy: MissingShardPolicy,
) -> None:
    """List one copy of a shard alone, in three steps; before each of them nothing is lost.

    `way` leads to this copy alone. Raises StoreOutdated if the copy is behind: it stays listed with
    the other one; ShardMissing if it cannot be reached, or is damaged.
    """
    record = way.record
    records.open(record)
    # It writes the new epoch: from here on the other copy is behind what was seen.
    gather({record.number: way}, Ping(), policy)
    record.copies = (copy,)
    _write(parts, records)


def copy_shard(path: str | Path, shard: int) -> None:
    """Write a second copy of a shard that has one, beside it, in a folder of its own.

    Parameters
    ----------
    path
        Folder of a closed cluster, with the shard in it.
    shard
        Number of the shard.

    Raises
    ------
    InvalidInput
        If there is no such cluster or shard, if it has two copies, or if there is something in the
        place of the second.
    PrivacyRefused
        If the cluster is open, or if the shard is not where the coordinator saw it last.

    Examples
    --------
    >>> from vicinal.distributed import copy_shard
    >>> copy_shard("cluster", shard=0)  # doctest: +SKIP
    """
    place = Path(path)
    with _opened(place, shard) as (parts, records, record):
        if record.copies == COPIES:
            raise InvalidInput(f"Shard {shard} has two copies already.")
        write_copies(place, records.cluster or "", [record])
        _write(parts, records)


class CopyTakeovers:
    """Gives up copies of shards for a running coordinator, where its policy says after how long.

    `count`: how many were given up. Public.
    """

    def __init__(
        self,
        parts: OpenStore,
        records: ShardRecords,
        policy: MissingShardPolicy,
        ways: Iterable[CheckedTransport],
    ) -> None:
        self._parts, self._records, self._policy = parts, records, policy
        self.count = 0
        for way in ways:
            if policy.takeover_s is not None and len(way.transports) > 1:
                way.takeover = Takeover(policy.takeover_s, partial(self._give_up, way))

    def _give_up(self, way: CheckedTransport, place: int) -> None:
        """Go on without the copy in a place, durably.

        Raises
        ------
        ShardUnreachable
            If the other copy cannot be reached either: both stay listed.
        """
        record, other = way.record, 1 - place
        given_up, copy = way.transports[place], record.copies[place]
        survivor = CheckedTransport([way.transports[other]], record, way.cluster, way.clock)
        try:
            go_on_with(self._parts, self._records, survivor, record.copies[other], self._policy)
        except ShardMissing as error:
            raise ShardUnreachable(str(error)) from None
        way.transports, way.takeover = survivor.transports, None
        given_up.abandon()
        self.count += 1
        _LOG.warning(_GIVEN_UP, copy, record.number, self._policy.takeover_s, record.number)


@contextmanager
def _opened(path: Path, shard: int) -> Iterator[tuple[OpenStore, ShardRecords, ShardRecord]]:
    """Open the coordinator's folder, and nothing else."""
    cluster = ready_cluster(path)
    number = _checks.integer("shard", shard, least=0, most=MOST_SHARDS - 1)
    with open_folder(ShardFolder.read(path / COORDINATOR).folder) as parts:
        records = ShardRecords.of(parts.database, cluster)
        if number >= len(records):
            raise InvalidInput(f"The 'shard' parameter must be below {len(records)}. Got {shard}.")
        yield parts, records, list(records)[number]


def _write(parts: OpenStore, records: ShardRecords) -> None:
    with parts.database.transaction():
        records.write()
        records.write_copies()
    parts.mark()
