"""The way of a query: from integer features to a noisy answer, charged before it leaves."""

from vicinal._lazy import lazy_exports

__getattr__, __dir__, __all__ = lazy_exports(__name__)
