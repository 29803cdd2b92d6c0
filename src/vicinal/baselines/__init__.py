"""Baselines for comparison with Ind-KNN and Private-kNN: PATE and NoisySGD."""

from vicinal.lazy import build_lazy_exports

__getattr__, __dir__, __all__ = build_lazy_exports(__name__)
