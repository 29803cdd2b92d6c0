"""What the coordinator's ledger keeps of every shard: which folder it is, and how far it was seen.

A shard's folder and witness can be copied, or put back to an earlier state, together: then nothing
in them tells. So the coordinator remembers the last link of each shard's chain that it has seen,
in the transactions that make its own answers durable. A shard may be further than that, by links
that follow one another: its commit comes before the coordinator's. Behind, or on another way, it
is not the shard that was charged.

The other way round a shard remembers the coordinator's epoch, drawn anew at each opening. The
coordinator shows which epochs it had since the shard last answered; one that cannot show the epoch
that a shard knows is a copy, and another coordinator has asked the shard since.
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

CLUSTER, NUMBER, _LAST_EPOCH = "cluster", "number", "coordinator"
"""Where a part's ledger keeps its cluster, its place as a shard, and the coordinator's epoch."""

_EPOCH = 16


def check_member(database: Database, cluster: str, number: int) -> None:
    """Raise StoreOutdated unless a ledger is that of a shard of a cluster."""
    if (database.get(CLUSTER), database.get(NUMBER)) != (cluster, str(number)):
        raise another_shard(number)


def known_epoch(database: Database) -> bytes:
    """Return the coordinator's epoch that a shard knows; an empty one: the next that comes."""
    return bytes.fromhex(database.get(_LAST_EPOCH) or "")


def write_epoch(database: Database, epoch: bytes) -> None:
    """Write down an epoch, inside a transaction."""
    database.put(_LAST_EPOCH, epoch.hex())


def another_shard(number: int) -> StoreOutdated:
    """Return the refusal of a folder that lies in the place of shard `number` and is not it."""
    return StoreOutdated(
        f"Shard {number} is another shard, of this cluster or of another one. Bring back the "
        "folder that belongs there."
    )


def check_last(
    parts: OpenStore, cluster: str, number: int, identity: str, state: ShardState
) -> None:
    """Raise StoreOutdated unless a folder is the one of a shard, and was in the state seen last."""
    check_member(parts.database, cluster, number)
    if parts.folder.identity != identity:
        raise another_shard(number)
    if links_after(parts.database, state) is None:
        raise StoreOutdated(
            f"Shard {number} is an old copy, or a copy that ran elsewhere: the coordinator last "
            "saw it in another state. Nothing was charged. Bring back the folder that belongs "
            "there, or accept the loss, which spends every budget for good."
        )


def links_after(database: Database, state: ShardState) -> tuple[ChainLink, ...] | None:
    """Return the links of a ledger since `state`; None if it never was in that state."""
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
    """What the coordinator knows of one shard, used by any thread: its place and id.

    `state`: how far it was when it last answered. `epochs`: the coordinator's since then.
    """

    number: int
    identity: str
    state: ShardState
    epochs: tuple[bytes, ...] = ()
    _lock: Lock = field(default_factory=Lock)

    def accept(self, known: ShardState, links: Sequence[ChainLink]) -> None:
        """Take note of an answer: of the links of the shard's chain after the state `known`.

        Raises StoreOutdated if they do not lead through the state that was seen last.
        """
        path = [known]
        for link in links:
            last = path[-1]
            if link != ChainLink.after(last.head, last.link + 1, link.clock, link.content):
                raise self._refusal()
            path.append(ShardState(link.number, link.clock, link.head))
        with self._lock:
            # An answer may come late, and lead to a state before the one that was seen last.
            if path[-1].link >= self.state.link and self.state not in path:
                raise self._refusal()
            self.epochs = self.epochs[-1:]
            if path[-1].link > self.state.link:
                self.state = path[-1]

    def _refusal(self) -> StoreOutdated:
        return StoreOutdated(
            f"Shard {self.number} has another history than the coordinator saw. Bring back the "
            "folder that belongs there, or accept the loss, which spends every budget for good."
        )

    def row(self) -> tuple[int, str, int, int, bytes, bytes]:
        """Return its row in the table `shards`."""
        at = self.state
        return self.number, self.identity, at.link, at.clock, at.head, b"".join(self.epochs)


class ShardRecords:
    """All shards of a cluster, as the coordinator's ledger has them.

    `database`: the ledger's.
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
                tuple(epochs[at : at + _EPOCH] for at in range(0, len(epochs), _EPOCH)),
            )
            for number, identity, link, clock, head, epochs in rows
        ]
        self._written = [one.row() for one in self._records]

    def __iter__(self) -> Iterator[ShardRecord]:
        return iter(self._records)

    @classmethod
    def of(cls, database: Database, cluster: ClusterDescription) -> Self:
        """Return the shards that a coordinator knows.

        Raises StoreOutdated if they are not those of the cluster's description, all of them.
        """
        records = cls(database)
        numbers = list(range(cluster.shards))
        if records.cluster != cluster.identity or [one.number for one in records] != numbers:
            raise StoreOutdated(
                f"The cluster's description names {cluster.shards} shards, and its coordinator has "
                "others. Bring back the cluster.json and the coordinator that belong together."
            )
        return records

    def replace_all(self, cluster: str, records: Iterable[ShardRecord]) -> None:
        """Write down, inside a transaction, which shards there are."""
        self._records, self._written = list(records), []
        self._database.put(CLUSTER, cluster)
        self.cluster = cluster
        self.write()

    def open(self) -> None:
        """Begin a new epoch, durably, before any shard is asked."""
        epoch = fresh_key(_EPOCH)
        for one in self._records:
            one.epochs = (*one.epochs, epoch)
        with self._database.transaction():
            self.write()

    def write(self) -> None:
        """Write down, inside a transaction, what has changed since the last time."""
        rows = [one.row() for one in self._records]
        if rows != self._written:
            self._database.replace(Tables.SHARDS, rows)
            self._written = rows
