"""Membership of a cluster: identities and states by which coordinator and shards are recognised.

A shard's witness file reveals that its folder was rolled back, unless both were copied or rolled
back together. The coordinator's ledger therefore keeps the last link of each shard's hash chain
that it has seen, in the transactions that make its own answers durable. A shard may be ahead of
that state by consecutive links, as it commits before the coordinator does. A shard that is behind,
or whose chain has diverged, is not the shard that was charged.

Conversely, a shard keeps the coordinator's *epoch*, 16 random bytes sampled at each opening.
The coordinator sends its epochs since the shard last answered. A coordinator without the epoch that
a shard keeps is a copy: another coordinator has used the shard since.

Everywhere in this module, `cluster` is the cluster's id in hexadecimal digits, `number` the number
of a shard, from 0, and `database` the open database of a ledger.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from threading import Lock
from typing import Self

from vicinal.distributed.folders import ClusterDescription
from vicinal.distributed.messages import ShardState
from vicinal.errors import StoreOutdated
from vicinal.ledger.database import ChainLink, Database
from vicinal.ledger.tables import Tables
from vicinal.mechanisms.noise_sources import fresh_key
from vicinal.store.opening import OpenStore

CLUSTER, NUMBER, _EPOCH_KEY = "cluster", "number", "coordinator"
"""Database keys of the cluster's id, the number of the shard, and the coordinator's epoch."""

_EPOCH_BYTES = 16
"""Length of an epoch: 128 random bits, so that two openings never have the same one."""


def check_member(database: Database, cluster: str, number: int) -> None:
    """Raise StoreOutdated unless a ledger belongs to shard `number` of a cluster."""
    if (database.get(CLUSTER), database.get(NUMBER)) != (cluster, str(number)):
        raise create_wrong_shard_error(number)


def read_epoch(database: Database) -> bytes:
    """Return the epoch that a shard keeps; empty if the shard accepts any coordinator."""
    return bytes.fromhex(database.get(_EPOCH_KEY) or "")


def write_epoch(database: Database, epoch: bytes) -> None:
    """Store an epoch in a shard, in the caller's transaction; b"" to accept any coordinator."""
    database.put(_EPOCH_KEY, epoch.hex())


def create_wrong_shard_error(number: int) -> StoreOutdated:
    """Return the error for a folder that is at the path of shard `number` but is another shard."""
    return StoreOutdated(
        f"Shard {number} is another shard, of this cluster or of another one. Bring back the "
        "folder that belongs there."
    )


def check_shard_state(
    store: OpenStore, cluster: str, number: int, identity: str, state: ShardState
) -> None:
    """Raise StoreOutdated unless an open store is the shard that the coordinator last saw.

    `store`: the open folder. `identity`: expected id of the folder, in hexadecimal digits.
    `state`: last seen state, which must be a link of the shard's chain.
    """
    check_member(store.database, cluster, number)
    if store.folder.identity != identity:
        raise create_wrong_shard_error(number)
    if read_links_since(store.database, state) is None:
        raise StoreOutdated(
            f"Shard {number} is an old copy, or a copy that ran elsewhere: the coordinator last "
            "saw it in another state. Nothing was charged. Bring back the folder that belongs "
            "there, or accept the loss, which spends every budget for good."
        )


def read_links_since(database: Database, state: ShardState) -> tuple[ChainLink, ...] | None:
    """Return the links of a shard's hash chain after `state`; None if the chain lacks it."""
    rows = database.read(
        "SELECT number, clock, content, head FROM chain WHERE number >= ? ORDER BY number",
        (state.link,),
    )
    links = [ChainLink(*row) for row in rows]
    if not links or (links[0].number, links[0].head) != (state.link, state.head):
        return None
    return tuple(links[1:])


