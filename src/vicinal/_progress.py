"""How long work tells of its progress, without knowing who watches."""

from __future__ import annotations

from collections.abc import Callable

Step = Callable[[int], None]
"""Called with the size of each part of the work just finished."""

Begin = Callable[[str, int], Step]
"""Announces a piece of work by name and size, and returns what to call as it proceeds."""
