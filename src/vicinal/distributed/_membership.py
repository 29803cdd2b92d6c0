"""What the coordinator's ledger keeps of every shard: which folder it is, and how far it was seen.

A shard's folder and witness can be copied, or put back to an earlier state, together: then nothing
in them tells. So the coordinator remembers the last link of each shard's chain that it has seen,
in the transactions that make its own answers durable. A shard may be further than that, by links
that follow one another: its commit comes before the coordinator's. Behind, or on another way, it
is not the shard that was charged.

A shard may have several copies, in folders of their own. They have one id, do the same tasks in the
same order, and so have one chain. The state that the coordinator keeps is the last one that all of
them were in: a copy that was there has all charges of all released answers, another one is refused.

The other way round a shard remembers the coordinator's epoch, drawn anew at each opening. The
coordinator shows which epochs it had since the shard last answered; one that cannot show the epoch
that a shard knows is a copy, and another coordinator has asked the shard since.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from threading import Lock
from typing import Self

from vicinal.distributed._folders import ClusterDescription
from vicinal.distributed._messages import ShardState
from vicinal.errors import StoreOutdated
from vicinal.ledger._chain import ChainLink
from vicinal.ledger._database import Database
from vicinal.mechanisms import fresh_key

CLUSTER, _NUMBER, _LAST_EPOCH = "cluster", "number", "coordinator"
"""Where a part's ledger keeps its cluster, its place as a shard, and the coordinator's epoch."""

_COPIES = "copies"
"""Where the coordinator's ledger keeps which copies each shard has; not there: the first alone."""

_EPOCH = 16
_WRITE = (
    "INSERT INTO shards (number, id, link, clock, head, epochs) VALUES (?, ?, ?, ?, ?, ?) "
    "ON CONFLICT (number) DO UPDATE SET id = excluded.id, link = excluded.link, "
    "clock = excluded.clock, head = excluded.head, epochs = excluded.epochs"
)


def member_of(database: Database) -> tuple[str, int] | None:
    """Return the cluster that a shard's ledger belongs to, and its place there; None if to none."""
    cluster, number = database.get(CLUSTER), database.get(_NUMBER)
    return None if cluster is None or number is None else (cluster, int(number))


def known_epoch(database: Database) -> bytes | None:
    """Return the coordinator's epoch that a shard knows, or None."""
    epoch = database.get(_LAST_EPOCH)
    return bytes.fromhex(epoch) if epoch else None


def write_epoch(database: Database, epoch: bytes) -> None:
    """Write down an epoch, inside a transaction; an empty one: the next that comes."""
    database.put(_LAST_EPOCH, epoch.hex())


def join(database: Database, cluster: str, number: int) -> None:
    """Write down, inside a transaction, that a ledger is that of a shard of a cluster."""
    database.put(CLUSTER, cluster)
    database.put(_NUMBER, str(number))


def links_after(database: Database, state: ShardState) -> tuple[ChainLink, ...] | None:
    """Return the links of a ledger since `state`; None if it never was in that state."""
    rows = database.execute(
        "SELECT number, clock, content, head FROM chain WHERE number >= ? ORDER BY number",
        (state.link,),
    )
    links = [ChainLink(*row) for row in rows]
    if not links or (links[0].number, links[0].head) != (state.link, state.head):
        return None
    return tuple(links[1:])


class ShardRecord:
    """What the coordinator knows of one shard, used by any thread: its place, id and copies.

    `state`: how far it was when it last answered. `epochs`: the coordinator's since then.
    """

    def __init__(
        self,
        number: int,
        identity: str,
        state: ShardState,
        epochs: tuple[bytes, ...] = (),
        copies: tuple[int, ...] = (1,),
    ) -> None:
        self.number = number
        self.identity = identity
        self.state = state
        self.epochs = epochs
        self.copies = copies
        self._lock = Lock()

    def accept(self, state: ShardState, *answers: Sequence[ChainLink]) -> bool:
        """Take note of the answers of all copies: of the links of their chains after `state`.

        Returns whether the copies go one way, on which one may be further than the other. Raises
        StoreOutdated if they do not lead through the state that is known.
        """
        paths = [state.path(links) for links in answers]
        with self._lock:
            known = [path for path in paths if path is not None and self._agrees(path)]
            if len(known) < len(paths):
                raise StoreOutdated(
                    f"Shard {self.number} went another way than the coordinator saw it go. Bring "
                    "back the folder that belongs there."
                )
            # A head stands for the whole way: states that agree come before those that do not.
            shared = [states[0] for states in zip(*known, strict=False) if len(set(states)) == 1]
            self.epochs = self.epochs[-1:]
            if shared[-1].link > self.state.link:
                self.state = shared[-1]
        return len(shared) == min(map(len, known))

    def row(self) -> tuple[int, str, int, int, bytes, bytes]:
        """Return its row in the table `shards`."""
        at = self.state
        return self.number, self.identity, at.link, at.clock, at.head, b"".join(self.epochs)

    def _agrees(self, path: list[ShardState]) -> bool:
        """Tell whether a path leads over the known state, or to one before it."""
        here = {one.link: one for one in path}
        return here.get(self.state.link, self.state) == self.state


class ShardRecords:
    """All shards of a cluster, as the coordinator's ledger has them.

    `database`: the ledger's.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self.cluster = database.get(CLUSTER)
        rows = database.execute(
            "SELECT number, id, link, clock, head, epochs FROM shards ORDER BY number"
        )
        self._records = [
            ShardRecord(number, identity, ShardState(link, clock, head), _cut(epochs))
            for number, identity, link, clock, head, epochs in rows
        ]
        listed = (database.get(_COPIES) or "").split()
        for record, copies in zip(self._records, listed, strict=False):
            record.copies = tuple(int(copy) for copy in copies.split(","))
        self._written = [one.row() for one in self._records]

    def __len__(self) -> int:
        """Return how many shards there are."""
        return len(self._records)

    def __iter__(self) -> Iterator[ShardRecord]:
        """Yield them by number."""
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
        self.write_copies()

    def write_copies(self) -> None:
        """Write down, inside a transaction, which copies each shard has."""
        self._database.put(_COPIES, " ".join(",".join(map(str, r.copies)) for r in self._records))

    def open(self, *some: ShardRecord) -> None:
        """Begin a new epoch, durably, for some shards or all; before any of them is asked."""
        epoch = fresh_key(_EPOCH)
        for one in some or self._records:
            one.epochs = (*one.epochs, epoch)
        with self._database.transaction():
            self.write()

    def write(self) -> None:
        """Write down, inside a transaction, what has changed since the last time."""
        rows = [one.row() for one in self._records]
        if rows != self._written:
            self._database.execute_many(_WRITE, rows)
            self._written = rows


def _cut(epochs: bytes) -> tuple[bytes, ...]:
    return tuple(epochs[at : at + _EPOCH] for at in range(0, len(epochs), _EPOCH))
