"""The routes: predict, the one path that has to be fast, what may be read, and what curators do."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from functools import partial
from typing import Any

import numpy as np
from pydantic_core import to_json
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response

from vicinal import _checks
from vicinal._checks import SubjectId
from vicinal.errors import VicinalError
from vicinal.serving._decode_rows import NPY, columns_of, npy_rows, width_of
from vicinal.serving._keys import CURATOR
from vicinal.serving._limits import JSON
from vicinal.serving._models import PredictRequest, RecordsRequest
from vicinal.serving._problems import Problem, of_error
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
    if len(sent) > 1 or not 0 < len(sent[0]) <= LONGEST_KEY or not _printable(sent[0]):
        detail = f"Idempotency-Key must be one header of 1 to {LONGEST_KEY} ASCII characters."
        raise Problem(400, "idempotency-key", detail)
    return sent[0]


def _printable(text: str) -> bool:
    return text.isascii() and text.isprintable()


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
    audiences = {
        name: {"planned": q.planned, "used": q.used, "left": q.left, **_usage(state, name)}
        for name, q in plans.items()
    }
    return JSONResponse({"mine": mine, "audiences": audiences})


def _usage(state: AppState, audience: str) -> dict[str, Any]:
    samples = state.usage.of(audience)
    return {"wear": samples[-1]["wear"], "usage": samples}


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
    frame = state.store.schema
    facts = await state.with_store(state.store.facts)
    figures = {
        "takes": frame.extractor.takes,
        "numbers": width_of(state.store),
        "columns": columns_of(state.store),
        "classes": list(frame.classes),
        "target": frame.target.facts,
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
