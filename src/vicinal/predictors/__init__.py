"""scikit-learn estimators that predict from private records under differential privacy."""

from vicinal.lazy import attach_exports

__getattr__, __dir__, __all__ = attach_exports(__name__)
