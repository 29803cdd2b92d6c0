"""Noisy one- and two-way marginals of a table, once, for a declared share of everybody's budget.

Proof note: marginals.md.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from vicinal import _checks
from vicinal._arrays import Floats, Ints
from vicinal.errors import InvalidInput
from vicinal.mechanisms._votes import DeltaSlackAccountant, VoteGrid
from vicinal.noise import NoiseSource

SLACK_SHARE_OF_MARGINALS = 0.01
"""Part of what the grid may use up of delta that is kept for this release."""

MOST_CELLS = 1 << 22
"""Cells of all marginals together."""

_EXACT = 1 << 53


@dataclass(frozen=True, eq=False)
class NoisyMarginals:
    """Marginals that may be published, and what everybody has paid for them.

    Attributes
    ----------
    one_way : tuple of float64 (k_a,)
        How many subjects fall into every cell of a column, with noise.
    two_way : dict of (a, b) to float64 (k_a, k_b)
        The same of every pair of columns, a < b.
    noise : float
        Standard deviation of the noise of a cell, in subjects.
    cost : float
        zCDP that every subject has paid. It must be taken off every budget that is compared with
        the same epsilon: `IndKNNClassifier(reference_cost=...)`.

    Examples
    --------
    >>> import numpy as np
    >>> from vicinal.mechanisms import noisy_marginals, randomness
    >>> smoker, ward = np.array([0, 1, 1, 0] * 50), np.array([0, 1, 2, 2] * 50)
    >>> cells = np.column_stack([smoker, ward])
    >>> counts = noisy_marginals(cells, (2, 3), np.arange(200), 0.1, 1e-5, randomness(1))
    >>> counts.two_way[0, 1].shape, counts.cost <= 0.1
    ((2, 3), True)
    """

    one_way: tuple[Floats, ...]
    two_way: dict[tuple[int, int], Floats]
    noise: float
    cost: float


def noisy_marginals(
    cells: Ints, sizes: tuple[int, ...], slots: Ints, cost: float, delta: float, noise: NoiseSource
) -> NoisyMarginals:
    """Release all one- and two-way marginals of a table, once.

    A subject weighs at most one in each marginal, however many records it has: each of its m
    records weighs 1 / m, rounded down on the grid.

    Parameters
    ----------
    cells : int64 (n, columns)
        The cell of every record in every column, from 0; which cells there are is public.
    sizes : tuple of int
        How many cells each column has.
    slots : int64 (n,)
        The subject of every record, from 0.
    cost : float
        What everybody pays, in zCDP.
    delta : float
        Of the guarantee that the cost counts into.
    noise : NoiseSource
        Exact, but for simulations.

    Raises
    ------
    InvalidInput
        If there are too many cells, or the cost is too small for exact arithmetic.

    Examples
    --------
    >>> import numpy as np
    >>> from vicinal.mechanisms import noisy_marginals, randomness
    >>> cells = np.array([[0, 2], [1, 0], [1, 1]])
    >>> counts = noisy_marginals(cells, (2, 3), np.arange(3), 0.1, 1e-5, randomness(1))
    >>> [table.shape for table in counts.one_way]
    [(2,), (3,)]
    """
    cost = _checks.real("cost", cost, above=0)
    shapes: list[tuple[int, ...]] = [(k,) for k in sizes]
    shapes += [(sizes[a], sizes[b]) for a, b in _pairs(len(sizes))]
    total = sum(math.prod(shape) for shape in shapes)
    if total > MOST_CELLS:
        raise InvalidInput(
            "The marginals would have too many cells. Declare fewer values in the schema, or "
            "ignore columns."
        )
    sigma = max(1.0, math.sqrt(len(shapes) / (2 * cost)) * (1 + 1e-12))
    slack = delta * SLACK_SHARE_OF_MARGINALS
    grid = VoteGrid.fitting(sigma, 1, total, slack)
    scale = grid.scale(sigma)
    DeltaSlackAccountant(slack, needed=True).charge([scale], total)
    sums = np.concatenate(list(_sums(cells, sizes, _weights(slots, grid.steps))))
    released = (sums + noise.discrete_gaussian(scale, total)) / grid.steps
    tables = _cut(released, shapes)
    one_way, two_way = tables[: len(sizes)], tables[len(sizes) :]
    pairs = dict(zip(_pairs(len(sizes)), two_way, strict=True))
    return NoisyMarginals(tuple(one_way), pairs, scale / grid.steps, cost)


def _pairs(columns: int) -> Iterator[tuple[int, int]]:
    return combinations(range(columns), 2)


def _weights(slots: Ints, steps: int) -> Ints:
    """Return each record's weight in grid steps: a subject's together are at most `steps`."""
    weights = steps // np.bincount(slots)[slots]
    if len(slots) * steps >= _EXACT:
        raise InvalidInput("There are too many records for exact sums. Raise the cost.")
    return np.asarray(weights, dtype=np.int64)


def _sums(cells: Ints, sizes: tuple[int, ...], weights: Ints) -> Iterator[Ints]:
    """Yield the flat sums of weights of every marginal, exact."""
    for a, k in enumerate(sizes):
        yield _summed(cells[:, a], weights, k)
    for a, b in _pairs(len(sizes)):
        yield _summed(cells[:, a] * sizes[b] + cells[:, b], weights, sizes[a] * sizes[b])


def _summed(places: Ints, weights: Ints, size: int) -> Ints:
    # Sums stay below 2^53, where doubles are whole numbers and adding them is exact.
    return np.bincount(places, weights=weights, minlength=size).astype(np.int64)


def _cut(values: Floats, shapes: list[tuple[int, ...]]) -> list[Floats]:
    ends = np.cumsum([math.prod(shape) for shape in shapes])[:-1]
    return [part.reshape(shape) for part, shape in zip(np.split(values, ends), shapes, strict=True)]
