"""How much may come in, and what is told of what may not: problems in words that repeat no input.

Bytes and numbers of a body, bytes of all bodies, requests of a key are bounded. Problems are
application/problem+json (RFC 9457).
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from http import HTTPStatus

from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse

from vicinal import errors
from vicinal.serving.settings import ServiceSettings

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


def of_status(status: int) -> Problem:
    """Return the problem for a path or a method that there is not."""
    title = HTTPStatus(status).phrase
    return Problem(status, title.lower().replace(" ", "-"), f"{title}.")


def of_error(error: errors.VicinalError, *, adding: bool = False) -> Problem:
    """Return the problem that an error of the store is.

    The sentences are ours: those of the store name files and arguments, which are not for clients.
    """
    # In this order: an absent shard is a failure of storage, too, but one that passes.
    if isinstance(error, errors.ShardMissing):
        detail = (
            "A part of the data cannot be reached at present, so nothing was answered, and "
            "neither plan nor quota was used. Send it again, with the same Idempotency-Key."
        )
        return Problem(503, "shard-missing", detail, {"Retry-After": "5"})
    if isinstance(error, errors.StorageFailed | errors.StoreOutdated):
        detail = "The store has failed. It answers nothing until its operator opens it again."
        return Problem(503, "storage-failed", detail)
    if isinstance(error, errors.IdsAlike):
        detail = (
            "Some new 'subjects' differ from known ones, or from each other, by leading zeros, "
            "case, blanks or width only, and the same people would get second budgets. Write them "
            "as they were written first; if they are other people, send 'ids_differ': true. "
            "Nothing was added."
        )
        return Problem(409, "ids-alike", detail)
    if isinstance(error, errors.PrivacyRefused):
        detail = (
            "The audience's plan, or your quota, has too few answers left for the new queries, "
            "or you have had answers of another audience. Nothing was charged. Queries answered "
            "since the data last changed still cost nothing. See GET /v1/quota. A curator can open "
            "another audience, or publish a student that answers without limit."
        )
        return Problem(403, "budget", detail)
    if isinstance(error, errors.KeyReused):
        detail = "This Idempotency-Key was used for other queries. Use a new one."
        if adding:
            detail = (
                "This Idempotency-Key was used for other records, or somebody was erased since. "
                "Nothing was added. See GET /v1/history, and use a new one."
            )
        return Problem(409, "key-used", detail)
    if isinstance(error, errors.NoSubjectIds):
        detail = (
            "Nobody can be erased by id: the records came without subject ids, so every row is "
            "a subject of its own. Make a new store from records with ids."
        )
        return Problem(409, "no-ids", detail)
    if isinstance(error, errors.UnusableRows):
        detail = f"{error.located} GET /v1/status says which columns this store takes."
        return Problem(422, "unusable", detail)
    noun = "records, labels or subjects" if adding else "queries"
    detail = f"The {noun} do not fit this store. GET /v1/status says what it accepts."
    return Problem(422, "unusable", detail)


JSON = "application/json"

_NUMBER_BYTES = 25
"""A float64 in JSON, with its comma: -1.2345678901234567e-300."""
_OTHER_VALUES = 16
"""Values and brackets that a row needs beside its numbers: label, subject, commas in both."""
_MOST_VALUES = 1 << 20
"""The parser of JSON holds the interpreter meanwhile, some 60 ms for so many values."""
_UNKNOWN_BYTES = 8 << 20
_DEEPEST = 8
"""Lists that may begin at one place; images begin with four."""
_BRACKET = 4
"""Values that a list counts for: it costs the parser as much time and memory."""


@dataclass(frozen=True, slots=True)
class BodyLimits:
    """Longest body in bytes, counted while it is read, and most values in one of JSON.

    Values are commas, and brackets four times, counted before it is parsed.
    """

    length: int
    values: int

    @classmethod
    def of(cls, settings: ServiceSettings, width: int | None) -> BodyLimits:
        """Return what `request_queries` rows of `width` numbers need; 8 MiB if that is unknown."""
        values = _MOST_VALUES
        longest = _UNKNOWN_BYTES
        if width is not None:
            values = min(values, settings.request_queries * (width + _OTHER_VALUES))
            longest = _NUMBER_BYTES * values + 1024
        return cls(settings.body_bytes or longest, values)

    def check_values(self, content: bytes) -> None:
        """Raise a problem for JSON that would keep the parser busy too long: 413, or 422."""
        commas, lists = content.count(b","), content.count(b"[")
        if lists > _DEEPEST * (commas + 1):
            raise Problem(422, "unusable", "The body nests lists too deeply.")
        if commas + _BRACKET * lists > self.values:
            raise Problem(413, "too-large", "The body holds too many values. Send fewer rows.")


class BodyReader:
    """Reads bodies within bounds of each and of all together."""

    def __init__(self, settings: ServiceSettings, limits: BodyLimits) -> None:
        self.limits = limits
        self._seconds = settings.body_seconds
        self._free = max(settings.bodies_bytes, limits.length)

    @asynccontextmanager
    async def read(self, request: Request) -> AsyncIterator[bytes]:
        """Yield a body of JSON; it counts until the end.

        413 as soon as too many bytes are announced or have come; 408 if it takes too long; 415 if
        it is of another type; 503 if the bodies of others fill the memory for them.
        """
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != JSON:
            raise Problem(415, "media-type", f"The body must be {JSON}.")
        announced = request.headers.get("content-length", "")
        if announced.isdecimal() and int(announced[:20]) > self.limits.length:
            raise self._too_large()
        parts: list[bytes] = []
        try:
            await self._receive(request, parts)
            yield b"".join(parts)
        finally:
            self._free += sum(map(len, parts))

    async def _receive(self, request: Request, parts: list[bytes]) -> None:
        size = 0
        try:
            async with asyncio.timeout(self._seconds):
                async for part in request.stream():
                    size += len(part)
                    if size > self.limits.length:
                        raise self._too_large()
                    if len(part) > self._free:
                        raise busy()
                    self._free -= len(part)
                    parts.append(part)
        except TimeoutError:
            raise Problem(408, "too-slow", "The body took too long to arrive.") from None
        except ClientDisconnect:
            detail = "The client left before the body arrived."
            raise Problem(400, "disconnected", detail) from None

    def _too_large(self) -> Problem:
        detail = f"The body must have at most {self.limits.length} bytes."
        return Problem(413, "too-large", detail, {"Connection": "close"})


class RateLimit:
    """A bucket of `burst` requests for every key, refilled at `rate` a second; 0 is no limit."""

    def __init__(
        self, rate: float, burst: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._rate = rate
        self._burst = burst
        self._clock = clock
        self._buckets: dict[str, tuple[float, float]] = {}

    def consume(self, key_id: str) -> None:
        """Take one request out of a key's bucket; 429 with the seconds to wait if it is empty."""
        if not self._rate:
            return
        now = self._clock()
        tokens, then = self._buckets.get(key_id, (self._burst, now))
        tokens = min(self._burst, tokens + self._rate * (now - then))
        allowed = tokens >= 1
        self._buckets[key_id] = (tokens - allowed, now)
        if not allowed:
            wait = max(1, math.ceil((1 - tokens) / self._rate))
            detail = "This key sends requests too fast. Wait, or send more queries in one request."
            raise Problem(429, "rate", detail, {"Retry-After": str(wait)})
