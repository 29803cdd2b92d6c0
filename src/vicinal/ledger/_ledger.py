"""The durable ledger: subjects, audiences and their budgets, charges and answers in one commit.

Order of durability: charges and the answers they pay for become durable in one transaction, and
only then does an answer leave the process. A crash before the commit leaves neither, one after it
both; no answer that anybody saw is without its charge, and no charge is lost or taken twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np
import numpy.typing as npt

from vicinal._checks import SubjectId
from vicinal.accounting._budget import UNITS
from vicinal.errors import PrivacyRefused, StorageFailed
from vicinal.ledger._account import StoredAccount, exact_sum
from vicinal.ledger._answer_blocks import AnswerBlock, StoredRequest, text_of
from vicinal.ledger._audiences import Analyst, Audience, load_audiences
from vicinal.ledger._chain import attach, descends
from vicinal.ledger._database import Database
from vicinal.ledger._departed import EVALUATED, SPELLINGS, Standing, join_departed
from vicinal.ledger._enrollment import Enrollment, departed_among, has_departed
from vicinal.ledger._hashed_slots import NOBODY, HashedSlotTable
from vicinal.ledger._id_encoding import (
    earlier_spellings,
    framed_all,
    keyed_digest,
    keyed_hash,
)
from vicinal.ledger._models import PUT, write_parts
from vicinal.ledger._protocols import Slots, Turn
from vicinal.ledger._rollback_guard import name_digest
from vicinal.ledger._subject_pages import pages_after, put_pages, remove_subjects

_CLOSED = "closed audiences"


@dataclass(frozen=True, eq=False, slots=True)
class LeavingSubjects:
    """Subjects that are about to be forgotten: slots, int32, framed ids, keyed hashes. Private."""

    slots: Slots
    ids: list[bytes]
    hashes: list[bytes]


class Ledger:
    """Register of all subjects and accounts of all audiences, on a database.

    `database`: with the present schema. `key`: the secret key of the hashes of those who left.

    `dated`: whether changes are written with the time; not where copies must write the same rows.
    `register_version`: how often, since the opening, it may have changed who is here, or what those
    have left who are not; answers do not count.
    """

    dated = True

    def __init__(self, database: Database, key: bytes) -> None:
        self.database = database
        self._key = key
        self._broken = False
        self._chain = attach(database, key)
        size = int(database.get("slots") or 0)
        self.slot_table = HashedSlotTable(database, size)
        self.audiences = load_audiences(database, size)
        self.clock = int(database.get("clock") or 0)
        self.version = int(database.get("version") or 0)
        self.register_version = 0
        self._other_spellings = database.get(SPELLINGS) == "1"

    # ------------------------------------------------------------ the register

    @property
    def size(self) -> int:
        """Number of slots, taken or free."""
        return self.slot_table.size

    def slots(self, subjects: Iterable[SubjectId]) -> Slots:
        """Return the slots of those of `subjects` that are enrolled, each once."""
        return self.slot_table.present(subjects)

    def enroll(self, subjects: Sequence[SubjectId]) -> Slots:
        """Return the slot of every subject, inside :meth:`change`.

        Newcomers get what each audience gives them, others what they had left when they left.
        """
        return self.admit(self.enrollment_of(subjects))

    def enrollment_of(self, subjects: Sequence[SubjectId], turn: Turn = nullcontext) -> Enrollment:
        """Return what enrolling subjects comes to, and change nothing.

        The database is read inside `turn`, a little at a time. What comes between two such moments
        may change the register; then what is returned is of no use, and is not admitted.
        """
        with turn():
            basis = self.register_version
        distinct = list(dict.fromkeys(subjects))
        slots = self.slot_table.find(distinct, turn)
        new = slots == NOBODY
        newcomers = [distinct[place] for place in np.flatnonzero(new).tolist()]
        ids = framed_all(newcomers)
        assignment = self.slot_table.assignment(ids)
        slots[new] = assignment.slots
        changes = dict(zip(assignment.slots.tolist(), ids, strict=True))
        pages = list(pages_after(self.database, changes, turn))
        if len(distinct) < len(subjects):
            place_of = dict(zip(distinct, slots.tolist(), strict=True))
            slots = np.fromiter((place_of[one] for one in subjects), np.int32, len(subjects))
        returning = self._returning(newcomers, turn)
        return Enrollment(basis, slots, newcomers, returning, assignment, pages)

    def admit(self, enrollment: Enrollment) -> Slots:
        """Enroll subjects, inside :meth:`change`; return the slot of each.

        Raises PrivacyRefused if the register has changed since :meth:`enrollment_of`.
        """
        if enrollment.basis != self.register_version:
            raise PrivacyRefused("The register has changed since the enrollment was made.")
        self.slot_table.become(enrollment.assignment)
        put_pages(self.database, enrollment.pages)
        self.database.put("slots", str(self.size))
        departed = self._returned(enrollment)
        for audience in self.audiences.values():
            newcomers = enrollment.assignment.slots
            _assign_initial_budgets(audience, newcomers, departed, self.size)
            audience.write_newcomers(self.database, newcomers)
        return enrollment.slots

    def leaving(self, subjects: Iterable[SubjectId]) -> LeavingSubjects:
        """Return for :meth:`take_out` those of `subjects` that are enrolled, each once."""
        distinct = list(dict.fromkeys(subjects))
        slots = self.slot_table.find(distinct)
        here = slots != NOBODY
        leaving = [distinct[place] for place in np.flatnonzero(here).tolist()]
        return LeavingSubjects(slots[here], framed_all(leaving), list(map(self.hash, leaving)))

    def remove(self, subjects: Iterable[SubjectId]) -> None:
        """Forget subjects, inside :meth:`change`.

        What stays is a keyed hash of the id, with what was left for every audience.
        """
        self.take_out(self.leaving(subjects))

    def take_out(self, leaving: LeavingSubjects) -> None:
        """Forget subjects that are enrolled, as :meth:`remove`."""
        slots, nothing = leaving.slots, np.zeros(len(leaving.slots), dtype=np.int64)
        remove_subjects(self.database, dict(zip(slots.tolist(), leaving.ids, strict=True)))
        self.slot_table.free(slots)
        for audience in self.audiences.values():
            budgets = audience.account.durable[slots].tolist()
            rows = zip(leaving.hashes, [audience.number] * len(slots), budgets, strict=True)
            self.database.execute_many(
                "INSERT INTO departed (hash, audience, units) VALUES (?, ?, ?)", rows
            )
            audience.account.assign(slots, nothing, self.size)
            audience.checkpoint(self.database)

    def standing(self, subject: SubjectId) -> Standing:
        """Return how a subject is known here; all but the unknown have a budget. Private."""
        here = self.slot_table.slot(subject) != NOBODY
        return Standing.ENROLLED if here else self._standing_without_slot(subject)

    def standings(self, subjects: Iterable[SubjectId], turn: Turn = nullcontext) -> list[Standing]:
        """Return :meth:`standing` of many subjects, sooner; `turn` as in :meth:`enrollment_of`."""
        ids = list(subjects)
        slots = self.slot_table.find(ids, turn)
        others = [ids[place] for place in np.flatnonzero(slots == NOBODY).tolist()]
        without_slot = iter(self._standings_without_slot(others, turn))
        here = (slots != NOBODY).tolist()
        return [Standing.ENROLLED if one else next(without_slot) for one in here]

    def _standings_without_slot(self, subjects: Sequence[SubjectId], turn: Turn) -> list[Standing]:
        if not subjects or not has_departed(self.database, turn):
            return [Standing.UNKNOWN] * len(subjects)
        if self._other_spellings:
            with turn():
                return [self._standing_without_slot(subject) for subject in subjects]
        least = departed_among(self.database, [self.hash(one) for one in subjects], turn)
        standings = [Standing.UNKNOWN] * len(subjects)
        for place, audience in least.items():
            standings[place] = Standing.EVALUATED if audience == EVALUATED else Standing.ERASED
        return standings

    def _standing_without_slot(self, subject: SubjectId) -> Standing:
        query = "SELECT MIN(audience) FROM departed WHERE hash = ?"
        rows = (self.database.execute(query, (hashed,)) for hashed in self._hashes(subject))
        least = [row[0][0] for row in rows if row[0][0] is not None]
        if not least:
            return Standing.UNKNOWN
        return Standing.EVALUATED if max(least) == EVALUATED else Standing.ERASED

    @property
    def head(self) -> bytes:
        """What stands for the whole history up to the last commit, 32 bytes; see `chain`."""
        return self._chain.head

    @property
    def last_commit(self) -> tuple[int, bytes]:
        """Clock and head of the last commit, whatever has been begun since."""
        return self._chain.last.clock, self._chain.head

    def descends(self, clock: int, head: bytes) -> bool:
        """Tell whether this ledger was at this clock with this head once, and went on from it."""
        return descends(self.database, clock, head)

    def hash(self, subject: SubjectId) -> bytes:
        """Return the keyed hash that stands for a subject that left."""
        return keyed_hash(self._key, subject)

    def every_hash(self, subject: SubjectId) -> list[bytes]:
        """Return :meth:`hash`, and those of all spellings that older versions kept apart."""
        return [self.hash(spelling) for spelling in [subject, *earlier_spellings(subject)]]

    def keyed_digest(self, content: bytes) -> bytes:
        """Return 32 bytes that tell content only to whoever has the key, and a guess of it."""
        return keyed_digest(self._key, content)

    # ------------------------------------------------------------ what becomes durable

    @contextmanager
    def change(self, kind: str) -> Iterator[None]:
        """Make the body one durable change of the data, with a new version.

        Whatever goes wrong inside, memory may be ahead of the disk, so the ledger is closed.
        """
        with self._all_or_nothing():
            yield
            self.version += 1
            self.register_version += 1
            self.clock += 1
            self.database.execute(
                "INSERT INTO history (clock, at, what, version) VALUES (?, ?, ?, ?)",
                (self.clock, _now() if self.dated else "", kind, self.version),
            )
            self.database.put("version", str(self.version))
            self.database.put("clock", str(self.clock))

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
            self.database.execute_many(
                "INSERT INTO requests (name, body, seqs, places) VALUES (?, ?, ?, ?)",
                (request.row() for request in requests),
            )
            self.database.put("clock", str(self.clock))

    @contextmanager
    def release(self, audience: Audience) -> Iterator[None]:
        """Make what the body charges and writes durable at its end, without a new version.

        For releases that are no answers. Whatever goes wrong inside closes the ledger.
        """
        with self._all_or_nothing():
            yield
            self.register_version += 1
            self.write_charges(audience, 0)
            audience.write(self.database)
            self.database.put("clock", str(self.clock))

    def open_audience(self, name: str, plan: str) -> Audience:
        """Give all subjects a new budget for another audience, inside :meth:`change`."""
        number = 1 + max((a.number for a in self.audiences.values()), default=0)
        audience = Audience(number, name, plan, StoredAccount(np.zeros(0, dtype=np.int64)))
        audience.write(self.database)
        _assign_initial_budgets(audience, self.slot_table.taken, {}, self.size)
        audience.checkpoint(self.database)
        self.audiences[name] = audience
        return audience

    def bar_audience_names(self, names: Iterable[bytes]) -> None:
        """Let no audience with one of these names be opened, but those there are; in a change.

        `names`: digests, see :func:`~vicinal.ledger._rollback_guard.name_digest`.
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
        self.clock += 1
        charges = audience.account.charges()
        audience.account.mark_committed(charges)
        slots, units = charges.slots.astype("<i4").tobytes(), charges.units.astype("<i8").tobytes()
        if audience.pages_take_less(len(slots) + len(units)):
            audience.checkpoint(self.database, charges.spent, queries)
            return
        self.database.execute(
            "INSERT INTO charges (seq, audience, queries, spent, slots, units) "
            "VALUES (?, ?, ?, ?, ?, ?)",
            (self.clock, audience.number, queries, str(charges.spent), slots, units),
        )
        audience.logged_bytes += len(slots) + len(units)
        if audience.needs_checkpoint:
            audience.checkpoint(self.database)

    def keep_charges(self, audience: Audience, slack: float) -> None:
        """Make durable what was charged for answers that nobody will see.

        Noise may have been drawn for them, and may have decided that they were broken off: who was
        charged stays charged. `slack` is what the grid has cost so far.
        """
        if self.is_consistent and audience.account.recount():
            with self._all_or_nothing():
                audience.slack = slack
                self.write_charges(audience, 0)
                audience.write(self.database)
                self.database.put("clock", str(self.clock))

    def spend_all_budgets(self) -> None:
        """Charge all that is left to everybody, inside :meth:`change`; nobody gets any again.

        For a ledger that does not know what was charged: an old backup.
        """
        for audience in self.audiences.values():
            account = audience.account
            remaining = account.remaining.copy()
            account.remaining[:] = 0
            account.note_charged_total(exact_sum(remaining))
            self.write_charges(audience, 0)
            audience.initial_budget = 0
            rows = self.database.execute(
                "SELECT units FROM departed WHERE audience = ?", (audience.number,)
            )
            audience.checkpointed += sum(units for (units,) in rows)
            audience.checkpoint(self.database)
        self.database.execute("UPDATE departed SET units = 0")

    def allow(self, audience: Audience, analyst: str, quota: int | None) -> None:
        """Set how many answers an analyst may have; None for all that the audience has left."""
        with self._all_or_nothing():
            entry = audience.analysts.setdefault(analyst, Analyst(None, 0))
            entry.quota = quota
            _write_analyst(self.database, audience, analyst)

    @property
    def is_consistent(self) -> bool:
        """Whether memory and disk are known to agree."""
        return not self._broken and not self.database.failed

    def check(self) -> None:
        """Raise StorageFailed if memory and disk may differ."""
        if not self.is_consistent:
            raise StorageFailed(
                "The store met with a failure, so it answers nothing. Open it again: what was "
                "durable counts."
            )

    def write_proxies(self, audience: Audience, shares: npt.NDArray[np.uint16]) -> None:
        """Write how far public points are worn that are charged along, inside a transaction."""
        self.database.execute(
            "INSERT INTO shadows (audience, shares) VALUES (?, ?) "
            "ON CONFLICT (audience) DO UPDATE SET shares = excluded.shares",
            (audience.number, text_of(shares)),
        )

    def _enter(self, block: AnswerBlock) -> None:
        audience = block.audience
        queries = len(block.answers)
        audience.used += queries
        audience.slack = block.slack
        self.write_charges(audience, queries)
        audience.write(self.database)
        self.database.execute(
            "INSERT INTO answers (seq, audience, version, digests, answers) VALUES (?, ?, ?, ?, ?)",
            block.row(self.clock, self.version),
        )
        if block.reuse_entry is not None:
            self.database.execute(
                "INSERT INTO lessons (seq, audience, asked, queries) VALUES (?, ?, ?, ?)",
                block.reuse_entry.row(self.clock, audience.number),
            )
        if block.proxies is not None:
            self.write_proxies(audience, block.proxies)
        if block.n_asked is not None:
            write_parts(self.database, audience.number, {PUT: str(block.n_asked)})
        for analyst, queries in block.queries_of.items():
            audience.analysts.setdefault(analyst, Analyst(None, 0)).used += queries
            _write_analyst(self.database, audience, analyst)

    @contextmanager
    def _all_or_nothing(self) -> Iterator[None]:
        self.check()
        try:
            with self.database.transaction():
                yield
        except BaseException:
            self._broken = True
            raise

    def _returning(self, newcomers: Sequence[SubjectId], turn: Turn) -> dict[int, bytes]:
        """Return the hashes of those who were here before, or may have been, by place."""
        if not newcomers or not has_departed(self.database, turn):
            return {}
        hashes = [self.hash(subject) for subject in newcomers]
        if self._other_spellings:
            return dict(enumerate(hashes))
        return {place: hashes[place] for place in departed_among(self.database, hashes, turn)}

    def _returned(self, enrollment: Enrollment) -> dict[int, dict[int, int]]:
        """Return the units of those who were here before: {place: {audience: units}}."""
        units_of: dict[int, dict[int, int]] = {}
        for place, hashed in enrollment.returning.items():
            if self._other_spellings:
                spellings = self._hashes(enrollment.newcomers[place])
                join_departed(self.database, self.audiences.values(), spellings)
            query = "SELECT audience, units FROM departed WHERE hash = ?"
            if rows := self.database.execute(query, (hashed,)):
                units_of[place] = dict(rows)
                self.database.execute("DELETE FROM departed WHERE hash = ?", (hashed,))
        return units_of

    def _hashes(self, subject: SubjectId) -> list[bytes]:
        return self.every_hash(subject) if self._other_spellings else [self.hash(subject)]


def _now() -> str:
    return datetime.now(UTC).isoformat("T", "seconds")


def _assign_initial_budgets(
    audience: Audience, slots: Slots, departed: Mapping[int, Mapping[int, int]], size: int
) -> None:
    """Give newcomers at `slots` what they get; who was here before gets what was left."""
    units = np.full(len(slots), audience.initial_budget, dtype=np.int64)
    granted = len(slots) if audience.initial_budget == UNITS else 0
    for place, budgets in departed.items():
        if audience.number in budgets:
            units[place] = budgets[audience.number]
            granted -= audience.initial_budget == UNITS
    audience.granted += granted
    audience.account.assign(slots, units, size)


def _write_analyst(database: Database, audience: Audience, name: str) -> None:
    analyst = audience.analysts[name]
    database.execute(
        "INSERT INTO analysts (audience, name, quota, used) VALUES (?, ?, ?, ?) "
        "ON CONFLICT (audience, name) DO UPDATE SET quota = excluded.quota, used = excluded.used",
        (audience.number, name, analyst.quota, analyst.used),
    )
