"""The coordinator of a cluster: sums what shards send, adds noise once, stores, releases.

To analysts it is a store: the same requests, quotas, keys, replays and replies. Its folder is a
store's without records. Order of durability: every shard's charge before its votes leave it; the
answer before it leaves here; then shards delete the votes.
"""

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import compress
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from vicinal import checks
from vicinal.arrays import Steps
from vicinal.checks import SubjectId
from vicinal.distributed import _sharded_audiences as sharded
from vicinal.distributed import _sharded_training as training
from vicinal.distributed import changes
from vicinal.distributed import messages as tasks
from vicinal.distributed._fan_out import ShardClient, gather, send_all
from vicinal.distributed._membership import ShardRecords
from vicinal.distributed.cluster_backups import accept_cluster_loss
from vicinal.distributed.folders import COORDINATOR, ClusterDescription, ShardFolder, shard_paths
from vicinal.distributed.splitting import private_counts_refused, ready_cluster
from vicinal.distributed.transports import Transport, local_transports
from vicinal.errors import PrivacyRefused, ShardDamaged, ShardMissing, StorageFailed
from vicinal.ledger.answers import read_parts
from vicinal.ledger.audiences import Audience
from vicinal.ledger.id_encoding import find_similar_ids
from vicinal.ledger.memory import ForkSafeLock
from vicinal.ledger.renewal import RENEWAL, Renewal
from vicinal.mechanisms.tally import NoisyTally
from vicinal.neighbours.kernels import IntegerMatrix
from vicinal.planning.parameter_tables import PRIVATE
from vicinal.store.audience_state import (
    AudienceState,
    begin_periods,
    pin_plan,
    settled_plan,
    warned_after,
)
from vicinal.store.backups import pack
from vicinal.store.base_store import BaseStore
from vicinal.store.erasure import forget_additions
from vicinal.store.evaluation import CountedRows
from vicinal.store.folder import new_folder
from vicinal.store.opening import OpenStore, create_interrupted_error, open_folder
from vicinal.store.private_models import awaits_model, begin_model, list_answering_audiences
from vicinal.store.records import NEXT_NUMBER, Addition, StoredRecords, write_naming
from vicinal.store.request_batch import RequestBatch
from vicinal.store.status import Presence, Verification, public_facts, verify

_OPENING = 5.0
"""Seconds that an opening waits for shards; a block waits longer."""

Connect = Callable[[Sequence[Path]], Sequence[Transport]]
"""Makes transports to shards, given their folders."""


