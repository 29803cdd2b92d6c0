"""Full disks, failed flushes and databases that refuse: nothing is answered, nothing is lost."""

import os
import resource
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from store_tools import PEOPLE, Q, R, copied, left_of, make, points, units
from vicinal.errors import StorageFailed
from vicinal.store import Query, Store


def state(path):
    """Return remaining budgets, number of answers and of records of a store, verified."""
    with Store.open(path) as store:
        assert store.verify()
        return left_of(store), store.quota().used, len(store._store.shard)


@pytest.fixture(scope="module")
def new_store(tmp_path_factory):
    path = tmp_path_factory.mktemp("new") / "store"
    make(path, n_queries=5000).close()
    return path


@pytest.fixture
def path(new_store, tmp_path):
    return copied(new_store, tmp_path)


WORKS = {
    "predict": lambda store: store.predict(points(500, 3)[0]),
    "batch": lambda store: store.predict_many(
        [Query(points(500, 3)[0]), Query(Q[:20], idempotency_key="k")]
    ),
    "add": lambda store: store.add(*points(2000, 5), list(range(2000))),
}


@pytest.mark.parametrize("work", WORKS.values(), ids=WORKS)
def test_a_full_database_answers_nothing_and_loses_nothing(path, work):
    before = state(path)
    store = Store.open(path)
    connection = store._store.database._connection
    pages = connection.execute("PRAGMA page_count").fetchone()[0]
    connection.execute(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(StorageFailed, match="SQLITE_FULL"):
        work(store)
    with pytest.raises(StorageFailed, match="Open it again"):
        store.predict(Q[:1])
    assert not store.is_consistent
    store.close()
    assert state(path) == before


@pytest.mark.parametrize("call", ["fsync", "pwrite"])
@pytest.mark.parametrize("times", [1, 2, 3, 4])
def test_a_flush_that_fails_while_adding_leaves_the_store_as_it_was(path, monkeypatch, call, times):
    before = state(path)
    store = Store.open(path)
    with monkeypatch.context() as broken:
        broken.setattr(os, call, failing(getattr(os, call), times))
        try:
            store.add(*points(50, 5), list(range(50)))
        except StorageFailed:
            with pytest.raises(StorageFailed):
                store.predict(Q[:1])
        else:
            assert times > 3, "the failure was passed over"
    store.close()
    # After the commit only the witness is left to write: then the records are there.
    after = state(path)
    assert after[2] in ((300, 350) if times > 3 else (300,))
    assert after[1] == before[1]


@pytest.mark.parametrize("times", range(1, 9))
def test_a_flush_that_fails_while_erasing_is_made_up_for(path, monkeypatch, times):
    store = Store.open(path)
    with monkeypatch.context() as broken:
        broken.setattr(os, "fsync", failing(os.fsync, times))
        with pytest.raises(StorageFailed):
            store.erase(PEOPLE[:50])
    store.close()
    with Store.open(path) as store:
        assert store.verify(PEOPLE[:50])
        assert len(store._store.shard) == 250


def test_a_witness_that_cannot_be_written_stops_the_store(path, monkeypatch):
    store = Store.open(path)
    with monkeypatch.context() as broken:
        broken.setattr(os, "pwrite", failing(os.pwrite, 1))
        with pytest.raises(StorageFailed):
            store.predict(Q[:3], idempotency_key="k")
    with pytest.raises(StorageFailed):
        store.predict(Q[:3], idempotency_key="k")
    store.close()
    with Store.open(path) as store:
        assert store.predict(Q[:3], idempotency_key="k").charged == 0, "charged once, answered now"
        assert store.quota().used == 3
        assert store.verify()


def test_a_fault_between_noise_and_commit_gives_nothing_back_and_the_store_goes_on(
    path, monkeypatch
):
    with Store.open(path) as store:
        account = store._store.ledger.audiences["default"].account
        before = account.remaining.copy()
        with monkeypatch.context() as broken:
            broken.setattr("vicinal.store.request_batch._assign_block_numbers", None)
            with pytest.raises(TypeError):
                store.predict(Q[:3])
        assert (account.remaining < before).any()
        assert (account.remaining == account.durable).all()
        assert store.predict(Q[:3]).charged == 3
        assert store.verify()


def test_a_server_that_goes_away_answers_nothing_and_loses_nothing(tmp_path, postgres_url):
    psycopg = pytest.importorskip("psycopg")
    url = postgres_url()
    store = make(tmp_path / "store", ledger=url)
    store.predict(Q[:2], idempotency_key="a")
    before = units(store, "person-3")
    with psycopg.connect(url, autocommit=True) as other:
        other.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE pid <> pg_backend_pid() AND datname = current_database()"
        )
    with pytest.raises(StorageFailed):
        store.predict(Q[2:4], idempotency_key="b")
    with pytest.raises(StorageFailed):
        store.predict(Q[:1])
    store.close()
    with Store.open(tmp_path / "store") as store:
        assert units(store, "person-3") == before
        assert store.predict(Q[2:4], idempotency_key="b").charged == 2
        assert store.verify()


