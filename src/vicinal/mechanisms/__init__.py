"""The trusted core: mechanisms that compute contribution, charge and noise of a release together.

Each mechanism has a proof note of the same name beside it.
"""

from vicinal.lazy import attach_exports

__getattr__, __dir__, __all__ = attach_exports(__name__)
