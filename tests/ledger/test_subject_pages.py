"""Subjects on disk: who comes and goes, in any order."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import store_tools as tools
from vicinal.ledger import subject_pages
from vicinal.ledger.database import chain_faults
from vicinal.ledger.id_encoding import MAX_FRAME_BYTES, frame_id
from vicinal.ledger.ledger import Ledger
from vicinal.ledger.sqlite import SQLiteDatabase
from vicinal.ledger.subject_pages import PAGE_SLOTS, ROW_BYTES, write_all, write_subjects
from vicinal.ledger.tables import Tables

KEY = bytes(32)
IDS = st.one_of(st.integers(-99, 99), st.text("ab<>% é", min_size=1, max_size=5))
CHANGES = st.dictionaries(st.integers(0, 3 * PAGE_SLOTS), st.one_of(st.none(), IDS), max_size=8)


@pytest.fixture(scope="module")
def database(tmp_path_factory):
    database = SQLiteDatabase(tmp_path_factory.mktemp("pages") / "ledger.db", create=True)
    Ledger.create(database, KEY)
    yield database
    database.close()


@given(st.lists(CHANGES, max_size=4))
def test_what_is_read_is_what_was_written_last(database, steps):
    """Fails if a change of one slot touches another, or leaves a row of its page as it was."""
    expected = {}
    with database.transaction():
        database.delete(Tables.SUBJECT_PAGES)
        for step in steps:
            write_subjects(database, {s: i if i is None else frame_id(i) for s, i in step.items()})
            expected = {s: i for s, i in {**expected, **step}.items() if i is not None}
    assert tools.framed_ids(database) == {s: frame_id(i) for s, i in expected.items()}
    assert chain_faults(database, KEY) == []


@pytest.mark.parametrize("together", [1, 2, 32])
def test_pages_are_the_same_however_many_are_written_at_a_time(database, monkeypatch, together):
    """Fails if a page beside a changed one is written, too, or takes over its entries."""
    monkeypatch.setattr(subject_pages, "_MAX_PAGES_PER_WRITE", together)
    everybody = {slot: frame_id(slot) for slot in range(5 * PAGE_SLOTS)}
    gone = [3, PAGE_SLOTS + 4, 3 * PAGE_SLOTS + 5, 5 * PAGE_SLOTS - 1]  # none of page 2
    with database.transaction():
        database.delete(Tables.SUBJECT_PAGES)
        write_subjects(database, everybody)
        between = database.read("SELECT * FROM subject_pages WHERE page = 2")
        write_subjects(database, dict.fromkeys(gone))
    assert tools.framed_ids(database) == {s: i for s, i in everybody.items() if s not in gone}
    assert database.read("SELECT * FROM subject_pages WHERE page = 2") == between
    assert chain_faults(database, KEY) == []


SHARES = st.sampled_from([0.003, 0.02, 0.5, 0.9, 0.999, 1.0])


@given(share=SHARES, seed=st.integers(0, 99), length=st.sampled_from([1, 40, 900]))
def test_subjects_leave_and_the_rest_stays_in_the_fewest_rows_or_where_it_was(
    database, share, seed, length
):
    """Fails if an id is cut out of the wrong place, or rows that few are left in are not packed."""
    leaves = np.random.default_rng(seed).random(PAGE_SLOTS + 60) < share
    here = {slot: frame_id(f"{slot}" + "x" * length) for slot in range(PAGE_SLOTS + 60)}
    gone = [slot for slot in here if leaves[slot]]
    with database.transaction():
        database.delete(Tables.SUBJECT_PAGES)
        write_subjects(database, here)
        write_subjects(database, dict.fromkeys(gone))
    assert chain_faults(database, KEY) == []
    assert tools.framed_ids(database) == {s: i for s, i in here.items() if not leaves[s]}
    sizes = database.read("SELECT page, LENGTH(slots) + LENGTH(ids) FROM subject_pages")
    for page in {page for page, _ in sizes}:
        rows = [size for one, size in sizes if one == page]
        assert len(rows) == 1 or 2 * sum(rows) > ROW_BYTES * (len(rows) - 1)


def test_every_id_stands_in_the_file_in_one_piece(tmp_path):
    """Fails if a row is longer than a page of the file: an erased id could not be found then."""
    database = SQLiteDatabase(tmp_path / "ledger.db", create=True)
    database.create_tables()
    ids = [frame_id(f"{i}-" + "x" * (i * 37 % (MAX_FRAME_BYTES - 20))) for i in range(300)]
    with database.transaction():
        write_subjects(database, dict(enumerate(ids)))
    database.close()
    content = (tmp_path / "ledger.db").read_bytes()
    assert all(one in content for one in ids)


@pytest.mark.parametrize("people", [0, 1, 1023, 1024, 1025, 3000])
@pytest.mark.parametrize("longest", [3, 900])
def test_pages_are_those_of_subjects_that_come_one_by_one(tmp_path, people, longest):
    """Fails if a row is cut elsewhere, or an id in two."""
    rng = np.random.default_rng(people)
    ids = [frame_id(f"{n}-" + "x" * int(rng.integers(longest))) for n in range(people)]
    found = []
    for name in ("all", "each"):
        database = SQLiteDatabase(tmp_path / name, create=True)
        database.create_tables()
        with database.transaction():
            if name == "all":
                assert write_all(database, bytearray(b"".join(ids))) == people
            else:
                write_subjects(database, dict(enumerate(ids)))
        assert [one for _, one in sorted(tools.framed_ids(database).items())] == ids
        found.append(sorted(row for rows in database.scan("subject_pages") for row in rows))
        database.close()
    assert found[0] == found[1]
    assert all(len(slots) + len(framed_ids) <= ROW_BYTES for _, _, slots, framed_ids in found[0])
