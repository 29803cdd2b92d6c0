"""The experiment of promises: attacks find what is there, and no more than is proven."""

import numpy as np
import pytest

from experiments.accuracy import promises
from vicinal.reports.demo import Trial

EVERY = dict(promises.METHODS)


@pytest.fixture(scope="module")
def trial():
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(460, 4)).astype(np.float32)
    labels = (rows[:, 0] > 0).astype(int)
    return Trial(range(2), rows[:300], labels[:300], rows[300:400], rows[400:], labels[400:])


def row(trial, monkeypatch, name, games=80):
    monkeypatch.setattr(promises, "METHODS", {name: EVERY[name]})
    monkeypatch.setattr(promises, "ACCURACY_RUNS", 1)
    monkeypatch.setattr(promises, "PILOTS", min(games, 20))
    (found,) = promises.measured("made up", trial, 4.0, len(trial.queries), games)
    return found


def test_an_attack_on_neighbours_without_noise_is_always_right(trial, monkeypatch):
    found = row(trial, monkeypatch, "10 neighbours, no noise")
    assert found.measured == 1
    assert found.at_least > 0.9
    assert found.proven == 1


def test_a_promise_of_the_average_case_is_broken_by_a_chosen_record(trial, monkeypatch):
    """A record that no neighbour agrees with: in its own game half of all halves hide it."""
    worst = row(trial, monkeypatch, "PAC prediction")
    assert worst.proven == 1 > worst.promised
    assert worst.at_least > row(trial, monkeypatch, "PAC prediction, its own game").measured


@pytest.mark.parametrize("name", sorted(set(EVERY) - {"10 neighbours, no noise", "PATE"}))
def test_every_method_answers_and_states_a_guess(trial, monkeypatch, name):
    found = row(trial, monkeypatch, name, games=4)
    assert 0.5 < found.promised <= found.proven <= 1
    assert 0 <= found.accuracy <= 1
