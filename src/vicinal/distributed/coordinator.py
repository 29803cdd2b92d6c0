"""The coordinator of a cluster, which sums the shards' votes, adds noise once and stores answers.

Analysts use it as a store: requests, quotas, idempotency keys and replies are the same. Its folder
is that of a store without records. Order of durability: every shard's charge before the shard
returns its votes; the answer before the coordinator returns it; then the shards delete the votes.
A change of the data is first decided here, then made by the shards; :mod:`changes` has the terms.
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
from vicinal.distributed._fan_out import ShardClient, gather_results, send_tasks
from vicinal.distributed._membership import ShardRecords
from vicinal.distributed.cluster_backups import accept_cluster_loss
from vicinal.distributed.folders import (
    COORDINATOR,
    ClusterDescription,
    MemberFolder,
    list_shard_folders,
)
from vicinal.distributed.splitting import create_private_count_error, finish_interrupted_split
from vicinal.distributed.transports import Transport, local_transports
from vicinal.errors import PrivacyRefused, ShardDamaged, ShardMissing, StorageFailed
from vicinal.ledger.answers import read_components
from vicinal.ledger.audiences import Audience
from vicinal.ledger.id_encoding import find_similar_ids
from vicinal.ledger.memory import ForkSafeLock
from vicinal.ledger.renewal import RENEWAL, Renewal
from vicinal.mechanisms.tally import NoisyTally
from vicinal.neighbours.kernels import IntegerMatrix
from vicinal.planning.parameter_tables import PRIVATE
from vicinal.store.audience_state import (
    AudienceState,
    begin_first_period,
    decide_and_train_model,
    delay_warnings,
    open_audience_state,
    pin_plan,
)
from vicinal.store.backups import write_backup
from vicinal.store.base_store import BaseStore
from vicinal.store.erasure import forget_addition_digests
from vicinal.store.evaluation import CountedRows
from vicinal.store.folder import check_path, create_new_folder
from vicinal.store.opening import OpenStore, create_interrupted_error, open_folder
from vicinal.store.private_models import (
    begin_model_training,
    is_training_pending,
    list_answering_audiences,
)
from vicinal.store.records import NEXT_NUMBER, Addition, StoredRecords, write_id_mode
from vicinal.store.request_batch import RequestBatch
from vicinal.store.status import Verification, collect_public_facts, verify

_OPENING_SECONDS = 5.0
"""Seconds that opening a cluster waits for missing shards at most; queries wait for `deadline`."""

Connect = Callable[[Sequence[Path]], Sequence[Transport]]
"""Returns a transport to each shard, given the shards' folders."""


