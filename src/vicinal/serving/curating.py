"""What curators do: add records, erase people. Responses hold no numbers of either unasked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from typing import Any

import numpy as np
from starlette.requests import Request

from vicinal import checks
from vicinal.checks import SubjectId
from vicinal.serving.limits import read_body
from vicinal.serving.office import Office
from vicinal.serving.predicting import idempotency_key, parsed
from vicinal.serving.problems import Problem
from vicinal.serving.rows import rows_of
from vicinal.serving.schemas import RecordsRequest
from vicinal.store import Presence


async def add_records(request: Request, office: Office) -> dict[str, Any]:
    """Add records durably. Sent twice with one Idempotency-Key, they are added once."""
    key = office.admit(request, curator=True)
    name = idempotency_key(request)
    _, content = await read_body(request, office.settings)
    body = parsed(RecordsRequest, content)
    rows, size = rows_of(body, office.store, office.settings.request_queries)
    people = None if body.subjects is None else checked_ids(body.subjects)
    if len(body.labels) != size or (people is not None and len(people) != size):
        raise Problem(422, "unusable", "Rows, labels and subjects must be equally many.")
    labels = np.array(body.labels, dtype=object)
    work = partial(office.store.add, curator=key.name, idempotency_key=name)
    made = await office.with_store(work, rows, labels, people, adding=True)
    return {"done": "added", "version": made}


async def erase_subject(request: Request, office: Office) -> dict[str, Any]:
    """Erase a person from every file.

    The response is the same whether they were there, unless `outcome=true` asks for that.
    """
    office.admit(request, curator=True)
    wanted = wants_outcome(request)
    ids = checked_ids([request.path_params["subject"]])
    before = await office.with_store(_erase, office, ids, adding=True)
    done: dict[str, Any] = {"done": "erased", "version": await version(office)}
    return {**done, "outcome": asdict(before)} if wanted else done


def wants_outcome(request: Request) -> bool:
    """Return the parameter `outcome`; a misspelt one must not mean the default."""
    given = request.query_params.multi_items()
    if given not in ([], [("outcome", "true")], [("outcome", "false")]):
        raise Problem(422, "unusable", "The only parameter is 'outcome', true or false.")
    return given == [("outcome", "true")]


def checked_ids(subjects: Sequence[int | str]) -> list[SubjectId]:
    """Return ids in their one form, all of which a path of this service can name.

    Raises
    ------
    Problem
        422, naming the fault.
    """
    for subject in subjects:
        fault = checks.id_fault(subject) or _path_fault(str(subject))
        if fault is not None:
            raise Problem(422, "unusable", f"A subject must be an id. It is, or holds, {fault}.")
    return checks.subject_ids("subjects", subjects)


def _path_fault(text: str) -> str | None:
    """Tell of an id that clients and proxies take out of a path."""
    dots = any(part in (".", "..") for part in text.split("/"))
    return "a part of dots alone, which no path can name" if dots else None


async def version(office: Office) -> int:
    """Return the version of the data."""
    facts = await office.with_store(office.store.facts)
    return int(facts["version"])


def _erase(office: Office, ids: list[SubjectId]) -> Presence:
    """Erase, as one change of the data; return what was there before. Private."""
    before = office.store.presence(ids)
    office.store.erase(ids)
    return before
