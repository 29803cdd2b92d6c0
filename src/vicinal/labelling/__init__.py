"""Knowledge transfer in rounds: private labels for public examples, and students trained on them.

The plan and released answers alone decide which examples are queried and which answers are used for
training. Only the labeller has access to private labels.
"""

from vicinal.lazy import build_lazy_exports

__getattr__, __dir__, __all__ = build_lazy_exports(__name__)
