"""The folder of a stranger: opening it reads, copies, cuts and replaces no file of the user's."""

import os
import shutil
import sqlite3
import struct
import tracemalloc
from contextlib import suppress

import pytest

import store_tools as tools
from vicinal.errors import InvalidInput, PrivacyRefused, StorageFailed, VicinalError
from vicinal.ledger.sealed_files import read_sealed, write_sealed
from vicinal.serving.keys import KeyFile
from vicinal.store import Store
from vicinal.store.folder import copy_file, create_private_folder

FIELDS = {"id": str, "ledger": str, "witness": str, "backup": bool}
MINE = b"a thesis of three years"


@pytest.fixture
def mine(tmp_path):
    """A file of the user that must not change."""
    path = tmp_path / "thesis"
    path.write_bytes(MINE)
    yield path
    assert path.read_bytes() == MINE
    assert sorted(path.parent.glob("thesis*")) == [path]


@pytest.fixture(scope="module")
def store_and_backup(tmp_path_factory):
    """A folder with a closed store and its backup."""
    folder = tmp_path_factory.mktemp("made")
    with tools.make(folder / "store") as made:
        made.backup(folder / "backup")
    return folder


@pytest.fixture
def store(store_and_backup, tmp_path):
    shutil.copytree(store_and_backup, tmp_path, dirs_exist_ok=True)
    return tmp_path / "store"


NAMES = (
    "key", "public.npy", "map.npz", "store.json", "lock", "ledger.db", "ledger.db-wal",
    "records/features", "records/labels", "records/more", "records",
)  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("loss", [False, True])
@pytest.mark.parametrize("way", ["open", "restore"])
def test_no_link_in_a_folder_is_followed(store, mine, name, loss, way):
    """Fails if a link is read or written through; an empty store cut what its labels led to."""
    folder = store if way == "open" else store.with_name("backup")
    victim = mine
    if name == "records":
        victim = mine.with_name("elsewhere")
        (folder / name).rename(victim)
    else:
        (folder / name).unlink(missing_ok=True)
    (folder / name).symlink_to(victim)
    there = () if way == "open" else (store.with_name("new"),)
    with pytest.raises(VicinalError, match=name.rpartition("/")[2]):
        getattr(Store, way)(folder, *there, accept_loss=loss)
    assert not store.with_name("new").exists()


