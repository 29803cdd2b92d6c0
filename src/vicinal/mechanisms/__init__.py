"""The trusted core: mechanisms that compute contribution, charge and noise of a release together.

Each mechanism has a proof note of the same name beside it.
"""

from vicinal.lazy import build_lazy_exports

__getattr__, __dir__, __all__ = build_lazy_exports(__name__)
