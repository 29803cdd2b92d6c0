"""The Starlette application: routes, problems, and what happens at start and end.

The OpenAPI document has one entry a route, and schemas from the pydantic models.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cache, partial
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, RedirectResponse, Response
from starlette.routing import Route

from vicinal.serving import _models as models
from vicinal.serving._decode_rows import NPY
from vicinal.serving._middleware import SecurityHeadersMiddleware
from vicinal.serving._problems import MEDIA, Problem, of_status
from vicinal.serving._routes import (
    add_records,
    erase_subject,
    guarantee,
    health,
    history,
    metrics,
    predict,
    quota,
    sample_usage,
    status,
)
from vicinal.serving._settings import ServiceSettings
from vicinal.serving._state import AppState
from vicinal.store import BaseStore

_DESCRIPTION = """\
Differentially private predictions by nearest neighbours. Every new answer is charged, durably, to
the people whose records took part in it, before it is sent. Queries are public: whoever shares
your audience gets the stored answer to an equal query, at no cost.
"""
_IDEMPOTENCY = {
    "name": "Idempotency-Key",
    "in": "header",
    "description": "A request that is sent again with its key is charged, or adds records, once. "
    "Always send one.",
    "schema": {"type": "string", "minLength": 1, "maxLength": 200, "pattern": "^[ -~]+$"},
    "example": "monday-1",
}
_SUBJECT = {
    "name": "subject",
    "in": "path",
    "required": True,
    "description": "A person's id; 5 and '5' are one.",
    "schema": {"type": "string", "minLength": 1},
    "example": "person-7",
}
_OUTCOME = {
    "name": "outcome",
    "in": "query",
    "required": False,
    "description": "true: say whether the person was there, was erased before, or never was.",
    "schema": {"type": "boolean", "default": False},
}
_NPY_FILE = {
    "type": "string",
    "format": "binary",
    "description": "A .npy file: float32, float64 or uint8, C order, one query a row.",
}


def _schema(model: type[BaseModel]) -> dict[str, Any]:
    return {"$ref": f"#/components/schemas/{model.__name__}"}


def _operation(
    name: str, summary: str, response: type[BaseModel] | None, *parameters: Any, open: bool = False
) -> dict[str, Any]:
    """Return an operation without a body; text is returned where `response` is None."""
    content: dict[str, Any] = {"text/plain": {"schema": {"type": "string"}}}
    if response is not None:
        content = {"application/json": {"schema": _schema(response)}}
    problem = {"description": "What went wrong", "content": {MEDIA: {"schema": _PROBLEM}}}
    return {
        "operationId": name,
        "summary": summary,
        "parameters": list(parameters),
        "responses": {"200": {"description": "Done", "content": content}, "default": problem},
        **({} if open else {"security": [{"key": []}]}),
    }


_PROBLEM = _schema(models.ProblemResponse)


def _body(model: type[BaseModel], **others: dict[str, Any]) -> dict[str, Any]:
    """Return a request's body: JSON, or other media with their schemas."""
    example = model.model_config["json_schema_extra"]["examples"][0]  # type: ignore[index]
    content = {"application/json": {"schema": _schema(model), "example": example}}
    return {"requestBody": {"required": True, "content": content | others}}


def _paths() -> dict[str, Any]:
    read: dict[str, tuple[str, type[BaseModel]]] = {
        "guarantee": ("The guarantee of your audience, whole", models.GuaranteeResponse),
        "quota": ("Answers planned, used and left", models.QuotaResponse),
        "status": ("What the store takes, and how the process does", models.StatusResponse),
        "history": ("When the data changed (curators)", models.HistoryResponse),
    }
    predict = _operation("predict", "Answer queries", models.AnswersResponse, _IDEMPOTENCY)
    predict |= _body(models.PredictRequest, **{NPY: {"schema": _NPY_FILE}})
    changed = models.ChangedResponse
    add = _operation("add_records", "Add records (curators)", changed, _IDEMPOTENCY)
    erase = _operation(
        "erase_subject",
        "Erase a person for good (curators)",
        models.ErasedResponse,
        _SUBJECT,
        _OUTCOME,
    )
    health = _operation("health", "Can the service answer?", models.HealthResponse, open=True)
    return {
        "/v1/predict": {"post": predict},
        **{
            f"/v1/{name}": {"get": _operation(name, *operation)} for name, operation in read.items()
        },
        "/v1/records": {"post": add | _body(models.RecordsRequest)},
        "/v1/subjects/{subject}": {"delete": erase},
        "/healthz": {"get": health},
        "/metrics": {"get": _operation("metrics", "Prometheus metrics", None, open=True)},
    }


@cache
def openapi() -> dict[str, Any]:
    """Return the document."""
    from vicinal import __version__

    classes = [value for value in vars(models).values() if isinstance(value, type)]
    listed = [value for value in classes if issubclass(value, BaseModel) and value is not BaseModel]
    _, schemas = models_json_schema(
        [(model, "validation") for model in listed], ref_template="#/components/schemas/{model}"
    )
    keys = {"key": {"type": "http", "scheme": "bearer"}}
    return {
        "openapi": "3.1.0",
        "info": {"title": "vicinal", "version": __version__, "description": _DESCRIPTION},
        "paths": _paths(),
        "components": {"schemas": schemas["$defs"], "securitySchemes": keys},
    }


async def openapi_document(_: Request) -> JSONResponse:
    """Send the document."""
    return JSONResponse(openapi())


_STATIC = Path(__file__).parent / "static"
_CONSOLE = {
    "/console": ("console.html", "text/html"),
    "/console/console.css": ("console.css", "text/css"),
    "/console/console.js": ("console.js", "text/javascript"),
    "/console/form.js": ("form.js", "text/javascript"),
    "/console/plot.js": ("plot.js", "text/javascript"),
}


async def _to_console(_: Request) -> RedirectResponse:
    return RedirectResponse("/console", 307)


_PREDICT = Route("/v1/predict", predict, methods=["POST"])
_ROUTES = [
    Route("/", _to_console),
    _PREDICT,
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


def create_app(
    store: BaseStore, folder: Path, settings: ServiceSettings | None = None
) -> Starlette:
    """Return the ASGI application that serves an open store, kept with its keys in `folder`.

    One thread of the service uses the store; the caller closes it afterwards.
    """
    # Asked here for the first time: it may open a network, for which no request should wait.
    _ = store.schema.extractor.takes
    state = AppState(store, folder, settings or ServiceSettings())
    app = Starlette(
        routes=[*_ROUTES, *(_file(path, *resource) for path, resource in _CONSOLE.items())],
        middleware=[
            Middleware(SecurityHeadersMiddleware, metrics=state.metrics, direct=[_PREDICT])
        ],
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
    samples = asyncio.create_task(sample_usage(state))
    yield
    samples.cancel()
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
