"""Privacy accounting: the cost of releases.

Pure mathematics: functions of their arguments, without data, randomness, input or output.
"""

from vicinal.lazy import build_lazy_exports

__getattr__, __dir__, __all__ = build_lazy_exports(__name__)
