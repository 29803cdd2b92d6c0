"""Vicinal: differentially private prediction by nearest neighbours.

>>> from vicinal import IndKNNClassifier

Names are imported when they are used, so that `import vicinal` takes no time. What a package
exports stands in its ``__init__.pyi``; what begins with an underscore is internal to its package.
"""

from vicinal._lazy import lazy_exports

__version__ = "0.2.0"
__getattr__, __dir__, __all__ = lazy_exports(__name__)
__all__ += ["__version__"]
__all__.sort()
