"""Audiences of a coordinator: planned here, answered and evaluated by the shards."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from vicinal._arrays import Ints, Steps
from vicinal.distributed._cluster_changes import ClusterChanges
from vicinal.distributed._membership import ShardRecords
from vicinal.distributed._messages import TALLY, SearchAhead, TallyRequest, block_name
from vicinal.distributed._remote_shards import RemoteShards
from vicinal.errors import InvalidInput, StorageFailed, VicinalError
from vicinal.ledger._answer_blocks import AnswerBlock
from vicinal.ledger._audiences import Audience
from vicinal.ledger._database import Database
from vicinal.ledger._id_encoding import framed_all
from vicinal.ledger._ledger import Ledger
from vicinal.ledger._memory import ForkSafeLock
from vicinal.mechanisms import NoisyTally
from vicinal.predictors._common.parameter_checks import AUTO
from vicinal.predictors.ind_knn._engine import NextSearch
from vicinal.predictors.ind_knn._shard import summed
from vicinal.store import Query
from vicinal.store._audience_state import AudienceState, open_audience_state, pinned_plan
from vicinal.store._evaluation_charges import CountedRows
from vicinal.store._opening import OpenStore
from vicinal.store._request_batch import RequestBatch
from vicinal.store._store_schema import ExtractedRows, StoreSchema


def open_sharded_state(
    parts: OpenStore, audience: Audience, shards: RemoteShards, lock: ForkSafeLock
) -> AudienceState:
    """Return the state of an audience whose engine works on the shards."""
    state, _ = open_audience_state(parts, audience, parts.ledger.version, lock)
    if state.reuse_replay is None:
        return dataclasses.replace(state, engine=dataclasses.replace(state.engine, shard=shards))
    engine = dataclasses.replace(state.reuse_replay.initial_engine, shard=shards)
    reuse_replay = dataclasses.replace(state.reuse_replay, initial_engine=engine)
    return dataclasses.replace(
        state, reuse_replay=reuse_replay, engine=reuse_replay.engine_with_reuse()
    )


def plan_audience(parts: OpenStore, name: str, written: str, lock: ForkSafeLock) -> Audience:
    """Open an audience in the coordinator's ledger, with everything planned, inside a change."""
    audience = parts.ledger.open_audience(name, written)
    state, planned = open_audience_state(parts, audience, parts.ledger.version + 1, lock)
    state.close(parts.shard)
    audience.plan = pinned_plan(written, state.settings, planned)
    audience.slack = state.slack.spent
    audience.write(parts.database)
    return audience


def check_no_model(plan: Mapping[str, Any]) -> None:
    """Refuse a plan that must train a model; "auto" trains none in a cluster."""
    if plan.get("model_share", AUTO) not in (0, AUTO):
        raise InvalidInput(
            "The 'model_share' parameter must be 0 or 'auto' in a cluster, which trains no private "
            "model. Open the audience in the store, then split it: its model comes along."
        )


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

    def first_search(self, queries: Sequence[Query]) -> SearchAhead | None:
        """Return what is searched first for some requests; None if nothing of them is new."""
        for name, rows in self.new_rows(queries).items():
            block = NextSearch(self._states[name].engine, rows)()
            return block and SearchAhead(name, *block)
        return None

    def _missing(self, seqs: Ints) -> tuple[int, ...]:
        return self._ledger.missing(sorted(set(seqs.tolist())))


def with_features(schema: StoreSchema, query: Query) -> Query:
    """Return a query whose rows are features, so that nothing is extracted twice."""
    try:
        return dataclasses.replace(query, queries=ExtractedRows(schema.vectors(query.queries)))
    except VicinalError:
        return query  # it is refused in its turn


def tally_on_shards(
    ledger: Ledger,
    changes: ClusterChanges,
    audience: Audience,
    tally: NoisyTally,
    counted: CountedRows,
) -> Steps:
    """Have every shard charge the people it knows, or will know, and return the private sum.

    A tally is named after the coordinator's clock and, by a keyed digest, all that is in it. So one
    that was broken off finds its own sums if the same comes again, and nobody is charged twice.

    - `changes`: the way to all shards.
    - `audience`: whose answers are evaluated.
    - `tally`: adds the noise afterwards.
    - `counted`: rows that were asked before.

    Raises ShardMissing if a shard is missing: there is no evaluation of some of the people.
    """
    people = list(dict.fromkeys(counted.subjects))
    shard_of = dict(zip(people, changes.places_of(people).tolist(), strict=True))
    where = np.array([shard_of[who] for who in counted.subjects], dtype=np.int64)
    plan = counted.plan
    name = _name(ledger, audience, counted)

    def request(shard: int) -> TallyRequest:
        rows = np.flatnonzero(where == shard)
        subjects = [counted.subjects[row] for row in rows.tolist()]
        return TallyRequest(
            name, ledger.clock, audience.name, plan.sizes, plan.share, tally.scale,
            counted.cells[rows], subjects,
        )  # fmt: skip

    counts = changes.on_all([request(number) for number in range(changes.n_shards)])
    return _checked(counts.values(), sum(plan.sizes))


def _name(ledger: Ledger, audience: Audience, counted: CountedRows) -> bytes:
    plan = counted.plan
    content = [repr((plan.sizes, plan.share)).encode(), counted.cells.astype("<i8").tobytes()]
    content += framed_all(counted.subjects)
    private = ledger.keyed_digest(b"".join(len(part).to_bytes(8) + part for part in content))
    return block_name(TALLY.encode(), ledger.clock.to_bytes(8), audience.name.encode(), private)


def _checked(counts: Iterable[Steps], size: int) -> Steps:
    parts = list(counts)
    if any(one.dtype != np.int64 or one.shape != (size,) for one in parts):
        raise StorageFailed("A shard sent something else than sums. Is it of the same version?")
    return summed(parts)
