"""The product against a literal, slow transcription of the algorithm."""

import numpy as np
import pytest

from literal import UNITS, LiteralIndKNN, check_charges, run_literal
from vicinal import IndKNNClassifier

N, D, Q, CLASSES = 60, 5, 25, 3


def world(seed, *, several):
    """Return clustered data small enough for the slow algorithm."""
    rng = np.random.default_rng(seed)
    centres = rng.normal(size=(CLASSES, D))
    y = rng.integers(0, CLASSES, N)
    X = centres[y] + 0.6 * rng.normal(size=(N, D))
    queries = centres[rng.integers(0, CLASSES, Q)] + 0.6 * rng.normal(size=(Q, D))
    reference = centres[rng.integers(0, CLASSES, 40)] + 0.6 * rng.normal(size=(40, D))
    subjects = rng.integers(0, N // 3, N) if several else np.arange(N)
    return X, y, subjects, queries, reference


def literal_of(classifier, X, y, subjects):
    engine = classifier._engine
    count = engine.counter
    return LiteralIndKNN(
        engine.votes.kernel.encode(X), y, subjects.tolist(), CLASSES, engine.votes.budget,
        grid=engine.votes.grid.steps,
        count_grid=count and count.grid.steps,
        sigma1=count and count.scale / count.grid.steps,
        table=classifier._plan.label_charges if classifier.release == "label" else None,
    )  # fmt: skip


def compare(classifier, seed, data_seed, *, several, counts=None):
    """Fit the classifier and compare answers and charges with those of the transcription."""
    X, y, subjects, queries, reference = world(data_seed, several=several)
    classifier.set_params(n_records=N, simulation_seed=seed)
    classifier.fit(X, y, subjects, public=reference)
    literal = literal_of(classifier, X, y, subjects)
    answers = run_literal(literal, classifier._engine, queries, seed, counts)
    if classifier.release == "label":
        np.testing.assert_array_equal(classifier.predict(queries), answers)
    else:
        votes = classifier.decision_function(queries) * classifier._engine.votes.grid.steps
        np.testing.assert_array_equal(votes, answers)
    journal = classifier._engine.shard.ledger.charges_by_block
    assert sum(journal) == sum(UNITS - remaining for remaining in literal.z.values())
    check_charges(classifier._engine, literal, subjects, classifier.noise_multiplier)


several = pytest.mark.parametrize("several", [False, True], ids=["one record", "several records"])
multipliers = pytest.mark.parametrize("multiplier", [0.05, 2.0], ids=["budgets run out", "last"])


@several
@pytest.mark.parametrize("multiplier", [0.3, 3.0], ids=["budgets run out", "last"])
@pytest.mark.parametrize("seed", range(3))
def test_the_paper_preset_is_algorithm_3_charge_for_charge(seed, several, multiplier):
    classifier = IndKNNClassifier.zhu2023(
        range(CLASSES), epsilon=2.0, n_queries=Q, tau=0.5, noise_multiplier=multiplier
    )
    compare(classifier, seed, seed, several=several)


@several
@pytest.mark.parametrize("execution", ["block", "sequential"])
@multipliers
def test_the_default_is_the_same_walk_with_a_public_count(several, execution, multiplier):
    classifier = IndKNNClassifier(
        range(CLASSES), n_queries=Q, n_neighbors=12, noise_multiplier=multiplier,
        execution=execution,
    )  # fmt: skip
    compare(classifier, 3, 7, several=several, counts=[12.0] * Q)


@several
@pytest.mark.parametrize("count", ["public", "private"])
@multipliers
def test_labels_are_the_same_walk_at_the_price_of_labels(several, count, multiplier):
    classifier = IndKNNClassifier(
        range(CLASSES), n_queries=Q, n_neighbors=12, noise_multiplier=multiplier,
        neighbor_count=count, execution="sequential", release="label",
    )  # fmt: skip
    compare(classifier, 4, 8, several=several, counts=[12.0] * Q if count == "public" else None)


def test_the_comparison_can_fail(monkeypatch):
    """A transcription that charges nothing differs: the equality above is not vacuous."""
    monkeypatch.setattr(LiteralIndKNN, "price", lambda *_: 0.0)
    with pytest.raises(AssertionError, match="Arrays are not equal"):
        test_the_paper_preset_is_algorithm_3_charge_for_charge(0, several=False, multiplier=0.3)


@pytest.mark.parametrize("radius", ["adaptive", 0.6])
@pytest.mark.parametrize("kernel", ["cosine", "rbf"])
@pytest.mark.parametrize("budget", ["gdp", "rdp"])
def test_block_equals_sequential_bit_for_bit_when_the_count_is_public(radius, kernel, budget):
    X, y, subjects, _, reference = world(11, several=True)
    queries = np.random.default_rng(5).normal(size=(600, D))
    votes, left = [], []
    for execution in ("block", "sequential"):
        classifier = IndKNNClassifier(
            range(CLASSES), n_queries=600, n_neighbors=10, noise_multiplier=0.2, kernel=kernel,
            min_similarity=radius, bandwidth="auto" if radius == "adaptive" else 1.5,
            accounting=budget, execution=execution, n_records=N, simulation_seed=1,
        ).fit(X, y, subjects, public=reference)  # fmt: skip
        votes.append(classifier.decision_function(queries))
        left.append(classifier._engine.shard.ledger.remaining.copy())
    np.testing.assert_array_equal(votes[0], votes[1])
    np.testing.assert_array_equal(left[0], left[1])
    assert (left[0] < 2**47).any()
