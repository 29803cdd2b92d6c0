"""Figures of audits: how often they are wrong, how soon they catch, what a service gives away."""

import numpy as np
import pytest

from experiments.audits import one_run, power, service, tightness
from experiments.audits.adversaries import Adversary, Margin
from experiments.audits.kept import RunFolder
from vicinal.audit import AuditTrial, GaussianClaim, IndKNNAudit
from vicinal.errors import InvalidInput


class Shift(AuditTrial):
    """A Gaussian shift, beside a claim that may be too small."""

    mechanism, world = "shift", "anywhere"

    def __init__(self, shift, claim):
        self.shift, self.claim = shift, GaussianClaim(claim, 1e-5)
        self.rng = np.random.default_rng(2)

    def play(self, present):
        return self.rng.normal(size=1000) + self.shift * present

    def controls(self):
        return {"broken": Shift(3.0, 1.0)}


NOWHERE = RunFolder(None, {})


def test_small_audits_are_wrong_as_seldom_as_the_table_allows():
    makers = {"kept": lambda: Shift(1.0, 1.0), "passed": lambda: Shift(2.0, 1.0)}
    kept, passed = power.wrong(makers, audits=40, runs=100, confidence=0.9, folder=NOWHERE)
    assert (kept.audits, kept.allowed) == (40, pytest.approx(0.1))
    assert kept.above <= 4
    assert kept.above / 40 < kept.at_most < 0.25
    assert passed.above > 30


def test_a_broken_version_is_caught_and_timed():
    makers = {"shift": lambda: Shift(1.0, 1.0)}
    (found,) = power.caught(makers, 3, 4096, 1 - 1e-6, NOWHERE)
    assert (found.caught, found.audits, found.most_runs) == (3, 3, power.STRETCH)
    assert found.at_least == pytest.approx(0.05 ** (1 / 3))


def test_an_audit_that_uses_up_its_runs_has_caught_nothing():
    honest = Shift(1.0, 1.0)
    honest.controls = lambda: {"as it is": Shift(1.0, 1.0)}
    (found,) = power.caught({"shift": lambda: honest}, 2, 2048, 1 - 1e-6, NOWHERE)
    assert (found.caught, found.most_runs, found.at_least) == (0, 2048, 0)


@pytest.mark.parametrize("mu", [0.0, -0.1])
def test_of_no_shift_nothing_can_be_shown(mu):
    """A test of few runs may be compared where the claim allows nothing: the table must go on."""
    assert tightness.possible_ratio(mu, 128, 1 - 1e-6) == 0


def test_kept_runs_are_handed_out_once_and_go_on_after_an_interruption(tmp_path):
    first = RunFolder(tmp_path / "runs", {"epsilon": 1.0}).kept("a", Shift(1.0, 1.0), 300)
    seen = np.concatenate([first.play(present=True) for _ in range(4)])
    assert len(np.unique(seen)) == 1200
    with (tmp_path / "runs" / "a" / "present.f8").open("ab") as file:
        file.write(b"cut")
    again = RunFolder(tmp_path / "runs", {"epsilon": 1.0}).kept("a", Unplayable(1.0, 1.0), 300)
    assert np.array_equal(np.concatenate([again.play(present=True) for _ in range(6)])[:1200], seen)
    assert again.seconds >= 0
    with pytest.raises(AssertionError, match="played"):
        again.play(present=True)


class Unplayable(Shift):
    """Whose runs must come from the disk."""

    def play(self, present):
        raise AssertionError(f"played {present}")


def test_runs_of_other_settings_are_never_mixed(tmp_path):
    RunFolder(tmp_path, {"epsilon": 1.0})
    with pytest.raises(InvalidInput, match="other settings"):
        RunFolder(tmp_path, {"epsilon": 2.0})


def test_the_rule_of_2023_is_read_as_it_was_printed():
    for guesses, delta, printed in one_run.PINS[:2]:
        assert one_run.rule_of_2023(guesses, 0.05, delta) == pytest.approx(printed, abs=1e-3)


def test_the_area_under_a_curve_is_that_of_all_pairs():
    rng = np.random.default_rng(0)
    present, absent = rng.integers(0, 9, 60).astype(float), rng.integers(0, 9, 50).astype(float)
    pairs = (present[:, None] > absent).mean() + (present[:, None] == absent).mean() / 2
    area, low, high = service.auc_interval(present, absent)
    assert area == pytest.approx(pairs)
    assert low < area < high


def test_the_interval_of_an_area_is_wrong_as_seldom_as_it_says():
    rng = np.random.default_rng(1)
    found = [service.auc_interval(*rng.normal(size=(2, 100))) for _ in range(400)]
    assert np.mean([low <= 0.5 <= high for _, low, high in found]) > 0.92
    _, low, _ = service.auc_interval(rng.normal(size=100) + 1, rng.normal(size=100))
    assert low > 0.5, "a difference is seen"


@pytest.mark.slow
def test_a_service_gives_away_no_more_than_it_claims():
    """Two worlds over HTTP, in short; `python -m experiments audit-service` has the figures."""
    seen = service.attacked(IndKNNAudit(2, 4.0), 0.0, 60, rounds=1, stores=1, confidence=1 - 1e-6)
    assert seen.lower <= seen.claim
    assert seen.universes == 60
    assert 0 <= seen.low < seen.high <= 1 or seen.auc in (0, 1)


def test_adversaries_are_named_by_what_they_choose():
    assert str(Adversary(data=True, neighbors=False, queries=True)) == "data, queries"
    assert str(Adversary(data=False, neighbors=False, queries=False)) == "nothing"


def test_a_lead_counts_for_the_class_of_the_subject():
    answers = np.array([[5.0, 2.0], [1.0, 4.0]])
    assert Margin(0).score(np.array([True, False, True]), answers).tolist() == [3, 0, -3]
    assert Margin(1).score(np.array([True, True]), answers).tolist() == [-3, 3]
