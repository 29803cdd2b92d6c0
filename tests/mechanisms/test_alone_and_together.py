"""A subject's contribution and charge do not depend on other subjects.

The tests cover every kernel that charges, every index and product engine, several numbers of
threads, and every kind of target; sparse and dense, with one record per subject and with several.
The individual filter relies on this: a subject's charge covers its whole influence only if no other
subject's contribution changes.
"""

import os
import subprocess
import sys
from functools import cache, partial
from pathlib import Path

import numba
import numpy as np
import pytest

from mechanism_tools import make_accountant, make_subjects
from vicinal import testing
from vicinal.accounting.budget import UNITS
from vicinal.accounting.label_filter import build_charge_table
from vicinal.mechanisms import VoteGrid, create_noise_source
from vicinal.mechanisms import charging as _charging
from vicinal.mechanisms import linear_model as _linear_model
from vicinal.mechanisms.count import NoisyCount
from vicinal.mechanisms.gradients import SubjectRows
from vicinal.mechanisms.linear_model import IndividualGradient
from vicinal.mechanisms.noisy_labels import NoisyLabels
from vicinal.mechanisms.subject_table import RecordVectors
from vicinal.mechanisms.votes import NoisyVotes
from vicinal.neighbours import Cosine, ExactIndex, HyperplaneLSH
from vicinal.neighbours.engines import list_exact_engines
from vicinal.neighbours.engines.int16 import Float64Products
from vicinal.neighbours.kernels import int8_precision

N, SUBJECTS, D, QUERIES, BUDGET = 120, 50, 8, 7, 0.02
PUBLIC = np.random.default_rng(0).normal(size=(80, D))
KERNEL = Cosine(int8_precision(PUBLIC))
WIDTHS = {"votes": 4, "labels": 4, "dense": 5, "sparse": 60}
# Other engines compute with addresses, which are not checked; they take long to compile.
ENGINES = ["float32"] if numba.config.BOUNDSCHECK else list_exact_engines()
INDEXES = {
    **{f"exact, {name}": partial(ExactIndex, KERNEL, D, engine=name) for name in ENGINES},
    "hashing": partial(HyperplaneLSH, KERNEL, D, tables=6, bits=3, seed=3),
}
FLOAT32_INDEX = INDEXES["exact, float32"]


def make_world(kind, seed):
    """Return features, targets, slots and remaining budgets, from 0 to full, of N records."""
    rng = np.random.default_rng(seed)
    slots = rng.integers(0, SUBJECTS, N)
    slots[:SUBJECTS] = rng.permutation(SUBJECTS)
    remaining = rng.integers(0, UNITS, SUBJECTS) >> rng.integers(0, 40, SUBJECTS)
    integers = KERNEL.encode(rng.normal(size=(N, D)))
    if kind not in ("dense", "sparse"):
        return integers, rng.integers(0, 4, N), slots, remaining
    rows = rng.normal(size=(N, WIDTHS[kind]))
    if kind == "sparse":
        rows *= rng.random(rows.shape) < rng.choice([0.02, 0.1, 0.4], size=(N, 1))
    return integers, RecordVectors.from_rows(rows / 3), slots, remaining


def make_charge(kind):
    """Return the function that charges subjects for lists, and returns sums and charges first."""
    source = VoteGrid(1 << 22), create_noise_source(1), make_accountant()
    if kind == "counts":
        return NoisyCount(1e5, BUDGET, *source).contribute_and_charge
    if kind == "labels":
        mechanism = NoisyLabels(KERNEL, D, 4, build_charge_table(0.03, 1e-7), *source)
    else:
        mechanism = NoisyVotes(KERNEL, D, WIDTHS[kind], BUDGET, *source)
    return mechanism.prepare_release(np.full(QUERIES, 30.0)).contribute_and_charge


@cache
def make_blocks():
    """Return two blocks of queries with radii; the first reduces budgets for the second."""
    rng = np.random.default_rng(9)
    queries = KERNEL.encode(rng.normal(size=(2 * QUERIES, D)))
    scores = KERNEL.product_factor * (
        queries.astype(np.int64) @ KERNEL.encode(PUBLIC).astype(np.int64).T
    )
    radii = np.quantile(scores, 0.5, axis=1).astype(np.int64)
    return [(queries[part], radii[part]) for part in (slice(0, QUERIES), slice(QUERIES, None))]


def check_world(kind, make_index, seed):
    """Compare all subjects together with each of them alone."""
    integers, targets, slots, remaining = make_world(kind, seed)
    charge = make_charge(kind)

    def charge_blocks(chosen):
        """Return the sums of both blocks, and what is left of the budgets of `chosen` subjects."""
        rows = np.flatnonzero(np.isin(slots, chosen))
        new_slots = np.searchsorted(chosen, slots[rows])
        table = make_subjects(targets[rows], new_slots, remaining[chosen])
        index = make_index()
        index.add(integers[rows])
        sums = []
        for queries, radii in make_blocks():
            remaining_before = table.remaining.sum()
            block_sums, *_, spent = charge(index.search(queries, radii), table)
            assert spent == remaining_before - table.remaining.sum()
            sums.append(block_sums)
        return np.stack(sums), table.remaining

    together, left = charge_blocks(np.arange(SUBJECTS))
    alone = [charge_blocks(np.array([subject])) for subject in range(SUBJECTS)]
    assert (left < remaining).mean() > 0.5, "few subjects contributed"
    np.testing.assert_array_equal(left, np.concatenate([units for _, units in alone]))
    np.testing.assert_array_equal(together, sum(sums for sums, _ in alone))


