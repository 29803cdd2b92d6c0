"""The Starlette application: what each route does, the table of routes, the OpenAPI document."""

import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict, dataclass
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
from starlette.responses import FileResponse, JSONResponse, RedirectResponse, Response
from starlette.routing import Route

from vicinal import checks
from vicinal.checks import SubjectId
from vicinal.errors import VicinalError
from vicinal.serving import models
from vicinal.serving._limits import JSON, MEDIA, Problem, of_error, of_status
from vicinal.serving._protocol import SecurityHeadersMiddleware
from vicinal.serving._state import AppState
from vicinal.serving.keys import ANALYST, CURATOR, MONITOR, ApiKey
from vicinal.serving.models import columns_of, width_of
from vicinal.serving.settings import ServiceSettings
from vicinal.store.base_store import BaseStore
from vicinal.store.requests import Query
from vicinal.store.status import Presence

_LONGEST_KEY = 200


async def predict(state: AppState, key: ApiKey, request: Request) -> Response:
    """Answer queries; returns after the charges have become durable.

    A problem means that nothing was charged, but for 500 and 503, after which the same
    Idempotency-Key gets whatever was charged.
    """
    begin = time.perf_counter()
    name = _idempotency_key(request)
    # The body counts against the memory for bodies only until its rows are decoded.
    async with state.bodies.read(request) as content:
        _, rows, size = await state.decode_json(models.PredictRequest, content)
    try:
        reply = await state.batcher.submit(Query(rows, key.audience, key.name, name), size)
    except VicinalError as error:
        raise of_error(error) from None
    state.metrics.seconds.add(time.perf_counter() - begin)
    return Response(to_json(reply.to_dict()), media_type=JSON)


def _idempotency_key(request: Request) -> str | None:
    sent = request.headers.getlist("idempotency-key")
    if not sent:
        return None
    text = sent[0]
    plain = text.isascii() and text.isprintable()
    if len(sent) > 1 or not 0 < len(text) <= _LONGEST_KEY or not plain:
        detail = f"Idempotency-Key must be one header of 1 to {_LONGEST_KEY} ASCII characters."
        raise Problem(400, "idempotency-key", detail)
    return text


async def guarantee(state: AppState, key: ApiKey, _: Request) -> Response:
    stated = await state.with_store(state.store.guarantee, key.audience)
    return JSONResponse({"audience": key.audience, "guarantee": stated.to_dict()})


async def quota(state: AppState, key: ApiKey, _: Request) -> Response:
    """Return answers used and left: of the key's audience, or of all for a curator."""
    names = state.store.audiences if key.role == CURATOR else (key.audience,)
    own = state.store.quota(key.name, audience=key.audience)
    mine = {
        "name": key.name, "role": key.role, "audience": key.audience,
        "quota": own.analyst_quota, "used": own.analyst_used, "left": own.analyst_left,
    }  # fmt: skip
    plans = {name: state.store.quota(audience=name) for name in names}
    usage = await _mean_usage(state)
    audiences = {
        name: {"planned": plan.planned, "used": plan.used, "left": plan.left, "usage": usage[name]}
        for name, plan in plans.items()
    }
    return JSONResponse({"mine": mine, "audiences": audiences})


async def _mean_usage(state: AppState) -> dict[str, float | None]:
    """Return the mean share of a budget that public points have used up, by audience."""
    facts = (await state.with_store(state.store.facts))["audiences"]
    usage = {name: audience["usage"] for name, audience in facts.items()}
    return {name: None if used is None else used["mean"] for name, used in usage.items()}


async def status(state: AppState, key: ApiKey, _: Request) -> Response:
    """Return what the store takes."""
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
    }
    return JSONResponse(figures)


async def history(state: AppState, _key: ApiKey, _: Request) -> Response:
    facts = await state.with_store(state.store.facts)
    return JSONResponse({"version": facts["version"], "history": facts["history"]})


async def health(state: AppState, _key: None, _: Request) -> Response:
    """Tell whether the service can answer; 503 once the store is closed, whatever closed it."""
    if not state.metrics.up:
        raise Problem(503, "storage-failed", "The store has failed.")
    return JSONResponse({"status": "ok"})


async def metrics(state: AppState, _key: ApiKey, _: Request) -> Response:
    usage: dict[str, float | None] = {}
    with suppress(Problem):  # a store that has failed estimates nothing
        usage = await _mean_usage(state)
    audiences = {
        name: (state.store.quota(audience=name).left, usage.get(name))
        for name in state.store.audiences
    }
    return Response(state.metrics.text(audiences), media_type="text/plain; version=0.0.4")


