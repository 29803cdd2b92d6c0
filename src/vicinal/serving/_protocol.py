"""The outermost layers: limits of connections, security headers and a log line per request.

uvicorn calls the application once the head of a request is complete. Before that, its parser
(httptools) limits neither the size of head, chunk framing and trailers nor the time for them, so
this module does.
"""

from __future__ import annotations

import asyncio
import logging
import time
import traceback
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from starlette.requests import Request
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import (
    STATUS_LINE,
    HttpToolsProtocol,
    RequestResponseCycle,
)

from vicinal.serving._metrics import Metrics
from vicinal.serving._problems import Problem
from vicinal.serving.settings import ServiceSettings

_LOG = logging.getLogger("vicinal.serving")

_API_POLICY = "default-src 'none'; frame-ancestors 'none'"
_CONSOLE_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob: data:; "
    "connect-src 'self'; form-action 'none'; base-uri 'none'; frame-ancestors 'none'"
)
_COMMON_HEADERS = [
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cache-control", b"no-store"),
    (b"x-frame-options", b"DENY"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"permissions-policy", b"camera=(), geolocation=(), microphone=()"),
]
API_HEADERS = [*_COMMON_HEADERS, (b"content-security-policy", _API_POLICY.encode())]
_CONSOLE_HEADERS = [*_COMMON_HEADERS, (b"content-security-policy", _CONSOLE_POLICY.encode())]
_METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")


class SecurityHeadersMiddleware:
    """Adds security headers to every response and converts unexpected exceptions to problem 500.

    `direct_routes` are called without the router, which would take a fifth of the processor time
    of a prediction. `scope`, `receive` and `send` are the arguments of an ASGI application.
    """

    def __init__(self, app: ASGIApp, metrics: Metrics, direct_routes: Sequence[Route] = ()) -> None:
        self._app = app
        self._metrics = metrics
        self._direct_routes = {
            (method, route.path): route for route in direct_routes for method in route.methods or ()
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle an HTTP request or the lifespan; refuse WebSockets (policy violation)."""
        if scope["type"] == "http":
            await self._handle_request(scope, receive, send)
        elif scope["type"] == "lifespan":
            await self._app(scope, receive, send)
        else:
            await send({"type": "websocket.close", "code": 1008})

    async def _handle_request(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer an HTTP request with security headers, then count and log it."""
        start_time = time.perf_counter()
        status = 0
        security_headers = _CONSOLE_HEADERS if scope["path"].startswith("/console") else API_HEADERS

        async def send_with_headers(message: Message) -> None:
            """Send an ASGI message; add the headers to the start of the response."""
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message["headers"], *security_headers]
            await send(message)

        try:
            direct_route = self._direct_routes.get((scope["method"], scope["path"]))
            if direct_route is None:
                await self._app(scope, receive, send_with_headers)
            else:
                await _call_endpoint(direct_route, scope, receive, send_with_headers)
        except Exception as error:  # noqa: BLE001 (reported as problem 500 and in the log)
            # The innermost files and lines, without the message, which may quote input.
            frames = traceback.extract_tb(error.__traceback__)[-3:]
            location = ", ".join(f"{Path(frame.filename).name}:{frame.lineno}" for frame in frames)
            _LOG.error("%s at %s", type(error).__name__, location)
            if not status:
                detail = (
                    "An internal error occurred. Repeat the request with the same "
                    "Idempotency-Key: it is not charged twice."
                )
                response = Problem(500, "internal", detail).build_response()
                await response(scope, receive, send_with_headers)
        # Log the template of the path, never the path: it may contain a subject id.
        path = str(getattr(scope.get("route"), "path_format", "other"))
        method = scope["method"] if scope["method"] in _METHODS else "other"
        self._metrics.requests[path, method, status] += 1
        _LOG.info(
            "%s %s %d %.1f ms", method, path, status, 1e3 * (time.perf_counter() - start_time)
        )


