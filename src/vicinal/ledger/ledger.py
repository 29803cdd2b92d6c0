"""The durable ledger: subjects, audiences, budgets, charges and answers in one database.

Order of durability: charges and the answers they pay for become durable in one transaction, and
an answer leaves the process only afterwards. So every answer that left the process has its charge
on disk, and no charge is lost or made twice.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from enum import IntEnum
from itertools import compress
from typing import Self

import numpy as np

from vicinal.arrays import Slots, UInts16, Units
from vicinal.checks import SubjectId
from vicinal.errors import PrivacyRefused, StorageFailed
from vicinal.ledger.answers import (
    N_PRIVATE_QUERIES,
    AnswerBlock,
    StoredRequest,
    encode_array,
    write_components,
)
from vicinal.ledger.audiences import Audience, load_audiences, read_audience, sum_exactly
from vicinal.ledger.database import Chain, Database, attach_chain
from vicinal.ledger.hashed_slots import NOT_ENROLLED, HashedSlotTable
from vicinal.ledger.id_encoding import (
    find_similar_ids,
    fold_and_hash,
    frame_ids,
    keyed_digest,
    keyed_hash,
)
from vicinal.ledger.renewal import RENEWAL, Renewal
from vicinal.ledger.rollback_guard import digest_name
from vicinal.ledger.subject_pages import write_subjects
from vicinal.ledger.tables import FORMAT, Tables
from vicinal.ledger.total import TOTAL, TotalFilter

EVALUATED = -1
"""Value of the column `audience` of the table `departed` that marks a subject that was evaluated,
but never had records in the store. Other rows of the same hash hold its budgets."""

FOLDED_ID = -2
"""Value of the column `audience` of the table `departed` that marks the hash of a folded id
(:func:`~vicinal.ledger.id_encoding.fold_ids`) of an erased or evaluated subject."""

_LOST_AUDIENCES = "closed audiences"
"""Name in the table `meta` of the digests of lost audiences' names: audiences that a newer copy of
the store had."""


class EnrollmentStatus(IntEnum):
    """Status of a subject in a ledger.

    `UNKNOWN`: not in the ledger. `EVALUATED`: charged by evaluations only. `ERASED`: its records
    were erased. `ENROLLED`: it has records. All but unknown subjects have a budget.
    """

    UNKNOWN = 0
    EVALUATED = 1
    ERASED = 2
    ENROLLED = 3


class Ledger:
    """Register of all subjects and accounts of all audiences, stored in a database.

    `database`: an open database that has the ledger's tables. `key`: the store's secret key, of
    the hashes of erased subjects' ids and of the digests of rows.

    Attributes: `clock`, a counter that grows with every block of answers, change and other release,
    and numbers blocks; `version`, the number of changes of the data; `audiences` by name; `total`,
    the account of all audiences together, or None; `slot_table`, the slots of enrolled subjects.

    A *slot* is the index of an enrolled subject in all arrays of units; *unenrolled* subjects are
    new, erased or only evaluated. A keyed hash of an id (`hashed`, `hashes`) is the result of
    :meth:`hash_id`, 32 bytes. The folded form of an id is equal for ids that probably differ in
    spelling only, such as "007" and 7. `audience` is the audience that a method charges or changes.
    Raises StoreDamaged if the rows differ from their digests.
    """

    def __init__(self, database: Database, key: bytes) -> None:
        # Rows are verified before anything is read.
        self._chain = database.chain or attach_chain(database, key)
        self.database = database
        self._key = key
        size = database.get_integer("slots")
        self.slot_table = HashedSlotTable(database, size)
        self.audiences = load_audiences(database, size)
        total = self.audiences.pop(TOTAL, None)
        self.total = None if total is None else TotalFilter(total)
        for audience in self.accounts if total else ():
            audience.account.mark_charged_to_total()
        self._broken = False
        self._change_incomplete = False
        self.clock = database.get_integer("clock")
        self.version = database.get_integer("version")

    @classmethod
    def create(cls, database: Database, key: bytes) -> Self:
        """Create the tables and the chain of an empty database; return its ledger."""
        database.create_tables()
        database.chain = Chain(key)
        with database.transaction():
            database.put("format", str(FORMAT))
        return cls(database, key)

    @property
    def head(self) -> bytes:
        """Head of the hash chain over all commits, 32 bytes: a digest of the whole history."""
        return self._chain.last.head

    @property
    def last_commit(self) -> tuple[int, bytes]:
        """Clock and head (32 bytes) of the last commit, also while a transaction is open."""
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

    def check_usable(self) -> None:
        """Raise StorageFailed if memory and disk may differ. Call it between operations only."""
        if not (self.is_consistent and self.is_between_changes):
            raise StorageFailed(
                "The store failed, so it answers nothing. Open it again: it then reads what "
                "became durable."
            )

    @contextmanager
    def _open_transaction(self) -> Iterator[None]:
        """Return a context that commits all writes of its body together, and charges to the total.

        An exception undoes the transaction and closes the ledger, as memory is ahead of the disk.
        """
        self.check_usable()
        try:
            with self.database.transaction():
                yield
                if self.total is not None:
                    self._charge_total_and_write_accounts()
        except BaseException:
            self._broken = True
            raise

    @contextmanager
    def change(self, kind: str) -> Iterator[None]:
        """Return a context that commits its body as one change of the data, with a new version.

        `kind`: name of the change in the history, such as "add". A :data:`RENEWAL` changes
        budgets only, so the version stays. An exception inside closes the ledger.

        From its commit until :meth:`complete_change`, the ledger refuses everything, because record
        files and memory do not agree with the database yet; opening it again completes the change.
        """
        with self._open_transaction():
            yield
            self.version += kind != RENEWAL
            self.clock += 1
            timestamp = datetime.now(UTC).isoformat("T", "seconds")
            self.database.insert(Tables.HISTORY, [(self.clock, timestamp, kind, self.version)])
            self.database.put("clock", str(self.clock))
            self.database.put("version", str(self.version))
            # If the reader refuses an audience as written, the ledger could not be opened again.
            for row in self.database.read_rows(Tables.AUDIENCES):
                read_audience(row)
            self._change_incomplete = True  # before the commit: no line separates the two

    def complete_change(self) -> None:
        """Accept further operations: record files and memory agree with the last :meth:`change`."""
        self._change_incomplete = False

    @property
    def due_renewals(self) -> list[tuple[Audience, Renewal]]:
        """Audiences with a renewal period that is due by date, and the renewal's state in it.

        Audiences that lost their history of charges get no further period. Public.
        """
        due = []
        for audience in self.audiences.values():
            renewal = audience.due_renewal
            if renewal is not None and renewal != audience.renewal:
                due.append((audience, renewal))
        return due

    def renew(self) -> bool:
        """Begin all due renewal periods in one commit, and return whether there were any."""
        due = self.due_renewals
        if due:
            with self.change(RENEWAL):
                for audience, renewal in due:
                    self.start_period(audience, renewal)
        return bool(due)

    def start_period(self, audience: Audience, renewal: Renewal) -> None:
        """Start a renewal period of an `audience`: set every enrolled or erased subject's units.

        Call it inside a transaction. `renewal`: state of the renewal in the new period. Units that
        a subject does not get, also because of the total, are recorded as charged.
        """
        slots = self.slot_table.taken_slots
        previous_units = audience.units_per_budget
        account = audience.account
        enrolled_units = renewal.compute_remaining(account.remaining[slots], previous_units)
        enrolled_units = self._cut_to_total(audience, slots, enrolled_units)
        rows = self.database.read_rows(Tables.DEPARTED, "audience = ?", (audience.number,))
        erased_before = np.array([units for *_, units in rows], dtype=np.int64)
        erased_units = renewal.compute_remaining(erased_before, previous_units)
        granted_units = sum_exactly(enrolled_units - account.durable[slots])
        granted_units += sum_exactly(erased_units - erased_before)
        audience.checkpointed += (
            audience.n_granted_budgets * (renewal.released_units - previous_units) - granted_units
        )
        audience.plan = renewal.insert_into(audience.plan)
        audience.initial_budget = renewal.max_units
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

    def _charge_total_and_write_accounts(self) -> None:
        """Charge the total for all audiences' uncommitted charges; write all accounts' charges.

        The clock advances by one for each account.
        """
        for audience in self.audiences.values():
            if audience.account.is_charged:
                self.charge_total(audience)
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
        that guarantees (`epsilon`, `delta`).
        """
        self.total = TotalFilter.create(epsilon, delta, budget)
        self.total.audience.write_row(self.database)

    def charge_total(self, audience: Audience) -> None:
        """Charge the total, if there is one, for the units that mechanisms charged to an audience.

        Call it before another audience is charged, so that its remaining units are first reduced
        to those that the total still allows.
        """
        if self.total is not None and audience is not self.total.audience:
            self.total.charge(audience, self.audiences.values())

    def commit(self, blocks: Sequence[AnswerBlock], requests: Sequence[StoredRequest] = ()) -> None:
        """Make charges, answers and idempotency keys durable together.

        `blocks`: new answers; block i gets the number ``clock + 1 + i``, with the clock at the
        call. `requests`: requests with an idempotency key whose answers are in these or earlier
        blocks. Raises StorageFailed or PrivacyRefused. Then nothing may be answered, and the ledger
        must be opened again.
        """
        with self._open_transaction():
            for block in blocks:
                self._write_block(block)
            self.database.insert(Tables.REQUESTS, [request.to_row() for request in requests])
            self.database.put("clock", str(self.clock))

    def _write_analyst(self, audience: Audience, name: str) -> None:
        """Write quota and number of answers of the analyst with this `name`."""
        analyst = audience.analysts[name]
        self.database.replace(
            Tables.ANALYSTS, [(audience.number, name, analyst.quota, analyst.used)]
        )

    @contextmanager
    def release(self, audience: Audience) -> Iterator[None]:
        """Return a context that commits its body as a release to `audience` other than answers.

        The version of the data stays. An exception inside closes the ledger.
        """
        with self._open_transaction():
            yield
            self.write_charges(audience, 0)
            audience.write_row(self.database)
            self.database.put("clock", str(self.clock))

    def open_audience(self, name: str, plan: str, budget: float = 0.0) -> Audience:
        """Add and return an audience, whose subjects have new budgets, inside a :meth:`change`.

        `name`: no existing audience has it. `plan`: its plan as JSON. `budget`: the zCDP of a full
        budget; it is needed only if there is a total.
        """
        number = 1 + max((audience.number for audience in self.audiences.values()), default=0)
        audience = Audience(number, name, plan)
        audience.write_row(self.database)
        if self.total is not None:
            self.total.add_audience(number, budget)
            self.total.audience.write_row(self.database)
        self._assign_initial_budgets(audience, self.slot_table.taken_slots, {})
        audience.checkpoint(self.database)
        self.audiences[name] = audience
        return audience

    def record_lost_audiences(self, name_digests: Iterable[bytes]) -> None:
        """Record the names of audiences that a newer copy of this ledger had, but this one lacks.

        None of them can be opened again, because its budgets may be spent. Call it inside a
        :meth:`change`. `name_digests`: SHA-256 digests of names, as the witness of the store has
        them; those of existing audiences are skipped.
        """
        existing = {digest_name(name) for name in self.audiences}
        lost = (digest.hex() for digest in name_digests if digest not in existing)
        all_lost = {*self._load_lost_audiences(), *lost}
        if all_lost:
            self.database.put(_LOST_AUDIENCES, " ".join(sorted(all_lost)))

    def refuse_lost_audience(self, name: str) -> None:
        """Raise PrivacyRefused if an audience of this name was recorded as lost.

        Its budgets may be spent (:meth:`record_lost_audiences`).
        """
        if digest_name(name).hex() in self._load_lost_audiences():
            raise PrivacyRefused(
                f"There was an audience {name!r}, which this copy of the store does not know. Its "
                "budgets are spent for good. Choose a name for people who share no answers with it."
            )

    def _load_lost_audiences(self) -> list[str]:
        """Return the SHA-256 digests of lost audiences' names, in hexadecimal digits."""
        return (self.database.get(_LOST_AUDIENCES) or "").split()

    def write_charges(self, audience: Audience, n_answers: int) -> None:
        """Write the charges to an audience since the last commit, inside a transaction.

        The total is charged first. `n_answers`: number of answers that the charges pay for.
        """
        self.charge_total(audience)
        self.clock += 1
        audience.write_charges(self.database, self.clock, n_answers)

    def commit_interrupted_charges(self, audiences: Iterable[Audience]) -> None:
        """Make the charges of interrupted blocks of answers durable, although none is released.

        `audiences`: those with an interrupted block. Noise may have been sampled for it and may
        even have caused the interruption, so the subjects stay charged. Clock and head are public
        (receipts contain them), so both advance whether or not any subject was charged. Nothing is
        written if the ledger has failed or is within a change.
        """
        # An interruption can occur after a charge and before the sum of charges is updated, also in
        # the total or in an audience whose units the total limits.
        for account in self.accounts:
            account.account.recount_charges()
        interrupted = list(audiences)
        if self.is_consistent and self.is_between_changes and interrupted:
            with self._open_transaction():
                for audience in interrupted:
                    self.charge_total(audience)
                    self.clock += 1
                    if audience.account.is_charged:
                        audience.write_charges(self.database, self.clock, 0)
                    audience.write_row(self.database)
                self.database.put("clock", str(self.clock))

    def spend_all_budgets(self) -> None:
        """Charge every remaining unit of every subject; new subjects get no budget from now on.

        Call it inside a :meth:`change` of a ledger that lacks charges, such as an old backup.
        """
        for audience in self.accounts:
            audience.account.remaining[:] = 0
            if self.total is not None:
                audience.account.mark_charged_to_total()
            audience.account.recount_charges()
            self.write_charges(audience, 0)
            audience.initial_budget = 0
            rows = self.database.read(
                "SELECT units FROM departed WHERE audience = ?", (audience.number,)
            )
            audience.checkpointed += sum(units for (units,) in rows)
            audience.checkpoint(self.database)
        departed = self.database.read_rows(Tables.DEPARTED, "units > 0")
        self.database.replace(Tables.DEPARTED, [(*row[:2], 0) for row in departed])

    def set_quota(self, audience: Audience, analyst: str, quota: int | None) -> None:
        """Set the number of answers that an analyst, by name, may get, with those already given.

        `quota`: the number; None: as many as the audience may get.
        """
        with self._open_transaction():
            audience.add_analyst(analyst).quota = quota
            self._write_analyst(audience, analyst)

    def write_proxy_shares(self, audience: Audience, shares: UInts16) -> None:
        """Write the used shares of the virtual budgets of public reference points.

        Call it inside a transaction. `shares`, uint16 (points,): by point, rounded up.
        """
        self.database.replace(Tables.SHADOWS, [(audience.number, encode_array(shares))])

    def _write_block(self, block: AnswerBlock) -> None:
        """Write a block of answers, its charges and its counters, inside a transaction."""
        audience = block.audience
        n_answers = len(block.answers)
        audience.used += n_answers
        audience.slack = block.slack
        self.write_charges(audience, n_answers)
        audience.write_row(self.database)
        self.database.insert(Tables.ANSWERS, [block.to_row(self.clock, self.version)])
        if block.proxy_shares is not None:
            self.write_proxy_shares(audience, block.proxy_shares)
        if block.n_private_queries is not None:
            write_components(
                self.database, audience.number, {N_PRIVATE_QUERIES: str(block.n_private_queries)}
            )
        for analyst, n_queries in block.n_queries_by_analyst.items():
            audience.add_analyst(analyst).used += n_queries
            self._write_analyst(audience, analyst)

    @property
    def size(self) -> int:
        """Number of slots, taken or free."""
        return self.slot_table.size

    def list_slots(self, subjects: Iterable[SubjectId]) -> Slots:
        """Return the distinct slots of the enrolled ones of `subjects`, int32, ascending."""
        slots = self.slot_table.find_slots(subjects)
        return np.unique(slots[slots != NOT_ENROLLED])

    def enroll(self, subjects: Sequence[SubjectId]) -> Slots:
        """Enroll those of `subjects` that are not enrolled, and return the slot of each subject.

        Call it inside :meth:`change`. Ids may repeat; the result is int32 (subjects,). A new
        subject gets each audience's initial budget, an erased one the units that it had left.
        """
        distinct = list(dict.fromkeys(subjects))
        slots = self.slot_table.find_slots(distinct)
        is_new = slots == NOT_ENROLLED
        newcomers = [distinct[index] for index in np.flatnonzero(is_new).tolist()]
        framed_ids = frame_ids(newcomers)
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

    def find_similar_unknown_ids(self, subjects: Iterable[SubjectId]) -> list[SubjectId]:
        """Return the unknown ids of `subjects` that probably belong to a known one or each other.

        Their folded form (:func:`~vicinal.ledger.id_encoding.fold_ids`) equals that of an enrolled,
        erased or evaluated subject, or that of another unknown id.
        """
        ids = list(dict.fromkeys(subjects))
        statuses = zip(ids, self.find_statuses(ids), strict=True)
        unknown = [subject for subject, status in statuses if status == EnrollmentStatus.UNKNOWN]
        equals_enrolled = self.slot_table.match_folded(unknown).tolist()
        similar_ids = find_similar_ids(unknown) | set(compress(unknown, equals_enrolled))
        equals_erased = self._find_departed(lambda: fold_and_hash(self._key, unknown))
        similar_ids.update(unknown[index] for index in equals_erased)
        return list(similar_ids)

    def list_enrolled(
        self, subjects: Iterable[SubjectId]
    ) -> tuple[Slots, list[bytes], list[bytes]]:
        """Return the arguments of :meth:`erase_slots` for the enrolled ones of `subjects`."""
        distinct = list(dict.fromkeys(subjects))
        slots = self.slot_table.find_slots(distinct)
        is_enrolled = slots != NOT_ENROLLED
        enrolled = [distinct[index] for index in np.flatnonzero(is_enrolled).tolist()]
        hashes = list(map(self.hash_id, enrolled))
        return slots[is_enrolled], hashes, fold_and_hash(self._key, enrolled)

    def erase(self, subjects: Iterable[SubjectId]) -> None:
        """Erase those of `subjects` that are enrolled, inside :meth:`change`.

        Only a keyed hash of each id remains, with the subject's remaining units for every audience.
        """
        self.erase_slots(*self.list_enrolled(subjects))

    def erase_slots(
        self, slots: Slots, hashes: Sequence[bytes], folded_hashes: Sequence[bytes]
    ) -> None:
        """Erase the enrolled subjects at `slots`, int32 (m,), inside :meth:`change`.

        `hashes`, `folded_hashes`: keyed hash of each subject's id, and of its folded id.
        """
        self.database.replace(Tables.DEPARTED, {(hashed, FOLDED_ID, 0) for hashed in folded_hashes})
        write_subjects(self.database, dict.fromkeys(slots.tolist()))
        self.slot_table.free_slots(slots)
        for audience in self.accounts:
            budgets = audience.account.durable[slots].tolist()
            rows = zip(hashes, [audience.number] * len(slots), budgets, strict=True)
            self.database.insert(Tables.DEPARTED, rows)
            self._assign_units(audience, slots, np.zeros(len(slots), dtype=np.int64))
            audience.checkpoint(self.database)

    def find_status(self, subject: SubjectId) -> EnrollmentStatus:
        """Return whether a subject is enrolled, erased, only evaluated or unknown. Private."""
        return self.find_statuses([subject])[0]

    def find_statuses(self, subjects: Iterable[SubjectId]) -> list[EnrollmentStatus]:
        """Return whether each of `subjects` is enrolled, erased, evaluated or unknown. Private."""
        ids = list(subjects)
        slots = self.slot_table.find_slots(ids)
        statuses = [EnrollmentStatus.ENROLLED] * len(ids)
        unenrolled_indices = np.flatnonzero(slots == NOT_ENROLLED).tolist()
        erased = self._find_erased([ids[index] for index in unenrolled_indices])
        for position, index in enumerate(unenrolled_indices):
            if position not in erased:
                statuses[index] = EnrollmentStatus.UNKNOWN
            elif erased[position][1] == EVALUATED:
                statuses[index] = EnrollmentStatus.EVALUATED
            else:
                statuses[index] = EnrollmentStatus.ERASED
        return statuses

    def _find_erased(self, subjects: Sequence[SubjectId]) -> dict[int, tuple[bytes, int]]:
        """Return the erased or evaluated ones of `subjects`, by index in this sequence.

        The values are pairs: the keyed hash of the id, and the least audience number of its rows in
        the table `departed`, which is -1 (:data:`EVALUATED`) if the subject never had records.
        """
        return self._find_departed(lambda: list(map(self.hash_id, subjects)))

    def _find_departed(
        self, make_hashes: Callable[[], list[bytes]]
    ) -> dict[int, tuple[bytes, int]]:
        """Return those of some keyed hashes that have rows in the table `departed`, by index.

        The values are pairs: the hash, and the least audience number of its rows. `make_hashes`:
        returns the hashes; not called while the table is empty, as hashing is slow.
        """
        if not self.database.read("SELECT hash FROM departed LIMIT 1"):
            return {}
        hashes = make_hashes()
        min_audiences: dict[bytes, int] = {}
        for hashed, audience, _ in self.database.iterate_matches(Tables.DEPARTED, "hash", hashes):
            min_audiences.setdefault(hashed, audience)  # rows are ordered by hash and audience
        return {
            index: (hashed, min_audiences[hashed])
            for index, hashed in enumerate(hashes)
            if hashed in min_audiences
        }

    def load_unenrolled_units(self, audience: Audience, subjects: Sequence[SubjectId]) -> Units:
        """Return the remaining units of unenrolled subjects for an audience, int64 (subjects,).

        Erased and earlier evaluated subjects have the units stored under their hash, new ones the
        initial budget. A total limits the units of all. Private.
        """
        hashes = list(map(self.hash_id, subjects))
        units = self._load_departed_budgets(audience, hashes)
        if self.total is not None:
            total_remaining = self._load_departed_budgets(self.total.audience, hashes)
            allowed = self.total.compute_max_units(audience.number, total_remaining)
            units = np.minimum(units, allowed)
        return units

    def _load_departed_budgets(self, audience: Audience, hashes: Iterable[bytes]) -> Units:
        """Return unenrolled subjects' remaining units for an audience, not limited by the total.

        `hashes`: keyed hashes of their ids; a new one has the initial budget. int64 (hashes,).
        """
        initial = audience.initial_budget
        stored = (self._load_departed_units(hashed, audience) for hashed in hashes)
        return np.array([initial if units is None else units for units in stored], dtype=np.int64)

    def charge_unenrolled(
        self,
        audience: Audience,
        subjects: Sequence[SubjectId],
        units_before: Units,
        units_after: Units,
    ) -> None:
        """Charge unenrolled subjects for an `audience`, inside a :meth:`release` of an evaluation.

        They have no slot, so their remaining units are stored under the keyed hash of the id, like
        those of erased subjects. `subjects`: distinct ids. `units_before`, `units_after`, int64
        (subjects,): remaining units before and after the release; the difference is charged.
        """
        for subject, charged in zip(subjects, units_before - units_after, strict=True):
            hashed = self.hash_id(subject)
            if self.find_status(subject) == EnrollmentStatus.UNKNOWN:
                self.database.insert(Tables.DEPARTED, [(hashed, EVALUATED, 0)])
                folded = fold_and_hash(self._key, [subject])
                rows = [(folded_hash, FOLDED_ID, 0) for folded_hash in folded]
                self.database.replace(Tables.DEPARTED, rows)
            self._charge_hash(audience, hashed, int(charged))
            if self.total is not None:
                price = self.total.price(audience.number, charged)
                self._charge_hash(self.total.audience, hashed, int(price))
        if self.total is not None:
            self.total.audience.write_row(self.database)

    def _charge_hash(self, audience: Audience, hashed: bytes, charged: int) -> None:
        """Subtract `charged` units from an unenrolled subject's budget, which is created if new."""
        remaining = self._load_departed_units(hashed, audience)
        if remaining is None:
            remaining = audience.initial_budget
            self._add_granted_budgets(audience, 1)
        self.database.replace(Tables.DEPARTED, [(hashed, audience.number, remaining - charged)])
        audience.checkpointed += charged

    def _assign_initial_budgets(
        self, audience: Audience, slots: Slots, erased_units: Mapping[int, Mapping[int, int]]
    ) -> None:
        """Set the budgets of newly enrolled subjects at `slots`, (m,), for one audience.

        `erased_units`: stored units by audience number for each subject that was erased or
        evaluated before, by index in `slots`. All other subjects get the initial budget.
        """
        units = np.full(len(slots), audience.initial_budget, dtype=np.int64)
        n_granted = len(slots)
        for index, units_by_audience in erased_units.items():
            if audience.number in units_by_audience:
                units[index] = units_by_audience[audience.number]
                n_granted -= 1
        self._add_granted_budgets(audience, n_granted)
        cut_units = self._cut_to_total(audience, slots, units)
        audience.checkpointed += sum_exactly(units - cut_units)
        self._assign_units(audience, slots, cut_units)

    def _cut_to_total(self, audience: Audience, slots: Slots, units: Units) -> Units:
        """Return the `units` (m,) for subjects at `slots` (m,), cut to those the total allows."""
        if self.total is None or audience is self.total.audience:
            return units
        total_remaining = self.total.audience.account.remaining[slots]
        return np.minimum(units, self.total.compute_max_units(audience.number, total_remaining))

    @staticmethod
    def _add_granted_budgets(audience: Audience, n_budgets: int) -> None:
        """Add `n_budgets` to an audience's number of granted budgets.

        Units of earlier renewal periods, which new subjects do not get, are recorded as charged.
        """
        if audience.initial_budget:
            audience.n_granted_budgets += n_budgets
            missing_units = audience.units_per_budget - audience.initial_budget
            audience.checkpointed += n_budgets * missing_units

    def _assign_units(self, audience: Audience, slots: Slots, units: Units) -> None:
        """Set the remaining `units` (m,) at `slots` (m,) for one audience, without a charge."""
        audience.account.set_units(slots, units, self.size)
        if self.total is not None:
            audience.account.mark_charged_to_total(slots)

    def _load_departed_units(self, hashed: bytes, audience: Audience) -> int | None:
        """Return an unenrolled subject's remaining units for `audience`; None if not stored."""
        query = "SELECT units FROM departed WHERE hash = ? AND audience = ?"
        rows = self.database.read(query, (hashed, audience.number))
        return int(rows[0][0]) if rows else None

    def hash_id(self, subject: SubjectId) -> bytes:
        """Return the keyed hash under which an unenrolled subject is stored, 32 bytes."""
        return keyed_hash(self._key, subject)

    def keyed_digest(self, content: bytes) -> bytes:
        """Return a digest of `content` with the store's key, 32 bytes.

        Without the key, no guess of the content can be tested.
        """
        return keyed_digest(self._key, content)
