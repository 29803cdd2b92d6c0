"""Charging at the limits of its arithmetic; grids, delta slack and counts in small cases."""

from fractions import Fraction
from itertools import permutations

import numpy as np
import pytest

from made_up import NoNoise
from mechanism_tools import make_accountant, make_lists, make_subjects, make_votes
from vicinal import testing
from vicinal.accounting.budget import UNITS, compute_unit_rate
from vicinal.accounting.charges import compute_charge
from vicinal.accounting.gaussian import compute_grid_slack
from vicinal.errors import InvalidInput, PrivacyRefused
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
from vicinal.mechanisms.subject_table import SubjectArrays, multiply_towards_zero
from vicinal.mechanisms.votes import MIN_SCALE
from vicinal.neighbours.kernels import LEVELS

NO_LIMIT = make_accountant(needs_slack=False)


def scale_contribution(values, scale, remaining=UNITS, budget=1e3):
    """Return the vector as it is scaled down, as whole numbers of any size, and its charge."""
    vector = np.array(values, dtype=np.int64)
    rate = compute_unit_rate(scale, budget)
    price = QueryPrice(scale, rate, rate, 0.0, np.ones((1, 1)), False)
    cost = scale_down_to_budget(vector, np.arange(len(vector)), remaining, price)
    return [int(value) for value in vector], cost


@pytest.mark.parametrize(
    ("values", "scale"),
    [
        ([5 << 22], 1 << 22), ([-5 << 22], 1 << 22), ([3 << 22, -4 << 22], 1 << 22),
        ([1 << 33, 1 << 33], 1 << 40), ([-1 << 33], 1 << 40), ([1, -1 << 31], 1 << 31),
    ],
)  # fmt: skip
def test_no_contribution_is_longer_than_the_scale_or_has_another_sign(values, scale):
    vector, cost = scale_contribution(values, scale)
    square = sum(value * value for value in vector)
    longest = min(scale, 1 << 31)
    assert 0.999999 * longest**2 < square <= longest**2
    assert all(new * old >= 0 for new, old in zip(vector, values, strict=True))
    assert square * compute_unit_rate(scale, 1e3) <= cost < 1 << 48


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
    rates = np.array([compute_unit_rate(1 << 28, float(1 << 24))])
    prices = VotePrices(
        np.array([1 << 28]), rates, rates, np.zeros(1), np.ones((1, 1)), label_only=False
    )
    lists = make_lists(8)
    hits = NeighbourArrays(np.array([[0], [8]]), lists.rows, np.zeros(8, np.int32))
    kernel = KernelWeights(np.full(LEVELS, 1 << 29), 0, 0)
    found = set()
    for order in list(permutations(range(8)))[::997]:
        vectors = VectorArrays(
            np.arange(9), np.array(order, np.int32), 2 * np.array(values, np.int32)[list(order)]
        )
        subjects = SubjectArrays(np.zeros(8, np.int32), np.array([8], np.int32), np.array([UNITS]))
        sums = np.zeros((1, 8), np.int64)
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


def make_crowd(*n_records):
    """Return subjects with so many records of one class each."""
    return make_subjects(np.zeros(sum(n_records)), np.repeat(np.arange(len(n_records)), n_records))


@pytest.mark.parametrize("n_records", [1, 3])
def test_votes_whose_squares_would_wrap_around_are_cut(n_records):
    votes = make_votes(1, 1e3, VoteGrid(1 << 22), NO_LIMIT)
    votes.weights[:] = 1 << 33
    subjects = make_crowd(n_records)
    release = votes.prepare_release(np.array([2.0**18]))
    sums, spent = release.contribute_and_charge(make_lists(n_records), subjects)
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
    subjects = make_crowd(*records)
    counts, part, spent = count.contribute_and_charge(make_lists(sum(records)), subjects)
    assert part.tolist() == np.repeat(counted, records).tolist()
    assert counts[0] == np.dot(records, counted) << 22
    assert ((subjects.remaining < UNITS) == counted).all()
    assert spent == (UNITS - subjects.remaining).sum() >= 0


