"""What an operator may choose about the service."""

from dataclasses import dataclass

from vicinal import checks


@dataclass(frozen=True, slots=True)
class ServiceSettings:
    """Limits and rhythm of a service.

    Attributes
    ----------
    connections : int or None
        Most connections at once; None: as many as the limit of open files allows, 2,048 at most.
    head_bytes : int
        Longest request line and headers, and longest framing of a chunked body beyond the body.
    head_headers : int
        Most headers of a request.
    head_seconds : float
        How long a new connection may take to send its first request's head.
    idle_seconds : float
        How long a connection may stay open without a request, or without reading its response.
    body_bytes : int or None
        Longest request body; None: what `request_queries` rows of the store can need.
    body_seconds : float
        How long a body may take to arrive.
    bodies_bytes : int
        Memory for all bodies that are arriving or being decoded; beyond it requests get 503.
    request_queries : int
        Most queries in a request.
    block_queries : int
        A block takes no further request once it holds so many queries.
    wait_ms : float
        How long a block that is not full waits for others to join. A single request that follows
        a block of one request does not wait.
    waiting_queries : int
        Queries that may wait for a block; beyond that requests get 503.
    rate, burst : float
        Requests a second of one key, and how many it may send at once; rate 0: no limit.
    response_interval_ms : float
        Blocks begin, and answers leave, at multiples of this only; 0: as soon as they can.

    Examples
    --------
    >>> from vicinal.serving import ServiceSettings
    >>> ServiceSettings(rate=10.0, response_interval_ms=50.0).block_queries
    256
    """

    connections: int | None = None
    head_bytes: int = 32 << 10
    head_headers: int = 100
    head_seconds: float = 10.0
    idle_seconds: float = 30.0
    body_bytes: int | None = None
    body_seconds: float = 20.0
    bodies_bytes: int = 128 << 20
    request_queries: int = 1024
    block_queries: int = 256
    wait_ms: float = 2.0
    waiting_queries: int = 4096
    rate: float = 100.0
    burst: float = 200.0
    response_interval_ms: float = 0.0

    def __post_init__(self) -> None:
        for name, least in (("connections", 1), ("body_bytes", 1024)):
            if getattr(self, name) is not None:
                checks.check_integer(name, getattr(self, name), least=least)
        for name in ("head_bytes", "bodies_bytes"):
            checks.check_integer(name, getattr(self, name), least=1024)
        for name in ("head_seconds", "idle_seconds", "body_seconds"):
            checks.check_real(name, getattr(self, name), above=0)
        for name in ("head_headers", "request_queries", "block_queries", "waiting_queries"):
            checks.check_integer(name, getattr(self, name), least=1)
        for name in ("wait_ms", "rate", "response_interval_ms"):
            checks.check_real(name, getattr(self, name), least=0)
        checks.check_real("burst", self.burst, least=1)
        # Else an admissible request could never be taken.
        checks.check_integer("waiting_queries", self.waiting_queries, least=self.request_queries)
