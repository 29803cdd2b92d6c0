"""Plans: checked parameters and public facts become budgets, neighbours, noise and an engine."""

from vicinal._lazy import lazy_exports

__getattr__, __dir__, __all__ = lazy_exports(__name__)
