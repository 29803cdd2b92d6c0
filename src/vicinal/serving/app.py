"""The Starlette application: endpoints, routes and the OpenAPI document.

An endpoint is a function of the application's state, the API key of the request (None if the path
needs no key) and the request. It returns the response, or raises a :class:`Problem`.
"""

import math
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict
from functools import cache, partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import pyarrow as pa
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
from vicinal.errors import NoCoverage, VicinalError
from vicinal.serving import models
from vicinal.serving._csv import CSV_MEDIA_TYPE
from vicinal.serving._limits import JSON_MEDIA_TYPE
from vicinal.serving._problems import PROBLEM_MEDIA_TYPE, Problem, translate_store_error
from vicinal.serving._protocol import SecurityHeadersMiddleware
from vicinal.serving._state import AppState
from vicinal.serving.keys import ANALYST, CURATOR, MONITOR, ApiKey
from vicinal.serving.settings import ServiceSettings
from vicinal.store.base_store import BaseStore
from vicinal.store.input_files import format_answers_csv
from vicinal.store.requests import Query, Reply, name_coverage_columns
from vicinal.store.status import Presence

_MAX_KEY_LENGTH = 200  # characters of an Idempotency-Key, which the store keeps with the reply
_MAX_NOTES_LENGTH = 1000  # characters in a header: proxies accept 4 KiB of headers or more
_Endpoint = Callable[[AppState, Any, Request], Awaitable[Response]]
_IDEMPOTENCY_KEY = {
    "name": "Idempotency-Key",
    "in": "header",
    "description": "A request repeated with the same key is charged, or adds records, only once. "
    "Always send a key.",
    "schema": {
        "type": "string",
        "minLength": 1,
        "maxLength": _MAX_KEY_LENGTH,
        "pattern": "^[ -~]+$",
    },
    "example": "monday-1",
}
_SUBJECT = {
    "name": "subject",
    "in": "path",
    "required": True,
    "description": "A subject id; 5 and '5' are the same id.",
    "schema": {"type": "string", "minLength": 1},
    "example": "person-7",
}
_ID_COLUMN = {
    "name": "id",
    "in": "query",
    "required": False,
    "description": "Column of the file to copy beside the answers.",
    "schema": {"type": "string", "minLength": 1},
    "example": "visit",
}
_COVERAGE = {
    "name": "coverage",
    "in": "query",
    "required": False,
    "description": "Share of future outcomes that sets or intervals must contain, in columns of "
    "their own.",
    "schema": {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1},
    "example": 0.9,
}
_OUTCOME = {
    "name": "outcome",
    "in": "query",
    "required": False,
    "description": "true: return whether the subject was enrolled, erased before, or unknown.",
    "schema": {"type": "boolean", "default": False},
}

_API_ROUTES: list[Route] = []
_API_PATHS: dict[str, dict[str, Any]] = {}  # entries of the OpenAPI document by path and method


def _register(
    method: str,
    path: str,
    response: type[BaseModel] | None,
    *,
    role: str | None = ANALYST,
    parameters: Sequence[dict[str, Any]] = (),
    body: type[BaseModel] | None = None,
    is_csv: bool = False,
) -> Callable[[_Endpoint], _Endpoint]:
    """Return a decorator that adds an endpoint to the routes and to the OpenAPI document.

    - `method`, `path`: HTTP method, and path with names of parameters in braces.
    - `response`: model of the response, or None for plain text.
    - `role`: required role of the key, or None if no key is required.
    - `parameters`: further parameters of the operation in the OpenAPI document.
    - `body`: model of the request body; such an operation also takes an Idempotency-Key.
    - `is_csv`: whether the bodies of request and response are CSV files, instead of models.

    The first line of the endpoint's docstring is its summary in the document.
    """
    content: dict[str, Any] = {"text/plain": {"schema": {"type": "string"}}}
    if response is not None:
        content = {JSON_MEDIA_TYPE: {"schema": _reference_schema(response)}}
    elif is_csv:
        content = {CSV_MEDIA_TYPE: {"schema": {"type": "string"}}}
    problem = {PROBLEM_MEDIA_TYPE: {"schema": _reference_schema(models.ProblemResponse)}}
    document: dict[str, Any] = {
        "parameters": list(parameters),
        "responses": {
            "200": {"description": "Success", "content": content},
            "default": {"description": "Error", "content": problem},
        },
    }
    if role is not None:
        document["security"] = [{"key": []}]
    if is_csv:
        document["parameters"].append(_IDEMPOTENCY_KEY)
        document["requestBody"] = {"required": True, "content": content}
    if body is not None:
        example = body.model_config["json_schema_extra"]["examples"][0]  # type: ignore[index]
        request_content = {"schema": _reference_schema(body), "example": example}
        document["parameters"].append(_IDEMPOTENCY_KEY)
        document["requestBody"] = {"required": True, "content": {JSON_MEDIA_TYPE: request_content}}

    def add_endpoint(run: _Endpoint) -> _Endpoint:
        """Add `run` to the routes and to the document, and return it."""

        async def handle_request(request: Request) -> Response:
            """Authorize a request and pass it to the endpoint."""
            state: AppState = request.app.state.service
            # Authorization comes first: a client without a key learns nothing and costs little.
            key = role and state.authorize(request, role)
            return await run(state, key, request)

        route = Route(path, handle_request, methods=[method])
        _API_ROUTES.append(route)
        summary = (run.__doc__ or "").partition("\n")[0].rstrip(".")
        names = {"operationId": run.__name__.removeprefix("get_"), "summary": summary}
        _API_PATHS[route.path_format] = {method.lower(): names | document}
        return run

    return add_endpoint


