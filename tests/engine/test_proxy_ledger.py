"""The proxy ledger: charged as records are, and sees nothing private."""

import numpy as np
import pytest

from made_up import corners as data
from vicinal import IndKNNClassifier
from vicinal.accounting.budget import UNITS
from vicinal.engine.proxy_ledger import SPENT_SHARE, ProxyLedger
from vicinal.engine.shard import Shard
from vicinal.errors import InvalidInput
from vicinal.mechanisms.noisy_labels import LabelRelease
from vicinal.mechanisms.votes import VoteRelease

CLASSES, N = 3, 2000
PUBLIC = data(99, 500)[0]


def fitted(seed=0, records=data, public=PUBLIC, **parameters):
    X, y = records(seed, N)
    given = {"epsilon": 2.0, "n_queries": 600, "n_records": N, "model_share": 0}
    given |= {"simulation_seed": 1}
    classifier = IndKNNClassifier(range(CLASSES), **{**given, **parameters})
    return classifier.fit(X, y, public=public)


def used_truly(classifier):
    return 1 - classifier._shard.ledger.remaining / UNITS


@pytest.mark.parametrize("release", ["votes", "label"])
def test_a_point_pays_what_a_record_in_its_place_pays(release, monkeypatch):
    """The records are the public points, which is refused elsewhere."""
    monkeypatch.setattr("vicinal.predictors.inputs.detect_copied_records", lambda *_: False)
    X = PUBLIC * (1 + 1e-9)
    y = np.arange(len(X)) % CLASSES
    classifier = IndKNNClassifier(
        range(CLASSES), 2.0, n_queries=300, n_records=N, release=release, model_share=0,
        simulation_seed=0,
    ).fit(X, y, public=PUBLIC)  # fmt: skip
    classifier.predict(data(3, 300)[0])
    truth = used_truly(classifier)
    assert 0 < truth.mean() < 1
    np.testing.assert_array_equal(classifier._engine.proxies.used_shares, truth)


def test_the_usage_of_points_comes_near_that_of_records_where_they_are_alike():
    classifier = fitted()
    queries, truth = data(7, 12_000)
    classifier.predict(queries[truth == 0][:600])
    estimate, used = classifier.budget_usage(), used_truly(classifier)
    assert estimate.used == pytest.approx(used.mean(), abs=0.05)
    assert estimate.retired == pytest.approx((used >= SPENT_SHARE).mean(), abs=0.05)
    assert estimate.quantiles[1] == pytest.approx(np.quantile(used, 0.9), abs=0.1)


def test_watching_changes_no_answer_and_no_charge():
    queries = data(3, 300)[0]
    watched = fitted()
    answers = watched.query(queries)
    blind = fitted()
    object.__setattr__(blind._engine, "proxies", None)
    np.testing.assert_array_equal(answers.votes, blind.query(queries).votes)
    np.testing.assert_array_equal(used_truly(watched), used_truly(blind))
    with pytest.raises(InvalidInput, match="public"):
        blind.budget_usage()


def test_no_usage_is_estimated_without_public_points_or_with_private_counts():
    X, y = data(0, N)
    classifier = IndKNNClassifier(
        range(CLASSES), 5.0, n_queries=10, neighbor_count="private", min_similarity=0.5,
        noise_multiplier=1.0, n_records=N, simulation_seed=0,
    ).fit(X, y)  # fmt: skip
    with pytest.raises(InvalidInput, match="public"):
        classifier.budget_usage()


def public_course(release, patch, *, seed=0, records=data, **parameters):
    """Return what the public sees of a run in which the released answers are fixed beforehand."""
    queries, truth = data(3, 600)
    scripted = iter(truth.tolist())

    def publish(self, votes):  # noqa: ARG001 (the answers are fixed)
        labels = np.array([next(scripted) for _ in range(len(votes))], dtype=np.int64)
        return labels if release == "label" else np.eye(CLASSES)[labels]

    patch.setattr({"votes": VoteRelease, "label": LabelRelease}[release], "publish", publish)
    classifier = fitted(seed, records, release=release, **parameters)
    answers = [classifier.query(block) for block in np.split(queries, 6)]
    asked, noise = (np.concatenate([getattr(a, n) for a in answers]) for n in ("asked", "noise"))
    return noise[asked], asked, classifier._engine.proxies.used_shares


def same(first, second):
    return all(np.array_equal(a, b) for a, b in zip(first, second, strict=True))


def far_away(seed, size):
    """Return records opposite to all queries, of which nobody is ever charged."""
    X, y = data(seed, size)
    return -np.abs(X), y


def without_first(seed, size):
    X, y = data(seed, size)
    return X[1:], y[1:]


@pytest.mark.parametrize("release", ["votes", "label"])
def test_given_the_same_answers_noise_and_usage_are_the_same_in_all_worlds(release, monkeypatch):
    first, *others = (
        public_course(release, monkeypatch, seed=seed, records=records)
        for seed, records in ((0, data), (0, without_first), (1, data), (0, far_away))
    )
    assert all(same(first, other) for other in others)
    assert first[2].max() > 0.1, "proxies that are never charged would agree too"


def test_a_ledger_that_peeks_at_private_budgets_is_caught(monkeypatch):
    honest, shards = Shard.__init__, []

    def remember(self, *arguments, **named):
        honest(self, *arguments, **named)
        shards.append(self)

    def peek(self):  # noqa: ARG001
        return 1 - shards[-1].ledger.remaining / UNITS

    monkeypatch.setattr(Shard, "__init__", remember)
    monkeypatch.setattr(ProxyLedger, "used_shares", property(peek))
    worlds = [public_course("votes", monkeypatch, records=r) for r in (data, far_away)]
    assert not same(*worlds)
