"""The routes that change nothing: guarantee, quota, status, history, health and metrics."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse

from vicinal.serving._decode_rows import columns_of, width_of
from vicinal.serving._keys import CURATOR
from vicinal.serving._problems import Problem
from vicinal.serving._state import AppState


async def guarantee(request: Request) -> JSONResponse:
    """Return the guarantee of the key's audience."""
    state = AppState.of(request)
    key = state.admit(request)
    found = await state.with_store(state.store.guarantee, key.audience)
    return JSONResponse({"audience": key.audience, "guarantee": found.to_dict()})


async def quota(request: Request) -> JSONResponse:
    """Return answers used and left: of the key's audience, or of all for a curator."""
    state = AppState.of(request)
    key = state.admit(request)
    names = state.store.audiences if key.role == CURATOR else (key.audience,)
    own = state.store.quota(key.name, audience=key.audience)
    plans = {name: state.store.quota(audience=name) for name in names}
    facts = (await state.with_store(state.store.facts))["audiences"]
    mine = {
        "name": key.name,
        "role": key.role,
        "audience": key.audience,
        "quota": own.analyst_quota,
        "used": own.analyst_used,
        "left": own.analyst_left,
    }
    audiences = {
        name: {"planned": q.planned, "used": q.used, "left": q.left, "wear": _usage(facts[name])}
        for name, q in plans.items()
    }
    return JSONResponse({"mine": mine, "audiences": audiences})


def _usage(audience: dict[str, Any]) -> float | None:
    """Return the mean share of a budget that public points have used up."""
    usage = audience["wear"]
    return None if usage is None else usage["mean"]


async def status(request: Request) -> JSONResponse:
    """Return what the store takes, and how this process is doing."""
    state = AppState.of(request)
    key = state.admit(request)
    frame = state.store.schema
    facts = await state.with_store(state.store.facts)
    found = {
        "takes": frame.extractor.takes,
        "numbers": width_of(state.store),
        "columns": columns_of(state.store),
        "classes": list(frame.classes),
        "most_queries": state.settings.request_queries,
        "release": facts["audiences"][key.audience]["plan"]["release"],
        "process": state.metrics.speed(),
    }
    return JSONResponse(found)


async def history(request: Request) -> JSONResponse:
    """Return when the data changed; for curators."""
    state = AppState.of(request)
    state.admit(request, curator=True)
    facts = await state.with_store(state.store.facts)
    return JSONResponse({"version": facts["version"], "history": facts["history"]})


async def health(request: Request) -> JSONResponse:
    """Tell whether the service can answer; 503 once the store is closed, whatever closed it."""
    if not AppState.of(request).metrics.up:
        raise Problem(503, "storage-failed", "The store has failed.")
    return JSONResponse({"status": "ok"})


async def metrics(request: Request) -> PlainTextResponse:
    """Return counters for Prometheus."""
    text = AppState.of(request).metrics.text()
    return PlainTextResponse(text, media_type="text/plain; version=0.0.4")
