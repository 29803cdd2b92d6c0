"""How often the answers were right, of every class too, and how sure one can be of that."""

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

_NORMAL_95 = NormalDist().inv_cdf(0.975)


def wilson_interval(correct: int, total: int) -> tuple[float, float]:
    """Return the 95 % score interval of Wilson (1927) for a share: lower and upper end.

    Unlike the textbook's plus-or-minus it stays inside [0, 1] and holds near both ends.
    """
    total = checks.check_integer("total", total, least=1)
    correct = checks.check_integer("correct", correct, least=0, most=total)
    z = _NORMAL_95
    share, pull = correct / total, z * z / total
    centre = (share + pull / 2) / (1 + pull)
    reach = z * math.sqrt(share * (1 - share) / total + pull / (4 * total)) / (1 + pull)
    # At the ends the formula gives exactly 0 and 1, but for rounding.
    low = 0.0 if correct == 0 else max(0.0, centre - reach)
    high = 1.0 if correct == total else min(1.0, centre + reach)
    return low, high


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of one run: so many answers right, of so many."""

    correct: int
    total: int

    @classmethod
    def of(cls, answers: npt.ArrayLike, truth: npt.ArrayLike) -> Self:
        right = compare_answers(answers, truth)
        return cls(int(right.sum()), len(right))

    @property
    def accuracy(self) -> float:
        return self.correct / self.total if self.total else math.nan

    @property
    def interval(self) -> tuple[float, float]:
        """The accuracy's 95 % interval; everything, if there are no answers."""
        return wilson_interval(self.correct, self.total) if self.total else (0.0, 1.0)

    def to_dict(self) -> dict[str, Any]:
        low, high = self.interval
        return {
            "correct": self.correct,
            "total": self.total,
            "accuracy": self.accuracy if self.total else None,
            "interval_95": [low, high],
        }


def compare_answers(answers: npt.ArrayLike, truth: npt.ArrayLike) -> Bools:
    labels, true = checks.composed_labels(answers), checks.composed_labels(truth)
    if labels.shape != true.shape or labels.ndim != 1:
        raise InvalidInput(
            f"Answers and truth must be flat and as many. Got {labels.shape} and {true.shape}."
        )
    return np.asarray(labels == true)


def outcome_by_class(
    answers: npt.ArrayLike, truth: npt.ArrayLike, classes: Sequence[Any]
) -> dict[str, Outcome]:
    right, true = compare_answers(answers, truth), checks.composed_labels(truth)
    names = [checks.normalize_text(name) for name in classes]
    return {
        str(name): Outcome(int(right[true == name].sum()), int((true == name).sum()))
        for name in names
    }


def outcome_of_surest(right: Bools, confidence: Floats, share: float) -> Outcome:
    """Return the outcome if only the `share` of queries with most confidence were answered.

    Post-processing: looks at the answers given and their noisy lead, nothing else.
    """
    share = checks.check_real("share", share, above=0, most=1)
    count = max(1, round(share * len(right)))
    surest = np.argsort(-confidence, kind="stable")[:count]
    return Outcome(int(right[surest].sum()), count)


@dataclass(frozen=True, slots=True)
class ClassFigures:
    """How good answers are, over all and for the examples of each class, by its name."""

    overall: Outcome
    by_class: dict[str, Outcome]

    @classmethod
    def of(cls, answers: npt.ArrayLike, truth: npt.ArrayLike, classes: Sequence[Any]) -> Self:
        """Compare answers (q,) with the truth (q,)."""
        return cls(Outcome.of(answers, truth), outcome_by_class(answers, truth, classes))

    def to_dict(self) -> dict[str, Any]:
        by_class = {name: one.to_dict() for name, one in self.by_class.items()}
        return {**self.overall.to_dict(), "by_class": by_class}

    def lines(self) -> list[str]:
        if not self.overall.total:
            return ["There are no examples to compare with."]
        low, high = self.overall.interval
        shares = [
            f"{name} {one.accuracy:.3f} of {one.total:,}" if one.total else f"{name}: no examples"
            for name, one in self.by_class.items()
        ]
        return [
            f"Accuracy {self.overall.accuracy:.3f} ({low:.3f} to {high:.3f})",
            f"Right by class: {'; '.join(shares)}",
        ]