class Coordinator(BaseStore):
    """A cluster that answers; one process at a time. All methods may be called from any thread.

    Make a cluster with :func:`~vicinal.distributed.splitting.split`; open it with :meth:`open`.

    Examples
    --------
    >>> from vicinal.distributed import Coordinator
    >>> from vicinal.distributed.transports import local_transports
    >>> with Coordinator.open("cluster", local_transports) as cluster:  # doctest: +SKIP
    ...     reply = cluster.predict([[0.5, 0.1, -0.3]])
    """

    _kind = "cluster"

    def __init__(
        self,
        parts: OpenStore,
        description: ClusterDescription,
        records: ShardRecords,
        transports: Sequence[Transport],
        deadline: float,
        reading: bool,
    ) -> None:
        self._cluster, self._deadline, self._reading = description, deadline, reading
        self._ledger = sharded.CoordinatorLedger(parts.database, parts.folder.key(), records)
        self._parts = dataclasses.replace(parts, ledger=self._ledger)
        self._clients = [
            ShardClient(transport, record, description.identity, self._ledger, reading)
            for transport, record in zip(transports, records, strict=True)
        ]
        self._lock = ForkSafeLock()
        self._failed = False
        self._shards = {name: self._remote(name) for name in parts.ledger.audiences}
        self._audience_states = {
            one.name: self._state(one.name) for one in list_answering_audiences(parts)
        }
        args = (parts.folder.path, self._ledger, self._clients, records, deadline)
        self._changes = changes.ClusterChanges(*args)
        self._compare_states()
        # What an earlier coordinator had answered is durable: its votes can be deleted.
        self._delete_votes()

    @classmethod
    def open(
        cls,
        path: str | Path,
        connect: Connect,
        deadline: float = 30.0,
        *,
        accept_loss: bool = False,
        reading: bool = False,
    ) -> Self:
        """Open the cluster in a folder.

        Parameters
        ----------
        path
            The folder.
        connect
            Makes the transports to the shards: :func:`local_transports`, or
            :meth:`RayCluster.transports`.
        deadline
            Seconds that a block waits for all shards; then it is refused.
        accept_loss
            Go on although it is not known what was charged, if a part was lost or put back: every
            budget on every shard is spent. All parts must lie here.
        reading
            Write nothing, to no file of any part: refuse a cluster in which a command was broken
            off.

        Raises
        ------
        InvalidInput
            If there is no cluster.
        PrivacyRefused
            If another process has it open; if it, or a shard, is an old copy, or a copy that ran
            elsewhere; or if its shards are not those that its ledger knows.
        StorageFailed
            If a file or the database is damaged.
        ShardMissing
            If a change or a training was broken off, and a shard that it needs is missing; or
            ShardDamaged, if one is damaged.
        """
        place = Path(path)
        if accept_loss and not reading and cls._lost(place):
            accept_cluster_loss(place)
        deadline = checks.check_real("deadline", deadline, above=0)
        description = ready_cluster(place, reading=reading)
        shard_folder = ShardFolder.read(place / COORDINATOR)
        if shard_folder.cluster != description.identity:
            raise PrivacyRefused("The coordinator belongs to another cluster.")
        with ExitStack() as resources:
            members = partial(ShardRecords.of, cluster=description)
            parts = resources.enter_context(
                open_folder(shard_folder.folder, reading=reading, check=members)
            )
            begun = training.begun(parts.ledger)
            if reading and (begun or changes.is_unfinished(parts.database, parts.folder.path)):
                raise create_interrupted_error()
            records = members(parts.database)
            transports = connect(description.folders(place))
            for transport in transports:
                resources.callback(transport.close)
            if not reading:
                records.open()
                parts.mark()
            coordinator = cls(parts, description, records, transports, deadline, reading)
            with coordinator._exclusive(looking=True):
                pass  # a change that was broken off is finished before anything is answered
            resources.pop_all()
        return coordinator

    def close(self) -> None:
        with self._lock, self._parts.resources as resources:
            for client in self._clients:
                resources.callback(client.transport.close)
            failed, self._failed = self._failed, True
            if not failed:
                self._delete_votes()

    # ------------------------------------------------------------ answers

    def _batch(self) -> RequestBatch:
        for shards in self._shards.values():
            shards.begin_batch()
        return RequestBatch(self._ledger, self._parts.schema, self._audience_states)

    def _note_answered(self) -> None:
        self._parts.mark()  # before shards delete the votes
        self._delete_votes()

    @contextmanager
    def _collect(
        self, audience: Audience, tally: NoisyTally, counted: CountedRows
    ) -> Iterator[Steps]:
        sums = sharded.tally_on_shards(self._ledger, self._changes, audience, tally, counted)
        with self._ledger.release(audience):
            yield sums

    # ------------------------------------------------------------ the data

    def _add(self, records: StoredRecords, addition: Addition | None) -> None:
        database, change = self._parts.database, self._changes.addition(records)

        def decide() -> changes.ClusterChange:
            if addition is not None:
                addition.write(database, self._ledger.version + 1)
            write_naming(database, by_holder=records.ids is not None)
            if records.ids is None:
                database.put(NEXT_NUMBER, str(int(change.subjects[-1]) + 1))
            return change

        self._change(changes.ADD, decide)

    def erase(self, subjects: npt.ArrayLike) -> int:
        """Erase subjects from every file, as :meth:`vicinal.store.Store.erase` does.

        Returns how many records were erased, which is private; those that were erased before a
        shard broke off are not counted.

        Raises
        ------
        ShardMissing
            If a shard is missing. If the erasure was decided before, nothing is answered until it
            is finished.
        """
        ids = self._erasable(subjects)

        def decide() -> changes.ClusterChange:
            forget_additions(self._parts.database)
            return changes.ClusterChange(changes.ERASE, ids)

        with self._exclusive():
            self._changes.on_all(tasks.Ping())
            erased = self._change(changes.ERASE, decide)
        return sum(int(count) for count in erased.values())

    def presence(self, subjects: npt.ArrayLike) -> Presence:
        ids = list(dict.fromkeys(checks.subject_ids("subjects", subjects)))
        with self._exclusive():
            return Presence.of(self._standings(ids))

    def _standings(self, ids: list[SubjectId]) -> list[int]:
        known = self._changes.on_all(tasks.KnownSubjects(ids)).values()
        return np.max(list(known), axis=0).tolist()  # type: ignore[no-any-return]

    def _alike(self, subjects: list[SubjectId]) -> int:
        ids = list(dict.fromkeys(subjects))
        unknown = list(compress(ids, np.equal(self._standings(ids), 0)))
        alike = self._changes.on_all(tasks.AlikeSubjects(unknown))
        return len(find_similar_ids(unknown).union(*alike.values()))

    def _completed(self, plan: dict[str, Any]) -> dict[str, Any]:
        if plan.get("neighbor_count") == PRIVATE:
            raise private_counts_refused()
        if plan.get("n_records") is None:
            first = next(iter(self._audience_states.values())).plan()
            plan = {**plan, "n_records": first["n_records"]}
        return plan

    def _open_audience(self, name: str, written: str) -> None:
        self._changes.on_all(tasks.Ping())
        self._change(changes.AUDIENCE, lambda: self._new_audience(name, written))
        self._train()

    def _refresh(self, state: AudienceState) -> None:
        self._changes.on_all(tasks.Ping())
        with self._ledger.release(state.audience):
            training.begin(self._ledger, state.audience)
        self._train()

    def _train(self) -> None:
        """Train the model that was begun, if one was, as far as it is not, and give it to all."""
        if (audience := training.begun(self._ledger)) is not None:
            gradients = training.ShardedGradients(self._parts, audience, self._changes)
            model, state = gradients.train(), self._audience_states.get(audience.name)

            def decide() -> changes.ClusterChange:
                gradients.write(model, state)
                return self._shared(audience)

            self._change("model" if state is None else "refresh", decide)

    # ------------------------------------------------------------ care

    def facts(self, *, curator: bool = False) -> dict[str, Any]:
        with self._exclusive(looking=True):
            facts = public_facts(self._parts, self._audience_states)
            facts["shards"] = len(self._clients)
            if curator:
                facts["private"] = self._changes.on_all(tasks.Facts())
        return facts

    def _verify(self, erased: list[SubjectId], rows: IntegerMatrix | None) -> Verification:
        own = verify(self._parts, erased, rows)
        faults: list[str] = []
        for number, one in self._changes.on_all(tasks.Verify(erased, rows)).items():
            faults += [f"Shard {number}: {fault}" for fault in one.faults]
        return Verification((*own.faults, *faults), (*own.checked, "every shard"))

    def backup(self, path: str | Path) -> None:
        """Write coordinator and shards into a new folder as they are at one moment.

        Each part is written by its own machine, into this path; see :func:`restore_cluster`.
        """
        with self._exclusive(looking=True):
            place = Path(path).absolute()
            self._delete_votes()
            new_folder(place)
            pack(self._parts, place / COORDINATOR)
            paths = shard_paths(place, len(self._clients))
            self._changes.on_all(lambda number: tasks.Backup(paths[number]))
            self._cluster.save(place)  # last: until then it is no backup

    def _remote(self, name: str) -> sharded.RemoteShards:
        args = self._ledger, name, self._clients, self._deadline
        return sharded.RemoteShards(*args)

    def _change(self, kind: str, decide: Callable[[], changes.ClusterChange]) -> dict[int, Any]:
        """Make a change; whatever becomes of it, no answer to earlier data is looked up again.

        A new period leaves data and answers, and every audience plans for it, also if a shard is
        missing now: it was decided.
        """
        try:
            with warned_after():
                return self._changes.make(kind, decide)
        finally:
            for state in self._audience_states.values():
                if kind == RENEWAL:
                    state.drop_answers()
                else:
                    state.answers.forget_queries()
            if not self._ledger.database.in_transaction:  # else its commit was broken off
                self._parts.mark_change()
                # A change that shards have not made yet is complete here: this object knows that
                # it is pending, and finishes it before the next operation.
                self._ledger.complete_change()

    def _new_audience(self, name: str, written: str) -> changes.ClusterChange:
        """Open an audience here, inside a change."""
        audience = self._ledger.open_audience(name, written)
        audience.plan = settled_plan(self._parts, audience, begin_model)
        self._shards[name] = self._remote(name)
        change = self._shared(audience)
        if awaits_model(self._parts, audience):
            training.begin(self._ledger, audience)
        return change

    def _shared(self, audience: Audience) -> changes.ClusterChange:
        """Plan what is open of an audience, inside a change that gives it to every shard.

        Unless that follows from a model which is not trained yet.
        """
        parts, name = self._parts, audience.name
        planned = not awaits_model(parts, audience)
        if planned:
            pin_plan(parts, audience, self._lock)
            begin_periods(parts, audience)
        else:
            audience.write(parts.database)
        change = self._for_shards(audience)
        if planned:
            self._audience_states[name] = self._state(name)
        return change

    def _for_shards(self, audience: Audience) -> changes.ClusterChange:
        own = {"number": audience.number, "name": audience.name, "plan": audience.plan}
        model = read_parts(self._parts.database, audience.number)
        return changes.ClusterChange(changes.AUDIENCE, audience={**own, "model": model})

    def _renew(self) -> bool:
        due = self._ledger.due
        if due:  # not decided while a shard is missing: nothing would be answered until it is back
            self._changes.on_all(tasks.Ping())
        for audience, renewal in due:

            def decide(audience: Audience = audience, renewal: Renewal = renewal) -> Any:
                self._ledger.set_period(audience, renewal)
                return self._for_shards(audience)

            self._change(RENEWAL, decide)
        return bool(due)

    def _compare_states(self) -> None:
        """Have every reachable shard compare where it is; the others do when they are back."""
        try:
            gather(dict(enumerate(self._clients)), tasks.Ping(), min(_OPENING, self._deadline))
        except ShardMissing as error:
            if isinstance(error, ShardDamaged):
                raise

    @classmethod
    def _lost(cls, path: Path) -> bool:
        """Tell whether a cluster whose parts lie here does not know what was charged."""
        try:
            with cls.open(path, local_transports, _OPENING) as cluster, cluster._exclusive():
                cluster._changes.on_all(tasks.Ping())
        except (PrivacyRefused, StorageFailed):
            return True
        return False

    def _delete_votes(self) -> None:
        """Have shards delete the votes of answers that are durable; a later one may do it, too."""
        clock, _ = self._ledger.last_commit  # in memory it is further where a commit broke off
        if not self._reading:
            numbers = range(len(self._clients))
            send_all(self._clients, dict.fromkeys(numbers, tasks.DeleteVotes(clock)))

    def _state(self, name: str) -> AudienceState:
        audience = self._ledger.audiences[name]
        return sharded.open_sharded_state(self._parts, audience, self._shards[name], self._lock)

    def _finish_pending(self) -> None:
        if self._changes.is_unfinished:
            self._changes.finish()
        self._train()
