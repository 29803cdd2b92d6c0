"""Grids, slack, counts and what a shard's parts cost, on cases small enough to see."""

import numpy as np
import pytest

from made_up import NoNoise
from vicinal.accounting import UNITS, grid_slack
from vicinal.errors import InvalidInput, PrivacyRefused
from vicinal.mechanisms import (
    DeltaSlackAccountant,
    NoisyCount,
    NoisyVotes,
    SubjectTable,
    VoteGrid,
    noisy_size,
)
from vicinal.mechanisms._votes import FINE
from vicinal.neighbours import Cosine, NeighbourLists


def people(labels, slots, units=UNITS):
    slots = np.array(slots, dtype=np.int32)
    records = np.bincount(slots).astype(np.int32)
    remaining = np.full(len(records), units, dtype=np.int64)
    return SubjectTable(np.array(labels, dtype=np.int32), slots, records, remaining)


def everyone(size, queries=1):
    rows = np.tile(np.arange(size, dtype=np.int32), queries)
    top = np.full(size * queries, 4094**2, dtype=np.int32)
    return NeighbourLists(np.arange(queries + 1) * size, rows, top)


def mechanism(budget=0.5, noise=2.0, n_classes=3, meter=None):
    grid = VoteGrid.fitting(noise, 100, n_classes, 1e-5)
    meter = meter or DeltaSlackAccountant(1e-5, needed=True)
    return NoisyVotes(Cosine(), 2, n_classes, budget, grid, NoNoise(), meter)


def test_a_plan_gets_the_coarsest_grid_of_the_promised_steps_or_is_refused():
    for noise in (0.05, 1.0, 3.7, 500.0):
        grid = VoteGrid.fitting(noise, 1000, 10, 1e-5)
        assert grid.scale(noise) >= FINE
        assert grid.steps & (grid.steps - 1) == 0
    steps = VoteGrid.fitting(2.0, 3000, 10, 1e-9).steps
    assert 2 * steps > 8 * FINE
    used = [3000 * 10 * grid_slack(scale) for scale in (2 * steps, steps)]
    assert used[0] < 0.01 * 1e-9 / 200 < used[1]
    with pytest.raises(InvalidInput, match="noise"):
        VoteGrid.fitting(1e-4, 1000, 10, 1e-5)


def test_the_meter_adds_up_and_refuses_once_its_share_is_used():
    meter = DeltaSlackAccountant(1e-5, needed=True)
    meter.charge([FINE] * 3, 10)
    assert meter.spent == pytest.approx(30 * grid_slack(FINE))
    with pytest.raises(PrivacyRefused):
        meter.charge([10], 10)
    assert meter.spent == pytest.approx(30 * grid_slack(FINE)), "a refused release costs nothing"
    DeltaSlackAccountant(1e-5, needed=False).charge([10] * 100, 10)


def test_a_refused_release_charges_nobody():
    votes = mechanism(meter=DeltaSlackAccountant(1e-13, needed=True))
    with pytest.raises(PrivacyRefused):
        votes.release(np.array([2.0]))


def test_votes_of_one_query():
    votes, crowd = mechanism(), people([0, 1, 1, 2], [0, 1, 2, 3])
    release = votes.release(np.array([2.0]))
    sums, spent = release.contribute_and_charge(everyone(4), crowd)
    np.testing.assert_allclose(release.publish(sums), [[1, 2, 1]], rtol=1e-3)
    each = (UNITS - crowd.remaining) / UNITS
    np.testing.assert_allclose(each, 1 / (2 * 2.0**2) / 0.5, rtol=2e-3)
    assert spent == int((UNITS - crowd.remaining).sum())


def test_a_subject_with_several_records_pays_for_the_norm_of_its_sum():
    votes, crowd = mechanism(), people([0, 0, 1, 2], [0, 0, 0, 1])
    release = votes.release(np.array([2.0]))
    release.contribute_and_charge(everyone(4), crowd)
    costs = (UNITS - crowd.remaining) / UNITS
    # The norm of (2, 1) is sqrt(5), and is cut to the noise scale, 2.
    np.testing.assert_allclose(costs, np.array([4, 1]) / (2 * 2.0**2) / 0.5, rtol=2e-3)


def test_a_subject_retires_with_its_budget():
    votes, crowd = mechanism(budget=0.3), people([0], [0])
    release = votes.release(np.full(4, 2.0))
    sums, _ = release.contribute_and_charge(everyone(1, queries=4), crowd)
    first, second, third, fourth = release.publish(sums)[:, 0]
    assert first == pytest.approx(second, rel=1e-3)
    assert third == pytest.approx(np.sqrt((0.3 - 2 / 8) * 8), rel=1e-2)
    assert fourth < 0.01
    assert 0 <= crowd.remaining[0] < UNITS // 10**6


def test_counts_leave_out_who_cannot_pay():
    grid = VoteGrid.fitting(5.0, 100, 1, 1e-5)
    count = NoisyCount(5.0, 0.5, grid, NoNoise(), DeltaSlackAccountant(1e-5, needed=True))
    crowd = people([0, 0, 0, 0, 1], [0, 1, 2, 2, 3])
    price = 1 / (2 * 5.0**2) / 0.5
    crowd.remaining[1] = int(price * UNITS * 0.99)
    crowd.remaining[2] = int(2 * price * UNITS)
    count.price(1)
    counts, part, spent = count.contribute_and_charge(everyone(5), crowd)
    assert count.publish(counts).tolist() == [2.0]
    assert part.tolist() == [True, False, False, False, True]
    assert spent == pytest.approx(2 * price * UNITS, rel=1e-6)


def test_a_count_of_several_records_costs_the_square_of_their_number():
    """Fails if the longest contribution is charged in place of the one that is made."""
    grid = VoteGrid.fitting(5.0, 100, 1, 1e-5)
    count = NoisyCount(5.0, 0.5, grid, NoNoise(), DeltaSlackAccountant(1e-5, needed=True))
    crowd = people([0] * 6, [0, 0, 0, 1, 1, 2])
    counts, part, spent = count.contribute_and_charge(everyone(6, queries=2), crowd)
    assert count.publish(counts).tolist() == [6.0, 6.0]
    assert part.all()
    costs = UNITS - crowd.remaining
    np.testing.assert_allclose(costs, 2 * np.array([9, 4, 1]) / (2 * 5.0**2) / 0.5 * UNITS)
    assert spent == costs.sum()


def test_the_size_counts_at_most_ten_records_of_a_subject():
    crowd = people([0] * 32, [0] * 30 + [1, 2])
    grid = VoteGrid.fitting(100.0, 1, 1, 1e-5)
    size, spent = noisy_size(crowd, 0.5, grid, NoNoise(), DeltaSlackAccountant(1e-5, needed=True))
    assert size == 12
    costs = (UNITS - crowd.remaining) / UNITS
    np.testing.assert_allclose(costs, [0.05, 0.0005, 0.0005], rtol=1e-4)
    assert spent == int((UNITS - crowd.remaining).sum())
