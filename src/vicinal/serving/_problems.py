"""Error responses in the format application/problem+json (RFC 9457).

Their texts neither repeat input of the client nor name files of the server.
"""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus

from starlette.responses import JSONResponse

from vicinal import errors

PROBLEM_MEDIA_TYPE = "application/problem+json"
_TYPE_PREFIX = "https://vicinal.invalid/problems/"


class Problem(Exception):
    """An error of a request, to be sent as its response with HTTP status `status` and `headers`.

    Programs distinguish problems by `kind`, the end of the field `type`; `detail` is for users.
    """

    def __init__(
        self, status: int, kind: str, detail: str, headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(kind)
        self.status = status
        self.kind = kind
        self.detail = detail
        self.headers = dict(headers or {})

    def build_response(self) -> JSONResponse:
        """Return the problem as the response to send."""
        body = {
            "type": _TYPE_PREFIX + self.kind,
            "title": HTTPStatus(self.status).phrase,
            "status": self.status,
            "detail": self.detail,
        }
        return JSONResponse(body, self.status, self.headers, PROBLEM_MEDIA_TYPE)

    @classmethod
    def from_status(cls, status: int) -> Problem:
        """Return the problem for an unknown path or an unsupported method (404, 405)."""
        title = HTTPStatus(status).phrase
        return cls(status, title.lower().replace(" ", "-"), f"{title}.")

    @classmethod
    def from_overload(cls) -> Problem:
        """Return the problem for a request that exceeds a limit of the whole service."""
        detail = "The service is busy. Nothing was charged. Repeat the request with the same key."
        return Problem(503, "busy", detail, {"Retry-After": "1"})


def translate_store_error(error: errors.VicinalError, *, changes_data: bool = False) -> Problem:
    """Return the problem for an error of the store.

    Its text is written here, because clients must not see the files and arguments that the error
    names. `changes_data`: whether the request adds records or erases a subject.
    """
    # ShardMissing is a subclass of StorageFailed, but temporary; it must be tested first.
    if isinstance(error, errors.ShardMissing):
        detail = (
            "Part of the data is temporarily unavailable. No query was answered, and neither the "
            "plan nor your quota was charged. Repeat the request with the same Idempotency-Key."
        )
        return Problem(503, "shard-missing", detail, {"Retry-After": "5"})
    if isinstance(error, errors.StorageFailed | errors.StoreOutdated):
        detail = "The store has failed. It stays unavailable until its operator reopens it."
        return Problem(503, "storage-failed", detail)
    if isinstance(error, errors.IdsAlike):
        detail = (
            "Some new 'subjects' differ from existing ones, or from each other, only in spelling: "
            "zeros, case, whitespace, dashes, quotes or look-alike characters. If they denote the "
            "same subjects, write the ids as before; otherwise a subject would receive a second "
            "budget. If they denote different subjects, send 'ids_differ': true. Nothing was added."
        )
        return Problem(409, "ids-alike", detail)
    if isinstance(error, errors.PrivacyRefused):
        detail = (
            "The new queries exceed the remaining answers of the audience's plan or of your quota, "
            "or you have received answers of another audience. Nothing was charged. Queries "
            "answered since the last change of the data are still answered without a charge. See "
            "GET /v1/quota. A curator can open another audience, or publish a student model, which "
            "answers any number of queries."
        )
        return Problem(403, "budget", detail)
    if isinstance(error, errors.KeyReused):
        detail = "This Idempotency-Key was used for different queries. Use a new one."
        if changes_data:
            detail = (
                "This Idempotency-Key was used for different records, or a subject was erased "
                "since. Nothing was added. See GET /v1/history, and use a new key."
            )
        return Problem(409, "key-used", detail)
    if isinstance(error, errors.NoSubjectIds):
        detail = (
            "This store cannot erase by id: its records have no subject ids, so every record is "
            "a subject of its own. Create a new store from records with ids."
        )
        return Problem(409, "no-ids", detail)
    if isinstance(error, errors.NoCoverage):
        detail = (
            "Your audience has no calibration for 'coverage', or the data changed since. The "
            "operator can evaluate past answers on known outcomes. Answers stored under an older "
            "Idempotency-Key have no sets: repeat the request without 'coverage', or use a new "
            "key. Stores that release labels alone, and stores of label sets, have no sets at all. "
            "Nothing was charged."
        )
        return Problem(422, "no-coverage", detail)
    if isinstance(error, errors.UnusableRows):
        detail = f"{error.for_clients} GET /v1/status lists the columns that this store accepts."
        return Problem(422, "unusable", detail)
    content = "records, labels or subjects" if changes_data else "queries"
    detail = f"The {content} do not fit this store. GET /v1/status describes what it accepts."
    return Problem(422, "unusable", detail)
