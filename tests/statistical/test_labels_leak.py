"""Audits of labels alone: an attacker learns no more from them than is claimed, and nearly it.

A *universe* is a direction of its own in feature space with a victim, another subject and some
queries; nobody in another universe is near. Noise is sampled for each query by itself, so every
universe is an independent trial of the same attack. In every test `by_scores` is whether class
shares and costs decide on two classes; otherwise the class with the most votes wins, of three.
"""

import warnings
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from statistical.power import BROKEN_RUNS, CONFIDENCE, RUNS, UNIVERSES
from vicinal import IndKNNClassifier, testing
from vicinal.accounting.budget import zcdp_budget
from vicinal.accounting.label_filter import build_charge_table
from vicinal.audit.claims import GaussianClaim
from vicinal.audit.interactions import build_attack_copies
from vicinal.audit.schedule import bound_best_test
from vicinal.errors import PrivacyWarning
from vicinal.mechanisms.noisy_labels import LabelRelease

pytestmark = [pytest.mark.statistical, pytest.mark.slow]

EPSILON, DELTA, NEIGHBORS = 4.0, 1e-5, 4
LASTS = 16
"""Labels that a victim's budget pays for."""


@cache
def table(by_scores):
    """Return the charges; priced in a second, so not while tests are collected."""
    n_classes = None if by_scores else 3
    return build_charge_table(zcdp_budget(EPSILON, 0.99 * DELTA), 0.005 * DELTA, n_classes)


def claim(by_scores):
    """Return the mu of the budget."""
    return float(np.sqrt(2 * table(by_scores).budget))


@cache
def noise(by_scores):
    """Return the noise scale in victims' votes at which a budget pays for LASTS labels."""
    return float(np.sqrt(LASTS / 2 / table(by_scores).compute_votes_budget(0.3)))


def make(by_scores):
    rule = {"class_prior": (0.9, 0.1), "cost": "balanced"} if by_scores else {}
    return IndKNNClassifier(
        range(2 if by_scores else 3), EPSILON, DELTA, n_queries=100_000, n_neighbors=NEIGHBORS,
        n_records=NEIGHBORS * UNIVERSES, noise_multiplier=noise(by_scores) / np.sqrt(NEIGHBORS),
        release="label", **rule,
    )  # fmt: skip


def lonely_victims(by_scores, rounds):
    """Nobody else votes: the closest race, in which one vote says most. A rare class has it."""
    victim, other = (1, 0) if by_scores else (0, 1)
    copies = build_attack_copies(
        [(1.0, victim)], [(0.1, other)], n_copies=UNIVERSES, duplicates_background=False
    )
    return replace(copies, queries=np.tile(copies.queries, (rounds, 1)))


def ask_for_labels(classifier, world, *, victims):
    classifier.fit(*world.build_records(victims), public=world.public)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivacyWarning)
        return classifier.predict(world.queries).reshape(-1, world.n_copies)


def share_of_wins(by_scores):
    """Return a score of labels (rounds, universes): 0 on average by chance, 1 with the victim.

    How often the victim's class wins follows from the rule of decision and the noise alone.
    """
    classifier, world = make(by_scores), lonely_victims(by_scores, 1)
    ask_for_labels(classifier, world, victims=False)
    assert np.sqrt(2 * classifier.budget_) == pytest.approx(claim(by_scores))
    scale, victim = noise(by_scores), int(world.victims.y[0])
    votes = np.random.default_rng(0).normal(0, scale, (200_000, len(classifier.classes_)))
    decide = classifier._engine.decision.decide_labels
    chance, won = (
        (decide(votes + vote * np.eye(len(votes.T))[victim], scale) == victim).mean()
        for vote in (0, 1)
    )
    assert won > chance
    return lambda labels: ((labels == victim).mean(axis=0) - chance) / (won - chance)


def measured(by_scores, rounds, runs, patch=None, break_it=None):
    """Return the proven mu and epsilon; what breaks the classifier comes after the calibration."""
    score, world = share_of_wins(by_scores), lonely_victims(by_scores, rounds)
    if break_it is not None:
        break_it(patch)
    present, absent = (
        [score(ask_for_labels(make(by_scores), world, victims=victims)) for _ in range(runs)]
        for victims in (True, False)
    )
    claimed = GaussianClaim(claim(by_scores), DELTA)
    rates, epsilon = bound_best_test(
        claimed, np.concatenate(present), np.concatenate(absent), CONFIDENCE
    )
    return rates.mu, epsilon


@pytest.mark.parametrize(("by_scores", "tightness"), [(False, 1 / 2), (True, 1 / 3)])
def test_labels_leak_no_more_than_claimed_and_nearly_that(by_scores, tightness):
    mu, epsilon = measured(by_scores, LASTS, RUNS)
    claimed = claim(by_scores)
    print(f"measured mu {mu:.3f} and epsilon {epsilon:.3f}, claimed {claimed:.3f}")
    assert tightness * claimed < mu <= claimed
    assert epsilon <= EPSILON


def skip_the_charge(patch):
    """Contributions are made, and budgets are put back as they were."""
    honest = LabelRelease.contribute_and_charge

    def collect(self, near, subjects):
        before = subjects.remaining.copy()
        result = honest(self, near, subjects)
        subjects.remaining[:] = before
        return result

    patch.setattr(LabelRelease, "contribute_and_charge", collect)


def cut_the_noise(patch):
    patch.setattr(
        "vicinal.planning.engine_factory.create_noise_source", lambda _: testing.weak_noise(3)
    )


@pytest.mark.parametrize(
    ("by_scores", "break_it", "rounds"),
    [
        pytest.param(False, skip_the_charge, 6 * LASTS, id="charge skipped"),
        pytest.param(False, cut_the_noise, LASTS, id="a third of the noise"),
        pytest.param(True, skip_the_charge, 12 * LASTS, id="charge by scores skipped"),
    ],
)
def test_a_broken_version_is_caught(by_scores, break_it, rounds, monkeypatch):
    mu, _ = measured(by_scores, rounds, BROKEN_RUNS, monkeypatch, break_it)
    assert mu > claim(by_scores)


def test_the_honest_version_passes_what_the_broken_one_fails():
    """Fails if labels stay informative once the budget is spent; or if the audit cries wolf."""
    assert measured(False, 6 * LASTS, BROKEN_RUNS)[0] <= claim(False)
