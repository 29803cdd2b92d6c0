"""The durable ledger: subjects, audiences, budgets, charges and answers in one database.

Order of durability: charges and the answers they pay for become durable in one transaction, and
an answer leaves the process only afterwards. A crash before the commit leaves neither, a crash
after it leaves both. So every answer that left the process has its charge on disk, and no charge
is lost or made twice.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from enum import IntEnum
from typing import Self

import numpy as np

from vicinal.arrays import Slots, UInts16, Units
from vicinal.checks import SubjectId
from vicinal.errors import PrivacyRefused, StorageFailed
from vicinal.ledger.answers import PUT, AnswerBlock, StoredRequest, text_of, write_parts
from vicinal.ledger.audiences import (
    Analyst,
    Audience,
    StoredAccount,
    exact_sum,
    load_audiences,
    read_audience,
)
from vicinal.ledger.database import Chain, Database, attach_chain
from vicinal.ledger.hashed_slots import NOBODY, HashedSlotTable
from vicinal.ledger.id_encoding import (
    find_similar_ids,
    folded_hashes,
    framed_all,
    keyed_digest,
    keyed_hash,
)
from vicinal.ledger.renewal import RENEWAL, Renewal
from vicinal.ledger.rollback_guard import name_digest
from vicinal.ledger.subject_pages import write_subjects
from vicinal.ledger.tables import FORMAT, Tables
from vicinal.ledger.total import TOTAL, TotalFilter

EVALUATED = -1
"""Replaces the audience number in a row of the table `departed`: the subject of this hash was
evaluated, but never had records in the store. Other rows of the same hash hold its budgets."""

FOLDED_ID = -2
"""Replaces the audience number in a row of the table `departed`: the hash is that of a folded id
(:func:`~vicinal.ledger.id_encoding.fold_ids`) of an erased or evaluated subject, not of an id."""

_BARRED_NAMES = "closed audiences"
"""Name in the table `meta` under which digests of lost audiences' names are stored."""

_HASHES_PER_QUERY = 256
"""Number of hashes that one SQL statement looks up."""


class Standing(IntEnum):
    """How a subject is known to a ledger.

    `UNKNOWN`: not at all. `EVALUATED`: only by evaluations, which charged it. `ERASED`: it had
    records, which were erased. `ENROLLED`: it has records. All but the unknown have a budget.
    """

    UNKNOWN = 0
    EVALUATED = 1
    ERASED = 2
    ENROLLED = 3


