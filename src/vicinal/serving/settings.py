"""What an operator may choose about the service."""

from __future__ import annotations

from dataclasses import dataclass

from vicinal import checks


@dataclass(frozen=True, slots=True)
class Settings:
    """Limits and rhythm of a service.

    Attributes
    ----------
    body_bytes : int
        Longest request body; more is refused while it is being read.
    body_seconds : float
        How long a body may take to arrive.
    request_queries : int
        Most queries in a request.
    block_queries : int
        A block takes no further request once it holds so many queries.
    wait_ms : float
        How long a block that is not full waits for others to join.
    waiting_queries : int
        Queries that may wait for a block; beyond that requests are told to come back (503).
    rate, burst : float
        Requests a second of one key, and how many it may send at once; rate 0: no limit.
    pace_ms : float
        Blocks begin, and answers leave, at multiples of this only; 0: as soon as they can.
    """

    body_bytes: int = 8 << 20
    body_seconds: float = 20.0
    request_queries: int = 1024
    block_queries: int = 256
    wait_ms: float = 2.0
    waiting_queries: int = 4096
    rate: float = 100.0
    burst: float = 200.0
    pace_ms: float = 0.0

    def __post_init__(self) -> None:
        """Refuse what cannot be."""
        checks.integer("body_bytes", self.body_bytes, least=1024)
        checks.real("body_seconds", self.body_seconds, above=0)
        for name in ("request_queries", "block_queries", "waiting_queries"):
            checks.integer(name, getattr(self, name), least=1)
        for name in ("wait_ms", "rate", "pace_ms"):
            checks.real(name, getattr(self, name), least=0)
        checks.real("burst", self.burst, least=1)
        # Else an admissible request could never be taken.
        checks.integer("waiting_queries", self.waiting_queries, least=self.request_queries)
