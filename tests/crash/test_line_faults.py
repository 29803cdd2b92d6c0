"""An exception at any executed line of an operation leaves it done, undone or pending; never half.

An operation is broken off by MemoryError before one of its lines (line_faults.py). Then either the
same object goes on, with the next operations of a service, or the folder is opened again. Whatever
happened, in the end: every enrolled subject has exactly the records it was given, an erased subject
has none in any file, no budget has grown, and `verify` agrees with all of that.

The short form takes every line that orders the steps of an erasure, every fifth of its other lines,
and every 13th line of the other operations. The soak takes every line of every operation, on stores
and on a cluster of two shards.
"""

import shutil
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import date, timedelta
from itertools import cycle

import numpy as np
import pytest

import shard_tools
import store_tools as tools
from line_faults import FaultAt, Visited, tracing
from vicinal.distributed import is_cluster
from vicinal.store import Renewal, Store

ERASED, OTHER, ADDED = tools.PEOPLE[10], tools.PEOPLE[20], "newcomer"
"""Whom the operation erases; whom a later operation erases; whom a later operation adds."""

RECORDS = {person: [] for person in tools.PEOPLE}
for _row, _person in enumerate(tools.PEOPLE):
    RECORDS[_person].append(_row)
"""The rows of `store_tools.X` of every subject."""

NEW_X, NEW_Y = tools.points(4, 5)
STEP = 13
"""The short form takes every 13th line, about 60 lines of an operation: some three seconds each."""

DAYS = 10
"""Days of a period of the renewing store."""


def erase(store, _):
    store.erase([ERASED])


def add(store, _):
    store.add(NEW_X[:2], NEW_Y[:2], ["added", "added"])


def open_audience(store, _):
    plan = {"epsilon": 1.0, "n_queries": 10, "n_neighbors": 40, "noise_multiplier": 1.5}
    store.open_audience("second", **plan)


def evaluate(store, _):
    store.evaluate(tools.X[:20], tools.Y[:20], tools.PEOPLE[:20], accept_noise=True)


def predict(store, _):
    store.predict(tools.Q[:3])


def refresh(store, _):
    store.refresh_model()


def backup(store, place):
    store.backup(place / "backup")


def renew(store, _):
    store.allow("anyone", None)  # the first operation of a period begins it


OPERATIONS = (erase, add, open_audience, evaluate, predict, refresh, backup, renew)
MODEL = {"model_share": 0.5, "model_refreshes": 2}
TEMPLATES = {refresh: MODEL, renew: {"renew": Renewal(DAYS, 4, "lost"), "model_share": 0}}
"""Parameters of the store that an operation needs, where the usual ones will not do."""


class Calendar:
    """The date that stores find; `renew` moves it into the next period."""

    def __init__(self):
        self.day = date(2026, 1, 31)

    def __call__(self):
        return self.day


@pytest.fixture
def calendar(monkeypatch):
    calendar = Calendar()
    monkeypatch.setattr("vicinal.ledger.renewal.get_today", calendar)
    # A training of fewer steps and trees executes the same lines, in half of the time: every
    # opening grows the trees again.
    monkeypatch.setattr("vicinal.linear.private_model.STEPS", 4)
    monkeypatch.setattr("vicinal.linear._random_trees.TREES", 2)
    return calendar


def open_store(path):
    return shard_tools.local(path) if is_cluster(path) else Store.open(path)


