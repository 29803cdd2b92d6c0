"""From a folder to a store that can answer: lock, check, finish what was begun, load."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from vicinal import _checks
from vicinal.engine import Shard
from vicinal.errors import DamagedWitness, PrivacyRefused, StoreDamaged, StoreInUse, StoreOutdated
from vicinal.ledger import (
    FORMAT,
    NO_HEAD,
    Database,
    Ledger,
    Lock,
    RollbackGuard,
    WitnessState,
    budget_faults,
    descends,
)
from vicinal.neighbours import IndexFactory
from vicinal.planning import first_index
from vicinal.store import _erasure
from vicinal.store._folder import KEY, Folder, refuse_links
from vicinal.store._record_files import RecordFiles, check_files, note_files, record_file_faults
from vicinal.store._store_schema import StoreSchema, index_of

LOST = "loss accepted"


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
            self.mark()

    def supersede(self) -> None:
        """Make the folder that this one was restored from an old copy, durably."""
        with self.database.transaction():
            self.database.put("epoch", self.witness.state.epoch.hex())
        self.mark_change()

    def mark_change(self) -> None:
        """Tell the witness how far the ledger is, and which audiences it has, durably."""
        self.witness.add_audiences(self.ledger.audiences, self.ledger.clock)
        self.mark()
        self.witness.sync()


def create_store(folder: Folder, schema: StoreSchema) -> OpenStore:
    """Return the parts of a new store without records."""
    with ExitStack() as resources:
        database = _locked_database(folder, resources, create=True)
        if database.tables():
            raise PrivacyRefused("The ledger's database belongs to another store already.")
        ledger = Ledger.create(database, folder.key())
        schema.save_arrays(folder.path)
        with database.transaction():
            database.put("identity", folder.identity)
            database.put("schema", schema.spec())
            note_files(database, folder.path)
        witness = _new_witness(folder, resources, ledger)
        record_files = RecordFiles(
            folder.path / "records", schema.precision.dtype, schema.n_features,
            schema.target.row_width,
        )  # fmt: skip
        resources.callback(record_files.close)
        index = first_index(schema.index)
        return _loaded(folder, witness, schema, ledger, record_files, index, resources)


def open_store(path: Path, *, accept_loss: bool = False) -> OpenStore:
    """Return the parts of a store that is there.

    Raises InvalidInput if there is no store. Raises PrivacyRefused if another process has it open;
    if it is behind its witness and `accept_loss` is False. Raises StorageFailed if a file or the
    database is damaged.
    """
    return open_folder(Folder.read(path), accept_loss=accept_loss)


def open_folder(folder: Folder, *, accept_loss: bool = False) -> OpenStore:
    """Return the parts that lie in a known folder, see :func:`open_store`.

    First everything is checked, and nothing written: what is refused stays as it was, every byte.
    """
    with ExitStack() as resources:
        database = _locked_database(folder, resources)
        witness = _witness(folder, resources, accept_loss=accept_loss)
        ledger, lost = _checked(folder, database, witness, accept_loss=accept_loss)
        clock = database.number("clock")
        schema = StoreSchema.load(database.get("schema") or "", folder.path)
        record_files = RecordFiles(
            folder.path / "records", schema.precision.dtype, schema.n_features,
            schema.target.row_width, create=False,
        )  # fmt: skip
        resources.callback(record_files.close)
        if database.get(_erasure.PENDING) is None:
            _check_records(database, record_files, longer=True)
        index = index_of(schema.index, folder.path)
        database.recover()
        if witness is None:
            witness = _new_witness(folder, resources, ledger)
        parts = _loaded(folder, witness, schema, ledger, record_files, index, resources)
        if lost is not None:
            _spend_and_erase_again(parts, lost, clock)
        return parts


def _checked(
    folder: Folder, database: Database, witness: RollbackGuard | None, *, accept_loss: bool
) -> tuple[Ledger, WitnessState | None]:
    """Return the ledger, checked with its history and the small files.

    Beside it what the witness says, if the ledger does not go on from there and that is accepted.
    Raises as :func:`open_folder`; InvalidInput if the ledger has another format.
    """
    if list(database.faults()):
        raise StoreDamaged("The ledger's database is damaged. Restore a backup.")
    if database.get("identity") != folder.identity:
        raise StoreDamaged("The ledger's database belongs to another store.")
    _checks.file_format("The ledger", database.number("format"), FORMAT)
    check_files(database, folder.path, [KEY])  # first, as digests of rows are made with it
    ledger = Ledger(database, folder.key())
    check_files(database, folder.path)
    free = ledger.slot_table.unused()
    for audience in ledger.accounts:
        if faults := list(budget_faults(database, audience, free)):
            raise StoreDamaged(" ".join([*faults, "Restore a backup."]))
    if witness is None:
        return ledger, WitnessState(b"", b"", database.number("clock"), NO_HEAD)
    return ledger, _check_history(database, witness.state, accept_loss=accept_loss)


def _check_records(database: Database, record_files: RecordFiles, *, longer: bool = False) -> None:
    faults = record_file_faults(database, record_files, database.number("records"), longer=longer)
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


def _witness(folder: Folder, resources: ExitStack, *, accept_loss: bool) -> RollbackGuard | None:
    """Return the witness, locked; None if it is lost, and that is accepted."""
    if not folder.witness.is_file():
        _refuse_loss(accept_loss, f"Its witness {folder.witness} is missing.")
        return None
    try:
        witness = RollbackGuard(folder.witness, bytes.fromhex(folder.identity))
    except DamagedWitness:
        if not accept_loss:
            raise
        return None
    resources.callback(witness.close)
    return witness


def _new_witness(folder: Folder, resources: ExitStack, ledger: Ledger) -> RollbackGuard:
    identity = bytes.fromhex(folder.identity)
    witness = RollbackGuard.create(folder.witness, identity, ledger.clock, ledger.head)
    resources.callback(witness.close)
    return witness


def _check_history(
    database: Database, state: WitnessState, *, accept_loss: bool
) -> WitnessState | None:
    """Return the witness's state if the ledger does not go on from there, and that is accepted."""
    if goes_on_from(database, state):
        return None
    behind = database.number("clock") < state.clock
    way = "more was charged than it knows of" if behind else "it went another way"
    _refuse_loss(accept_loss, f"It is an old copy, or a copy that ran elsewhere: {way}.")
    return state


