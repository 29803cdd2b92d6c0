"""Private-kNN: noisy votes of a fresh Poisson sample (Zhu, Yu, Chandraker & Wang 2020)."""

from vicinal.predictors.private_knn._estimator import PrivateKNNClassifier

__all__ = ["PrivateKNNClassifier"]