def _reference_schema(model: type[BaseModel]) -> dict[str, Any]:
    """Return the OpenAPI reference to the schema of a `model`."""
    return {"$ref": f"#/components/schemas/{model.__name__}"}


@_register("POST", "/v1/predict", models.AnswersResponse, body=models.PredictRequest)
async def predict(state: AppState, key: ApiKey, request: Request) -> Response:
    """Answer queries; the response is sent after the charge is durable.

    After a problem nothing is charged, except possibly after 500 and 503: then the same
    Idempotency-Key returns the charged reply.
    """
    start_time = time.perf_counter()
    idempotency_key = _get_idempotency_key(request)
    # Leaving the context after decoding frees the memory that the body occupies.
    async with state.body_reader.read_body(request) as content:
        body, rows, n_rows = await state.decode_json(models.PredictRequest, content)
    query = Query(rows, key.audience, key.name, idempotency_key, body.coverage)
    reply = await _submit_query(state, query, n_rows, start_time)
    fields = reply.to_dict()
    notes = await state.describe_unexpected_values(rows)
    if notes:
        fields["notes"] = notes
    return Response(to_json(fields), media_type=JSON_MEDIA_TYPE)


async def _submit_query(state: AppState, query: Query, n_rows: int, start_time: float) -> Reply:
    """Return the reply to a query of `n_rows` rows, or raise an error of the store as a problem.

    The time since `start_time`, in seconds of `time.perf_counter`, is added to the metrics.
    """
    try:
        reply = await state.batcher.submit(query, n_rows)
    except VicinalError as error:
        raise translate_store_error(error) from None
    state.metrics.seconds.add(time.perf_counter() - start_time)
    return reply


@_register("POST", "/v1/predict-csv", None, parameters=(_ID_COLUMN, _COVERAGE), is_csv=True)
async def predict_csv(state: AppState, key: ApiKey, request: Request) -> Response:
    """Answer the queries of a CSV file by a CSV file, as `vicinal predict` does.

    The headers Vicinal-Charged, Vicinal-Left, Vicinal-Promise and Vicinal-Notes are the fields
    `charged`, `left`, `promise` and `notes` of a JSON reply, the last two percent-encoded. Errors
    of the file may name its columns.
    """
    start_time = time.perf_counter()
    idempotency_key = _get_idempotency_key(request)
    id_column, coverage = _get_csv_parameters(request)
    target = state.store.schema.target
    async with state.body_reader.read_body(request, CSV_MEDIA_TYPE) as content:
        copied, rows, n_rows = await state.decode_csv(content, id_column)
    if coverage is not None:
        try:
            if copied.keys() & set(name_coverage_columns(target)):
                raise NoCoverage("The answers have a column of the name in 'id'.")
        except NoCoverage as error:
            raise Problem(422, "no-coverage", str(error)) from None
    query = Query(rows, key.audience, key.name, idempotency_key, coverage)
    reply = await _submit_query(state, query, n_rows, start_time)
    answers = reply.build_columns(target.answer_columns)
    table = pa.table([*copied.values(), *answers.values()], names=[*copied, *answers])
    headers = {
        "Content-Disposition": 'attachment; filename="answers.csv"',
        "Vicinal-Charged": str(reply.charged),
        "Vicinal-Left": str(reply.left),
    }
    if reply.promise is not None:
        # Names of classes in it need not be ASCII.
        headers["Vicinal-Promise"] = quote(reply.promise)
    notes = await state.describe_unexpected_values(rows)
    if notes:
        headers["Vicinal-Notes"] = quote(" ".join(notes)[:_MAX_NOTES_LENGTH])
    return Response(format_answers_csv(table), headers=headers, media_type=CSV_MEDIA_TYPE)


