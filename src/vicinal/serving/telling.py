"""What the service tells: guarantee, quota, status, history, health and metrics."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request

from vicinal.serving.keys import CURATOR
from vicinal.serving.office import Office
from vicinal.serving.problems import Problem
from vicinal.serving.rows import width_of


async def guarantee(request: Request, office: Office) -> dict[str, Any]:
    """Return the guarantee of the key's audience."""
    key = office.admit(request)
    found = await office.with_store(office.store.guarantee, key.audience)
    return {"audience": key.audience, "guarantee": found.to_dict()}


async def quota(request: Request, office: Office) -> dict[str, Any]:
    """Return answers used and left: of the key's audience, or of all for a curator."""
    key = office.admit(request)
    names = office.store.audiences if key.role == CURATOR else (key.audience,)
    own = office.store.quota(key.name, audience=key.audience)
    plans = {name: office.store.quota(audience=name) for name in names}
    facts = (await office.with_store(office.store.facts))["audiences"]
    mine = {
        "name": key.name,
        "role": key.role,
        "audience": key.audience,
        "quota": own.analyst_quota,
        "used": own.analyst_used,
        "left": own.analyst_left,
    }
    audiences = {
        name: {"planned": p.planned, "used": p.used, "left": p.left, "wear": _worn(facts[name])}
        for name, p in plans.items()
    }
    return {"mine": mine, "audiences": audiences}


def _worn(audience: dict[str, Any]) -> float | None:
    """Return the mean share of a budget that public points have used up."""
    wear = audience["wear"]
    return None if wear is None else wear["mean"]


async def status(request: Request, office: Office) -> dict[str, Any]:
    """Return what the store takes, and how this process is doing."""
    key = office.admit(request)
    frame = office.store.frame
    facts = await office.with_store(office.store.facts)
    return {
        "takes": frame.extractor.takes,
        "numbers": width_of(office.store),
        "classes": list(frame.classes),
        "most_queries": office.settings.request_queries,
        "release": facts["audiences"][key.audience]["plan"]["release"],
        "process": office.metrics.speed(),
    }


async def history(request: Request, office: Office) -> dict[str, Any]:
    """Return when the data changed; for curators."""
    office.admit(request, curator=True)
    facts = await office.with_store(office.store.facts)
    return {"version": facts["version"], "history": facts["history"]}


def health(office: Office) -> dict[str, str]:
    """Tell whether the service can answer; 503 once the store has failed."""
    if office.metrics.failed:
        raise Problem(503, "storage-failed", "The store has failed.")
    return {"status": "ok"}