async def _call_endpoint(route: Route, scope: Scope, receive: Receive, send: Send) -> None:
    """Call the endpoint of a route as the router does, and send problems as responses."""
    scope["route"] = route
    try:
        response = await route.endpoint(Request(scope, receive, send))
    except Problem as problem:
        response = problem.build_response()
    await response(scope, receive, send)


_SLICE_BYTES = 8 << 10
"""Bytes passed to the parser at once, so that parsing stops soon after a limit is exceeded."""
_MALFORMED = Problem(400, "bad-request", "This is not an HTTP/1.1 request.")
_MAX_PIPELINED = 8  # requests that a connection may send before it reads the response to the first


@dataclass(eq=False)
class ConnectionGuard:
    """State shared by all connections: limits, metrics, and the idle connections, oldest first."""

    settings: ServiceSettings
    max_connections: int
    metrics: Metrics
    idle: dict[BoundedHttpProtocol, None] = field(default_factory=dict)

    def drop_longest_idle(self) -> bool:
        """Drop the connection that has been idle longest; return whether there was one."""
        connection = next(iter(self.idle), None)
        if connection is not None:
            connection.drop("evicted")
        return connection is not None

    def make_protocol_class(self) -> type[BoundedHttpProtocol]:
        """Return the class of which uvicorn creates an instance per connection."""
        return type("GuardedHttpProtocol", (BoundedHttpProtocol,), {"guard": self})


