"""Accuracy, balanced accuracy and AUC, over all and by class, with intervals that hold."""

import math

import numpy as np
import pytest
from sklearn.metrics import balanced_accuracy_score, roc_auc_score

from vicinal.reports._outcomes import ClassFigures, auc_with_error


def drawn(seed, size, classes):
    """Return truth, probabilities that know something of it, and answers."""
    rng = np.random.default_rng(seed)
    truth = rng.integers(0, classes, size)
    scores = rng.normal(size=(size, classes)) + 1.2 * np.eye(classes)[truth]
    chances = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
    return truth, chances, chances.argmax(axis=1)


@pytest.mark.parametrize("classes", [2, 4])
def test_figures_are_those_of_scikit_learn(classes):
    truth, chances, answers = drawn(0, 300, classes)
    found = ClassFigures.of(answers, truth, range(classes), chances)
    expected = balanced_accuracy_score(truth, answers)
    assert found.balanced.value == pytest.approx(expected)
    known = (
        roc_auc_score(truth, chances[:, 1])
        if classes == 2
        else roc_auc_score(truth, chances, multi_class="ovr")
    )
    assert found.auc.value == pytest.approx(known)
    assert found.overall.accuracy == pytest.approx((answers == truth).mean())
    assert ClassFigures.of([1, 2], [1, 1], [1, 2]).balanced.value == 0.5
    assert math.isnan(ClassFigures.of([], [], [1]).balanced.value)


@pytest.mark.parametrize("classes", [2, 3])
def test_intervals_hold_the_true_figure_and_are_not_wide(classes):
    """Over 200 samples of 150: 95 % of intervals hold what a large sample has, or nearly so."""
    truth, chances, answers = drawn(1, 100_000, classes)
    far = ClassFigures.of(answers, truth, range(classes), chances)
    inside = np.zeros(2)
    for seed in range(200):
        truth, chances, answers = drawn(seed + 2, 150, classes)
        near = ClassFigures.of(answers, truth, range(classes), chances)
        for place, (one, true) in enumerate(((near.auc, far.auc), (near.balanced, far.balanced))):
            inside[place] += one.low <= true.value <= one.high
            assert one.high - one.low < 0.35
    assert (inside >= 180).all()


def test_a_class_without_examples_or_mistakes():
    truth, answers = np.array([0, 0, 0, 1]), np.array([0, 0, 0, 1])
    chances = np.eye(3)[answers]
    found = ClassFigures.of(answers, truth, range(3), chances)
    assert found.auc is None, "nothing is known of the third class"
    assert found.balanced.value == 1.0
    assert found.balanced.low < 0.9, "few examples without a mistake prove little"
    assert "2: no examples" in found.lines()[-1]
    two = ClassFigures.of(answers, truth, range(2), chances[:, :2])
    assert (two.auc.low, two.auc.high) == (0.0, 1.0), "one case has no variance"
    nothing = ClassFigures.of([], [], range(2), np.zeros((0, 2)))
    assert nothing.to_dict()["balanced_accuracy"] is None
    assert nothing.lines() == ["There are no examples to compare with."]
    assert ClassFigures.of([0], [0], range(2), np.ones((1, 2))).auc is None


def test_ties_count_half():
    assert auc_with_error(np.zeros(6), np.array([1, 1, 0, 0, 0, 1], dtype=bool))[0] == 0.5
