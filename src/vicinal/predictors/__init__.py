"""scikit-learn estimators that answer from private records."""

from vicinal._lazy import lazy_exports

__getattr__, __dir__, __all__ = lazy_exports(__name__)
