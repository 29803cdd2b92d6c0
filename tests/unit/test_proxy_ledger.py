"""The proxy ledger: charged as records are, sees nothing private, keeps budgets from wearing."""

from __future__ import annotations

import numpy as np
import pytest

from made_up import corners as data
from vicinal import IndKNNClassifier
from vicinal.accounting._budget import UNITS
from vicinal.errors import InvalidInput
from vicinal.mechanisms import LabelRelease, VoteRelease
from vicinal.predictors.ind_knn._budget_usage import RETIRED, BudgetUsage
from vicinal.predictors.ind_knn._noise_schedule import (
    LOWEST,
    NoiseSchedule,
    ProxyLedger,
    ProxyNoiseSchedule,
    UsageNoiseSchedule,
)
from vicinal.predictors.ind_knn._shard import Shard

CLASSES, D, N = 3, 8, 2000


PUBLIC = data(99, 500)[0]


def fitted(seed=0, records=data, public=PUBLIC, **parameters):
    X, y = records(seed, N)
    given = {"epsilon": 2.0, "n_queries": 600, "n_records": N, "model_share": 0}
    given |= {"simulation_seed": 1}
    classifier = IndKNNClassifier(range(CLASSES), **{**given, **parameters})
    return classifier.fit(X, y, public=public)


def shadow_of(classifier) -> ProxyLedger:
    return classifier._engine.schedule.proxies


def used_truly(classifier):
    return 1 - classifier._shard.ledger.remaining / UNITS


def of_one_class(size):
    queries, truth = data(7, 20 * size)
    return queries[truth == 0][:size], truth[truth == 0][:size]


# ---------------------------------------------------------------- charges


@pytest.mark.parametrize("release", ["votes", "label"])
@pytest.mark.parametrize("pace", ["planned", "usage"])
def test_a_point_pays_what_a_record_in_its_place_pays(release, pace):
    """The records are the public points, a hair away from them so as not to be refused."""
    X = PUBLIC * (1 + 1e-9)
    y = np.arange(len(X)) % CLASSES
    classifier = IndKNNClassifier(
        range(CLASSES), 2.0, n_queries=300, n_records=N, release=release, noise_schedule=pace,
        model_share=0,
        simulation_seed=0,
    ).fit(X, y, public=PUBLIC)  # fmt: skip
    classifier.predict(data(3, 300)[0])
    truth = used_truly(classifier)
    assert 0 < truth.mean() < 1
    np.testing.assert_array_equal(shadow_of(classifier).used, truth)


def test_wear_comes_near_the_truth_where_points_and_records_are_alike():
    classifier = fitted()
    classifier.predict(of_one_class(600)[0])
    told, true = classifier.budget_usage(), used_truly(classifier)
    assert told.used == pytest.approx(true.mean(), abs=0.05)
    assert told.retired == pytest.approx((true >= RETIRED).mean(), abs=0.05)
    assert told.quantiles[1] == pytest.approx(np.quantile(true, 0.9), abs=0.1)


def test_regions_tell_where_the_wear_is():
    classifier = fitted()
    assert classifier.budget_usage().used == 0
    classifier.predict(of_one_class(600)[0])
    told = classifier.budget_usage(6)
    assert len(told.regions) == len(told.points) == 6
    assert sum(told.points) == len(PUBLIC)
    assert max(told.regions) > 5 * min(told.regions)
    whole = np.dot(told.regions, told.points) / sum(told.points)
    assert whole == pytest.approx(told.used)


def test_an_empty_region_has_used_nothing():
    told = BudgetUsage.of(np.array([0.5, 1.0]), np.array([0, 2], dtype=np.int32), 3)
    assert told.regions == (0.5, 0.0, 1.0)
    assert told.points == (1, 0, 1)
    assert told.retired == 0.5


def test_many_public_points_are_thinned_out(monkeypatch):
    monkeypatch.setattr("vicinal.predictors.ind_knn._noise_schedule.WATCHED", 200)
    classifier = fitted()
    classifier.predict(data(3, 300)[0])
    assert len(shadow_of(classifier)) == 167
    assert classifier.budget_usage().used == pytest.approx(used_truly(classifier).mean(), abs=0.1)


