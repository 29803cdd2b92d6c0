"""Giving up a copy of a shard, and making a new one: what the coordinator's ledger lists.

Which copies a shard has stands in the coordinator's ledger alone, and one transaction changes it.
Both are done while the cluster is closed: the ledger's lock is held.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from vicinal import _checks
from vicinal.distributed._fan_out import CheckedTransport, MissingShardPolicy, gather
from vicinal.distributed._folders import COORDINATOR, COPIES, MOST_SHARDS, ShardFolder, copy_path
from vicinal.distributed._local_transport import local_transports
from vicinal.distributed._membership import ShardRecord, ShardRecords
from vicinal.distributed._messages import Ping
from vicinal.distributed._shard_copies import write_copies
from vicinal.distributed._splitting import ready_cluster
from vicinal.distributed._transport import ShardTransport
from vicinal.errors import InvalidInput
from vicinal.store._identities import ONE_FORM_EVERYWHERE
from vicinal.store._opening import OpenStore, open_folder

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
        records.open()
        (transport,) = connect([copy_path(place, shard, copy)])
        try:
            cluster, clock = records.cluster or "", parts.ledger.clock
            way = CheckedTransport([transport], record, cluster, lambda: clock)
            # It writes the new epoch: from here on the other copy is behind what was seen.
            gather({shard: way}, Ping(), _PATIENCE)
        finally:
            transport.close()
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


@contextmanager
def _opened(path: Path, shard: int) -> Iterator[tuple[OpenStore, ShardRecords, ShardRecord]]:
    """Open the coordinator's folder, and nothing else."""
    cluster = ready_cluster(path)
    number = _checks.integer("shard", shard, least=0, most=MOST_SHARDS - 1)
    parts = open_folder(ShardFolder.read(path / COORDINATOR).folder)
    try:
        records = ShardRecords.of(parts.database, cluster)
        if not len(records) or parts.database.get(ONE_FORM_EVERYWHERE) != "1":
            raise InvalidInput(
                f"{path} was made by an earlier version. Open it once with: vicinal inspect"
            )
        if number >= len(records):
            raise InvalidInput(f"The 'shard' parameter must be below {len(records)}. Got {shard}.")
        yield parts, records, list(records)[number]
    finally:
        parts.resources.close()


def _write(parts: OpenStore, records: ShardRecords) -> None:
    with parts.database.transaction():
        records.write()
        records.write_copies()
    parts.mark()
