"""Replies of a cluster: those of a store, and which shards they were made without."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import numpy as np
import numpy.typing as npt

from vicinal.distributed._membership import ShardRecords
from vicinal.distributed._remote_shards import RemoteShards
from vicinal.ledger._answer_blocks import AnswerBlock
from vicinal.ledger._audiences import Audience
from vicinal.ledger._database import Database
from vicinal.ledger._ledger import Ledger
from vicinal.store._request_batch import RequestBatch


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
        missing: set[int] = set()
        for seq in seqs:
            rows = self.database.execute("SELECT shards FROM partial WHERE seq = ?", (seq,))
            missing.update(int(number) for (shards,) in rows for number in shards.split(","))
        return tuple(sorted(missing))


class ShardedBatch(RequestBatch):
    """A batch whose replies say which shards they were made without."""

    _ledger: CoordinatorLedger

    def _missing(self, seqs: npt.NDArray[np.int64]) -> tuple[int, ...]:
        return self._ledger.missing(sorted(set(seqs.tolist())))