@pytest.mark.parametrize(
    ("budget", "steps", "size"), [(20.0, 1 << 22, 7), (1e-3, 1 << 29, 0), (1e-3, 1 << 20, 17)]
)
def test_a_size_beyond_the_scale_or_int64_is_left_out(budget, steps, size):
    """Ten records are more than 7.07 times the noise, or than 2^31 steps."""
    subjects = make_crowd(10, 7)
    found, spent = release_noisy_size(subjects, budget, VoteGrid(steps), NoNoise(), NO_LIMIT)
    assert found == size
    assert spent == (UNITS - subjects.remaining).sum() >= 0
    assert (subjects.remaining <= UNITS).all()


def test_the_size_counts_at_most_ten_records_of_a_subject():
    subjects = make_crowd(30, 1, 1)
    grid = VoteGrid.choose(100.0, 1, 1, 1e-5)
    size, spent = release_noisy_size(subjects, 0.5, grid, NoNoise(), make_accountant())
    assert size == 12
    charges = UNITS - subjects.remaining
    np.testing.assert_allclose(charges / UNITS, [0.05, 0.0005, 0.0005], rtol=1e-4)
    assert spent == charges.sum()


@pytest.mark.parametrize("steps", [0, 3 << 20, (1 << 22) - 1, 1 << 30, 1 << 31, 4.0])
def test_grids_on_which_squares_wrap_around_are_refused(steps):
    with pytest.raises(InvalidInput, match="steps"):
        VoteGrid(steps)


def test_a_plan_gets_the_coarsest_grid_of_the_promised_steps_or_is_refused():
    for noise in (0.05, 1.0, 3.7, 500.0):
        assert VoteGrid.choose(noise, 1000, 10, 1e-5).convert_noise(noise) >= MIN_SCALE
    steps = VoteGrid.choose(2.0, 3000, 10, 1e-9).steps
    assert 2 * steps > 8 * MIN_SCALE
    used = [3000 * 10 * compute_grid_slack(scale) for scale in (2 * steps, steps)]
    assert used[0] < 0.01 * 1e-9 / 200 < used[1]
    with pytest.raises(InvalidInput, match="noise"):
        VoteGrid.choose(1e-4, 1000, 10, 1e-5)


def test_the_accountant_adds_up_and_refuses_once_its_share_is_used():
    accountant = make_accountant()
    accountant.charge([MIN_SCALE] * 3, 10)
    for _ in range(2):
        assert accountant.spent == pytest.approx(30 * compute_grid_slack(MIN_SCALE))
        with pytest.raises(PrivacyRefused):  # which costs nothing
            accountant.charge([10], 10)
    make_accountant(needs_slack=False).charge([10] * 100, 10)
    votes = make_votes(3, accountant=DeltaSlackAccountant(1e-13, needs_slack=True))
    with pytest.raises(PrivacyRefused):
        votes.prepare_release(np.array([2.0]))


def test_no_two_threads_work_in_the_same_memory(monkeypatch):
    scratches, make = [], Scratch.allocate
    recording_scratch = type(
        "Kept", (), {"allocate": lambda width: scratches.append(make(width)) or scratches[-1]}
    )
    monkeypatch.setattr(_charging, "Scratch", recording_scratch)
    monkeypatch.setattr(_charging, "_TILE_ROWS", 16)
    monkeypatch.setattr(_charging, "_MIN_HITS_PER_THREAD", 1)
    release = make_votes(1, grid=VoteGrid(1 << 22)).prepare_release(np.array([30.0]))
    with testing.use_threads(3):
        release.contribute_and_charge(make_lists(100), make_crowd(*[1] * 60, *[2] * 20))
    arrays = {array.ctypes.data for scratch in scratches for array in scratch}
    assert len(scratches) == 6
    assert len(arrays) == 18
