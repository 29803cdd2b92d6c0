"""NoisySGD: a linear softmax model trained with clipped gradients and noise."""

from vicinal.predictors.noisy_sgd._estimator import NoisySGDClassifier

__all__ = ["NoisySGDClassifier"]
