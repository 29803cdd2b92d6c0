"""What went wrong, as application/problem+json (RFC 9457), in words that repeat no input."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus

from pydantic import ValidationError
from starlette.responses import JSONResponse

from vicinal.errors import (
    KeyReused,
    PrivacyRefused,
    ShardMissing,
    StorageFailed,
    StoreOutdated,
    VicinalError,
)

MEDIA = "application/problem+json"
_TYPE = "https://vicinal.invalid/problems/"


class Problem(Exception):
    """An answer that is an error.

    Programs tell it by its `kind`; people read its `detail`, which never holds anything that the
    client sent.
    """

    def __init__(
        self, status: int, kind: str, detail: str, headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(kind)
        self.status = status
        self.kind = kind
        self.detail = detail
        self.headers = dict(headers or {})

    def response(self) -> JSONResponse:
        """Return it as a response."""
        body = {
            "type": _TYPE + self.kind,
            "title": HTTPStatus(self.status).phrase,
            "status": self.status,
            "detail": self.detail,
        }
        return JSONResponse(body, self.status, self.headers, MEDIA)


def busy() -> Problem:
    """Return the problem of a request that finds too many before it."""
    detail = "Too many queries are waiting. Nothing was charged. Send it again, with the same key."
    return Problem(503, "busy", detail, {"Retry-After": "1"})


def internal() -> Problem:
    """Return the problem of a fault of ours."""
    detail = "Something went wrong. Send it again with the same Idempotency-Key: it costs nothing."
    return Problem(500, "internal", detail)


def of_status(status: int) -> Problem:
    """Return the problem for a path or a method that there is not."""
    title = HTTPStatus(status).phrase
    return Problem(status, title.lower().replace(" ", "-"), f"{title}.")


def of_error(error: VicinalError, *, adding: bool = False) -> Problem:
    """Return the problem that an error of the store is.

    The sentences are ours: those of the store name files and arguments, which are not for clients.
    """
    if isinstance(error, ShardMissing):
        return _missing()
    if isinstance(error, StorageFailed | StoreOutdated):
        detail = "The store has failed and answers nothing until its operator opens it again."
        return Problem(503, "storage-failed", detail)
    if isinstance(error, PrivacyRefused):
        return _refused()
    if isinstance(error, KeyReused):
        return _key_used(adding=adding)
    noun = "records, labels or subjects" if adding else "queries"
    detail = f"The {noun} are not what this store takes. GET /v1/status says what it takes."
    return Problem(422, "unusable", detail)


def of_validation(error: ValidationError, fields: frozenset[str]) -> Problem:
    """Return the problem of a body that is not what a path takes: field and kind of the first."""
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    place = next((part for part in first["loc"] if part in fields), None)
    where = "The body" if place is None else f"The field '{place}'"
    return Problem(422, "unusable", f"{where} is not what this path takes ({first['type']}).")


def _key_used(*, adding: bool) -> Problem:
    if adding:
        detail = (
            "This Idempotency-Key was used for other records, or somebody was erased since. "
            "Nothing was added. See GET /v1/history, and use a new one."
        )
    else:
        detail = "This Idempotency-Key was used for other queries. Use a new one."
    return Problem(409, "key-used", detail)


def _missing() -> Problem:
    detail = (
        "A part of the data cannot be reached at present, so nothing was answered, and no plan or "
        "quota is the less. Send it again, with the same Idempotency-Key."
    )
    return Problem(503, "shard-missing", detail, {"Retry-After": "5"})


def _refused() -> Problem:
    detail = (
        "The audience's plan, or your quota, has too few answers left for the new queries. Nothing "
        "was charged. Queries answered since the data last changed still cost nothing. "
        "See GET /v1/quota."
    )
    return Problem(403, "budget", detail)
