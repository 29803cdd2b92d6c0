"""Earlier answers at work: as voters, and as the model behind a gate; never anything private."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.base import clone

from made_up import corners as data
from vicinal import IndKNNClassifier
from vicinal.accounting import UNITS
from vicinal.engine._answer_reuse import FLOOR, AnsweredNeighbours, ConfidenceGate
from vicinal.engine._engine import UNKNOWN, observe
from vicinal.engine._noise_schedule import ASKED_SHARE, GATE_OPENS, GatedNoiseSchedule, asked_of
from vicinal.engine._shard import Shard
from vicinal.errors import InvalidInput
from vicinal.mechanisms import LabelRelease, VoteRelease
from vicinal.neighbours import Cosine

CLASSES, D, N = 3, 8, 2000


def fitted(seed=0, records=data, **parameters):
    X, y = records(seed, N)
    given = {"epsilon": 2.0, "n_queries": 1000, "n_records": N, "simulation_seed": 1}
    classifier = IndKNNClassifier(range(CLASSES), **{**given, **parameters})
    return classifier.fit(X, y, public=data(99, 500)[0])


# ---------------------------------------------------------------- answered neighbours


def test_answered_queries_vote_with_their_kernel_weight_and_are_counted():
    kernel = Cosine()
    weights = np.arange(1 << 16, dtype=np.int64)  # a level's weight is its number
    memory = AnsweredNeighbours(kernel, weights, D, CLASSES, 1)
    X, _ = data(5, 40)
    known, asked = kernel.encode(X[:30]), kernel.encode(X[30:])
    labels = np.arange(30) % CLASSES
    memory.learn(known[:12], labels[:12])
    memory.learn(known[12:], labels[12:])
    threshold = kernel.similarity_at(0.4, D)
    support = memory.support(asked, np.full(10, threshold))
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
        return sum(classifier._engine.shard.ledger.journal)

    counts = spent(1e4, reuse=False)  # votes cost next to nothing
    assert 0 < spent(2.0, reuse=True) - counts < 0.8 * (spent(2.0, reuse=False) - counts)


def test_a_sequential_walk_learns_after_every_query():
    query = data(7, 1)[0]
    classifier = published(reuse_predictions=True)
    memory = classifier._engine.reuse
    classifier.predict(np.repeat(query, 5, axis=0))
    assert memory.block == 1
    encoded = classifier._engine.votes.kernel.encode(query)
    assert memory.support(encoded, classifier._engine.radius.thresholds(encoded)).counts[0] == 5


def test_earlier_answers_vote_in_the_published_algorithm_alone():
    assert clone(published(reuse_predictions=True)).reuse_predictions == "neighbors"
    with pytest.raises(InvalidInput, match="'reuse_predictions'"):
        fitted(reuse_predictions="neighbors")


# ---------------------------------------------------------------- the gate


def test_the_gate_answers_where_it_is_sure_and_asks_now_and_then():
    gate = ConfidenceGate(1.0, CLASSES)
    X, y = data(0, 400)
    assert (gate.reusable(X) == UNKNOWN).all(), "nothing is known before the first lesson"
    gate.learn(X[:150], y[:150])
    assert (gate.reusable(X) == UNKNOWN).all(), "the first model takes GATE_OPENS answers"
    gate.learn(X[150:], y[150:])
    queries, truth = data(1, 500)
    answers = gate.reusable(queries)
    free = answers != UNKNOWN
    assert 0.5 < free.mean() <= 1 - 1 / FLOOR + 0.01
    assert (answers[free] == truth[free]).mean() > 0.9


def test_public_points_foretell_how_many_are_asked():
    queries, labels = data(0, 400)
    labels[::8] = 0  # answers are noisy
    gate = ConfidenceGate(1.0, CLASSES, data(2, 600)[0])
    assert gate.unsure is None, "nothing tells before the first model"
    gate.learn(queries[:GATE_OPENS], labels[:GATE_OPENS])
    asked = (gate.reusable(data(1, 2000)[0]) == UNKNOWN).mean()
    assert 0.2 < asked < 0.95
    assert gate.unsure == pytest.approx(asked, abs=0.08)
    alone = ConfidenceGate(1.0, CLASSES)
    alone.learn(queries, labels)
    assert alone.unsure is None, "there are no public points to tell"


def test_one_label_alone_is_repeated_and_asked_for_now_and_then():
    gate = ConfidenceGate(1.0, CLASSES)
    X, _ = data(0, 300)
    gate.learn(X, np.ones(300, dtype=np.int64))
    answers = gate.reusable(X)
    assert set(answers.tolist()) == {1, UNKNOWN}
    assert (answers == UNKNOWN).sum() >= 300 // FLOOR


def test_a_gate_holds_long_after_its_plan():
    """Seeded. Noise rises for whoever goes on asking; what was learnt before stays right."""
    classifier = fitted(
        reuse_predictions="gate", model_share=0, epsilon=0.5, n_queries=500, release="label"
    )
    queries, truth = data(3, 4000)
    answers = classifier.query(queries)
    assert answers.asked[:1000].mean() > 0.2
    assert not answers.asked[-2000:].any(), "nobody is asked for noise"
    right = (answers.labels == truth).reshape(4, 1000).mean(axis=1)
    assert (right > 0.9).all()


def test_a_gate_that_asks_no_more_answers_everything_and_learns_nothing():
    gate, (X, y) = ConfidenceGate(1.0, CLASSES), data(0, 400)
    gate.learn(X, y)
    pace = GatedNoiseSchedule(1e-4, 400)
    pace._spent, pace._learnt, pace._signals = 0.99, 400, 400 / pace.multiplier
    observe(gate, pace, X[:0], np.zeros(0, dtype=bool), y[:0])
    assert not gate.asking
    answers = gate.reusable(data(1, 500)[0])
    assert (answers != UNKNOWN).all()
    before = sum(map(len, gate._labels))
    observe(gate, pace, X[:10], np.ones(10, dtype=bool), y[:10])
    assert sum(map(len, gate._labels)) == before


def test_answers_say_whether_they_were_asked_for():
    classifier = fitted(reuse_predictions="gate", n_queries=2000)
    queries, truth = data(3, 2000)
    answers = classifier.query(queries)
    assert answers.asked[: GATE_OPENS // 2].all()
    assert 0.1 < answers.asked.mean() < 0.6
    assert np.isnan(answers.votes[~answers.asked]).all()
    assert not np.isnan(answers.votes[answers.asked]).any()
    assert (answers.labels == truth).mean() > 0.85
    assert classifier.n_answers_ == 2000


def test_only_asked_queries_are_charged():
    classifier = fitted(reuse_predictions="gate", n_queries=2000, release="label")
    charged = []
    honest = type(classifier._engine.votes).release

    def release(self, noise):
        charged.append(len(noise))
        return honest(self, noise)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(classifier._engine.votes), "release", release)
        answers = classifier.query(data(3, 1500)[0])
    assert sum(charged) == answers.asked.sum() < 1500


def test_votes_and_abstentions_are_refused_behind_a_gate():
    classifier = fitted(reuse_predictions="gate")
    queries = data(3, 5)[0]
    with pytest.raises(InvalidInput, match="gate"):
        classifier.predict(queries, abstain_below=1.0)
    with pytest.raises(InvalidInput, match="gate"):
        classifier.decision_function(queries)
    assert classifier.n_answers_ == 0


# ---------------------------------------------------------------- two worlds


def public_course(seed, release, patch, records=data):
    """Return what the public sees of a run in which the released answers are fixed beforehand."""
    queries, truth = data(3, 1200)
    kind = {"votes": VoteRelease, "label": LabelRelease}[release]
    scripted = iter(truth.tolist())

    def publish(self, votes):  # noqa: ARG001 (the answers are fixed)
        labels = np.array([next(scripted) for _ in range(len(votes))], dtype=np.int64)
        return labels if release == "label" else np.eye(CLASSES)[labels]

    patch.setattr(kind, "publish", publish)
    classifier = fitted(seed, records, reuse_predictions="gate", n_queries=1200, release=release)
    course = []
    for block in np.split(queries, 12):
        answers = classifier.query(block)
        course.append((answers.labels, answers.asked, classifier._engine.schedule.multiplier))
    return course


def same(first, second):
    return all(
        np.array_equal(a[0], b[0]) and np.array_equal(a[1], b[1]) and a[2] == b[2]
        for a, b in zip(first, second, strict=True)
    )


@pytest.mark.parametrize("release", ["votes", "label"])
def test_given_the_same_answers_everything_else_is_the_same_in_two_worlds(release, monkeypatch):
    """Quite different private records; the gate and the noise must not see it."""
    assert same(*(public_course(seed, release, monkeypatch) for seed in (0, 1)))


def test_a_gate_that_looks_at_budgets_is_caught(monkeypatch):
    """In one world the records are far from all queries, and nobody is charged."""
    honest_shard, honest_gate, shards = Shard.__init__, ConfidenceGate.reusable, []

    def remember(self, *arguments, **named):
        honest_shard(self, *arguments, **named)
        shards.append(self)

    def peek(self, queries):
        answers = honest_gate(self, queries)
        if shards[-1].ledger.remaining.mean() < 0.97 * UNITS:
            answers[:] = UNKNOWN
        return answers

    monkeypatch.setattr(Shard, "__init__", remember)
    monkeypatch.setattr(ConfidenceGate, "reusable", peek)
    courses = [public_course(0, "label", monkeypatch, records) for records in (data, far_away)]
    assert not same(*courses)


def test_far_away_records_are_no_different_to_an_honest_gate(monkeypatch):
    courses = [public_course(0, "label", monkeypatch, records) for records in (data, far_away)]
    assert same(*courses)


def far_away(seed, size):
    """Return records opposite to all queries."""
    X, y = data(seed, size)
    return -np.abs(X), y


# ---------------------------------------------------------------- pace


@given(
    st.integers(1, 20_000),
    st.lists(
        st.tuples(st.integers(1, 128), st.floats(0, 1), st.none() | st.floats(0, 1)), max_size=60
    ),
)
def test_a_pace_spends_what_it_has_and_then_a_millionth_for_each_block(n_queries, blocks):
    pace = GatedNoiseSchedule(1e-4, n_queries)
    spent = 0.0
    for answered, share, unsure in blocks:
        asked = round(share * answered)
        assert pace.multiplier >= pace.least
        spent += asked * 1e-4 / pace.multiplier**2
        pace.update(answered, asked, unsure)
    assert spent < 1 + 1e-6 * len(blocks)


def test_asking_stops_when_a_signal_is_less_than_half_of_the_mean():
    pace, multipliers = GatedNoiseSchedule(1e-4, 100), []
    while pace.worthwhile:
        multipliers += [pace.multiplier] * 128
        pace.update(128, 128)
    mean = np.mean(1 / np.array(multipliers))
    assert 1 / pace.multiplier < mean / 2 <= 1 / multipliers[-1] + mean / 2
    noise = pace.multiplier
    for _ in range(50):
        pace.update(128, 0)
    assert not pace.worthwhile
    assert pace.multiplier == pytest.approx(noise, rel=0.01)


def test_a_plan_that_comes_true_keeps_its_noise_level():
    n_queries = 4000
    pace = GatedNoiseSchedule(1e-4, n_queries)
    first = pace.multiplier
    assert first == pytest.approx(np.sqrt(1e-4 * asked_of(n_queries)))
    pace.update(GATE_OPENS, GATE_OPENS)
    for _ in range(30):
        pace.update(100, round(100 * ASKED_SHARE))
    assert pace.multiplier == pytest.approx(first, rel=0.05)


@pytest.mark.parametrize(("unsure", "sign"), [(0.95, 1), (0.1, -1)])
def test_noise_follows_at_once_what_public_points_foretell(unsure, sign):
    told, untold = GatedNoiseSchedule(1e-4, 4000), GatedNoiseSchedule(1e-4, 4000)
    told.update(GATE_OPENS, GATE_OPENS, unsure)
    untold.update(GATE_OPENS, GATE_OPENS)
    assert sign * (told.multiplier - untold.multiplier) > 0.2 * untold.multiplier
    expected = asked_of(4000 - GATE_OPENS, 0, unsure)
    assert told.expected_queries() == pytest.approx(expected, abs=1)


def test_more_questions_than_expected_raise_the_noise_and_fewer_lower_it():
    for share, sign in ((0.8, 1), (0.1, -1)):
        pace = GatedNoiseSchedule(1e-4, 4000)
        first = pace.multiplier
        pace.update(GATE_OPENS, GATE_OPENS)
        for _ in range(15):
            pace.update(100, round(100 * share))
        assert sign * (pace.multiplier - first) > 0.05 * first