class BoundedHttpProtocol(HttpToolsProtocol):
    """A connection with limits.

    It is dropped if it does not complete a request head or read its response in time, or if it
    exceeds the limits of head bytes, headers or chunk framing. At the maximum number of
    connections, a new connection evicts the one that has been idle longest. `guard` has the shared
    limits. *The timer* drops a connection that waits too long for a request, or for the client to
    read.

    The public methods except `drop` override callbacks. The event loop calls `connection_made`,
    `data_received` for every block of bytes, `connection_lost`, and `pause_writing` and
    `resume_writing` around the time in which a client does not read. Inside `data_received` the
    parser calls, for each request, `on_message_begin`, `on_header` for each header,
    `on_headers_complete` and `on_body` for each part of the body; if one of them raises a problem,
    uvicorn calls `send_400_response`. `on_response_complete` follows the response.
    """

    guard: ConnectionGuard

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start the timer of the first request, or refuse a connection above the maximum."""
        super().connection_made(transport)  # type: ignore[arg-type]
        self._timer: asyncio.TimerHandle | None = None
        self._non_body_bytes = self._body_bytes = self._n_headers = 0
        self._problem: Problem | None = None
        is_full = len(self.connections) > self.guard.max_connections
        self.guard.metrics.connections = len(self.connections)
        if is_full and not self.guard.drop_longest_idle():
            self._refuse(Problem.from_overload(), "too-many")
        else:
            self._start_timer(self.guard.settings.head_seconds)

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the timer and update the number of connections."""
        self._stop_timer()
        super().connection_lost(exc)
        self.guard.metrics.connections = len(self.connections)

    def data_received(self, data: bytes) -> None:
        """Parse received bytes in slices; refuse a request with too large a head or framing."""
        for start in range(0, len(data), _SLICE_BYTES):
            if self.transport.is_closing():
                return
            slice_ = data[start : start + _SLICE_BYTES]
            self._non_body_bytes += len(slice_)
            super().data_received(slice_)
            # Chunk framing and trailers may take as many bytes as the body itself.
            excess_bytes = self._non_body_bytes - self.guard.settings.head_bytes - self._body_bytes
            if excess_bytes > 0 and not self.transport.is_closing():
                self._refuse(_large_head_problem(), "head-too-large")

    def on_message_begin(self) -> None:
        """Reset the counts for a new request; raise a problem if too many are pipelined."""
        if len(self.pipeline) >= _MAX_PIPELINED:
            raise self._record_problem(_large_head_problem())
        super().on_message_begin()
        # The part of the head that was read already, less than a slice, is not counted.
        self._non_body_bytes = self._body_bytes = self._n_headers = 0

    def on_header(self, name: bytes, value: bytes) -> None:
        """Count a header; raise a problem if the request has too many."""
        self._n_headers += 1
        if self._n_headers > self.guard.settings.head_headers:
            raise self._record_problem(_large_head_problem())
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Pass the request to the application; raise a problem for its Host or its encoding."""
        # RFC 9112, 3.2: without exactly one Host header, a proxy may interpret another host.
        n_hosts = sum(name == b"host" for name, _ in self.headers)
        if n_hosts != 1 and self.parser.get_http_version() == "1.1":
            detail = "An HTTP/1.1 request must have exactly one Host header."
            raise self._record_problem(Problem(400, "bad-request", detail))
        # RFC 9112, 6.1: refused here, so that no route, even one that reads no body, is reached.
        encodings = [value for name, value in self.headers if name == b"transfer-encoding"]
        if encodings and b",".join(encodings).strip().lower() != b"chunked":
            detail = "Send the body unchanged or with the transfer encoding chunked alone."
            raise self._record_problem(Problem(501, "transfer-encoding", detail))
        super().on_headers_complete()
        self._stop_timer()  # The application limits the time from here on.

    def on_body(self, body: bytes) -> None:
        """Count a received part of the body as bytes of the body, not of head and framing."""
        self._non_body_bytes -= len(body)
        self._body_bytes += len(body)
        super().on_body(body)

    def on_response_complete(self) -> None:
        """Start the timer of an idle connection, unless another request is being answered."""
        super().on_response_complete()
        if not self._is_answering():
            self._start_timer(self.guard.settings.idle_seconds)

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002 (a method of uvicorn)
        """Send the problem recorded by the parser's callbacks instead of uvicorn's text `msg`."""
        self._refuse(self._problem or _MALFORMED, "malformed")

    def pause_writing(self) -> None:
        """Start the timer for a client that does not read its response."""
        super().pause_writing()
        self._start_timer(self.guard.settings.idle_seconds)

    def resume_writing(self) -> None:
        """Stop the timer once the client reads again, unless its response is complete."""
        super().resume_writing()
        if self._is_answering():
            self._stop_timer()

    def drop(self, reason: str) -> None:
        """Close the connection at once and discard unsent bytes; `reason` labels the metric."""
        self._stop_timer()
        self.guard.metrics.dropped[reason] += 1
        self.connections.discard(self)
        self.transport.abort()

    def _is_answering(self) -> bool:
        """Return whether a response has not been sent completely."""
        cycle: RequestResponseCycle | None = self.cycle
        return cycle is not None and not cycle.response_complete

    def _start_timer(self, seconds: float) -> None:
        """Mark the connection as idle, and drop it after `seconds` unless the timer is stopped."""
        self._stop_timer()
        self.guard.idle[self] = None
        self._timer = self.loop.call_later(seconds, self.drop, "too-slow")

    def _stop_timer(self) -> None:
        """Stop the timer, if it runs, and unmark the connection as idle."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            del self.guard.idle[self]

    def _record_problem(self, problem: Problem) -> Problem:
        """Keep a problem for `send_400_response`, which uvicorn calls for any parser error."""
        self._problem = problem
        return problem

    def _refuse(self, problem: Problem, reason: str) -> None:
        """Send a problem and close, or only close during a response; `reason` labels the metric."""
        if self.pipeline or (self._is_answering() and self.cycle.response_started):
            self.drop(reason)
            return
        self.guard.metrics.dropped[reason] += 1
        response = problem.build_response()
        lines = [STATUS_LINE[problem.status], b"connection: close\r\n"]
        lines += [b"%s: %s\r\n" % header for header in (*response.raw_headers, *API_HEADERS)]
        self.transport.write(b"".join([*lines, b"\r\n", response.body]))
        self.transport.close()
        self._start_timer(self.guard.settings.head_seconds)


def _large_head_problem() -> Problem:
    # A new instance each time: a reused exception would keep every traceback and connection alive.
    return Problem(431, "head-too-large", "The request line and headers are too long.")
