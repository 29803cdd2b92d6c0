"""How much may come in: bytes of a body while it is read, requests of a key over time."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable

from starlette.requests import ClientDisconnect, Request

from vicinal.serving.problems import Problem
from vicinal.serving.settings import Settings

JSON = "application/json"


async def read_body(
    request: Request, settings: Settings, media: tuple[str, ...] = (JSON,)
) -> tuple[str, bytes]:
    """Return the body of a request, and which of the types in `media` it is.

    Raises
    ------
    Problem
        413 as soon as more than ``settings.body_bytes`` are announced or have come; 408 if it takes
        too long; 415 if it is of another type.
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind not in media:
        raise Problem(415, "media-type", f"The body must be {' or '.join(media)}.")
    announced = request.headers.get("content-length", "")
    if announced.isdecimal() and int(announced[:20]) > settings.body_bytes:
        raise _too_large(settings)
    try:
        async with asyncio.timeout(settings.body_seconds):
            return kind, await _read(request, settings)
    except TimeoutError:
        raise Problem(408, "too-slow", "The body took too long to arrive.") from None
    except ClientDisconnect:
        raise Problem(400, "disconnected", "The client left before the body was there.") from None


async def _read(request: Request, settings: Settings) -> bytes:
    parts, size = [], 0
    async for part in request.stream():
        size += len(part)
        if size > settings.body_bytes:
            raise _too_large(settings)
        parts.append(part)
    return b"".join(parts)


def _too_large(settings: Settings) -> Problem:
    detail = f"The body must have at most {settings.body_bytes} bytes."
    return Problem(413, "too-large", detail, {"Connection": "close"})


class RateLimit:
    """A bucket of requests for every key, refilled at a fixed rate.

    Parameters
    ----------
    rate, burst : float
        Requests a second, and how many fit into a bucket; rate 0: no limit.
    clock : callable
        Returns seconds.
    """

    def __init__(
        self, rate: float, burst: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._rate = rate
        self._burst = burst
        self._clock = clock
        self._buckets: dict[str, tuple[float, float]] = {}

    def take(self, key_id: str) -> None:
        """Take one request out of a key's bucket.

        Raises
        ------
        Problem
            429 with the seconds to wait, if the bucket is empty.
        """
        if not self._rate:
            return
        now = self._clock()
        left, then = self._buckets.get(key_id, (self._burst, now))
        left = min(self._burst, left + self._rate * (now - then))
        allowed = left >= 1
        self._buckets[key_id] = (left - allowed, now)
        if not allowed:
            wait = max(1, math.ceil((1 - left) / self._rate))
            detail = "This key sends requests too fast. Wait, or send more queries in one request."
            raise Problem(429, "rate", detail, {"Retry-After": str(wait)})
