"""Public rows drawn from noisy marginals of a private table.

Everything after the release is post-processing: a tree of the columns that tell most about each
other (Chow & Liu 1968, on the noisy tables), and rows drawn along it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from vicinal import _checks
from vicinal._arrays import Floats, Ints
from vicinal.errors import InvalidInput
from vicinal.features._table_cells import Codes
from vicinal.features._table_columns import TableColumn
from vicinal.features._table_features import TableFeatures
from vicinal.features._table_made_up import table_of
from vicinal.features._table_schema import TableSchema
from vicinal.mechanisms import NoisyMarginals, noisy_marginals, public_draws, randomness

N_BINS = 8
"""Bins of a number."""

_NULLS = 19
"""Draws, of people and of noise, that show how much two independent columns seem to tell."""


@dataclass(frozen=True, eq=False)
class DrawnRows:
    """Public rows that everybody in a private table has paid for.

    Attributes
    ----------
    rows : pyarrow.Table
        As :class:`~vicinal.features.TableFeatures` takes tables; anybody may see them, once the
        cost is taken off every budget.
    cost : float
        zCDP that every subject has paid: pass it on as `reference_cost`.

    Examples
    --------
    >>> from vicinal.features import draft_schema, rows_from_marginals
    >>> schema, notes = draft_schema({"age": [31, 45, 64, 28] * 25, "sex": ["f", "m"] * 50})
    >>> private = {"age": [33, 47, 52] * 100, "sex": ["f", "m", "m"] * 100}
    >>> drawn = rows_from_marginals(schema, private, cost=0.05, delta=1e-5, size=50)
    >>> drawn.rows.num_rows, drawn.cost <= 0.05
    (50, True)
    """

    rows: pa.Table
    cost: float


def rows_from_marginals(
    schema: TableSchema,
    table: Any,
    subjects: Any = None,
    *,
    cost: float,
    delta: float,
    size: int = 2000,
    simulation_seed: int | None = None,
) -> DrawnRows:
    """Return rows like those of a private table, for a cost that everybody in it pays.

    Parameters
    ----------
    schema : TableSchema
        Public.
    table
        Private rows, as :class:`~vicinal.features.TableFeatures` takes tables.
    subjects : sequence of int or str, optional
        The subject of every row; without it every row is one.
    cost : float
        What everybody pays, in zCDP. **Whoever answers queries about the same subjects must take
        it off their budgets**: ``IndKNNClassifier(reference_cost=...)``, ``Store.init``.
    delta : float
        Of the guarantee that the cost counts into.
    size : int
        How many rows to draw; more cost nothing.
    simulation_seed : int, optional
        Makes the noise repeatable for experiments, and the guarantee void.

    Examples
    --------
    >>> from vicinal.features import draft_schema, rows_from_marginals
    >>> schema, notes = draft_schema({"age": [31, 45, 64, 28] * 25, "sex": ["f", "m"] * 50})
    >>> private = {"age": [33, 47, 52] * 100, "sex": ["f", "m", "m"] * 100}
    >>> rows_from_marginals(schema, private, cost=0.05, delta=1e-5).rows.column_names
    ['age', 'sex']
    """
    size = _checks.integer("size", size, least=1)
    columns = schema.usable().columns
    codes = TableFeatures(schema).codes(table)
    sizes = tuple(column.n_bins(N_BINS) + column.missing for column in columns)
    cells = np.column_stack([_bins(c, codes[:, i]) for i, c in enumerate(columns)])
    slots = _slots(subjects, len(codes))
    noise = randomness(simulation_seed)
    released = noisy_marginals(cells, sizes, slots, cost, delta, noise)
    drawn = _drawn(columns, released, size, public_draws(simulation_seed))
    return DrawnRows(table_of(schema, drawn), released.cost)


def _slots(subjects: Any, size: int) -> Ints:
    if subjects is None:
        return np.arange(size)
    ids = _checks.subject_ids("subjects", subjects)
    if len(ids) != size:
        raise InvalidInput("The 'subjects' parameter must hold one id for each row.")
    place_of: dict[Any, int] = {}
    return np.array([place_of.setdefault(one, len(place_of)) for one in ids], dtype=np.int64)


def _bins(column: TableColumn, codes: Codes) -> Ints:
    """Return the bin of every code; missing values have the last one."""
    n_bins = column.n_bins(N_BINS)
    absent = np.isnan(codes)
    bins = np.full(len(codes), n_bins, dtype=np.int64)
    bins[~absent] = column.bins(codes[~absent], n_bins)
    return bins


def _drawn(
    columns: tuple[TableColumn, ...],
    released: NoisyMarginals,
    size: int,
    generator: np.random.Generator,  # noqa: TID251 (a type)
) -> Codes:
    """Return codes (size, columns) drawn along the tree."""
    total = max(1.0, float(np.median([table.sum() for table in released.one_way])))
    one_way = [shares(table, total) for table in released.one_way]
    bins = np.zeros((size, len(columns)), dtype=np.int64)
    for child, parent in tree(released, one_way, total, generator):
        law = np.tile(one_way[child], (size, 1))
        if parent is not None:
            law = _conditional(released, one_way, child, parent, total)[bins[:, parent]]
        bins[:, child] = _draw(law, generator.random(size))
    return np.column_stack(
        [_codes(c, bins[:, i], generator.random(size)) for i, c in enumerate(columns)]
    )


def _codes(column: TableColumn, bins: Ints, uniform: Floats) -> Codes:
    n_bins = column.n_bins(N_BINS)
    there = bins < n_bins
    values = column.from_bins(np.where(there, bins, 0), uniform, n_bins)
    return np.where(there, values, np.nan)


def _draw(law: Floats, uniform: Floats) -> Ints:
    """Return one bin for every row's law (n, k)."""
    upto = np.cumsum(law, axis=1)
    return np.asarray(np.minimum((upto <= uniform[:, None]).sum(axis=1), law.shape[1] - 1))


