"""From a folder to a store that can answer: lock, check, finish what was begun, load."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from vicinal.errors import PrivacyRefused, StorageFailed
from vicinal.ledger.book import Book
from vicinal.ledger.chain import attach, descends
from vicinal.ledger.database import Database
from vicinal.ledger.lock import Lock
from vicinal.ledger.schema import migrate
from vicinal.ledger.witness import Witness, WitnessState
from vicinal.neighbours import IndexFactory
from vicinal.predictors.shard import Shard
from vicinal.store import erasure
from vicinal.store.columns import Columns
from vicinal.store.folder import Folder
from vicinal.store.frame import Frame
from vicinal.store.indexes import first_index, index_of
from vicinal.store.tiles import faults_of_tiles

LOST = "loss accepted"


@dataclass(frozen=True, eq=False)
class Parts:
    """Everything that an open store holds, and how to let go of it."""

    folder: Folder
    database: Database
    witness: Witness
    frame: Frame
    book: Book
    columns: Columns
    shard: Shard
    resources: ExitStack

    def mark(self) -> None:
        """Tell the witness how far the ledger is; after every commit, before an answer leaves."""
        self.witness.advance(self.book.clock, self.book.head)

    def supersede(self) -> None:
        """Make the folder that this one was restored from an old copy, durably."""
        with self.database.transaction():
            self.database.put("epoch", self.witness.epoch.hex())
        self.mark_change()

    def mark_change(self) -> None:
        """Tell the witness how far the ledger is, and which audiences it has, durably."""
        self.witness.add_audiences(self.book.audiences, self.book.clock)
        self.mark()
        self.witness.sync()


def create_parts(folder: Folder, frame: Frame) -> Parts:
    """Return the parts of a new store without records."""
    with ExitStack() as resources:
        database = _locked_database(folder, resources, create=True)
        if database.has_table("meta"):
            raise PrivacyRefused("The ledger's database belongs to another store already.")
        migrate(database)
        with database.transaction():
            database.put("identity", folder.identity)
            database.put("frame", frame.spec())
        frame.save_arrays(folder.path)
        witness = Witness.create(folder.witness, bytes.fromhex(folder.identity), 0)
        resources.callback(witness.close)
        index = first_index(frame.index)
        return _loaded(folder, database, witness, frame, index, resources)


def open_parts(path: Path, *, accept_loss: bool = False) -> Parts:
    """Return the parts of a store that is there.

    Raises
    ------
    InvalidInput
        If there is no store.
    PrivacyRefused
        If another process has it open, or if it is behind its witness and `accept_loss` is False.
    StorageFailed
        If a file or the database is damaged.
    """
    return open_folder(Folder.read(path), accept_loss=accept_loss)


def open_folder(folder: Folder, *, accept_loss: bool = False) -> Parts:
    """Return the parts that lie in a known folder, see :func:`open_parts`."""
    with ExitStack() as resources:
        database = _locked_database(folder, resources)
        migrate(database)
        if database.get("identity") != folder.identity:
            raise StorageFailed("The ledger's database belongs to another store.")
        attach(database, folder.key())
        clock = int(database.get("clock") or 0)
        witness, lost = _witness(folder, database, clock, accept_loss)
        resources.callback(witness.close)
        frame = Frame.load(database.get("frame") or "", folder.path)
        index = index_of(frame.index, folder.path)
        parts = _loaded(folder, database, witness, frame, index, resources)
        if lost is not None:
            _spend_and_erase_again(parts, lost, clock)
        return parts


def _locked_database(folder: Folder, resources: ExitStack, *, create: bool = False) -> Database:
    lock = Lock(folder.path / "lock")
    resources.callback(lock.release)
    database = folder.database(create=create)
    resources.callback(database.close)
    if not database.lock():
        raise PrivacyRefused(
            "Another process has this ledger open; two could spend the same budgets. Close that "
            "one first."
        )
    database.settle()
    return database


def _witness(
    folder: Folder, database: Database, clock: int, accept_loss: bool
) -> tuple[Witness, WitnessState | None]:
    """Return the witness, and what it says if the store does not go on from there."""
    identity = bytes.fromhex(folder.identity)
    if not folder.witness.is_file():
        _refuse_loss(accept_loss, f"Its witness {folder.witness} is missing.")
        fresh = Witness.create(folder.witness, identity, clock)
        return fresh, fresh.state
    witness = Witness(folder.witness, identity)
    state = witness.state
    if goes_on_from(database, state):
        return witness, None
    if not accept_loss:
        witness.close()
    behind = "more was charged than it knows of" if clock < state.clock else "it went another way"
    _refuse_loss(accept_loss, f"It is an old copy, or a copy that ran elsewhere: {behind}.")
    return witness, state


def goes_on_from(database: Database, state: WitnessState) -> bool:
    """Tell whether a ledger has been where its witness saw it last."""
    clock = int(database.get("clock") or 0)
    if state.head is None:  # a witness from before there were heads
        return clock >= state.clock
    if not database.has_table("chain"):  # a backup from then
        return clock == state.clock
    return descends(database, state.clock, state.head)


def _refuse_loss(accept_loss: bool, reason: str) -> None:
    if not accept_loss:
        raise PrivacyRefused(
            f"The store cannot tell what has been charged. {reason} Bring back what belongs to it; "
            "or accept the loss, which spends every budget that is not known, for good."
        )


def _loaded(
    folder: Folder,
    database: Database,
    witness: Witness,
    frame: Frame,
    index: IndexFactory,
    resources: ExitStack,
) -> Parts:
    """Finish what a crash has left, then read everything into memory."""
    columns = Columns(folder.path / "records", frame.precision.dtype, frame.n_features)
    resources.callback(columns.close)
    erasure.finish(database, columns, witness)
    size = int(database.get("records") or 0)
    columns.cut(size)
    faults = faults_of_tiles(database, columns, size)
    if faults:
        raise StorageFailed(" ".join([*faults, "Restore a backup."]))
    book = Book(database, folder.key())
    shard = Shard(frame.kernel_of(None), frame.n_features, book, index)
    shard.resume(
        columns.features_in_parts(size),
        columns.column("labels", size),
        columns.column("slots", size),
    )
    witness.begin(book.clock, book.head)
    witness.add_audiences(book.audiences, book.clock)
    return Parts(folder, database, witness, frame, book, columns, shard, resources.pop_all())


def _spend_and_erase_again(parts: Parts, lost: WitnessState, clock: int) -> None:
    """Spend what is not known, and erase whom the lost history had erased."""
    book = parts.book
    # A copy that went another way may have left the history at any time before.
    erased = lost.erased_since(clock if clock < lost.clock else -1)
    again = [s for s in book.roll.slot_of if book.hash(s) in erased] if erased else []
    book.clock = max(book.clock, lost.clock)
    with book.change(LOST):
        book.spend_everything()
        book.close_names(lost.audiences)
    if again:
        erasure.decide(book, parts.shard, again)
        erasure.finish(parts.database, parts.columns, parts.witness)
    parts.mark_change()
