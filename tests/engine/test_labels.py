"""Ind-KNN that gives labels alone: what leaves, what is charged, what is refused."""

import numpy as np
import pytest

from made_up import NoNoise
from vicinal import IndKNNClassifier
from vicinal.accounting.budget import UNITS, gdp_epsilon, zcdp_budget
from vicinal.accounting.charges import compute_charge
from vicinal.accounting.label_filter import build_charge_table
from vicinal.errors import PrivacyRefused
from vicinal.mechanisms import DeltaSlackAccountant, VoteGrid
from vicinal.mechanisms.noisy_labels import NoisyLabels
from vicinal.mechanisms.subject_table import SubjectTable
from vicinal.neighbours import Cosine, NeighbourLists

CLASSES = 10


@pytest.fixture(scope="module")
def table():
    return build_charge_table(zcdp_budget(1.0, 0.99e-5), 5e-8, CLASSES)


def labels_of(table, noise):
    grid = VoteGrid.choose(noise, 100, CLASSES, 1e-5)
    meter = DeltaSlackAccountant(1e-5, needs_slack=True)
    return NoisyLabels(Cosine(), 2, CLASSES, table, grid, NoNoise(), meter)


def one_query(labels, slots):
    """Return neighbours of one query, all at the full weight, and the people behind them."""
    slots = np.array(slots, dtype=np.int32)
    records = np.bincount(slots).astype(np.int32)
    remaining = np.full(len(records), UNITS, dtype=np.int64)
    near = NeighbourLists(
        np.array([0, len(slots)]),
        np.arange(len(slots), dtype=np.int32),
        np.full(len(slots), 4094**2, dtype=np.int32),
    )
    return near, SubjectTable(np.array(labels, dtype=np.int32), slots, records, remaining)


def test_a_label_leaves_and_ties_go_to_the_first_class(table):
    release = labels_of(table, 5.0).prepare_release(np.array([5.0, 5.0]))
    votes = np.array([[0, 3, 7, 7] + [0] * 6, [0] * 10])
    np.testing.assert_array_equal(release.publish(votes), [2, 0])


@pytest.mark.parametrize(("noise", "most"), [(9.0, 0.8), (20.0, 0.7), (90.0, 0.65)])
def test_one_vote_costs_the_share_of_its_table(table, noise, most):
    near, people = one_query([3], [0])
    release = labels_of(table, noise).prepare_release(np.array([noise]))
    votes, spent = release.contribute_and_charge(near, people)
    mu = votes.max() / release.scales[0]
    assert mu == pytest.approx(1 / noise, rel=1e-3)
    cost = spent / UNITS * table.budget
    assert cost == pytest.approx(float(table.compute_share(mu)) * mu**2 / 2, rel=1e-9)
    assert 2 / np.pi < cost / (0.9 * mu**2 / 2) < most
    assert people.remaining[0] == UNITS - spent


def test_a_subject_that_moves_two_classes_pays_as_for_votes(table):
    near, people = one_query([3, 4], [0, 0])
    release = labels_of(table, 40.0).prepare_release(np.array([40.0]))
    votes, spent = release.contribute_and_charge(near, people)
    assert (votes > 0).sum() == 2
    assert spent < UNITS / 2, "a contribution cut to the budget has that price at any rate"
    assert spent == compute_charge(int(np.square(votes).sum()), release.prices.rates[0])
    cost = spent / UNITS * table.budget
    mu_squared = float((np.square(votes.astype(float)) / float(release.scales[0]) ** 2).sum())
    assert cost == pytest.approx(mu_squared / 2, rel=1e-9)


def test_several_records_of_one_class_are_one_coordinate(table):
    near, people = one_query([3, 3], [0, 0])
    release = labels_of(table, 40.0).prepare_release(np.array([40.0]))
    votes, spent = release.contribute_and_charge(near, people)
    mu = votes.max() / release.scales[0]
    assert mu == pytest.approx(2 / 40, rel=1e-3)
    assert spent / UNITS * table.budget == pytest.approx(float(table.compute_share(mu)) * mu**2 / 2)


def test_a_label_costs_more_of_what_is_nearly_spent(table):
    release = labels_of(table, 12.0).prepare_release(np.full(60, 12.0))
    near, people = one_query([3], [0])
    near = NeighbourLists(np.arange(61), np.tile(near.rows, 60), np.tile(near.similarities, 60))
    left, charges = UNITS, []
    for query in range(60):
        release.select_queries(slice(query, query + 1)).contribute_and_charge(
            near.select_queries(query, query + 1), people
        )
        charges.append(left - int(people.remaining[0]))
        left = int(people.remaining[0])
    full = [cost for cost in charges if cost > 0]
    assert full[0] < full[len(full) // 2] < max(full)
    assert sum(charges) <= UNITS


def fitted(**parameters):
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, 900)
    X = np.eye(3, 8)[y] * 3 + rng.normal(size=(900, 8))
    classifier = IndKNNClassifier(
        range(3), n_queries=200, n_records=600, **{"release": "label", **parameters}
    )
    return classifier.fit(X[:600], y[:600], public=X[600:800]), X[800:], y[800:]


def test_labels_are_given_and_counted():
    classifier, queries, answers = fitted(epsilon=4.0)
    assert (classifier.predict(queries) == answers).mean() > 0.7
    assert classifier.n_answers_ == len(queries)


def test_what_is_not_paid_for_is_refused_and_nothing_is_spent():
    classifier, queries, _ = fitted()
    before = classifier._engine.shard.ledger.remaining.copy()
    with pytest.raises(PrivacyRefused, match="release='votes'"):
        classifier.decision_function(queries)
    with pytest.raises(PrivacyRefused, match="release='votes'"):
        classifier.predict(queries, abstain_below=1.0)
    np.testing.assert_array_equal(before, classifier._engine.shard.ledger.remaining)
    assert classifier.n_answers_ == 0


def test_the_guarantee_says_that_labels_alone_leave():
    classifier, _, _ = fitted()
    guarantee = classifier.guarantee()
    assert "label alone" in str(guarantee)
    assert (guarantee.epsilon, guarantee.delta) == (1.0, 1e-5)
    assert gdp_epsilon(np.sqrt(2 * classifier._plan.label_charges.budget), 0.99e-5) <= 1.0


SETTINGS = [(0.5, 10), (1.0, 2), (2.0, 10)]
OTHERS = [(0.5, 2), (1.0, 10), (2.0, 2)]


@pytest.mark.parametrize(
    ("epsilon", "n_classes"),
    [*SETTINGS, *(pytest.param(*other, marks=pytest.mark.soak) for other in OTHERS)],
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
