"""Engines that multiply integer features; they differ in speed only, and return the same hits."""

from vicinal.neighbours.engines._choice import ENGINES, get_engine, list_exact_engines

__all__ = ["ENGINES", "get_engine", "list_exact_engines"]
