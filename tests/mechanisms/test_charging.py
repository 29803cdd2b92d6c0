"""However the neighbours of a block are split, contributions and charges are the same numbers."""

import time

import numpy as np
import pytest

from vicinal import mechanisms, testing
from vicinal.accounting.label_filter import charge_table
from vicinal.mechanisms import charging
from vicinal.mechanisms.charging import ALL_SUBJECTS, hits_by_subject, sort_ascending
from vicinal.mechanisms.noisy_labels import NoisyLabels
from vicinal.mechanisms.subject_table import RecordVectors, SubjectTable
from vicinal.mechanisms.votes import NoisyVotes
from vicinal.neighbours import Cosine, NeighbourLists
from vicinal.neighbours.scan import map_in_threads

pytestmark = pytest.mark.quick

N, CLASSES, QUERIES, BUDGET = 300, 3, 40, 0.02


def block(rng, *, ascending=True):
    """Return made-up lists of a block: 60 of 300 rows a query."""
    chosen = [rng.choice(N, 60, replace=False) for _ in range(QUERIES)]
    rows = [np.sort(one) if ascending else one for one in chosen]
    similarities = rng.integers(10**6, 16 * 10**6, 60 * QUERIES).astype(np.int32)
    starts = 60 * np.arange(QUERIES + 1)
    return NeighbourLists(starts, np.concatenate(rows).astype(np.int32), similarities)


def crowd(rng, kind):
    """Return 300 records of 150 subjects who have one, two or more; some can pay little."""
    slots = rng.integers(0, 150, N).astype(np.int32)
    slots[:100] = np.arange(100)  # so many subjects have few others
    targets = rng.integers(0, CLASSES, N).astype(np.int32)
    if kind == "vectors":
        targets = RecordVectors.of_rows(rng.normal(size=(N, CLASSES)) / 6)
    remaining = rng.integers(0, 1 << 40, 150)
    records = np.bincount(slots, minlength=150).astype(np.int32)
    return SubjectTable(targets, slots, records, remaining)


@pytest.fixture(scope="module")
def table():
    return charge_table(BUDGET, 1e-7)


@pytest.fixture(params=["votes", "labels", "vectors"])
def release(request, table):
    """Return a kind of release, and one of it."""
    grid, kernel, noise = mechanisms.VoteGrid(1 << 22), Cosine(), mechanisms.create_noise_source(1)
    slack = mechanisms.DeltaSlackAccountant(1e-5, needed=True)
    if request.param == "labels":
        mechanism = NoisyLabels(kernel, 8, CLASSES, table, grid, noise, slack)
    else:
        mechanism = NoisyVotes(kernel, 8, CLASSES, BUDGET, grid, noise, slack)
    return request.param, mechanism.release(np.full(QUERIES, 30.0))


def charged(release, patch, *, threads, tile, ascending=True):
    """Return sums, charges and what is left under one split."""
    kind, priced = release
    patch.setattr(charging, "_TILE", tile)
    patch.setattr(charging, "_ALONE", 1)
    rng = np.random.default_rng(5)
    near, people = block(rng, ascending=ascending), crowd(rng, kind)
    before = people.remaining.copy()
    with testing.use_threads(threads):
        sums, spent = priced.contribute_and_charge(near, people)
    assert spent == (before - people.remaining).sum()
    return sums.tolist(), spent, people.remaining.tolist()


@pytest.mark.parametrize("ascending", [True, False])
def test_no_split_changes_a_number(release, monkeypatch, ascending):
    whole = charged(release, monkeypatch, threads=1, tile=N, ascending=ascending)
    for threads, tile in ((1, 7), (2, N), (3, 50), (5, 1)):
        split = charged(release, monkeypatch, threads=threads, tile=tile, ascending=ascending)
        assert split == whole


def test_rows_that_do_not_ascend_must_not_be_cut(release, monkeypatch):
    whole = charged(release, monkeypatch, threads=1, tile=N, ascending=False)
    monkeypatch.setattr(charging, "_ascending", lambda *_: True)
    assert charged(release, monkeypatch, threads=2, tile=50, ascending=False) != whole


def test_a_block_without_neighbours_costs_nothing(release):
    kind, priced = release
    none = NeighbourLists(np.zeros(QUERIES + 1, np.int64), *(np.zeros(0, np.int32),) * 2)
    people = crowd(np.random.default_rng(0), kind)
    sums, spent = priced.contribute_and_charge(none, people)
    assert (sums.shape, sums.any(), spent) == ((QUERIES, CLASSES), False, 0)


@pytest.mark.parametrize("size", [0, 1, 2, 3, 7, 64, 1000])
@pytest.mark.parametrize("kinds", [1, 2, 50, 1 << 62])
def test_the_sort_is_numpys(size, kinds):
    """Random, with many and few equals; sorted already; the other way round."""
    values = np.random.default_rng(size).integers(-kinds, kinds, size)
    for given in (values, np.sort(values), np.sort(values)[::-1].copy()):
        expected = np.sort(given)
        sort_ascending(given)
        np.testing.assert_array_equal(given, expected)


@pytest.mark.parametrize(("number", "shares"), [ALL_SUBJECTS, (1, 3)])
def test_hits_are_grouped_by_subject_in_the_order_of_hits(number, shares):
    rng = np.random.default_rng(2)
    slots = rng.integers(0, 150, N).astype(np.int32)
    rows = rng.permutation(N).astype(np.int32)
    records = np.bincount(slots).astype(np.int32)
    for start, stop in ((0, N), (20, 200)):
        hits = np.arange(start, stop)
        mine = slots[rows[hits]]
        hits = hits[(records[mine] > 1) & (mine % shares == number)]
        expected = hits[np.argsort(slots[rows[hits]], kind="stable")]
        found = hits_by_subject(start, stop, rows, slots, records, (number, shares))
        np.testing.assert_array_equal(found, expected)


def test_no_thread_is_at_work_after_an_error():
    ended = []

    def work(task):
        if task == "fails":
            raise ValueError(task)
        time.sleep(0.02)
        ended.append(task)

    with testing.use_threads(2), pytest.raises(ValueError, match="fails"):
        map_in_threads(work, ["slow", "fails", "slow"])
    assert len(ended) >= 1
    at_the_end = len(ended)
    time.sleep(0.05)
    assert len(ended) == at_the_end
