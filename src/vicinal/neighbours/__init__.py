"""Which records take part in an answer: integer features, kernels, radius and exact search.

Nothing here knows labels, budgets or noise. What a record contributes to a search depends on that
record, the query and public values, never on which other records are present.
"""

from vicinal.neighbours.exact import ExactIndex, Neighbours
from vicinal.neighbours.integers import INTEGER_NORM
from vicinal.neighbours.kernels import RBF, Cosine, Kernel
from vicinal.neighbours.radius import LEAST_COUNT, AdaptiveRadius, FixedRadius, Radius, Reference

__all__ = [
    "INTEGER_NORM",
    "LEAST_COUNT",
    "RBF",
    "AdaptiveRadius",
    "Cosine",
    "ExactIndex",
    "FixedRadius",
    "Kernel",
    "Neighbours",
    "Radius",
    "Reference",
]
