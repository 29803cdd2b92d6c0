"""What the charging kernels do at the limits of their arithmetic, and at no other place."""

from fractions import Fraction
from itertools import permutations

import numpy as np
import pytest

from made_up import NoNoise
from vicinal import testing
from vicinal.accounting.budget import UNITS, compute_unit_rate
from vicinal.accounting.charges import compute_charge
from vicinal.errors import InvalidInput
from vicinal.mechanisms import DeltaSlackAccountant, VoteGrid
from vicinal.mechanisms import charging as _charging
from vicinal.mechanisms.charging import (
    ALL_SUBJECTS,
    KernelWeights,
    NeighbourArrays,
    QueryPrice,
    Scratch,
    VectorArrays,
    VotePrices,
    charge_multirecord_vectors,
    scale_down_to_budget,
)
from vicinal.mechanisms.count import NoisyCount, release_noisy_size
from vicinal.mechanisms.subject_table import SubjectArrays, SubjectTable, multiply_towards_zero
from vicinal.mechanisms.votes import NoisyVotes
from vicinal.neighbours import Cosine, NeighbourLists
from vicinal.neighbours.kernels import LEVELS

NO_LIMIT = DeltaSlackAccountant(1e-5, needs_slack=False)


def scale_contribution(values, scale, remaining=UNITS, budget=1e3):
    """Return the vector as it is scaled down, as whole numbers of any size, and its charge."""
    vector = np.array(values, dtype=np.int64)
    rate = compute_unit_rate(scale, budget)
    price = QueryPrice(scale, rate, rate, 0.0, np.ones((1, 1)), False)
    cost = scale_down_to_budget(vector, np.arange(len(vector)), remaining, price)
    return [int(value) for value in vector], cost


def compute_square(vector):
    return sum(value * value for value in vector)


@pytest.mark.parametrize(
    ("values", "scale"),
    [
        ([5 << 22], 1 << 22), ([-5 << 22], 1 << 22), ([3 << 22, -4 << 22], 1 << 22),
        ([1 << 33, 1 << 33], 1 << 40), ([-1 << 33], 1 << 40), ([1, -1 << 31], 1 << 31),
    ],
)  # fmt: skip
def test_no_contribution_is_longer_than_the_scale_or_has_another_sign(values, scale):
    vector, cost = scale_contribution(values, scale)
    longest = min(scale, 1 << 31)
    assert 0.999999 * longest**2 < compute_square(vector) <= longest**2
    assert all(new * old >= 0 for new, old in zip(vector, values, strict=True))
    assert compute_square(vector) * compute_unit_rate(scale, 1e3) <= cost < 1 << 48


def test_a_sum_of_very_many_squares_is_known_well_enough():
    vector, _ = scale_contribution(np.full(1_000_003, 402_000_402), 2_000_005_000)
    assert vector[0] ** 2 * len(vector) <= 2_000_005_000**2


@pytest.mark.parametrize("remaining", [0, -1, -(1 << 40)])
def test_whoever_has_nothing_left_adds_nothing_and_pays_nothing(remaining):
    assert scale_contribution([5, -7], 1 << 30, remaining, 1e-3) == ([0, 0], 0)
    assert scale_contribution([5], 1 << 30, remaining, 1e-3) == ([0], 0)


def test_the_order_of_a_subjects_coordinates_changes_nothing():
    """Squares are added in floating point: 2^56 is reached in one of two orders of these."""
    values = [(1 << 28) - 1, 23170, 148, 10, 1, 1, 1, 1]
    found = set()
    for order in list(permutations(range(8)))[::997]:
        vectors = VectorArrays(
            np.arange(9), np.array(order, np.int32), 2 * np.array(values, np.int32)[list(order)]
        )
        rates = np.array([compute_unit_rate(1 << 28, float(1 << 24))])
        prices = VotePrices(
            np.array([1 << 28]), rates, rates, np.zeros(1), np.ones((1, 1)), label_only=False
        )
        hits = NeighbourArrays(
            np.array([[0], [8]]), np.arange(8, dtype=np.int32), np.zeros(8, np.int32)
        )
        subjects = SubjectArrays(np.zeros(8, np.int32), np.array([8], np.int32), np.array([UNITS]))
        kernel, sums = KernelWeights(np.full(LEVELS, 1 << 29), 0, 0), np.zeros((1, 8), np.int64)
        cost = charge_multirecord_vectors(
            hits, vectors, subjects, kernel, prices, ALL_SUBJECTS, Scratch.allocate(8), sums
        )
        assert cost[1] == UNITS - subjects.remaining[0] > 0
        found.add((sums.tobytes(), cost))
    assert len(found) == 1


