"""A store: private records on disk, budgets that outlive the process, and people who can leave."""

from vicinal.lazy import attach_exports

__getattr__, __dir__, __all__ = attach_exports(__name__)