def _get_csv_parameters(request: Request) -> tuple[str | None, float | None]:
    """Return the query parameters 'id' and 'coverage', each None without it; problem 422 if bad."""
    parameters = request.query_params.multi_items()
    fields = dict(parameters)
    is_known = fields.keys() <= {"id", "coverage"} and len(fields) == len(parameters)
    coverage = None
    if "coverage" in fields:
        coverage = math.nan
        with suppress(ValueError):
            coverage = float(fields["coverage"])
    if not is_known or "" in fields.values() or not (coverage is None or 0 < coverage < 1):
        detail = "The only parameters are 'id', the name of a column, and 'coverage', in (0, 1)."
        raise Problem(422, "unusable", detail)
    return fields.get("id"), coverage


def _get_idempotency_key(request: Request) -> str | None:
    """Return the header Idempotency-Key, or None without it; problem 400 if it is malformed."""
    sent = request.headers.getlist("idempotency-key")
    if not sent:
        return None
    text = sent[0]
    is_printable = text.isascii() and text.isprintable()
    if len(sent) > 1 or not 0 < len(text) <= _MAX_KEY_LENGTH or not is_printable:
        detail = (
            f"There must be one header Idempotency-Key of 1 to {_MAX_KEY_LENGTH} printable ASCII "
            "characters."
        )
        raise Problem(400, "idempotency-key", detail)
    return text


@_register("GET", "/v1/guarantee", models.GuaranteeResponse)
async def get_guarantee(state: AppState, key: ApiKey, _: Request) -> Response:
    """Return the full guarantee of the key's audience."""
    guarantee = await state.call_store(state.store.guarantee, key.audience)
    return JSONResponse({"audience": key.audience, "guarantee": guarantee.to_dict()})


@_register("GET", "/v1/quota", models.QuotaResponse)
async def get_quota(state: AppState, key: ApiKey, _: Request) -> Response:
    """Return used and remaining answers of the key's audience, or of all for a curator."""
    names = state.store.audiences if key.role == CURATOR else (key.audience,)
    own_quota = state.store.quota(key.name, audience=key.audience)
    own_entry = {
        "name": key.name,
        "role": key.role,
        "audience": key.audience,
        "quota": own_quota.analyst_quota,
        "used": own_quota.analyst_used,
        "left": own_quota.left if own_quota.analyst_left is None else own_quota.analyst_left,
    }
    plans = {name: state.store.quota(audience=name) for name in names}
    usage = await _estimate_mean_usage(state)
    audiences = {
        name: {"planned": plan.planned, "used": plan.used, "left": plan.left, "usage": usage[name]}
        for name, plan in plans.items()
    }
    return JSONResponse({"mine": own_entry, "audiences": audiences})


async def _estimate_mean_usage(state: AppState) -> dict[str, float | None]:
    """Return the mean used share of budgets by audience, as estimated from public rows.

    None without an estimate, for which public rows are charged as if they were records.
    """
    facts = (await state.call_store(state.store.facts))["audiences"]
    usage = {name: audience["usage"] for name, audience in facts.items()}
    return {name: None if used is None else used["mean"] for name, used in usage.items()}


@_register("GET", "/v1/status", models.StatusResponse)
async def get_status(state: AppState, key: ApiKey, _: Request) -> Response:
    """Return the inputs that the store accepts and the targets that it predicts.

    Also the released values, and the largest number of queries in a request.
    """
    schema = state.store.schema
    facts = await state.call_store(state.store.facts)
    body = {
        "takes": schema.extractor.raw_form,
        "numbers": models.get_n_features(state.store),
        "columns": models.describe_columns(state.store),
        "classes": list(schema.classes),
        "target": schema.target.facts,
        "most_queries": state.settings.request_queries,
        "release": facts["audiences"][key.audience]["plan"]["release"],
    }
    return JSONResponse(body)


