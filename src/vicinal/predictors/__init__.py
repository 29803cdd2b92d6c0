"""scikit-learn estimators that answer from private records."""

from vicinal.predictors.ind_knn import IndKNNClassifier
from vicinal.predictors.noisy_sgd import NoisySGDClassifier
from vicinal.predictors.pate import PATEClassifier
from vicinal.predictors.private_knn import PrivateKNNClassifier

__all__ = ["IndKNNClassifier", "NoisySGDClassifier", "PATEClassifier", "PrivateKNNClassifier"]