class Coordinator(BaseStore):
    """An open cluster. One process at a time; all methods may be called from any thread.

    Create a cluster with :func:`~vicinal.distributed.splitting.split`; open it with :meth:`open`,
    which passes the coordinator's open folder `store`, the `description` of the cluster, the
    `shard_records` and `transports` of the shards by number, its own `deadline` and `read_only`.

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
        store: OpenStore,
        description: ClusterDescription,
        shard_records: ShardRecords,
        transports: Sequence[Transport],
        deadline: float,
        read_only: bool,
    ) -> None:
        self._description = description
        self._deadline = deadline
        self._is_read_only = read_only
        key = store.folder.read_key()
        self._ledger = sharded.CoordinatorLedger(store.database, key, shard_records)
        self._store = dataclasses.replace(store, ledger=self._ledger)
        self._clients = [
            ShardClient(transport, record, description.identity, self._ledger, read_only)
            for transport, record in zip(transports, shard_records, strict=True)
        ]
        self._lock = ForkSafeLock()
        self._failed = False
        self._remote_shards = {
            name: self._create_remote_shards(name) for name in store.ledger.audiences
        }
        self._audience_states = {
            audience.name: self._open_audience_state(audience.name)
            for audience in list_answering_audiences(store)
        }
        self._changes = changes.ClusterChanges(
            store.folder.path, self._ledger, self._clients, shard_records, deadline
        )
        # Every reachable shard compares its state with the coordinator's record now, and a missing
        # one at its first message.
        try:
            seconds = min(_OPENING_SECONDS, deadline)
            gather_results(dict(enumerate(self._clients)), tasks.Ping(), seconds)
        except ShardMissing as error:
            if isinstance(error, ShardDamaged):
                raise
        # Answers of an earlier process are durable, so their votes can be deleted.
        self._delete_sums()

    @classmethod
    def open(
        cls,
        path: str | Path,
        connect: Connect,
        deadline: float = 30.0,
        *,
        accept_loss: bool = False,
        read_only: bool = False,
    ) -> Self:
        """Open the cluster in a folder.

        Parameters
        ----------
        path
            The folder.
        connect
            Creates the transports to the shards, given their folders: :func:`local_transports`, or
            :meth:`RayCluster.transports`.
        deadline
            Seconds that a block of queries waits for all shards; then it is refused.
        accept_loss
            Continue although charges were lost, because a folder was lost or an old copy restored:
            every budget on every shard is spent. All folders must be on this machine.
        read_only
            Write to no file of coordinator or shards; refuse a cluster with an interrupted command.

        Raises
        ------
        InvalidInput
            If there is no cluster.
        PrivacyRefused
            If another process has it open; if the coordinator or a shard is an old copy, or a copy
            that ran elsewhere; or if the shards are not those in the coordinator's ledger.
        StorageFailed
            If a file or the database is damaged.
        ShardMissing
            If a change or a training was interrupted, and a shard that it needs is missing;
            ShardDamaged if a shard is damaged.
        """
        folder = check_path("path", path)
        if accept_loss and not read_only and cls._has_lost_charges(folder):
            accept_cluster_loss(folder)
        deadline = checks.check_real("deadline", deadline, above=0)
        description = finish_interrupted_split(folder, read_only=read_only)
        shard_folder = MemberFolder.read(folder / COORDINATOR)
        if shard_folder.cluster != description.identity:
            raise PrivacyRefused("The coordinator belongs to another cluster.")
        with ExitStack() as resources:
            read_shard_records = partial(ShardRecords.from_database, description=description)
            store = resources.enter_context(
                open_folder(shard_folder.folder, read_only=read_only, check=read_shard_records)
            )
            if read_only:
                unfinished = changes.list_unfinished_changes(store.database, store.folder.path)
                if training.find_training_audience(store.ledger) is not None:
                    unfinished.append("the training of a model")
                if unfinished:
                    raise create_interrupted_error(*unfinished)
            shard_records = read_shard_records(store.database)
            transports = connect(list_shard_folders(folder, description.shards))
            for transport in transports:
                resources.callback(transport.close)
            if not read_only:
                shard_records.begin_epoch()
                store.report_commit()
            coordinator = cls(store, description, shard_records, transports, deadline, read_only)
            with coordinator._hold_exclusively(read_only=True):
                pass  # Entering finishes an interrupted change before any query is answered.
            resources.pop_all()
        return coordinator

    def close(self) -> None:
        """Delete the shards' votes of durable answers, and close all shards and the coordinator."""
        with self._lock, self._store.resources as resources:
            for client in self._clients:
                resources.callback(client.transport.close)
            was_consistent = not self._failed
            self._failed = True
            if was_consistent:
                self._delete_sums()

    def _create_batch(self) -> RequestBatch:
        """Return an empty batch of requests, after numbering the blocks of queries from 0."""
        for audience_shards in self._remote_shards.values():
            audience_shards.begin_batch()
        return RequestBatch(self._ledger, self._store.schema, self._audience_states)

    def _finish_answers(self) -> None:
        """Note durable answers in the witness, and then have the shards delete their votes."""
        self._store.report_commit()
        self._delete_sums()

    @contextmanager
    def _charge_evaluation(
        self, audience: Audience, tally: NoisyTally, counted: CountedRows
    ) -> Iterator[Steps]:
        """Charge the subjects of the rows `counted` on all shards; yield private sums of all cells.

        The with-block makes the noisy cells durable. `audience`: whose budgets are charged.
        `tally`: the mechanism.
        """
        sums = sharded.charge_evaluation_on_shards(
            self._ledger, self._changes, audience, tally, counted
        )
        with self._ledger.release(audience):
            yield sums

    def _add_records(self, records: StoredRecords, addition: Addition | None) -> None:
        """Add encoded records on the shards of their subjects.

        `addition`: the request with its idempotency key, stored with the change; None without key.
        """
        database = self._store.database
        change = self._changes.route_addition(records)

        def decide_addition() -> changes.ClusterChange:
            """Store key and id mode, and return the addition."""
            if addition is not None:
                addition.write(database, self._ledger.version + 1)
            write_id_mode(database, has_ids=records.ids is not None)
            if records.ids is None:
                database.put(NEXT_NUMBER, str(int(change.subjects[-1]) + 1))
            return change

        self._make_change(changes.ADD, decide_addition)

    def erase(self, subjects: npt.ArrayLike) -> int:
        """Erase subjects, given by their ids, from every file of coordinator and shards.

        Returns the number of erased records, which is private; records that were erased before an
        interruption of a shard are not counted.

        Raises
        ------
        ShardMissing
            If a shard is missing. If the erasure was already decided, it must be finished first.
        """
        ids = self._check_erasable_ids(subjects)

        def decide_erasure() -> changes.ClusterChange:
            """Return the erasure, after deleting the digests of added records."""
            forget_addition_digests(self._store.database)
            return changes.ClusterChange(changes.ERASE, ids)

        with self._hold_exclusively():
            self._changes.check_all_reachable()
            erased_counts = self._make_change(changes.ERASE, decide_erasure)
        return sum(int(count) for count in erased_counts.values())

    def _find_statuses(self, subjects: list[SubjectId]) -> list[int]:
        """Return the enrolment status (an EnrollmentStatus) of each of `subjects`, distinct ids."""
        return self._changes.find_statuses(subjects)

    def _count_similar_ids(self, subjects: list[SubjectId]) -> int:
        """Return the number of unknown ids that differ in spelling only from other ids. Private.

        Unknown ids of `subjects` are compared with all known ids and with each other.
        """
        ids = list(dict.fromkeys(subjects))
        unknown = list(compress(ids, np.equal(self._changes.find_statuses(ids), 0)))
        similar_ids = self._changes.run_on_shards(tasks.SimilarSubjects(unknown))
        return len(find_similar_ids(unknown).union(*similar_ids.values()))

    def _complete_parameters(self, plan: dict[str, Any]) -> dict[str, Any]:
        """Return the parameters `plan` of a new plan, by name, with a number of records.

        It is that of the first audience by default. Raises InvalidInput for private neighbour
        counts.
        """
        if plan.get("neighbor_count") == PRIVATE:
            raise create_private_count_error()
        if plan.get("n_records") is None:
            first_plan = next(iter(self._audience_states.values())).describe_plan()
            plan = {**plan, "n_records": first_plan["n_records"]}
        return plan

    def _open_audience(self, name: str, plan_json: str) -> None:
        """Open the audience `name` on all shards and train its private model, if it has one.

        `plan_json`: the audience's checked plan, as JSON.
        """

        def decide_audience() -> changes.ClusterChange:
            """Open the audience in the coordinator's ledger, and return the change for shards."""
            audience = self._ledger.open_audience(name, plan_json)
            audience.plan = decide_and_train_model(self._store, audience, begin_model_training)
            self._remote_shards[name] = self._create_remote_shards(name)
            change = self._resolve_audience_plan(audience)
            if is_training_pending(self._store, audience):
                training.begin_training(self._ledger, audience)
            return change

        self._changes.check_all_reachable()
        self._make_change(changes.AUDIENCE, decide_audience)
        self._finish_training()

    def _retrain_model(self, state: AudienceState) -> None:
        """Train the model of the audience of `state` again, on the subjects enrolled now."""
        self._changes.check_all_reachable()
        with self._ledger.release(state.audience):
            training.begin_training(self._ledger, state.audience)
        self._finish_training()

    def _finish_training(self) -> None:
        """Finish the training in progress, if there is one, and send the model to all shards."""
        audience = training.find_training_audience(self._ledger)
        if audience is None:
            return
        gradients = training.ShardedGradients(self._store, audience, self._changes)
        model = gradients.train()
        state = self._audience_states.get(audience.name)

        def decide_model() -> changes.ClusterChange:
            """Store the trained model, and return the change that sends it."""
            gradients.write(model, state)
            return self._resolve_audience_plan(audience)

        kind = changes.MODEL_TRAINED if state is None else changes.MODEL_REFRESHED
        self._make_change(kind, decide_model)

    def facts(self, *, curator: bool = False) -> dict[str, Any]:
        """Return public facts as plain values; with `curator` also private ones of every shard."""
        with self._hold_exclusively(read_only=True):
            facts = collect_public_facts(self._store, self._audience_states)
            facts["shards"] = len(self._clients)
            if curator:
                facts["private"] = self._changes.run_on_shards(tasks.Facts())
        return facts

    def _verify_files(self, erased: list[SubjectId], rows: IntegerMatrix | None) -> Verification:
        """Check all files of coordinator and shards, also for traces of erased data.

        `erased`: erased subjects' ids. `rows`, (m, d): erased records' integer features, or None.
        """
        own = verify(self._store, erased, rows)
        faults: list[str] = []
        for number, result in self._changes.run_on_shards(tasks.Verify(erased, rows)).items():
            faults += [f"Shard {number}: {fault}" for fault in result.faults]
        return Verification((*own.faults, *faults), (*own.checked, "every shard"))

    def backup(self, path: str | Path) -> None:
        """Write a backup of coordinator and shards, all at the same moment, into a new folder.

        Each machine writes its own folder under `path`; see :func:`restore_cluster`.
        """
        with self._hold_exclusively(read_only=True):
            target = check_path("path", path).absolute()
            self._delete_sums()
            create_new_folder(target)
            write_backup(self._store, target / COORDINATOR)
            paths = list_shard_folders(target, len(self._clients))
            self._changes.run_on_shards(lambda number: tasks.Backup(paths[number]))
            self._description.save(target)  # Written last: a folder without it is not a backup.

    def _create_remote_shards(self, name: str) -> sharded.RemoteShards:
        """Return all shards, to be charged for the audience `name`."""
        return sharded.RemoteShards(self._ledger, name, self._clients, self._deadline)

    def _make_change(
        self, kind: str, decide: Callable[[], changes.ClusterChange]
    ) -> dict[int, Any]:
        """Make a change on all shards and return their results by shard number.

        Cached queries are forgotten even if the change fails, so that no answer to earlier data is
        looked up again. A new renewal period keeps data and answers; every audience is planned
        again for it, even if a shard is missing, because the period was decided.
        `kind`, `decide`: see :meth:`ClusterChanges.make_change`.
        """
        try:
            with delay_warnings():
                return self._changes.make_change(kind, decide)
        finally:
            for state in self._audience_states.values():
                if kind == RENEWAL:
                    state.reset_counters()
                else:
                    state.answers.forget_queries()
            # An open transaction means that the deciding commit was interrupted.
            if not self._ledger.database.in_transaction:
                self._store.report_change()
                # The coordinator's own files and memory are complete. If some shards have not made
                # the change, it stays pending and is finished before the next operation.
                self._ledger.complete_change()

    def _resolve_audience_plan(self, audience: Audience) -> changes.ClusterChange:
        """Replace the automatic parameters of an audience's plan, inside a change's transaction.

        They remain automatic while the audience's model is not trained. Returns the change that
        sends plan and model to every shard.
        """
        store = self._store
        is_planned = not is_training_pending(store, audience)
        if is_planned:
            pin_plan(store, audience, self._lock)
            begin_first_period(store, audience)
        else:
            audience.write_row(store.database)
        change = self._describe_audience(audience)
        if is_planned:
            state = self._open_audience_state(audience.name)
            self._audience_states = {**self._audience_states, audience.name: state}
        return change

    def _describe_audience(self, audience: Audience) -> changes.ClusterChange:
        """Return the change that sends an audience's plan and model to every shard."""
        model = read_components(self._store.database, audience.number)
        fields = {"number": audience.number, "name": audience.name, "plan": audience.plan}
        return changes.ClusterChange(changes.AUDIENCE, audience={**fields, "model": model})

    def _begin_due_periods(self) -> bool:
        """Begin the due renewal periods on all shards; return whether there were any."""
        due = self._ledger.due_renewals
        if due:
            # A renewal is not decided while a shard is missing: the cluster could not answer until
            # the shard returns.
            self._changes.check_all_reachable()
        for audience, renewal in due:

            def decide_period(audience: Audience = audience, renewal: Renewal = renewal) -> Any:
                """Begin a period of `audience` in the coordinator's ledger; return the change."""
                self._ledger.start_period(audience, renewal)
                return self._describe_audience(audience)

            self._make_change(RENEWAL, decide_period)
        return bool(due)

    @classmethod
    def _has_lost_charges(cls, path: Path) -> bool:
        """Return whether charges may have been lost: the cluster cannot be opened with all shards.

        `path`: folder of the cluster, with the folders of all shards on this machine. Opening it
        finishes interrupted changes. Every PrivacyRefused or StorageFailed counts as a loss.
        """
        try:
            with (
                cls.open(path, local_transports, _OPENING_SECONDS) as cluster,
                cluster._hold_exclusively(),
            ):
                cluster._changes.check_all_reachable()
        except (PrivacyRefused, StorageFailed):
            return True
        return False

    def _delete_sums(self) -> None:
        """Have all shards delete the sums of requests whose answers are durable.

        A lost message does no harm: the next one deletes the same votes.
        """
        # After an interrupted commit the clock in memory is ahead of the durable one.
        clock, _ = self._ledger.last_commit
        if not self._is_read_only:
            numbers = range(len(self._clients))
            send_tasks(self._clients, dict.fromkeys(numbers, tasks.DeleteSums(clock)))

    def _open_audience_state(self, name: str) -> AudienceState:
        """Return plan, counters and engine of the audience `name`; the engine is on the shards."""
        audience = self._ledger.audiences[name]
        state, _ = open_audience_state(self._store, audience, self._ledger.version, self._lock)
        state.detach_index(self._store.shard)  # the coordinator has no records to search
        engine = dataclasses.replace(state.engine, shard=self._remote_shards[name])
        return dataclasses.replace(state, engine=engine)

    def _finish_pending(self) -> None:
        """Finish an interrupted change, and then an interrupted training of a model."""
        if self._changes.is_unfinished:
            self._changes.finish_pending()
        self._finish_training()
