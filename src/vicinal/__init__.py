"""Vicinal: differentially private prediction by nearest neighbours.

>>> from vicinal import IndKNNClassifier

Names are imported when they are used, so that `import vicinal` takes no time. What a package
exports to users is listed in its ``__init__.pyi``. A module without a leading underscore is shared
within vicinal; a module or name with one is private to its package.
"""

from vicinal.lazy import build_lazy_exports

__version__ = "0.2.0"
__getattr__, __dir__, __all__ = build_lazy_exports(__name__)
__all__ += ["__version__"]
__all__.sort()
