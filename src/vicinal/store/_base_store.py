"""What asks and runs a store sees of it, whether its records are here or on shards."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any, Generic, Self, TypeVar

import numpy.typing as npt

from vicinal import _checks
from vicinal.accounting._guarantee import Guarantee
from vicinal.errors import VicinalError
from vicinal.ledger._answers import digests_of
from vicinal.store._audience_state import AudienceState
from vicinal.store._idempotent_adds import Addition
from vicinal.store._naming import check_naming
from vicinal.store._opening import OpenStore
from vicinal.store._records import StoredRecords
from vicinal.store._request_batch import audience_state
from vicinal.store._requests import Query, Reply, checked_name
from vicinal.store._status import Presence, Quota, remaining_quota
from vicinal.store._store_schema import ExtractedRows, StoreSchema

DEFAULT = "default"
"""The audience that a new store has."""

AnyReply = TypeVar("AnyReply", bound=Reply)


class BaseStore(ABC, Generic[AnyReply]):
    """Requests, checked and carried out in turn; a subclass knows where the records are."""

    _parts: OpenStore
    _audience_states: dict[str, AudienceState]
    _failed: bool

    @abstractmethod
    def _whole(self) -> AbstractContextManager[None]:
        """Take the turn, and close everything if the body meets a failure."""

    @abstractmethod
    def _add(self, records: StoredRecords, addition: Addition | None) -> None:
        """Add checked records durably, inside the turn."""

    @abstractmethod
    def close(self) -> None:
        """Let go of files, database and lock. Closing twice does no harm."""

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close it."""
        self.close()

    # ------------------------------------------------------------ answers

    def predict(
        self,
        queries: Any,
        *,
        audience: str = DEFAULT,
        analyst: str = "anyone",
        idempotency_key: str | None = None,
    ) -> AnyReply:
        """Answer queries; new ones spend budgets, durably before this returns.

        Parameters
        ----------
        queries : array (q, d), or raw records
            As the store's extractor takes them. They are public.
        audience, analyst : str
            Whose budgets, and whose quota.
        idempotency_key : str, optional
            The same key gets the same answers, at no cost.

        Raises
        ------
        InvalidInput
            If a query is unusable, or the key was used for others.
        PrivacyRefused
            If the plan, or the quota, has too few answers left. Nothing was charged.
        StorageFailed
            If the charges could not be made durable. The store must be opened again.
        ShardMissing
            If a shard of a cluster is missing and the policy is to refuse. It can be asked again.
        """
        (reply,) = self.predict_many([Query(queries, audience, analyst, idempotency_key)])
        if isinstance(reply, VicinalError):
            raise reply
        return reply

    def extracted(self, raw: Any) -> tuple[ExtractedRows, list[bytes]]:
        """Return raw queries or records as features, and a key of what is seen of each.

        Rows of one key cannot be told apart by the store, and queries of one key are one query.
        Nothing is charged. What is returned may take the place of raw rows.
        """
        vectors = self.schema.vectors(raw)
        return ExtractedRows(vectors), digests_of(self.schema.kernel_of(None).encode(vectors))

    @abstractmethod
    def predict_many(self, queries: Sequence[Query]) -> list[AnyReply | VicinalError]:
        """Answer many requests in one block an audience and one commit.

        A request that cannot be answered gets the error that is its own, and the others their
        answers. Raises StorageFailed if nothing could be made durable; then nobody gets anything.
        """

    def guarantee(self, audience: str = DEFAULT) -> Guarantee:
        """Return what all answers to an audience guarantee, to every subject."""
        return audience_state(self._audience_states, audience).guarantee()

    def quota(self, analyst: str | None = None, *, audience: str = DEFAULT) -> Quota:
        """Return what an audience's plan, and an analyst of it, have left. Public."""
        return remaining_quota(audience_state(self._audience_states, audience), analyst)

    def allow(self, analyst: str, quota: int | None, *, audience: str = DEFAULT) -> None:
        """Set how many new answers an analyst may have; None for what the audience has left."""
        state = audience_state(self._audience_states, audience)
        name = checked_name("analyst", analyst)
        most = None if quota is None else _checks.integer("quota", quota, least=0)
        with self._whole():
            self._parts.ledger.allow(state.audience, name, most)

    # ------------------------------------------------------------ the data

    def add(
        self,
        X: Any,
        y: npt.ArrayLike,
        subjects: npt.ArrayLike | None = None,
        *,
        curator: str = "anyone",
        idempotency_key: str | None = None,
    ) -> int:
        """Add records durably; a subject that is known, or was, keeps what it has left.

        The data get a new version, which is returned: earlier queries are asked anew. In a cluster
        a subject goes to the shard that knows it, or did; others by a keyed hash of their id.

        Parameters
        ----------
        X, y, subjects
            Records as the store's extractor takes them, a label for each, and whose they are,
            exactly if the store's first records came with subjects; without, each is a new subject.
        curator, idempotency_key : str
            The same curator's same key adds the same records once, and returns the version that
            they made.

        Raises
        ------
        InvalidInput
            If anything is unusable; KeyReused if the key was used for other records, or somebody
            was erased since.
        ShardMissing
            If a shard of a cluster is missing. If the change was decided before, it is finished
            later.
        """
        schema, ledger = self._parts.schema, self._parts.ledger
        name = checked_name("curator", curator)
        key = None if idempotency_key is None else checked_name("idempotency_key", idempotency_key)
        records = StoredRecords.of(schema, schema.vectors(X), y, subjects)
        with self._whole():
            addition = None if key is None else Addition.of(ledger, name, key, records)
            done = None if addition is None else addition.done(self._parts.database)
            if done is not None:
                return done
            check_naming(self._parts.database, given=records.ids is not None)
            self._add(records, addition)
            return ledger.version

    @abstractmethod
    def erase(self, subjects: npt.ArrayLike) -> int:
        """Erase subjects from every file; return how many records were erased. Private."""

    @abstractmethod
    def presence(self, subjects: npt.ArrayLike) -> Presence:
        """Return how many of some ids are enrolled, were erased, or never were. Private."""

    # ------------------------------------------------------------ public facts

    @abstractmethod
    def facts(self, *, curator: bool = False) -> dict[str, Any]:
        """Return public facts as plain values; with `curator` also private ones."""

    @property
    def audiences(self) -> tuple[str, ...]:
        """The names of all audiences."""
        return tuple(self._audience_states)

    @property
    def plans(self) -> tuple[dict[str, Any], ...]:
        """The parameters of every audience's plan, as they were asked for. Public."""
        return tuple(
            json.loads(state.audience.plan)["asked"] for state in self._audience_states.values()
        )

    @property
    def schema(self) -> StoreSchema:
        """Classes, kernel, extractor and reference. Public."""
        return self._parts.schema

    @property
    def version(self) -> int:
        """How often the data changed. Public."""
        return self._parts.ledger.version

    @property
    def is_consistent(self) -> bool:
        """Whether it answers; once it does not, it must be opened again. Public."""
        return not self._failed and self._parts.ledger.is_consistent


AnyStore = BaseStore[Any]
"""A store, or a cluster of shards. Whatever it returns is durable and paid for."""
