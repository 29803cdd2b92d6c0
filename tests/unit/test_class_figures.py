"""Balanced accuracy, and the AUC with its interval."""

from __future__ import annotations

import math

import numpy as np
import pytest
from sklearn.metrics import balanced_accuracy_score, roc_auc_score

from vicinal.errors import InvalidInput
from vicinal.reports._outcomes import RankingQuality, balanced_accuracy, recalls


def test_figures_are_those_of_scikit_learn():
    rng = np.random.default_rng(0)
    scores, there = rng.integers(0, 9, 300).astype(float), rng.random(300) < 0.2
    assert RankingQuality.of(scores, there).auc == pytest.approx(roc_auc_score(there, scores))
    answers, truth = rng.integers(0, 3, 300), rng.integers(0, 3, 300)
    expected = balanced_accuracy_score(truth, answers)
    assert balanced_accuracy(answers, truth, [0, 1, 2]) == pytest.approx(expected)
    assert math.isnan(recalls([1], [1], [0, 1])[0])


def test_the_interval_holds_the_true_area_as_often_as_it_says():
    rng = np.random.default_rng(1)
    true, held = 0.7602, 0  # of normal scores one deviation apart: Phi(1 / sqrt 2)
    for _ in range(400):
        there = np.arange(200) < 30
        found = RankingQuality.of(rng.normal(there * 1.0), there)
        held += found.low <= true <= found.high
    assert 0.90 < held / 400 < 0.99


def test_without_cases_nothing_is_known_and_bad_scores_are_refused():
    assert math.isnan(RankingQuality.of([1.0, 2.0], [True, True]).auc)
    assert str(RankingQuality.of([1.0], [True])) == "unknown"
    for bad in ([math.nan, 1.0], [1.0], [[1.0, 2.0]]):
        with pytest.raises(InvalidInput):
            RankingQuality.of(bad, [True, False])
