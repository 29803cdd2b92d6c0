"""Private-kNN over shards: the same votes as on one machine, from coins of their own."""

from __future__ import annotations

import numpy as np
import pytest

import shard_tools
import store_tools as tools
from vicinal import PrivateKNNClassifier
from vicinal.distributed import fit_on_shards
from vicinal.distributed.nearest import Drawn, NearestPart, merged
from vicinal.errors import InvalidInput, PrivacyRefused
from vicinal.mechanisms.sampling import Coins
from vicinal.neighbours import RBF
from vicinal.neighbours.poisson import NOBODY

QUERIES = 500
PEOPLE = [f"person-{i // 2}" for i in range(300)]


def queries(size):
    rng = np.random.default_rng(6)
    return tools.CENTRES[rng.integers(0, 3, size)] + 0.6 * rng.normal(size=(size, tools.D))


def classifier(**changes):
    settings = {
        "k": 20, "gamma": 1.0, "sigma_votes": 3.0, "n_queries": QUERIES, "simulation_seed": 4,
        **changes,
    }  # fmt: skip
    return PrivateKNNClassifier(range(3), **settings)


def asked(fitted):
    return fitted.predict(queries(QUERIES)), fitted.n_answers_, fitted._release.largest


@pytest.mark.parametrize("shards", [1, 2, 3])
@pytest.mark.parametrize("people", [None, PEOPLE], ids=["records", "people"])
@pytest.mark.parametrize("screen", [{}, {"sigma_screen": 2.0, "threshold": 18.0}], ids=str)
@pytest.mark.parametrize("release", ["votes", "label"])
def test_shards_answer_as_one_machine_where_everybody_takes_part(shards, people, screen, release):
    """Fails if the k nearest of all shards are not those of one machine, ties and all."""
    make = {**screen, "release": release}
    one = classifier(**make).fit(tools.X, tools.Y, people, public=tools.R)
    many = fit_on_shards(
        classifier(**make), tools.X, tools.Y, people, public=tools.R, shards=shards
    )
    for left, right in zip(asked(one), asked(many), strict=True):
        np.testing.assert_array_equal(left, right)


def test_shards_on_ray_answer_as_one_machine():
    one = classifier(sigma_screen=2.0, threshold=18.0).fit(tools.X, tools.Y, PEOPLE, public=tools.R)
    with shard_tools.ray_engine() as engine:
        many = fit_on_shards(
            classifier(sigma_screen=2.0, threshold=18.0), tools.X, tools.Y, PEOPLE,
            public=tools.R, shards=2, start=engine.drawings,
        )  # fmt: skip
        for left, right in zip(asked(one), asked(many), strict=True):
            np.testing.assert_array_equal(left, right)


class Told(Coins):
    """Coins that come up for some subjects, whoever tosses."""

    exact = False

    def __init__(self, heads):
        self.heads = heads

    def toss(self, probability, size):  # noqa: ARG002 (as the method)
        return self.heads[np.arange(size) % len(self.heads)]


@pytest.mark.parametrize("heads", [0.0, 0.03, 0.3, 1.0])
def test_a_shard_sends_its_nearest_with_their_exact_similarities(heads):
    """Fails if a similarity, number or label is another record's, also where the walk goes on."""
    rng = np.random.default_rng(int(100 * heads))
    kernel = RBF(1.0, 9.0)
    X, Q = kernel.encode(tools.X), kernel.encode(queries(30))
    up = rng.random(300) < heads
    numbers = np.arange(300, dtype=np.int64) * 3 + 1
    part = NearestPart(
        kernel, X, tools.Y.astype(np.int32), np.arange(300, dtype=np.int32), numbers, 300, 10, 0.3,
        1,
    )  # fmt: skip
    shard = part.shard()
    shard._sample._source = Everyones(up, shard)
    drawn = shard.draw(Q)
    similarities = exact(X, Q)
    for j in range(len(Q)):
        here = drawn.numbers[j] != NOBODY
        rows = (drawn.numbers[j][here] - 1) // 3
        assert up[rows].all()
        assert len(set(rows.tolist())) == len(rows) == min(10, up.sum())
        np.testing.assert_array_equal(drawn.similarities[j][here], similarities[j, rows])
        np.testing.assert_array_equal(drawn.labels[j][here], tools.Y[rows])
        others = similarities[j][up]
        assert sorted(drawn.similarities[j][here]) == sorted(others)[len(others) - len(rows) :]
    assert (drawn.labels[drawn.numbers == NOBODY] == NOBODY).all()


class Everyones(Told):
    """The same coin for a record whoever asks: candidates are known by their rows."""

    def __init__(self, heads, shard):
        super().__init__(heads)
        near = shard._sample.near
        self.rows = None

        def watched(block):
            found = near(block)
            self.rows = found.rows
            return found

        shard._sample.near = watched

    def toss(self, probability, size):  # noqa: ARG002 (as the method)
        return self.heads[self.rows] if size == len(self.rows) else self.heads.copy()


def exact(X, Q):
    x, q = X.astype(np.int64), Q.astype(np.int64)
    return 2 * q @ x.T - np.square(x).sum(axis=1) - np.square(q).sum(axis=1)[:, None]


def test_ties_go_to_the_smaller_number_over_all_shards():
    def drawn(similarities, numbers, labels):
        return Drawn(
            np.array([similarities]), np.array([numbers]), np.array([labels], dtype=np.int32)
        )

    far = np.iinfo(np.int64).min
    first = drawn([-5, -7, far], [4, 6, NOBODY], [0, 1, NOBODY])
    second = drawn([-7, -7, -2], [5, 9, 11], [2, 0, 1])
    assert merged([first, second], 3).tolist() == [[1, 0, 2]]
    assert merged([first, first], 3).tolist() == [[0, 0, 1]]
    assert merged([first], 3).tolist() == [[0, 1, NOBODY]]


def test_shards_sample_each_subject_with_the_planned_probability():
    """Fails if a shard's coins are another's, or are tossed for fewer. Bounds: six deviations."""
    many = fit_on_shards(
        classifier(k=300, gamma=0.3, simulation_seed=None, sigma_votes=0.01),
        tools.X, tools.Y, PEOPLE, public=tools.R, shards=3,
    )  # fmt: skip
    votes = np.rint(many.decision_function(queries(QUERIES))).sum(axis=1)
    deviation = np.sqrt(150 * 0.3 * 0.7)
    assert abs(votes.mean() - 45) < 6 * deviation / np.sqrt(QUERIES)
    assert votes.std() == pytest.approx(deviation, rel=6 / np.sqrt(2 * QUERIES))


def test_what_shards_cannot_do_is_refused():
    with pytest.raises(InvalidInput, match="'tau'"):
        fit_on_shards(classifier(tau=1.0), tools.X, tools.Y, public=tools.R, shards=2)
    with pytest.raises(InvalidInput, match="'public'"):
        fit_on_shards(classifier(), tools.X, tools.Y, shards=2)
    with pytest.raises(InvalidInput, match="'shards'"):
        fit_on_shards(classifier(), tools.X, tools.Y, public=tools.R, shards=0)
    fitted = fit_on_shards(classifier(), tools.X, tools.Y, public=tools.R, shards=2)
    with pytest.raises(PrivacyRefused, match="The plan covers 500"):
        fitted.predict(queries(QUERIES + 1))
