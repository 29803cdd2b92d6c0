"""Vectors of records: one-hot is a vote, the charge pays for what is contributed, degenerate ones.

Proof note: src/vicinal/mechanisms/votes.md, "Vectors".
"""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from made_up import NoNoise
from mechanism_tools import make_accountant, make_lists, make_subjects, make_votes
from vicinal.accounting.budget import UNITS
from vicinal.accounting.label_filter import build_charge_table
from vicinal.errors import InvalidInput
from vicinal.mechanisms import VoteGrid
from vicinal.mechanisms.noisy_labels import NoisyLabels
from vicinal.mechanisms.subject_table import UNIT, RecordVectors, join_targets
from vicinal.neighbours import Cosine, NeighbourLists


def sample_lists(rng, size, queries):
    """Return random neighbour lists with random similarities."""
    near = make_lists(size, queries).keep(rng.random(size * queries) < 0.6)
    similarities = rng.integers(0, 4094**2, len(near.rows)).astype(np.int32)
    return NeighbourLists(near.starts, near.rows, similarities)


@pytest.mark.parametrize("kind", ["votes", "labels"])
@pytest.mark.parametrize("subjects", [40, 12], ids=["one record each", "several records"])
def test_a_one_hot_vector_is_a_vote_bit_for_bit(kind, subjects):
    """Fails if either walk contributes or charges one step otherwise than the other."""
    rng = np.random.default_rng(subjects)
    labels = rng.integers(0, 3, 40)
    slots = rng.permutation(np.arange(40) % subjects)
    mechanism = make_votes(3, budget=0.2)
    if kind == "labels":
        table = build_charge_table(0.03, 1e-7, classes=3)
        grid, accountant = mechanism.grid, make_accountant()
        mechanism = NoisyLabels(Cosine(), 2, 3, table, grid, NoNoise(), accountant)
    release = mechanism.prepare_release(rng.choice([2.0, 3.0, 8.0], 30))
    near = sample_lists(rng, 40, 30)
    found = []
    for targets in (labels, RecordVectors.from_rows(np.eye(3)[labels])):
        table = make_subjects(targets, slots)
        sums, spent = release.contribute_and_charge(near, table)
        found.append((sums.tolist(), spent, table.remaining.tolist()))
    assert found[0] == found[1]
    assert min(found[0][2]) < UNITS // 1000, "some budget must run out"


vectors = hnp.arrays(
    np.float64,
    st.tuples(st.integers(1, 5), st.integers(1, 3)),
    elements=st.sampled_from([-1.0, -0.6, 0.0, 0.3, 1.0]),
)


@settings(deadline=None, max_examples=150)
@given(vectors, st.integers(1, 2), st.sampled_from([0.01, 0.2, 3.0]), st.integers(0, 10**6))
def test_what_a_subject_moves_the_sums_by_is_paid_for(rows, subjects, budget, seed):
    """Two worlds in exact arithmetic: with a subject and without, all queries, all coordinates.

    The sums differ by one vector v; |v|^2 / (2 s^2), summed over all queries, is no more than the
    subject was charged, nor than its budget; no coordinate moves further than s; and nobody else's
    charge or contribution changes.
    """
    rng = np.random.default_rng(seed)
    targets = RecordVectors.from_rows(rows)
    slots = rng.permutation(np.arange(len(rows)) % subjects)
    release = make_votes(rows.shape[1], budget).prepare_release(rng.choice([1.0, 2.0], 4))
    near = sample_lists(rng, len(rows), 4)
    table = make_subjects(targets, slots)
    sums, spent = release.contribute_and_charge(near, table)
    assert spent == int((UNITS - table.remaining).sum())
    for subject in range(slots.max() + 1):
        without = make_subjects(targets, slots)
        other_hits = near.keep((slots != subject)[near.rows])
        moved = (sums - release.contribute_and_charge(other_hits, without)[0]).astype(object)
        cost = sum(
            Fraction(int((v**2).sum()), 2 * int(s) ** 2)
            for v, s in zip(moved, release.scales, strict=True)
        )
        charged = Fraction(int(UNITS - table.remaining[subject]), UNITS) * Fraction(budget)
        assert cost <= charged <= Fraction(budget)
        assert charged <= cost * (1 + Fraction(1, 10**6)) + Fraction(8, UNITS)
        assert (np.abs(moved) <= release.scales[:, None]).all()
        without.remaining[subject] = table.remaining[subject]
        np.testing.assert_array_equal(table.remaining, without.remaining)


def test_a_charge_for_each_record_alone_would_be_too_little():
    """The brute force above can fail: by the records' own lengths a subject would pay half."""
    table = make_subjects(RecordVectors.from_rows([[0.8, 0.6], [0.6, 0.8]]), [0, 0])
    release = make_votes(2).prepare_release(np.array([8.0]))
    sums, spent = release.contribute_and_charge(make_lists(2), table)
    unit = Fraction(UNITS) / (2 * int(release.scales[0]) ** 2 * Fraction(0.5))
    alone = 2 * int(release.mechanism.weights.max()) ** 2
    assert alone * unit < int((sums.astype(object) ** 2).sum()) * unit <= spent


