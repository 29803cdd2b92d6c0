"""Baselines for comparison with Ind-KNN and Private-kNN: PATE and NoisySGD."""

from vicinal.lazy import attach_exports

__getattr__, __dir__, __all__ = attach_exports(__name__)
