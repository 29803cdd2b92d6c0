"""What Ind-KNN and Private-kNN are compared with: PATE and NoisySGD."""

from vicinal.lazy import attach_exports

__getattr__, __dir__, __all__ = attach_exports(__name__)
