"""Balanced accuracy."""

from __future__ import annotations

import math

import numpy as np
import pytest
from sklearn.metrics import balanced_accuracy_score

from vicinal.reports._outcomes import balanced_accuracy


def test_figures_are_those_of_scikit_learn():
    rng = np.random.default_rng(0)
    answers, truth = rng.integers(0, 3, 300), rng.integers(0, 3, 300)
    expected = balanced_accuracy_score(truth, answers)
    assert balanced_accuracy(answers, truth) == pytest.approx(expected)
    assert balanced_accuracy([1, 2], [1, 1]) == 0.5
    assert math.isnan(balanced_accuracy([], []))
