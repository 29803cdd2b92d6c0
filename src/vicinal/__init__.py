"""Vicinal: differentially private prediction by nearest neighbours.

>>> from vicinal import IndKNNClassifier

Names are imported when they are used, so that `import vicinal` takes no time.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vicinal.accounting._guarantee import Guarantee
    from vicinal.predictors import (
        IndKNNClassifier,
        NoisySGDClassifier,
        PATEClassifier,
        PrivateKNNClassifier,
    )

__all__ = [
    "Guarantee",
    "IndKNNClassifier",
    "NoisySGDClassifier",
    "PATEClassifier",
    "PrivateKNNClassifier",
    "__version__",
]

__version__ = "0.1.0"

_MODULES = {
    "Guarantee": "vicinal.accounting._guarantee",
    "IndKNNClassifier": "vicinal.predictors",
    "NoisySGDClassifier": "vicinal.predictors",
    "PATEClassifier": "vicinal.predictors",
    "PrivateKNNClassifier": "vicinal.predictors",
}


def __getattr__(name: str) -> Any:
    """Import a public name on first use (PEP 562)."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(_MODULES[name]), name)
    return found


def __dir__() -> list[str]:
    """Return the public names, whether they were used or not."""
    return sorted({*globals(), *__all__})
