"""The only source of randomness: exact discrete samples, and a marked simulation mode.

Only `vicinal.mechanisms` may import this package.
"""

from vicinal.lazy import build_lazy_exports

__getattr__, __dir__, __all__ = build_lazy_exports(__name__)