def test_products_are_rounded_towards_zero():
    rng = np.random.default_rng(0)
    for weight, value in [*rng.integers(0, 1 << 30, (200, 2)).tolist(), [1, 1], [0, 5], [7, 0]]:
        for signed in (value, -value):
            assert multiply_towards_zero(weight, signed) == int(Fraction(weight * signed, 1 << 30))


def make_subjects(*records):
    """Return subjects with so many records of one class each."""
    slots = np.repeat(np.arange(len(records), dtype=np.int32), records)
    remaining = np.full(len(records), UNITS)
    return SubjectTable(
        np.zeros(len(slots), np.int32), slots, np.array(records, np.int32), remaining
    )


def one_query(size):
    return NeighbourLists(
        np.array([0, size]), np.arange(size, dtype=np.int32), np.full(size, 4094**2, np.int32)
    )


@pytest.mark.parametrize("records", [1, 3])
def test_votes_whose_squares_would_wrap_around_are_cut(records):
    votes = NoisyVotes(Cosine(), 2, 1, 1e3, VoteGrid(1 << 22), NoNoise(), NO_LIMIT)
    votes.weights[:] = 1 << 33
    subjects = make_subjects(records)
    release = votes.prepare_release(np.array([2.0**18]))
    sums, spent = release.contribute_and_charge(one_query(records), subjects)
    assert release.scales[0] == 1 << 40
    assert sums[0, 0] == 1 << 31
    assert spent == UNITS - subjects.remaining[0]
    assert spent == compute_charge(1 << 62, release.prices.rates[0])


@pytest.mark.parametrize(
    ("sigma", "records", "counted"),
    [(2.0, (3, 2, 1), [False, True, True]), (0.5, (1, 2), [False, False]),
     (1e4, (800, 512), [False, True])],
)  # fmt: skip
def test_a_count_beyond_the_scale_or_int64_is_left_out(sigma, records, counted):
    count = NoisyCount(sigma, 1e6, VoteGrid(1 << 22), NoNoise(), NO_LIMIT)
    subjects = make_subjects(*records)
    counts, part, spent = count.contribute_and_charge(one_query(sum(records)), subjects)
    assert part.tolist() == np.repeat(counted, records).tolist()
    assert counts[0] == np.dot(records, counted) << 22
    assert ((subjects.remaining < UNITS) == counted).all()
    assert spent == (UNITS - subjects.remaining).sum() >= 0


@pytest.mark.parametrize(
    ("budget", "steps", "size"), [(20.0, 1 << 22, 7), (1e-3, 1 << 29, 0), (1e-3, 1 << 20, 17)]
)
def test_a_size_beyond_the_scale_or_int64_is_left_out(budget, steps, size):
    """Ten records are more than 7.07 times the noise, or than 2^31 steps."""
    subjects = make_subjects(10, 7)
    found, spent = release_noisy_size(subjects, budget, VoteGrid(steps), NoNoise(), NO_LIMIT)
    assert found == size
    assert spent == (UNITS - subjects.remaining).sum() >= 0
    assert (subjects.remaining <= UNITS).all()


@pytest.mark.parametrize("steps", [0, 3 << 20, (1 << 22) - 1, 1 << 30, 1 << 31, 4.0])
def test_grids_on_which_squares_wrap_around_are_refused(steps):
    with pytest.raises(InvalidInput, match="steps"):
        VoteGrid(steps)


def test_no_two_threads_work_in_the_same_memory(monkeypatch):
    scratches, make = [], Scratch.allocate
    recording_scratch = type(
        "Kept", (), {"allocate": lambda width: scratches.append(make(width)) or scratches[-1]}
    )
    monkeypatch.setattr(_charging, "Scratch", recording_scratch)
    monkeypatch.setattr(_charging, "_TILE_ROWS", 16)
    monkeypatch.setattr(_charging, "_MIN_HITS_PER_THREAD", 1)
    votes = NoisyVotes(Cosine(), 2, 1, 0.5, VoteGrid(1 << 22), NoNoise(), NO_LIMIT)
    subjects = make_subjects(*[1] * 60, *[2] * 20)
    with testing.use_threads(3):
        votes.prepare_release(np.array([30.0])).contribute_and_charge(one_query(100), subjects)
    arrays = {array.ctypes.data for scratch in scratches for array in scratch}
    assert len(scratches) == 6
    assert len(arrays) == 18
