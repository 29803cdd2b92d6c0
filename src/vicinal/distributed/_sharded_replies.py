"""Replies of a cluster: those of a store, and which shards they were made without."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from vicinal.distributed._membership import ShardRecords
from vicinal.distributed._remote_shards import RemoteShards
from vicinal.ledger._answer_blocks import AnswerBlock
from vicinal.ledger._audiences import Audience
from vicinal.ledger._database import Database
from vicinal.ledger._ledger import Ledger
from vicinal.store import Reply
from vicinal.store._audience_state import AudienceState
from vicinal.store._request_batch import RequestBatch
from vicinal.store._store_schema import StoreSchema


@dataclass(frozen=True, eq=False)
class ShardedReply(Reply):
    """Answers that have been paid for, durably.

    Attributes
    ----------
    missing : tuple of int
        Shards that some of the answers were made without, by the operator's public policy.
    """

    missing: tuple[int, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as JSON has them."""
        return {**super().to_dict(), "missing": list(self.missing)}


class CoordinatorLedger(Ledger):
    """The coordinator's ledger: also how far shards are, and which answers lack one of them."""

    def __init__(
        self,
        database: Database,
        key: bytes,
        shards: Mapping[str, RemoteShards],
        records: ShardRecords,
    ) -> None:
        super().__init__(database, key)
        self._shards = shards
        self._records = records

    @contextmanager
    def release(self, audience: Audience) -> Iterator[None]:
        """Make what the body writes durable, and how far the shards are that paid for it."""
        with super().release(audience):
            yield
            self._records.write()

    def _enter(self, block: AnswerBlock) -> None:
        super()._enter(block)
        self._records.write()  # what paid for the answer is known as long as the answer
        if missing := self._shards[block.audience.name].missing:
            shards = ",".join(map(str, sorted(missing)))
            self.database.execute(
                "INSERT INTO partial (seq, shards) VALUES (?, ?)", (self.clock, shards)
            )

    def missing(self, seqs: Sequence[int]) -> tuple[int, ...]:
        """Return which shards any of these blocks was answered without."""
        found: set[int] = set()
        for seq in seqs:
            rows = self.database.execute("SELECT shards FROM partial WHERE seq = ?", (seq,))
            found.update(int(number) for (shards,) in rows for number in shards.split(","))
        return tuple(sorted(found))


class ShardedBatch(RequestBatch):
    """A batch whose replies say which shards they were made without."""

    def __init__(
        self, ledger: CoordinatorLedger, schema: StoreSchema, states: Mapping[str, AudienceState]
    ) -> None:
        super().__init__(ledger, schema, states)
        self._missing = ledger.missing

    def _read(self, jobs: Sequence[Any]) -> Iterator[ShardedReply]:
        for job, reply in zip(jobs, super()._read(jobs), strict=True):
            missing = self._missing(sorted(set(job.seqs.tolist())))
            fields = {part.name: getattr(reply, part.name) for part in dataclasses.fields(Reply)}
            yield ShardedReply(**fields, missing=missing)
