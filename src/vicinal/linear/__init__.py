"""The private model: linear in public features, trained with noise, beside the neighbours."""

from vicinal._lazy import lazy_exports

__getattr__, __dir__, __all__ = lazy_exports(__name__)
