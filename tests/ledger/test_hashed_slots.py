"""The table of hashed slots equals a dict of ids, also with colliding hashes, in 8 bytes each."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vicinal.ledger import hashed_slots
from vicinal.ledger.hashed_slots import NOT_ENROLLED, HashedSlotTable
from vicinal.ledger.id_encoding import MAX_FRAME_BYTES, frame_id, frame_ids
from vicinal.ledger.sqlite import SQLiteDatabase
from vicinal.ledger.subject_pages import PAGE_SLOTS, write_subjects
from vicinal.ledger.tables import Tables

IDS = st.one_of(st.integers(-30, 30), st.text("ab<>% é", min_size=1, max_size=2))
STEPS = st.lists(st.tuples(st.booleans(), st.lists(IDS, unique_by=frame_id)), max_size=6)


@pytest.fixture(scope="module")
def database(tmp_path_factory):
    database = SQLiteDatabase(tmp_path_factory.mktemp("slots") / "ledger.db", create=True)
    database.create_tables()
    yield database
    database.close()


def hash_equally(ids):
    """Return one hash for all ids, so that all of them collide."""
    return np.zeros(len(ids), dtype=np.uint64)


def enroll(table, database, subjects):
    ids = frame_ids(subjects)
    slots = table.assign_slots(ids)
    write_subjects(database, dict(zip(slots.tolist(), ids, strict=True)))
    return slots


def erase(table, database, subjects):
    slots = table.find_slots(subjects)
    slots = np.unique(slots[slots != NOT_ENROLLED])
    write_subjects(database, dict.fromkeys(slots.tolist()))
    table.free_slots(slots)


@pytest.mark.parametrize("colliding", [False, True])
@given(steps=STEPS, queried=st.lists(IDS))
def test_it_knows_who_is_here_as_a_dict_does(database, colliding, steps, queried):
    """Fails if a hash is taken for an id, or a look-up reads outdated rows."""
    with pytest.MonkeyPatch.context() as patch:
        if colliding:
            patch.setattr(hashed_slots, "_hash_frames", hash_equally)
        with database.transaction():
            database.delete(Tables.SUBJECT_PAGES)
            table, expected = HashedSlotTable(database, 0), {}
            for is_enrolment, subjects in steps:
                if is_enrolment:
                    new = [subject for subject in subjects if subject not in expected]
                    expected |= zip(new, enroll(table, database, new).tolist(), strict=True)
                else:
                    erase(table, database, subjects)
                    expected = {s: slot for s, slot in expected.items() if s not in subjects}
                assert table.slot_of == expected
            for checked in (table, HashedSlotTable(database, table.size)):
                check_table(checked, expected, queried)


def check_table(table, expected, queried):
    assert table.find_slots(queried).tolist() == [expected.get(s, NOT_ENROLLED) for s in queried]
    assert list(table.slot_of.items()) == sorted(expected.items(), key=lambda entry: entry[1])
    assert sorted(table.taken_slots.tolist()) == sorted(expected.values())
    assert np.flatnonzero(~table.find_unused()).tolist() == sorted(expected.values())
    assert len(table) == len(expected)


def test_slots_are_given_out_in_order_and_again(database):
    with database.transaction():
        database.delete(Tables.SUBJECT_PAGES)
        table = HashedSlotTable(database, 0)
        assert enroll(table, database, ["a", "b", "c"]).tolist() == [0, 1, 2]
        erase(table, database, ["b", "nobody"])
        assert enroll(table, database, ["d", "e"]).tolist() == [3, 1]
        assert HashedSlotTable(database, 6).assign_slots([b"<id:sx>"]).tolist() == [4]


def test_an_id_too_long_to_be_stored_is_not_here(database):
    with database.transaction():
        database.delete(Tables.SUBJECT_PAGES)
        table = HashedSlotTable(database, 0)
        enroll(table, database, ["a"])
        queried = ["x" * MAX_FRAME_BYTES, "a"]
        assert table.find_slots(queried).tolist() == [NOT_ENROLLED, 0]


def test_thousands_take_eight_bytes_each_and_a_few_statements(database, monkeypatch):
    """Fails if ids stay in memory, or a look-up of many takes a statement each."""
    subjects = [f"person-{i}" for i in range(3 * PAGE_SLOTS)]
    with database.transaction():
        database.delete(Tables.SUBJECT_PAGES)
        enroll(HashedSlotTable(database, 0), database, subjects)
    table = HashedSlotTable(database, len(subjects))
    statements = []
    execute = database._run
    monkeypatch.setattr(database, "_run", lambda *args: statements.append(args) or execute(*args))
    assert table.find_slots(subjects[::2]).tolist() == list(range(0, len(subjects), 2))
    assert len(statements) == 1
    arrays = [value for value in vars(table).values() if isinstance(value, np.ndarray)]
    assert sum(array.nbytes for array in arrays) == 8 * len(subjects)
