"""What a release costs. Pure mathematics: no data, no randomness, no input or output."""

from vicinal.lazy import attach_exports

__getattr__, __dir__, __all__ = attach_exports(__name__)