def hot_journal(ledger, victim):
    """Write what SQLite takes for a transaction that broke off, of several databases.

    It names the file that lists these, which SQLite deletes once it has undone the transaction.
    """
    pages = ledger.stat().st_size // 4096
    header = JOURNAL + struct.pack(">5I", 0, 0, pages, 512, 4096)
    name = str(victim).encode()
    lock_page = struct.pack(">I", 0x40000000 // 4096 + 1)
    end = lock_page + name + struct.pack(">2I", len(name), sum(name))
    journal = ledger.with_name("ledger.db-journal")
    journal.write_bytes(header.ljust(512, b"\0") + end + JOURNAL)


JOURNAL = bytes.fromhex("d9d505f920a163d7")


@pytest.mark.parametrize("loss", [False, True])
@pytest.mark.parametrize("way", ["open", "restore"])
def test_no_file_is_deleted_that_a_journal_of_sqlite_names(store, mine, way, loss):
    """Fails if a ledger is opened to write before it is known to be one of ours, as it was left."""
    folder = store if way == "open" else store.with_name("backup")
    hot_journal(folder / "ledger.db", mine)
    there = () if way == "open" else (store.with_name("new"),)
    witness = {} if way == "open" else {"witness": store.with_name("store.witness")}
    with suppress(VicinalError):
        getattr(Store, way)(folder, *there, **witness, accept_loss=loss).close()
    assert mine.read_bytes() == MINE


def test_sqlite_deletes_the_file_that_a_journal_names(store):
    """Fails if the attack above has come to fail by itself."""
    victim = store.with_name("victim")
    victim.write_bytes(MINE)
    hot_journal(store / "ledger.db", victim)
    with sqlite3.connect(store / "ledger.db") as connection:
        connection.execute("SELECT count(*) FROM meta").fetchall()
    connection.close()
    assert not victim.exists()


def test_nothing_waits_for_a_pipe(store):
    (store / "key").unlink()
    os.mkfifo(store / "key")
    with pytest.raises(VicinalError, match="key"):
        Store.open(store)


def test_only_what_a_backup_has_is_restored(store):
    tmp_path = store.parent
    backup = tmp_path / "backup"
    (backup / "records" / "more").write_bytes(b"x" * 10)
    (backup / "model.exe").write_bytes(b"x" * 10)
    Store.restore(backup, tmp_path / "new", witness=tmp_path / "store.witness").close()
    names = {path.name for path in (tmp_path / "new").rglob("*")}
    assert not names & {"more", "model.exe"}


@pytest.mark.parametrize("kind", ["file", "link", "file beside it", "link beside it"])
@pytest.mark.parametrize("way", ["open", "restore"])
def test_what_is_no_witness_is_never_replaced(store, mine, kind, way):
    """Fails if `--accept-loss` writes a witness over whatever the folder of a stranger names."""
    named = mine
    if kind.endswith("beside it"):
        named = mine.with_name("named")
        named.write_bytes(b"vicinal witness")  # a damaged one
        beside = named.with_name("named.new")
        beside.symlink_to(mine) if kind[0] == "l" else shutil.copy(mine, beside)
    elif kind == "link":
        named = mine.with_name("named")
        named.symlink_to(mine)
    if way == "open":
        fields = read_sealed(store / "store.json", 1, FIELDS, "")
        write_sealed(store / "store.json", 1, {**fields, "witness": str(named)})
        with pytest.raises(VicinalError, match="not a witness"):
            Store.open(store, accept_loss=True)
    else:
        new = store.with_name("new")
        with pytest.raises(VicinalError, match="not a witness"):
            Store.restore(store.with_name("backup"), new, witness=named, accept_loss=True)
        assert not new.exists()
    if kind == "file beside it":
        assert named.with_name("named.new").read_bytes() == MINE


@pytest.mark.parametrize("loss", [False, True])
def test_a_witness_with_a_name_that_no_disk_takes_is_one_error(store, loss):
    fields = read_sealed(store / "store.json", 1, FIELDS, "")
    write_sealed(store / "store.json", 1, {**fields, "witness": "/x" * 3000 + "x" * 300})
    with pytest.raises(StorageFailed, match="cannot be read or written"):
        Store.open(store, accept_loss=loss)


@pytest.mark.parametrize("name", ["key", "public.npy"])
@pytest.mark.parametrize("size", [1 << 28, 1 << 40])
def test_a_file_larger_than_memory_is_not_read_into_it(store, name, size):
    os.truncate(store / name, size)
    tracemalloc.start()
    with pytest.raises(VicinalError, match=name):
        Store.open(store, read_only=True)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1 << 26


def test_a_key_is_added_through_no_link(store, mine):
    (store / "keys.json.new").symlink_to(mine)
    content = mine.read_bytes()
    KeyFile(store).add("anna", "analyst", "default")
    assert mine.read_bytes() == content
    assert not (store / "keys.json").is_symlink()


def killed_between_commit_and_witness(store):
    before = store.with_name("store.witness").read_bytes()
    with Store.open(store) as opened:
        opened.predict(tools.Q[:3])
    store.with_name("store.witness").write_bytes(before)


def killed_in_an_erasure(store):
    with (
        pytest.MonkeyPatch.context() as patch,
        Store.open(store) as opened,
        tools.broken_off(patch, "vicinal.store.erasure._truncate_files"),
    ):
        opened.erase(tools.PEOPLE[:60])


def killed_while_adding(store):
    for name in ("features", "labels", "slots"):
        with (store / "records" / name).open("ab") as file:
            file.write(b"\1" * 8)


HALF = [killed_between_commit_and_witness, killed_in_an_erasure, killed_while_adding]


@pytest.mark.parametrize("broken", [None, *HALF])
def test_what_only_reads_writes_no_byte(store, broken):
    """Fails if reading a store finishes, cuts or marks anything, in any state of the store."""
    if broken is not None:
        broken(store)
    before = tools.contents(store.parent)
    if broken is None:
        with Store.open(store, read_only=True) as opened:
            assert opened.verify()
            assert opened.facts(curator=True)
            assert opened.guarantee()
    else:
        with pytest.raises(PrivacyRefused, match="interrupted here"):
            Store.open(store, read_only=True)
    assert tools.contents(store.parent) == before
    with Store.open(store) as opened:
        opened.backup(store.with_name("later"))
    with Store.open(store, read_only=True) as opened:
        assert opened.verify()


def test_looking_at_a_copy_that_ran_elsewhere_moves_no_witness_of_the_original(store):
    """Fails if reading a copy makes the original outdated for ever."""
    there = store.with_name("there")
    shutil.copytree(store, there / "store")
    shutil.copy(store.with_name("store.witness"), there)
    with Store.open(there / "store") as opened:
        opened.predict(tools.Q[:1])
    shutil.copytree(there / "store", store.with_name("gift"))
    with pytest.raises(PrivacyRefused, match="command only reads"):
        Store.open(store.with_name("gift"), read_only=True)
    Store.open(store).close()


def test_a_store_is_opened_by_its_own_path(store):
    """Fails if a link makes two paths of one store, each with a witness of its own beside it."""
    store.with_name("link").symlink_to(store)
    with pytest.raises(InvalidInput, match="is a link"):
        Store.open(store.with_name("link"), accept_loss=True)


def make_copier(made, folder):
    """Return a function that copies a store to a folder: a backup or a restore."""
    store = tools.make(folder / "one")
    if made == "backup":
        return store.backup
    store.backup(folder / "backup")
    store.close()
    return lambda place: Store.restore(
        folder / "backup", place, witness=folder / "one.witness"
    ).close()


@pytest.mark.parametrize("made", ["backup", "restore"])
@pytest.mark.parametrize("planted", ["link", "nothing", "stranger", "late", "within"])
def test_no_copy_is_made_where_another_user_can_read_or_write(tmp_path, monkeypatch, made, planted):
    """Fails if a copy, as root's, goes through a link, or into a folder that another user made."""
    copy, place, mine = make_copier(made, tmp_path), tmp_path / "place", tmp_path / "mine"
    mine.mkdir()
    if planted in ("link", "nothing"):
        place.symlink_to(mine if planted == "link" else tmp_path / "nothing")
    elif planted == "stranger":
        place.mkdir()
        monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    else:
        name = "ledger.db" if planted == "late" else "records"

        def slow(path):
            path.mkdir(exist_ok=True)
            if path == place:
                (path / name).symlink_to(mine)
            create_private_folder(path)

        monkeypatch.setattr("vicinal.store.folder.create_private_folder", slow)
    with pytest.raises(InvalidInput, match="belongs to you and is not a link"):
        copy(place)
    assert not list(mine.iterdir())
    assert not (tmp_path / "nothing").exists()
    assert planted in ("late", "within") or not place.is_dir() or not list(place.iterdir())


def test_files_and_folders_are_made_through_nothing_that_is_there(tmp_path, monkeypatch):
    """Fails if what is planted between a check and a copy is written through, or entered."""
    (tmp_path / "source").write_bytes(b"private")
    (tmp_path / "mine").write_bytes(b"mine")
    (tmp_path / "folder").mkdir()
    for name in ("mine", "nothing", "folder"):
        (tmp_path / f"to {name}").symlink_to(tmp_path / name)
    for name in ("mine", "to mine", "to nothing"):
        with pytest.raises(StorageFailed):
            copy_file(tmp_path / "source", tmp_path / name)
    assert (tmp_path / "mine").read_bytes() == b"mine"
    assert not (tmp_path / "nothing").exists()
    with pytest.raises(StorageFailed):
        create_private_folder(tmp_path / "to folder")
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    with pytest.raises(InvalidInput, match="another user's"):
        create_private_folder(tmp_path / "folder")
