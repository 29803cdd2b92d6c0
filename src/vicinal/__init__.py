"""Vicinal: differentially private prediction by nearest neighbours.

>>> from vicinal import IndKNNClassifier
"""

from vicinal.accounting.guarantee import Guarantee
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
