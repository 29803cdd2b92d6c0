"""What every route needs: the store behind its worker, keys, limits, decoder and counters."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from starlette.requests import Request

from vicinal.errors import StorageFailed, VicinalError
from vicinal.serving._batching import RequestBatcher
from vicinal.serving._decode_rows import AnyBody, decode_rows, parse_body, width_of
from vicinal.serving._keys import CURATOR, ApiKey, KeyCache, KeyFile
from vicinal.serving._limits import BodyLimits, BodyReader, RateLimit
from vicinal.serving._metrics import Metrics
from vicinal.serving._problems import Problem, of_error
from vicinal.serving._settings import ServiceSettings
from vicinal.store._base_store import AnyStore

_SHORT_BODY = 32 << 10
"""Bytes that the event loop decodes itself: a millisecond, which is what a thread would cost."""


class AppState:
    """Everything that a running service is made of; one for each application.

    Parameters
    ----------
    store : AnyStore
        Open.
    folder : Path
        Where the keys are.
    settings : ServiceSettings
        Limits.
    """

    def __init__(self, store: AnyStore, folder: Path, settings: ServiceSettings) -> None:
        self.store = store
        self.settings = settings
        self.metrics = Metrics(lambda: store.is_consistent)
        self.batcher = RequestBatcher(store, settings, self.metrics)
        self.bodies = BodyReader(settings, BodyLimits.of(settings, width_of(store)))
        self._keys = KeyCache(KeyFile(folder))
        self._rate = RateLimit(settings.rate, settings.burst)
        self._decoder = ThreadPoolExecutor(1, thread_name_prefix="vicinal-decoder")

    @staticmethod
    def of(request: Request) -> AppState:
        """Return the state of the application that has a request."""
        found: AppState = request.app.state.service
        return found

    def admit(self, request: Request, *, curator: bool = False) -> ApiKey:
        """Return the key of a request, before anything of its body is read.

        Raises
        ------
        Problem
            401 without a valid key; 403 if it is an analyst's where a curator's is needed; 429 if
            it comes too often.
        """
        key = self._key_of(request)
        if key is None:
            detail = "Send a valid key as: Authorization: Bearer KEY"
            raise Problem(401, "key", detail, {"WWW-Authenticate": "Bearer"})
        self._rate.consume(key.id)
        if curator and key.role != CURATOR:
            raise Problem(403, "role", "Only a curator may do this.")
        if key.audience not in self.store.audiences:
            raise Problem(403, "audience", "The store has no such audience as this key's.")
        return key

    def _key_of(self, request: Request) -> ApiKey | None:
        sent = request.headers.getlist("authorization")
        if len(sent) != 1:
            return None
        scheme, _, token = sent[0].partition(" ")
        if scheme.lower() != "bearer":
            return None
        try:
            return self._keys.find(token)
        except StorageFailed:
            raise Problem(503, "keys", "The keys cannot be read. Nobody is let in.") from None

    async def decode_json(self, model: type[AnyBody], content: bytes) -> tuple[AnyBody, Any, int]:
        """Return a body, its rows for the store, and how many rows; long ones one at a time.

        Raises
        ------
        Problem
            413 or 422 if it is not what `model` or the store takes.
        """
        self.bodies.limits.check_values(content)

        def decode() -> tuple[AnyBody, Any, int]:
            body = parse_body(model, content)
            return body, *decode_rows(body, self.store, self.settings.request_queries)

        if len(content) <= _SHORT_BODY:
            return decode()
        return await asyncio.get_running_loop().run_in_executor(self._decoder, decode)

    async def with_store(self, work: Any, *arguments: Any, adding: bool = False) -> Any:
        """Return what a method of the store returns, called by the worker; its errors as problems.

        Raises
        ------
        Problem
            As the error is.
        """
        try:
            return await self.batcher.run(partial(work, *arguments))
        except VicinalError as error:
            raise of_error(error, adding=adding) from None

    async def stop(self) -> None:
        """Answer all requests that wait, then end both threads."""
        await self.batcher.stop()
        self._decoder.shutdown()
