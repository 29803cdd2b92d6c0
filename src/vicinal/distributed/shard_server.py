"""The server of one shard: integer features, budgets, and a journal of charged blocks in a folder.

It runs the shard of one machine (:class:`vicinal.engine.shard.Shard`) on the files and the ledger
of a store. It adds no noise and releases no answers. A charge and the votes that it pays for are
durable before the votes are returned. The folder's *witness*, a file outside it, holds the last
commit and so reveals a rollback of the folder. The coordinator's *clock* counts its blocks of
answers, changes and other releases.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self, TypeVar

import numpy as np

from vicinal.arrays import Steps
from vicinal.distributed import _membership as membership
from vicinal.distributed import _vote_charging as charging
from vicinal.distributed import messages as tasks
from vicinal.distributed.folders import MemberFolder
from vicinal.errors import InvalidInput, PrivacyRefused, StorageFailed, StoreOutdated
from vicinal.ledger.answers import write_components
from vicinal.ledger.audiences import Audience
from vicinal.ledger.database import Database
from vicinal.ledger.memory import ForkSafeLock
from vicinal.ledger.renewal import Renewal
from vicinal.linear.private_model import LocalGradients
from vicinal.store.audience_state import AudienceState, open_audience_state, restore_plan
from vicinal.store.backups import write_backup
from vicinal.store.erasure import decide_erasure, finish_erasure
from vicinal.store.opening import OpenStore, open_folder
from vicinal.store.private_models import is_training_pending, list_answering_audiences
from vicinal.store.records import StoredRecords, add_records
from vicinal.store.status import collect_private_facts, find_id_traces, verify

_T = TypeVar("_T")
_LAST_CHANGE_CLOCK = "changed"  # database key of the clock of the last change that was made


class ShardServer:
    """One open shard of a cluster; only its process charges the shard's subjects.

    A failure of the disk closes it; opened again, it continues from the durable state of `store`.
    """

    def __init__(self, store: OpenStore) -> None:
        self._store = store
        self._journal = charging.ChargeJournal(store.database)
        self._lock = ForkSafeLock()
        self._failed = False
        self._gradients: dict[str, LocalGradients] = {}
        self._audience_states = {
            audience.name: self._open_audience_state(audience)
            for audience in list_answering_audiences(store)
        }

    @classmethod
    def open(
        cls,
        path: str | Path,
        *,
        check: Callable[[Database], object] = lambda _: None,
        read_only: bool = False,
    ) -> Self:
        """Open the shard in the folder `path`; without writing, if `read_only`.

        `check`: receives the database of the folder, and raises an error if it must not be used.
        Raises InvalidInput if there is no shard, StoreOutdated if it is an old copy, StoreInUse if
        another process has it open, and StorageFailed if a file or the database is damaged.
        """
        folder = MemberFolder.read(Path(path)).folder
        store = open_folder(folder, check=check, read_only=read_only)
        try:
            return cls(store)
        except BaseException:
            store.resources.close()
            raise

    def close(self) -> None:
        """Release files, database and lock. A second call has no effect."""
        with self._lock:
            self._failed = True
            self._store.resources.close()

    @property
    def is_consistent(self) -> bool:
        """Whether the shard accepts tasks; if not, it must be opened again. Public."""
        return not self._failed and self._store.ledger.is_consistent

    def handle(self, message: tasks.Message) -> tasks.ShardAnswer:
        """Run the task of a message, after checking that it is for this shard in its state.

        Returns the result with the links of the shard's hash chain since the state in the message.
        Raises the errors of :meth:`run_task`, and StoreOutdated, with nothing done, if the message
        is for another shard, or if either side is an old copy or a copy that ran elsewhere.
        """
        with self._run_exclusively():
            self._accept_message(message)
            value = self.run_task(message.task)
            links = membership.read_links_since(self._store.database, message.last_seen)
            return tasks.ShardAnswer(value, links or ())

    def run_task(self, task: tasks.Task) -> Any:
        """Run a task without checking its sender; the docstring of its type describes the result.

        Raises InvalidInput, with nothing done, if this version does not have the task, if features
        do not fit the shard's, or if another request was charged under the name of this one.
        Raises PrivacyRefused, with nothing charged, if later requests were charged already. Raises
        StorageFailed if a commit failed: opening the shard again continues an erasure.
        """
        with self._run_exclusively():
            match task:
                case tasks.VoteRequest() | tasks.EvaluationRequest() | tasks.GradientRequest():
                    return self._charge_once(task)
                case tasks.DeleteSums():
                    return self._delete_sums_before(task.clock)
                case tasks.Add() | tasks.Erase() | tasks.SetAudience():
                    # A repeated change was already made; its number of erased records is not kept.
                    last_clock = self._store.database.get_integer(_LAST_CHANGE_CLOCK)
                    return self._make_change(task) if task.clock > last_clock else 0
                case tasks.Ping():
                    return None
                case tasks.SubjectStatuses():
                    return np.array(self._store.ledger.find_statuses(task.subjects), dtype=np.int8)
                case tasks.SimilarSubjects():
                    return self._store.ledger.find_similar_unknown_ids(task.subjects)
                case tasks.Verify():
                    return verify(self._store, task.erased, task.rows)
                case tasks.Facts():
                    return collect_private_facts(self._store)
                case tasks.Backup():
                    return write_backup(self._store, task.path)
                case _:
                    raise InvalidInput("The task must be one that this version knows.")

    def _accept_message(self, message: tasks.Message) -> None:
        """Accept a message, and durably the epoch of its coordinator, or raise StoreOutdated."""
        number, database = message.number, self._store.database
        membership.check_shard_state(
            self._store, message.cluster, number, message.shard, message.last_seen
        )
        # The epoch is empty in a new shard, or after an accepted loss: any coordinator is accepted.
        epoch = membership.read_epoch(database)
        # One epoch is one process, whose clock never decreases: within it, an earlier message may
        # arrive late. A message of any other coordinator must not have an earlier clock.
        is_other_epoch = message.read_only or epoch != message.epochs[-1]
        is_older = is_other_epoch and message.clock < self._journal.clock
        if is_older or epoch not in (b"", *message.epochs):
            raise StoreOutdated(
                f"The coordinator is an old copy, or another one has used shard {number} since. "
                "Nothing was charged. Bring back the coordinator that belongs to the shards, or "
                "accept the loss, which spends every budget for good."
            )
        if not message.read_only and epoch != message.epochs[-1]:
            with self._durable_transaction():
                membership.write_epoch(database, message.epochs[-1])
                self._journal.reset_sequence()

    def _charge_once(self, request: tasks.SumRequest) -> Steps:
        """Charge a request and return its private sums, or the stored sums if it is repeated."""
        stored_sums = self._journal.find_sums(request)
        if stored_sums is not None:
            return stored_sums
        self._journal.refuse_overtaken_request(request)
        match request:
            case tasks.GradientRequest():
                return self._charge_gradient(request)
            case tasks.EvaluationRequest():
                return self._charge_evaluation(request)
            case tasks.VoteRequest():
                return self._charge_votes(request)

    def _charge_votes(self, request: tasks.VoteRequest) -> Steps:
        """Charge the query block of a request durably; return its private votes, int64 (q, c)."""
        state = _get_for_audience(request.audience, self._audience_states)
        ledger = self._store.ledger
        try:
            votes = charging.charge_votes(state, request)
        except BaseException:
            # Some subjects may have been charged already. Their charges stay, although no votes are
            # returned for them.
            ledger.commit_interrupted_charges([state.audience])
            state.reset_counters()
            raise
        with self._durable_transaction():
            ledger.write_charges(state.audience, 0)
            self._store.database.put("clock", str(ledger.clock))
            self._journal.write_sums(request, votes)
        return votes

    def _charge_evaluation(self, request: tasks.EvaluationRequest) -> Steps:
        """Charge the evaluation of a request durably; return the private sums of all cells."""
        state = _get_for_audience(request.audience, self._audience_states)
        with self._store.ledger.release(state.audience):
            sums = charging.charge_evaluation(self._store.ledger, state, request)
            self._journal.write_sums(request, sums)
        return sums

    def _charge_gradient(self, request: tasks.GradientRequest) -> Steps:
        """Charge the training step of a request durably; return its private gradient, (D, c)."""
        store = self._store
        name = request.audience
        audience = _get_for_audience(name, store.ledger.audiences)
        if name not in self._gradients:
            self._gradients = {name: charging.create_local_gradients(store, audience)}
        gradients = self._gradients[name]
        plan = restore_plan(store, audience)
        release = charging.create_step_release(gradients, request, plan.training.step_noise)
        with store.ledger.release(audience):
            sums = gradients.charge_and_sum(release, request.weights)
            self._journal.write_sums(request, sums)
        return sums

    def _delete_sums_before(self, clock: int) -> None:
        """Delete the sums of all requests with an earlier clock, durably."""
        if clock > self._journal.clock:
            with self._durable_transaction():
                self._journal.delete_sums_before(clock)

    def _make_change(self, task: tasks.Add | tasks.Erase | tasks.SetAudience) -> int:
        """Make the change of a task durably; return the number of erased records."""
        # The shard counts as failed until the change is complete: after an exception at any line
        # it must be opened again, because memory has to agree with the commit, and because an
        # opening finishes an erasure.
        self._failed = True
        n_erased = 0
        match task:
            case tasks.Erase():
                n_erased = self._erase_subjects(task)
            case tasks.SetAudience():
                self._set_audience(task)
            case tasks.Add():
                self._add_records(task)
        self._store.ledger.complete_change()
        self._failed = False
        return n_erased

    def _add_records(self, task: tasks.Add) -> None:
        """Add the records of a task durably, with their subjects."""
        targets = self._store.schema.target.decode_rows(task.rows)
        records = StoredRecords(task.integers, targets, task.rows, task.subjects)
        with self._store.ledger.change("add"):
            add_records(self._store, records)
            self._write_change_clock(task.clock)
        self._mark_change()

    def _erase_subjects(self, task: tasks.Erase) -> int:
        """Erase the subjects of a task from all files and return the number of erased records."""
        store = self._store
        self._delete_sums_before(task.clock)  # These votes contain those of the erased subjects.
        n_erased = decide_erasure(store.ledger, store.shard, task.subjects)
        self._mark_change()
        finish_erasure(store.database, store.record_files, store.witness)
        if faults := list(find_id_traces(store)):
            raise StorageFailed(" ".join(faults))
        with self._durable_transaction():
            self._write_change_clock(task.clock)
        return n_erased

    def _set_audience(self, task: tasks.SetAudience) -> None:
        """Set plan and model of the audience in `task` durably; open the audience if it is new."""
        store = self._store
        name = task.name
        with store.ledger.change("audience"):
            renewal = Renewal.from_plan(task.plan)
            audience = store.ledger.audiences.get(name)
            if audience is None:
                plan = task.plan if renewal is None else renewal.declared.insert_into(task.plan)
                audience = store.ledger.open_audience(name, plan)
            if audience.number != task.number:
                raise PrivacyRefused("The shard has other audiences than the coordinator.")
            previous = audience.renewal
            audience.plan = task.plan if previous is None else previous.insert_into(task.plan)
            # The coordinator's date decides: all shards begin a period in one of its changes. After
            # an accepted loss no further period begins.
            if renewal not in (None, previous) and audience.initial_budget:
                store.ledger.start_period(audience, renewal)
            audience.write_row(store.database)
            write_components(store.database, task.number, task.model)
            self._write_change_clock(task.clock)
        self._mark_change()
        if name in self._audience_states:
            self._audience_states.pop(name).detach_index(store.shard)
        if not is_training_pending(store, audience):
            self._audience_states[name] = self._open_audience_state(audience)

    def _write_change_clock(self, clock: int) -> None:
        """Store the clock of a change, inside a transaction; earlier requests are refused then."""
        self._journal.delete_sums_before(clock)
        self._store.database.put(_LAST_CHANGE_CLOCK, str(clock))

    def _mark_change(self) -> None:
        """Note a committed change in the witness, and discard gradients of earlier records."""
        self._gradients.clear()
        self._store.report_change()

    @contextmanager
    def _run_exclusively(self) -> Iterator[None]:
        """Hold the shard's lock in the with-block; note the block's commits in the witness.

        Raises StorageFailed if the shard has failed or is closed. An OSError makes it fail.
        """
        with self._lock:
            if self._failed:
                raise StorageFailed("The shard is closed, or has failed. Open it again.")
            self._store.ledger.check_usable()
            try:
                with self._store.report_commits_at_end():
                    yield
            except OSError:
                self._failed = True
                raise

    @contextmanager
    def _durable_transaction(self) -> Iterator[None]:
        """Commit the with-block as one transaction; after an error the shard must be reopened."""
        try:
            with self._store.database.transaction():
                yield
        except BaseException:
            self._failed = True  # memory may be ahead of the disk
            raise

    def _open_audience_state(self, audience: Audience) -> AudienceState:
        """Return plan, counters and engine of an audience; the engine is on the shard's records."""
        return open_audience_state(self._store, audience, self._store.ledger.version, self._lock)[0]


def _get_for_audience(name: str, values: Mapping[str, _T]) -> _T:
    """Return the entry of `values`, which are by name of the audience; InvalidInput if none."""
    if name not in values:
        raise InvalidInput("The 'audience' must be one that the shard has budgets for.")
    return values[name]
