"""Probabilities and labels from noisy votes: rare classes, costs, and the price of labels."""

import json

import numpy as np
import pytest
from scipy.stats import norm

from command_line import invoked
from made_up import rare
from vicinal import IndKNNClassifier, Store
from vicinal.accounting.label_filter import build_charge_table
from vicinal.errors import InvalidInput, PrivacyRefused
from vicinal.mechanisms import DeltaSlackAccountant, VoteGrid, create_noise_source
from vicinal.mechanisms.noisy_labels import ClassScores, NoisyLabels
from vicinal.neighbours import Cosine
from vicinal.planning.plan import IndKNNPlan
from vicinal.targets.class_decision import ClassDecision

RARE = (0.9, 0.1)


def decision(shares=RARE, costs=(1.0, 1.0), total=100.0):
    return ClassDecision(np.array(shares), np.array(costs), lambda: total)


def test_public_points_are_asked_once_however_many_blocks_are_answered():
    """Fails if every block measures the votes to expect anew: 50 ms each."""
    calls = []
    rule = ClassDecision(np.array(RARE), np.ones(2), lambda: calls.append(0) or 100.0)
    assert calls == []
    votes, noise = np.ones((3, 2)), np.ones(3)
    rule.compute_probabilities(votes, noise)
    rule.decide_labels(votes, noise)
    assert calls == [0]


X, Y = rare(0, 1500, RARE[1])
R, _ = rare(1, 300, RARE[1])
Q, T = rare(2, 200, RARE[1])
PLAN = {"epsilon": 4.0, "n_queries": 200, "n_records": 1500}


def fitted(**parameters):
    classifier = IndKNNClassifier([0, 1], **PLAN, simulation_seed=1, **parameters)
    return classifier.fit(X, Y, public=R)


def test_expected_votes_are_the_posterior_mean_of_a_gamma_under_gaussian_noise():
    """By brute force: sum over a grid of true votes."""
    noise, total = 3.0, 40.0
    votes = np.array([[30.0, -2.0], [10.0, 8.0], [0.0, 0.0], [-20.0, 12.0]])
    edges = np.arange(400_001) * 5e-4
    true = (edges[1:] + edges[:-1]) / 2
    expected = np.empty(votes.shape)
    for column, share in enumerate(RARE):
        shape, mean = 2 * share, total * share
        prior = np.diff(edges**shape) * np.exp(-true * shape / mean)
        for row, vote in enumerate(votes[:, column]):
            weights = prior * np.exp(-(((vote - true) / noise) ** 2) / 2)
            expected[row, column] = (weights * true).sum() / weights.sum()
    found = decision(total=total).compute_probabilities(votes, noise)
    brute = expected / expected.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(found, brute, rtol=2e-3)


def test_probabilities_follow_votes_and_their_noise():
    votes = np.array([[100.0, 0.0], [0.0, 0.0], [-5.0, -5.0], [3.0, -90.0], [np.nan, np.nan]])
    equal = decision((0.5, 0.5))
    found = equal.compute_probabilities(votes, 1.0)
    np.testing.assert_allclose(found[:4].sum(axis=1), 1)
    assert found[0, 0] == pytest.approx(1, abs=0.01)
    np.testing.assert_allclose(found[1:3], 0.5)
    assert found[3, 0] > 0.98
    assert np.isnan(found[4]).all()
    assert equal.compute_probabilities(votes[:1], 1e6)[0, 0] == pytest.approx(0.5, abs=1e-3)
    assert decision().compute_probabilities(votes[:1], 1e6)[0, 0] == pytest.approx(0.9, abs=1e-3)


@pytest.mark.parametrize("noise", [np.nan, 0.0, -1.0, -np.inf, [1.0, np.nan]])
@pytest.mark.parametrize("method", ["compute_probabilities", "decide_labels"])
def test_noise_that_is_no_deviation_is_refused(method, noise):
    """Fails if NaN passes: all probabilities are NaN then, and the first class wins."""
    with pytest.raises(InvalidInput, match="'noise' parameter must be a finite number > 0"):
        getattr(decision(), method)(np.ones((2, 2)), noise)