async def add_records(state: AppState, key: ApiKey, request: Request) -> Response:
    """Add records durably. Sent twice with one Idempotency-Key, they are added once."""
    name = _idempotency_key(request)
    async with state.bodies.read(request) as content:
        body, rows, size = await state.decode_json(models.RecordsRequest, content)
    subjects = None if body.subjects is None else checked_ids(body.subjects)
    carried = _carried(body, state.store)
    if len(carried) != size or (subjects is not None and len(subjects) != size):
        raise Problem(422, "unusable", "There must be as many labels and subjects as rows.")
    work = partial(
        state.store.add, ids_differ=body.ids_differ, curator=key.name, idempotency_key=name
    )
    version = await state.with_store(work, rows, carried, subjects, adding=True)
    return JSONResponse({"done": "added", "version": version})


def _carried(body: models.RecordsRequest, store: BaseStore) -> np.ndarray:
    """Return what records carry, as the store takes it; 422 if the body says something else."""
    classes = store.schema.target.voted
    form, value, other = (
        ("labels", body.labels, body.targets) if classes else ("targets", body.targets, body.labels)
    )
    if value is None or other is not None:
        raise Problem(422, "unusable", f"Records of this store need '{form}', and no other form.")
    try:
        array = np.array(value, dtype=object if classes else np.float64)
        return array.ravel() if array.shape[1:] == (1,) else array  # one target has no columns
    except ValueError:
        raise Problem(422, "unusable", "All 'targets' must have the same length.") from None


async def erase_subject(state: AppState, _key: ApiKey, request: Request) -> Response:
    """Erase a subject from every file; answers given and trained models stay.

    The response is the same whether it was there, unless `outcome=true` asks for that.
    """
    parameters = request.query_params.multi_items()
    # A misspelt parameter must not mean the default.
    if parameters not in ([], [("outcome", "true")], [("outcome", "false")]):
        raise Problem(422, "unusable", "The only parameter is 'outcome', true or false.")
    ids = checked_ids([request.path_params["subject"]])

    def erase() -> Presence:
        # One turn of the store's thread: nothing can be added between the two.
        before = state.store.presence(ids)
        state.store.erase(ids)
        return before

    before = await state.with_store(erase, adding=True)
    facts = await state.with_store(state.store.facts)
    done: dict[str, Any] = {"done": "erased", "version": int(facts["version"])}
    if parameters == [("outcome", "true")]:
        done["outcome"] = asdict(before)
    return JSONResponse(done)


def checked_ids(subjects: Sequence[int | str]) -> list[SubjectId]:
    """Return ids in their one form, all of which a path of this service can name; else 422."""
    for subject in subjects:
        fault = checks.id_fault(subject) or _path_fault(str(subject))
        if fault is not None:
            raise Problem(
                422, "unusable", f"A subject must be an id. This one is, or holds, {fault}."
            )
    return checks.subject_ids("subjects", subjects)


def _path_fault(text: str) -> str | None:
    """Return what is wrong with an id that a path cannot name."""
    # Clients and proxies take these out of a path.
    dots = any(part in (".", "..") for part in text.split("/"))
    return "a part of dots alone, which no path can name" if dots else None


# ------------------------------------------------------------ routes, and their OpenAPI document

