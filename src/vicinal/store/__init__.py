"""Stores: private records on disk, persistent budgets of subjects, and erasure."""

from vicinal.lazy import build_lazy_exports

__getattr__, __dir__, __all__ = build_lazy_exports(__name__)
