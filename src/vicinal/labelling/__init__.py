"""Rounds of knowledge transfer: ask private records about public examples, learn, ask better.

Whatever is asked, kept or learnt from is decided by the plan and by released answers. Only the
labeller sees private records.
"""

from vicinal.lazy import attach_exports

__getattr__, __dir__, __all__ = attach_exports(__name__)
