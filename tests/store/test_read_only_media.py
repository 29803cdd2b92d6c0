"""Commands that only read, and backups, of stores and clusters that nobody can write."""

import errno
import os
import shutil
import subprocess
from contextlib import contextmanager

import pytest

import store_tools as tools
from command_line import printed
from vicinal.distributed import Coordinator, split
from vicinal.distributed.transports import local_transports
from vicinal.errors import StorageFailed
from vicinal.ledger.files import Lock
from vicinal.ledger.rollback_guard import RollbackGuard
from vicinal.store import Store

NOBODY = 65534
"""Number of the user without rights."""

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root mounts and changes users")


@contextmanager
def read_only_medium(place):
    """Mount a folder on itself, read-only."""
    mounted = subprocess.run(
        ["mount", "-o", "ro,bind", place, place], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("this machine mounts nothing")
    try:
        assert not os.access(place, os.W_OK)
        yield
    finally:
        subprocess.run(["umount", "-l", place], check=True)


@contextmanager
def compressed_medium(place):
    """Mount a copy of a folder in place of it, on a file system that has no writes at all."""
    image = place.with_name("image")
    programs = [
        ["mksquashfs", place, image, "-quiet", "-no-progress"],
        ["mount", "-o", "loop,ro", image, place],
    ]
    for program in programs:
        if not shutil.which(program[0]) or subprocess.run(program, check=False).returncode:
            pytest.skip("this machine mounts no such file system")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", place], check=True)


@contextmanager
def readable_for_another_user(place):
    """Act as a user who may read the files in a folder, and write none."""
    for path in [place, *place.rglob("*")]:
        path.chmod(0o555 if path.is_dir() else 0o444)
    outside = [parent for parent in place.parents if not parent.stat().st_mode & 0o001]
    modes = {parent: parent.stat().st_mode for parent in [*outside, place.parent]}
    for parent in modes:
        parent.chmod(0o777)
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)
        for parent, mode in modes.items():
            parent.chmod(mode)


@pytest.fixture(params=["store", "cluster"])
def holder(request, tmp_path):
    """A store or cluster that has answered, alone with its witnesses in the folder `medium`."""
    place = tmp_path / "medium"
    place.mkdir()
    with tools.make(place / "store") as store:
        store.predict(tools.Q[:4])
    if request.param == "cluster":
        split(place / "store", place / "cluster", 2)
        shutil.rmtree(place / "store")
        (place / "store.witness").unlink()
        with Coordinator.open(place / "cluster", local_transports) as cluster:
            cluster.predict(tools.Q[4:6])
    return place / request.param


@pytest.mark.parametrize("medium", [read_only_medium, compressed_medium, readable_for_another_user])
def test_what_cannot_be_written_is_inspected_verified_and_backed_up(holder, medium, tmp_path):
    """Fails if reading needs a lock, a log, an index or a witness that can be written."""
    expected = printed("inspect", holder)
    printed("backup", holder, tmp_path / "first")  # loads all code as root
    before = tools.contents(holder.parent)
    with medium(holder.parent):
        assert printed("inspect", holder) == expected
        assert "All is well" in printed("verify", holder)
        printed("backup", holder, tmp_path / "copy")
        refusal = printed("allow", holder, "anna", 3, code=2)
        assert "cannot be read or written" in refusal
    assert tools.contents(holder.parent) == before
    shutil.rmtree(holder.parent)
    printed("restore", tmp_path / "copy", tmp_path / "new", "--accept-loss", "--yes")
    assert "All is well" in printed("verify", tmp_path / "new")


def test_a_log_that_cannot_be_read_is_one_sentence(holder, tmp_path):
    """Fails if commits in the log of a killed process are ignored."""
    if holder.name == "cluster":
        pytest.skip("its members are opened like a store")
    store = Store.open(holder)
    store.predict(tools.Q[6:8])
    medium = tmp_path / "copied"
    shutil.copytree(holder.parent, medium)  # as a kill leaves it
    store.close()
    assert (medium / "store" / "ledger.db-wal").stat().st_size
    with read_only_medium(medium):
        for command in (["inspect"], ["verify"]):
            refusal = printed(*command, medium / "store", code=2)
            assert "commits are still in the log" in refusal
        refusal = printed("backup", medium / "store", tmp_path / "copy", code=2)
        assert "commits are still in the log" in refusal
    printed("backup", medium / "store", tmp_path / "copy")


@pytest.mark.parametrize("number", [errno.EROFS, errno.EACCES, errno.EPERM, errno.EIO])
def test_a_refused_write_is_accepted_for_reading_only(tmp_path, monkeypatch, number):
    """Fails if a fault of the disk counts as a refusal, or a link is followed."""
    path = tmp_path / "file"
    path.write_bytes(b"kept")
    (tmp_path / "link").symlink_to(path)
    system_open = os.open

    def refuse_writing(name, flags, *arguments, **options):
        if flags & os.O_RDWR:
            raise OSError(number, os.strerror(number))
        return system_open(name, flags, *arguments, **options)

    monkeypatch.setattr(os, "open", refuse_writing)
    with pytest.raises(StorageFailed):
        Lock(path)
    if number == errno.EIO:
        with pytest.raises(StorageFailed):
            Lock(path, accept_unwritable=True)
        return
    Lock(path, accept_unwritable=True).release()
    with pytest.raises(StorageFailed, match="symbolic"):
        Lock(tmp_path / "link", accept_unwritable=True)


def test_a_witness_that_was_only_read_is_not_flushed(tmp_path, monkeypatch):
    """Some read-only media refuse a flush."""
    path, identity = tmp_path / "witness", bytes(16)
    RollbackGuard.create(path, identity).close()
    monkeypatch.setattr(os, "fsync", tools.raising(OSError(errno.EINVAL, "Invalid argument")))
    RollbackGuard(path, identity, accept_unwritable=True).close()
    guard = RollbackGuard(path, identity)
    with pytest.raises(StorageFailed):
        guard.begin_epoch(1, bytes(32))
    with pytest.raises(StorageFailed):
        guard.close()
