"""Who is here by hashes: the same as a dict of ids, whatever hashes say, in 8 bytes a subject."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vicinal.ledger import hashed_slots
from vicinal.ledger.hashed_slots import NOBODY, HashedSlotTable
from vicinal.ledger.id_encoding import MAX_FRAME_BYTES, frame_id, framed_all
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


def one_hash(ids):
    """Return the hash of all ids: everybody collides with everybody."""
    return np.zeros(len(ids), dtype=np.uint64)


def come(table, database, subjects):
    slots = table.assign_slots(ids := framed_all(subjects))
    write_subjects(database, dict(zip(slots.tolist(), ids, strict=True)))
    return slots


def go(table, database, subjects):
    slots = table.find(subjects)
    slots = np.unique(slots[slots != NOBODY])
    write_subjects(database, dict.fromkeys(slots.tolist()))
    table.free_slots(slots)


@pytest.mark.parametrize("colliding", [False, True])
@given(steps=STEPS, asked=st.lists(IDS))
def test_it_knows_who_is_here_as_a_dict_does(database, colliding, steps, asked):
    """Fails if a hash is taken for an id, or a look-up reads what was there before."""
    with pytest.MonkeyPatch.context() as patch:
        if colliding:
            patch.setattr(hashed_slots, "_hash_frames", one_hash)
        with database.transaction():
            database.delete(Tables.SUBJECT_PAGES)
            table, expected = HashedSlotTable(database, 0), {}
            for coming, subjects in steps:
                if coming:
                    new = [one for one in subjects if one not in expected]
                    expected |= zip(new, come(table, database, new).tolist(), strict=True)
                else:
                    go(table, database, subjects)
                    expected = {one: at for one, at in expected.items() if one not in subjects}
                assert table.slot_of == expected
            for present in (table, HashedSlotTable(database, table.size)):
                check(present, expected, asked)


def check(table, expected, asked):
    assert table.find(asked).tolist() == [expected.get(one, NOBODY) for one in asked]
    assert list(table.slot_of.items()) == sorted(expected.items(), key=lambda one: one[1])
    assert sorted(table.taken.tolist()) == sorted(expected.values())
    assert np.flatnonzero(~table.unused()).tolist() == sorted(expected.values())
    assert len(table) == len(expected)


def test_slots_are_given_out_in_order_and_again(database):
    with database.transaction():
        database.delete(Tables.SUBJECT_PAGES)
        table = HashedSlotTable(database, 0)
        assert come(table, database, ["a", "b", "c"]).tolist() == [0, 1, 2]
        go(table, database, ["b", "nobody"])
        assert come(table, database, ["d", "e"]).tolist() == [3, 1]
        assert HashedSlotTable(database, 6).assign_slots([b"<id:sx>"]).tolist() == [4]


def test_an_id_too_long_to_be_stored_is_not_here(database):
    with database.transaction():
        database.delete(Tables.SUBJECT_PAGES)
        table = HashedSlotTable(database, 0)
        come(table, database, ["a"])
        asked = ["x" * MAX_FRAME_BYTES, "a"]
        assert table.find(asked).tolist() == [NOBODY, 0]


def test_thousands_take_eight_bytes_each_and_a_few_statements(database, monkeypatch):
    """Fails if ids stay in memory, or a look-up of many takes a statement each."""
    people = [f"person-{i}" for i in range(3 * PAGE_SLOTS)]
    with database.transaction():
        database.delete(Tables.SUBJECT_PAGES)
        come(HashedSlotTable(database, 0), database, people)
    table, statements, execute = HashedSlotTable(database, len(people)), [], database._run
    monkeypatch.setattr(database, "_run", lambda *args: statements.append(args) or execute(*args))
    assert table.find(people[::2]).tolist() == list(range(0, len(people), 2))
    assert len(statements) == 1
    kept = [value for value in vars(table).values() if isinstance(value, np.ndarray)]
    assert sum(array.nbytes for array in kept) == 8 * len(people)
