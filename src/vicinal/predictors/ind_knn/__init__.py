"""Ind-KNN: private prediction with a budget for every subject (Zhu, Zhao, Guo & Wang 2023)."""

from vicinal.predictors.ind_knn._estimator import ABSTAIN, IndKNNClassifier

__all__ = ["ABSTAIN", "IndKNNClassifier"]
