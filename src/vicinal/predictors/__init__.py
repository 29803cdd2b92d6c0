"""scikit-learn estimators that predict from private records under differential privacy."""

from vicinal.lazy import build_lazy_exports

__getattr__, __dir__, __all__ = build_lazy_exports(__name__)