anything = st.floats(allow_nan=False, allow_infinity=False, width=64)


@settings(deadline=None, max_examples=200)
@given(hnp.arrays(np.float64, st.tuples(st.integers(0, 4), st.integers(1, 6)), elements=anything))
def test_no_vector_is_longer_than_one_and_short_ones_are_kept(rows):
    found = RecordVectors.from_rows(rows)
    assert len(found) == len(rows)
    for i, row in enumerate(rows):
        values = found.values[found.starts[i] : found.starts[i + 1]].astype(object)
        assert (values**2).sum() <= UNIT**2
        with np.errstate(over="ignore"):
            length = np.abs(row).max() * math.sqrt(
                np.square(row / (np.abs(row).max() or 1.0)).sum()
            )
        if length <= 1:
            np.testing.assert_allclose(found.to_dense()[i], row, atol=2 / UNIT)
            assert (np.abs(found.to_dense()[i]) <= np.abs(row)).all(), "rounded towards zero"
        elif math.isfinite(length):
            np.testing.assert_allclose(found.to_dense()[i], row / length, atol=1e-8)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_vectors_that_are_no_numbers_are_refused_and_not_quoted(bad):
    with pytest.raises(InvalidInput, match="finite numbers only") as refusal:
        RecordVectors.from_rows([[0.25, bad]])
    assert "0.25" not in str(refusal.value)


def test_a_million_coordinates_cost_their_length():
    """The longest vector there is: its squares are added up exactly, and it fits the scale."""
    size = 10**6
    table = make_subjects(RecordVectors.from_rows(np.ones((2, size))), [0, 0])
    release = make_votes(size, 10.0, VoteGrid.choose(1.0, 100, size, 1e-5)).prepare_release(
        np.array([1.0])
    )
    sums, spent = release.contribute_and_charge(make_lists(2), table)
    square, scale = sum(int(v) ** 2 for v in sums[0]), int(release.scales[0])
    assert 0.98 * scale**2 < square <= scale**2
    assert Fraction(spent, UNITS) >= Fraction(square, 2 * scale**2) / 10


WIDE = 1000
sparse_rows = st.lists(
    st.dictionaries(
        st.integers(0, WIDE - 1),
        st.sampled_from([0.0, 5e-324, 1e-12, -0.3, 0.6, 1.0, -7.0, 1e300]),
        max_size=6,
    ),
    min_size=1,
    max_size=4,
)


def make_vectors(rows, coordinates):
    """Return the vectors of sparse rows at the given coordinates of WIDE."""
    dense = np.zeros((len(rows), WIDE))
    for i, row in enumerate(rows):
        dense[i, list(row)] = list(row.values())
    return RecordVectors.from_rows(dense[:, coordinates])


@settings(deadline=None, max_examples=25)
@given(sparse_rows, st.sampled_from([0.01, 0.3, 20.0]))
def test_sparse_vectors_of_many_coordinates_are_paid_for(rows, budget):
    """Fails if a charge depends on coordinates that nobody moves, or is below the exact cost."""
    used = sorted({c for row in rows for c in row}) or [0]
    found = []
    for coordinates in (range(WIDE), used):
        table = make_subjects(make_vectors(rows, coordinates), [0] * len(rows))
        votes = make_votes(
            len(coordinates), budget, VoteGrid(1 << 24), make_accountant(needs_slack=False)
        )
        release = votes.prepare_release(np.array([2.0]))
        sums, spent = release.contribute_and_charge(make_lists(len(rows)), table)
        found.append((sums[0], spent))
    np.testing.assert_array_equal(found[0][0][used], found[1][0])
    assert np.count_nonzero(found[0][0]) == np.count_nonzero(found[1][0])
    assert found[0][1] == found[1][1] <= UNITS
    cost = Fraction(sum(int(v) ** 2 for v in found[0][0]), 2 * int(release.scales[0]) ** 2)
    assert cost <= Fraction(found[0][1], UNITS) * Fraction(budget)


@settings(deadline=None, max_examples=100)
@given(sparse_rows)
def test_steps_hold_vectors_exactly(rows):
    """Fails if a vector comes back from a store's row another one."""
    vectors = make_vectors(rows, range(WIDE))
    back = RecordVectors.from_steps(vectors.to_dense_steps())
    for name in ("starts", "coordinates", "values"):
        np.testing.assert_array_equal(getattr(back, name), getattr(vectors, name))


def test_rows_are_joined_and_taken():
    first, second = (RecordVectors.from_rows(np.eye(3)[rows] * 0.5) for rows in ([0, 1], [2]))
    both = join_targets(first, second)
    np.testing.assert_array_equal(both[np.array([2, 0, 2])].to_dense(), np.eye(3)[[2, 0, 2]] * 0.5)
    assert len(both[np.zeros(0, dtype=np.int64)]) == 0
    with pytest.raises(InvalidInput):
        join_targets(first, np.zeros(1, dtype=np.int32))
    with pytest.raises(InvalidInput):
        join_targets(first, RecordVectors.from_rows(np.eye(4)))
