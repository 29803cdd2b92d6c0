"""What records carry, and what answers make of it: classes, numbers, several labels."""

from vicinal._lazy import lazy_exports

__getattr__, __dir__, __all__ = lazy_exports(__name__)
