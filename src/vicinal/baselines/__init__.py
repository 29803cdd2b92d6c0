"""What Ind-KNN and Private-kNN are compared with: PATE and NoisySGD."""

from vicinal._lazy import lazy_exports

__getattr__, __dir__, __all__ = lazy_exports(__name__)
