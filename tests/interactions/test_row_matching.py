"""Digests of records, and whether two tables share more rows than chance explains."""

import hashlib
import math

import numpy as np
import pytest

from vicinal.interactions import row_matching as module
from vicinal.interactions.row_matching import (
    RecordDigests,
    compute_id_digests,
    compute_row_digests,
    detect_copied_records,
    overlap_exceeds_chance,
)

RNG = np.random.default_rng(0)


def digests(features):
    return RecordDigests.from_records(np.asarray(features, dtype=float), None).rows


def overlap(first, second):
    forward = overlap_exceeds_chance(digests(first), digests(second))
    assert forward == overlap_exceeds_chance(digests(second), digests(first))
    return forward


def patients(size, rng=RNG):
    """Return age, kg and cm of different people: rows of integers, of which many coincide."""
    columns = rng.integers(18, 95, size), rng.normal(75, 14, size), rng.normal(170, 10, size)
    return np.column_stack(columns).round()


def test_equal_rows_and_ids_have_equal_digests():
    rows = RNG.normal(size=(50, 7))
    found = compute_row_digests(rows)
    order = RNG.permutation(50)
    np.testing.assert_array_equal(compute_row_digests(rows[order]), found[order])
    np.testing.assert_array_equal(compute_row_digests(rows.astype(np.float32)), found)
    np.testing.assert_array_equal(compute_row_digests(np.asfortranarray(rows)), found)
    for changed in (1.0001 * rows, 7 * rows, -rows, rows + 1e-5, rows[:, ::-1]):
        assert not np.isin(compute_row_digests(changed), found).any()
    zeros = np.zeros((1, 3))
    assert compute_row_digests(zeros) == compute_row_digests(-zeros)
    assert len(np.unique(compute_row_digests(np.arange(4e4).reshape(-1, 1)))) == 40_000
    ids = compute_id_digests([5, "5", "05", "é", "lone \udc80", "x" * 1000, "x" * 1001])
    assert ids[0] == ids[1]
    assert len(np.unique(ids)) == 6
    assert len(compute_id_digests([])) == 0


def test_a_digest_is_that_of_its_row_in_blocks_of_any_size(monkeypatch):
    rows = RNG.normal(size=(100, 3))
    found = compute_row_digests(rows)
    monkeypatch.setattr(module, "_BLOCK_WORDS", 7)
    np.testing.assert_array_equal(compute_row_digests(rows), found)


def test_another_process_has_other_digests(monkeypatch):
    rows = np.ones((1, 2))
    digests = compute_row_digests(rows)[0], compute_id_digests([1])[0]
    monkeypatch.setattr(module, "_create_process_key", lambda: b"another")
    module._derive_hash_coefficients.cache_clear()
    others = compute_row_digests(rows)[0], compute_id_digests([1])[0]
    module._derive_hash_coefficients.cache_clear()
    assert digests[0] != others[0]
    assert digests[1] != others[1]


def test_a_digest_is_the_documented_sum():
    key = module._create_process_key() + (2).to_bytes(8, "little")
    keys = np.frombuffer(hashlib.shake_256(key).digest(48), "<u8").reshape(3, 2).tolist()
    words = np.array([1.5, -2.0], np.float32).view(np.uint32).tolist()
    sums = [keys[0][k] + words[0] * keys[1][k] + words[1] * keys[2][k] for k in range(2)]
    high, low = (each % 2**64 >> 32 for each in sums)
    assert int(compute_row_digests(np.array([[1.5, -2.0]]))[0]) == high << 32 | low


INDEPENDENT = {
    "three columns": lambda: (patients(2000), patients(2000)),
    "of unequal sizes": lambda: (patients(20_000), patients(200)),
    "of unlike populations": lambda: (
        np.r_[patients(2000), np.zeros((500, 3))],
        np.r_[patients(300) + np.array([0, 40, 0]), np.zeros((200, 3))],
    ),
    "one column": lambda: (patients(1000)[:, :1], patients(1000)[:, :1]),
    "a constant": lambda: (np.ones((100, 2)), np.ones((100, 2))),
    "one-hot": lambda: (np.eye(6)[RNG.integers(0, 6, 800)], np.eye(6)[RNG.integers(0, 6, 800)]),
    "nineteen common rows": lambda: (R[:200], R[181:381]),
    "one common row": lambda: (R[:1], R[:300]),
}
R = RNG.normal(size=(1000, 4))


