"""A shard with its own folder: integer tiles, budgets, and a journal of the blocks it has carried.

It is the shard of one machine (:class:`vicinal.predictors.ind_knn._shard.Shard`) on the files and the ledger
of a store. It adds no noise and gives no answers. Order of durability: the charge, and the votes
that it pays for, are durable before the votes leave.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from vicinal._checks import SubjectId
from vicinal.distributed._folders import ShardFolder
from vicinal.distributed._membership import (
    ShardState,
    join,
    know_epoch,
    known_epoch,
    links_after,
    member_of,
)
from vicinal.distributed._messages import Message, ShardAnswer
from vicinal.distributed._splitting import put_records
from vicinal.distributed._tasks import HERE
from vicinal.distributed._vote_journal import CarriedVotes, VoteJournal
from vicinal.distributed._vote_request import COUNT, COUNTED, Steps, VoteRequest
from vicinal.errors import InvalidInput, PrivacyRefused, StorageFailed
from vicinal.neighbours._integer_features import IntegerMatrix
from vicinal.predictors.ind_knn._engine import ForkSafeLock, QueryEngine
from vicinal.predictors.ind_knn._shard import SharedShard
from vicinal.predictors.ind_knn._shards import TwoRoundQuery
from vicinal.store import _backups, _erasure
from vicinal.store._audience_state import AudienceState, open_audience_state
from vicinal.store._opening import OpenStore, open_folder
from vicinal.store._status import curator_facts
from vicinal.store._verify import Verification, traces, verify

_CHANGED = "changed"
_ANOTHER = (
    "Shard {} is another shard, of this cluster or of another one. Bring back the folder that "
    "belongs there."
)

_NOBODY = np.zeros(0, dtype=np.bool_)


class ShardServer:
    """One shard of a cluster, open: the only process that charges its subjects.

    A failure of the disk closes it. Opened again, it knows what was durable.

    Parameters
    ----------
    parts : OpenStore
        What the folder holds.
    cluster : str
        The id of the cluster that it says it belongs to.
    """

    def __init__(self, parts: OpenStore, cluster: str) -> None:
        self._parts = parts
        self._cluster = cluster
        self._carried = VoteJournal(parts.database)
        self._turn = ForkSafeLock()
        self._failed = False
        self._changed = int(parts.database.get(_CHANGED) or 0)
        self._audience_states = {name: self._desk(name) for name in parts.ledger.audiences}

    @classmethod
    def open(cls, path: str | Path) -> Self:
        """Open the shard that lies in a folder.

        Raises
        ------
        InvalidInput
            If there is none.
        PrivacyRefused
            If another process has it open, or if it is an old copy.
        StorageFailed
            If a file or the database is damaged.
        """
        found = ShardFolder.read(Path(path))
        parts = open_folder(found.folder)
        try:
            return cls(parts, found.cluster)
        except BaseException:
            parts.resources.close()
            raise

    def close(self) -> None:
        """Let go of files, database and lock. Closing twice does no harm."""
        with self._turn:
            self._failed = True
            self._parts.resources.close()

    def perform(self, message: Message) -> ShardAnswer:
        """Do what a coordinator asks, if the message is for this shard as it is.

        Raises
        ------
        PrivacyRefused
            If this shard is another one, or an old copy, or one that ran elsewhere; or if that is
            true of the coordinator. Nothing was done.
        """
        with self._whole():
            self._admit(message)
        value = message.task.done_by(self)
        with self._whole():
            return ShardAnswer(value, links_after(self._parts.database, message.seen) or ())

    def join(self, cluster: str, number: int) -> tuple[str, ShardState]:
        """Become a shard of a cluster, unless it is one; return its id and how far it is.

        Raises
        ------
        PrivacyRefused
            If it belongs to another cluster, or to another place in it.
        """
        with self._whole():
            database = self._parts.database
            if member_of(database) is None and self._cluster == cluster:
                with self._durable():
                    join(database, cluster, number)
            if member_of(database) != (cluster, number):
                raise PrivacyRefused(_ANOTHER.format(number))
            return self._parts.folder.identity, ShardState.of(database)

    def charge_and_sum(self, order: VoteRequest) -> Steps:
        """Carry out an order, or find what it gave when it came first.

        Returns
        -------
        int64 (q, c) or (q,)
            Sums of votes, or counts, in grid steps. **Private**: for the coordinator, which adds
            the noise.

        Raises
        ------
        InvalidInput
            If the order is not about this shard's features, or its name belongs to another.
        PrivacyRefused
            If the block is over. Nothing was charged.
        StorageFailed
            If the charge could not be made durable; the shard must be opened again.
        """
        with self._whole():
            found = self._carried.find(order)
            if found is None:
                self._carried.check(order)
                found = self._charged(order)
        return found.sums

    def settle(self, turn: int) -> None:
        """Take note that all answers before `turn` are durable, and delete their votes."""
        with self._whole():
            self._drop(turn)

    # ------------------------------------------------------------ changes of the data

    def known(self, subjects: Sequence[SubjectId]) -> npt.NDArray[np.int8]:
        """Return whether each subject is here, has left, or is unknown; see tasks. Private."""
        with self._whole():
            book = self._parts.ledger
            found = [
                HERE if who in book.slot_table.slot_of else book.has_budget(who) for who in subjects
            ]
            return np.array(found, dtype=np.int8)

    def add(
        self,
        turn: int,
        integers: IntegerMatrix,
        labels: npt.NDArray[np.int32],
        subjects: list[SubjectId],
    ) -> None:
        """Add records durably, once; a subject that is known, or was, keeps what it has left.

        Parameters
        ----------
        turn : int
            The coordinator's number of the change. Blocks before it are over.
        integers, labels, subjects
            int8 or float32 (n, d), int32 (n,) and n ids.
        """
        with self._whole():
            if turn > self._changed:
                with self._parts.ledger.change("add"):
                    put_records(self._parts, integers, labels, subjects)
                    self._mark(turn)
                self._told(turn)

    def erase(self, turn: int, subjects: list[SubjectId]) -> int:
        """Erase subjects from every file, once; return how many records went. Private.

        Told again, it returns 0: nothing is kept of how many there were.

        Raises
        ------
        StorageFailed
            If the disk fails; the shard must be opened again, which goes on with the erasure.
        """
        with self._whole():
            if turn <= self._changed:
                return 0
            parts = self._parts
            self._drop(turn)  # votes of those who are to go must not outlive them
            gone = _erasure.decide(parts.ledger, parts.shard, subjects)
            self._failed = True  # until it is through
            self._told(turn)
            _erasure.finish(parts.database, parts.record_files, parts.witness)
            if left := list(traces(parts)):
                raise StorageFailed(" ".join(left))
            with self._durable():
                self._mark(turn)
            self._changed, self._failed = turn, False
        return gone

    def open_audience(self, turn: int, number: int, name: str, plan: str) -> None:
        """Give everybody here a further budget, once; the plan is the coordinator's, pinned."""
        with self._whole():
            if turn > self._changed:
                with self._parts.ledger.change("audience"):
                    audience = self._parts.ledger.open_audience(name, plan)
                    if audience.number != number:
                        raise PrivacyRefused("The shard has other audiences than the coordinator.")
                    self._mark(turn)
                self._told(turn)
                self._audience_states[name] = self._desk(name)

    # ------------------------------------------------------------ care

    @property
    def is_consistent(self) -> bool:
        """Whether it carries orders; once it does not, it must be opened again. Public."""
        return not self._failed and self._parts.ledger.is_consistent

    def verify(
        self, erased: Sequence[SubjectId] = (), rows: npt.NDArray[Any] | None = None
    ) -> Verification:
        """Check every invariant on the disk, see :meth:`vicinal.store.Store.verify`."""
        with self._whole():
            return verify(self._parts, erased, rows)

    def facts(self) -> dict[str, Any]:
        """Return what only a curator may know."""
        with self._whole():
            return curator_facts(self._parts)

    def backup(self, path: Path) -> None:
        """Write everything into a new folder, as it is at one moment."""
        with self._whole():
            _backups.pack(self._parts, path)

    def _admit(self, message: Message) -> None:
        """Raise PrivacyRefused unless a message is for this shard, from its coordinator."""
        number, database = message.number, self._parts.database
        mine = (member_of(database), self._parts.folder.identity)
        if mine != ((message.cluster, number), message.shard):
            raise PrivacyRefused(_ANOTHER.format(number))
        if links_after(database, message.seen) is None:
            raise PrivacyRefused(
                f"Shard {number} is an old copy, or a copy that ran elsewhere: it never was where "
                "the coordinator saw it last. Nothing was charged. Bring back the folder that "
                "belongs there, or accept the loss, which spends every budget for good."
            )
        epoch = known_epoch(database) or message.epochs[0]
        if message.turn < self._carried.turn or epoch not in message.epochs:
            raise PrivacyRefused(
                f"The coordinator is an old copy, or another one has asked shard {number} since. "
                "Nothing was charged. Bring back the coordinator that belongs to the shards."
            )
        if known_epoch(database) != message.epochs[-1]:
            with self._durable():
                know_epoch(database, message.epochs[-1])

    def _mark(self, turn: int) -> None:
        """Put on record, inside a transaction, that a change is made and earlier blocks over."""
        self._carried.drop(turn)
        self._parts.database.put(_CHANGED, str(turn))

    def _told(self, turn: int) -> None:
        self._carried.passed(turn)
        self._changed = turn
        self._parts.mark_change()

    def _drop(self, turn: int) -> None:
        if turn > self._carried.turn:
            with self._durable():
                self._carried.drop(turn)
            self._carried.passed(turn)

    def _charged(self, order: VoteRequest) -> CarriedVotes:
        desk = self._desk_of(order.audience)
        try:
            outcome = self._outcome(desk, order)
        except BaseException:
            desk.drop_answers()
            self._parts.ledger.keep_charges(desk.audience, desk.audience.slack)
            raise
        with self._durable():
            self._parts.ledger.write_charges(desk.audience, 0)
            self._parts.database.put("clock", str(self._parts.ledger.clock))
            self._carried.write(order, outcome)
        self._carried.passed(order.turn)
        return outcome

    def _outcome(self, desk: AudienceState, order: VoteRequest) -> CarriedVotes:
        """Charge in memory, at the mechanism's own price: the order says noise scales only."""
        engine = desk.engine
        shard = _shard_of(engine)
        if order.round == COUNT:
            return self._counted(engine, order)
        release = engine.votes.release(order.scales / engine.votes.grid.steps)
        # The coordinator meters what the grid costs; here nothing is released.
        desk.slack.resume(desk.audience.slack)
        if order.round == COUNTED:
            near = shard.search(order.queries, order.thresholds)
            sums = TwoRoundQuery(shard, slice(0, len(near)), near.keep(self._payers(order)))
            return CarriedVotes(sums.charge_and_sum(release), _NOBODY)
        return CarriedVotes(shard.charge_and_sum(release, order.queries, order.thresholds), _NOBODY)

    def _counted(self, engine: QueryEngine, order: VoteRequest) -> CarriedVotes:
        shard = _shard_of(engine)
        if engine.count is None:
            raise InvalidInput("The audience's counts are public: its queries are not counted.")
        near = shard.search(order.queries, order.thresholds)
        counts, part, spent = engine.count.contribute_and_charge(near, shard.subject_table)
        shard.ledger.note_charged_total(spent)
        return CarriedVotes(counts, part)

    def _payers(self, order: VoteRequest) -> np.ndarray:
        """Return which hits of the second round had paid for the first."""
        first = VoteRequest(
            order.name, order.turn, order.audience, COUNT, order.queries, order.thresholds,
            np.zeros(0, dtype=np.int64),
        )  # fmt: skip
        found = self._carried.find(first)
        if found is None:
            raise PrivacyRefused("The block was not counted on this shard, so it cannot vote.")
        return found.part

    # ------------------------------------------------------------ inside

    @contextmanager
    def _whole(self) -> Iterator[None]:
        with self._turn:
            if self._failed:
                raise StorageFailed("The shard is closed, or has failed. Open it again.")
            self._parts.ledger.check()
            yield

    @contextmanager
    def _durable(self) -> Iterator[None]:
        """Make the body one transaction; if it fails, memory may be ahead of the disk."""
        try:
            with self._parts.database.transaction():
                yield
            self._parts.mark()
        except BaseException:
            self._failed = True
            raise

    def _desk_of(self, audience: str) -> AudienceState:
        if audience not in self._audience_states:
            raise InvalidInput("The 'audience' must be one that the shard has budgets for.")
        return self._audience_states[audience]

    def _desk(self, name: str) -> AudienceState:
        parts = self._parts
        audience = parts.ledger.audiences[name]
        desk, _ = open_audience_state(
            parts.database, parts.schema, parts.shard, audience, parts.ledger.version, self._turn
        )
        return desk


def _shard_of(engine: QueryEngine) -> SharedShard:
    assert isinstance(engine.shard, SharedShard)  # noqa: S101 (open_desk made it)
    return engine.shard
