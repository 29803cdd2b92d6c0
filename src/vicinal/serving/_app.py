"""The Starlette application: routes, problems, and what happens at start and end.

The OpenAPI document has one entry a route, and schemas from the pydantic models.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema
from pydantic_core import to_json
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import (
    FileResponse,
    JSONResponse,
    PlainTextResponse,
    RedirectResponse,
    Response,
)
from starlette.routing import Route

from vicinal import _checks
from vicinal._checks import SubjectId
from vicinal.errors import VicinalError
from vicinal.serving import _models as models
from vicinal.serving._keys import CURATOR
from vicinal.serving._limits import JSON, MEDIA, Problem, of_error, of_status
from vicinal.serving._models import (
    NPY,
    PredictRequest,
    RecordsRequest,
    columns_of,
    npy_rows,
    width_of,
)
from vicinal.serving._protocol import SecurityHeadersMiddleware
from vicinal.serving._settings import ServiceSettings
from vicinal.serving._state import AppState
from vicinal.store import BaseStore, Presence, Query

LONGEST_KEY = 200


async def predict(request: Request) -> Response:
    """Answer queries; returns after the charges have become durable.

    A problem means that nothing was charged, but for 500 and 503, after which the same
    Idempotency-Key gets whatever was charged.
    """
    state = AppState.of(request)
    key = state.admit(request)
    begin = time.perf_counter()
    name = idempotency_key(request)
    async with state.bodies.read(request, (JSON, NPY)) as (kind, content):
        if kind == NPY:
            rows, size = npy_rows(content, state.store, state.settings.request_queries)
        else:
            _, rows, size = await state.decode_json(PredictRequest, content)
    try:
        reply = await state.batcher.submit(Query(rows, key.audience, key.name, name), size)
    except VicinalError as error:
        raise of_error(error) from None
    state.metrics.answered(size, time.perf_counter() - begin)
    return Response(to_json(reply.to_dict()), media_type=JSON)


def idempotency_key(request: Request) -> str | None:
    """Return the header Idempotency-Key, or None if there is none."""
    sent = request.headers.getlist("idempotency-key")
    if not sent:
        return None
    if (
        len(sent) > 1
        or not 0 < len(sent[0]) <= LONGEST_KEY
        or not (sent[0].isascii() and sent[0].isprintable())
    ):
        detail = f"Idempotency-Key must be one header of 1 to {LONGEST_KEY} ASCII characters."
        raise Problem(400, "idempotency-key", detail)
    return sent[0]


SAMPLE_SECONDS = 60.0
"""How often the service notes what is used, though nobody looks."""


async def guarantee(request: Request) -> JSONResponse:
    """Return the guarantee of the key's audience."""
    state = AppState.of(request)
    key = state.admit(request)
    stated = await state.with_store(state.store.guarantee, key.audience)
    return JSONResponse({"audience": key.audience, "guarantee": stated.to_dict()})


async def quota(request: Request) -> JSONResponse:
    """Return answers used and left: of the key's audience, or of all for a curator."""
    state = AppState.of(request)
    key = state.admit(request)
    names = state.store.audiences if key.role == CURATOR else (key.audience,)
    own = state.store.quota(key.name, audience=key.audience)
    plans = {name: state.store.quota(audience=name) for name in names}
    await note_usage(state)
    mine = {
        "name": key.name,
        "role": key.role,
        "audience": key.audience,
        "quota": own.analyst_quota,
        "used": own.analyst_used,
        "left": own.analyst_left,
    }
    samples_of = {name: state.usage.of(name) for name in plans}
    audiences = {
        name: {
            "planned": q.planned, "used": q.used, "left": q.left,
            "wear": samples_of[name][-1]["wear"], "usage": samples_of[name],
        }
        for name, q in plans.items()
    }  # fmt: skip
    return JSONResponse({"mine": mine, "audiences": audiences})


