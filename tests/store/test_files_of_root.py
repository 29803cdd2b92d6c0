"""Files that root creates in a store of another account: its service must be able to read them."""

import os
import stat

import numpy as np
import pytest

from command_line import invoked as run
from store_tools import PLAN, Q, R, points
from vicinal.labelling import FileJournal
from vicinal.ledger.files import create_file, create_folder, replace_file
from vicinal.store import Store

OWNER, GROUP = 65534, 65533
"""User and group id of the account that owns the store; no account needs to have them."""

X, Y = points(30, 12)

pytestmark = pytest.mark.skipif(
    not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root can give files away"
)


@pytest.fixture
def home(tmp_path):
    folder = tmp_path / "home"
    folder.mkdir()
    os.chown(folder, OWNER, GROUP)
    return folder


def list_foreign_files(folder):
    """Return the files and folders in `folder` that do not belong to the account."""
    return [
        path
        for path in [folder, *folder.rglob("*")]
        if (path.lstat().st_uid, path.lstat().st_gid) != (OWNER, GROUP)
    ]


def test_every_file_of_a_store_belongs_to_the_account(home):
    subjects = [f"p{i}" for i in range(30)]
    store = home / "stores" / "store"
    plan = {"classes": range(3), "public": R, "n_records": 30, **PLAN}
    Store.init(store, X, Y, subjects, **plan).close()
    assert not list_foreign_files(home)
    run("keys", "add", store, "anna")
    with Store.open(store) as opened:
        opened.predict(Q[:3])
        opened.add(X[:2], Y[:2], ["new", "other"])
        opened.erase(["p1"])
        assert not list_foreign_files(home)
        opened.backup(home / "backup")
    run("restore", home / "backup", home / "restored", "--accept-loss", "--yes", "--witness",
        home / "other.witness")  # fmt: skip
    run("receipt", "key", home / "signing.key")
    with FileJournal(home / "journal"):
        assert not list_foreign_files(home)
    run("shard", store, "--out", home / "cluster", "--yes")
    assert not list_foreign_files(home)


def test_a_backup_goes_into_an_empty_folder_of_the_account(home):
    folder = home / "backup"
    folder.mkdir()
    os.chown(folder, OWNER, GROUP)
    plan = {"classes": range(3), "public": R, "n_records": 30, **PLAN}
    with Store.init(home / "store", X, Y, np.arange(30), **plan) as store:
        store.backup(folder)
    assert not list_foreign_files(home)


def test_new_files_are_private_and_a_replaced_one_belongs_to_the_account(home):
    replace_file(home / "a", b"old")
    os.chown(home / "a", 0, 0)
    replace_file(home / "a", b"new")
    create_folder(home / "b" / "c")
    assert not list_foreign_files(home)
    assert stat.S_IMODE((home / "a").stat().st_mode) == 0o600
    assert stat.S_IMODE((home / "b" / "c").stat().st_mode) == 0o700


def test_files_that_root_had_before_stay_with_root(home, tmp_path):
    """Else an account could get a file of root's by a link, or by its own folder around it."""
    secret = tmp_path / "secret"
    secret.write_bytes(b"secret")
    os.link(secret, home / "linked")
    (home / "kept").write_bytes(b"kept")
    for name in ("linked", "kept"):
        os.close(create_file(home / name, os.O_RDWR))
        assert (home / name).stat().st_uid == 0
    os.close(create_file(home / "linked", os.O_RDWR | os.O_TRUNC))
    assert secret.stat().st_uid == 0
    (home / "link").symlink_to(secret)
    with pytest.raises(OSError, match="symbolic"):
        create_file(home / "link", os.O_RDWR)
