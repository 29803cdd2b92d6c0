"""Which records take part in an answer: integer features, kernels, radius, engines and indexes.

Nothing here knows labels, budgets or noise. What a record contributes to a search depends on that
record, the query and public values, never on which other records are present.
"""

from vicinal.neighbours._centroids import CentroidCells, PublicCentroids, learn_cells
from vicinal.neighbours._index import ExactIndex, Index, IndexFactory
from vicinal.neighbours._kernels import (
    FLOAT32,
    INTEGER_NORM,
    RBF,
    Cosine,
    Kernel,
    Precision,
    int8_precision,
)
from vicinal.neighbours._lsh import HyperplaneLSH
from vicinal.neighbours._radius import LEAST_COUNT, AdaptiveRadius, FixedRadius, Radius, Reference
from vicinal.neighbours._scan import NeighbourLists

__all__ = [
    "FLOAT32",
    "INTEGER_NORM",
    "LEAST_COUNT",
    "RBF",
    "AdaptiveRadius",
    "CentroidCells",
    "Cosine",
    "ExactIndex",
    "FixedRadius",
    "HyperplaneLSH",
    "Index",
    "IndexFactory",
    "Kernel",
    "NeighbourLists",
    "Precision",
    "PublicCentroids",
    "Radius",
    "Reference",
    "int8_precision",
    "learn_cells",
]
