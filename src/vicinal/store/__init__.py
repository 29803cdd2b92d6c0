"""Stores: private records on disk, persistent budgets of subjects, and erasure."""

from vicinal.lazy import attach_exports

__getattr__, __dir__, __all__ = attach_exports(__name__)
