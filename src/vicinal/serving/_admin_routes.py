"""What curators do: add records, erase people. Responses hold no numbers of either."""

from __future__ import annotations

from functools import partial

import numpy as np
from starlette.requests import Request
from starlette.responses import JSONResponse

from vicinal import checks
from vicinal.checks import SubjectId
from vicinal.serving._models import RecordsRequest
from vicinal.serving._predict_route import idempotency_key
from vicinal.serving._problems import Problem
from vicinal.serving._state import AppState

KINDS = ("auto", "integer", "text")
_WHOLE = 2**63


async def add_records(request: Request) -> JSONResponse:
    """Add records durably. Sent twice with one Idempotency-Key, they are added once."""
    state = AppState.of(request)
    key = state.admit(request, curator=True)
    name = idempotency_key(request)
    async with state.bodies.read(request) as (_, content):
        body, rows, size = await state.decode_json(RecordsRequest, content)
    people = body.subjects
    if len(body.labels) != size or (people is not None and len(people) != size):
        raise Problem(422, "unusable", "Rows, labels and subjects must be equally many.")
    if people is not None and len({type(person) for person in people}) > 1:
        raise Problem(422, "unusable", "The subjects must be all integers or all texts.")
    labels = np.array(body.labels, dtype=object)
    work = partial(state.store.add, curator=key.name, idempotency_key=name)
    made = await state.with_store(work, rows, labels, people, adding=True)
    return JSONResponse({"done": "added", "version": made})


async def erase_subject(request: Request) -> JSONResponse:
    """Erase a person from every file. The response is the same whether they were there."""
    state = AppState.of(request)
    state.admit(request, curator=True)
    kind = kind_of(request)
    ids = ids_of(request.path_params["subject"], kind)
    await state.with_store(_erase, state, ids, adding=True)
    return JSONResponse({"done": "erased", "version": await version(state)})


def kind_of(request: Request) -> str:
    """Return the parameter `kind`; a misspelt one must not mean the default."""
    given = request.query_params.multi_items()
    if [name for name, _ in given] not in ([], ["kind"]):
        raise Problem(422, "unusable", "The only parameter is 'kind', once at most.")
    return given[0][1] if given else "auto"


def ids_of(text: str, kind: str) -> list[SubjectId]:
    """Return the ids that the text of a path can mean.

    A number may be the id 7 or the id "7", and a path cannot tell. Leaving somebody in the data who
    was to go is the worse fault, so both go, unless `kind` says which.
    """
    if kind not in KINDS:
        raise Problem(422, "unusable", "The parameter 'kind' must be auto, integer or text.")
    number = _number(text)
    if kind == "integer" and number is None:
        raise Problem(422, "unusable", "The subject is not an integer of 64 bits.")
    as_number: list[SubjectId] = [] if number is None or kind == "text" else [number]
    return as_number if kind == "integer" else [*as_number, text]


async def version(state: AppState) -> int:
    """Return the version of the data."""
    facts = await state.with_store(state.store.facts)
    return int(facts["version"])


def _number(text: str) -> int | None:
    """Return the integer that `text` is, written in the one usual way."""
    if not text.isascii() or not text.removeprefix("-").isdecimal() or len(text) > 20:
        return None
    number = int(text)
    return number if str(number) == text and -_WHOLE <= number < _WHOLE else None


def _erase(state: AppState, ids: list[SubjectId]) -> None:
    """Erase, all kinds of ids in one go, as one change of the data."""
    state.store.erase(checks.subject_ids("subjects", ids))
