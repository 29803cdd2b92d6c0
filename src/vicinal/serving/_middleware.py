"""The outermost layer: headers on every response, a line in the log, and no traceback outside.

Written as plain ASGI, because it runs for every request. The log and the metrics know the path's
template, never the path: an id of a person may stand in it.
"""

from __future__ import annotations

import logging
import time
import traceback
from collections.abc import Sequence
from pathlib import Path

from starlette.requests import Request
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from vicinal.serving._metrics import Metrics
from vicinal.serving._problems import Problem, internal

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
        """Answer one request; websockets are closed at once."""
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
                await internal().response()(scope, receive, with_headers)
        self._note(scope, status, time.perf_counter() - begin)

    def _note(self, scope: Scope, status: int, seconds: float) -> None:
        path = template_of(scope)
        method = scope["method"] if scope["method"] in _METHODS else "other"
        self._metrics.requests[path, method, status] += 1
        log.info("%s %s %d %.1f ms", method, path, status, 1e3 * seconds)


async def _answer(route: Route, scope: Scope, receive: Receive, send: Send) -> None:
    """Call the endpoint of a route as the router does; problems become responses."""
    scope["route"] = route
    try:
        response = await route.endpoint(Request(scope, receive, send))
    except Problem as problem:
        response = problem.response()
    await response(scope, receive, send)


def template_of(scope: Scope) -> str:
    """Return the path as the route has it, with names for what varies."""
    route = scope.get("route")
    return str(getattr(route, "path_format", "other"))


def _place(error: BaseException) -> str:
    """Return where an error was raised; its message may hold what a client sent."""
    frames = traceback.extract_tb(error.__traceback__)
    return ", ".join(f"{Path(frame.filename).name}:{frame.lineno}" for frame in frames[-3:])
