"""The Starlette application: routes, problems, and what happens at start and end."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import Route

from vicinal.serving._admin_routes import add_records, erase_subject
from vicinal.serving._middleware import SecurityHeadersMiddleware
from vicinal.serving._openapi import openapi_document
from vicinal.serving._predict_route import predict
from vicinal.serving._problems import Problem, of_status
from vicinal.serving._read_routes import guarantee, health, history, metrics, quota, status
from vicinal.serving._settings import ServiceSettings
from vicinal.serving._state import AppState
from vicinal.store._base_store import AnyStore

_STATIC = Path(__file__).parent / "static"
_CONSOLE = {
    "/console": ("console.html", "text/html"),
    "/console/console.css": ("console.css", "text/css"),
    "/console/console.js": ("console.js", "text/javascript"),
    "/console/form.js": ("form.js", "text/javascript"),
}
_ROUTES = [
    Route("/v1/predict", predict, methods=["POST"]),
    Route("/v1/guarantee", guarantee),
    Route("/v1/quota", quota),
    Route("/v1/status", status),
    Route("/v1/history", history),
    Route("/v1/records", add_records, methods=["POST"]),
    Route("/v1/subjects/{subject:path}", erase_subject, methods=["DELETE"]),
    Route("/healthz", health),
    Route("/metrics", metrics),
    Route("/openapi.json", openapi_document),
]


def create_app(store: AnyStore, folder: Path, settings: ServiceSettings | None = None) -> Starlette:
    """Return the ASGI application that serves an open store.

    Parameters
    ----------
    store : AnyStore
        A store or a cluster, open; used by one thread of the service. The caller closes it,
        afterwards.
    folder : Path
        The store's, where the keys are.
    settings : ServiceSettings, optional
        Limits.
    """
    # Asked here for the first time: it may open a network, for which no request should wait.
    _ = store.schema.extractor.takes
    state = AppState(store, folder, settings or ServiceSettings())
    app = Starlette(
        routes=[*_ROUTES, *(_file(path, *found) for path, found in _CONSOLE.items())],
        middleware=[Middleware(SecurityHeadersMiddleware, metrics=state.metrics)],
        exception_handlers={Problem: _problem, HTTPException: _no_such_route},
        lifespan=_lifespan,
    )
    app.router.redirect_slashes = False  # it would repeat the path, an id in it
    app.state.service = state
    return app


@asynccontextmanager
async def _lifespan(app: Starlette) -> AsyncIterator[None]:
    state: AppState = app.state.service
    state.batcher.start()
    yield
    await state.stop()


def _file(path: str, name: str, media: str) -> Route:
    return Route(path, partial(_send_file, _STATIC / name, media))


async def _send_file(path: Path, media: str, _: Request) -> FileResponse:
    return FileResponse(path, media_type=media)


async def _problem(_: Request, error: Exception) -> Response:
    assert isinstance(error, Problem)  # noqa: S101 (registered for problems only)
    return error.response()


async def _no_such_route(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)  # noqa: S101 (registered for these only)
    return of_status(error.status_code).response()