def goes_on_from(database: Database, state: WitnessState) -> bool:
    """Tell whether a ledger has been where its witness saw it last."""
    return descends(database, state.clock, state.head)


def _refuse_loss(accept_loss: bool, reason: str) -> None:
    if not accept_loss:
        raise StoreOutdated(
            f"The store cannot tell what has been charged. {reason} Bring back what belongs to it; "
            "or accept the loss, which spends every budget that is not known, for good."
        )


def _loaded(
    folder: Folder,
    witness: RollbackGuard,
    schema: StoreSchema,
    ledger: Ledger,
    record_files: RecordFiles,
    index: IndexFactory,
    resources: ExitStack,
) -> OpenStore:
    """Finish what a crash has left, then read everything into memory."""
    database = ledger.database
    witness.begin(max(ledger.clock, witness.state.clock), ledger.head)
    unfinished = database.get(_erasure.PENDING) is not None
    _erasure.finish(database, record_files, witness)
    size = database.number("records")
    record_files.cut(size)
    if unfinished:
        _check_records(database, record_files)
    shard = Shard(schema.kernel_of(None), schema.n_features, ledger, index)
    shard.resume(
        record_files.features_in_parts(size),
        schema.target.of_rows(record_files.labels.rows(size)),
        record_files.column("slots", size),
    )
    witness.add_audiences(ledger.audiences, ledger.clock)
    witness.advance(max(ledger.clock, witness.state.clock), ledger.head)
    witness.sync()
    return OpenStore(
        folder, database, witness, schema, ledger, record_files, shard, resources.pop_all()
    )


def _spend_and_erase_again(parts: OpenStore, lost: WitnessState, clock: int) -> None:
    """Spend what is not known, and erase whom the lost history had erased."""
    ledger = parts.ledger
    # A copy that went another way may have left the history at any time before.
    erased = lost.erased_since(clock if clock < lost.clock else -1)
    everybody = ledger.slot_table.entries() if erased else ()
    again = [who for who, _ in everybody if ledger.hash(who) in erased]
    ledger.clock = max(ledger.clock, lost.clock)
    with ledger.change(LOST):
        ledger.spend_all_budgets()
        ledger.bar_audience_names(lost.audiences)
    if again:
        _erasure.decide(ledger, parts.shard, again)
        _erasure.finish(parts.database, parts.record_files, parts.witness)
    parts.mark_change()
