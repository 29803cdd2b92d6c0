"""POST /v1/predict: the one path that has to be fast."""

from __future__ import annotations

import json
import time

from starlette.requests import Request
from starlette.responses import Response

from vicinal.errors import VicinalError
from vicinal.serving._decode_rows import NPY, npy_rows
from vicinal.serving._limits import JSON
from vicinal.serving._models import PredictRequest
from vicinal.serving._problems import Problem, of_error
from vicinal.serving._state import AppState
from vicinal.store import Query, Reply

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
    return Response(encode_reply(reply), media_type="application/json")


def idempotency_key(request: Request) -> str | None:
    """Return the header Idempotency-Key, or None if there is none."""
    sent = request.headers.getlist("idempotency-key")
    if not sent:
        return None
    if len(sent) > 1 or not 0 < len(sent[0]) <= LONGEST_KEY or not _plain(sent[0]):
        detail = f"Idempotency-Key must be one header of 1 to {LONGEST_KEY} ASCII characters."
        raise Problem(400, "idempotency-key", detail)
    return sent[0]


def encode_reply(reply: Reply) -> bytes:
    """Return a reply as JSON."""
    return json.dumps(reply.to_dict(), allow_nan=False, separators=(",", ":")).encode()


def _plain(text: str) -> bool:
    return text.isascii() and text.isprintable()
