"""What every handler needs: the store behind its worker, keys, limits and counters."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

from starlette.requests import Request

from vicinal.errors import StorageFailed, VicinalError
from vicinal.serving.batching import Batcher
from vicinal.serving.keys import CURATOR, Key, Keyring
from vicinal.serving.limits import RateLimit
from vicinal.serving.metrics import Metrics
from vicinal.serving.problems import Problem, of_error
from vicinal.serving.served import Served
from vicinal.serving.settings import Settings


@dataclass(frozen=True, eq=False)
class Office:
    """Everything that a running service is made of."""

    store: Served
    settings: Settings
    keyring: Keyring
    limit: RateLimit
    metrics: Metrics
    batcher: Batcher

    def admit(self, request: Request, *, curator: bool = False) -> Key:
        """Return the key of a request, before anything of its body is read.

        Raises
        ------
        Problem
            401 without a valid key; 403 if it is an analyst's where a curator's is needed; 429 if
            it comes too often.
        """
        key = self._found(request)
        if key is None:
            detail = "Send a valid key as: Authorization: Bearer KEY"
            raise Problem(401, "key", detail, {"WWW-Authenticate": "Bearer"})
        self.limit.take(key.id)
        if curator and key.role != CURATOR:
            raise Problem(403, "role", "Only a curator may do this.")
        if key.audience not in self.store.audiences:
            raise Problem(403, "audience", "The store has no such audience as this key's.")
        return key

    def _found(self, request: Request) -> Key | None:
        sent = request.headers.getlist("authorization")
        if len(sent) != 1:
            return None
        scheme, _, token = sent[0].partition(" ")
        if scheme.lower() != "bearer":
            return None
        try:
            return self.keyring.find(token)
        except StorageFailed:
            raise Problem(503, "keys", "The keys cannot be read. Nobody is let in.") from None

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
