"""Grids, delta slack and counts in small cases."""

import numpy as np
import pytest

from made_up import NoNoise
from vicinal.accounting.budget import UNITS
from vicinal.accounting.gaussian import compute_grid_slack
from vicinal.errors import InvalidInput, PrivacyRefused
from vicinal.mechanisms import DeltaSlackAccountant, VoteGrid
from vicinal.mechanisms.count import release_noisy_size
from vicinal.mechanisms.subject_table import SubjectTable
from vicinal.mechanisms.votes import MIN_SCALE, NoisyVotes
from vicinal.neighbours import Cosine


def make_subjects(labels, slots, units=UNITS):
    slots = np.array(slots, dtype=np.int32)
    records = np.bincount(slots).astype(np.int32)
    remaining = np.full(len(records), units, dtype=np.int64)
    return SubjectTable(np.array(labels, dtype=np.int32), slots, records, remaining)


def make_mechanism(budget=0.5, noise=2.0, n_classes=3, meter=None):
    grid = VoteGrid.choose(noise, 100, n_classes, 1e-5)
    meter = meter or DeltaSlackAccountant(1e-5, needs_slack=True)
    return NoisyVotes(Cosine(), 2, n_classes, budget, grid, NoNoise(), meter)


def test_a_plan_gets_the_coarsest_grid_of_the_promised_steps_or_is_refused():
    for noise in (0.05, 1.0, 3.7, 500.0):
        grid = VoteGrid.choose(noise, 1000, 10, 1e-5)
        assert grid.convert_noise(noise) >= MIN_SCALE
        assert grid.steps & (grid.steps - 1) == 0
    steps = VoteGrid.choose(2.0, 3000, 10, 1e-9).steps
    assert 2 * steps > 8 * MIN_SCALE
    used = [3000 * 10 * compute_grid_slack(scale) for scale in (2 * steps, steps)]
    assert used[0] < 0.01 * 1e-9 / 200 < used[1]
    with pytest.raises(InvalidInput, match="noise"):
        VoteGrid.choose(1e-4, 1000, 10, 1e-5)


def test_the_meter_adds_up_and_refuses_once_its_share_is_used():
    meter = DeltaSlackAccountant(1e-5, needs_slack=True)
    meter.charge([MIN_SCALE] * 3, 10)
    assert meter.spent == pytest.approx(30 * compute_grid_slack(MIN_SCALE))
    with pytest.raises(PrivacyRefused):
        meter.charge([10], 10)
    assert meter.spent == pytest.approx(30 * compute_grid_slack(MIN_SCALE)), (
        "a refusal costs nothing"
    )
    DeltaSlackAccountant(1e-5, needs_slack=False).charge([10] * 100, 10)


def test_a_refused_release_charges_nobody():
    votes = make_mechanism(meter=DeltaSlackAccountant(1e-13, needs_slack=True))
    with pytest.raises(PrivacyRefused):
        votes.prepare_release(np.array([2.0]))


def test_the_size_counts_at_most_ten_records_of_a_subject():
    crowd = make_subjects([0] * 32, [0] * 30 + [1, 2])
    grid = VoteGrid.choose(100.0, 1, 1, 1e-5)
    slack = DeltaSlackAccountant(1e-5, needs_slack=True)
    size, spent = release_noisy_size(crowd, 0.5, grid, NoNoise(), slack)
    assert size == 12
    costs = (UNITS - crowd.remaining) / UNITS
    np.testing.assert_allclose(costs, [0.05, 0.0005, 0.0005], rtol=1e-4)
    assert spent == int((UNITS - crowd.remaining).sum())
