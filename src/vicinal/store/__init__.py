"""A store: private records on disk, budgets that outlive the process, and people who can leave."""

from vicinal._lazy import lazy_exports

__getattr__, __dir__, __all__ = lazy_exports(__name__)
