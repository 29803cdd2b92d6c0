"""The application: paths, their documentation, and what happens at start and end."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from fastapi import FastAPI
from fastapi.telemetry import TelemetryConfig
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, PlainTextResponse, Response

from vicinal.serving import curating, telling
from vicinal.serving.batching import Batcher
from vicinal.serving.frontdoor import FrontDoor
from vicinal.serving.keys import KeyFile, Keyring
from vicinal.serving.limits import RateLimit
from vicinal.serving.metrics import Metrics
from vicinal.serving.office import Office
from vicinal.serving.openapi import BODIES, about, document
from vicinal.serving.predicting import predict
from vicinal.serving.problems import Problem, internal, of_status
from vicinal.serving.served import Served
from vicinal.serving.settings import Settings

# FastAPI would hand paths (with ids of people) and the messages of exceptions to whatever collector
# the environment names.
_NO_TELEMETRY = TelemetryConfig(tracing=False, metrics=False, logs=False, auto_configure=False)

Handler = Callable[[Request, Office], Awaitable[Any]]

_STATIC = Path(__file__).parent / "static"
_CONSOLE = {
    "/console": ("console.html", "text/html"),
    "/console/console.css": ("console.css", "text/css"),
    "/console/console.js": ("console.js", "text/javascript"),
    "/console/form.js": ("form.js", "text/javascript"),
}


def create_app(store: Served, folder: Path, settings: Settings | None = None) -> FrontDoor:
    """Return the ASGI application that serves an open store.

    Parameters
    ----------
    store : Served
        A store or a cluster, open; used by one thread of the service. Whoever opened it closes it,
        afterwards.
    folder : Path
        The store's, where the keys are.
    settings : Settings, optional
        Limits.
    """
    chosen = settings or Settings()
    # Asked here for the first time: it may open a network, for which no request should wait.
    _ = store.frame.extractor.takes
    metrics = Metrics()
    batcher = Batcher(store, chosen, metrics)
    limit = RateLimit(chosen.rate, chosen.burst)
    office = Office(store, chosen, Keyring(KeyFile(folder)), limit, metrics, batcher)
    app = FastAPI(
        title="vicinal",
        docs_url=None,  # its page would load scripts from elsewhere
        redoc_url=None,
        redirect_slashes=False,
        lifespan=_lifespan(batcher),
        telemetry=_NO_TELEMETRY,
        **about(),
    )
    app.add_exception_handler(Problem, _problem)
    app.add_exception_handler(HTTPException, _no_path)
    app.add_exception_handler(Exception, _fault)
    _add_paths(app, office)
    document(app)
    return FrontDoor(app, metrics)


def _lifespan(batcher: Batcher) -> Any:
    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        batcher.start()
        yield
        await batcher.stop()

    return lifespan


def _add_paths(app: FastAPI, office: Office) -> None:
    _add(app, office, "POST", "/v1/predict", predict)
    _add(app, office, "GET", "/v1/guarantee", telling.guarantee)
    _add(app, office, "GET", "/v1/quota", telling.quota)
    _add(app, office, "GET", "/v1/status", telling.status)
    _add(app, office, "GET", "/v1/history", telling.history)
    _add(app, office, "POST", "/v1/records", curating.add_records)
    _add(app, office, "DELETE", "/v1/subjects/{subject:path}", curating.erase_subject)

    @app.get("/healthz", summary="Can the service answer?")
    async def healthz() -> dict[str, str]:
        return telling.health(office)

    @app.get("/metrics", response_class=PlainTextResponse, summary="Prometheus metrics")
    async def metrics() -> PlainTextResponse:
        return PlainTextResponse(office.metrics.text(), media_type="text/plain; version=0.0.4")

    for path, (name, media) in _CONSOLE.items():
        _add_file(app, path, name, media)


def _add(app: FastAPI, office: Office, method: str, path: str, handler: Handler) -> None:
    """Add a path; bodies are read and checked by the handler, after the key."""

    async def endpoint(request: Request) -> Any:
        return await handler(request, office)

    body, response, words = BODIES[handler.__name__]
    app.add_api_route(
        path,
        endpoint,
        methods=[method],
        response_model=response,
        operation_id=handler.__name__,
        summary=words,
        openapi_extra=body,
    )


def _add_file(app: FastAPI, path: str, name: str, media: str) -> None:
    async def endpoint() -> FileResponse:
        return FileResponse(_STATIC / name, media_type=media)

    app.add_api_route(path, endpoint, include_in_schema=False)


async def _problem(_: Request, error: Exception) -> Response:
    assert isinstance(error, Problem)  # noqa: S101 (registered for problems only)
    return error.response()


async def _fault(_: Request, __: Exception) -> Response:
    return internal().response()


async def _no_path(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)  # noqa: S101 (registered for these only)
    return of_status(error.status_code).response()
