"""The durable ledger: subjects, audiences and their budgets, charges and answers in one commit.

Order of durability: charges and the answers they pay for become durable in one transaction, and
only then does an answer leave the process. A crash before the commit leaves neither, one after it
both; no answer that anybody saw is without its charge, and no charge is lost or taken twice.
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
from vicinal.ledger.database import Chain, Database, attach
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
"""In place of an audience's number: whoever has such a row never had records here."""

ALIKE = -2
"""In place of an audience's number, in a row whose hash is that of a folded id which left."""

_CLOSED = "closed audiences"
_AT_ONCE = 256
"""Hashes that are looked up in one statement."""


class Standing(IntEnum):
    """How a ledger knows a subject: not at all, by evaluations only, by records it had, or has."""

    UNKNOWN = 0
    EVALUATED = 1
    ERASED = 2
    ENROLLED = 3


class Ledger:
    """Register of all subjects and accounts of all audiences, on a database.

    `database`: one with its tables. `key`: the secret key of the hashes of those who left.
    """

    def __init__(self, database: Database, key: bytes) -> None:
        self._chain = database.chain or attach(database, key)  # before anything is read
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
        """Return the ledger of an empty database: its tables, and the first link of its chain."""
        database.create_tables()
        database.chain = Chain(key)
        with database.transaction():
            database.put("format", str(FORMAT))
        return cls(database, key)

    @property
    def head(self) -> bytes:
        """What stands for the whole history up to the last commit, 32 bytes; see `chain`."""
        return self._chain.last.head

    @property
    def last_commit(self) -> tuple[int, bytes]:
        """Clock and head of the last commit, whatever has been begun since."""
        return self._chain.last.clock, self._chain.last.head

    @property
    def is_consistent(self) -> bool:
        """Whether this object is known to agree with the committed rows of the database."""
        return not self._broken and not self.database.failed

    @property
    def is_between_changes(self) -> bool:
        """Whether no transaction is open, and record files and memory agree with the last commit.

        False while an operation changes the data, and after an exception broke one off.
        """
        return not self._change_incomplete and not self.database.in_transaction

    def check(self) -> None:
        """Raise StorageFailed if memory and disk may differ; call it between operations only."""
        if not (self.is_consistent and self.is_between_changes):
            raise StorageFailed(
                "The store failed, so it answers nothing. Open it again: it then reads what "
                "became durable."
            )

    @contextmanager
    def _all_or_nothing(self) -> Iterator[None]:
        self.check()
        try:
            with self.database.transaction():
                yield
                if self.total is not None:
                    self._write_shared()
        except BaseException:
            self._broken = True
            raise

    @contextmanager
    def change(self, kind: str) -> Iterator[None]:
        """Make the body one durable change of the data, with a new version.

        Of a :data:`RENEWAL` the data keep theirs. Whatever goes wrong inside, memory may be ahead
        of the disk, so the ledger is closed.

        From its commit until :meth:`complete_change`, the change is incomplete and the ledger
        refuses everything: record files and memory do not agree with the database yet. An exception
        at any line in between therefore leaves a ledger that has to be opened again, which
        completes the change.
        """
        with self._all_or_nothing():
            yield
            self.version += kind != RENEWAL
            self._note(kind)
            self.database.put("version", str(self.version))
            self._check_readable()
            self._change_incomplete = True  # before the commit: no line separates the two

    def _check_readable(self) -> None:
        """Read the audiences and plans that a change has written by the code of an opening.

        A writer that is less strict than the reader would commit what nobody can open again.

        Raises StoreDamaged if an opening would refuse them. The transaction is undone then.
        """
        for row in self.database.rows(Tables.AUDIENCES):
            read_audience(row)

    def complete_change(self) -> None:
        """Accept further operations: record files and memory agree with the last :meth:`change`.

        Does nothing if there is no incomplete change.
        """
        self._change_incomplete = False

    def _note(self, kind: str) -> None:
        """Write into the history what changes who is here, or what those have left who are not."""
        self.clock += 1
        now = datetime.now(UTC).isoformat("T", "seconds")
        self.database.insert(Tables.HISTORY, [(self.clock, now, kind, self.version)])
        self.database.put("clock", str(self.clock))

    @property
    def due(self) -> list[tuple[Audience, Renewal]]:
        """Whose next part has come, and is not released; public.

        A ledger whose loss was accepted gets no part any more.
        """
        return [
            (audience, renewal)
            for audience in self.audiences.values()
            if (renewal := audience.due) is not None and renewal != audience.renewal
        ]

    def renew(self) -> bool:
        """Release in one commit the parts of budgets that have come; tell whether any had."""
        due = self.due
        if due:
            with self.change(RENEWAL):
                for audience, renewal in due:
                    self.set_period(audience, renewal)
        return bool(due)

    def set_period(self, audience: Audience, renewal: Renewal) -> None:
        """Give everybody, here or gone, what a period leaves them, inside a transaction.

        What is not given counts as charged. Nobody gets more than the total allows.
        """
        slots, before, account = self.slot_table.taken, audience.released, audience.account
        left = renewal.left(account.remaining[slots], before)
        if self.total is not None:
            allowed = self.total.audience.account.remaining[slots]
            left = np.minimum(left, self.total.most(audience.number, allowed))
        rows = self.database.rows(Tables.DEPARTED, "audience = ?", (audience.number,))
        gone = np.array([units for *_, units in rows], dtype=np.int64)
        stays = renewal.left(gone, before)
        given = exact_sum(left - account.durable[slots]) + exact_sum(stays - gone)
        audience.checkpointed += audience.granted * (renewal.released - before) - given
        audience.plan, audience.initial_budget = renewal.within(audience.plan), renewal.most
        self.database.replace(
            Tables.DEPARTED,
            [(*row[:2], units) for row, units in zip(rows, stays.tolist(), strict=True)],
        )
        self._assign(audience, slots, left)
        audience.checkpoint(self.database)

    @property
    def accounts(self) -> list[Audience]:
        """All audiences, after the account of all of them together if there is one."""
        return [*([self.total.audience] if self.total else []), *self.audiences.values()]

    def _write_shared(self) -> None:
        """Write what charges to some audiences took from the total, and from others by that."""
        for audience in self.audiences.values():
            if audience.account.is_charged:
                self.share_charges(audience)
        for audience in self.accounts:
            self.clock += 1  # a public number, whoever was charged: receipts tell the clock
            if audience.account.is_charged:
                audience.write_charges(self.database, self.clock, 0)
        self.database.put("clock", str(self.clock))

    def limit_total(self, epsilon: float, delta: float, budget: float) -> None:
        """Let nobody lose more to all audiences together, in a :meth:`change` before any is open.

        `budget` (zCDP) is that of `epsilon` and `delta`.
        """
        self.total = TotalFilter.new(epsilon, delta, budget)
        self.total.audience.write(self.database)

    def share_charges(self, audience: Audience) -> None:
        """Charge to the total, if there is one, what mechanisms took from an audience.

        Before anything else is charged: others then have no more left than the total allows.
        """
        if self.total is not None and audience is not self.total.audience:
            self.total.charge(audience, self.audiences.values())

    def commit(self, blocks: Sequence[AnswerBlock], requests: Sequence[StoredRequest] = ()) -> None:
        """Make charges, answers and idempotency keys durable together.

        The block at position i of `blocks` gets the number ``clock + 1 + i``, with the clock as it
        was before.

        Raises StorageFailed, PrivacyRefused: nothing may be answered then, and the ledger must be
        opened again.
        """
        with self._all_or_nothing():
            for block in blocks:
                self._enter(block)
            self.database.insert(Tables.REQUESTS, [request.row() for request in requests])
            self.database.put("clock", str(self.clock))

    def _write_analyst(self, audience: Audience, name: str) -> None:
        who = audience.analysts[name]
        self.database.replace(Tables.ANALYSTS, [(audience.number, name, who.quota, who.used)])

    @contextmanager
    def release(self, audience: Audience) -> Iterator[None]:
        """Make what the body charges and writes durable at its end, without a new version.

        For releases that are no answers. Whatever goes wrong inside closes the ledger.
        """
        with self._all_or_nothing():
            yield
            self.write_charges(audience, 0)
            audience.write(self.database)
            self.database.put("clock", str(self.clock))

    def open_audience(self, name: str, plan: str, budget: float = 0.0) -> Audience:
        """Give all subjects a new budget for another audience, inside :meth:`change`.

        `budget` (zCDP): what a full one is, where there is a total.
        """
        number = 1 + max((a.number for a in self.audiences.values()), default=0)
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
        """Let no audience with one of these names be opened, but those there are; in a change.

        `names`: digests, see :func:`~vicinal.ledger.rollback_guard.name_digest`.
        """
        here = {name_digest(name) for name in self.audiences}
        closed = {*self._closed_names(), *(digest.hex() for digest in names if digest not in here)}
        if closed:
            self.database.put(_CLOSED, " ".join(sorted(closed)))

    def check_name(self, name: str) -> None:
        """Raise PrivacyRefused for an audience that was lost: its analysts have had its budgets."""
        if name_digest(name).hex() in self._closed_names():
            raise PrivacyRefused(
                f"There was an audience {name!r}, which this copy of the store does not know. Its "
                "budgets are spent for good. Choose a name for people who share no answers with it."
            )

    def _closed_names(self) -> list[str]:
        return (self.database.get(_CLOSED) or "").split()

    def write_charges(self, audience: Audience, queries: int) -> None:
        """Write what was charged to an account since the last commit, inside a transaction."""
        self.share_charges(audience)
        self.clock += 1
        audience.write_charges(self.database, self.clock, queries)

    def keep_charges(self, audiences: Iterable[Audience]) -> None:
        """Make durable, in one commit, what was charged for answers that nobody will see.

        Noise may have been drawn for them, and may have decided that they were broken off: who was
        charged stays charged. Clock and chain, which receipts tell, move whether anybody was.
        """
        for each in self.accounts:  # the total and others too: broken off between charge and note
            each.account.recount()
        asked = list(audiences)
        if self.is_consistent and self.is_between_changes and asked:
            with self._all_or_nothing():
                for audience in asked:
                    self.share_charges(audience)
                    self.clock += 1
                    if audience.account.is_charged:
                        audience.write_charges(self.database, self.clock, 0)
                    audience.write(self.database)
                self.database.put("clock", str(self.clock))

    def spend_all_budgets(self) -> None:
        """Charge all that is left to everybody, inside :meth:`change`; nobody gets any again.

        For a ledger that does not know what was charged: an old backup.
        """
        for audience in self.accounts:
            audience.account.remaining[:] = 0
            if self.total is not None:
                audience.account.share()
            audience.account.recount()
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
        """Set how many answers an analyst may have; None for all that the audience has left."""
        with self._all_or_nothing():
            entry = audience.analysts.setdefault(analyst, Analyst(None, 0))
            entry.quota = quota
            self._write_analyst(audience, analyst)

    def write_proxies(self, audience: Audience, shares: UInts16) -> None:
        """Write how far public points are worn that are charged along, inside a transaction."""
        self.database.replace(Tables.SHADOWS, [(audience.number, text_of(shares))])

    def _enter(self, block: AnswerBlock) -> None:
        audience = block.audience
        queries = len(block.answers)
        audience.used += queries
        audience.slack = block.slack
        self.write_charges(audience, queries)
        audience.write(self.database)
        self.database.insert(Tables.ANSWERS, [block.row(self.clock, self.version)])
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
        """Return the slots of those of `subjects` that are enrolled, each once."""
        slots = self.slot_table.find(subjects)
        return np.unique(slots[slots != NOBODY])

    def enroll(self, subjects: Sequence[SubjectId]) -> Slots:
        """Return the slot of every subject, inside :meth:`change`.

        Newcomers get what each audience gives them, others what they had left when they left.
        """
        distinct = list(dict.fromkeys(subjects))
        slots = self.slot_table.find(distinct)
        new = slots == NOBODY
        newcomers = [distinct[place] for place in np.flatnonzero(new).tolist()]
        ids = framed_all(newcomers)
        budgets: dict[int, dict[int, int]] = {}
        for place, (hashed, _) in self._departed(newcomers).items():
            query = "SELECT audience, units FROM departed WHERE hash = ?"
            budgets[place] = dict(self.database.read(query, (hashed,)))
            self.database.delete(Tables.DEPARTED, "hash = ?", (hashed,))
        slots[new] = new_slots = self.slot_table.take_in(ids)
        write_subjects(self.database, dict(zip(new_slots.tolist(), ids, strict=True)))
        self.database.put("slots", str(self.size))
        for audience in self.accounts:
            self._assign_initial_budgets(audience, new_slots, budgets)
            audience.write_newcomers(self.database, new_slots)
        if len(distinct) == len(subjects):
            return slots
        place_of = dict(zip(distinct, slots.tolist(), strict=True))
        return np.fromiter((place_of[one] for one in subjects), np.int32, len(subjects))

    def alike(self, subjects: Iterable[SubjectId]) -> list[SubjectId]:
        """Return the unknown ones whose ids equal a known one's, or another's, once folded."""
        ids = list(dict.fromkeys(subjects))
        standings = zip(ids, self.standings(ids), strict=True)
        unknown = [one for one, standing in standings if standing == Standing.UNKNOWN]
        here = self.slot_table.alike(unknown).tolist()
        left = self._least_numbers(lambda: folded_hashes(self._key, unknown))
        known = {one for place, one in enumerate(unknown) if here[place] or place in left}
        return list(known | find_similar_ids(unknown))

    def leaving(self, subjects: Iterable[SubjectId]) -> tuple[Slots, list[bytes], list[bytes]]:
        """Return slots and keyed hashes, of ids and :func:`fold_ids` ids, of those enrolled."""
        distinct = list(dict.fromkeys(subjects))
        slots = self.slot_table.find(distinct)
        here = slots != NOBODY
        leaving = [distinct[place] for place in np.flatnonzero(here).tolist()]
        return slots[here], list(map(self.hash, leaving)), folded_hashes(self._key, leaving)

    def remove(self, subjects: Iterable[SubjectId]) -> None:
        """Forget subjects, inside :meth:`change`.

        What stays is a keyed hash of the id, with what was left for every audience.
        """
        self.take_out(*self.leaving(subjects))

    def take_out(self, slots: Slots, hashes: Sequence[bytes], folded: Sequence[bytes]) -> None:
        """Forget subjects that are :meth:`leaving`, as :meth:`remove`."""
        self.database.replace(Tables.DEPARTED, {(one, ALIKE, 0) for one in folded})
        write_subjects(self.database, dict.fromkeys(slots.tolist()))
        self.slot_table.free(slots)
        for audience in self.accounts:
            budgets = audience.account.durable[slots].tolist()
            rows = zip(hashes, [audience.number] * len(slots), budgets, strict=True)
            self.database.insert(Tables.DEPARTED, rows)
            self._assign(audience, slots, np.zeros(len(slots), dtype=np.int64))
            audience.checkpoint(self.database)

    def standing(self, subject: SubjectId) -> Standing:
        """Return how a subject is known here; all but the unknown have a budget. Private."""
        return self.standings([subject])[0]

    def standings(self, subjects: Iterable[SubjectId]) -> list[Standing]:
        """Return :meth:`standing` of many subjects, sooner."""
        ids = list(subjects)
        slots = self.slot_table.find(ids)
        standings = [Standing.ENROLLED] * len(ids)
        others = np.flatnonzero(slots == NOBODY).tolist()
        departed = self._departed([ids[place] for place in others])
        for number, place in enumerate(others):
            _, least = departed.get(number, (b"", None))
            known = Standing.EVALUATED if least == EVALUATED else Standing.ERASED
            standings[place] = Standing.UNKNOWN if least is None else known
        return standings

    def _departed(self, subjects: Sequence[SubjectId]) -> dict[int, tuple[bytes, int]]:
        """Return which of `subjects` left, by place: hash, and the least audience's number."""
        return self._least_numbers(lambda: list(map(self.hash, subjects)))

    def _least_numbers(self, hashed: Callable[[], list[bytes]]) -> dict[int, tuple[bytes, int]]:
        """Return which hashes have rows, by place: the hash, and the least audience's number."""
        # Where nobody left, nobody is hashed.
        if not self.database.read("SELECT hash FROM departed LIMIT 1"):
            return {}
        hashes = hashed()
        least: dict[bytes, int] = {}
        for start in range(0, len(hashes), _AT_ONCE):
            some = hashes[start : start + _AT_ONCE]
            marks = ", ".join("?" * len(some))
            query = f"SELECT hash, MIN(audience) FROM departed WHERE hash IN ({marks}) "  # noqa: S608
            least.update(dict(self.database.read(f"{query} GROUP BY hash", some)))
        return {place: (one, least[one]) for place, one in enumerate(hashes) if one in least}

    def visitor_units(self, audience: Audience, subjects: Sequence[SubjectId]) -> Units:
        """Return what each subject, none of whom is enrolled, has left; newcomers a new budget."""
        hashes = list(map(self.hash, subjects))
        units = self._visitor_units(audience, hashes)
        if self.total is not None:
            left = self._visitor_units(self.total.audience, hashes)
            units = np.minimum(units, self.total.most(audience.number, left))
        return units

    def _visitor_units(self, audience: Audience, hashes: Iterable[bytes]) -> Units:
        units, initial = (
            (self._units_left(one, audience) for one in hashes),
            audience.initial_budget,
        )
        return np.array([initial if left is None else left for left in units], dtype=np.int64)

    def keep_visitors(
        self, audience: Audience, subjects: Sequence[SubjectId], before: Units, after: Units
    ) -> None:
        """Write what visitors have left, inside a release; what they spent counts as charged.

        They have no records here, so it is kept under their keyed hash, as of those who left.
        """
        for subject, charged in zip(subjects, before - after, strict=True):
            hashed = self.hash(subject)
            if self.standing(subject) == Standing.UNKNOWN:
                self.database.insert(Tables.DEPARTED, [(hashed, EVALUATED, 0)])
                alike = folded_hashes(self._key, [subject])
                self.database.replace(Tables.DEPARTED, [(one, ALIKE, 0) for one in alike])
            self._charge_visitor(audience, hashed, int(charged))
            if self.total is not None:
                price = self.total.price(audience.number, charged)
                self._charge_visitor(self.total.audience, hashed, int(price))
        if self.total is not None:
            self.total.audience.write(self.database)

    def _charge_visitor(self, audience: Audience, hashed: bytes, charged: int) -> None:
        left = self._units_left(hashed, audience)
        if left is None:
            left = audience.initial_budget
            self._grant(audience, 1)
        self.database.replace(Tables.DEPARTED, [(hashed, audience.number, left - charged)])
        audience.checkpointed += charged

    def _assign_initial_budgets(
        self, audience: Audience, slots: Slots, departed: Mapping[int, Mapping[int, int]]
    ) -> None:
        """Give newcomers at `slots` what they get; who was here before gets what was left."""
        units = np.full(len(slots), audience.initial_budget, dtype=np.int64)
        granted = len(slots)
        for place, budgets in departed.items():
            if audience.number in budgets:
                units[place] = budgets[audience.number]
                granted -= 1
        self._grant(audience, granted)
        if self.total is not None and audience is not self.total.audience:
            left = self.total.audience.account.remaining[slots]
            most = np.minimum(units, self.total.most(audience.number, left))
            audience.checkpointed += exact_sum(units - most)
            units = most
        self._assign(audience, slots, units)

    @staticmethod
    def _grant(audience: Audience, people: int) -> None:
        """Take note of so many initial budgets; what newcomers have missed counts as charged."""
        if audience.initial_budget:
            audience.granted += people
            audience.checkpointed += people * (audience.released - audience.initial_budget)

    def _assign(self, audience: Audience, slots: Slots, units: Units) -> None:
        audience.account.assign(slots, units, self.size)
        if self.total is not None:
            audience.account.share(slots)

    def _units_left(self, hashed: bytes, audience: Audience) -> int | None:
        query = "SELECT units FROM departed WHERE hash = ? AND audience = ?"
        rows = self.database.read(query, (hashed, audience.number))
        return int(rows[0][0]) if rows else None

    def hash(self, subject: SubjectId) -> bytes:
        """Return the keyed hash that stands for a subject that left."""
        return keyed_hash(self._key, subject)

    def keyed_digest(self, content: bytes) -> bytes:
        """Return 32 bytes that tell content only to whoever has the key, and a guess of it."""
        return keyed_digest(self._key, content)
