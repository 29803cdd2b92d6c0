"""Files that root creates: its service must be able to read those in the store of an account.

Nothing else that root writes may belong to an account, whose folder only lies around it.
"""

import os
import shutil
import stat
from pathlib import Path

import pytest

import store_tools as tools
from command_line import invoked as run
from vicinal.distributed import Coordinator, split
from vicinal.distributed.changes import ClusterChange
from vicinal.distributed.transports import local_transports
from vicinal.errors import InvalidInput, StorageFailed
from vicinal.labelling import FileJournal
from vicinal.labelling.journal import JournalEntry
from vicinal.ledger.files import create_file, replace_file
from vicinal.ledger.sqlite import SQLiteDatabase
from vicinal.store import Store
from vicinal.store.folder import create_new_folder

OWNER, GROUP = 65534, 65533
"""User and group id of the account that owns the store; no account needs to have them."""

pytestmark = pytest.mark.skipif(
    not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root can give files away"
)


def give(*paths):
    """Give files, and folders with all that they contain, to the account."""
    for top in paths:
        for path in [top, *top.rglob("*")]:
            os.chown(path, OWNER, GROUP, follow_symlinks=False)


@pytest.fixture
def home(tmp_path):
    """The folder of the account; that around it belongs to root."""
    folder = tmp_path / "home"
    folder.mkdir()
    give(folder)
    return folder


def list_with_other_owner(folder, owner):
    """Return the files and folders in `folder`, and itself, that belong to others than `owner`."""
    return [path for path in [folder, *folder.rglob("*")] if path.lstat().st_uid != owner]


def test_every_file_in_the_store_of_an_account_belongs_to_it(home):
    store = home / "store"
    tools.make(store).close()
    give(home)
    run("keys", "add", store, "anna")
    run("keys", "add", store, "carl")
    with Store.open(store) as opened:
        opened.predict(tools.Q[:3])
        opened.add(tools.X[:2], tools.Y[:2], ["new", "other"])
        opened.erase(["new"])
        assert not list_with_other_owner(home, OWNER)
    assert {path.stat().st_gid for path in home.rglob("*")} == {GROUP}
    assert stat.S_IMODE((store / "keys.json").stat().st_mode) == 0o600


def test_a_new_lock_of_a_store_and_of_its_cluster_belongs_to_its_owner(home):
    tools.make(home / "store").close()
    tools.make(home / "other").close()
    split(home / "other", home / "cluster", 2)
    give(home)
    locks = sorted(home.rglob("lock"))
    for lock in locks:
        lock.unlink()
    run("verify", home / "store")
    Coordinator.open(home / "cluster", local_transports).close()
    assert {lock for lock in locks if lock.exists()} >= {home / "store" / "lock"}
    assert not list_with_other_owner(home, OWNER)


@pytest.mark.parametrize("damage", ["damaged", "damaged, of root", "missing"])
def test_a_new_witness_belongs_to_the_owner_of_the_store(home, damage):
    store, witness = home / "store", home / "store.witness"
    tools.make(store).close()
    give(home)
    if damage == "damaged, of root":
        os.chown(witness, 0, 0)  # as earlier versions left it
        witness.write_bytes(witness.read_bytes()[:20])
    elif damage == "damaged":
        os.chown(home, 0, 0)  # the service itself needs no right to replace the witness
        witness.write_bytes(witness.read_bytes()[:20])
    else:
        witness.unlink()
    Store.open(store, accept_loss=True).close()
    assert (witness.stat().st_uid, witness.stat().st_gid) == (OWNER, GROUP)
    assert not list_with_other_owner(store, OWNER)


def test_a_new_witness_in_a_folder_of_root_stays_with_root(home, tmp_path):
    """Else a forged store could name any path for a file of its owner."""
    secret_folder = tmp_path / "settings"
    secret_folder.mkdir()
    for witness in (secret_folder / "a", home / "link" / "b"):
        (home / "link").unlink(missing_ok=True)
        (home / "link").symlink_to(secret_folder)
        tools.make(home / "store", witness=witness).close()
        give(home)
        witness.unlink()
        Store.open(home / "store", accept_loss=True).close()
        assert witness.stat().st_uid == 0
        shutil.rmtree(home / "store")


def test_a_change_of_a_cluster_can_be_completed_by_the_account(home):
    tools.make(home / "store").close()
    split(home / "store", home / "cluster", 2)
    give(home)
    owners = []
    with (
        Coordinator.open(home / "cluster", local_transports) as cluster,
        pytest.MonkeyPatch.context() as patch,
    ):
        save = ClusterChange.save

        def save_and_record(change, path, owner):
            digest = save(change, path, owner)
            owners.append(path.stat().st_uid)
            return digest

        patch.setattr(ClusterChange, "save", save_and_record)
        cluster.add(tools.X[:2], tools.Y[:2], ["new", "other"])
    assert owners == [OWNER]
    assert not list_with_other_owner(home, OWNER)


