"""Algorithm 1 of LWX23, for databases small enough to list: the exact maximum over all worlds.

Step 1 is the delta of every histogram. For the rest, let G_w(h) be the expected delta given that
some records make up the histogram h and the others come, independently, from the list w of
distributions. Then G_{w + pi}(h) = sum over types t of pi(t) G_w(h + e_t), so that every multiset
of distributions costs one pass over the histograms of the records that are left. All terms are
positive, and nothing is convolved twice.

For mechanisms that see where a record stands, all sequences of a few labels are listed instead.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

import numpy as np

from vicinal._arrays import Counts, Floats
from vicinal.smoothed._databases import log_delta
from vicinal.smoothed._intervals import UNIT, LogInterval, log_of
from vicinal.smoothed._knn import KNNVotes
from vicinal.smoothed._mechanism import Mechanism
from vicinal.smoothed._populations import Heterogeneous, Population

_MOST_RECORDS = 200
_MOST_WORK = 2 * 10**7
_MOST_DATABASES = 20_000
_DEEPEST = 600.0


def listable(n: int, types: int, worlds: int) -> bool:
    """Return whether all histograms and all multisets of worlds can be gone through."""
    if n > _MOST_RECORDS:
        return False
    databases = math.comb(n + types - 1, types - 1)
    work = math.comb(n + worlds, worlds) * (n + 1) ** (types - 1) * types
    return databases <= _MOST_DATABASES and work <= _MOST_WORK


def histograms(n: int, types: int) -> Iterator[Counts]:
    """Yield all histograms of n records."""
    for bars in itertools.combinations(range(n + types - 1), types - 1):
        edges = np.array([-1, *bars, n + types - 1])
        yield np.diff(edges) - 1


def listed_deltas(mechanism: Mechanism, n: int, types: int, epsilon: float) -> Floats:
    """Return log deltas of all histograms, (2, n + 1, ..., n + 1) by all counts but one."""
    table = np.full((2,) + (n + 1,) * (types - 1), -np.inf)
    for database in histograms(n, types):
        place = tuple(database[:-1].tolist())
        for loss in mechanism.losses(database, epsilon):
            ends = (loss.forward, loss.backward)
            table[(0, *place)] = max(table[(0, *place)], *(end.low for end in ends))
            table[(1, *place)] = max(table[(1, *place)], *(end.high for end in ends))
    return table


def maximum(table: Floats, vertices: Floats, n: int) -> tuple[LogInterval, tuple[int, ...]]:
    """Return the largest expected delta over multisets of vertices (l, m), and which it is."""
    scale = float(table[1].max())
    if scale == -math.inf:
        return LogInterval(-math.inf, -math.inf), (0,) * n
    # What is 600 below the largest cannot be held beside it; it is rounded up to that, or to 0.
    shifted = np.stack([table[0] - scale, np.maximum(table[1] - scale, -_DEEPEST)])
    shifted[1][table[1] == -np.inf] = -np.inf
    best: list[tuple[float, tuple[int, ...]]] = [(-1.0, ()), (-1.0, ())]
    for world, means in _worlds(np.exp(shifted), vertices, n):
        for row in (0, 1):
            value = float(means[row].ravel()[0])
            best[row] = max(best[row], (value, tuple(-v for v in world)))
    slack = UNIT * (4 * n * vertices.shape[1] + 64) + 4 * UNIT * abs(scale)
    low, high = (log_of(value) for value, _ in best)
    return LogInterval(scale + low - slack, scale + high + slack), tuple(-v for v in best[1][1])


def _worlds(
    means: Floats, vertices: Floats, remaining: int, world: tuple[int, ...] = ()
) -> Iterator[tuple[tuple[int, ...], Floats]]:
    """Yield every multiset of vertices, as a sorted tuple, with its expected deltas."""
    if not remaining:
        yield world, means
        return
    for vertex in range(world[-1] if world else 0, len(vertices)):
        drawn = draw(means, vertices[vertex])
        yield from _worlds(drawn, vertices, remaining - 1, (*world, vertex))


def draw(means: Floats, distribution: Floats) -> Floats:
    """Return means over one more record that comes from a distribution."""
    inside = tuple(slice(None, -1) for _ in range(means.ndim - 1))
    drawn = distribution[-1] * means[(slice(None), *inside)]
    for kind, chance in enumerate(distribution[:-1]):
        moved = tuple(
            slice(1, None) if axis == kind else slice(None, -1) for axis in range(means.ndim - 1)
        )
        drawn = drawn + chance * means[(slice(None), *moved)]
    return np.asarray(drawn)


def mean(table: Floats, rows: Floats) -> LogInterval:
    """Return the expected delta when record r comes from row r, in the form of `maximum`."""
    scaled = np.exp(table)
    for row in rows:
        scaled = draw(scaled, row)
    slack = UNIT * (4 * len(rows) * rows.shape[1] + 64)
    low, high = (log_of(float(scaled[end].ravel()[0])) for end in (0, 1))
    return LogInterval(low - slack, high + slack)


_MOST = 5000


def listable_sequences(n: int, labels: int, worlds: int) -> bool:
    """Return whether all sequences of labels, and all worlds, can be gone through."""
    return n * math.log(max(labels, worlds)) <= math.log(_MOST)


def sequence_maximum(
    mechanism: KNNVotes, population: Population, n: int, epsilon: float
) -> LogInterval:
    """Return the largest expected delta when every rank may have any vertex of its own.

    The deltas of all sequences are a tensor with an axis for every rank; each axis is contracted
    with the distributions that its record may have.
    """
    shape = (mechanism.classes,) * n
    ends: Floats = np.zeros((2, *shape))
    for labels in itertools.product(range(mechanism.classes), repeat=n):
        value = log_delta(mechanism, np.array(labels), epsilon)
        ends[(0, *labels)], ends[(1, *labels)] = math.exp(value.low), math.exp(value.high)
    for axis, rows in enumerate(_rows(population, n)):
        ends = np.moveaxis(np.tensordot(ends, rows, axes=([axis + 1], [1])), -1, axis + 1)
    low, high = (log_of(float(ends[row].max())) for row in (0, 1))
    slack = UNIT * (8 * n * mechanism.classes + 64)
    return LogInterval(low - slack, high + slack)


def _rows(population: Population, n: int) -> list[Floats]:
    """Return the distributions that the record at every rank may have."""
    if isinstance(population, Heterogeneous):
        return [row[None] for row in np.repeat(population.vertices, population.counts, axis=0)]
    return [population.vertices] * n
