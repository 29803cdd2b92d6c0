"""Soft labels: where examples lie among public points, and what that is worth."""

import numpy as np
import pytest

from vicinal.labelling import _public_model
from vicinal.labelling._public_model import LEAST, SHARE, PublicModel, ReferenceNeighborhoods


@pytest.fixture(scope="module")
def rings():
    """Return points on two rings, one inside the other, and which: near is not alike."""
    rng = np.random.default_rng(0)

    def part(size):
        y = rng.integers(0, 2, size)
        angle = rng.uniform(0, 2 * np.pi, size)
        length = 1.0 + 0.6 * y + rng.normal(0, 0.03, size)
        return np.stack([length * np.cos(angle), length * np.sin(angle)], axis=1), y

    return part


def test_the_public_points_near_a_query_are_the_nearest(rings):
    reference, queries = rings(700)[0], rings(30)[0]
    located = ReferenceNeighborhoods(reference).locate(queries)
    distances = np.linalg.norm(queries[:, None] - reference[None], axis=2)
    wanted = np.argsort(distances, axis=1)[:, : 700 // SHARE]
    near = located.near.toarray()
    for row, places in zip(near, wanted, strict=True):
        assert set(np.flatnonzero(row)) == set(places)
    np.testing.assert_allclose(np.square(near).sum(axis=1), 1)


def test_shared_points_are_counted(rings):
    reference, queries = rings(700)[0], rings(12)[0]
    located = ReferenceNeighborhoods(reference).locate(queries)
    sets = [set(np.flatnonzero(row)) for row in located.near.toarray()]
    wanted = [[len(a & b) / (700 // SHARE) for b in sets] for a in sets]
    np.testing.assert_allclose(located.shared(located), wanted, atol=1e-12)


@pytest.mark.parametrize(("size", "near"), [(1, 1), (3, 3), (20, LEAST), (640, 640 // SHARE)])
def test_few_public_points_are_enough(rings, size, near):
    located = ReferenceNeighborhoods(rings(size)[0]).locate(rings(4)[0])
    assert (np.diff(located.near.indptr) == near).all()


def clouds(seed, size, d=150):
    """Return points of two clouds in so many dimensions that all distances look alike."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 2, size)
    X = rng.normal(size=(size, d)) + np.where(y == 0, 0.4, -0.4)[:, None] * (np.arange(d) < 40)
    return X / np.linalg.norm(X, axis=1, keepdims=True), y


def right(seed, n_public):
    """Return how often a model of few answers is right."""
    (known, labels), (asked, truth) = clouds(seed, 12), clouds(seed + 100, 400)
    reference = clouds(seed + 200, n_public)[0] if n_public else np.zeros((0, 150))
    surroundings = ReferenceNeighborhoods(reference)
    model = PublicModel(2).fit(surroundings.locate(known), labels)
    chances = model.chances(surroundings.locate(asked))
    np.testing.assert_allclose(chances.sum(axis=1), 1)
    return (chances.argmax(axis=1) == truth).mean()


def test_public_points_tell_more_than_distances():
    without, with_points = (np.mean([right(s, n) for s in range(8)]) for n in (0, 2000))
    assert with_points > without + 0.02


def test_without_public_points_there_is_nothing_to_share(rings):
    located = ReferenceNeighborhoods(np.zeros((0, 1))).locate(rings(5)[0])
    assert located.shared(located) is None
    assert located.near.shape == (5, 0)


def test_only_the_newest_answers_are_used(rings, monkeypatch):
    monkeypatch.setattr(_public_model, "MOST", 60)
    (rows, labels), asked = rings(100), rings(50)[0]
    surroundings = ReferenceNeighborhoods(rings(640)[0])
    changed = np.concatenate([1 - labels[:40], labels[40:]])
    chances = [
        PublicModel(2).fit(surroundings.locate(rows), answers).chances(surroundings.locate(asked))
        for answers in (labels, changed)
    ]
    # The kernel's width is measured on the first rows, answers aside.
    np.testing.assert_array_equal(*chances)


def test_noisy_answers_make_it_less_sure(rings):
    rows, labels = rings(400)
    wrong = np.random.default_rng(1).random(400) < 0.3
    surroundings = ReferenceNeighborhoods(rings(640)[0])
    known, asked = surroundings.locate(rows), surroundings.locate(rings(200)[0])
    sure = [
        PublicModel(2).fit(known, answers).chances(asked).max(axis=1).mean()
        for answers in (labels, np.where(wrong, 1 - labels, labels))
    ]
    assert sure[1] < sure[0] - 0.1