def failing(function, times):
    """Return `function`, whose call number `times` and all later ones fail."""
    calls = []

    def wrapper(*args):
        calls.append(args)
        if len(calls) >= times:
            raise OSError(5, "Input/output error")
        return function(*args)

    return wrapper


CHILD = """
import sys
sys.path.insert(0, {tests!r})
import store_tools as tools
from vicinal.store import Store
from vicinal.errors import StorageFailed
store = Store.open({path!r})
store.predict(tools.Q[:1])
print("ready", flush=True)
sys.stdin.readline()
refused = 0
for start in range(2, 58, 2):
    try:
        store.predict(tools.Q[start:start + 2], idempotency_key=str(start))
        print("seen", start, flush=True)
    except StorageFailed:
        refused += 1
try:
    store.close()
except StorageFailed:
    pass
print("refused", refused, flush=True)
"""


def run_child(path, go, **options):
    """Run the child until it is ready, call `go` with it, and let it continue.

    Returns the numbers of the requests that were answered, and how many were refused.
    """
    code = CHILD.format(tests=str(Path(__file__).parents[1]), path=str(path))
    child = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        **options,
    )  # fmt: skip
    assert child.stdout.readline() == "ready\n"
    go(child)
    lines = child.communicate("go\n", timeout=480)[0].splitlines()
    answered = [int(line.split()[1]) for line in lines if line.startswith("seen")]
    return answered, int(lines[-1].removeprefix("refused "))


def test_a_disk_that_is_full_for_good_answers_nothing_and_loses_nothing(path):
    seen, refused = run_child(
        path,
        lambda child: resource.prlimit(child.pid, resource.RLIMIT_FSIZE, (70_000, 70_000)),
        preexec_fn=lambda: signal.signal(signal.SIGXFSZ, signal.SIG_IGN),
    )
    assert refused > 0, "the disk was large enough"
    check_what_was_seen(path, seen)


SHIM = """
#include <stdlib.h>
#include <errno.h>
#include <unistd.h>
#include <sys/syscall.h>
static int broken(void) { const char *p = getenv("BROKEN_DISK"); return p && !access(p, F_OK); }
static int flushed(long call, int fd) {
    if (broken()) { errno = EIO; return -1; }
    return syscall(call, fd);
}
int fsync(int fd) { return flushed(SYS_fsync, fd); }
int fdatasync(int fd) { return flushed(SYS_fdatasync, fd); }
"""


@pytest.mark.skipif(
    sys.platform != "linux" or shutil.which("cc") is None, reason="needs Linux and a C compiler"
)
def test_a_flush_that_fails_under_sqlite_answers_nothing_and_loses_nothing(path, tmp_path):
    source, library, flag = (tmp_path / name for name in ("shim.c", "shim.so", "broken"))
    source.write_text(SHIM)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source], check=True)
    environment = {**os.environ, "LD_PRELOAD": str(library), "BROKEN_DISK": str(flag)}
    assert run_child(path, lambda _: flag.touch(), env=environment) == ([], 28)
    check_what_was_seen(path, [])


def check_what_was_seen(path, seen):
    with Store.open(path) as store:
        assert store.verify()
        used = store.quota().used
        for start in seen:
            assert store.predict(Q[start : start + 2], idempotency_key=str(start)).charged == 0
        assert used >= 1 + 2 * len(seen)
        assert used <= 1 + 2 * len(seen) + 2, "more than the one commit in doubt was charged"
        assert store.predict(R[:1]).charged == 1, "opened again, it answers"
