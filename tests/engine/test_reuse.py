"""Earlier answers as voters, in the published algorithm."""

import numpy as np
import pytest
from sklearn.base import clone

from made_up import corners as data
from vicinal import IndKNNClassifier
from vicinal.engine.answer_reuse import AnsweredNeighbours
from vicinal.errors import InvalidInput
from vicinal.neighbours import Cosine

CLASSES, D, N = 3, 8, 2000


def test_answered_queries_vote_with_their_kernel_weight_and_are_counted():
    kernel = Cosine()
    weights = np.arange(1 << 16, dtype=np.int64)  # a level's weight is its number
    memory = AnsweredNeighbours(kernel, weights, D, CLASSES)
    X, _ = data(5, 40)
    known, asked = kernel.encode(X[:30]), kernel.encode(X[30:])
    labels = np.arange(30) % CLASSES
    memory.add_answers(known[:12], labels[:12])
    memory.add_answers(known[12:], labels[12:])
    threshold = kernel.similarity_at(0.4, D)
    support = memory.sum_votes(asked, np.full(10, threshold))
    similarities = asked.astype(np.int64) @ known.astype(np.int64).T
    inside = similarities >= threshold
    np.testing.assert_array_equal(support.counts, inside.sum(axis=1))
    assert 0 < inside.sum() < inside.size
    for j in range(10):
        for label in range(CLASSES):
            chosen = inside[j] & (labels == label)
            levels = kernel.levels(similarities[j][chosen].astype(np.int32))
            assert support.votes[j, label] == levels.sum()


def published(**parameters):
    given = {"epsilon": 5.0, "n_queries": 600, "tau": 0.5, "noise_multiplier": 20.0}
    X, y = data(0, N)
    return IndKNNClassifier.zhu2023(
        range(CLASSES), simulation_seed=1, **{**given, **parameters}
    ).fit(X, y)


def test_votes_of_earlier_answers_cost_nobody_anything():
    """With the same noise multiplier every vote costs less: K has grown, nobody else pays."""
    queries = np.repeat(data(7, 1)[0], 600, axis=0)

    def spent(multiplier, reuse):
        plan = {"n_queries": 3000, "noise_multiplier": multiplier, "execution": "block"}
        classifier = published(reuse_predictions=reuse, **plan)
        classifier.predict(queries)
        return sum(classifier._engine.shard.ledger.charges_by_block)

    counts = spent(1e4, reuse=False)  # votes cost next to nothing
    assert 0 < spent(2.0, reuse=True) - counts < 0.8 * (spent(2.0, reuse=False) - counts)


def test_a_sequential_walk_learns_after_every_query():
    query = data(7, 1)[0]
    classifier = published(reuse_predictions=True)
    memory = classifier._engine.answered_neighbours
    classifier.predict(np.repeat(query, 5, axis=0))
    assert classifier._engine.block_size == 1
    encoded = classifier._engine.votes.kernel.encode(query)
    assert memory.sum_votes(encoded, classifier._engine.radius.thresholds(encoded)).counts[0] == 5


def test_earlier_answers_vote_in_the_published_algorithm_alone():
    assert clone(published(reuse_predictions=True)).reuse_predictions is True
    X, y = data(0, N)
    with pytest.raises(InvalidInput, match="'reuse_predictions'"):
        IndKNNClassifier(range(CLASSES), reuse_predictions=True).fit(X, y, public=data(9, 50)[0])
