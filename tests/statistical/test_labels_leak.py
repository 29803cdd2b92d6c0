"""Audits of labels alone: an attacker learns no more from them than is claimed, and nearly it."""

import warnings
from functools import cache

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import norm

from statistical.power import BROKEN_RUNS, RUNS, UNIVERSES
from statistical.worlds import audit, charge_only, universes
from vicinal import IndKNNClassifier, testing
from vicinal.accounting.budget import zcdp_budget
from vicinal.accounting.label_filter import build_charge_table
from vicinal.errors import PrivacyWarning
from vicinal.mechanisms.noisy_labels import LabelRelease

pytestmark = [pytest.mark.statistical, pytest.mark.slow]

EPSILON, DELTA, CLASSES = 4.0, 1e-5, 3
LASTS = 32
"""Labels that a victim's budget pays for."""


@cache
def table(classes):
    """Return the charges; priced in a second, so not while tests are collected."""
    return build_charge_table(zcdp_budget(EPSILON, 0.99 * DELTA), 0.005 * DELTA, classes)


@cache
def shift(classes=CLASSES):
    """Return a victim's contribution in noise scales: a budget pays for LASTS labels."""
    worth = table(classes).compute_votes_budget(0.3)
    return float(np.sqrt(2 * worth / LASTS))


def make():
    neighbors = 4
    return IndKNNClassifier(
        range(CLASSES), EPSILON, DELTA, n_queries=100_000, n_neighbors=neighbors,
        n_records=neighbors * UNIVERSES, noise_multiplier=1 / shift() / np.sqrt(neighbors),
        release="label",
    )  # fmt: skip


def lonely_victims(rounds):
    """Nobody else votes: the closest race, in which one vote says most."""
    return universes([(1.0, 0)], [(0.1, 1)], rounds=rounds)


def ask_for_labels(classifier, world, victims):
    classifier.fit(*world.build_records(victims), public=world.public)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivacyWarning)
        return classifier.predict(world.queries).reshape(-1, world.n_copies)


def share_of_wins(labels):
    """Score a universe: how often class 0 won, from 0 as by chance to 1 as with the victim."""
    chance = 1 / CLASSES
    won = quad(lambda z: norm.pdf(z) * norm.cdf(z + shift()) ** (CLASSES - 1), -9, 9)[0]
    return ((labels == 0).mean(axis=0) - chance) / (won - chance)


def measured(rounds, runs):
    world = lonely_victims(rounds)
    return audit(make, world, share_of_wins, interaction=ask_for_labels, runs=runs)


def claim():
    """Return the mu of the budget."""
    return float(np.sqrt(2 * table(CLASSES).budget))


def test_labels_leak_no_more_than_claimed_and_nearly_that():
    found = measured(LASTS, RUNS)
    print(f"measured mu {found.mu:.3f} and epsilon {found.epsilon:.3f}, claimed {claim():.3f}")
    assert found.mu <= claim()
    assert found.epsilon <= EPSILON
    assert found.mu > claim() / 2


def test_a_classifier_claims_what_the_audit_compares_with():
    assert claimed_mu_of_labels() == pytest.approx(claim())


def claimed_mu_of_labels():
    world = lonely_victims(1)
    classifier = make()
    ask_for_labels(classifier, world, victims=False)
    return np.sqrt(2 * classifier.budget_)


def skip_the_charge(patch):
    """Contributions are made, and budgets are put back as they were."""
    charge_only(patch, LabelRelease, np.zeros_like)


def cut_the_noise(patch):
    patch.setattr(
        "vicinal.planning.engine_factory.create_noise_source", lambda _: testing.weak_noise(3)
    )


@pytest.mark.parametrize(
    ("break_it", "rounds"),
    [
        pytest.param(skip_the_charge, 4 * LASTS, id="charge skipped"),
        pytest.param(cut_the_noise, LASTS, id="a third of the noise"),
    ],
)
def test_a_broken_version_is_caught(break_it, rounds, monkeypatch):
    break_it(monkeypatch)
    assert measured(rounds, BROKEN_RUNS).mu > claim()


def test_the_honest_version_passes_what_the_broken_one_fails():
    """Fails if labels stay informative once the budget is spent; or if the audit cries wolf."""
    assert measured(4 * LASTS, BROKEN_RUNS).mu <= claim()


def make_scored():
    neighbors = 4
    return IndKNNClassifier(
        range(2), EPSILON, DELTA, n_queries=100_000, n_neighbors=neighbors,
        n_records=neighbors * UNIVERSES, noise_multiplier=1 / shift(None) / np.sqrt(neighbors),
        release="label", class_prior=(0.9, 0.1), cost="balanced",
    )  # fmt: skip


def rare_victims(rounds):
    return universes([(1.0, 1)], [(0.1, 0)], rounds=rounds)


def share_of_rare_labels():
    """Return the score of a universe; how often a class wins follows from the rule alone."""
    classifier = make_scored()
    ask_for_labels(classifier, rare_victims(1), victims=False)
    noise = 1 / shift(None)
    votes = np.random.default_rng(0).normal(0, noise, (200_000, 2))
    decision = classifier._engine.decision
    chance, won = (
        decision.decide_labels(votes + np.array([0.0, more]), noise).mean() for more in (0.0, 1.0)
    )
    assert won > chance
    return lambda labels: ((labels == 1).mean(axis=0) - chance) / (won - chance)


def measured_by_scores(rounds, runs):
    return audit(
        make_scored, rare_victims(rounds), share_of_rare_labels(), interaction=ask_for_labels,
        runs=runs,
    )  # fmt: skip


def test_labels_by_scores_leak_no_more_than_claimed():
    found, claimed = measured_by_scores(LASTS, RUNS), float(np.sqrt(2 * table(None).budget))
    print(f"measured mu {found.mu:.3f} and epsilon {found.epsilon:.3f}, claimed {claimed:.3f}")
    assert found.mu <= claimed
    assert found.epsilon <= EPSILON
    assert found.mu > claimed / 3


def test_a_skipped_charge_of_labels_by_scores_is_caught(monkeypatch):
    skip_the_charge(monkeypatch)
    assert measured_by_scores(8 * LASTS, BROKEN_RUNS).mu > np.sqrt(2 * table(None).budget)
