"""Ids of subjects on disk: enrolment and erasure in any order."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import store_tools as tools
from vicinal.ledger import subject_pages
from vicinal.ledger.database import find_chain_faults
from vicinal.ledger.id_encoding import MAX_FRAME_BYTES, frame_id
from vicinal.ledger.ledger import Ledger
from vicinal.ledger.sqlite import SQLiteDatabase
from vicinal.ledger.subject_pages import PAGE_SLOTS, ROW_BYTES, write_all_subjects, write_subjects
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
    """Fails if a change of one slot changes another, or an old row of its page remains."""
    expected = {}
    with database.transaction():
        database.delete(Tables.SUBJECT_PAGES)
        for step in steps:
            write_subjects(database, {s: i if i is None else frame_id(i) for s, i in step.items()})
            expected = {s: i for s, i in {**expected, **step}.items() if i is not None}
    assert tools.framed_ids(database) == {s: frame_id(i) for s, i in expected.items()}
    assert find_chain_faults(database, KEY) == []


@pytest.mark.parametrize("together", [1, 2, 32])
def test_pages_are_the_same_however_many_are_written_at_a_time(database, monkeypatch, together):
    """Fails if a page next to a changed one is written as well, or gets its entries."""
    monkeypatch.setattr(subject_pages, "_MAX_PAGES_PER_WRITE", together)
    all_ids = {slot: frame_id(slot) for slot in range(5 * PAGE_SLOTS)}
    erased = [3, PAGE_SLOTS + 4, 3 * PAGE_SLOTS + 5, 5 * PAGE_SLOTS - 1]  # none of page 2
    with database.transaction():
        database.delete(Tables.SUBJECT_PAGES)
        write_subjects(database, all_ids)
        unchanged_page = database.read("SELECT * FROM subject_pages WHERE page = 2")
        write_subjects(database, dict.fromkeys(erased))
    assert tools.framed_ids(database) == {s: i for s, i in all_ids.items() if s not in erased}
    assert database.read("SELECT * FROM subject_pages WHERE page = 2") == unchanged_page
    assert find_chain_faults(database, KEY) == []


SHARES = st.sampled_from([0.003, 0.02, 0.5, 0.9, 0.999, 1.0])


@settings(max_examples=40)
@given(share=SHARES, seed=st.integers(0, 99), length=st.sampled_from([1, 40, 900]))
def test_subjects_leave_and_the_rest_stays_in_the_fewest_rows_or_where_it_was(
    database, share, seed, length
):
    """Fails if a wrong id is removed, or sparse rows are not packed."""
    is_erased = np.random.default_rng(seed).random(PAGE_SLOTS + 60) < share
    ids = {slot: frame_id(f"{slot}" + "x" * length) for slot in range(PAGE_SLOTS + 60)}
    erased = [slot for slot in ids if is_erased[slot]]
    with database.transaction():
        database.delete(Tables.SUBJECT_PAGES)
        write_subjects(database, ids)
        write_subjects(database, dict.fromkeys(erased))
    assert find_chain_faults(database, KEY) == []
    assert tools.framed_ids(database) == {s: i for s, i in ids.items() if not is_erased[s]}
    sizes = database.read("SELECT page, LENGTH(slots) + LENGTH(ids) FROM subject_pages")
    for page in {page for page, _ in sizes}:
        rows = [size for row_page, size in sizes if row_page == page]
        assert len(rows) == 1 or 2 * sum(rows) > ROW_BYTES * (len(rows) - 1)


def test_every_id_stands_in_the_file_in_one_piece(tmp_path):
    """Fails if a row is longer than a page of the file, as a search could miss an id then."""
    database = SQLiteDatabase(tmp_path / "ledger.db", create=True)
    database.create_tables()
    ids = [frame_id(f"{i}-" + "x" * (i * 37 % (MAX_FRAME_BYTES - 20))) for i in range(300)]
    with database.transaction():
        write_subjects(database, dict(enumerate(ids)))
    database.close()
    content = (tmp_path / "ledger.db").read_bytes()
    assert all(framed_id in content for framed_id in ids)


@pytest.mark.parametrize("n_subjects", [0, 1, 1023, 1024, 1025, 3000])
@pytest.mark.parametrize("max_length", [3, 900])
def test_pages_are_those_of_subjects_that_come_one_by_one(tmp_path, n_subjects, max_length):
    """Fails if rows end at other ids, or an id is split."""
    rng = np.random.default_rng(n_subjects)
    ids = [frame_id(f"{n}-" + "x" * int(rng.integers(max_length))) for n in range(n_subjects)]
    tables = []
    for name in ("all", "each"):
        database = SQLiteDatabase(tmp_path / name, create=True)
        database.create_tables()
        with database.transaction():
            if name == "all":
                assert write_all_subjects(database, bytearray(b"".join(ids))) == n_subjects
            else:
                write_subjects(database, dict(enumerate(ids)))
        assert [framed_id for _, framed_id in sorted(tools.framed_ids(database).items())] == ids
        tables.append(sorted(row for rows in database.scan("subject_pages") for row in rows))
        database.close()
    assert tables[0] == tables[1]
    assert all(len(slots) + len(framed_ids) <= ROW_BYTES for _, _, slots, framed_ids in tables[0])