def test_the_label_is_the_largest_cost_times_probability():
    rng = np.random.default_rng(0)
    votes = rng.normal(0, 30, (500, 2)) + np.array([60, 10])
    for costs in ((1.0, 1.0), (1.0, 9.0), (5.0, 0.1)):
        rule = decision(costs=costs)
        best = (rule.compute_probabilities(votes, 10.0) * costs).argmax(axis=1)
        np.testing.assert_array_equal(rule.decide_labels(votes, 10.0), best)
    assert decision((0.5, 0.5)).is_plurality
    assert not decision().is_plurality


def test_probabilities_are_calibrated_and_costs_find_the_rare_class():
    classifier = fitted(class_prior=RARE, cost="balanced")
    answers = classifier.query(Q)
    chances = classifier.probabilities(answers)
    assert chances[:, 1].mean() == pytest.approx(T.mean(), abs=0.03)
    plain = fitted().query(Q)

    def recall(labels):
        return labels[T == 1].mean()

    assert recall(answers.labels) > recall(plain.labels) + 0.1
    np.testing.assert_allclose(fitted().predict_proba(Q[:5]).sum(axis=1), 1)


def test_beside_a_model_its_probabilities_are_what_votes_are_weighed_against():
    classifier = fitted(model_share=0.5, class_prior=RARE, cost="balanced")
    answers = classifier.query(Q)
    chances = classifier.probabilities(answers)
    np.testing.assert_allclose(chances.sum(axis=1), 1)
    assert chances[:, 1].mean() == pytest.approx(T.mean(), abs=0.04)
    np.testing.assert_array_equal(answers.labels, (chances / RARE).argmax(axis=1))
    assert 0 < answers.asked.mean() < 1
    with pytest.raises(InvalidInput, match="release='votes'"):
        fitted(model_share=0.5, class_prior=RARE, release="label")


@pytest.mark.parametrize("shares", [(0.5, 0.5), (0.99, 0.01), (1 - 1e-9, 1e-9)])
def test_scores_never_fall_from_one_step_to_the_next(shares):
    scores = decision(shares, (1.0, 37.0)).scores
    scale, unit = 3 << 22, 1 << 20
    for start in (-40, -3, 0, 7, 29, 31, 200):
        steps = round(start * scale) + np.arange(20_000)
        found = scores(np.column_stack([steps, steps]), np.full(len(steps), scale), unit)
        assert (np.diff(found, axis=0) >= 0).all()


def test_falling_scores_are_refused():
    with pytest.raises(InvalidInput, match="never decrease"):
        ClassScores([[0.0, 1.0], [1.0, 0.9]], 0.0, 1.0, 0.0)
    with pytest.raises(InvalidInput, match="finite"):
        ClassScores([[0.0, np.nan]], 0.0, 1.0, 0.0)


CENTRES = np.linspace(-3, 6, 37)


def powers(scores, centre, shift):
    """Return how often class 1 wins of two noisy votes, without and with a shift of its own."""
    grid = np.linspace(-9, 9, 6001)
    weights = norm.pdf(grid)
    rivals = scores(np.column_stack([grid, grid]), np.ones(len(grid)))[:, 0]
    fine = np.linspace(-60, 60, 60_001)
    mine = scores(np.column_stack([fine, fine]), np.ones(len(fine)))[:, 1]
    least = fine[np.minimum(np.searchsorted(mine, rivals, side="right"), len(fine) - 1)]
    return [
        (weights * norm.sf(least - centre - moved)).sum() / weights.sum() for moved in (0, shift)
    ]


def moved_by(scores, shift):
    """Return the largest shift of a threshold test that the label is as powerful as."""
    return max(np.diff(norm.ppf(powers(scores, centre, shift)))[0] for centre in CENTRES)


