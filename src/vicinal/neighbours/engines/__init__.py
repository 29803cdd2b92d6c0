"""Product engines: who multiplies integer features, and how fast; the answers are the same."""

from vicinal.neighbours._scan import HitBudget, QueryBlock, ScanEngine, ScanRecords
from vicinal.neighbours.engines._choice import ENGINES, engine_for, proven_engines

__all__ = [
    "ENGINES",
    "HitBudget",
    "QueryBlock",
    "ScanEngine",
    "ScanRecords",
    "engine_for",
    "proven_engines",
]
