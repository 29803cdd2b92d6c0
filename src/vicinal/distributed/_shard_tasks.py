"""What a shard does: it charges, changes its data and looks after them, each task once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from vicinal._arrays import Ints8, Steps
from vicinal.distributed import _messages as tasks
from vicinal.distributed._messages import SumRequest, TallyRequest, VoteRequest
from vicinal.distributed._shard_copies import ledger_rows, replace_rows
from vicinal.distributed._shard_staging import ShardStaging, records_of
from vicinal.distributed._vote_charging import (
    ChargedVotes,
    SearchedBlock,
    VoteJournal,
    charge,
    charge_tally,
    shard_of,
)
from vicinal.errors import InvalidInput, PrivacyRefused, StorageFailed, StoreOutdated
from vicinal.ledger._database import Row
from vicinal.ledger._memory import ForkSafeLock
from vicinal.store import _backups, _erasure
from vicinal.store._additions import PreparedAddition, prepare_addition
from vicinal.store._audience_state import AudienceState, open_audience_state
from vicinal.store._opening import OpenStore
from vicinal.store._status import curator_facts
from vicinal.store._verify import Verification, traces, verify

_CHANGED = "changed"
"""Where the database keeps the clock of the last change that was made."""

_ALL = tasks.Verify()


def another_shard(number: int) -> StoreOutdated:
    """Return the refusal of a folder that lies in the place of shard `number` and is not it."""
    return StoreOutdated(
        f"Shard {number} is another shard, of this cluster or of another one. Bring back the "
        "folder that belongs there."
    )


class ShardTasks:
    """The tasks of an open shard, each done in its turn; see ``_messages`` for what they are."""

    def __init__(self, parts: OpenStore) -> None:
        self._parts = parts
        parts.ledger.dated = False  # copies write the same rows; the coordinator has the time
        self._journal = VoteJournal(parts.database)
        self._ahead = SearchedBlock()
        self._lock = ForkSafeLock()
        self._staging = ShardStaging(parts, self._serving)
        self._failed = False
        self._changed = int(parts.database.get(_CHANGED) or 0)
        self._audience_states = {name: self._state(name) for name in parts.ledger.audiences}

    @property
    def is_consistent(self) -> bool:
        """Whether it does tasks; once it does not, it must be opened again. Public."""
        return not self._failed and self._parts.ledger.is_consistent

    # ------------------------------------------------------------ votes

    def charge_and_sum(self, request: SumRequest) -> Steps:
        """Charge a block or an evaluation, or find what it gave when it came first.

        Returns
        -------
        int64 (q, c), (q,) or (cells,)
            Sums of votes, counts, or tables, in grid steps. **Private**: for the coordinator, which
            adds the noise.

        Raises
        ------
        InvalidInput
            If the request is not about this shard's features, or its name belongs to another.
        PrivacyRefused
            If the block is over. Nothing was charged.
        StorageFailed
            If the charge could not be made durable; the shard must be opened again.
        """
        with self._serving():
            charged = self._journal.find(request)
            if charged is None:
                self._journal.check(request)
                if request.audience not in self._audience_states:
                    raise InvalidInput("The 'audience' must be one that the shard has budgets for.")
                if isinstance(request, TallyRequest):
                    charged = self._tally(request)
                else:
                    charged = self._charge_durably(request)
                self._journal.note_charged(request)
        return charged.sums

    def search_ahead(self, search: tasks.SearchAhead) -> None:
        """Search a block that may be charged next, and keep who was found, in memory alone."""
        with self._serving():
            state = self._audience_states.get(search.audience)
            if state is None:
                raise InvalidInput("The 'audience' must be one that the shard has budgets for.")
            self._ahead.search(shard_of(state), search, self._parts.ledger.version)

    def delete_votes(self, task: tasks.DeleteVotes) -> None:
        """Delete the votes of all blocks before a clock."""
        with self._serving():
            self._delete_before(task.clock)

    # ------------------------------------------------------------ changes of the data

    def known(self, task: tasks.KnownSubjects) -> Ints8:
        """Return the standing of each subject, int8 (subjects,). Private."""
        with self._serving():
            return np.array(self._parts.ledger.standings(task.subjects), dtype=np.int8)

    def add(self, task: tasks.Add) -> None:
        """Add records durably, once; a subject that is known, or was, keeps what it has left."""
        with self._serving():
            if task.clock > self._changed:
                self._staging.end()
                self._commit(prepare_addition(self._parts, records_of(self._parts, task)), task)

    def stage(self, task: tasks.Stage) -> None:
        """Begin to prepare records to be added; blocks are charged meanwhile."""
        with self._serving():
            self._staging.begin(task)

    def is_staging(self, task: tasks.IsStaging) -> bool:
        """Tell whether a batch is still being prepared."""
        with self._serving():
            return self._staging.is_busy(task.token)

    def add_staged(self, task: tasks.AddStaged) -> None:
        """Add the records of a batch that was prepared, durably, once.

        Raises
        ------
        InvalidInput
            If it is not prepared, or the data have changed since. Nothing was done.
        """
        with self._serving():
            if task.clock > self._changed:
                prepared = self._staging.take(task.token)
                if prepared is None:
                    raise InvalidInput("The batch must be staged. Send its records.")
                self._commit(prepared, task)

    def _commit(self, prepared: PreparedAddition, task: tasks.Add | tasks.AddStaged) -> None:
        with self._parts.ledger.change("add"):
            prepared.commit(self._parts)
            self._write_clock(task.clock)
        self._note_change(task.clock)

    def erase(self, task: tasks.Erase) -> int:
        """Erase subjects from every file, once; return how many records went. Private.

        The second time it returns 0: nothing is kept of how many there were.

        Raises
        ------
        StorageFailed
            If the disk fails; the shard must be opened again, which continues the erasure.
        """
        with self._serving():
            if task.clock <= self._changed:
                return 0
            parts = self._parts
            self._delete_before(task.clock)  # votes of erased subjects must not outlive them
            erased = _erasure.decide(parts.ledger, parts.shard, task.subjects)
            self._failed = True  # until the erasure is complete
            self._note_change(task.clock)
            _erasure.finish(parts.database, parts.record_files, parts.witness)
            if faults := list(traces(parts)):
                raise StorageFailed(" ".join(faults))
            with self._durable():
                self._write_clock(task.clock)
            self._failed = False
        return erased

    def open_audience(self, task: tasks.OpenAudience) -> None:
        """Give every subject here a further budget, once."""
        with self._serving():
            if task.clock > self._changed:
                with self._parts.ledger.change("audience"):
                    audience = self._parts.ledger.open_audience(task.name, task.plan)
                    if audience.number != task.number:
                        raise PrivacyRefused("The shard has other audiences than the coordinator.")
                    self._write_clock(task.clock)
                self._note_change(task.clock)
                self._audience_states[task.name] = self._state(task.name)

    # ------------------------------------------------------------ care

    def ping(self, _: tasks.Ping) -> bool:
        """Return whether it does tasks."""
        return self.is_consistent

    def verify(self, task: tasks.Verify = _ALL) -> Verification:
        """Check every invariant on the disk, see :meth:`vicinal.store.Store.verify`."""
        with self._serving():
            return verify(self._parts, task.erased, task.rows)

    def facts(self, _: tasks.Facts) -> dict[str, Any]:
        """Return what only a curator may know."""
        with self._serving():
            return curator_facts(self._parts)

    def backup(self, task: tasks.Backup) -> None:
        """Write everything into a new folder, as it is at one moment."""
        with self._serving():
            _backups.pack(self._parts, task.path)

    # ------------------------------------------------------------ copies

    def read_ledger(self, task: tasks.ReadLedger) -> dict[str, list[Row]]:
        """Return the rows of the ledger, for another copy of this shard. Private."""
        with self._serving():
            return ledger_rows(self._parts.database, task.known)

    def replace_ledger(self, task: tasks.ReplaceLedger) -> None:
        """Go on with the ledger of another copy; the shard must be opened again, whatever comes.

        Raises
        ------
        StoreDamaged
            If it is not the ledger of the records here. Nothing is changed.
        """
        with self._lock:
            self._check_open()
            self._failed = True
            self._staging.end()
            replace_rows(self._parts, task.known, task.rows)

    # ------------------------------------------------------------ inside

    def _write_clock(self, clock: int) -> None:
        """Write, inside a transaction, that a change is made and earlier blocks are over."""
        self._journal.delete_before(clock)
        self._parts.database.put(_CHANGED, str(clock))

    def _note_change(self, clock: int) -> None:
        self._journal.note_durable(clock)
        self._ahead.forget()  # nothing of an erased record stays, not even that it was near
        self._staging.end()
        self._changed = clock
        self._parts.mark_change()

    def _delete_before(self, clock: int) -> None:
        if clock > self._journal.clock:
            with self._durable():
                self._journal.delete_before(clock)
            self._journal.note_durable(clock)

    def _charge_durably(self, request: VoteRequest) -> ChargedVotes:
        state, ledger = self._audience_states[request.audience], self._parts.ledger
        try:
            votes = charge(state, request, self._journal, self._ahead, ledger.version)
        except BaseException:
            state.drop_answers()
            ledger.keep_charges(state.audience, state.audience.slack)
            raise
        with self._durable():
            ledger.write_charges(state.audience, 0)
            self._parts.database.put("clock", str(ledger.clock))
            self._journal.write(request, votes)
        return votes

    def _tally(self, request: TallyRequest) -> ChargedVotes:
        state, ledger = self._audience_states[request.audience], self._parts.ledger
        with ledger.release(state.audience):
            sums = charge_tally(ledger, state, request)
            self._journal.write(request, sums)
        return sums

    @contextmanager
    def _serving(self) -> Iterator[None]:
        """Hold the lock, of a shard that has not failed, and mark commits."""
        with self._lock:
            self._check_open()
            try:
                with self._parts.marking():
                    yield
            except OSError:
                self._failed = True
                raise

    def _check_open(self) -> None:
        if self._failed:
            raise StorageFailed("The shard is closed, or has failed. Open it again.")
        self._parts.ledger.check()

    @contextmanager
    def _durable(self) -> Iterator[None]:
        """Make the body one transaction; if it fails, memory may be ahead of the disk."""
        try:
            with self._parts.database.transaction():
                yield
        except BaseException:
            self._failed = True
            raise

    def _state(self, name: str) -> AudienceState:
        parts, ledger = self._parts, self._parts.ledger
        audience = ledger.audiences[name]
        return open_audience_state(parts, audience, ledger.version, self._lock)[0]