class Ledger:
    """Register of all subjects and accounts of all audiences, stored in a database.

    `database`: an open database that has the ledger's tables. `key`: the store's secret key, of
    the hashes of erased subjects' ids and of the digests of rows.

    Raises StoreDamaged if the rows differ from their digests.
    """

    def __init__(self, database: Database, key: bytes) -> None:
        self._chain = database.chain or attach_chain(
            database, key
        )  # verified before anything is read
        self.database = database
        self._key = key
        size = int(database.get("slots") or 0)
        self.slot_table = HashedSlotTable(database, size)
        self.audiences = load_audiences(database, size)
        total = self.audiences.pop(TOTAL, None)
        self.total = None if total is None else TotalFilter(total)
        for audience in self.accounts if total else ():
            audience.account.share()
        self._broken = False
        self._change_incomplete = False
        self.clock = int(database.get("clock") or 0)
        self.version = int(database.get("version") or 0)

    @classmethod
    def create(cls, database: Database, key: bytes) -> Self:
        """Return a new ledger in an empty database: create its tables and start its chain."""
        database.create_tables()
        database.chain = Chain(key)
        with database.transaction():
            database.put("format", str(FORMAT))
        return cls(database, key)

    @property
    def head(self) -> bytes:
        """Digest of the whole history up to the last commit, 32 bytes; see `database.Chain`."""
        return self._chain.last.head

    @property
    def last_commit(self) -> tuple[int, bytes]:
        """Clock and head of the last commit; an open transaction does not change them."""
        return self._chain.last.clock, self._chain.last.head

    @property
    def is_consistent(self) -> bool:
        """Whether this object is known to agree with the committed rows of the database."""
        return not self._broken and not self.database.failed

    @property
    def is_between_changes(self) -> bool:
        """Whether no transaction is open, and record files and memory agree with the last commit.

        False while an operation changes the data, and after an exception interrupted one.
        """
        return not self._change_incomplete and not self.database.in_transaction

    def check(self) -> None:
        """Raise StorageFailed if memory and disk may differ. Call it between operations only."""
        if not (self.is_consistent and self.is_between_changes):
            raise StorageFailed(
                "The store failed, so it answers nothing. Open it again: it then reads what "
                "became durable."
            )

    @contextmanager
    def _open_transaction(self) -> Iterator[None]:
        """Commit all writes of the body together, with the charges to the total.

        An exception undoes the transaction and closes the ledger, as memory is ahead of the disk.
        """
        self.check()
        try:
            with self.database.transaction():
                yield
                if self.total is not None:
                    self._write_total_charges()
        except BaseException:
            self._broken = True
            raise

    @contextmanager
    def change(self, kind: str) -> Iterator[None]:
        """Commit the body as one change of the data, which gets a new version.

        `kind`: name of the change in the history, such as "add". A :data:`RENEWAL` changes
        budgets only, so the version stays. An exception inside closes the ledger.

        From its commit until :meth:`complete_change`, the ledger refuses everything, because record
        files and memory do not agree with the database yet. An exception in between therefore
        leaves a ledger that has to be opened again, which completes the change.
        """
        with self._open_transaction():
            yield
            self.version += kind != RENEWAL
            self._append_history(kind)
            self.database.put("version", str(self.version))
            self._check_readable()
            self._change_incomplete = True  # before the commit: no line separates the two

    def _check_readable(self) -> None:
        """Raise StoreDamaged, before the commit, if an opening would refuse the written audiences.

        A writer that is less strict than the reader could commit a ledger that cannot be opened.
        """
        for row in self.database.rows(Tables.AUDIENCES):
            read_audience(row)

    def complete_change(self) -> None:
        """Accept further operations: record files and memory agree with the last :meth:`change`."""
        self._change_incomplete = False

    def _append_history(self, kind: str) -> None:
        """Append a history row for a change of enrolment or of erased subjects' budgets."""
        self.clock += 1
        timestamp = datetime.now(UTC).isoformat("T", "seconds")
        self.database.insert(Tables.HISTORY, [(self.clock, timestamp, kind, self.version)])
        self.database.put("clock", str(self.clock))

    @property
    def due(self) -> list[tuple[Audience, Renewal]]:
        """Audiences with a new renewal period that :meth:`renew` has not begun yet, and its state.

        Public. Audiences that lost their history of charges get no further period.
        """
        due = []
        for audience in self.audiences.values():
            renewal = audience.due
            if renewal is not None and renewal != audience.renewal:
                due.append((audience, renewal))
        return due

    def renew(self) -> bool:
        """Begin all new renewal periods in one commit, and return whether there were any.

        Each adds its part to the budgets that subjects may spend.
        """
        due = self.due
        if due:
            with self.change(RENEWAL):
                for audience, renewal in due:
                    self.set_period(audience, renewal)
        return bool(due)

    def set_period(self, audience: Audience, renewal: Renewal) -> None:
        """Start a renewal period: set the budget of every enrolled or erased subject.

        Call it inside a transaction. `renewal`: state of the renewal in the new period. Units that
        a subject does not get count as charged, also those that the total does not allow.
        """
        slots = self.slot_table.taken
        released_before = audience.released
        account = audience.account
        enrolled_units = renewal.compute_remaining(account.remaining[slots], released_before)
        if self.total is not None:
            total_remaining = self.total.audience.account.remaining[slots]
            allowed = self.total.most(audience.number, total_remaining)
            enrolled_units = np.minimum(enrolled_units, allowed)
        rows = self.database.rows(Tables.DEPARTED, "audience = ?", (audience.number,))
        erased_before = np.array([units for *_, units in rows], dtype=np.int64)
        erased_units = renewal.compute_remaining(erased_before, released_before)
        granted_units = exact_sum(enrolled_units - account.durable[slots])
        granted_units += exact_sum(erased_units - erased_before)
        audience.checkpointed += (
            audience.granted * (renewal.released - released_before) - granted_units
        )
        audience.plan = renewal.within(audience.plan)
        audience.initial_budget = renewal.most
        self.database.replace(
            Tables.DEPARTED,
            [(*row[:2], units) for row, units in zip(rows, erased_units.tolist(), strict=True)],
        )
        self._assign_units(audience, slots, enrolled_units)
        audience.checkpoint(self.database)

    @property
    def accounts(self) -> list[Audience]:
        """All audiences, preceded by the total over all audiences if there is one."""
        return [*([self.total.audience] if self.total else []), *self.audiences.values()]

    def _write_total_charges(self) -> None:
        """Charge the total for all audiences' charges, and write it and the cuts it caused."""
        for audience in self.audiences.values():
            if audience.account.is_charged:
                self.share_charges(audience)
        for audience in self.accounts:
            # Receipts contain the clock, so it advances by the same number in every case; the set
            # of accounts that were charged is private.
            self.clock += 1
            if audience.account.is_charged:
                audience.write_charges(self.database, self.clock, 0)
        self.database.put("clock", str(self.clock))

    def limit_total(self, epsilon: float, delta: float, budget: float) -> None:
        """Bound each subject's loss to all audiences together by (`epsilon`, `delta`).

        Call it inside a :meth:`change`, before the first audience is opened. `budget`: the zCDP
        budget of `epsilon` and `delta`.
        """
        self.total = TotalFilter.new(epsilon, delta, budget)
        self.total.audience.write(self.database)

    def share_charges(self, audience: Audience) -> None:
        """Charge to the total, if there is one, the units that mechanisms took from an audience.

        Call it before another audience is charged, so that the other audiences' budgets are cut
        first to what the total still allows.
        """
        if self.total is not None and audience is not self.total.audience:
            self.total.charge(audience, self.audiences.values())

    def commit(self, blocks: Sequence[AnswerBlock], requests: Sequence[StoredRequest] = ()) -> None:
        """Make charges, answers and idempotency keys durable together.

        `blocks`: new answers; the block at position i gets the number
         ``clock + 1 + i``, with the value of :attr:`clock` at the call. `requests`: requests
        with an idempotency key whose answers are in these or earlier blocks.

        Raises StorageFailed or PrivacyRefused. Then nothing may be answered, and the ledger must
        be opened again.
        """
        with self._open_transaction():
            for block in blocks:
                self._enter(block)
            self.database.insert(Tables.REQUESTS, [request.to_row() for request in requests])
            self.database.put("clock", str(self.clock))

    def _write_analyst(self, audience: Audience, name: str) -> None:
        """Write an analyst's quota and number of answers."""
        analyst = audience.analysts[name]
        self.database.replace(
            Tables.ANALYSTS, [(audience.number, name, analyst.quota, analyst.used)]
        )

    @contextmanager
    def release(self, audience: Audience) -> Iterator[None]:
        """Commit the charges and writes of the body, without a new version of the data.

        For releases other than answers, such as evaluations. `audience`: the one that the body
        charges. An exception inside closes the ledger.
        """
        with self._open_transaction():
            yield
            self.write_charges(audience, 0)
            audience.write(self.database)
            self.database.put("clock", str(self.clock))

    def open_audience(self, name: str, plan: str, budget: float = 0.0) -> Audience:
        """Return a new audience, for which every subject has a new budget. For a :meth:`change`.

        `plan`: its plan as JSON. `budget`: the zCDP budget of a full account; it is needed only
        if there is a total.
        """
        number = 1 + max((audience.number for audience in self.audiences.values()), default=0)
        audience = Audience(number, name, plan, StoredAccount(np.zeros(0, dtype=np.int64)))
        audience.write(self.database)
        if self.total is not None:
            self.total.admit(number, budget)
            self.total.audience.write(self.database)
        self._assign_initial_budgets(audience, self.slot_table.taken, {})
        audience.checkpoint(self.database)
        self.audiences[name] = audience
        return audience

    def bar_audience_names(self, names: Iterable[bytes]) -> None:
        """Refuse from now on to open lost audiences, inside a :meth:`change`.

        `names`: digests of audience names, see
        :func:`~vicinal.ledger.rollback_guard.name_digest`. Those of existing audiences are skipped.
        """
        existing = {name_digest(name) for name in self.audiences}
        lost = (digest.hex() for digest in names if digest not in existing)
        barred = {*self._load_barred_names(), *lost}
        if barred:
            self.database.put(_BARRED_NAMES, " ".join(sorted(barred)))

    def check_name(self, name: str) -> None:
        """Raise PrivacyRefused for the name of a lost audience, as its budgets may be spent."""
        if name_digest(name).hex() in self._load_barred_names():
            raise PrivacyRefused(
                f"There was an audience {name!r}, which this copy of the store does not know. Its "
                "budgets are spent for good. Choose a name for people who share no answers with it."
            )

    def _load_barred_names(self) -> list[str]:
        """Return the hexadecimal digests of lost audiences' names."""
        return (self.database.get(_BARRED_NAMES) or "").split()

    def write_charges(self, audience: Audience, queries: int) -> None:
        """Write the charges to an account since the last commit, inside a transaction.

        `queries`: number of answers that these charges pay for.
        """
        self.share_charges(audience)
        self.clock += 1
        audience.write_charges(self.database, self.clock, queries)

    def keep_charges(self, audiences: Iterable[Audience]) -> None:
        """Commit the charges of interrupted blocks of answers, which are never released.

        Noise may have been sampled for them and may even have caused the interruption, so the
        subjects stay charged. Clock and chain are in receipts, so both advance whether or not any
        subject was charged.

        `audiences`: those with an interrupted block.
        """
        # An interruption can fall between a charge and its note, also of the total or of an
        # audience that the total cut.
        for account in self.accounts:
            account.account.recount_charges()
        interrupted = list(audiences)
        if self.is_consistent and self.is_between_changes and interrupted:
            with self._open_transaction():
                for audience in interrupted:
                    self.share_charges(audience)
                    self.clock += 1
                    if audience.account.is_charged:
                        audience.write_charges(self.database, self.clock, 0)
                    audience.write(self.database)
                self.database.put("clock", str(self.clock))

    def spend_all_budgets(self) -> None:
        """Charge every remaining unit of every subject, and give newcomers no budget any more.

        Call it inside a :meth:`change` of a ledger that lacks charges, such as an old backup after
        its loss was accepted.
        """
        for audience in self.accounts:
            audience.account.remaining[:] = 0
            if self.total is not None:
                audience.account.share()
            audience.account.recount_charges()
            self.write_charges(audience, 0)
            audience.initial_budget = 0
            rows = self.database.read(
                "SELECT units FROM departed WHERE audience = ?", (audience.number,)
            )
            audience.checkpointed += sum(units for (units,) in rows)
            audience.checkpoint(self.database)
        departed = self.database.rows(Tables.DEPARTED, "units > 0")
        self.database.replace(Tables.DEPARTED, [(*row[:2], 0) for row in departed])

    def allow(self, audience: Audience, analyst: str, quota: int | None) -> None:
        """Set the number of answers that an analyst may get; None limits it by the audience only.

        `analyst`: the analyst's name.
        """
        with self._open_transaction():
            entry = audience.analysts.setdefault(analyst, Analyst(None, 0))
            entry.quota = quota
            self._write_analyst(audience, analyst)

    def write_proxies(self, audience: Audience, shares: UInts16) -> None:
        """Write the virtual budgets of the public reference points, inside a transaction.

        `shares`, uint16 (points,): used share of each point's budget, rounded up; see
        :meth:`~vicinal.engine.proxy_ledger.ProxyLedger.shares`.
        """
        self.database.replace(Tables.SHADOWS, [(audience.number, text_of(shares))])

    def _enter(self, block: AnswerBlock) -> None:
        """Write a block of answers, its charges and its counters, inside a transaction."""
        audience = block.audience
        queries = len(block.answers)
        audience.used += queries
        audience.slack = block.slack
        self.write_charges(audience, queries)
        audience.write(self.database)
        self.database.insert(Tables.ANSWERS, [block.to_row(self.clock, self.version)])
        if block.proxies is not None:
            self.write_proxies(audience, block.proxies)
        if block.n_asked is not None:
            write_parts(self.database, audience.number, {PUT: str(block.n_asked)})
        for analyst, queries in block.queries_of.items():
            audience.analysts.setdefault(analyst, Analyst(None, 0)).used += queries
            self._write_analyst(audience, analyst)

    @property
    def size(self) -> int:
        """Number of slots, taken or free."""
        return self.slot_table.size

    def slots(self, subjects: Iterable[SubjectId]) -> Slots:
        """Return the distinct slots of those of `subjects` that are enrolled, ascending."""
        slots = self.slot_table.find(subjects)
        return np.unique(slots[slots != NOBODY])

    def enroll(self, subjects: Sequence[SubjectId]) -> Slots:
        """Return the slot of every subject after enrolling the new ones, inside :meth:`change`.

        A new subject gets each audience's initial budget. An erased subject that re-enrolls gets
        the units that it had when it was erased.
        """
        distinct = list(dict.fromkeys(subjects))
        slots = self.slot_table.find(distinct)
        is_new = slots == NOBODY
        newcomers = [distinct[index] for index in np.flatnonzero(is_new).tolist()]
        framed_ids = framed_all(newcomers)
        erased_units: dict[int, dict[int, int]] = {}
        for index, (hashed, _) in self._find_erased(newcomers).items():
            query = "SELECT audience, units FROM departed WHERE hash = ?"
            erased_units[index] = dict(self.database.read(query, (hashed,)))
            self.database.delete(Tables.DEPARTED, "hash = ?", (hashed,))
        new_slots = self.slot_table.assign_slots(framed_ids)
        slots[is_new] = new_slots
        write_subjects(self.database, dict(zip(new_slots.tolist(), framed_ids, strict=True)))
        self.database.put("slots", str(self.size))
        for audience in self.accounts:
            self._assign_initial_budgets(audience, new_slots, erased_units)
            audience.write_newcomers(self.database, new_slots)
        if len(distinct) == len(subjects):
            return slots
        slot_of = dict(zip(distinct, slots.tolist(), strict=True))
        return np.fromiter((slot_of[subject] for subject in subjects), np.int32, len(subjects))

    def alike(self, subjects: Iterable[SubjectId]) -> list[SubjectId]:
        """Return the unknown ids that probably belong to a known subject or to each other.

        Their folded form (:func:`~vicinal.ledger.id_encoding.fold_ids`) equals that of an enrolled,
        erased or evaluated subject, or that of another unknown id of `subjects`.
        """
        ids = list(dict.fromkeys(subjects))
        standings = zip(ids, self.standings(ids), strict=True)
        unknown = [subject for subject, standing in standings if standing == Standing.UNKNOWN]
        equals_enrolled = self.slot_table.match_folded(unknown).tolist()
        equals_erased = self._find_hashes(lambda: folded_hashes(self._key, unknown))
        similar_to_known = {
            subject
            for index, subject in enumerate(unknown)
            if equals_enrolled[index] or index in equals_erased
        }
        return list(similar_to_known | find_similar_ids(unknown))

    def leaving(self, subjects: Iterable[SubjectId]) -> tuple[Slots, list[bytes], list[bytes]]:
        """Return the arguments with which :meth:`take_out` erases the enrolled ones of `subjects`.

        Three sequences, one entry per enrolled subject: slots, keyed hashes of ids, and keyed
        hashes of folded ids.
        """
        distinct = list(dict.fromkeys(subjects))
        slots = self.slot_table.find(distinct)
        is_enrolled = slots != NOBODY
        enrolled = [distinct[index] for index in np.flatnonzero(is_enrolled).tolist()]
        hashes = list(map(self.hash, enrolled))
        return slots[is_enrolled], hashes, folded_hashes(self._key, enrolled)

    def remove(self, subjects: Iterable[SubjectId]) -> None:
        """Erase subjects from the register, inside :meth:`change`.

        Only a keyed hash of each id remains, with the subject's remaining units for every audience.
        Subjects that are not enrolled are skipped.
        """
        self.take_out(*self.leaving(subjects))

    def take_out(self, slots: Slots, hashes: Sequence[bytes], folded: Sequence[bytes]) -> None:
        """Erase enrolled subjects, as :meth:`remove`; the arguments are :meth:`leaving`'s result.

        `slots`, `hashes`, `folded`: slot, keyed hash of the id, and keyed hash of the folded id of
        each subject.
        """
        self.database.replace(Tables.DEPARTED, {(hashed, FOLDED_ID, 0) for hashed in folded})
        write_subjects(self.database, dict.fromkeys(slots.tolist()))
        self.slot_table.free_slots(slots)
        for audience in self.accounts:
            budgets = audience.account.durable[slots].tolist()
            rows = zip(hashes, [audience.number] * len(slots), budgets, strict=True)
            self.database.insert(Tables.DEPARTED, rows)
            self._assign_units(audience, slots, np.zeros(len(slots), dtype=np.int64))
            audience.checkpoint(self.database)

    def standing(self, subject: SubjectId) -> Standing:
        """Return how a subject is known to the ledger. Private."""
        return self.standings([subject])[0]

    def standings(self, subjects: Iterable[SubjectId]) -> list[Standing]:
        """Return the :meth:`standing` of each subject, with few statements for many subjects."""
        ids = list(subjects)
        slots = self.slot_table.find(ids)
        standings = [Standing.ENROLLED] * len(ids)
        unenrolled_indices = np.flatnonzero(slots == NOBODY).tolist()
        erased = self._find_erased([ids[index] for index in unenrolled_indices])
        for position, index in enumerate(unenrolled_indices):
            if position not in erased:
                standings[index] = Standing.UNKNOWN
                continue
            _, min_audience = erased[position]
            evaluated_only = min_audience == EVALUATED
            standings[index] = Standing.EVALUATED if evaluated_only else Standing.ERASED
        return standings

    def _find_erased(self, subjects: Sequence[SubjectId]) -> dict[int, tuple[bytes, int]]:
        """Return the erased or evaluated ones of `subjects`, by index.

        The values are the keyed hash of the id and the least audience number of its rows, which is
        :data:`EVALUATED` for a subject that never had records.
        """
        return self._find_hashes(lambda: list(map(self.hash, subjects)))

    def _find_hashes(self, make_hashes: Callable[[], list[bytes]]) -> dict[int, tuple[bytes, int]]:
        """Return the hashes that have rows in the table `departed`, by index.

        The values are the hash and the least audience number of its rows. `make_hashes` is not
        called while the table is empty, as hashing is slow.
        """
        if not self.database.read("SELECT hash FROM departed LIMIT 1"):
            return {}
        hashes = make_hashes()
        min_audiences: dict[bytes, int] = {}
        for start in range(0, len(hashes), _HASHES_PER_QUERY):
            batch = hashes[start : start + _HASHES_PER_QUERY]
            marks = ", ".join("?" * len(batch))
            query = f"SELECT hash, MIN(audience) FROM departed WHERE hash IN ({marks}) "  # noqa: S608
            min_audiences.update(dict(self.database.read(f"{query} GROUP BY hash", batch)))
        return {
            index: (hashed, min_audiences[hashed])
            for index, hashed in enumerate(hashes)
            if hashed in min_audiences
        }

    def visitor_units(self, audience: Audience, subjects: Sequence[SubjectId]) -> Units:
        """Return the remaining units of unenrolled subjects for an audience, int64 (subjects,).

        Erased and earlier evaluated subjects have the units stored under their hash, new ones the
        initial budget. A total limits the units of all. Private.
        """
        hashes = list(map(self.hash, subjects))
        units = self._load_visitor_units(audience, hashes)
        if self.total is not None:
            total_remaining = self._load_visitor_units(self.total.audience, hashes)
            units = np.minimum(units, self.total.most(audience.number, total_remaining))
        return units

    def _load_visitor_units(self, audience: Audience, hashes: Iterable[bytes]) -> Units:
        """Return the units stored under each hash, or the initial budget, int64 (hashes,)."""
        initial = audience.initial_budget
        stored = (self._load_units(hashed, audience) for hashed in hashes)
        return np.array([initial if units is None else units for units in stored], dtype=np.int64)

    def keep_visitors(
        self, audience: Audience, subjects: Sequence[SubjectId], before: Units, after: Units
    ) -> None:
        """Charge unenrolled subjects, inside a :meth:`release` of an evaluation.

        They have no slot, so their remaining units are stored under the keyed hash of the id, like
        those of erased subjects.

        `subjects`: distinct ids. `before`, `after`, int64 (subjects,): units of each before and
        after the release; their difference is charged.
        """
        for subject, charged in zip(subjects, before - after, strict=True):
            hashed = self.hash(subject)
            if self.standing(subject) == Standing.UNKNOWN:
                self.database.insert(Tables.DEPARTED, [(hashed, EVALUATED, 0)])
                folded = folded_hashes(self._key, [subject])
                rows = [(folded_hash, FOLDED_ID, 0) for folded_hash in folded]
                self.database.replace(Tables.DEPARTED, rows)
            self._charge_visitor(audience, hashed, int(charged))
            if self.total is not None:
                price = self.total.price(audience.number, charged)
                self._charge_visitor(self.total.audience, hashed, int(price))
        if self.total is not None:
            self.total.audience.write(self.database)

    def _charge_visitor(self, audience: Audience, hashed: bytes, charged: int) -> None:
        """Subtract `charged` units from the budget under a hash, which may be a new one."""
        remaining = self._load_units(hashed, audience)
        if remaining is None:
            remaining = audience.initial_budget
            self._count_granted(audience, 1)
        self.database.replace(Tables.DEPARTED, [(hashed, audience.number, remaining - charged)])
        audience.checkpointed += charged

    def _assign_initial_budgets(
        self, audience: Audience, slots: Slots, erased_units: Mapping[int, Mapping[int, int]]
    ) -> None:
        """Set the budgets of newly enrolled subjects for one audience.

        `slots`: their slots. `erased_units`: remaining units by audience number of those that were
        erased or evaluated before, by index into `slots`. New subjects get the initial budget.
        """
        units = np.full(len(slots), audience.initial_budget, dtype=np.int64)
        n_granted = len(slots)
        for index, units_by_audience in erased_units.items():
            if audience.number in units_by_audience:
                units[index] = units_by_audience[audience.number]
                n_granted -= 1
        self._count_granted(audience, n_granted)
        if self.total is not None and audience is not self.total.audience:
            total_remaining = self.total.audience.account.remaining[slots]
            cut_units = np.minimum(units, self.total.most(audience.number, total_remaining))
            audience.checkpointed += exact_sum(units - cut_units)
            units = cut_units
        self._assign_units(audience, slots, units)

    @staticmethod
    def _count_granted(audience: Audience, n_budgets: int) -> None:
        """Count initial budgets that were given out.

        Parts of earlier renewal periods that a newcomer does not get count as charged.
        """
        if audience.initial_budget:
            audience.granted += n_budgets
            audience.checkpointed += n_budgets * (audience.released - audience.initial_budget)

    def _assign_units(self, audience: Audience, slots: Slots, units: Units) -> None:
        """Set the remaining units of some slots, which is no charge, also not to the total."""
        audience.account.assign(slots, units, self.size)
        if self.total is not None:
            audience.account.share(slots)

    def _load_units(self, hashed: bytes, audience: Audience) -> int | None:
        """Return the units stored under the keyed hash of an id; None if there are none."""
        query = "SELECT units FROM departed WHERE hash = ? AND audience = ?"
        rows = self.database.read(query, (hashed, audience.number))
        return int(rows[0][0]) if rows else None

    def hash(self, subject: SubjectId) -> bytes:
        """Return the keyed hash under which an erased subject is stored, 32 bytes."""
        return keyed_hash(self._key, subject)

    def keyed_digest(self, content: bytes) -> bytes:
        """Return a keyed digest of `content`, 32 bytes; only the key allows testing a guess."""
        return keyed_digest(self._key, content)