@pytest.mark.parametrize("pair", INDEPENDENT.values(), ids=INDEPENDENT)
def test_different_people_do_not_overlap(pair):
    """Fails if rows are compared by direction, or if any coincidence decides."""
    assert not overlap(*pair())


PEOPLE = patients(2000)
OVERLAPPING = {
    "the same": (PEOPLE, PEOPLE[::-1]),
    "a half": (PEOPLE, PEOPLE[:1000]),
    "a tenth of it": (R, R[:100]),
    "twenty rows": (R[:300], R[280:]),
    "half of both": (PEOPLE[:1000], PEOPLE[500:1500]),
    "a bootstrap": (PEOPLE, PEOPLE[RNG.integers(0, 2000, 2000)]),
    "after an erasure and additions": (PEOPLE[:1500], np.r_[PEOPLE[100:1500], patients(300)]),
    "one column": (PEOPLE[:, :1], PEOPLE[:, :1]),
    "one-hot": 2 * (np.eye(6)[RNG.integers(0, 6, 800)],),
    "a few rows, all of them": (R[:3], R[2::-1]),
}


@pytest.mark.parametrize("pair", OVERLAPPING.values(), ids=OVERLAPPING)
def test_the_same_people_overlap(pair):
    assert overlap(*pair)


@pytest.mark.parametrize("sizes", [(400, 400), (400, 100), (4000, 40)])
@pytest.mark.parametrize("shift", [0, 3])
def test_false_alarms_are_as_rare_as_stated(sizes, shift, monkeypatch):
    """Independent tables, whose rows coincide most where populations and sizes are equal."""
    rng = np.random.default_rng([*sizes, shift])
    level = 0.1
    monkeypatch.setattr(module, "MAX_FALSE_POSITIVE_RATE", level)
    alarms = 0
    for _ in range(300):
        first, second = (np.sort(rng.integers(0, 900, rng.poisson(size))) for size in sizes)
        rare = rng.random(len(second)) < shift / 4
        second = np.sort(np.where(rare, second // 30, second))
        alarms += overlap_exceeds_chance(first.astype(np.uint64), second.astype(np.uint64))
    assert alarms <= 300 * level + 3 * math.sqrt(300 * level)


def test_claims_join_with_repetitions_of_other_records_only():
    rows = np.array([[1.0], [1.0], [2.0]])
    claim = RecordDigests.from_records(rows, [1, 1, 2])
    more = RecordDigests.from_records(np.array([[1.0], [3.0]]), [2, 3])
    added = claim.merge(more, same_records=False)
    np.testing.assert_array_equal(added.rows, digests([[1], [1], [1], [2], [3]]))
    assert len(added.ids) == 3
    again = claim.merge(claim, same_records=True)
    assert again.equals(claim)
    assert not again.equals(added)
    seen = claim.merge(more, same_records=True)
    np.testing.assert_array_equal(seen.rows, digests([[1], [1], [2], [3]]))


def test_next_to_six_known_records_one_public_row_decides():
    """The refusal depends on one record, as its documentation says: it is for the curator only."""
    public = np.r_[RNG.normal(size=(50, 4)), R[:6]]
    candidate, stranger = R[6:7], RNG.normal(size=(1, 4))
    assert not detect_copied_records(public, R)
    assert not detect_copied_records(np.r_[public, stranger], R)
    assert detect_copied_records(np.r_[public, candidate], R)


def test_public_rows_made_up_from_few_values_may_equal_records():
    """As with `--reference from-schema` and a column of whole numbers from 0 to 30."""
    records = np.arange(30.0)[:, None]
    made_up = np.arange(400.0)[:, None] % 31
    assert not detect_copied_records(made_up, records)
    assert detect_copied_records(records[:20], records)
