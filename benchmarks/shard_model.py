"""What a cluster of any size costs, from constants measured on this one; see scaling.md.

Nothing here is a measurement: it says what follows if machines are as this one and the network
adds nothing but its delay and its bytes.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass

from vicinal.neighbours import _scan

SIZES = (10**8, 10**9)
MACHINES = (1, 4, 16, 64, 256)
CORES, MEMORY = 16, 64 << 30
NETWORK, DELAY = 1.25e9, 0.0005
"""Of the machines that are read out: cores, bytes of memory, bytes and seconds of the network."""

UNITS = {
    "product": "s", "block": "s", "engine": "s", "shard": "s", "commit": "s", "sent": "bytes",
    "received": "bytes", "charged": "bytes", "record": "bytes", "features": "", "queries": "",
}  # fmt: skip

_USABLE = 0.8
"""Share of the memory that records and budgets may take; the rest is for blocks and the system."""


@dataclass(frozen=True)
class Constants:
    """Measured constants.

    Attributes
    ----------
    product : float
        Seconds of a core for a record, a dimension and a query, with its share of charging.
    block : float
        Seconds of a block that do not depend on the records: coordinator, noise, both commits.
    engine : float
        Seconds that Ray adds to a block with one shard.
    shard : float
        Seconds that the coordinator works for a further shard: messages and sums.
    commit : float
        Seconds of one shard's commit; part of `block`.
    sent, received, charged : float
        Bytes of an order, of a shard's votes, and of charges written for a block.
    record : float
        Bytes of memory of a record with its budget.
    features, queries : int
        Of a record, and in a block, in these measurements.
    """

    product: float
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

    def scan(self, records: int, machines: int, cores: int) -> float:
        """Return the seconds in which every machine goes through its records for a block."""
        share = math.ceil(records / machines)
        return self.product * share * self.features * self.queries / cores

    def overhead(self, machines: int, delay: float = DELAY) -> float:
        """Return the seconds of a block that more cores do not shorten."""
        wire = machines * (self.sent + self.received) / NETWORK
        return self.block + self.engine + (machines - 1) * self.shard + 2 * delay + wire

    def seconds_apart(self, records: int, machines: int, delay: float) -> float:
        """Return the seconds of a block on machines that share this one's cores."""
        return self.scan(records, 1, _scan.THREADS) + self.overhead(machines, delay)

    def milliseconds(self, records: int, machines: int, cores: int = CORES) -> float:
        """Return the milliseconds a query takes."""
        seconds = self.scan(records, machines, cores) + self.overhead(machines)
        return 1e3 * seconds / self.queries

    def fewest(self, records: int, memory: int = MEMORY) -> int:
        """Return how many machines hold the records."""
        return math.ceil(records * self.record / (_USABLE * memory))

    def most(self, records: int, cores: int = CORES) -> int:
        """Return with how many machines a block is fastest: more add more than they take away.

        Scanning takes A/m and messages B m; the sum is least at sqrt(A/B).
        """
        each = self.shard + (self.sent + self.received) / NETWORK
        return max(1, round(math.sqrt(self.scan(records, 1, cores) / each))) if each else 0


def read_out(constants: Constants) -> dict[str, dict[str, object]]:
    """Return what follows for large data, by number of records."""
    return {
        f"{records:.0e} records": {
            "machines for the memory": constants.fewest(records),
            "memory in GiB": records * constants.record / 2**30,
            "fastest number of machines": constants.most(records),
            "ms a query, by machines": {
                str(machines): constants.milliseconds(records, machines)
                for machines in MACHINES
                if machines >= constants.fewest(records)
            },
            "overhead in ms a block": {
                str(machines): 1e3 * constants.overhead(machines) for machines in MACHINES
            },
        }
        for records in SIZES
    }
