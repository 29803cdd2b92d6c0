"""Ind-KNN that gives labels alone: what leaves, what is charged, what is refused."""

import numpy as np
import pytest

from made_up import NoNoise, corners
from mechanism_tools import make_accountant, make_lists, make_subjects
from vicinal import IndKNNClassifier
from vicinal.accounting.budget import UNITS, gdp_epsilon, zcdp_budget
from vicinal.accounting.charges import compute_charge
from vicinal.accounting.label_filter import build_charge_table
from vicinal.errors import PrivacyRefused
from vicinal.mechanisms import VoteGrid
from vicinal.mechanisms.noisy_labels import NoisyLabels
from vicinal.neighbours import Cosine

CLASSES = 10


@pytest.fixture(scope="module")
def table():
    return build_charge_table(zcdp_budget(1.0, 0.99e-5), 5e-8, CLASSES)


def prepare_release(table, noise, n_queries=1):
    grid = VoteGrid.choose(noise, 100, CLASSES, 1e-5)
    labels = NoisyLabels(Cosine(), 2, CLASSES, table, grid, NoNoise(), make_accountant())
    return labels.prepare_release(np.full(n_queries, noise))


def charge_subject(table, classes, noise):
    """Return the release, votes and units charged, of a subject with records of these classes."""
    release, subject = prepare_release(table, noise), make_subjects(classes, [0] * len(classes))
    votes, spent = release.contribute_and_charge(make_lists(len(classes)), subject)
    assert subject.remaining[0] == UNITS - spent
    return release, votes, spent


def test_a_label_leaves_and_ties_go_to_the_first_class(table):
    votes = np.array([[0, 3, 7, 7] + [0] * 6, [0] * 10])
    np.testing.assert_array_equal(prepare_release(table, 5.0, 2).publish(votes), [2, 0])


@pytest.mark.parametrize(("noise", "most"), [(9.0, 0.8), (20.0, 0.7), (90.0, 0.65)])
@pytest.mark.parametrize("n_records", [1, 2])
def test_records_of_one_class_cost_the_share_of_the_table(table, noise, most, n_records):
    release, votes, spent = charge_subject(table, [3] * n_records, n_records * noise)
    mu = votes.max() / release.scales[0]
    assert mu == pytest.approx(1 / noise, rel=1e-3)
    cost = spent / UNITS * table.budget
    assert cost == pytest.approx(float(table.compute_share(mu)) * mu**2 / 2, rel=1e-9)
    assert 2 / np.pi < cost / (0.9 * mu**2 / 2) < most


def test_a_subject_that_moves_two_classes_pays_as_for_votes(table):
    release, votes, spent = charge_subject(table, [3, 4], 40.0)
    assert (votes > 0).sum() == 2
    assert spent < UNITS / 2, "a contribution cut to the budget has that price at any rate"
    assert spent == compute_charge(int(np.square(votes).sum()), release.prices.rates[0])
    mu_squared = float((np.square(votes.astype(float)) / float(release.scales[0]) ** 2).sum())
    assert spent / UNITS * table.budget == pytest.approx(mu_squared / 2, rel=1e-9)


def test_a_label_costs_more_of_what_is_nearly_spent(table):
    release, subject = prepare_release(table, 12.0, 60), make_subjects([3], [0])
    charges = []
    for query in range(60):
        part = release.select_queries(slice(query, query + 1))
        charges.append(part.contribute_and_charge(make_lists(1), subject)[1])
    full = [cost for cost in charges if cost > 0]
    assert full[0] < full[len(full) // 2] < max(full)
    assert sum(charges) == UNITS - subject.remaining[0] <= UNITS


def fitted():
    """Return a classifier fitted to 600 records, 100 queries and their classes."""
    X, y = corners(0, 900)
    classifier = IndKNNClassifier(range(3), n_queries=200, n_records=600, release="label")
    return classifier.fit(X[:600], y[:600], public=X[600:800]), X[800:], y[800:]


def test_labels_are_given_and_counted():
    classifier, queries, answers = fitted()
    assert (classifier.predict(queries) == answers).mean() > 0.7
    assert classifier.n_answers_ == len(queries)


def test_the_guarantee_is_for_labels_alone_and_votes_are_refused_at_no_cost():
    classifier, queries, _ = fitted()
    guarantee = classifier.guarantee()
    assert "label alone" in str(guarantee)
    assert (guarantee.epsilon, guarantee.delta) == (1.0, 1e-5)
    assert gdp_epsilon(np.sqrt(2 * classifier._plan.label_charges.budget), 0.99e-5) <= 1.0
    before = classifier._engine.shard.ledger.remaining.copy()
    with pytest.raises(PrivacyRefused, match="release='votes'"):
        classifier.decision_function(queries)
    with pytest.raises(PrivacyRefused, match="release='votes'"):
        classifier.predict(queries, abstain_below=1.0)
    np.testing.assert_array_equal(before, classifier._engine.shard.ledger.remaining)
    assert classifier.n_answers_ == 0


@pytest.mark.parametrize(
    ("epsilon", "n_classes"),
    [(0.5, 10), (1.0, 2), (2.0, 10)]
    + [pytest.param(*other, marks=pytest.mark.soak) for other in [(0.5, 2), (1.0, 10), (2.0, 2)]],
)
def test_labels_are_planned_with_less_noise_than_votes(epsilon, n_classes):
    """Fails if a price of labels is used that is not theirs; each epsilon and number in turn."""
    rng = np.random.default_rng(1)
    X, y = rng.normal(size=(5000, 8)), rng.integers(0, n_classes, 5000)
    noise = {
        release: IndKNNClassifier(
            range(n_classes), epsilon, n_queries=1000, n_records=5000, n_neighbors=100,
            release=release,
        ).fit(X, y, public=X[:1000] + 1e-3).noise_multiplier_
        for release in ("votes", "label")
    }  # fmt: skip
    saved = (noise["votes"] / noise["label"]) ** 2
    assert saved > {2: 1.9, 10: 1.08}[n_classes]
    assert saved < np.pi / 2 / (1 - 1 / n_classes), "the gain of very small votes"
