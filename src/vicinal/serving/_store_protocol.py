"""What the service needs of whatever it serves: a store, or a cluster of shards."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy.typing as npt

from vicinal.accounting._guarantee import Guarantee
from vicinal.errors import VicinalError
from vicinal.store import Presence, Query, Quota, Reply
from vicinal.store._store_schema import StoreSchema


class ServedStore(Protocol):
    """A :class:`~vicinal.store.Store`, or a :class:`~vicinal.distributed.Coordinator`.

    Whatever it returns is durable and paid for.
    """

    @property
    def schema(self) -> StoreSchema:
        """Classes, kernel, extractor and reference. Public."""

    @property
    def audiences(self) -> tuple[str, ...]:
        """The names of all audiences."""

    @property
    def is_consistent(self) -> bool:
        """Whether it answers; once it does not, it must be opened again. Public."""

    @property
    def plans(self) -> tuple[dict[str, Any], ...]:
        """The parameters of every audience's plan. Public."""

    def predict_many(self, queries: Sequence[Query]) -> Sequence[Reply | VicinalError]:
        """Answer many requests in one block an audience and one commit."""

    def guarantee(self, audience: str = ...) -> Guarantee:
        """Return what all answers to an audience guarantee."""

    def quota(self, analyst: str | None = ..., *, audience: str = ...) -> Quota:
        """Return what an audience's plan, and an analyst of it, have left."""

    def facts(self, *, curator: bool = ...) -> dict[str, Any]:
        """Return what is public, as plain values."""

    def add(
        self,
        X: Any,
        y: npt.ArrayLike,
        subjects: npt.ArrayLike | None = ...,
        *,
        curator: str = ...,
        idempotency_key: str | None = ...,
    ) -> int:
        """Add records durably; return the version of the data."""

    def presence(self, subjects: npt.ArrayLike) -> Presence:
        """Return how many of some ids are enrolled, were erased, or never were there. Private."""

    def erase(self, subjects: npt.ArrayLike) -> int:
        """Erase subjects from every file; return how many records went. Private."""