def test_watching_changes_no_answer_and_no_charge(monkeypatch):
    queries = data(3, 300)[0]
    watched = fitted()
    answers = watched.query(queries)
    monkeypatch.setattr(
        "vicinal.predictors.ind_knn._engine_factory.with_proxies",
        lambda _settings, pace, *_others: pace,
    )
    blind = fitted()
    np.testing.assert_array_equal(answers.votes, blind.query(queries).votes)
    np.testing.assert_array_equal(used_truly(watched), used_truly(blind))
    with pytest.raises(InvalidInput, match="public"):
        blind.budget_usage()


# ---------------------------------------------------------------- the pace


def test_noise_rises_where_a_stream_stays_and_the_last_answers_are_still_good():
    queries, truth = of_one_class(600)
    right = {}
    for pace in ("planned", "usage"):
        classifier = fitted(noise_schedule=pace, epsilon=0.5)
        right[pace] = (classifier.predict(queries) == truth)[-150:].mean()
    assert right["usage"] > right["planned"] + 0.2


def test_a_stream_as_planned_keeps_the_noise_near_the_plan():
    classifier = fitted(noise_schedule="usage")
    planned = classifier.noise_multiplier_
    pace, seen = classifier._engine.schedule, []
    honest = pace.prepare

    def prepare(queries, thresholds):
        seen.append(honest(queries, thresholds))
        return seen[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(pace), "prepare", lambda _self, *given: prepare(*given))
        classifier.predict(data(3, 600)[0])
    assert np.median(np.concatenate(seen)) == pytest.approx(planned, rel=0.25)
    assert np.concatenate(seen).min() >= pace.least * (1 - 1e-12)
    assert pace.least == pytest.approx(LOWEST * planned)


def test_noise_scales_are_few_and_bounded():
    classifier = fitted(noise_schedule="usage")
    pace = classifier._engine.schedule
    queries = classifier._engine.votes.kernel.encode(of_one_class(200)[0])
    thresholds = classifier._engine.radius.thresholds(queries)
    proxies = pace.proxies
    proxies._subjects.remaining[:] = 0
    proxies._counts[:] = 10**6
    noise = pace.prepare(queries, thresholds)
    assert len(np.unique(noise)) < 100
    assert np.isfinite(noise).all()
    assert noise.max() <= 70 * classifier.noise_multiplier_


def test_a_gate_and_a_shadow_go_together():
    classifier = fitted(
        noise_schedule="usage",
        reuse_predictions="gate",
        release="label",
        n_queries=2000,
        epsilon=1.0,
    )
    queries, truth = data(3, 2000)
    answers = classifier.query(queries)
    assert answers.asked.mean() < 0.7
    assert (answers.labels == truth).mean() > 0.8
    assert shadow_of(classifier).n_queries == answers.asked.sum()


def test_the_horizon_never_ends():
    horizon = NoiseSchedule(1.0, 100)
    assert horizon.expected_queries() == 100
    horizon.update(60, 60)
    assert horizon.expected_queries() == 40
    horizon.update(500, 500)
    assert horizon.expected_queries() == 10
    assert NoiseSchedule(1.0, 1).expected_queries() == 1


@pytest.mark.parametrize(
    ("name", "value"),
    [("noise_multiplier", 2.0), ("min_similarity", 0.5), ("neighbor_count", "private")],
)
def test_a_shadow_has_nothing_to_set_where_noise_or_radius_is_fixed(name, value):
    with pytest.raises(InvalidInput, match=f"'{name}'"):
        fitted(noise_schedule="usage", **{name: value})


def test_confidence_needs_the_noise_where_it_differs():
    classifier = fitted(noise_schedule="usage")
    with pytest.raises(InvalidInput, match="differs from answer to answer"):
        classifier.confidence(np.zeros((2, CLASSES)))
    answers = classifier.query(PUBLIC[:3])
    leads = classifier.confidence(answers.votes, answers.noise)
    second, first = np.sort(answers.votes, axis=1)[:, -2:].T
    np.testing.assert_allclose(leads, (first - second) / (np.sqrt(2) * answers.noise))
    assert (classifier.predict(PUBLIC[:3], abstain_below=1e9) == -1).all()


