"""Contributions and charges are the same for every split of a block's neighbours."""

import dataclasses
import time

import numpy as np
import pytest

from mechanism_tools import make_accountant, make_subjects
from vicinal import mechanisms, testing
from vicinal.accounting.budget import UNITS
from vicinal.accounting.label_filter import build_charge_table
from vicinal.mechanisms import charging
from vicinal.mechanisms.charging import ALL_SUBJECTS, group_hits_by_subject
from vicinal.mechanisms.noisy_labels import NoisyLabels
from vicinal.mechanisms.subject_table import RecordVectors
from vicinal.mechanisms.votes import NoisyVotes
from vicinal.neighbours import Cosine, NeighbourLists
from vicinal.neighbours.scan import map_in_threads

pytestmark = pytest.mark.quick

N, CLASSES, QUERIES, BUDGET = 300, 3, 40, 0.03


def make_inputs(kind, *, ascending=True):
    """Return lists of 60 of 300 rows per query, and subjects of which some have small budgets."""
    rng = np.random.default_rng(5)
    chosen = [rng.choice(N, 60, replace=False) for _ in range(QUERIES)]
    rows = [np.sort(row_indices) if ascending else row_indices for row_indices in chosen]
    similarities = rng.integers(10**6, 16 * 10**6, 60 * QUERIES).astype(np.int32)
    starts = 60 * np.arange(QUERIES + 1)
    lists = NeighbourLists(starts, np.concatenate(rows).astype(np.int32), similarities)
    slots = rng.integers(0, 150, N)  # most subjects have several records
    slots[:100] = np.arange(100)
    targets = rng.integers(0, CLASSES, N)
    if kind == "vectors":
        targets = RecordVectors.from_rows(rng.normal(size=(N, CLASSES)) / 6)
    return lists, make_subjects(targets, slots, rng.integers(0, 1 << 40, 150))


@pytest.fixture(params=["votes", "labels", "vectors"])
def kind(request):
    return request.param


@pytest.fixture(scope="module")
def table():
    return build_charge_table(BUDGET, 1e-7)


@pytest.fixture
def mechanism(kind, table):
    arguments = mechanisms.VoteGrid(1 << 22), mechanisms.create_noise_source(1), make_accountant()
    if kind == "labels":
        return NoisyLabels(Cosine(), 8, CLASSES, table, *arguments)
    return NoisyVotes(Cosine(), 8, CLASSES, BUDGET, *arguments)


@pytest.fixture
def charge_split(kind, mechanism, monkeypatch):
    """Return a function that returns sums, charges and remaining budgets under one split."""
    release = mechanism.prepare_release(np.full(QUERIES, 30.0))
    monkeypatch.setattr(charging, "_MIN_HITS_PER_THREAD", 1)

    def charge(*, threads, tile, ascending):
        monkeypatch.setattr(charging, "_TILE_ROWS", tile)
        lists, subjects = make_inputs(kind, ascending=ascending)
        remaining_before = subjects.remaining.copy()
        with testing.use_threads(threads):
            sums, spent = release.contribute_and_charge(lists, subjects)
        assert spent == (remaining_before - subjects.remaining).sum()
        return sums.tolist(), spent, subjects.remaining.tolist()

    return charge


@pytest.mark.parametrize("ascending", [True, False])
def test_no_split_changes_a_number(charge_split, ascending):
    unsplit = charge_split(threads=1, tile=N, ascending=ascending)
    for threads, tile in ((1, 7), (2, N), (3, 50), (5, 1)):
        assert charge_split(threads=threads, tile=tile, ascending=ascending) == unsplit


def test_rows_that_do_not_ascend_must_not_be_cut(charge_split, monkeypatch):
    unsplit = charge_split(threads=1, tile=N, ascending=False)
    monkeypatch.setattr(charging, "_are_ascending", lambda *_: True)
    assert charge_split(threads=2, tile=50, ascending=False) != unsplit


def test_slices_of_a_block_are_charged_as_the_whole(kind, mechanism):
    """Fails if the queries of a slice have noise scales or prices of other queries."""
    release = mechanism.prepare_release(np.geomspace(10.0, 500.0, QUERIES))
    lists, subjects = make_inputs(kind)
    subjects.remaining[::2] = UNITS  # labels cost their share of the price only where much is left
    whole = dataclasses.replace(subjects, remaining=subjects.remaining.copy())
    expected_sums, expected_spent = release.contribute_and_charge(lists, whole)
    all_sums, all_spent = [], 0
    for first in range(0, QUERIES, 8):
        part = release.select_queries(slice(first, first + 8))
        part_lists = lists.select_queries(first, first + 8)
        sums, spent = part.contribute_and_charge(part_lists, subjects)
        all_sums.append(sums)
        all_spent += spent
        np.testing.assert_array_equal(part.scales, release.scales[first : first + 8])
    np.testing.assert_array_equal(np.concatenate(all_sums), expected_sums)
    np.testing.assert_array_equal(subjects.remaining, whole.remaining)
    assert all_spent == expected_spent


def test_a_block_without_neighbours_costs_nothing(kind, mechanism):
    none = NeighbourLists(np.zeros(QUERIES + 1, np.int64), *(np.zeros(0, np.int32),) * 2)
    release = mechanism.prepare_release(np.full(QUERIES, 30.0))
    sums, spent = release.contribute_and_charge(none, make_inputs(kind)[1])
    assert (sums.shape, sums.any(), spent) == ((QUERIES, CLASSES), False, 0)


@pytest.mark.parametrize("slot_residue", [ALL_SUBJECTS, (1, 3)])
def test_hits_are_grouped_by_subject_in_the_order_of_hits(slot_residue):
    rng = np.random.default_rng(2)
    slots = rng.integers(0, 150, N).astype(np.int32)
    rows = rng.permutation(N).astype(np.int32)
    n_records = np.bincount(slots).astype(np.int32)
    remainder, modulus = slot_residue
    for start, stop in ((0, N), (20, 200)):
        hits = np.arange(start, stop)
        own = slots[rows[hits]]
        hits = hits[(n_records[own] > 1) & (own % modulus == remainder)]
        expected = hits[np.argsort(slots[rows[hits]], kind="stable")]
        order = group_hits_by_subject(start, stop, rows, slots, n_records, slot_residue)
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
    n_ended = len(ended)
    assert n_ended >= 1
    time.sleep(0.05)
    assert len(ended) == n_ended