@_register("GET", "/v1/history", models.HistoryResponse, role=CURATOR)
async def get_history(state: AppState, _key: ApiKey, _: Request) -> Response:
    """Return the changes of the data (curators)."""
    facts = await state.call_store(state.store.facts)
    return JSONResponse({"version": facts["version"], "history": facts["history"]})


@_register("POST", "/v1/records", models.ChangedResponse, role=CURATOR, body=models.RecordsRequest)
async def add_records(state: AppState, key: ApiKey, request: Request) -> Response:
    """Add records durably. The key must have the role of curator."""
    idempotency_key = _get_idempotency_key(request)
    async with state.body_reader.read_body(request) as content:
        body, rows, n_rows = await state.decode_json(models.RecordsRequest, content)
    subjects = None if body.subjects is None else parse_subject_ids(body.subjects)
    targets = _decode_targets(body, state.store)
    if len(targets) != n_rows or (subjects is not None and len(subjects) != n_rows):
        detail = "There must be one label or target, and one subject if given, per row."
        raise Problem(422, "unusable", detail)
    add = partial(
        state.store.add,
        ids_differ=body.ids_differ,
        curator=key.name,
        idempotency_key=idempotency_key,
    )
    version = await state.call_store(add, rows, targets, subjects, changes_data=True)
    return JSONResponse({"done": "added", "version": version})


def _decode_targets(body: models.RecordsRequest, store: BaseStore) -> np.ndarray:
    """Return labels (n,) or targets (n, p) of the records, as the store accepts them.

    Raises problem 422 if the body has the wrong field, or targets of unequal lengths.
    """
    has_classes = store.schema.target.is_class_vote
    field, other_field = ("labels", "targets") if has_classes else ("targets", "labels")
    if getattr(body, field) is None or getattr(body, other_field) is not None:
        detail = f"Records of this store require '{field}', and must not have '{other_field}'."
        raise Problem(422, "unusable", detail)
    try:
        array = np.array(getattr(body, field), dtype=object if has_classes else np.float64)
    except ValueError:
        raise Problem(422, "unusable", "All 'targets' must have the same length.") from None
    # A single target per record has no second axis.
    return array.ravel() if array.shape[1:] == (1,) else array


# `path`: an id may contain slashes.
@_register(
    "DELETE",
    "/v1/subjects/{subject:path}",
    models.ErasedResponse,
    role=CURATOR,
    parameters=(_SUBJECT, _OUTCOME),
)
async def erase_subject(state: AppState, _key: ApiKey, request: Request) -> Response:
    """Erase a subject permanently; earlier answers and trained models remain (curators).

    The response does not reveal whether the subject was enrolled, except with `outcome=true`.
    """
    parameters = request.query_params.multi_items()
    # A misspelled parameter must not be treated as absent.
    if parameters not in ([], [("outcome", "true")], [("outcome", "false")]):
        raise Problem(422, "unusable", "The only parameter is 'outcome', true or false.")
    ids = parse_subject_ids([request.path_params["subject"]])

    is_outcome_requested = parameters == [("outcome", "true")]

    def erase() -> Presence | None:
        """Erase the subject; return the presence of `ids` before, if the outcome is requested."""
        # Both calls run in one task of the store's thread, so no record is added between them.
        previous_presence = state.store.presence(ids) if is_outcome_requested else None
        state.store.erase(ids)
        return previous_presence

    previous_presence = await state.call_store(erase, changes_data=True)
    facts = await state.call_store(state.store.facts)
    body: dict[str, Any] = {"done": "erased", "version": int(facts["version"])}
    if previous_presence is not None:
        body["outcome"] = asdict(previous_presence)
    return JSONResponse(body)


def parse_subject_ids(subjects: Sequence[int | str]) -> list[SubjectId]:
    """Return canonical subject ids; problem 422 for ids that are invalid or fit no URL path."""
    for subject in subjects:
        error = checks.describe_id_problem(subject)
        # Clients and proxies remove the components '.' and '..' from a path.
        if error is None and not {".", ".."}.isdisjoint(str(subject).split("/")):
            error = "a path component of dots only, which a URL cannot contain"
        if error is not None:
            raise Problem(422, "unusable", f"A subject id must not be or contain {error}.")
    return checks.check_subject_ids("subjects", subjects)


