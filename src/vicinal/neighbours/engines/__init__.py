"""Product engines: who multiplies integer features, and how fast; the answers are the same."""

from vicinal.neighbours.engines._base import Block, Engine, Records, Room
from vicinal.neighbours.engines._choice import ENGINES, engine_for, proven_engines

__all__ = ["ENGINES", "Block", "Engine", "Records", "Room", "engine_for", "proven_engines"]
