"""POST /v1/predict: the one path that has to be fast."""

from __future__ import annotations

import json
import time
from typing import Any, TypeVar

from pydantic import ValidationError
from starlette.requests import Request
from starlette.responses import Response

from vicinal.errors import VicinalError
from vicinal.serving.limits import JSON, read_body
from vicinal.serving.npy import NPY, npy_rows
from vicinal.serving.office import Office
from vicinal.serving.problems import Problem, of_error, of_validation
from vicinal.serving.rows import rows_of
from vicinal.serving.schemas import PredictRequest, Rows
from vicinal.store import Query, Reply

LONGEST_KEY = 200
Body = TypeVar("Body", bound=Rows)


async def predict(request: Request, office: Office) -> Response:
    """Answer queries; returns after the charges have become durable.

    Raises
    ------
    Problem
        In all cases in which there is no answer; then nothing was charged, but for 500 and 503,
        after which the same Idempotency-Key gets whatever was charged.
    """
    key = office.admit(request)
    begin = time.perf_counter()
    name = idempotency_key(request)
    rows, size = await _rows(request, office)
    try:
        query = Query(rows, key.audience, key.name, name)
        reply = await office.batcher.ask(query, size)
    except VicinalError as error:
        raise of_error(error) from None
    office.metrics.answered(size, time.perf_counter() - begin)
    return Response(written(reply), media_type="application/json")


async def _rows(request: Request, office: Office) -> tuple[Any, int]:
    """Return the queries of a request, as JSON or as a .npy file, and how many."""
    kind, content = await read_body(request, office.settings, (JSON, NPY))
    most = office.settings.request_queries
    if kind == NPY:
        return npy_rows(content, office.store, most)
    return rows_of(parsed(PredictRequest, content), office.store, most)


def parsed(form: type[Body], content: bytes) -> Body:
    """Return a body as its model has it, or raise a problem that repeats nothing of it."""
    try:
        return form.model_validate_json(content)
    except ValidationError as error:
        raise of_validation(error, frozenset(form.model_fields)) from None


def idempotency_key(request: Request) -> str | None:
    """Return the header Idempotency-Key, or None if there is none."""
    sent = request.headers.getlist("idempotency-key")
    if not sent:
        return None
    if len(sent) > 1 or not 0 < len(sent[0]) <= LONGEST_KEY or not _plain(sent[0]):
        detail = f"Idempotency-Key must be one header of 1 to {LONGEST_KEY} ASCII characters."
        raise Problem(400, "idempotency-key", detail)
    return sent[0]


def written(reply: Reply) -> bytes:
    """Return a reply as JSON."""
    return json.dumps(reply.to_dict(), allow_nan=False, separators=(",", ":")).encode()


def _plain(text: str) -> bool:
    return text.isascii() and text.isprintable()