_DESCRIPTION = """\
Differentially private predictions by nearest neighbours. Every new answer is charged, durably, to
the people whose records took part in it, before it is sent. Queries are public: whoever shares
your audience gets the stored answer to an equal query, at no cost.
"""
_IDEMPOTENCY = {
    "name": "Idempotency-Key", "in": "header", "description": "A request that is sent again with "
    "its key is charged, or adds records, once. Always send one.",
    "schema": {
        "type": "string", "minLength": 1, "maxLength": _LONGEST_KEY, "pattern": "^[ -~]+$",
    },
    "example": "monday-1",
}  # fmt: skip
_SUBJECT = {
    "name": "subject", "in": "path", "required": True,
    "description": "A person's id; 5 and '5' are one.",
    "schema": {"type": "string", "minLength": 1}, "example": "person-7",
}  # fmt: skip
_OUTCOME = {
    "name": "outcome", "in": "query", "required": False,
    "description": "true: say whether the person was there, was erased before, or never was.",
    "schema": {"type": "boolean", "default": False},
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Operation:
    """A route that programs call: who may, what it takes and returns, and what does it."""

    method: str
    path: str
    run: Callable[[AppState, Any, Request], Awaitable[Response]]
    summary: str
    response: type[BaseModel] | None  # None: text
    role: str | None = ANALYST  # None: anybody, without a key
    parameters: tuple[dict[str, Any], ...] = ()
    body: type[BaseModel] | None = None

    def route(self) -> Route:
        async def endpoint(request: Request) -> Response:
            state: AppState = request.app.state.service
            # Before anything else: who has no key learns nothing, and costs nothing.
            key = self.role and state.admit(request, self.role)
            return await self.run(state, key, request)

        return Route(self.path, endpoint, methods=[self.method])

    def document(self) -> dict[str, Any]:
        content: dict[str, Any] = {"text/plain": {"schema": {"type": "string"}}}
        if self.response is not None:
            content = {JSON: {"schema": _reference(self.response)}}
        problem = {MEDIA: {"schema": _reference(models.ProblemResponse)}}
        document = {
            "operationId": self.run.__name__,
            "summary": self.summary,
            "parameters": list(self.parameters),
            "responses": {
                "200": {"description": "Done", "content": content},
                "default": {"description": "What went wrong", "content": problem},
            },
        }
        if self.role is not None:
            document["security"] = [{"key": []}]
        if self.body is not None:
            example = self.body.model_config["json_schema_extra"]["examples"][0]  # type: ignore[index]
            taken = {JSON: {"schema": _reference(self.body), "example": example}}
            document["requestBody"] = {"required": True, "content": taken}
        return document


def _reference(model: type[BaseModel]) -> dict[str, Any]:
    return {"$ref": f"#/components/schemas/{model.__name__}"}


_OPERATIONS = (
    _Operation(
        "POST", "/v1/predict", predict, "Answer queries", models.AnswersResponse,
        parameters=(_IDEMPOTENCY,), body=models.PredictRequest,
    ),
    _Operation(
        "GET", "/v1/guarantee", guarantee, "The full guarantee of your audience",
        models.GuaranteeResponse,
    ),
    _Operation("GET", "/v1/quota", quota, "Answers planned, used and left", models.QuotaResponse),
    _Operation(
        "GET", "/v1/status", status, "What the store accepts", models.StatusResponse
    ),
    _Operation(
        "GET", "/v1/history", history, "When the data changed (curators)",
        models.HistoryResponse, CURATOR,
    ),
    _Operation(
        "POST", "/v1/records", add_records, "Add records (curators)", models.ChangedResponse,
        CURATOR, (_IDEMPOTENCY,), models.RecordsRequest,
    ),
    # `path`: an id may hold slashes.
    _Operation(
        "DELETE", "/v1/subjects/{subject:path}", erase_subject,
        "Erase a subject for good (curators)", models.ErasedResponse, CURATOR, (_SUBJECT, _OUTCOME),
    ),
    _Operation(
        "GET", "/healthz", health, "Whether it can answer", models.HealthResponse, role=None
    ),
    _Operation("GET", "/metrics", metrics, "Prometheus metrics (monitors)", None, MONITOR),
)  # fmt: skip


@cache
def build_openapi() -> dict[str, Any]:
    """Return the OpenAPI document: an entry a route, and schemas of the pydantic models."""
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
        "paths": {
            operation.route().path_format: {operation.method.lower(): operation.document()}
            for operation in _OPERATIONS
        },
        "components": {"schemas": schemas["$defs"], "securitySchemes": keys},
    }


async def _openapi_document(_: Request) -> JSONResponse:
    return JSONResponse(build_openapi())


async def _to_console(_: Request) -> RedirectResponse:
    return RedirectResponse("/console", 307)


async def _send_file(path: Path, media: str, _: Request) -> FileResponse:
    return FileResponse(path, media_type=media)


_STATIC = Path(__file__).parent / "static"
_CONSOLE = {
    "/console": ("console.html", "text/html"),
    "/console/console.css": ("console.css", "text/css"),
    "/console/console.js": ("console.js", "text/javascript"),
    "/console/form.js": ("form.js", "text/javascript"),
}
_ROUTES = [
    *(operation.route() for operation in _OPERATIONS),
    Route("/", _to_console),
    Route("/openapi.json", _openapi_document),
    *(
        Route(path, partial(_send_file, _STATIC / name, media))
        for path, (name, media) in _CONSOLE.items()
    ),
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
    # Predictions, the first route, go past the router.
    direct = Middleware(SecurityHeadersMiddleware, metrics=state.metrics, direct=_ROUTES[:1])
    app = Starlette(
        routes=_ROUTES,
        middleware=[direct],
        exception_handlers=dict.fromkeys((Problem, HTTPException), _send_problem),
        lifespan=_lifespan,
    )
    app.router.redirect_slashes = False  # it would repeat the path, an id in it
    app.state.service = state
    return app


@asynccontextmanager
async def _lifespan(app: Starlette) -> AsyncIterator[None]:
    state: AppState = app.state.service
    await state.start()
    yield
    await state.stop()


async def _send_problem(_: Request, error: Any) -> Response:
    """Send a problem, or the one that a path or method without a route is."""
    return (error if isinstance(error, Problem) else of_status(error.status_code)).response()
