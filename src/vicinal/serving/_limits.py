"""Limits of request bodies (size, number of values, time, total memory) and of request rates."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from starlette.requests import ClientDisconnect, Request

from vicinal.serving._problems import Problem
from vicinal.serving.settings import ServiceSettings

JSON_MEDIA_TYPE = "application/json"

_BYTES_PER_NUMBER = 25  # longest float64 in JSON with its comma: -1.2345678901234567e-300
_EXTRA_VALUES_PER_ROW = 16
"""Counted values of a row besides its numbers: label, subject, their commas and brackets."""
_MAX_VALUES = 1 << 20  # parsing that many values holds the interpreter lock for about 60 ms
_DEFAULT_BODY_BYTES = 8 << 20
"""Longest body where the row width is unknown, such as texts and images."""
_MAX_BRACKETS_PER_COMMA = 8
"""Largest mean number of lists that open between two commas; images need four."""
_VALUES_PER_LIST = 4  # a list costs the parser as much time and memory as four numbers
_CSV_DELIMITERS = (b",", b";", b"\t", b"|")
"""Marks that the reader of CSV files tries as delimiters."""
_MAX_CSV_COLUMNS = 10_000  # reading a header of that many columns takes about a second


@dataclass(frozen=True, slots=True)
class BodyLimits:
    """Limits of a request body: `max_bytes` while it arrives, `max_values` before it is parsed.

    A number counts as one value, a list as four; they are counted by their commas and brackets.
    """

    max_bytes: int
    max_values: int

    @classmethod
    def from_n_features(cls, settings: ServiceSettings, n_features: int | None) -> BodyLimits:
        """Return the limits for requests with rows of `n_features` numbers (None: unknown)."""
        max_values = _MAX_VALUES
        max_bytes = _DEFAULT_BODY_BYTES
        if n_features is not None:
            n_values = settings.request_queries * (n_features + _EXTRA_VALUES_PER_ROW)
            max_values = min(max_values, n_values)
            max_bytes = _BYTES_PER_NUMBER * max_values + 1024
        return cls(settings.body_bytes or max_bytes, max_values)

    def check_values(self, content: bytes) -> None:
        """Raise problem 413 for JSON with too many values, 422 for lists nested too deeply."""
        n_commas = content.count(b",")
        n_lists = content.count(b"[")
        if n_lists > _MAX_BRACKETS_PER_COMMA * (n_commas + 1):
            raise Problem(422, "unusable", "The body nests lists too deeply.")
        if n_commas + _VALUES_PER_LIST * n_lists > self.max_values:
            raise Problem(413, "too-large", "The body has too many values. Send fewer rows.")

    def check_cells(self, content: bytes) -> None:
        """Raise problem 413 for a CSV file with too many cells, in total or in a line.

        Every mark that may delimit them is counted.
        """
        n_lines = max(content.count(b"\n"), content.count(b"\r"))
        n_cells = n_lines + max(content.count(mark) for mark in _CSV_DELIMITERS)
        if n_cells > self.max_values:
            raise Problem(413, "too-large", "The file has too many cells. Send fewer rows.")
        # Every line is counted, because a quoted line break can precede the end of the header.
        n_columns = max(
            (line.count(mark) for line in content.splitlines() for mark in _CSV_DELIMITERS),
            default=0,
        )
        if n_columns >= _MAX_CSV_COLUMNS:
            detail = f"A line of the file must have at most {_MAX_CSV_COLUMNS} cells."
            raise Problem(413, "too-large", detail)


class BodyReader:
    """Reads request bodies within the limits of one body and of all bodies in memory."""

    def __init__(self, settings: ServiceSettings, limits: BodyLimits) -> None:
        self.limits = limits
        self._timeout_seconds = settings.body_seconds
        self._available_bytes = max(settings.bodies_bytes, limits.max_bytes)

    @asynccontextmanager
    async def read_body(
        self, request: Request, media_type: str = JSON_MEDIA_TYPE
    ) -> AsyncIterator[bytes]:
        """Yield a body of a media type; its bytes occupy the shared memory until the context ends.

        Raises problem 413 as soon as its announced or received size exceeds the limit, 408 if it
        takes too long, 415 for another media type, 503 if other bodies occupy the memory.
        """
        content_type = request.headers.get("content-type", "")
        if content_type.partition(";")[0].strip().lower() != media_type:
            raise Problem(415, "media-type", f"The body must be {media_type}.")
        announced = request.headers.get("content-length", "")
        if announced.isdecimal() and int(announced[:20]) > self.limits.max_bytes:
            raise self._size_problem()
        chunks: list[bytes] = []
        try:
            await self._receive_chunks(request, chunks)
            yield b"".join(chunks)
        finally:
            self._available_bytes += sum(map(len, chunks))

    async def _receive_chunks(self, request: Request, chunks: list[bytes]) -> None:
        """Append the body to `chunks` as it arrives, and reserve its memory; or raise a problem."""
        size = 0
        try:
            async with asyncio.timeout(self._timeout_seconds):
                async for chunk in request.stream():
                    size += len(chunk)
                    if size > self.limits.max_bytes:
                        raise self._size_problem()
                    if len(chunk) > self._available_bytes:
                        raise Problem.from_overload()
                    self._available_bytes -= len(chunk)
                    chunks.append(chunk)
        except TimeoutError:
            raise Problem(408, "too-slow", "The body took too long to arrive.") from None
        except ClientDisconnect:
            detail = "The client disconnected before the body arrived."
            raise Problem(400, "disconnected", detail) from None

    def _size_problem(self) -> Problem:
        """Return the problem for a body that exceeds the limit of bytes."""
        detail = f"The body must have at most {self.limits.max_bytes} bytes."
        return Problem(413, "too-large", detail, {"Connection": "close"})


class RateLimit:
    """Token bucket per key: `burst` tokens, refilled at `rate` per second; rate 0: no limit."""

    def __init__(self, rate: float, burst: float) -> None:
        self._rate = rate
        self._burst = burst
        self._buckets: dict[str, tuple[float, float]] = {}

    def take_token(self, key_id: str) -> None:
        """Take a token of this key; raise problem 429 with the waiting time if none is left."""
        if not self._rate:
            return
        current_time = time.monotonic()
        tokens, last_time = self._buckets.get(key_id, (self._burst, current_time))
        tokens = min(self._burst, tokens + self._rate * (current_time - last_time))
        is_allowed = tokens >= 1
        self._buckets[key_id] = (tokens - is_allowed, current_time)
        if not is_allowed:
            wait_seconds = max(1, math.ceil((1 - tokens) / self._rate))
            detail = "This key sends requests too fast. Wait, or send more queries per request."
            raise Problem(429, "rate", detail, {"Retry-After": str(wait_seconds)})