def shares(counts: Floats, total: float) -> Floats:
    """Return shares nearest to noisy counts that are not negative and sum to one."""
    flat = counts.ravel()
    ordered = np.sort(flat)[::-1]
    excess = (np.cumsum(ordered) - total) / np.arange(1, len(flat) + 1)
    last = int(np.flatnonzero(ordered > excess)[-1])
    return np.asarray(np.maximum(flat - excess[last], 0.0).reshape(counts.shape) / total)


def _two_way(released: NoisyMarginals, child: int, parent: int) -> Floats:
    """Return noisy counts (k_parent, k_child)."""
    if parent < child:
        return released.two_way[parent, child]
    return released.two_way[child, parent].T


def _conditional(
    released: NoisyMarginals, one_way: list[Floats], child: int, parent: int, total: float
) -> Floats:
    """Return the law of a column for every bin of its parent; noise pulls it to the one-way law."""
    joint = shares(_two_way(released, child, parent), total) * total
    law = joint + released.noise * one_way[child]
    return np.asarray(law / law.sum(axis=1, keepdims=True))


def information(joint: Floats) -> float:
    """Return the mutual information of two columns from their shares (k, l), in nats."""
    apart = joint.sum(axis=1, keepdims=True) * joint.sum(axis=0, keepdims=True)
    there = joint > 0
    return float((joint[there] * np.log(joint[there] / apart[there])).sum())


def tree(
    released: NoisyMarginals,
    one_way: list[Floats],
    total: float,
    generator: np.random.Generator,  # noqa: TID251 (a type)
) -> list[tuple[int, int | None]]:
    """Return columns in drawing order, each with its parent, or None where it stands alone.

    A pair counts with what it tells beyond what independent columns of as many people, under the
    same noise, would seem to tell.
    """
    gains = {}
    for (a, b), counts in released.two_way.items():
        apart = np.outer(one_way[a], one_way[b]) * total
        spread = np.sqrt(released.noise**2 + apart)
        nulls = [
            information(shares(apart + spread * generator.normal(size=apart.shape), total))
            for _ in range(_NULLS)
        ]
        gains[a, b] = information(shares(counts, total)) - max(nulls)
    order: list[tuple[int, int | None]] = []
    waiting = set(range(len(one_way)))
    while waiting:
        placed = {column for column, _ in order}
        edges = [(gains[min(a, b), max(a, b)], b, a) for a in placed for b in waiting]
        gain, child, parent = max(edges, default=(0.0, min(waiting), 0))
        order.append((child, parent) if gain > 0 else (min(waiting), None))
        waiting.remove(order[-1][0])
    return order
