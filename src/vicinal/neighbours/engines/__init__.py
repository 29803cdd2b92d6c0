"""Engines that multiply integer features; they differ in speed only, and return the same hits."""

from vicinal.neighbours.engines._choice import ENGINES, get_engine, list_exact_engines
from vicinal.neighbours.scan import HitBudget, QueryBlock, ScanEngine, ScanRecords

__all__ = [
    "ENGINES",
    "HitBudget",
    "QueryBlock",
    "ScanEngine",
    "ScanRecords",
    "get_engine",
    "list_exact_engines",
]
