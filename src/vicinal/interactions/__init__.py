"""Recognition of a second fit on the same records. No guarantee depends on it."""

from vicinal._lazy import lazy_exports

__getattr__, __dir__, __all__ = lazy_exports(__name__)
