"""Settings of the service that its operator chooses."""

from dataclasses import dataclass

from vicinal import checks


@dataclass(frozen=True, slots=True)
class ServiceSettings:
    """Limits and timing of the service.

    Attributes
    ----------
    connections : int or None
        Maximum number of connections; None: as the limit of open files permits, at most 2,048.
    head_bytes : int
        Maximum size of request line and headers, and of the framing of a chunked body.
    head_headers : int
        Maximum number of headers of a request.
    head_seconds : float
        Time in which a new connection must send the head of its first request.
    idle_seconds : float
        Time that a connection may stay open without a request, or without reading its response.
    body_bytes : int or None
        Maximum size of a request body; None: enough for `request_queries` rows of the store.
    body_seconds : float
        Time in which a body must arrive.
    bodies_bytes : int
        Bytes of memory for all request bodies together that are being received or decoded; further
        requests get status 503.
    request_queries : int
        Maximum number of queries in a request.
    block_queries : int
        Maximum number of queries in a block of several requests.
    wait_ms : float
        Time that a block waits for further requests before it starts. A single request after a
        block of one request does not wait.
    waiting_queries : int
        Maximum number of queries that wait for a block; further requests get status 503.
    rate, burst : float
        Requests per second of one key, and how many it may send at once; rate 0: no limit.
    response_interval_ms : float
        Blocks start and responses are sent only at multiples of this time; 0: immediately.

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
        """Raise InvalidInput for a value that is no number or out of range."""
        for name, minimum in (("connections", 1), ("body_bytes", 1024)):
            if getattr(self, name) is not None:
                checks.check_integer(name, getattr(self, name), minimum=minimum)
        for name in ("head_bytes", "bodies_bytes"):
            checks.check_integer(name, getattr(self, name), minimum=1024)
        for name in ("head_seconds", "idle_seconds", "body_seconds"):
            checks.check_real(name, getattr(self, name), above=0)
        for name in ("head_headers", "request_queries", "block_queries", "waiting_queries"):
            checks.check_integer(name, getattr(self, name), minimum=1)
        for name in ("wait_ms", "rate", "response_interval_ms"):
            checks.check_real(name, getattr(self, name), minimum=0)
        checks.check_real("burst", self.burst, minimum=1)
        # Otherwise the largest permitted request could never be accepted.
        checks.check_integer("waiting_queries", self.waiting_queries, minimum=self.request_queries)