def test_no_wear_is_told_without_public_points_or_with_private_counts():
    X, y = data(0, N)
    classifier = IndKNNClassifier(
        range(CLASSES), 5.0, n_queries=10, neighbor_count="private", min_similarity=0.5,
        noise_multiplier=1.0, n_records=N, simulation_seed=0,
    ).fit(X, y)  # fmt: skip
    with pytest.raises(InvalidInput, match="public"):
        classifier.budget_usage()
    with pytest.raises(InvalidInput, match="regions"):
        fitted().budget_usage(0)


def test_a_pace_beside_a_shadow_keeps_its_own_noise():
    classifier = fitted(reuse_predictions="gate", release="label")
    pace = classifier._engine.schedule
    assert isinstance(pace, ProxyNoiseSchedule)
    assert not isinstance(pace, UsageNoiseSchedule)
    classifier.query(data(3, 400)[0])
    assert pace.multiplier == pace._schedule.multiplier


# ---------------------------------------------------------------- two worlds


def public_course(release, patch, *, seed=0, records=data, **parameters):
    """Return what the public sees of a run in which the released answers are fixed beforehand."""
    queries, truth = data(3, 600)
    scripted = iter(truth.tolist())

    def publish(self, votes):  # noqa: ARG001 (the answers are fixed)
        labels = np.array([next(scripted) for _ in range(len(votes))], dtype=np.int64)
        return labels if release == "label" else np.eye(CLASSES)[labels]

    patch.setattr({"votes": VoteRelease, "label": LabelRelease}[release], "publish", publish)
    classifier = fitted(seed, records, release=release, noise_schedule="usage", **parameters)
    noise, honest = [], type(classifier._engine.schedule).prepare

    def prepare(self, *given):
        noise.append(np.copy(honest(self, *given)))
        return noise[-1]

    with pytest.MonkeyPatch.context() as inner:
        inner.setattr(UsageNoiseSchedule, "prepare", prepare)
        asked = [classifier.query(block).asked for block in np.split(queries, 6)]
    return np.concatenate(noise), np.concatenate(asked), shadow_of(classifier).used


def same(first, second):
    return all(np.array_equal(a, b) for a, b in zip(first, second, strict=True))


def far_away(seed, size):
    """Return records opposite to all queries, of which nobody is ever charged."""
    X, y = data(seed, size)
    return -np.abs(X), y


@pytest.mark.parametrize("reuse", [False, "gate"])
@pytest.mark.parametrize("release", ["votes", "label"])
def test_given_the_same_answers_noise_and_wear_are_the_same_in_two_worlds(
    release, reuse, monkeypatch
):
    worlds = [
        public_course(release, monkeypatch, seed=seed, records=records, reuse_predictions=reuse)
        for seed, records in ((0, data), (1, data), (0, far_away))
    ]
    assert same(worlds[0], worlds[1])
    assert same(worlds[0], worlds[2])
    assert worlds[0][2].max() > 0.1, "proxies that are never charged would agree too"


def test_one_person_more_or_less_is_not_seen(monkeypatch):
    def without_first(seed, size):
        X, y = data(seed, size)
        return X[1:], y[1:]

    worlds = [
        public_course("votes", monkeypatch, records=records) for records in (data, without_first)
    ]
    assert same(*worlds)


def test_a_shadow_that_peeks_at_private_budgets_is_caught(monkeypatch):
    """It takes the true mean of what is left for an estimate."""
    honest, shards = Shard.__init__, []

    def remember(self, *arguments, **named):
        honest(self, *arguments, **named)
        shards.append(self)

    def peek(self, near):  # noqa: ARG001
        return np.full(len(near), shards[-1].ledger.remaining.mean() / UNITS)

    monkeypatch.setattr(Shard, "__init__", remember)
    monkeypatch.setattr(ProxyLedger, "mean_remaining", peek)
    worlds = [public_course("votes", monkeypatch, records=r) for r in (data, far_away)]
    assert not same(*worlds)


def test_a_pace_that_sees_no_queries_is_the_plain_one():
    pace = NoiseSchedule(2.0, 100)
    assert pace.prepare(np.zeros((3, 2), dtype=np.int8), np.zeros(3, dtype=np.int64)) == 2.0