@dataclass(slots=True, eq=False)
class ShardRecord:
    """The coordinator's record of one shard; may be used by any thread."""

    number: int
    identity: str  # id of the shard's folder, in hexadecimal digits
    state: ShardState  # at the shard's last answer
    epochs: tuple[bytes, ...] = ()  # of the coordinator since that answer, the current one last
    _lock: Lock = field(default_factory=Lock)

    @classmethod
    def from_store(cls, number: int, store: OpenStore) -> Self:
        """Return the record of shard `number` in the current state of its open folder `store`."""
        return cls(number, store.folder.identity, ShardState.from_database(store.database))

    def accept_links(self, start: ShardState, links: Sequence[ChainLink]) -> None:
        """Verify the hash-chain links in an answer, and make the last link the last seen state.

        `start`: the state in the message that is answered. `links`: the shard's links since then.
        Raises StoreOutdated if a link does not follow from the previous one, or if the links do not
        pass through the last seen state.
        """
        path = [start]
        for link in links:
            last = path[-1]
            if link != ChainLink.from_previous(last.head, last.link + 1, link.clock, link.content):
                raise self._create_diverged_error()
            path.append(ShardState(link.number, link.clock, link.head))
        with self._lock:
            # A late answer may end before the state that has been seen since.
            if path[-1].link >= self.state.link and self.state not in path:
                raise self._create_diverged_error()
            self.epochs = self.epochs[-1:]
            if path[-1].link > self.state.link:
                self.state = path[-1]

    def _create_diverged_error(self) -> StoreOutdated:
        """Return the error for a shard whose hash chain does not continue the last seen state."""
        return StoreOutdated(
            f"Shard {self.number} has another history than the coordinator saw. Bring back the "
            "folder that belongs there, or accept the loss, which spends every budget for good."
        )

    def to_row(self) -> tuple[int, str, int, int, bytes, bytes]:
        """Return the record as a row of the table `shards`: number, id, last state and epochs."""
        state = self.state
        epochs = b"".join(self.epochs)
        return self.number, self.identity, state.link, state.clock, state.head, epochs


class ShardRecords:
    """The records of all shards in the coordinator's `database`, in the order of their numbers.

    The attribute `cluster` is None before an id is stored.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self.cluster = database.get(CLUSTER)
        rows = database.read(
            "SELECT number, id, link, clock, head, epochs FROM shards ORDER BY number"
        )
        self._records = [
            ShardRecord(
                number,
                identity,
                ShardState(link, clock, head),
                tuple(
                    epochs[start : start + _EPOCH_BYTES]
                    for start in range(0, len(epochs), _EPOCH_BYTES)
                ),
            )
            for number, identity, link, clock, head, epochs in rows
        ]
        self._written_rows = [record.to_row() for record in self._records]

    def __iter__(self) -> Iterator[ShardRecord]:
        """Return an iterator over the records of all shards, by number."""
        return iter(self._records)

    @classmethod
    def from_database(cls, database: Database, description: ClusterDescription) -> Self:
        """Return the records in a coordinator's database.

        Raises StoreOutdated unless they are exactly those of the shards in `description`.
        """
        records = cls(database)
        numbers = [record.number for record in records]
        expected = (description.identity, list(range(description.shards)))
        if (records.cluster, numbers) != expected:
            raise StoreOutdated(
                f"The cluster's description names {description.shards} shards, and its "
                "coordinator has others. Bring back the cluster.json and the coordinator that "
                "belong together."
            )
        return records

    def replace_all(self, cluster: str, records: Iterable[ShardRecord]) -> None:
        """Replace the stored id of the cluster and all records, in the caller's transaction."""
        self._records = list(records)
        self._written_rows = []
        self._database.put(CLUSTER, cluster)
        self.cluster = cluster
        self.write()

    def begin_epoch(self) -> None:
        """Sample a new epoch and make it durable; call before any message to a shard."""
        epoch = fresh_key(_EPOCH_BYTES)
        for record in self._records:
            record.epochs = (*record.epochs, epoch)
        with self._database.transaction():
            self.write()

    def write(self) -> None:
        """Write the records, if any changed since the last call, in the caller's transaction."""
        rows = [record.to_row() for record in self._records]
        if rows != self._written_rows:
            self._database.replace(Tables.SHARDS, rows)
            self._written_rows = rows
