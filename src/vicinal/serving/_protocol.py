"""The outermost layers: what a connection may do, and headers and a log line for every request.

uvicorn hands the application a request once its head is complete. Until then nothing of ours runs,
and uvicorn's parser (httptools) bounds neither the head, nor chunks and trailers, nor the time; so
they are bounded here.
"""

from __future__ import annotations

import asyncio
import logging
import time
import traceback
from collections.abc import Sequence
from pathlib import Path

from starlette.requests import Request
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import (
    STATUS_LINE,
    HttpToolsProtocol,
    RequestResponseCycle,
)

from vicinal.serving._limits import Problem, busy
from vicinal.serving._state import Metrics
from vicinal.serving.settings import ServiceSettings

log = logging.getLogger("vicinal.serving")

_API_POLICY = "default-src 'none'; frame-ancestors 'none'"
_CONSOLE_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob: data:; "
    "connect-src 'self'; form-action 'none'; base-uri 'none'; frame-ancestors 'none'"
)
_COMMON = [
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cache-control", b"no-store"),
    (b"x-frame-options", b"DENY"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"permissions-policy", b"camera=(), geolocation=(), microphone=()"),
]
API_HEADERS = [*_COMMON, (b"content-security-policy", _API_POLICY.encode())]
_CONSOLE = [*_COMMON, (b"content-security-policy", _CONSOLE_POLICY.encode())]
_METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")


class SecurityHeadersMiddleware:
    """Adds headers to every response, and turns exceptions into problems.

    The routes in `direct` are called from here, past the router, which takes a fifth of the
    processor's time of a prediction.
    """

    def __init__(self, app: ASGIApp, metrics: Metrics, direct: Sequence[Route] = ()) -> None:
        self._app = app
        self._metrics = metrics
        self._direct = {(method, r.path): r for r in direct for method in r.methods or ()}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await self._http(scope, receive, send)
        elif scope["type"] == "lifespan":
            await self._app(scope, receive, send)
        else:
            await send({"type": "websocket.close", "code": 1008})

    async def _http(self, scope: Scope, receive: Receive, send: Send) -> None:
        begin, status = time.perf_counter(), 0
        extra = _CONSOLE if scope["path"].startswith("/console") else API_HEADERS

        async def with_headers(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message["headers"], *extra]
            await send(message)

        try:
            direct = self._direct.get((scope["method"], scope["path"]))
            if direct is None:
                await self._app(scope, receive, with_headers)
            else:
                await _answer(direct, scope, receive, with_headers)
        except Exception as error:  # noqa: BLE001 (the client gets a problem, the log a place)
            log.error("%s at %s", type(error).__name__, _place(error))
            if not status:
                detail = (
                    "Something went wrong. Send it again with the same Idempotency-Key: it costs "
                    "nothing."
                )
                await Problem(500, "internal", detail).response()(scope, receive, with_headers)
        # The path's template, never the path: an id of a subject may stand in it.
        path = str(getattr(scope.get("route"), "path_format", "other"))
        method = scope["method"] if scope["method"] in _METHODS else "other"
        self._metrics.requests[path, method, status] += 1
        log.info("%s %s %d %.1f ms", method, path, status, 1e3 * (time.perf_counter() - begin))


async def _answer(route: Route, scope: Scope, receive: Receive, send: Send) -> None:
    """Call the endpoint of a route as the router does; problems become responses."""
    scope["route"] = route
    try:
        response = await route.endpoint(Request(scope, receive, send))
    except Problem as problem:
        response = problem.response()
    await response(scope, receive, send)


def _place(error: BaseException) -> str:
    """Return where an error was raised; its message may hold what a client sent."""
    frames = traceback.extract_tb(error.__traceback__)
    return ", ".join(f"{Path(frame.filename).name}:{frame.lineno}" for frame in frames[-3:])


_SLICE = 8 << 10
"""Bytes that the parser gets at once, so that it stops soon after a bound is passed."""
_MALFORMED = Problem(400, "bad-request", "This is not an HTTP/1.1 request.")
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
        self._stop_waiting()
        super().connection_lost(exc)
        self.guard.metrics.connections = len(self.connections)

    def data_received(self, data: bytes) -> None:
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

    def on_message_begin(self) -> None:
        """Count anew; what has come of this head so far is less than a slice."""
        if len(self.pipeline) >= _PIPELINED:
            raise self._refused_by(_large_head())
        super().on_message_begin()
        self._framing = self._body = self._headers = 0

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers += 1
        if self._headers > self.guard.settings.head_headers:
            raise self._refused_by(_large_head())
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Begin to answer: from here the application keeps time."""
        # RFC 9112, 3.2: without it, or with two, a proxy may have taken another host than we.
        hosts = sum(name == b"host" for name, _ in self.headers)
        if hosts != 1 and self.parser.get_http_version() == "1.1":
            detail = "An HTTP/1.1 request must have exactly one Host header."
            raise self._refused_by(Problem(400, "bad-request", detail))
        super().on_headers_complete()
        self._stop_waiting()

    def on_body(self, body: bytes) -> None:
        self._framing -= len(body)
        self._body += len(body)
        super().on_body(body)

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if not self._answering():
            self._wait(self.guard.settings.idle_seconds)

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002 (uvicorn's, in its words)
        self._refuse(self._problem or _MALFORMED, "malformed")

    def pause_writing(self) -> None:
        """Give a client that does not read its response a time to do so."""
        super().pause_writing()
        self._wait(self.guard.settings.idle_seconds)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._answering():
            self._stop_waiting()

    def drop(self, reason: str) -> None:
        """End the connection at once, whatever is not yet sent."""
        self._stop_waiting()
        self.guard.metrics.dropped[reason] += 1
        self.connections.discard(self)
        self.transport.abort()

    def _answering(self) -> bool:
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
    # A new one each time: one that is raised again would keep every traceback, and connection.
    return Problem(431, "head-too-large", "The request line and headers are too long.")