def test_labels_by_scores_cost_what_is_charged_and_more_than_for_two_classes():
    """The control: charged as a plain label of two classes, they would cost too little."""
    shift = 0.3
    scores = decision((0.9, 0.1), (1.0, 9.0), total=30.0).scores
    narrow = build_charge_table(0.03, 1e-7, 2).squared_shift_factor ** 0.5
    assert narrow * shift < moved_by(scores, shift) <= shift
    level = decision((0.5, 0.5), total=30.0).scores
    assert moved_by(level, shift) <= narrow * shift * (1 + 1e-3)


def test_scores_need_the_price_of_any_number_of_classes():
    scores, grid = decision().scores, VoteGrid.choose(5.0, 10, 2, 1e-5)
    for_two, meter = build_charge_table(0.03, 1e-7, 2), DeltaSlackAccountant(1e-5, needs_slack=True)
    with pytest.raises(InvalidInput, match="any classes"):
        NoisyLabels(Cosine(), 2, 2, for_two, grid, create_noise_source(1), meter, scores)

    def priced(**parameters):
        plan = IndKNNPlan.from_estimator(IndKNNClassifier([0, 1], **parameters))
        return plan.label_charges.classes

    assert priced(class_prior=RARE) is None
    assert priced(cost=(1, 2)) is None
    assert priced(class_prior=(0.5, 0.5), cost=(2, 2)) == 2


def test_labels_alone_follow_the_rule_and_give_no_probabilities():
    classifier = fitted(release="label", class_prior=RARE, cost="balanced")
    assert classifier.predict(Q)[T == 1].mean() > 0.6
    with pytest.raises(PrivacyRefused, match=r"^Probabilities cannot be given"):
        classifier.predict_proba(Q[:1])


@pytest.mark.parametrize(
    ("parameters", "named"),
    [
        ({"class_prior": (0.2, 0.3, 0.5)}, "class_prior"),
        ({"class_prior": (0.2, 0.3)}, "add up to 1"),
        ({"cost": "balanced"}, "class_prior"),
        ({"cost": (1.0,)}, "cost"),
        ({"cost": (1, 2), "min_similarity": 0.5}, "min_similarity"),
    ],
)
def test_what_does_not_fit_is_refused(parameters, named):
    with pytest.raises(InvalidInput, match=named):
        fitted(**parameters)


@pytest.mark.parametrize("release", ["votes", "label"])
def test_a_store_answers_by_the_rule_now_and_when_opened_again(tmp_path, release):
    made = Store.init(
        tmp_path / "store", X, Y, classes=[0, 1], public=R, release=release,
        class_prior=list(RARE), cost="balanced", **PLAN,
    )  # fmt: skip
    with made:
        first = made.predict(Q[:100])
    assert first.labels[T[:100] == 1].mean() > 0.5
    with Store.open(tmp_path / "store") as store:
        again = store.predict(Q[:100])
    assert again.charged == 0
    np.testing.assert_array_equal(first.labels, again.labels)
    if release == "label":
        assert first.probabilities is None
        return
    np.testing.assert_allclose(first.probabilities.sum(axis=1), 1)
    np.testing.assert_array_equal(first.probabilities, again.probabilities)
    best = (first.probabilities / RARE).argmax(axis=1)
    np.testing.assert_array_equal(first.labels, best)
    listed = json.loads(json.dumps(first.to_dict()))["probabilities"]
    np.testing.assert_allclose(listed, first.probabilities, atol=1e-6)


def test_the_commands_take_prior_and_cost(tmp_path):
    np.savez(tmp_path / "people.npz", x=X, y=Y)
    np.savez(tmp_path / "public.npz", x=R)
    np.savez(tmp_path / "queries.npz", x=Q[:4])

    asked = (
        "init", tmp_path / "store", "--data", tmp_path / "people.npz", "--public",
        tmp_path / "public.npz", "--classes", "0,1", "--records", 1500,
    )  # fmt: skip
    assert "--class-prior" in invoked(*asked, "--class-prior", "a,b", code=2).stderr
    invoked(*asked, "--class-prior", ".9,.1", "--cost", "balanced", "-q")
    text = invoked("predict", tmp_path / "store", "--data", tmp_path / "queries.npz", "-q").stdout
    assert text.splitlines()[0] == "label,confidence,p_0,p_1"
