"""The coordinator of a cluster: sums what shards send, adds noise once, stores, releases.

To those who ask it is a store: the same requests, quotas, keys, replays and replies. Its folder is
a store's without records. Order of durability: every shard's charge before its votes leave it; the
answer before it leaves here; then shards are told to delete the votes.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from vicinal import _checks
from vicinal._checks import SubjectId
from vicinal.distributed._backups import pack_part, write_cluster
from vicinal.distributed._cluster_changes import ADD, AUDIENCE, ERASE, ClusterChange, ClusterChanges
from vicinal.distributed._coordinator_answers import CoordinatorLedger, ShardedBatch, ShardedReply
from vicinal.distributed._fan_out import MissingShardPolicy, ShardMissing, ShardTransport, gather
from vicinal.distributed._folders import COORDINATOR, ClusterDescription, ShardFolder, shard_paths
from vicinal.distributed._joining import known_shards, learn_shards
from vicinal.distributed._local_transport import local_transports
from vicinal.distributed._loss_acceptance import accept_cluster_loss
from vicinal.distributed._membership import ShardRecords
from vicinal.distributed._messages import CheckedTransport
from vicinal.distributed._remote_shards import RemoteShards
from vicinal.distributed._routing import Routing
from vicinal.distributed._splitting import ready_cluster
from vicinal.distributed._tasks import HERE, LEFT, Backup, Facts, KnownSubjects, Ping, Verify
from vicinal.errors import InvalidInput, PrivacyRefused, StorageFailed, VicinalError
from vicinal.predictors.ind_knn._engine import ForkSafeLock, QueryEngine
from vicinal.store import Presence, Query, Verification
from vicinal.store._audience_state import AudienceState, new_plan, open_audience_state, pinned_plan
from vicinal.store._base_store import BaseStore
from vicinal.store._idempotent_adds import Addition, forget_additions
from vicinal.store._identities import ONE_FORM_EVERYWHERE
from vicinal.store._opening import OpenStore, open_folder
from vicinal.store._records import StoredRecords
from vicinal.store._requests import checked_name
from vicinal.store._status import public_facts
from vicinal.store._verify import verify

_OPENING = 5.0
"""Seconds that an opening waits for shards; a block waits longer."""

Connect = Callable[[Sequence[Path]], Sequence[ShardTransport]]
"""Makes the ways to shards, given their folders."""


class Coordinator(BaseStore[ShardedReply]):
    """A cluster that answers; one process at a time. All methods may be called from any thread.

    Make a cluster with :func:`~vicinal.distributed._splitting.split`; open it with :meth:`open`.
    """

    def __init__(
        self,
        parts: OpenStore,
        cluster: ClusterDescription,
        links: Sequence[ShardTransport],
        records: ShardRecords,
        absence: MissingShardPolicy,
    ) -> None:
        self._cluster = cluster
        self._links = [
            CheckedTransport(link, record, cluster.identity, self._clock)
            for link, record in zip(links, records, strict=True)
        ]
        self._absence = absence
        self._turn = ForkSafeLock()
        self._failed = False
        self._shards = {name: self._remote(name) for name in parts.ledger.audiences}
        self._book = CoordinatorLedger(parts.database, parts.folder.key(), self._shards, records)
        self._parts = dataclasses.replace(parts, ledger=self._book)
        self._audience_states = {name: self._desk(name) for name in self._shards}
        args = (parts.folder.path, self._book, self._links, records, absence.deadline)
        self._changes = ClusterChanges(*args)
        self._routing = Routing(self._book, self._changes, len(links))
        self._compare()
        # What an earlier coordinator had answered is durable: its votes can go.
        self._settle()

    @classmethod
    def open(
        cls,
        path: str | Path,
        connect: Connect,
        absence: MissingShardPolicy | None = None,
        *,
        accept_loss: bool = False,
    ) -> Self:
        """Open the cluster in a folder.

        Parameters
        ----------
        path
            The folder.
        connect
            Makes the transports to the shards:
            :func:`~vicinal.distributed._local_transport.local_transports`, or
            :meth:`~vicinal.distributed._ray_actors.RayCluster.links`.
        absence
            What to do about shards that are missing.
        accept_loss
            Go on although it is not known what was charged, if a part was lost or put back: see
            :func:`~vicinal.distributed._loss_acceptance.accept_cluster_loss`. All parts must lie here.

        Raises
        ------
        InvalidInput
            If there is no cluster.
        PrivacyRefused
            If another process has it open; if it, or a shard, is an old copy, or a copy that ran
            elsewhere; if its shards are not those that its ledger knows; if spellings of ids must
            be merged.
        StorageFailed
            If a file or the database is damaged.
        ShardMissing
            If a change of the data was broken off, and a shard that it needs is missing.
        """
        place = Path(path)
        if accept_loss and cls._lost(place):
            accept_cluster_loss(place)
        cluster = ready_cluster(place)
        found = ShardFolder.read(place / COORDINATOR)
        if found.cluster != cluster.identity:
            raise PrivacyRefused("The coordinator belongs to another cluster.")
        parts = open_folder(found.folder)
        with ExitStack() as resources:
            resources.callback(parts.resources.close)
            if parts.database.get(ONE_FORM_EVERYWHERE) != "1":
                raise PrivacyRefused(
                    "The cluster was made by a version that knew several spellings of an id, so "
                    "one person may have two budgets. Run once: vicinal merge-subjects CLUSTER"
                )
            records = known_shards(parts.database, cluster)
            links = connect(shard_paths(place, cluster.shards))
            for link in links:
                resources.callback(link.close)
            policy = absence or MissingShardPolicy()
            learn_shards(parts.database, records, cluster, links, policy.deadline)
            records.open()
            parts.mark()
            coordinator = cls(parts, cluster, links, records, policy)
            with coordinator._whole():
                pass  # a change that was broken off is finished before anybody is told anything
            resources.pop_all()
        return coordinator

    def close(self) -> None:
        """Let go of shards, files and lock. Closing twice does no harm."""
        with self._turn:
            if not self._failed:
                self._settle()
            self._failed = True
            for link in self._links:
                link.close()
            self._parts.resources.close()

    # ------------------------------------------------------------ answers

    def predict_many(self, queries: Sequence[Query]) -> list[ShardedReply | VicinalError]:
        """Answer many requests as :meth:`vicinal.store.Store.predict_many` does."""
        with self._whole():
            for shards in self._shards.values():
                shards.fresh()
            before = self._book.clock
            replies = ShardedBatch(self._book, self._parts.schema, self._audience_states).run(
                queries
            )
            self._parts.mark()
            if self._book.clock > before:
                self._settle()
        return replies  # type: ignore[return-value]  # a ShardedBatch makes ShardedReplies

    # ------------------------------------------------------------ the data

    def _add(self, records: StoredRecords, addition: Addition | None) -> None:
        self._change(ADD, self._routing.adding(records, addition))

    def erase(self, subjects: npt.ArrayLike) -> int:
        """Erase subjects from every file, as :meth:`vicinal.store.Store.erase` does.

        Returns how many records went, which is private; those that went before a shard broke off
        are not counted.

        Raises
        ------
        ShardMissing
            If a shard is missing. If the erasure was decided before, nothing is answered until it
            is finished.
        """
        ids = _checks.subject_ids("subjects", subjects)
        with self._whole():
            self._changes.every(Ping())
            gone = self._change(ERASE, lambda: self._erasure(ids))
        return sum(int(went) for went in gone.values())

    def presence(self, subjects: npt.ArrayLike) -> Presence:
        """Return how many of some ids are on any shard, were erased, or never were. Private."""
        ids = list(dict.fromkeys(_checks.subject_ids("subjects", subjects)))
        with self._whole():
            known = np.max(list(self._changes.every(KnownSubjects(ids)).values()), axis=0)
        here, left = int((known == HERE).sum()), int((known == LEFT).sum())
        return Presence(here, left, len(ids) - here - left)

    def open_audience(self, name: str, **plan: Any) -> None:
        """Give every subject a further budget, as :meth:`vicinal.store.Store.open_audience` does.

        A plan without `n_records` takes the number that the first audience was planned with.
        """
        if checked_name("name", name) in self._audience_states:
            raise InvalidInput("The 'name' parameter must be new. There is such an audience.")
        if plan.get("n_records") is None:
            plan["n_records"] = next(iter(self._audience_states.values())).plan()["n_records"]
        written = new_plan(self.schema, plan)
        self._book.check_name(name)
        with self._whole():
            self._changes.every(Ping())
            self._change(AUDIENCE, lambda: self._audience(name, written))

    # ------------------------------------------------------------ care

    def facts(self, *, curator: bool = False) -> dict[str, Any]:
        """Return public facts; with `curator` also private ones of every shard."""
        with self._whole():
            found = {**public_facts(self._parts, self._audience_states), "shards": len(self._links)}
            if curator:
                found["private"] = self._changes.every(Facts())
        return found

    def verify(
        self, erased: Sequence[SubjectId] = (), features: npt.ArrayLike | None = None
    ) -> Verification:
        """Check every invariant on the disks of coordinator and shards, as one state."""
        ids = _checks.subject_ids("erased", list(erased))
        with self._whole():
            rows = None
            if features is not None:
                rows = self._parts.shard.index.kernel.encode(self.schema.vectors(features))
            own = verify(self._parts, ids, rows)
            found = self._changes.every(Verify(ids, rows))
        faults = [f"Shard {n}: {fault}" for n, one in found.items() for fault in one.faults]
        return Verification((*own.faults, *faults), own.checked)

    def health(self, seconds: float = 1.0) -> dict[int, str]:
        """Return, for every shard, why it does not answer, in public words; "" if it does.

        A shard that is at work answers when it is through.
        """
        found = {}
        for number, link in enumerate(self._links):
            try:
                gather({number: link}, Ping(), MissingShardPolicy(seconds))
                found[number] = ""
            except VicinalError as error:
                found[number] = str(error)
        return found

    def backup(self, path: str | Path) -> None:
        """Write coordinator and shards into a new folder as they are at one moment.

        Each part is written by its own machine, into this path; see :func:`restore_cluster`.
        """
        with self._whole():
            place = Path(path).absolute()
            self._settle()
            pack_part(self._parts, place / COORDINATOR)
            paths = shard_paths(place, len(self._links))
            self._changes.every([Backup(one) for one in paths])
            write_cluster(self._cluster, place)

    # ------------------------------------------------------------ inside

    def _remote(self, name: str) -> RemoteShards:
        cluster = bytes.fromhex(self._cluster.identity)
        return RemoteShards(cluster, name, self._links, self._absence, self._clock)

    def _change(self, what: str, made: Callable[[], ClusterChange]) -> dict[int, Any]:
        """Make a change; whatever becomes of it, no answer to earlier data is looked up again."""
        try:
            return self._changes.make(what, made)
        finally:
            for desk in self._audience_states.values():
                desk.answers.forget_queries()
            self._parts.mark_change()

    def _erasure(self, ids: list[SubjectId]) -> ClusterChange:
        forget_additions(self._parts.database)
        return ClusterChange(ERASE, ids)

    def _audience(self, name: str, written: str) -> ClusterChange:
        """Open an audience here, with everything planned, inside a change."""
        parts, book = self._parts, self._book
        audience = book.open_audience(name, written)
        args = (parts.database, parts.schema, parts.shard, audience, book.version + 1, self._turn)
        desk, assembled = open_audience_state(*args)
        audience.plan = pinned_plan(written, desk.settings, assembled)
        audience.slack = desk.slack.spent
        audience.update(parts.database)
        self._shards[name] = self._remote(name)
        self._audience_states[name] = self._desk(name)
        told = {"number": audience.number, "name": name, "plan": audience.plan}
        return ClusterChange(AUDIENCE, audience=told)

    def _clock(self) -> int:
        return self._book.clock

    @classmethod
    def _lost(cls, path: Path) -> bool:
        """Tell whether a cluster whose parts lie here does not know what was charged."""
        try:
            with (
                cls.open(path, local_transports, MissingShardPolicy(_OPENING)) as cluster,
                cluster._whole(),
            ):
                cluster._changes.every(Ping())
        except (PrivacyRefused, StorageFailed):
            return True
        return False

    def _compare(self) -> None:
        """Have every shard that can be heard compare where it is; the others do at their return."""
        patience = MissingShardPolicy(min(_OPENING, self._absence.deadline), answer_without=True)
        with suppress(ShardMissing):
            gather(dict(enumerate(self._links)), Ping(), patience)

    def _settle(self) -> None:
        for link in self._links:
            link.settle(self._book.clock)

    def _desk(self, name: str) -> AudienceState:
        """Return the desk of an audience whose engine asks the shards."""
        parts, book = self._parts, self._book
        args = (parts.database, parts.schema, parts.shard, book.audiences[name], book.version)
        desk, _ = open_audience_state(*args, self._turn)
        if desk.lessons is None:
            return dataclasses.replace(desk, engine=self._asking(name, desk.engine))
        untaught = self._asking(name, desk.lessons.untaught)
        lessons = dataclasses.replace(desk.lessons, untaught=untaught)
        return dataclasses.replace(desk, lessons=lessons, engine=lessons.taught())

    def _asking(self, name: str, engine: QueryEngine) -> QueryEngine:
        return dataclasses.replace(engine, shard=self._shards[name])

    @contextmanager
    def _whole(self) -> Iterator[None]:
        """Take the turn, and close the coordinator if its disk fails."""
        with self._turn:
            if self._failed:
                raise StorageFailed("The cluster is closed, or has failed. Open it again.")
            self._book.check()
            try:
                if self._changes.pending:
                    self._changes.finish()
                    self._parts.mark()
                yield
            except ShardMissing:
                raise  # it may be back for the next call
            except BaseException as error:
                if isinstance(error, OSError) or not isinstance(error, Exception):
                    self._failed = True
                raise
