"""Ind-KNN: private prediction with a budget for every subject (Zhu, Zhao, Guo & Wang 2023)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vicinal._lazy import lazy_exports

if TYPE_CHECKING:
    from vicinal.predictors.ind_knn._estimator import ABSTAIN, IndKNNClassifier

__all__ = ["ABSTAIN", "IndKNNClassifier"]

__getattr__, __dir__ = lazy_exports(
    __name__, globals(), dict.fromkeys(__all__, "vicinal.predictors.ind_knn._estimator")
)
