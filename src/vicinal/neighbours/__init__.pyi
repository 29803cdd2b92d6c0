from vicinal.neighbours._hashing import HyperplaneLSH as HyperplaneLSH
from vicinal.neighbours._index import ExactIndex as ExactIndex
from vicinal.neighbours._index import Index as Index
from vicinal.neighbours._kernels import RBF as RBF
from vicinal.neighbours._kernels import Cosine as Cosine
from vicinal.neighbours._kernels import Kernel as Kernel
from vicinal.neighbours._radius import Radius as Radius
from vicinal.neighbours._radius import Reference as Reference
from vicinal.neighbours._scan import NeighbourLists as NeighbourLists

__all__: list[str]  # the names above; those below are shared inside vicinal, and may change

from vicinal.neighbours._index import MOST_HITS as MOST_HITS
from vicinal.neighbours._index import IndexFactory as IndexFactory
from vicinal.neighbours._kernels import FLOAT32 as FLOAT32
from vicinal.neighbours._kernels import INT8_LIMIT as INT8_LIMIT
from vicinal.neighbours._kernels import INTEGER_NORM as INTEGER_NORM
from vicinal.neighbours._kernels import LEVELS as LEVELS
from vicinal.neighbours._kernels import IntegerMatrix as IntegerMatrix
from vicinal.neighbours._kernels import Precision as Precision
from vicinal.neighbours._kernels import int8_precision as int8_precision
from vicinal.neighbours._kernels import unit_vectors as unit_vectors
from vicinal.neighbours._poisson_knn import NO_RECORD as NO_RECORD
from vicinal.neighbours._poisson_knn import Chosen as Chosen
from vicinal.neighbours._poisson_knn import PoissonKNN as PoissonKNN
from vicinal.neighbours._poisson_knn import candidates_of as candidates_of
from vicinal.neighbours._radius import LEAST_COUNT as LEAST_COUNT
from vicinal.neighbours._radius import AdaptiveRadius as AdaptiveRadius
from vicinal.neighbours._radius import FixedRadius as FixedRadius
from vicinal.neighbours._scan import THREADS as THREADS
from vicinal.neighbours._scan import fill_holes as fill_holes
from vicinal.neighbours._scan import map_in_threads as map_in_threads
from vicinal.neighbours._scan import merge_tiles as merge_tiles
from vicinal.neighbours.engines._int16 import MOST_TOGETHER as MOST_TOGETHER
from vicinal.neighbours.engines._int16 import Int16Matrix as Int16Matrix
from vicinal.neighbours.engines._int16 import int16_products as int16_products