async def note_usage(state: AppState) -> None:
    """Sample how many answers are used, and the mean share of a budget by public points."""
    facts = (await state.with_store(state.store.facts))["audiences"]
    for name, audience in facts.items():
        wear = None if audience["wear"] is None else audience["wear"]["mean"]
        state.usage.note(name, state.store.quota(audience=name).used, wear)


async def sample_usage(state: AppState) -> None:
    """Sample once a minute, as long as the store answers."""
    while state.metrics.up:
        with suppress(Problem):
            await note_usage(state)
        await asyncio.sleep(SAMPLE_SECONDS)


async def status(request: Request) -> JSONResponse:
    """Return what the store takes, and how this process is doing."""
    state = AppState.of(request)
    key = state.admit(request)
    schema = state.store.schema
    facts = await state.with_store(state.store.facts)
    figures = {
        "takes": schema.extractor.takes,
        "numbers": width_of(state.store),
        "columns": columns_of(state.store),
        "classes": list(schema.classes),
        "target": schema.target.facts,
        "most_queries": state.settings.request_queries,
        "release": facts["audiences"][key.audience]["plan"]["release"],
        "process": state.metrics.speed(),
    }
    return JSONResponse(figures)


async def history(request: Request) -> JSONResponse:
    """Return when the data changed; for curators."""
    state = AppState.of(request)
    state.admit(request, curator=True)
    facts = await state.with_store(state.store.facts)
    return JSONResponse({"version": facts["version"], "history": facts["history"]})


async def health(request: Request) -> JSONResponse:
    """Tell whether the service can answer; 503 once the store is closed, whatever closed it."""
    state = AppState.of(request)
    if not state.metrics.up:
        raise Problem(503, "storage-failed", "The store has failed.")
    return JSONResponse({"status": "ok"})


async def metrics(request: Request) -> PlainTextResponse:
    """Return counters for Prometheus."""
    text = AppState.of(request).metrics.text()
    return PlainTextResponse(text, media_type="text/plain; version=0.0.4")


async def add_records(request: Request) -> JSONResponse:
    """Add records durably. Sent twice with one Idempotency-Key, they are added once."""
    state = AppState.of(request)
    key = state.admit(request, curator=True)
    name = idempotency_key(request)
    async with state.bodies.read(request) as (_, content):
        body, rows, size = await state.decode_json(RecordsRequest, content)
    subjects = None if body.subjects is None else checked_ids(body.subjects)
    carried = _carried(body, state.store)
    if len(carried) != size or (subjects is not None and len(subjects) != size):
        raise Problem(422, "unusable", "Rows, labels and subjects must be equally many.")
    work = partial(state.store.add, curator=key.name, idempotency_key=name)
    version = await state.with_store(work, rows, carried, subjects, adding=True, beside=True)
    return JSONResponse({"done": "added", "version": version})


def _carried(body: RecordsRequest, store: BaseStore) -> np.ndarray:
    """Return what records carry, as the store takes it; 422 if the body says something else."""
    classes = store.schema.target.voted
    form, value, other = (
        ("labels", body.labels, body.targets) if classes else ("targets", body.targets, body.labels)
    )
    if value is None or other is not None:
        raise Problem(422, "unusable", f"Records of this store need '{form}', and nothing else.")
    try:
        return np.array(value, dtype=object if classes else np.float64)
    except ValueError:
        raise Problem(422, "unusable", "All 'targets' must have the same length.") from None


async def erase_subject(request: Request) -> JSONResponse:
    """Erase a subject from every file; answers given and trained models stay.

    The response is the same whether it was there, unless `outcome=true` asks for that.
    """
    state = AppState.of(request)
    state.admit(request, curator=True)
    with_outcome = wants_outcome(request)
    ids = checked_ids([request.path_params["subject"]])
    before = await state.with_store(_erase, state, ids, adding=True)
    done: dict[str, Any] = {"done": "erased", "version": await data_version(state)}
    return JSONResponse({**done, "outcome": asdict(before)} if with_outcome else done)


def wants_outcome(request: Request) -> bool:
    """Return the parameter `outcome`; a misspelt one must not mean the default."""
    parameters = request.query_params.multi_items()
    if parameters not in ([], [("outcome", "true")], [("outcome", "false")]):
        raise Problem(422, "unusable", "The only parameter is 'outcome', true or false.")
    return parameters == [("outcome", "true")]


