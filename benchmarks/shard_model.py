"""What a cluster of any size costs, from constants measured on this one; see scaling.md.

Nothing here is a measurement: it says what follows if machines are as this one and the network
adds nothing but its delay and its bytes.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass

from vicinal.distributed._folders import MOST_SHARDS
from vicinal.neighbours import _scan

SIZES = (10**8, 10**9)
MACHINES = (1, 4, 16, 64, 256)
CORES, MEMORY = 16, 64 << 30
NETWORK, DELAY = 1.25e9, 0.0005
"""Of the machines that are read out: cores, bytes of memory, bytes and seconds of the network."""

UNITS = {
    "product": "s", "charge": "s", "write": "s", "block": "s", "engine": "s", "shard": "s",
    "commit": "s", "sent": "bytes", "received": "bytes", "charged": "bytes", "record": "bytes",
    "features": "", "queries": "",
}  # fmt: skip

_USABLE = 0.8
"""Share of the memory that records and budgets may take; the rest is for blocks and the system."""


@dataclass(frozen=True)
class Constants:
    """Measured constants.

    Attributes
    ----------
    product : float
        Seconds of a core, of the processor's time, for a record, a dimension and a query.
    charge : float
        Seconds of a core, of the processor's time, for a record in the charge of a block, of what
        all cores share: votes and charges of the neighbours, one record in 10,000 for each query,
        and whose budgets have changed.
    write : float
        The same of what one core does: ordering hits, digesting and writing charges.
    block : float
        Seconds of the processor for a block that do not depend on the records: coordinator, noise.
    engine : float
        Seconds that Ray adds to a block with one shard.
    shard : float
        Seconds that the coordinator works for a further shard: messages and sums.
    commit : float
        Seconds of a commit by the clock, the least that was seen: the disk's part.
    sent, received, charged : float
        Bytes of an order, of a shard's votes, and of charges written for a block.
    record : float
        Bytes of memory of a record with its budget.
    features, queries : int
        Of a record, and in a block, in these measurements.
    """

    product: float
    charge: float
    write: float
    block: float
    engine: float
    shard: float
    commit: float
    sent: float
    received: float
    charged: float
    record: float
    features: int
    queries: int

    def told(self) -> dict[str, str]:
        """Return every constant with its unit."""
        return {name: f"{value:.4g} {UNITS[name]}".rstrip() for name, value in asdict(self).items()}

    def search(self, records: int, machines: int, cores: int) -> float:
        """Return the seconds in which every machine goes through its records for a block."""
        share = math.ceil(records / machines)
        return self.product * share * self.features * self.queries / cores

    def charging(self, records: int, machines: int, cores: int = CORES) -> float:
        """Return the seconds in which every machine charges a block, durably."""
        share = math.ceil(records / machines)
        return (self.charge / cores + self.write) * share + self.commit

    def others(self, machines: int, delay: float = DELAY) -> float:
        """Return the seconds of a block in which a shard waits for its next charge."""
        each = self.shard + (self.sent + self.received) / NETWORK
        way = self.engine + 2 * delay
        return self.block + self.commit + way + machines * each - self.shard

    def latency(self, records: int, machines: int, cores: int = CORES) -> float:
        """Return the seconds of a block that is alone."""
        return (
            self.search(records, machines, cores)
            + self.charging(records, machines, cores)
            + self.others(machines)
        )

    def period(self, records: int, machines: int, cores: int = CORES) -> float:
        """Return the seconds from one block to the next, of many: two are under way.

        A shard searches the next block while everything else is done for the last, and charges it
        when both are over.
        """
        waiting = self.others(machines)
        searching = self.search(records, machines, cores)
        return self.charging(records, machines, cores) + max(searching, waiting)

    def seconds_apart(
        self, records: int, machines: int, delay: float, *, together: bool = False
    ) -> float:
        """Return the seconds of a block on machines that share this one's cores.

        Blocks one after the other, or `together`: two under way.
        """
        searching, waiting = self.search(records, 1, _scan.THREADS), self.others(machines, delay)
        both = max(searching, waiting) if together else searching + waiting
        return self.charging(records, 1, _scan.THREADS) + both

    def milliseconds(self, records: int, machines: int) -> float:
        """Return the milliseconds a query takes, where two blocks are under way."""
        return 1e3 * self.period(records, machines) / self.queries

    def fewest(self, records: int, memory: int = MEMORY) -> int:
        """Return how many machines hold the records."""
        return math.ceil(records * self.record / (_USABLE * memory))

    def enough(self, records: int) -> int:
        """Return with how many machines a block is searched in the time that all else takes.

        With more of them it is not answered sooner. None so far may be enough.
        """
        return next((m for m in range(1, MOST_SHARDS) if self._waits(records, m)), MOST_SHARDS)

    def _waits(self, records: int, machines: int) -> bool:
        return self.search(records, machines, CORES) <= self.others(machines)


def read_out(constants: Constants) -> dict[str, dict[str, object]]:
    """Return what follows for large data, by number of records."""
    return {f"{records:.0e} records": _read_out(constants, records) for records in SIZES}


def _read_out(constants: Constants, records: int) -> dict[str, object]:
    fewest = constants.fewest(records)
    machines = [number for number in MACHINES if number >= fewest]

    def by_machines(figure: Callable[[int], float]) -> dict[str, float]:
        return {str(number): figure(number) for number in machines}

    return {
        "machines for the memory": fewest,
        "memory in GiB": records * constants.record / 2**30,
        "machines that are enough": constants.enough(records),
        "ms a query, by machines": by_machines(lambda m: constants.milliseconds(records, m)),
        "of these, searching": by_machines(
            lambda m: 1e3 * constants.search(records, m, CORES) / constants.queries
        ),
        "of these, charging": by_machines(
            lambda m: 1e3 * constants.charging(records, m) / constants.queries
        ),
        "one block at a time": by_machines(
            lambda m: 1e3 * constants.latency(records, m) / constants.queries
        ),
        "everything else in ms a block": by_machines(lambda m: 1e3 * constants.others(m)),
    }
