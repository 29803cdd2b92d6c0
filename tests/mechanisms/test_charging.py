"""Contributions and charges are the same for every split of a block's neighbours."""

import dataclasses
import time

import numpy as np
import pytest

from vicinal import mechanisms, testing
from vicinal.accounting.budget import UNITS
from vicinal.accounting.label_filter import build_charge_table
from vicinal.mechanisms import charging
from vicinal.mechanisms.charging import ALL_SUBJECTS, group_hits_by_subject, sort_ascending
from vicinal.mechanisms.noisy_labels import NoisyLabels
from vicinal.mechanisms.subject_table import RecordVectors, SubjectTable
from vicinal.mechanisms.votes import NoisyVotes
from vicinal.neighbours import Cosine, NeighbourLists
from vicinal.neighbours.scan import map_in_threads

pytestmark = pytest.mark.quick

N, CLASSES, QUERIES, BUDGET = 300, 3, 40, 0.02


def make_block(rng, *, ascending=True):
    """Return random neighbour lists of a block: 60 of 300 rows per query."""
    chosen = [rng.choice(N, 60, replace=False) for _ in range(QUERIES)]
    rows = [np.sort(row_indices) if ascending else row_indices for row_indices in chosen]
    similarities = rng.integers(10**6, 16 * 10**6, 60 * QUERIES).astype(np.int32)
    starts = 60 * np.arange(QUERIES + 1)
    return NeighbourLists(starts, np.concatenate(rows).astype(np.int32), similarities)


def make_subjects(rng, kind):
    """Return 300 records of 150 subjects with one or more records; some have small budgets."""
    slots = rng.integers(0, 150, N).astype(np.int32)
    slots[:100] = np.arange(100)  # so that every subject up to 100 has a record
    targets = rng.integers(0, CLASSES, N).astype(np.int32)
    if kind == "vectors":
        targets = RecordVectors.from_rows(rng.normal(size=(N, CLASSES)) / 6)
    remaining = rng.integers(0, 1 << 40, 150)
    records = np.bincount(slots, minlength=150).astype(np.int32)
    return SubjectTable(targets, slots, records, remaining)


@pytest.fixture(scope="module")
def table():
    return build_charge_table(BUDGET, 1e-7)


@pytest.fixture(params=["votes", "labels", "vectors"])
def kind(request):
    return request.param


def prepare_release(kind, table, noise_std):
    """Return a release of some kind with the noise `noise_std`, (QUERIES,), in votes."""
    grid, kernel, noise = mechanisms.VoteGrid(1 << 22), Cosine(), mechanisms.create_noise_source(1)
    slack = mechanisms.DeltaSlackAccountant(1e-5, needs_slack=True)
    if kind == "labels":
        mechanism = NoisyLabels(kernel, 8, CLASSES, table, grid, noise, slack)
    else:
        mechanism = NoisyVotes(kernel, 8, CLASSES, BUDGET, grid, noise, slack)
    return mechanism.prepare_release(noise_std)


@pytest.fixture
def release(kind, table):
    """Return a kind of release, and a release of this kind."""
    return kind, prepare_release(kind, table, np.full(QUERIES, 30.0))


def charge_split(release, patch, *, threads, tile, ascending=True):
    """Return sums, charges and remaining budgets under one split."""
    kind, priced = release
    patch.setattr(charging, "_TILE_ROWS", tile)
    patch.setattr(charging, "_MIN_HITS_PER_THREAD", 1)
    rng = np.random.default_rng(5)
    neighbours, subjects = make_block(rng, ascending=ascending), make_subjects(rng, kind)
    remaining_before = subjects.remaining.copy()
    with testing.use_threads(threads):
        sums, spent = priced.contribute_and_charge(neighbours, subjects)
    assert spent == (remaining_before - subjects.remaining).sum()
    return sums.tolist(), spent, subjects.remaining.tolist()


@pytest.mark.parametrize("ascending", [True, False])
def test_no_split_changes_a_number(release, monkeypatch, ascending):
    unsplit = charge_split(release, monkeypatch, threads=1, tile=N, ascending=ascending)
    for threads, tile in ((1, 7), (2, N), (3, 50), (5, 1)):
        split = charge_split(release, monkeypatch, threads=threads, tile=tile, ascending=ascending)
        assert split == unsplit


def test_slices_of_a_block_are_charged_as_the_whole(kind, table):
    """Fails if the queries of a slice have noise scales or prices of other queries."""
    priced = prepare_release(kind, table, np.geomspace(10.0, 500.0, QUERIES))
    rng = np.random.default_rng(5)
    neighbours, subjects = make_block(rng), make_subjects(rng, kind)
    subjects.remaining[::2] = UNITS  # labels cost their share of the price only where much is left
    whole = dataclasses.replace(subjects, remaining=subjects.remaining.copy())
    expected_sums, expected_spent = priced.contribute_and_charge(neighbours, whole)
    all_sums, all_spent = [], 0
    for first in range(0, QUERIES, 8):
        part = priced.select_queries(slice(first, first + 8))
        lists = neighbours.select_queries(first, first + 8)
        sums, spent = part.contribute_and_charge(lists, subjects)
        all_sums.append(sums)
        all_spent += spent
        np.testing.assert_array_equal(part.scales, priced.scales[first : first + 8])
    np.testing.assert_array_equal(np.concatenate(all_sums), expected_sums)
    np.testing.assert_array_equal(subjects.remaining, whole.remaining)
    assert all_spent == expected_spent


def test_rows_that_do_not_ascend_must_not_be_cut(release, monkeypatch):
    unsplit = charge_split(release, monkeypatch, threads=1, tile=N, ascending=False)
    monkeypatch.setattr(charging, "_are_ascending", lambda *_: True)
    assert charge_split(release, monkeypatch, threads=2, tile=50, ascending=False) != unsplit


def test_a_block_without_neighbours_costs_nothing(release):
    kind, priced = release
    none = NeighbourLists(np.zeros(QUERIES + 1, np.int64), *(np.zeros(0, np.int32),) * 2)
    subjects = make_subjects(np.random.default_rng(0), kind)
    sums, spent = priced.contribute_and_charge(none, subjects)
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
        order = group_hits_by_subject(start, stop, rows, slots, records, (number, shares))
        np.testing.assert_array_equal(order, expected)


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
