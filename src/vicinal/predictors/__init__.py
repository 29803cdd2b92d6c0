"""scikit-learn estimators that answer from private records."""

from vicinal.predictors.ind_knn._estimator import IndKNNClassifier
from vicinal.predictors.noisy_sgd._estimator import NoisySGDClassifier
from vicinal.predictors.pate._estimator import PATEClassifier
from vicinal.predictors.private_knn._estimator import PrivateKNNClassifier

__all__ = ["IndKNNClassifier", "NoisySGDClassifier", "PATEClassifier", "PrivateKNNClassifier"]
