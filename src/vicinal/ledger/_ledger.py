"""The durable ledger: subjects, audiences and their budgets, charges and answers in one commit.

Order of durability: charges and the answers they pay for become durable in one transaction, and
only then does an answer leave the process. A crash before the commit leaves neither, one after it
both; no answer that anybody saw is without its charge, and no charge is lost or taken twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Self

import numpy as np

from vicinal._arrays import UInts16
from vicinal.errors import PrivacyRefused, StorageFailed
from vicinal.ledger._answers import PUT, AnswerBlock, StoredRequest, text_of, write_parts
from vicinal.ledger._audiences import Analyst, Audience, StoredAccount, exact_sum
from vicinal.ledger._chain import Chain, attach, descends
from vicinal.ledger._database import Database
from vicinal.ledger._register import SubjectRegister, assign_initial_budgets
from vicinal.ledger._rollback_guard import name_digest
from vicinal.ledger._tables import (
    ANALYSTS,
    ANSWERS,
    CHARGES,
    DEPARTED,
    FORMAT,
    HISTORY,
    LESSONS,
    REQUESTS,
    SHADOWS,
    TABLES,
)

_CLOSED = "closed audiences"


class Ledger(SubjectRegister):
    """Register of all subjects and accounts of all audiences, on a database.

    `database`: one with its tables. `key`: the secret key of the hashes of those who left.
    """

    def __init__(self, database: Database, key: bytes) -> None:
        self._chain = database.chain or attach(database, key)  # before anything is read
        super().__init__(database, key)
        self._broken = False
        self.clock = int(database.get("clock") or 0)
        self.version = int(database.get("version") or 0)

    @classmethod
    def create(cls, database: Database, key: bytes) -> Self:
        """Return the ledger of an empty database: its tables, and the first link of its chain."""
        create_tables(database)
        database.chain = Chain(key)
        with database.transaction():
            database.put("format", str(FORMAT))
        return cls(database, key)

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
            self.database.insert(HISTORY, [(self.clock, _now(), kind, self.version)])
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
            self.database.insert(REQUESTS, [request.row() for request in requests])
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
        assign_initial_budgets(audience, self.slot_table.taken, {}, self.size)
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
        row = (self.clock, audience.number, queries, str(charges.spent), slots, units)
        self.database.insert(CHARGES, [row])
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
            rows = self.database.read(
                "SELECT units FROM departed WHERE audience = ?", (audience.number,)
            )
            audience.checkpointed += sum(units for (units,) in rows)
            audience.checkpoint(self.database)
        departed = self.database.rows(DEPARTED)
        self.database.replace_known(DEPARTED, departed, [(*row[:2], 0) for row in departed])

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

    def write_proxies(self, audience: Audience, shares: UInts16) -> None:
        """Write how far public points are worn that are charged along, inside a transaction."""
        self.database.replace(SHADOWS, [(audience.number, text_of(shares))])

    def _enter(self, block: AnswerBlock) -> None:
        audience = block.audience
        queries = len(block.answers)
        audience.used += queries
        audience.slack = block.slack
        self.write_charges(audience, queries)
        audience.write(self.database)
        self.database.insert(ANSWERS, [block.row(self.clock, self.version)])
        if block.reuse_entry is not None:
            self.database.insert(LESSONS, [block.reuse_entry.row(self.clock, audience.number)])
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


def create_tables(database: Database) -> None:
    """Create all tables, empty, in one transaction."""
    with database.transaction():
        for table in TABLES:
            database.create(table)


def _now() -> str:
    return datetime.now(UTC).isoformat("T", "seconds")


def _write_analyst(database: Database, audience: Audience, name: str) -> None:
    analyst = audience.analysts[name]
    database.replace(ANALYSTS, [(audience.number, name, analyst.quota, analyst.used)])
