"""How often the answers were right, of every class too, and how sure one can be of that."""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from statistics import NormalDist
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from scipy.stats import rankdata

from vicinal import _checks
from vicinal._arrays import Bools, FloatMatrix, Floats
from vicinal.errors import InvalidInput

_NORMAL_95 = NormalDist().inv_cdf(0.975)


def wilson_interval(correct: int, total: int) -> tuple[float, float]:
    """Return the 95 % score interval of Wilson (1927) for a share: lower and upper end.

    Unlike the textbook's plus-or-minus it stays inside [0, 1] and holds near both ends.
    """
    total = _checks.integer("total", total, least=1)
    correct = _checks.integer("correct", correct, least=0, most=total)
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
        right = rightness(answers, truth)
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


def rightness(answers: npt.ArrayLike, truth: npt.ArrayLike) -> Bools:
    labels, true = np.asarray(answers), np.asarray(truth)
    if labels.shape != true.shape or labels.ndim != 1:
        raise InvalidInput(
            f"Answers and truth must be flat and as many. Got {labels.shape} and {true.shape}."
        )
    return np.asarray(labels == true)


def outcome_by_class(
    answers: npt.ArrayLike, truth: npt.ArrayLike, classes: Sequence[Any]
) -> dict[str, Outcome]:
    right, true = rightness(answers, truth), np.asarray(truth)
    return {
        str(name): Outcome(int(right[true == name].sum()), int((true == name).sum()))
        for name in classes
    }


def outcome_of_surest(right: Bools, confidence: Floats, share: float) -> Outcome:
    """Return the outcome if only the `share` of queries with most confidence were answered.

    Post-processing: looks at the answers given and their noisy lead, nothing else.
    """
    share = _checks.real("share", share, above=0, most=1)
    count = max(1, round(share * len(right)))
    surest = np.argsort(-confidence, kind="stable")[:count]
    return Outcome(int(right[surest].sum()), count)


@dataclass(frozen=True, slots=True)
class FigureInterval:
    """A figure with its 95 % interval, which is for the choice of examples."""

    value: float
    low: float
    high: float

    @classmethod
    def around(cls, value: float, error: float, most: float = 1.0) -> Self:
        reach = _NORMAL_95 * error
        return cls(value, max(0.0, value - reach), min(most, value + reach))

    def __str__(self) -> str:
        return f"{self.value:.3f} ({self.low:.3f} to {self.high:.3f})"


@dataclass(frozen=True, slots=True)
class ClassFigures:
    """How good answers are, over all and for every class.

    - `overall`: all examples.
    - `by_class`: the outcome for the examples of each class, by its name.
    - `auc`: area under the ROC curve: of the second of two classes, or the mean of each against all
      others. None without probabilities, or where a class has no examples.
    """

    overall: Outcome
    by_class: dict[str, Outcome]
    auc: FigureInterval | None

    @classmethod
    def of(
        cls,
        answers: npt.ArrayLike,
        truth: npt.ArrayLike,
        classes: Sequence[Any],
        chances: FloatMatrix | None = None,
    ) -> Self:
        """Compare answers (q,), and their probabilities (q, c) if known, with the truth (q,)."""
        true = np.asarray(truth)
        members = np.stack([true == name for name in classes], axis=1)
        complete = len(members) > 0 and bool(members.any(axis=0).all())
        auc = None if chances is None or not complete else _auc_of_all(chances, members)
        return cls(Outcome.of(answers, truth), outcome_by_class(answers, truth, classes), auc)

    @property
    def balanced(self) -> FigureInterval:
        """Mean share of right answers over the classes that there are examples of."""
        there = [one for one in self.by_class.values() if one.total]
        if not there:
            return FigureInterval(math.nan, 0.0, 1.0)
        value = float(np.mean([one.accuracy for one in there]))
        # A class without a mistake has an error, too: shares with one right and one wrong added.
        smooth = [((one.correct + 1) / (one.total + 2), one.total) for one in there]
        variance = sum(share * (1 - share) / total for share, total in smooth)
        return FigureInterval.around(value, math.sqrt(variance) / len(there))

    def to_dict(self) -> dict[str, Any]:
        balanced = asdict(self.balanced) if self.overall.total else None
        return {
            **self.overall.to_dict(),
            "balanced_accuracy": balanced,
            "auc": None if self.auc is None else asdict(self.auc),
            "by_class": {name: one.to_dict() for name, one in self.by_class.items()},
        }

    def lines(self) -> list[str]:
        if not self.overall.total:
            return ["There are no examples to compare with."]
        lines = [
            f"Accuracy {FigureInterval(self.overall.accuracy, *self.overall.interval)}",
            f"Balanced accuracy {self.balanced}",
        ]
        if self.auc is not None:
            lines.append(f"AUC {self.auc}")
        shares = [
            f"{name} {one.accuracy:.3f} of {one.total:,}" if one.total else f"{name}: no examples"
            for name, one in self.by_class.items()
        ]
        return [*lines, f"Right by class: {'; '.join(shares)}"]


def auc_with_error(scores: FloatMatrix, cases: Bools) -> tuple[float, float]:
    """Return the AUC of scores (q,) and its standard error (DeLong et al. 1988); NaN if too few.

    `scores`, float (q,): higher for likelier cases. `cases`, bool (q,): which are cases; some, and
    not all.
    """
    ours, others = scores[cases], scores[~cases]
    ranks = rankdata(scores)
    above = (ranks[cases] - rankdata(ours)) / len(others)
    below = (ranks[~cases] - rankdata(others)) / len(ours)
    if min(len(ours), len(others)) < 2:
        return float(above.mean()), math.nan
    error = math.sqrt(above.var(ddof=1) / len(ours) + below.var(ddof=1) / len(others))
    return float(above.mean()), error


def _auc_of_all(chances: FloatMatrix, members: Bools) -> FigureInterval | None:
    columns = [1] if members.shape[1] == 2 else range(members.shape[1])
    if members.all(axis=0).any():
        return None
    areas = [auc_with_error(chances[:, place], members[:, place]) for place in columns]
    values, errors = zip(*areas, strict=True)
    # Errors of classes go together in an unknown way: the mean of them is the most there can be.
    error = float(np.mean(errors))
    return FigureInterval.around(float(np.mean(values)), math.inf if math.isnan(error) else error)