@pytest.fixture(params=[1, 2, 3])
def threads(request, monkeypatch):
    monkeypatch.setattr(_charging, "_TILE_ROWS", 16)
    monkeypatch.setattr(_charging, "_MIN_HITS_PER_THREAD", 1)
    with testing.use_threads(request.param):
        yield request.param


@pytest.mark.parametrize("index", INDEXES)
@pytest.mark.parametrize("kind", WIDTHS)
def test_votes_together_are_the_sum_of_votes_alone(kind, index, threads):
    for seed in range(3):
        check_world(kind, INDEXES[index], seed=10 * threads + seed)


def test_counts_together_are_the_sum_of_counts_alone(threads):
    check_world("counts", FLOAT32_INDEX, seed=threads)


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("vectors", [False, True])
def test_gradients_of_many_subjects_are_the_sum_of_gradients_alone(workers, vectors, monkeypatch):
    """More subjects with one and with several records than a block holds: all count once.

    Norms of rows and budgets differ widely, so that exchanged charges would be detected.
    """
    monkeypatch.setattr(_linear_model, "_SUBJECT_BLOCK", 4)
    if numba.config.BOUNDSCHECK:
        monkeypatch.setattr(_linear_model, "get_int16_products", Float64Products)
    rng, several = np.random.default_rng(8), 11
    # Each of eleven subjects has at least two records, each of the others one.
    slots = np.concatenate(
        [np.arange(1111), rng.integers(0, several, 2 * several), np.arange(several)]
    )
    order = rng.permutation(len(slots))
    slots = (slots * 7 % 1111)[order].astype(np.int32)
    rows = rng.normal(size=(len(slots), 3)) * 10 ** rng.uniform(0.5, 3.3, (len(slots), 1))
    rows = np.rint(np.clip(rows, -4000, 4000)).astype(np.float32)
    rows[:, 0] += rows[:, 0] == 0
    labels = rng.integers(0, 3, len(slots)).astype(np.int32)
    labels = rng.integers(-(2**30), 2**30, (len(slots), 3)).astype(np.int32) if vectors else labels
    remaining = UNITS - (rng.integers(0, UNITS, 1111) >> rng.integers(0, 30, 1111))
    weights = rng.normal(size=(3, 3))
    accountant = make_accountant(needs_slack=False)

    def run_step(chosen, new_slots, units):
        records = SubjectRows(rows[chosen], labels[chosen], new_slots.astype(np.int32), len(units))
        step = IndividualGradient(
            records, 3, 4095.0, 0.2, 5.0, 0.7, BUDGET, create_noise_source(1), accountant
        ).prepare_release(5.0)
        return step.contribute_and_charge(weights, units)

    left = remaining.copy()
    with testing.use_threads(workers):
        together, spent = run_step(np.arange(len(slots)), slots, left)
    assert spent == (remaining - left).sum()
    assert (left < remaining).mean() > 0.5
    total, by_subject = np.zeros_like(together), np.argsort(slots, kind="stable")
    for own_rows in np.split(by_subject, np.flatnonzero(np.diff(slots[by_subject])) + 1):
        units = remaining[slots[own_rows[:1]]].copy()
        total += run_step(own_rows, np.zeros(len(own_rows)), units)[0]
        assert units[0] == left[slots[own_rows[0]]]
    np.testing.assert_array_equal(together, total)


def test_what_a_kernel_leaves_in_its_memory_is_noticed(monkeypatch):
    """A kernel that leaves one coordinate of a contribution in the scratch must be detected."""
    kernel = _charging.charge_multirecord_vectors

    def run_and_leave_entry(*arguments):
        charges = kernel(*arguments)
        arguments[-2].vector[3] = 1
        return charges

    monkeypatch.setattr(_charging, "charge_multirecord_vectors", run_and_leave_entry)
    with pytest.raises(RuntimeError, match="left a contribution"):
        check_world("sparse", FLOAT32_INDEX, seed=0)


def test_old_entries_of_the_scratch_do_not_come_back(monkeypatch):
    """Entries of `touched` behind the valid ones belong to an earlier subject."""
    make = _charging.Scratch.allocate

    def allocate_spoilt(width):
        scratch = make(width)
        scratch.touched[:] = np.arange(width)[::-1]
        return scratch

    monkeypatch.setattr(
        _charging, "Scratch", type("Spoilt", (), {"allocate": staticmethod(allocate_spoilt)})
    )
    for kind in WIDTHS:
        check_world(kind, FLOAT32_INDEX, seed=1)


@pytest.mark.slow
def test_no_kernel_reads_or_writes_outside_its_arrays():
    """Compiled code does not check bounds; a child compiles it with checks, in its own cache."""
    cache_home = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser()
    bounds = {"NUMBA_BOUNDSCHECK": "1", "NUMBA_CACHE_DIR": str(cache_home / "vicinal/bounds")}
    chosen = "votes_together and (sparse or dense or labels) and float32 or counts or gradients"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-n0", __file__]
    checked = subprocess.run(
        [*command, "-k", f"({chosen}) and not reads_or_writes"],
        env={**os.environ, **bounds},
        capture_output=True,
        text=True,
        check=False,
    )
    assert checked.returncode == 0, checked.stdout[-3000:]
