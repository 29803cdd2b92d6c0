"""scikit-learn estimators that answer from private records."""

from vicinal.predictors.ind_knn import IndKNNClassifier

__all__ = ["IndKNNClassifier"]
