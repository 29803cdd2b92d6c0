"""Accuracy of answers, overall and by class, with confidence intervals."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from vicinal import checks
from vicinal.arrays import Bools, Floats
from vicinal.errors import InvalidInput

_NORMAL_95 = NormalDist().inv_cdf(0.975)  # half-width of a 95 % interval, in standard deviations


def wilson_interval(correct: int, total: int) -> tuple[float, float]:
    """Return both ends of the 95 % score interval (Wilson 1927) of a share of correct answers.

    Unlike the Wald interval, it stays inside [0, 1] and is accurate for shares near 0 and 1.
    `correct`, `total`: numbers of correct and of all answers.
    """
    z = _NORMAL_95
    share = correct / total
    shrinkage = z * z / total
    centre = (share + shrinkage / 2) / (1 + shrinkage)
    variance = share * (1 - share) / total + shrinkage / (4 * total)
    half_width = z * math.sqrt(variance) / (1 + shrinkage)
    # Without floating-point errors the formula gives exactly 0 and 1 in these two cases.
    low = 0.0 if correct == 0 else max(0.0, centre - half_width)
    high = 1.0 if correct == total else min(1.0, centre + half_width)
    return low, high


@dataclass(frozen=True, slots=True)
class AnswerCounts:
    """Numbers of correct answers and of all answers in one run."""

    correct: int
    total: int

    @classmethod
    def from_answers(cls, answers: npt.ArrayLike, truth: npt.ArrayLike) -> Self:
        """Return the numbers for `answers`, class names (q,), compared with the `truth` (q,)."""
        matches = mark_correct_answers(answers, truth)
        return cls(int(matches.sum()), len(matches))

    @property
    def accuracy(self) -> float:
        """Share of correct answers; NaN without answers."""
        return self.correct / self.total if self.total else math.nan

    @property
    def interval(self) -> tuple[float, float]:
        """95 % confidence interval of the accuracy; [0, 1] without answers."""
        return wilson_interval(self.correct, self.total) if self.total else (0.0, 1.0)

    def to_dict(self) -> dict[str, Any]:
        """Return the numbers, the accuracy and its interval as JSON values."""
        low, high = self.interval
        return {
            "correct": self.correct,
            "total": self.total,
            "accuracy": self.accuracy if self.total else None,
            "interval_95": [low, high],
        }


def mark_correct_answers(answers: npt.ArrayLike, truth: npt.ArrayLike) -> Bools:
    """Return whether each answer is correct, bool (q,), after Unicode normalisation.

    `answers`, `truth` (q,): answered and true class names.
    """
    labels = checks.normalize_labels(answers)
    true_labels = checks.normalize_labels(truth)
    if labels.shape != true_labels.shape or labels.ndim != 1:
        shapes = f"{labels.shape} and {true_labels.shape}"
        raise InvalidInput(f"Answers and truth must have the same shape (q,). Got {shapes}.")
    return np.asarray(labels == true_labels)


def count_correct_of_most_confident(
    correct: Bools, confidence: Floats, share: float
) -> AnswerCounts:
    """Return the numbers of correct and of all answers among the most confident ones.

    `correct`, bool (q,): whether each answer is correct. `confidence`, float (q,): released
    confidence of each answer. `share`: selected share of the answers, in (0, 1].
    """
    n_selected = max(1, round(share * len(correct)))
    selected = np.argsort(-confidence, kind="stable")[:n_selected]
    return AnswerCounts(int(correct[selected].sum()), n_selected)


@dataclass(frozen=True, slots=True)
class AccuracyByClass:
    """Numbers of correct answers: of all answers, and of those for each true class, by its name."""

    overall: AnswerCounts
    by_class: dict[str, AnswerCounts]

    @classmethod
    def from_answers(
        cls, answers: npt.ArrayLike, truth: npt.ArrayLike, classes: Sequence[Any]
    ) -> Self:
        """Return the numbers of correct answers, overall and by true class.

        `answers`, `truth` (q,): answered and true class names. `classes`: all class names.
        """
        correct = mark_correct_answers(answers, truth)
        true_labels = checks.normalize_labels(truth)
        by_class = {}
        for name in map(checks.normalize_text, classes):
            in_class = true_labels == name
            by_class[str(name)] = AnswerCounts(int(correct[in_class].sum()), int(in_class.sum()))
        return cls(AnswerCounts(int(correct.sum()), len(correct)), by_class)

    def to_dict(self) -> dict[str, Any]:
        """Return the numbers of all answers and by class as JSON values."""
        by_class = {name: counts.to_dict() for name, counts in self.by_class.items()}
        return {**self.overall.to_dict(), "by_class": by_class}

    def format_lines(self) -> list[str]:
        """Return lines of text with the accuracy, its interval and the accuracy by class."""
        if not self.overall.total:
            return ["There are no examples to compare with."]
        low, high = self.overall.interval
        shares = [
            f"{name} {counts.accuracy:.3f} of {counts.total:,}"
            if counts.total
            else f"{name}: no examples"
            for name, counts in self.by_class.items()
        ]
        return [
            f"Accuracy {self.overall.accuracy:.3f} ({low:.3f} to {high:.3f})",
            f"Right by class: {'; '.join(shares)}",
        ]
