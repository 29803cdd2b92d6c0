"""Figures that a rare class cannot hide in: recall by class, and the AUC with an interval."""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from scipy.stats import rankdata

from vicinal import _checks
from vicinal.errors import InvalidInput


@dataclass(frozen=True, slots=True)
class RankingQuality:
    """The area under the ROC curve: how often a case scores above one that is none.

    Ties count half; NaN if there are no cases, or nothing else. `low` and `high` are the interval
    of DeLong, DeLong & Clarke-Pearson (1988), inside [0, 1].

    >>> RankingQuality.of([0.1, 0.4, 0.35, 0.8], [False, False, True, True]).auc
    0.75
    """

    auc: float
    low: float
    high: float

    @classmethod
    def of(cls, scores: npt.ArrayLike, cases: npt.ArrayLike, confidence: float = 0.95) -> Self:
        """Return the area of scores (q,) for cases, bool (q,)."""
        confidence = _checks.real("confidence", confidence, above=0, below=1)
        values, there = np.asarray(scores, dtype=np.float64), np.asarray(cases, dtype=np.bool_)
        if values.ndim != 1 or values.shape != there.shape or not np.isfinite(values).all():
            raise InvalidInput("The 'scores' parameter must hold a finite number for each case.")
        ours, others = values[there], values[~there]
        if not len(ours) or not len(others):
            return cls(math.nan, math.nan, math.nan)
        ranks = rankdata(values)
        above = (ranks[there] - rankdata(ours)) / len(others)
        below = 1 - (ranks[~there] - rankdata(others)) / len(ours)
        auc = float(above.mean())
        variance = _variance_of_mean(above) + _variance_of_mean(below)
        reach = NormalDist().inv_cdf((1 + confidence) / 2) * math.sqrt(variance)
        return cls(auc, max(0.0, auc - reach), min(1.0, auc + reach))

    def __str__(self) -> str:
        """Return the area and its interval, as ".852 (.801 to .903)"."""
        if math.isnan(self.auc):
            return "unknown"
        return f"{self.auc:.3f} ({self.low:.3f} to {self.high:.3f})"


def _variance_of_mean(values: npt.NDArray[np.float64]) -> float:
    return float(values.var(ddof=1)) / len(values) if len(values) > 1 else 0.25


def recalls(answers: npt.ArrayLike, truth: npt.ArrayLike, classes: npt.ArrayLike) -> list[float]:
    """Return the share of right answers among the queries of each class; NaN where there is none.

    Their mean is the balanced accuracy.
    """
    given, true = np.asarray(answers), np.asarray(truth)
    found: list[Any] = [true == name for name in np.asarray(classes)]
    return [float((given == true)[mine].mean()) if mine.any() else math.nan for mine in found]


def balanced_accuracy(
    answers: npt.ArrayLike, truth: npt.ArrayLike, classes: npt.ArrayLike
) -> float:
    """Return the mean recall of the classes that there are queries of."""
    known = [share for share in recalls(answers, truth, classes) if not math.isnan(share)]
    return float(np.mean(known)) if known else math.nan
