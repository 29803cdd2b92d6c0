"""From a folder to a store that can answer: lock, check, finish what was begun, load.

The witness changes last: it never agrees with a ledger that has not committed what makes that
right. So whatever breaks a command off leaves one of these states.

=====================  ===========================================================================
the ledger             what an opening makes of it
=====================  ===========================================================================
ahead of the witness   charges and changes that nobody was told of: it goes on from them
has an erasure         the erasure was decided: it is finished
accepted a loss        of just this witness: everything is spent, so it goes on from there
is retired             its budgets are a cluster's: only that cluster opens it, to finish the split
anything else          refused, until the loss is accepted
=====================  ===========================================================================

What is opened to read is not finished, but refused: then nothing is written, to no file.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Self

import numpy as np

from vicinal import checks
from vicinal.engine.shard import Shard
from vicinal.errors import DamagedWitness, PrivacyRefused, StoreDamaged, StoreInUse, StoreOutdated
from vicinal.ledger.audiences import budget_faults
from vicinal.ledger.database import Database, is_descendant
from vicinal.ledger.files import Lock, translate_os_errors
from vicinal.ledger.ledger import Ledger
from vicinal.ledger.rollback_guard import RollbackGuard, WitnessState
from vicinal.ledger.tables import FORMAT
from vicinal.planning.parameter_tables import index_factory
from vicinal.store import erasure
from vicinal.store.folder import KEY, Folder, refuse_links
from vicinal.store.record_files import (
    OTHER_RECORDS,
    RecordFiles,
    check_files,
    note_files,
    record_file_faults,
    slots_match_enrolment,
)
from vicinal.store.store_schema import StoreSchema

LOST = "loss accepted"
"""In the history, and where the ledger keeps the head of the witness that it was accepted for."""

RETIRED = "retired"
"""Where the ledger keeps the cluster that its budgets went to."""


@dataclass(frozen=True, eq=False)
class OpenStore:
    """Everything that an open store holds, and how to let go of it."""

    folder: Folder
    database: Database
    witness: RollbackGuard
    schema: StoreSchema
    ledger: Ledger
    record_files: RecordFiles
    shard: Shard
    resources: ExitStack

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.resources.close()

    def mark(self) -> None:
        """Tell the witness how far the ledger is."""
        self.witness.advance(*self.ledger.last_commit)

    @contextmanager
    def marking(self) -> Iterator[None]:
        """Tell the witness of every commit of the body, before an answer or an error leaves it."""
        try:
            yield
        finally:
            if not self.database.in_transaction:  # else its commit was broken off, and is undone
                self.mark()

    def mark_change(self) -> None:
        """Tell the witness how far the ledger is, and which audiences it has, durably."""
        if self.ledger.is_consistent:  # else memory may hold audiences that were never committed
            self.witness.add_audiences(self.ledger.audiences, self.ledger.clock)
        self.mark()
        self.witness.sync()


def create_store(folder: Folder, schema: StoreSchema) -> OpenStore:
    with ExitStack() as resources:
        database = _locked_database(folder, resources, create=True)
        check_empty(database)
        ledger = Ledger.create(database, folder.key())
        schema.save_arrays(folder.path)
        with database.transaction():
            database.put("identity", folder.identity)
            database.put("schema", schema.spec())
            note_files(database, folder.path)
        record_files = _record_files(folder, schema, resources, create=True)
        witness = _new_witness(folder, database, resources)
        _finish(ledger, record_files, witness)
        return _loaded(folder, witness, schema, ledger, record_files, resources)


def open_folder(
    folder: Folder,
    *,
    accept_loss: bool = False,
    reading: bool = False,
    cluster: str | None = None,
    check: Callable[[Database], object] = lambda _: None,
) -> OpenStore:
    """Return the parts that lie in a known folder.

    First everything is checked, and nothing written: what is refused stays as it was, every byte.

    `reading`: refuse what a command was broken off in, and write nothing; no loss is accepted then.
    `cluster`: whose split may open a store that has retired. `check`: raises what else is wrong
    with the ledger.

    Raises PrivacyRefused if another process has it open; if it is behind its witness and
    `accept_loss` is False. Raises StorageFailed if a file or the database is damaged.
    """
    with ExitStack() as resources:
        database = _locked_database(folder, resources)
        accept_loss = accept_loss and not reading
        with translate_os_errors(folder.witness):
            there = folder.witness.is_file()
        witness = _witness(folder, database, resources, there=there, accept_loss=accept_loss)
        ledger = _checked(folder, database)
        check(database)
        if database.get(RETIRED) not in (None, cluster):
            raise StoreOutdated(
                "The store was split: its budgets now belong to its cluster, which answers. "
                "Delete this folder once the cluster is backed up."
            )
        known = witness is not None and _is_known(database, witness.state, accept_loss=accept_loss)
        schema = StoreSchema.load(database.get("schema") or "", folder.path)
        record_files = _record_files(folder, schema, resources)
        erasing = database.get(erasure.PENDING) is not None
        if not erasing:
            _check_records(database, record_files, longer=True)
        if witness is None or not reading:
            database.recover()
            witness = witness or _new_witness(folder, database, resources, over=there)
            if not known:
                _accept_loss(ledger, record_files, witness)
            _finish(ledger, record_files, witness)
        elif (
            erasing
            or ledger.last_commit != (witness.state.clock, witness.state.head)
            or record_files.reach_beyond(database.number("records"))
        ):
            raise create_interrupted_error()
        return _loaded(folder, witness, schema, ledger, record_files, resources)


def _checked(folder: Folder, database: Database) -> Ledger:
    """Return the ledger, checked with the small files.

    Raises as :func:`open_folder`; InvalidInput if the ledger has another format.
    """
    if list(database.faults()):
        raise StoreDamaged("The ledger's database is damaged. Restore a backup.")
    if database.get("identity") != folder.identity:
        raise StoreDamaged("The ledger's database belongs to another store.")
    checks.file_format("The ledger", database.number("format"), FORMAT)
    check_files(database, folder.path, [KEY])  # first, as digests of rows are made with it
    ledger = Ledger(database, folder.key())
    check_files(database, folder.path)
    free = ledger.slot_table.unused()
    for audience in ledger.accounts:
        if faults := list(budget_faults(database, audience, free)):
            raise StoreDamaged(" ".join([*faults, "Restore a backup."]))
    return ledger


def check_empty(database: Database) -> None:
    if database.tables():
        raise PrivacyRefused(
            "The database for the ledger must be empty. It belongs to another store, or an "
            "interrupted command left it. In that case, drop its tables."
        )


def _check_records(database: Database, record_files: RecordFiles, *, longer: bool = False) -> None:
    faults = record_file_faults(database, record_files, database.number("records"), longer=longer)
    if not faults and not slots_match_enrolment(database, record_files, database.number("records")):
        faults = [OTHER_RECORDS]
    if faults:
        raise StoreDamaged(" ".join([*faults, "Restore a backup."]))


def _locked_database(folder: Folder, resources: ExitStack, *, create: bool = False) -> Database:
    refuse_links(folder.path)
    lock = Lock(folder.path / "lock")
    resources.callback(lock.release)
    database = folder.database(create=create)
    resources.callback(database.close)
    if not database.lock():
        raise StoreInUse(
            "Another process has this ledger open; two could spend the same budgets. Close that "
            "one first."
        )
    return database


def _record_files(
    folder: Folder, schema: StoreSchema, resources: ExitStack, *, create: bool = False
) -> RecordFiles:
    columns = schema.precision.dtype, schema.width, schema.target.row_width
    record_files = RecordFiles(folder.path / "records", *columns, create=create)
    resources.callback(record_files.close)
    return record_files


def _witness(
    folder: Folder, database: Database, resources: ExitStack, *, there: bool, accept_loss: bool
) -> RollbackGuard | None:
    """Return the witness, locked; None if it is lost, and that is accepted."""
    if not there:
        if not accept_loss:
            raise _outdated(f"Its witness {folder.witness} is missing.")
        return None
    try:
        witness = RollbackGuard(
            folder.witness, bytes.fromhex(folder.identity), database.check_committed
        )
    except DamagedWitness:
        if not accept_loss:
            raise
        return None
    resources.callback(witness.close)
    return witness


def _new_witness(
    folder: Folder, database: Database, resources: ExitStack, *, over: bool = False
) -> RollbackGuard:
    identity, check = bytes.fromhex(folder.identity), database.check_committed
    witness = RollbackGuard.create(folder.witness, identity, check, over=over)
    resources.callback(witness.close)
    return witness


def _is_known(database: Database, state: WitnessState, *, accept_loss: bool) -> bool:
    """Tell whether a ledger has been where its witness saw it last, or has accepted that loss.

    Raises StoreOutdated if it has not, unless that is accepted.
    """
    known = (
        is_descendant(database, state.clock, state.head) or database.get(LOST) == state.head.hex()
    )
    if not known and not accept_loss:
        behind = database.number("clock") < state.clock
        way = "more was charged than it knows of" if behind else "its history differs"
        raise _outdated(f"It is an old copy, or a copy that ran elsewhere: {way}.")
    return known


def create_interrupted_error() -> PrivacyRefused:
    return PrivacyRefused(
        "A command was interrupted here, and commands that only read cannot finish it. Repeat that "
        "command, or run vicinal backup, which finishes it too."
    )


def _outdated(reason: str) -> StoreOutdated:
    return StoreOutdated(
        f"The store cannot tell what has been charged. {reason} Bring back what belongs to it, or "
        "accept the loss, which spends every unknown budget for good."
    )


def _finish(ledger: Ledger, record_files: RecordFiles, witness: RollbackGuard) -> None:
    """Finish what a crash has left."""
    database = ledger.database
    witness.begin(*ledger.last_commit)
    erasing = database.get(erasure.PENDING) is not None
    erasure.finish_erasure(database, record_files, witness)
    record_files.cut(database.number("records"))
    if erasing:
        _check_records(database, record_files)
    witness.add_audiences(ledger.audiences, ledger.clock)
    witness.advance(*ledger.last_commit)
    witness.sync()


def _loaded(
    folder: Folder,
    witness: RollbackGuard,
    schema: StoreSchema,
    ledger: Ledger,
    record_files: RecordFiles,
    resources: ExitStack,
) -> OpenStore:
    database, size = ledger.database, ledger.database.number("records")
    index = index_factory(schema.index)
    shard = Shard(schema.kernel_of(None), schema.width, ledger, index)
    shard.resume(
        record_files.features_in_parts(size),
        schema.target.of_rows(record_files.labels.rows(size)),
        record_files.column("slots", size),
    )
    return OpenStore(
        folder, database, witness, schema, ledger, record_files, shard, resources.pop_all()
    )


def _accept_loss(ledger: Ledger, record_files: RecordFiles, witness: RollbackGuard) -> None:
    """Spend what is not known, and decide to erase whom the lost history had erased: one commit.

    The witness agrees with it only afterwards, whose head stands in it: broken off before that, the
    next opening goes on from here.
    """
    database, lost = ledger.database, witness.state
    erasure.finish_erasure(database, record_files, witness)  # there is one at a time
    _check_records(database, record_files, longer=True)
    # All of them: nothing tells which erasures a copy knows that went another way.
    erased = lost.erased
    everybody = ledger.slot_table.entries() if erased else ()
    again = [who for who, _ in everybody if ledger.hash(who) in erased]
    slots, hashes, folded = ledger.leaving(again)
    size = database.number("records")
    slot_of_row = record_files.column("slots", size)
    rows = np.flatnonzero(np.isin(slot_of_row, slots))
    ledger.clock = max(ledger.clock, lost.clock)
    with ledger.change(LOST):
        ledger.spend_all_budgets()
        ledger.bar_audience_names(lost.audiences)
        database.put(LOST, lost.head.hex())
        if again:
            ledger.take_out(slots, hashes, folded)
            erasure.write_erasure(ledger, rows, slot_of_row[rows], size, hashes)
    ledger.complete_change()  # an opening that is broken off here leaves nothing open