def checked_ids(subjects: Sequence[int | str]) -> list[SubjectId]:
    """Return ids in their one form, all of which a path of this service can name; else 422."""
    for subject in subjects:
        fault = _checks.id_fault(subject) or _path_fault(str(subject))
        if fault is not None:
            raise Problem(422, "unusable", f"A subject must be an id. It is, or holds, {fault}.")
    return _checks.subject_ids("subjects", subjects)


def _path_fault(text: str) -> str | None:
    """Tell of an id that clients and proxies take out of a path."""
    dots = any(part in (".", "..") for part in text.split("/"))
    return "a part of dots alone, which no path can name" if dots else None


async def data_version(state: AppState) -> int:
    """Return the version of the data."""
    facts = await state.with_store(state.store.facts)
    return int(facts["version"])


def _erase(state: AppState, ids: list[SubjectId]) -> Presence:
    """Erase, as one change of the data; return what was there before. Private."""
    before = state.store.presence(ids)
    state.store.erase(ids)
    return before


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


_PROBLEM = _schema(models.ProblemResponse)


def _operation(
    name: str,
    summary: str,
    response: type[BaseModel] | None,
    *parameters: Any,
    body: dict[str, Any] | None = None,
    open: bool = False,
) -> dict[str, Any]:
    """Return an operation; text is returned where `response` is None."""
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
        **({} if body is None else {"requestBody": {"required": True, "content": body}}),
    }


def _body(model: type[BaseModel], **others: dict[str, Any]) -> dict[str, Any]:
    """Return the content of a request's body: JSON, or other media with their schemas."""
    example = model.model_config["json_schema_extra"]["examples"][0]  # type: ignore[index]
    return {"application/json": {"schema": _schema(model), "example": example}} | others


# What is routed is what is documented: path, method, endpoint, and its entry in OpenAPI.
_OPERATIONS: tuple[tuple[str, str, Any, dict[str, Any]], ...] = (
    ("/v1/predict", "POST", predict, _operation(
        "predict", "Answer queries", models.AnswersResponse, _IDEMPOTENCY,
        body=_body(models.PredictRequest, **{NPY: {"schema": _NPY_FILE}}),
    )),
    ("/v1/guarantee", "GET", guarantee, _operation(
        "guarantee", "The guarantee of your audience, whole", models.GuaranteeResponse,
    )),
    ("/v1/quota", "GET", quota, _operation(
        "quota", "Answers planned, used and left", models.QuotaResponse,
    )),
    ("/v1/status", "GET", status, _operation(
        "status", "What the store takes, and how the process does", models.StatusResponse,
    )),
    ("/v1/history", "GET", history, _operation(
        "history", "When the data changed (curators)", models.HistoryResponse,
    )),
    ("/v1/records", "POST", add_records, _operation(
        "add_records", "Add records (curators)", models.ChangedResponse, _IDEMPOTENCY,
        body=_body(models.RecordsRequest),
    )),
    ("/v1/subjects/{subject}", "DELETE", erase_subject, _operation(
        "erase_subject", "Erase a person for good (curators)", models.ErasedResponse, _SUBJECT,
        _OUTCOME,
    )),
    ("/healthz", "GET", health, _operation(
        "health", "Can the service answer?", models.HealthResponse, open=True,
    )),
    ("/metrics", "GET", metrics, _operation("metrics", "Prometheus metrics", None, open=True)),
)  # fmt: skip


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
        "paths": {path: {method.lower(): entry} for path, method, _, entry in _OPERATIONS},
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


_PREDICT, *_OTHERS = (
    # A slash may stand in an id.
    Route(path.replace("{subject}", "{subject:path}"), endpoint, methods=[method])
    for path, method, endpoint, _ in _OPERATIONS
)
_ROUTES = [Route("/", _to_console), _PREDICT, *_OTHERS, Route("/openapi.json", openapi_document)]


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