def enrolled_records(store):
    """Return the encoded rows on disk of every enrolled subject, sorted, by id; of one folder."""
    parts = store._store
    slots = parts.record_files.read_slots(parts.record_files.slots.count_bytes() // 4)
    rows = np.vstack([*parts.record_files.read_feature_chunks()] or [np.zeros((0, tools.D))])
    held = {}
    for subject, slot in parts.ledger.slot_table.slot_of.items():
        held[subject] = sorted(row.tobytes() for row in rows[slots == slot])
    assert sum(map(len, held.values())) == len(rows), "a record on disk has no enrolled subject"
    return held


def read_subjects(store):
    """Return records and remaining budgets by subject, of an open store or of all open shards."""
    clients = getattr(store, "_clients", None)
    folders = [store] if clients is None else [client.transport._server for client in clients]
    held, left = {}, {}
    for folder in folders:
        records = enrolled_records(folder)
        assert not held.keys() & records.keys(), "somebody is on two shards"
        held |= records
        left |= tools.left_of(folder)
    return held, left


class Case:
    """One operation on copies of one template, with all that is expected of the copies."""

    def __init__(self, root, operation, calendar, *, cluster):
        self.root, self.operation, self.calendar = root, operation, calendar
        settings = TEMPLATES.get(operation, {})
        template = root / "template"
        template.mkdir()
        if cluster:
            self.name = "cluster"
            shard_tools.clustered(template, 2, **settings)
        else:
            self.name = "store"
            tools.make(template / "store", **settings).close()
        if operation is evaluate:
            with open_store(template / self.name) as store:
                store.predict(tools.X[:20])
        self.place = root / "place"
        self.copy()
        with open_store(self.path) as store:
            self.expected, self.budgets = read_subjects(store)
            self.n_events = len(store.facts()["history"])
            encoded = store._store.schema.create_kernel().encode(NEW_X)
        self.encoded_new = [row.tobytes() for row in encoded]

    @property
    def path(self):
        return self.place / self.name

    def copy(self):
        """Put a fresh copy of the template in place, always under the same path."""
        shutil.rmtree(self.place, ignore_errors=True)
        if self.name == "cluster":
            self.place.mkdir()
            shard_tools.transplanted(self.root / "template" / "cluster", self.path)
        else:
            shutil.copytree(self.root / "template", self.place)
        self.calendar.day = date(2026, 1, 31)

    def run(self, traced):
        """Carry the operation out on a fresh copy, within `traced`; return the store, open."""
        self.copy()
        store = open_store(self.path)
        if self.operation is renew:
            self.calendar.day += timedelta(days=DAYS)
        with suppress(MemoryError, OSError, RuntimeError), traced:
            self.operation(store, self.place)
        return store

    def list_lines(self):
        """Return the lines of the package that the operation executes, each once."""
        with tracing() as tracer:
            self.run(Visited(tracer)).close()  # fills caches: later runs do not execute those lines
            lines = Visited(tracer)
            self.run(lines).close()
        return lines.lines

    def go_on(self, store):
        """Carry out what a service might do next; return whom it erased and added.

        While the store is alive no file of a change of a cluster may outlive the next operation.

        A store that failed refuses with StorageFailed, which is an OSError.
        """
        changed = set()
        with suppress(OSError, RuntimeError):
            store.predict(tools.Q[10:12])
        with suppress(OSError, RuntimeError):
            store.add(NEW_X[2:], NEW_Y[2:], [ADDED, ADDED])
            changed.add(ADDED)
        with suppress(OSError, RuntimeError):
            store.erase([OTHER])
            changed.add(OTHER)
        with suppress(OSError, RuntimeError):
            assert store.verify([OTHER] if OTHER in changed else []), "a live store disagrees"
            assert not list(self.place.rglob("change*")), "private records are left in a file"
        return changed

    def check(self, changed):
        """Open the folder, which finishes a change, and compare every file with what it may hold.

        `changed`: whom the next operations erased or added.
        """
        with open_store(self.path) as store:
            decided = {event["what"] for event in store.facts()["history"][self.n_events :]}
            held, left = read_subjects(store)
            erased = [OTHER] if OTHER in changed else []
            if self.operation is erase and ERASED not in held:
                erased.append(ERASED)
            rows = [row for subject in erased for row in RECORDS[subject]]
            found = store.verify(erased, tools.X[rows] if rows else None)
            assert found, found.faults
            store.predict(tools.Q[30:31])
        if not changed:
            assert self.operation is not add or ("added" in held) == ("add" in decided)
            assert self.operation is not erase or (ERASED not in held) == ("erase" in decided)
        expected = {who: rows for who, rows in self.expected.items() if who not in erased}
        if ADDED in changed:
            expected[ADDED] = sorted(self.encoded_new[2:])
        if self.operation is add and "added" in held:
            expected["added"] = sorted(self.encoded_new[:2])
        assert held == expected
        if self.operation is not renew:
            assert all(left[who] <= self.budgets[who] for who in left.keys() & self.budgets.keys())


def break_off(case, lines, follow_ups):
    """Break the operation off before each line; after it comes one of the follow-ups, in turn.

    In a thread of its own: an exception of a trace function can leave the thread's record of the
    handled exception behind (CPython 3.11), and every later exception would have it as its context.
    """
    with ThreadPoolExecutor(1) as thread:
        thread.submit(break_off_here, case, lines, follow_ups).result()


def break_off_here(case, lines, follow_ups):
    """Do the work of :func:`break_off`, in this thread."""
    n_raised = 0
    with tracing() as tracer:
        for line, goes_on in zip(lines, cycle(follow_ups), strict=False):
            fault = FaultAt(tracer, line)
            store = case.run(fault)
            n_raised += fault.raised
            changed = case.go_on(store) if goes_on else set()
            store.close()
            case.check(changed)
    # Lines that only some runs execute, as of a garbage collection, are few.
    assert n_raised >= 0.95 * len(lines)


LIVE_AND_REOPENED = (True, False)
"""The same object goes on with the next operations; or the folder is opened again first."""

some_operations = pytest.mark.parametrize("operation", OPERATIONS[1:], ids=lambda one: one.__name__)
all_operations = pytest.mark.parametrize("operation", OPERATIONS, ids=lambda one: one.__name__)


@pytest.mark.slow
def test_an_erasure_that_meets_an_exception_is_whole(tmp_path, calendar):
    case = Case(tmp_path, erase, calendar, cluster=False)
    lines = case.list_lines()
    assert len(lines) > 500
    order = ("store/", "engine/", "ledger/ledger.py", "ledger/rollback_guard.py")
    chosen = [line for n, line in enumerate(lines) if line[0].startswith(order) or n % 5 == 0]
    break_off(case, chosen, [True])  # what only an opening follows, test_durable_steps.py covers


@pytest.mark.slow
@some_operations
def test_an_operation_that_meets_an_exception_is_whole(tmp_path, calendar, operation):
    case = Case(tmp_path, operation, calendar, cluster=False)
    break_off(case, case.list_lines()[::STEP], LIVE_AND_REOPENED)


@pytest.mark.slow
@pytest.mark.parametrize("operation", [erase, add], ids=lambda one: one.__name__)
def test_an_operation_on_a_cluster_that_meets_an_exception_is_whole(tmp_path, calendar, operation):
    case = Case(tmp_path, operation, calendar, cluster=True)
    break_off(case, case.list_lines()[::STEP], LIVE_AND_REOPENED)


@pytest.mark.soak
@pytest.mark.parametrize("cluster", [False, True], ids=["store", "cluster"])
@all_operations
def test_any_operation_that_meets_an_exception_at_any_line_is_whole(
    tmp_path, calendar, operation, cluster
):
    case = Case(tmp_path, operation, calendar, cluster=cluster)
    for follow_up in LIVE_AND_REOPENED:
        break_off(case, case.list_lines(), [follow_up])
