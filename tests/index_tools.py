"""What tests of indexes look at that nobody else may."""

from __future__ import annotations


def wiped(store):
    """Tell whether nothing is left in memory beyond the last record."""
    beyond = len(store) % store.block
    if not store._features.blocks or beyond == 0:
        return True
    last = (column.blocks[-1][beyond:] for column in (store._features, store._offsets))
    return not any(rest.any() for rest in last)
