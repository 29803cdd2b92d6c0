"""Vicinal: differentially private prediction by nearest neighbours.

>>> from vicinal import IndKNNClassifier
"""

from vicinal.accounting.guarantee import Guarantee
from vicinal.predictors import IndKNNClassifier

__all__ = ["Guarantee", "IndKNNClassifier", "__version__"]

__version__ = "0.1.0"
