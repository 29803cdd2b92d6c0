"""Budgets that outlive a query: who has how much left, who came and who went."""

from vicinal._lazy import lazy_exports

__getattr__, __dir__, __all__ = lazy_exports(__name__)
