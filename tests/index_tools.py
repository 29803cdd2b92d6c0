"""What tests of indexes look at that nobody else may."""

import numpy as np

from vicinal.neighbours.scan import find_movers


def wiped(store):
    """Tell whether nothing is left in memory beyond the last record."""
    beyond = len(store) % store.block_rows
    if not store._features.blocks or beyond == 0:
        return True
    last = (column.blocks[-1][beyond:] for column in (store._features, store._offsets))
    return not any(rest.any() for rest in last)


def lived(index, pool, rng, steps):
    """Add and erase rows of a pool, any number at a time; yield after each step which are in it."""
    here = np.zeros(0, dtype=np.int64)
    for _ in range(steps):
        coming = rng.permutation(len(pool))[: rng.integers(1, 90)]
        index.add(pool[coming])
        here = np.concatenate([here, coming])
        going = np.flatnonzero(rng.random(len(here)) < rng.choice([0.05, 0.6, 1.0]))
        movers = find_movers(going, len(here))
        index.remove(going, movers)
        here[going[going < len(here) - len(going)]] = here[movers]
        here = here[: len(here) - len(going)]
        yield here
