"""What a connection may do before and between requests: bytes and time of a head, and waiting.

uvicorn hands the application a request once its head is complete. Until then nothing of ours runs,
and uvicorn's parser (httptools) bounds neither the head, nor chunks and trailers, nor the time; so
they are bounded here.
"""

from __future__ import annotations

import asyncio

from uvicorn.protocols.http.httptools_impl import (
    STATUS_LINE,
    HttpToolsProtocol,
    RequestResponseCycle,
)

from vicinal.serving._metrics import Metrics
from vicinal.serving._middleware import API_HEADERS
from vicinal.serving._problems import Problem, busy
from vicinal.serving._settings import ServiceSettings

_SLICE = 8 << 10
"""Bytes that the parser gets at once, so that it stops soon after a bound is passed."""
_PIPELINED = 8
"""Requests that a connection may send before it has read the answer to the first."""


class ConnectionGuard:
    """What all connections of a service share: bounds, and which of them wait for a request."""

    def __init__(self, settings: ServiceSettings, most: int, metrics: Metrics) -> None:
        self.settings = settings
        self.most = most
        self.metrics = metrics
        self.waiting: dict[BoundedHttpProtocol, None] = {}

    def drop_longest_waiting(self) -> bool:
        """Drop the connection that has waited longest without a request; tell if there was one."""
        longest = next(iter(self.waiting), None)
        if longest is not None:
            longest.drop("evicted")
        return longest is not None

    def protocol(self) -> type[BoundedHttpProtocol]:
        """Return the class that uvicorn makes for every connection."""
        return type("GuardedHttpProtocol", (BoundedHttpProtocol,), {"guard": self})


class BoundedHttpProtocol(HttpToolsProtocol):
    """One connection.

    It is dropped if it sends no complete head in time, does not read its response in time, or sends
    a longer head, more headers or more framing than allowed. When there are too many connections,
    a new one takes the place of the one that has waited longest without a request, so that idle
    ones keep no client out.
    """

    guard: ConnectionGuard

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take a connection, or refuse it."""
        super().connection_made(transport)  # type: ignore[arg-type]
        self._timer: asyncio.TimerHandle | None = None
        self._framing = self._body = self._headers = 0
        self._problem: Problem | None = None
        full = len(self.connections) > self.guard.most
        self.guard.metrics.connections = len(self.connections)
        if full and not self.guard.drop_longest_waiting():
            self._refuse(busy(), "too-many")
        else:
            self._wait(self.guard.settings.head_seconds)

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        self._stop_waiting()
        super().connection_lost(exc)
        self.guard.metrics.connections = len(self.connections)

    def data_received(self, data: bytes) -> None:
        """Parse what has come, a slice at a time."""
        for start in range(0, len(data), _SLICE):
            if self.transport.is_closing():
                return
            part = data[start : start + _SLICE]
            self._framing += len(part)
            super().data_received(part)
            # Chunks of a body and its trailers may need as many bytes again as the body.
            excess = self._framing - self.guard.settings.head_bytes - self._body
            if excess > 0 and not self.transport.is_closing():
                self._refuse(_large_head(), "head-too-large")

    # ------------------------------------------------------------ called by the parser

    def on_message_begin(self) -> None:
        """Count anew; what has come of this head so far is less than a slice."""
        if len(self.pipeline) >= _PIPELINED:
            raise self._refused_by(_large_head())
        super().on_message_begin()
        self._framing = self._body = self._headers = 0

    def on_header(self, name: bytes, value: bytes) -> None:
        """Count a header, or a trailer."""
        self._headers += 1
        if self._headers > self.guard.settings.head_headers:
            raise self._refused_by(_large_head())
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Begin to answer: from here the application keeps time."""
        super().on_headers_complete()
        self._stop_waiting()

    def on_body(self, body: bytes) -> None:
        """Take a part of a body, which the application bounds."""
        self._framing -= len(body)
        self._body += len(body)
        super().on_body(body)

    def on_response_complete(self) -> None:
        """Wait for the next request, unless it is there already."""
        super().on_response_complete()
        if not self._answering():
            self._wait(self.guard.settings.idle_seconds)

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002 (uvicorn's, in its words)
        """Answer what is no request, or not one that is taken."""
        self._refuse(self._problem or _malformed(), "malformed")

    # ------------------------------------------------------------ called by the transport

    def pause_writing(self) -> None:
        """Give a client that does not read its response a time to do so."""
        super().pause_writing()
        self._wait(self.guard.settings.idle_seconds)

    def resume_writing(self) -> None:
        """Go on; what was sent has been read."""
        super().resume_writing()
        if self._answering():
            self._stop_waiting()

    # ------------------------------------------------------------ waiting, and the end of it

    def drop(self, reason: str) -> None:
        """End the connection at once, whatever is not yet sent."""
        self._stop_waiting()
        self.guard.metrics.dropped[reason] += 1
        self.connections.discard(self)
        self.transport.abort()

    def _answering(self) -> bool:
        """Tell whether the application has a request of this connection."""
        cycle: RequestResponseCycle | None = self.cycle
        return cycle is not None and not cycle.response_complete

    def _wait(self, seconds: float) -> None:
        self._stop_waiting()
        self.guard.waiting[self] = None
        self._timer = self.loop.call_later(seconds, self.drop, "too-slow")

    def _stop_waiting(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            del self.guard.waiting[self]

    def _refused_by(self, problem: Problem) -> Problem:
        self._problem = problem
        return problem

    def _refuse(self, problem: Problem, reason: str) -> None:
        """Send a problem and close; where it would run into another response, only close."""
        if self.pipeline or (self._answering() and self.cycle.response_started):
            self.drop(reason)
            return
        self.guard.metrics.dropped[reason] += 1
        response = problem.response()
        lines = [STATUS_LINE[problem.status], b"connection: close\r\n"]
        lines += [b"%s: %s\r\n" % header for header in (*response.raw_headers, *API_HEADERS)]
        self.transport.write(b"".join([*lines, b"\r\n", response.body]))
        self.transport.close()
        self._wait(self.guard.settings.head_seconds)


def _large_head() -> Problem:
    return Problem(431, "head-too-large", "The request's line and headers are too long.")


def _malformed() -> Problem:
    return Problem(400, "bad-request", "This is no HTTP/1.1 request.")
