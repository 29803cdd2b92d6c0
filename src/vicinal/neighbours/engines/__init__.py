"""Product engines: who multiplies integer features, and how fast; the answers are the same."""

from vicinal.neighbours.engines._choice import ENGINES, engine_for, proven_engines
from vicinal.neighbours.scan import HitBudget, QueryBlock, ScanEngine, ScanRecords

__all__ = [
    "ENGINES",
    "HitBudget",
    "QueryBlock",
    "ScanEngine",
    "ScanRecords",
    "engine_for",
    "proven_engines",
]
