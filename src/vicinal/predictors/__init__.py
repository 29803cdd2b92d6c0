"""scikit-learn estimators that answer from private records."""

from vicinal.lazy import attach_exports

__getattr__, __dir__, __all__ = attach_exports(__name__)