def test_what_root_creates_in_a_folder_of_the_account_stays_with_root(home):
    store = tools.make(home / "stores" / "store")
    store.backup(home / "backup")
    store.close()
    run("restore", home / "backup", home / "restored", "--accept-loss", "--yes", "--witness",
        home / "other.witness")  # fmt: skip
    run("receipt", "key", home / "signing.key")
    with FileJournal(home / "journal") as journal:
        journal.commit(JournalEntry("run", (), {}))
    run("keys", "add", home / "stores" / "store", "anna")
    run("shard", home / "stores" / "store", "--out", home / "cluster", "--yes")
    names = {"stores", "backup", "restored", "signing.key", "journal", "cluster", "other.witness"}
    assert names <= {path.name for path in home.iterdir()}
    for path in home.iterdir():
        assert not list_with_other_owner(path, 0)
    assert stat.S_IMODE((home / "backup").stat().st_mode) == 0o700


def test_a_new_lock_of_a_labelling_run_belongs_to_its_owner(home):
    with FileJournal(home / "run") as journal:
        journal.commit(JournalEntry("run", (), {}))
    give(home)
    (home / "run" / "lock").unlink()
    with FileJournal(home / "run") as journal:
        journal.read()
        journal.commit(JournalEntry("run", (), {}))
    assert (home / "run" / "lock").exists()
    assert not list_with_other_owner(home, OWNER)


def test_a_restored_index_of_a_log_belongs_to_the_account(home):
    path, index = home / "ledger", home / "ledger-shm"
    SQLiteDatabase(path, create=True).close()
    index.write_bytes(b"an index without a log")
    give(home)
    database = SQLiteDatabase(path, read_only=True)
    index.unlink(missing_ok=True)
    database.close()
    assert index.read_bytes() == b"an index without a log"
    assert not list_with_other_owner(home, OWNER)
    SQLiteDatabase(path).close()
    assert not list_with_other_owner(home, OWNER)


def test_a_file_of_root_in_place_of_the_index_is_not_copied(home):
    """Else the account could read any file of root of which it makes a second name."""
    path, index = home / "ledger", home / "ledger-shm"
    SQLiteDatabase(path, create=True).close()
    give(home)
    index.write_bytes(b"secret")
    with pytest.raises(StorageFailed, match="another owner"):
        SQLiteDatabase(path, read_only=True)
    assert list_with_other_owner(home, OWNER) == [index]


def test_an_old_folder_of_root_is_not_given_away(home, monkeypatch):
    """Fails if a folder is given away that the account has put at the path meanwhile."""
    old = home / "old"
    (old / "records").mkdir(parents=True, mode=0o700)
    mkdir = os.mkdir

    def exchange(path, *args, **arguments):
        if old.exists():
            old.rename(home / "new")
        return mkdir(path, *args, **arguments)

    monkeypatch.setattr(os, "mkdir", exchange)
    with pytest.raises(InvalidInput, match="new folder"):
        create_new_folder(home / "new")
    assert not list_with_other_owner(home / "new", 0)


def test_a_replaced_file_keeps_its_owner(home):
    for owner in (OWNER, 0):
        path = home / str(owner)
        path.write_bytes(b"old")
        os.chown(path, owner, owner)
        replace_file(path, b"new")
        assert path.read_bytes() == b"new"
        assert path.stat().st_uid == owner
    replace_file(home / "new", b"new")
    assert (home / "new").stat().st_uid == 0


def test_the_file_of_an_interrupted_replacement_is_not_reused(home, tmp_path):
    """Fails if a link or an old file of root at `PATH.new` is emptied, or given away."""
    secret = tmp_path / "secret"
    for name, make in (("a", os.link), ("b", os.symlink)):
        secret.write_bytes(b"secret")
        make(secret, home / f"{name}.new")
        replace_file(home / name, b"new", owner=OWNER)
        assert (home / name).stat().st_uid == OWNER
        assert secret.read_bytes() == b"secret"
        assert secret.stat().st_uid == 0
    (home / "c.new").write_bytes(b"of root")
    os.chown(home / "c.new", 0, 0)
    replace_file(home / "c", b"new", owner=OWNER)
    assert (home / "c").stat().st_uid == OWNER


def test_only_the_owner_of_the_store_gets_a_file(home, tmp_path):
    """Fails if an account that exchanges folders or files gets a file of the store of another."""
    (home / "a").write_bytes(b"old")
    give(home)
    replace_file(home / "a", b"secret", owner=0)
    (tmp_path / "settings").mkdir()
    (home / "link").symlink_to(tmp_path / "settings")
    for path in (home / "b", home / "link" / "c", tmp_path / "d"):
        owner = 0 if path.name == "b" else OWNER
        os.close(create_file(path, os.O_RDWR, owner=owner))
        assert path.stat().st_uid == 0
    assert (home / "a").stat().st_uid == 0
    (home / "kept").write_bytes(b"kept")
    os.close(create_file(home / "kept", os.O_RDWR, owner=OWNER))
    assert (home / "kept").stat().st_uid == 0


def test_root_keeps_a_file_if_the_file_system_refuses_another_owner(home, monkeypatch):
    n_descriptors = len(list(Path("/proc/self/fd").iterdir()))
    monkeypatch.setattr(os, "fchown", tools.raising(PermissionError(1, "refused")))
    os.close(create_file(home / "a", os.O_RDWR, owner=OWNER))
    replace_file(home / "b", b"new", owner=OWNER)
    assert [(home / name).stat().st_uid for name in "ab"] == [0, 0]
    assert len(list(Path("/proc/self/fd").iterdir())) == n_descriptors
