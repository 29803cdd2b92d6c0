"""How much of their budgets subjects have used, as public points that are charged along tell it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from vicinal._arrays import Floats, Ints32

REGIONS = 16
"""Regions that budget usage is estimated for by default."""

RETIRED = 0.99
"""Share of a budget from which on it counts as spent: what is left buys next to no vote."""

QUANTILES = (0.5, 0.9, 0.99)
"""Quantiles of budget usage that are stated."""


@dataclass(frozen=True, slots=True)
class BudgetUsage:
    """How much of their budgets subjects have used, estimated from public things; public.

    - `used`: mean share of a budget that is used.
    - `quantiles`: of that share, at `QUANTILES`.
    - `retired`: share of subjects that have used at least `RETIRED` of their budget.
    - `regions`: mean share used in each region around a public centroid.
    - `points`: public points that stand for each region.
    """

    used: float
    quantiles: tuple[float, ...]
    retired: float
    regions: tuple[float, ...]
    points: tuple[int, ...]

    @classmethod
    def of(cls, used: Floats, homes: Ints32, regions: int) -> BudgetUsage:
        """Sum up shares used (n,) and regions (n,); a region without anybody has used nothing."""
        sizes = np.bincount(homes, minlength=regions)
        sums = np.bincount(homes, weights=used, minlength=regions)
        return cls(
            float(used.mean()),
            tuple(np.quantile(used, QUANTILES).tolist()),
            float((used >= RETIRED).mean()),
            tuple((sums / np.maximum(sizes, 1)).tolist()),
            tuple(sizes.tolist()),
        )
