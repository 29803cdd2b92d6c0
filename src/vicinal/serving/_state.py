"""The state that all routes share: store, keys, limits, body decoder and metrics."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from starlette.requests import Request

from vicinal.errors import InvalidInput, StorageFailed, VicinalError
from vicinal.features.table_features import describe_unexpected_values
from vicinal.serving._batcher import RequestBatcher
from vicinal.serving._csv import decode_csv
from vicinal.serving._limits import BodyLimits, BodyReader, RateLimit
from vicinal.serving._metrics import Metrics
from vicinal.serving._problems import Problem, translate_store_error
from vicinal.serving.keys import CURATOR, ApiKey, KeyCache, KeyFile
from vicinal.serving.local_socket import LocalSocket
from vicinal.serving.models import AnyBody, decode_rows, get_n_features, parse_body
from vicinal.serving.settings import ServiceSettings
from vicinal.store.base_store import BaseStore
from vicinal.store.input_files import get_table_schema

_INLINE_BODY_BYTES = 32 << 10
"""Longest body decoded in the event loop: passing it to a thread would take as long, 1 ms."""
T = TypeVar("T")


class AppState:
    """The components of a running service; `folder` of `store` has API keys and local socket."""

    def __init__(self, store: BaseStore, folder: Path, settings: ServiceSettings) -> None:
        self.store = store
        self.settings = settings
        self.metrics = Metrics(lambda: store.is_consistent)
        self.batcher = RequestBatcher(store, settings, self.metrics)
        body_limits = BodyLimits.from_n_features(settings, get_n_features(store))
        self.body_reader = BodyReader(settings, body_limits)
        extractor = store.schema.extractor
        self._table_schema = get_table_schema(extractor) if extractor.raw_form == "rows" else None
        self._local_socket = LocalSocket(store, folder, self.batcher.run)
        self._keys = KeyCache(KeyFile(folder))
        self._rate_limit = RateLimit(settings.rate, settings.burst)
        self._decoder = ThreadPoolExecutor(1, thread_name_prefix="vicinal-decoder")

    def authorize(self, request: Request, role: str) -> ApiKey:
        """Return the API key of a request, before its body is read.

        Raises problem 401 without a valid key, 403 if the key has neither `role` nor CURATOR or
        its audience is unknown, 429 if it exceeds its rate, 503 if the key file is unreadable.
        """
        sent = request.headers.getlist("authorization")
        # Reject two headers: a proxy may have checked the one that we would ignore.
        scheme, _, token = sent[0].partition(" ") if len(sent) == 1 else ("", "", "")
        try:
            key = self._keys.find(token) if scheme.lower() == "bearer" else None
        except StorageFailed:
            detail = "The file of API keys cannot be read, so every request is refused."
            raise Problem(503, "keys", detail) from None
        if key is None:
            detail = "Send a valid key as: Authorization: Bearer KEY"
            raise Problem(401, "key", detail, {"WWW-Authenticate": "Bearer"})
        # Before the role is checked, so that refused requests count toward the rate.
        self._rate_limit.take_token(key.id)
        if key.role not in (role, CURATOR):
            raise Problem(403, "role", f"This request requires a key with the role {role}.")
        if key.audience not in self.store.audiences:
            raise Problem(403, "audience", "The store does not have the audience of this key.")
        return key

    async def decode_json(self, model: type[AnyBody], content: bytes) -> tuple[AnyBody, Any, int]:
        """Return a parsed body, its rows in the store's format, and the number of rows.

        Long bodies are decoded in a thread, one at a time. Raises problem 413 or 422 if the JSON
        text `content` does not fit `model`, the limits or the store.
        """
        self.body_reader.limits.check_values(content)

        def decode() -> tuple[AnyBody, Any, int]:
            body = parse_body(model, content)
            return body, *decode_rows(body, self.store, self.settings.request_queries)

        if len(content) <= _INLINE_BODY_BYTES:
            return decode()
        return await asyncio.get_running_loop().run_in_executor(self._decoder, decode)

    async def decode_csv(
        self, content: bytes, id_column: str | None
    ) -> tuple[dict[str, Any], Any, int]:
        """Return the result of :func:`vicinal.serving._csv.decode_csv`, computed in a thread.

        Raises problem 413 or 422 if the file `content` does not fit the limits or the store.
        """

        def decode() -> tuple[dict[str, Any], Any, int]:
            self.body_reader.limits.check_cells(content)
            return decode_csv(content, self.store, id_column, self.settings.request_queries)

        return await asyncio.get_running_loop().run_in_executor(self._decoder, decode)

    async def describe_unexpected_values(self, rows: Any) -> list[str]:
        """Return notes on clipped numbers and misspelt categories in queried rows of a table.

        They are computed in the decoder's thread; there are none for a store of other data than
        tables. `rows`: decoded queries, which are public.
        """
        schema = self._table_schema
        if schema is None:
            return []
        describe = partial(describe_unexpected_values, rows, schema)
        try:
            return await asyncio.get_running_loop().run_in_executor(self._decoder, describe)
        except InvalidInput:  # rows that the store refuses with a better message
            return []

    async def call_store(
        self, method: Callable[..., T], *arguments: Any, changes_data: bool = False
    ) -> T:
        """Return the result of a store method, called with `arguments` in the store's thread.

        Errors of the store are raised as problems. `changes_data`: whether the method adds records
        or erases a subject.
        """
        try:
            return await self.batcher.run(partial(method, *arguments))
        except VicinalError as error:
            raise translate_store_error(error, changes_data=changes_data) from None

    async def start(self) -> None:
        """Start the batcher and the local socket in the running event loop."""
        self.batcher.start()
        await self._local_socket.start()

    async def stop(self) -> None:
        """Answer all waiting requests, then end both threads."""
        await self._local_socket.stop()
        await self.batcher.stop()
        self._decoder.shutdown()
