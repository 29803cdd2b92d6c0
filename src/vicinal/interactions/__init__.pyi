__all__: list[str]  # shared inside vicinal, and may change

from vicinal.interactions._fit_registry import REGISTRY as REGISTRY
from vicinal.interactions._fit_registry import FitRegistry as FitRegistry
from vicinal.interactions._fit_registry import Interaction as Interaction
from vicinal.interactions._row_matching import RecordDigests as RecordDigests
from vicinal.interactions._row_matching import are_copies as are_copies
from vicinal.interactions._row_matching import compute_row_digests as compute_row_digests
from vicinal.interactions._row_matching import is_excess as is_excess
from vicinal.interactions._row_matching import overlap_exceeds_chance as overlap_exceeds_chance
