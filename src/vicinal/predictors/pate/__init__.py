"""PATE: noisy votes of teachers on disjoint parts of the subjects (Papernot et al. 2018)."""

from vicinal.predictors.pate._estimator import PATEClassifier

__all__ = ["PATEClassifier"]
