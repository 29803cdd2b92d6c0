"""Backups of a store at one moment, and restoring them without refilling a budget."""

from contextlib import closing, suppress
from pathlib import Path

from vicinal.errors import DamagedWitness, InvalidInput, PrivacyRefused
from vicinal.ledger.database import Database, has_commit
from vicinal.ledger.files import sync_folder, translate_os_errors
from vicinal.ledger.ledger import Ledger
from vicinal.ledger.postgres import choose_server
from vicinal.ledger.rollback_guard import RollbackGuard, check_replaceable
from vicinal.ledger.sqlite import SQLiteDatabase
from vicinal.ledger.tables import TABLES
from vicinal.mechanisms.noise_sources import fresh_key
from vicinal.store import folder as folders
from vicinal.store.opening import OpenStore, refuse_used_database
from vicinal.store.record_files import RECORD_NAMES
from vicinal.store.store_schema import MAP_FILE, PUBLIC_FILE


def write_backup(store: OpenStore, path: Path) -> None:
    """Write a backup of a store into the folder `path`, with the ledger as an SQLite file.

    Raises InvalidInput if `path` exists and is not an empty folder.
    """
    _create_folders(path)
    _copy_files(store.folder.path, path)
    with closing(SQLiteDatabase(path / folders.LEDGER, create=True)) as copy:
        copy.create_tables()
        copy_tables(store.database, copy)
    # Last, so that a folder without this file is recognized as incomplete.
    folders.write_config(path, store.folder.identity, folders.SQLITE, "", backup=True)


def restore_folder(
    backup: Path, path: Path, ledger: str | None, witness: Path | None, *, accept_loss: bool
) -> folders.Folder:
    """Copy a backup into a new store's folder `path`; return this folder, without `store.json`.

    `backup`: folder of the backup. `ledger`: None or "sqlite", or the URL of an empty PostgreSQL
    database. `witness`: file outside the store with its last commit, which reveals old copies; None
    for the file beside `path`. `accept_loss`: restore the backup although charges after it may be
    lost. Raises InvalidInput if `backup` is no backup, or `path` is in use. Raises PrivacyRefused,
    unless `accept_loss`, if the witness does not confirm that the backup has the last commit.
    """
    config = folders.read_config(backup)
    folders.refuse_links(backup)
    if ledger not in (None, folders.SQLITE):
        choose_server(ledger)
    if not config["backup"]:
        raise InvalidInput(f"{backup} is a store, not a backup. Make one with: vicinal backup")
    folders.check_new_folder(path)
    witness_path = folders.resolve_witness_path(path, witness)
    if not accept_loss:
        _refuse_outdated_backup(backup, config["id"], witness_path)
    check_replaceable(witness_path)
    if accept_loss and witness_path.is_file():
        with suppress(DamagedWitness):  # raises an error while the original store is open
            RollbackGuard(witness_path, bytes.fromhex(config["id"])).close()
    _create_folders(path)
    _copy_files(backup, path)
    folders.copy_file(backup / folders.LEDGER, path / folders.LEDGER)
    folder = folders.Folder(path, config["id"], ledger or folders.SQLITE, witness_path)
    if folder.ledger != folders.SQLITE:
        with (
            closing(SQLiteDatabase(path / folders.LEDGER)) as source,
            closing(folder.connect(create=True)) as target,
        ):
            refuse_used_database(target)
            target.create_tables()
            copy_tables(source, target)
        (path / folders.LEDGER).unlink()
    with closing(folder.connect(create=True)) as database:
        # A further commit: once the witness has seen it, the original store is an old copy.
        Ledger(database, folder.read_key())
        database.put("restored", fresh_key(16).hex())
    return folder


def copy_tables(source: Database, target: Database) -> None:
    """Copy all rows of all tables of a database into the empty tables of another, at once.

    The links of the chain of commits are copied too, so `target` must not be attached to a ledger,
    which would create new links.
    """
    with target.transaction():
        for table in TABLES:
            target.insert(table, source.read_rows(table))


def _refuse_outdated_backup(backup: Path, identity: str, witness: Path) -> None:
    """Raise PrivacyRefused if a backup is older than the last commit in the store's witness.

    `backup`: its folder. `identity`: the store's id in hexadecimal digits. `witness`: file of the
    rollback guard.
    """
    if not witness.is_file():
        raise PrivacyRefused(
            f"There is no witness {witness}, which would show what was charged since the backup. "
            "Restore under the name that the store had, or name its witness with the 'witness' "
            "parameter. If it is lost, accept the loss, which spends every budget for good."
        )
    with (
        closing(SQLiteDatabase(backup / folders.LEDGER, read_only=True)) as database,
        closing(RollbackGuard(witness, bytes.fromhex(identity))) as guard,
    ):
        is_last = has_commit(database, guard.state.clock, guard.state.head)
    if not is_last:
        raise PrivacyRefused(
            "The backup is older than the store: more was charged than it knows of. Accept the "
            "loss, which spends every budget for good, or look for a later backup."
        )


def _create_folders(path: Path) -> None:
    """Create the folder `path` of a store, and in it the folder of its records."""
    folders.create_new_folder(path)
    folders.create_private_folder(path / folders.RECORDS)


def _copy_files(source: Path, target: Path) -> None:
    """Copy key, public files and record files between folders of a store and a backup, durably."""
    public_names = [name for name in (PUBLIC_FILE, MAP_FILE) if (source / name).exists()]
    record_names = [f"{folders.RECORDS}/{name}" for name in RECORD_NAMES]
    for name in (folders.KEY, *public_names, *record_names):
        folders.copy_file(source / name, target / name)
    with translate_os_errors(target):
        sync_folder(target / folders.RECORDS)
        sync_folder(target)
