"""Algorithm 1 for mechanisms that see where a record stands: all sequences of a few labels."""

from __future__ import annotations

import itertools
import math

import numpy as np

from vicinal.smoothed._databases import log_delta
from vicinal.smoothed._intervals import UNIT, Array, Log
from vicinal.smoothed._knn import KNNVotes
from vicinal.smoothed._populations import Heterogeneous, Population

_MOST = 5000


def listable_sequences(n: int, labels: int, worlds: int) -> bool:
    """Return whether all sequences of labels, and all worlds, can be gone through."""
    return n * math.log(max(labels, worlds)) <= math.log(_MOST)


def sequence_maximum(mechanism: KNNVotes, population: Population, n: int, epsilon: float) -> Log:
    """Return the largest expected delta when every rank may have any vertex of its own.

    The deltas of all sequences are a tensor with an axis for every rank; each axis is contracted
    with the distributions that its record may have.
    """
    shape = (mechanism.classes,) * n
    ends: Array = np.zeros((2, *shape))
    for labels in itertools.product(range(mechanism.classes), repeat=n):
        value = log_delta(mechanism, np.array(labels), epsilon)
        ends[(0, *labels)], ends[(1, *labels)] = math.exp(value.low), math.exp(value.high)
    for axis, rows in enumerate(_rows(population, n)):
        ends = np.moveaxis(np.tensordot(ends, rows, axes=([axis + 1], [1])), -1, axis + 1)
    low, high = (float(ends[row].max()) for row in (0, 1))
    slack = UNIT * (8 * n * mechanism.classes + 64)
    return Log(
        (math.log(low) if low > 0 else -math.inf) - slack,
        (math.log(high) if high > 0 else -math.inf) + slack,
    )


def _rows(population: Population, n: int) -> list[Array]:
    """Return the distributions that the record at every rank may have."""
    if isinstance(population, Heterogeneous):
        return [row[None] for row in np.repeat(population.vertices, population.counts, axis=0)]
    return [population.vertices] * n
