"""What a release costs. Pure mathematics: no data, no randomness, no input or output."""

from vicinal._lazy import lazy_exports

__getattr__, __dir__, __all__ = lazy_exports(__name__)
