"""How often the answers were right, of every class too, and how sure one can be of that."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from vicinal import _checks
from vicinal.errors import InvalidInput


def wilson_interval(correct: int, total: int, confidence: float = 0.95) -> tuple[float, float]:
    """Return the score interval of Wilson (1927) for a share: lower and upper end.

    Unlike the textbook's plus-or-minus it stays inside [0, 1] and holds near both ends.
    """
    total = _checks.integer("total", total, least=1)
    correct = _checks.integer("correct", correct, least=0, most=total)
    z = NormalDist().inv_cdf((1 + _checks.real("confidence", confidence, above=0, below=1)) / 2)
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
        """Compare answers (q,) with the truth (q,)."""
        right = rightness(answers, truth)
        return cls(int(right.sum()), len(right))

    @property
    def accuracy(self) -> float:
        """Share of right answers; NaN if there are none."""
        return self.correct / self.total if self.total else math.nan

    @property
    def interval(self) -> tuple[float, float]:
        """The accuracy's 95 % interval; everything, if there are no answers."""
        return wilson_interval(self.correct, self.total) if self.total else (0.0, 1.0)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, for JSON."""
        low, high = self.interval
        return {
            "correct": self.correct,
            "total": self.total,
            "accuracy": self.accuracy if self.total else None,
            "interval_95": [low, high],
        }


def rightness(answers: npt.ArrayLike, truth: npt.ArrayLike) -> npt.NDArray[np.bool_]:
    """Return which answers (q,) equal the truth (q,)."""
    given, wanted = np.asarray(answers), np.asarray(truth)
    if given.shape != wanted.shape or given.ndim != 1:
        raise InvalidInput(
            f"Answers and truth must be flat and as many. Got {given.shape} and {wanted.shape}."
        )
    return np.asarray(given == wanted)


def outcome_by_class(
    answers: npt.ArrayLike, truth: npt.ArrayLike, classes: Sequence[Any]
) -> dict[str, Outcome]:
    """Return the outcome for the queries of each class, in the order of `classes`."""
    right, wanted = rightness(answers, truth), np.asarray(truth)
    return {
        str(name): Outcome(int(right[wanted == name].sum()), int((wanted == name).sum()))
        for name in classes
    }


def outcome_of_surest(
    right: npt.NDArray[np.bool_], confidence: npt.NDArray[np.float64], share: float
) -> Outcome:
    """Return the outcome if only the `share` of queries with most confidence were answered.

    Post-processing: looks at the answers given and their noisy lead, nothing else.
    """
    share = _checks.real("share", share, above=0, most=1)
    kept = max(1, round(share * len(right)))
    surest = np.argsort(-confidence, kind="stable")[:kept]
    return Outcome(int(right[surest].sum()), kept)


def balanced_accuracy(answers: npt.ArrayLike, truth: npt.ArrayLike) -> float:
    """Return the mean share of right answers over the classes that there are queries of."""
    given, true = np.asarray(answers), np.asarray(truth)
    found: list[Any] = [true == name for name in np.unique(true)]
    return float(np.mean([(given == true)[mine].mean() for mine in found])) if found else math.nan