@_register("GET", "/healthz", models.HealthResponse, role=None)
async def get_health(state: AppState, _key: None, _: Request) -> Response:
    """Return whether the service can answer; problem 503 if the store has failed or is closed."""
    if not state.metrics.up:
        raise Problem(503, "storage-failed", "The store has failed.")
    return JSONResponse({"status": "ok"})


@_register("GET", "/metrics", None, role=MONITOR)
async def get_metrics(state: AppState, _key: ApiKey, _: Request) -> Response:
    """Return metrics in the text format of Prometheus (monitors)."""
    usage: dict[str, float | None] = {}
    with suppress(Problem):  # a failed store gives no estimates, but the other metrics remain
        usage = await _estimate_mean_usage(state)
    audiences = {
        name: (state.store.quota(audience=name).left, usage.get(name))
        for name in state.store.audiences
    }
    text = state.metrics.format_text(audiences)
    return Response(text, media_type="text/plain; version=0.0.4")


_DESCRIPTION = """\
Differentially private nearest-neighbour predictions. Each new answer is durably charged to the
subjects whose records contributed to it, before it is sent. Queries are public: every key of your
audience receives the stored answer to an equal query, without a charge.
"""


@cache
def build_openapi() -> dict[str, Any]:
    """Return the OpenAPI document: one entry per operation, and the schemas of all models."""
    from vicinal import __version__

    classes = [value for value in vars(models).values() if isinstance(value, type)]
    body_models = [
        value for value in classes if issubclass(value, BaseModel) and value is not BaseModel
    ]
    _, schemas = models_json_schema(
        [(model, "validation") for model in body_models],
        ref_template="#/components/schemas/{model}",
    )
    security_schemes = {"key": {"type": "http", "scheme": "bearer"}}
    return {
        "openapi": "3.1.0",
        "info": {"title": "vicinal", "version": __version__, "description": _DESCRIPTION},
        "paths": _API_PATHS,
        "components": {"schemas": schemas["$defs"], "securitySchemes": security_schemes},
    }


async def _send_openapi(_: Request) -> JSONResponse:
    return JSONResponse(build_openapi())


async def _redirect_to_console(_: Request) -> RedirectResponse:
    return RedirectResponse("/console", 307)


async def _send_file(path: Path, media_type: str, _: Request) -> FileResponse:
    return FileResponse(path, media_type=media_type)


_STATIC_FOLDER = Path(__file__).parent / "static"
_CONSOLE_FILES = {
    "/console": ("console.html", "text/html"),
    "/console/console.css": ("console.css", "text/css"),
    "/console/console.js": ("console.js", "text/javascript"),
    "/console/form.js": ("form.js", "text/javascript"),
}
_ROUTES = [
    *_API_ROUTES,
    Route("/", _redirect_to_console),
    Route("/openapi.json", _send_openapi),
    *(
        Route(path, partial(_send_file, _STATIC_FOLDER / name, media_type))
        for path, (name, media_type) in _CONSOLE_FILES.items()
    ),
]


def create_app(
    store: BaseStore, folder: Path, settings: ServiceSettings | None = None
) -> Starlette:
    """Return the ASGI application that serves an open store, which the caller closes afterwards.

    `folder` is the store's folder, which holds the API keys. Raises MissingExtra without the extra
    of the network of a store of images or texts.
    """
    store.schema.extractor.load_network()  # now, so that no request waits for it
    state = AppState(store, folder, settings or ServiceSettings())
    # Predictions, the first route, bypass the router.
    security_headers = Middleware(
        SecurityHeadersMiddleware, metrics=state.metrics, direct_routes=_ROUTES[:1]
    )
    app = Starlette(
        routes=_ROUTES,
        middleware=[security_headers],
        exception_handlers=dict.fromkeys((Problem, HTTPException), _send_problem),
        lifespan=_lifespan,
    )
    app.router.redirect_slashes = False  # a redirect would repeat the path, which may contain an id
    app.state.service = state
    return app


@asynccontextmanager
async def _lifespan(app: Starlette) -> AsyncIterator[None]:
    """Start the service's components with the application, and stop them with it."""
    state: AppState = app.state.service
    await state.start()
    yield
    await state.stop()


async def _send_problem(_: Request, error: Any) -> Response:
    """Send a problem, or convert the router's exception for an unknown path or method."""
    problem = error if isinstance(error, Problem) else Problem.from_status(error.status_code)
    return problem.build_response()
