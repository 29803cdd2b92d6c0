"""Backups: everything as it is at one moment, and back again without refilling a budget."""

from contextlib import closing, suppress
from pathlib import Path

from vicinal.errors import DamagedWitness, InvalidInput, PrivacyRefused
from vicinal.ledger.database import Database, is_descendant
from vicinal.ledger.files import sync_folder, translate_os_errors
from vicinal.ledger.ledger import Ledger
from vicinal.ledger.postgres import choose_server
from vicinal.ledger.rollback_guard import RollbackGuard, check_witness_place
from vicinal.ledger.sqlite import SQLiteDatabase
from vicinal.ledger.tables import TABLES
from vicinal.mechanisms.noise_sources import fresh_key
from vicinal.store import folder as folders
from vicinal.store.opening import OpenStore, check_empty
from vicinal.store.record_files import RECORD_NAMES

_PUBLIC = ("public.npy", "map.npz")


def pack(parts: OpenStore, path: Path) -> None:
    """Write a backup into a new folder; the ledger as SQLite.

    Raises InvalidInput if there is something in that place already.
    """
    _make(path)
    _copy_files(parts.folder.path, path)
    with closing(SQLiteDatabase(path / folders.LEDGER, create=True)) as copy:
        copy.create_tables()
        copy_tables(parts.database, copy)
    # Last, so that a half-written folder is none.
    folders.write_config(path, parts.folder.identity, folders.SQLITE, "", backup=True)


def unpack(
    backup: Path, path: Path, ledger: str | None, witness: Path | None, *, accept_loss: bool
) -> folders.Folder:
    """Return a folder that a backup was copied to; nothing there says yet what it is.

    Raises InvalidInput if `backup` is none, or there is something at `path` already. Raises
    PrivacyRefused without `accept_loss`, if the backup is not known to be the store's last state.
    """
    config = folders.read_config(backup)
    folders.refuse_links(backup)
    if ledger not in (None, folders.SQLITE):
        choose_server(ledger)
    if not config["backup"]:
        raise InvalidInput(f"{backup} is a store, not a backup. Make one with: vicinal backup")
    folders.check_new(path)
    place = folders.witness_place(path, witness)
    if not accept_loss:
        _check_last(backup, config["id"], place)
    check_witness_place(place)
    if accept_loss and place.is_file():
        with suppress(DamagedWitness):  # refused while the store that the backup is of is open
            RollbackGuard(place, bytes.fromhex(config["id"])).close()
    _make(path)
    _copy_files(backup, path)
    folders.copy_file(backup / folders.LEDGER, path / folders.LEDGER)
    folder = folders.Folder(path, config["id"], ledger or folders.SQLITE, place)
    if folder.ledger != folders.SQLITE:
        _move_ledger(folder)
    with closing(folder.database(create=True)) as database:
        # A commit of its own: once the witness knows it, what it was restored from is an old copy.
        Ledger(database, folder.key())
        database.put("restored", fresh_key(16).hex())
    return folder


def copy_tables(source: Database, target: Database) -> None:
    """Copy all rows of all tables into empty tables, in one transaction.

    With the chain's links, so nothing is digested: the target must have no chain attached.
    """
    with target.transaction():
        for table in TABLES:
            target.insert(table, source.rows(table))


def _check_last(backup: Path, identity: str, witness: Path) -> None:
    """Refuse a backup that is older than the last thing its witness saw."""
    if not witness.is_file():
        raise PrivacyRefused(
            f"There is no witness {witness} that could tell what was charged since the backup. "
            "Bring it back, or accept the loss, which spends every budget for good."
        )
    with (
        closing(SQLiteDatabase(backup / folders.LEDGER, reading=True)) as database,
        closing(RollbackGuard(witness, bytes.fromhex(identity))) as guard,
    ):
        known = is_descendant(database, guard.state.clock, guard.state.head)
    if not known:
        raise PrivacyRefused(
            "The backup is older than the store: more was charged than it knows of. Accept the "
            "loss, which spends every budget for good, or look for a later backup."
        )


def _move_ledger(folder: folders.Folder) -> None:
    """Move a restored ledger from its file into the database that it is to lie in."""
    with (
        closing(SQLiteDatabase(folder.path / folders.LEDGER)) as source,
        closing(folder.database(create=True)) as target,
    ):
        check_empty(target)
        target.create_tables()
        copy_tables(source, target)
    (folder.path / folders.LEDGER).unlink()


def _make(path: Path) -> None:
    folders.new_folder(path)
    folders.private_folder(path / folders.RECORDS)


def _copy_files(source: Path, target: Path) -> None:
    names = [folders.KEY, *(name for name in _PUBLIC if (source / name).exists())]
    records = [f"{folders.RECORDS}/{name}" for name in RECORD_NAMES]
    for name in (*names, *records):
        folders.copy_file(source / name, target / name)
    with translate_os_errors(target):
        sync_folder(target / folders.RECORDS)
        sync_folder(target)
