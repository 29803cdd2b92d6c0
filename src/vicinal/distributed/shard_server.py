"""A shard with its own folder: integer tiles, budgets, and a journal of the blocks it has charged.

It is the shard of one machine (:class:`vicinal.engine.shard.Shard`) on the files and
the ledger of a store. It adds no noise and gives no answers. Order of durability: the charge, and
the votes that it pays for, are durable before the votes leave.
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
from vicinal.distributed.folders import ShardFolder
from vicinal.errors import InvalidInput, PrivacyRefused, StorageFailed, StoreOutdated
from vicinal.ledger.answers import write_parts
from vicinal.ledger.audiences import Audience
from vicinal.ledger.database import Database
from vicinal.ledger.memory import ForkSafeLock
from vicinal.ledger.renewal import Renewal
from vicinal.linear.private_model import LocalGradients
from vicinal.store.audience_state import AudienceState, open_audience_state, settings_of
from vicinal.store.backups import pack
from vicinal.store.erasure import decide_erasure, finish_erasure
from vicinal.store.opening import OpenStore, open_folder
from vicinal.store.private_models import awaits_model, list_answering_audiences
from vicinal.store.records import StoredRecords, add_records
from vicinal.store.status import curator_facts, find_id_traces, verify

_T = TypeVar("_T")
_CHANGED = "changed"
"""Where the database keeps the clock of the last change that was made."""


class ShardServer:
    """One shard of a cluster, open: the only process that charges its subjects.

    A failure of the disk closes it. Opened again, it knows what was durable.

    Parameters
    ----------
    parts : OpenStore
        What the folder holds.
    """

    def __init__(self, parts: OpenStore) -> None:
        self._parts = parts
        self._journal = charging.VoteJournal(parts.database)
        self._lock = ForkSafeLock()
        self._failed = False
        self._gradients: dict[str, LocalGradients] = {}
        self._audience_states = {
            one.name: self._opened(one) for one in list_answering_audiences(parts)
        }

    @classmethod
    def open(
        cls,
        path: str | Path,
        *,
        check: Callable[[Database], object] = lambda _: None,
        reading: bool = False,
    ) -> Self:
        """Open the shard that lies in a folder; `check` and `reading` as of :func:`open_folder`.

        Raises
        ------
        InvalidInput
            If there is none.
        PrivacyRefused
            StoreOutdated if it is an old copy; StoreInUse if another process has it open.
        StorageFailed
            If a file or the database is damaged.
        """
        folder = ShardFolder.read(Path(path)).folder
        parts = open_folder(folder, check=check, reading=reading)
        try:
            return cls(parts)
        except BaseException:
            parts.resources.close()
            raise

    def close(self) -> None:
        """Let go of files, database and lock. Closing twice does no harm."""
        with self._lock:
            self._failed = True
            self._parts.resources.close()

    @property
    def is_consistent(self) -> bool:
        """Whether it does tasks; once it does not, it must be opened again. Public."""
        return not self._failed and self._parts.ledger.is_consistent

    def handle(self, message: tasks.Message) -> tasks.ShardAnswer:
        """Do the task of a message that is for this shard as it is, from its coordinator.

        Raises
        ------
        StoreOutdated
            If this shard is another one, or an old copy, or one that ran elsewhere; or if that is
            true of the coordinator. Nothing was done.
        """
        with self._serving():
            self._check(message)
            value = self.do(message.task)
            return tasks.ShardAnswer(
                value, membership.links_after(self._parts.database, message.known) or ()
            )

    def do(self, task: tasks.Task) -> Any:
        """Do a task, without checking who sent it; its type says what is returned.

        Raises
        ------
        InvalidInput
            If the task is none that this version knows, or not about this shard's features; if the
            name of a block belongs to another one. Nothing was done.
        PrivacyRefused
            If a block is over. Nothing was charged.
        StorageFailed
            If something could not be made durable: the shard must be opened again, which continues
            an erasure.
        """
        with self._serving():
            match task:
                case tasks.VoteRequest() | tasks.TallyRequest() | tasks.GradientRequest():
                    return self._charge_once(task)
                case tasks.DeleteVotes():
                    return self._delete_before(task.clock)
                case tasks.Add() | tasks.Erase() | tasks.SetAudience():
                    # One that comes again was made. How many records went is not kept.
                    made = self._parts.database.number(_CHANGED)
                    return self._change(task) if task.clock > made else 0
                case tasks.Ping():
                    return None
                case tasks.KnownSubjects():
                    return np.array(self._parts.ledger.standings(task.subjects), dtype=np.int8)
                case tasks.AlikeSubjects():
                    return self._parts.ledger.alike(task.subjects)
                case tasks.Verify():
                    return verify(self._parts, task.erased, task.rows)
                case tasks.Facts():
                    return curator_facts(self._parts)
                case tasks.Backup():
                    return pack(self._parts, task.path)
                case _:
                    raise InvalidInput("The task must be one that this version knows.")

    def _check(self, message: tasks.Message) -> None:
        """Raise StoreOutdated unless a message is for this shard, from its coordinator."""
        number, database = message.number, self._parts.database
        membership.check_last(self._parts, message.cluster, number, message.shard, message.known)
        # A shard that was never asked, or whose loss was accepted, knows none: it takes this one.
        epoch = membership.known_epoch(database)
        # An epoch is one process, which never goes back: what it sent earlier may come later.
        others = message.reading or epoch != message.epochs[-1]
        older = others and message.clock < self._journal.clock
        if older or epoch not in (b"", *message.epochs):
            raise StoreOutdated(
                f"The coordinator is an old copy, or another one has used shard {number} since. "
                "Nothing was charged. Bring back the coordinator that belongs to the shards, or "
                "accept the loss, which spends every budget for good."
            )
        if not message.reading and epoch != message.epochs[-1]:
            with self._durable():
                membership.write_epoch(database, message.epochs[-1])
                self._journal.begin_epoch()

    # ------------------------------------------------------------ votes

    def _charge_once(self, request: tasks.SumRequest) -> Steps:
        """Charge a block or an evaluation, or find what it gave when it came first."""
        if (charged := self._journal.find(request)) is not None:
            return charged
        self._journal.check(request)
        match request:
            case tasks.GradientRequest():
                return self._gradient(request)
            case tasks.TallyRequest():
                return self._tally(request)
            case tasks.VoteRequest():
                return self._charge(request)

    def _charge(self, request: tasks.VoteRequest) -> Steps:
        state, ledger = _known(request.audience, self._audience_states), self._parts.ledger
        try:
            votes = charging.charge(state, request)
        except BaseException:
            # Some may have paid already: what they paid stays paid, and nothing leaves for it.
            ledger.keep_charges([state.audience])
            state.drop_answers()
            raise
        with self._durable():
            ledger.write_charges(state.audience, 0)
            self._parts.database.put("clock", str(ledger.clock))
            self._journal.write(request, votes)
        return votes

    def _tally(self, request: tasks.TallyRequest) -> Steps:
        state = _known(request.audience, self._audience_states)
        with self._parts.ledger.release(state.audience):
            sums = charging.charge_tally(self._parts.ledger, state, request)
            self._journal.write(request, sums)
        return sums

    def _gradient(self, request: tasks.GradientRequest) -> Steps:
        parts, name = self._parts, request.audience
        audience = _known(name, parts.ledger.audiences)
        if name not in self._gradients:
            self._gradients = {name: charging.local_gradients(parts, audience)}
        gradients, settings = self._gradients[name], settings_of(parts, audience)
        release = charging.step_of(gradients, request, settings.training.step_noise)
        with parts.ledger.release(audience):
            sums = gradients.charge_and_sum(release, request.weights)
            self._journal.write(request, sums)
        return sums

    def _delete_before(self, clock: int) -> None:
        if clock > self._journal.clock:
            with self._durable():
                self._journal.delete_before(clock)

    # ------------------------------------------------------------ changes of the data

    def _change(self, task: tasks.Add | tasks.Erase | tasks.SetAudience) -> int:
        """Make a change durably; return the number of erased records."""
        # The shard counts as failed until the change is complete: after an exception at any line
        # it must be opened again, because memory has to agree with the commit, and because an
        # opening finishes an erasure.
        self._failed = True
        n_erased = 0
        match task:
            case tasks.Erase():
                n_erased = self._erase(task)
            case tasks.SetAudience():
                self._set_audience(task)
            case tasks.Add():
                self._add(task)
        self._parts.ledger.complete_change()
        self._failed = False
        return n_erased

    def _add(self, task: tasks.Add) -> None:
        targets = self._parts.schema.target.of_rows(task.rows)
        records = StoredRecords(task.integers, targets, task.rows, task.subjects)
        with self._parts.ledger.change("add"):
            add_records(self._parts, records)
            self._write_clock(task.clock)
        self._note_change()

    def _erase(self, task: tasks.Erase) -> int:
        parts = self._parts
        self._delete_before(task.clock)  # votes of erased subjects must not outlive them
        erased = decide_erasure(parts.ledger, parts.shard, task.subjects)
        self._note_change()
        finish_erasure(parts.database, parts.record_files, parts.witness)
        if faults := list(find_id_traces(parts)):
            raise StorageFailed(" ".join(faults))
        with self._durable():
            self._write_clock(task.clock)
        return erased

    def _set_audience(self, task: tasks.SetAudience) -> None:
        parts, name = self._parts, task.name
        with parts.ledger.change("audience"):
            known, renewal = parts.ledger.audiences.get(name), Renewal.of(task.plan)
            audience = known or parts.ledger.open_audience(
                name, task.plan if renewal is None else renewal.declared.within(task.plan)
            )
            if audience.number != task.number:
                raise PrivacyRefused("The shard has other audiences than the coordinator.")
            before = audience.renewal
            audience.plan = task.plan if before is None else before.within(task.plan)
            # The coordinator's date decides: all shards begin a period in one of its changes. None
            # comes once the loss of charges was accepted.
            if renewal not in (None, before) and audience.initial_budget:
                parts.ledger.set_period(audience, renewal)
            audience.write(parts.database)
            write_parts(parts.database, task.number, task.model)
            self._write_clock(task.clock)
        self._note_change()
        if name in self._audience_states:
            self._audience_states.pop(name).close(parts.shard)
        if not awaits_model(parts, audience):
            self._audience_states[name] = self._opened(audience)

    def _write_clock(self, clock: int) -> None:
        """Write, inside a transaction, that a change is made and earlier blocks are over."""
        self._journal.delete_before(clock)
        self._parts.database.put(_CHANGED, str(clock))

    def _note_change(self) -> None:
        self._gradients.clear()
        self._parts.mark_change()

    # ------------------------------------------------------------ inside

    @contextmanager
    def _serving(self) -> Iterator[None]:
        """Hold the lock, of a shard that has not failed, and mark commits."""
        with self._lock:
            if self._failed:
                raise StorageFailed("The shard is closed, or has failed. Open it again.")
            self._parts.ledger.check()
            try:
                with self._parts.marking():
                    yield
            except OSError:
                self._failed = True
                raise

    @contextmanager
    def _durable(self) -> Iterator[None]:
        """Make the body one transaction; if it fails, memory may be ahead of the disk."""
        try:
            with self._parts.database.transaction():
                yield
        except BaseException:
            self._failed = True
            raise

    def _opened(self, audience: Audience) -> AudienceState:
        return open_audience_state(self._parts, audience, self._parts.ledger.version, self._lock)[0]


def _known(name: str, audiences: Mapping[str, _T]) -> _T:
    if name not in audiences:
        raise InvalidInput("The 'audience' must be one that the shard has budgets for.")
    return audiences[name]
