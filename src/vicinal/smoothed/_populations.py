"""Plausible worlds: from which distributions the records of a database may come, independently.

Expected delta is affine in the distribution of every single record, so of a convex set only its
corners matter (Proposition 7 of LWX23).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.optimize import linprog

from vicinal import _checks
from vicinal._arrays import Floats, Ints
from vicinal.errors import InvalidInput

_SUM_TO = 1e-9
_INSIDE = 1e-7
_SAME = 1e-15
_MOST_TYPES_OF_A_BOX = 16


class Population:
    """A set of distributions over types, fixed before anybody looks at the data.

    `vertices` (l, m) are the distributions that matter: without copies, the corners of a hull or a
    box, or that of every group in the order given.
    """

    vertices: Floats

    @property
    def types(self) -> int:
        """Number of types m."""
        return int(self.vertices.shape[1])

    @property
    def least(self) -> Floats:
        """The smallest probability of every type, float64 (m,)."""
        return np.asarray(self.vertices.min(axis=0))

    def check_records(self, n: int) -> None:
        """Refuse databases of n records that cannot come from here; any n is fine by default."""
        _checks.integer("n", n, least=1)


@dataclass(frozen=True, eq=False)
class Vertices(Population):
    """Every record comes from one of the given distributions, whichever is worst for it.

    Parameters
    ----------
    rows : array-like, shape (l, m)
        Distributions over m >= 2 types; every row sums to 1.

    Examples
    --------
    >>> from vicinal.smoothed import FixedSize, Histogram, Vertices, smoothed_delta
    >>> voters = Vertices([[0.4, 0.6], [0.6, 0.4]])
    >>> smoothed_delta(Histogram(FixedSize(50)), voters, 100, epsilon=1.0).upper < 0.01
    True
    """

    rows: npt.ArrayLike
    vertices: Floats = field(init=False, repr=False)

    def __post_init__(self) -> None:
        rows = _distributions("rows", self.rows)
        firsts = np.sort(np.unique(rows, axis=0, return_index=True)[1])
        object.__setattr__(self, "vertices", rows[firsts])


@dataclass(frozen=True, eq=False)
class Hull(Population):
    """Every record comes from some mixture of the given distributions.

    Points inside the hull of the others are left out; one that is there only to within rounding is
    kept, which costs time and changes nothing.

    Parameters
    ----------
    points : array-like, shape (p, m)
        Distributions over m >= 2 types.

    Examples
    --------
    >>> from vicinal.smoothed import Hull
    >>> voters = Hull([[0.05, 0.95], [0.47, 0.53]])
    >>> len(voters.points)
    2
    """

    points: npt.ArrayLike
    vertices: Floats = field(init=False, repr=False)

    def __post_init__(self) -> None:
        points = np.unique(_distributions("points", self.points), axis=0)
        if points.shape[1] == 2:
            corners = points[[0, -1]] if len(points) > 1 else points
        else:
            corners = _corners(points)
        object.__setattr__(self, "vertices", corners)


@dataclass(frozen=True, eq=False)
class Interval(Population):
    """Every record comes from some distribution between two bounds for every type.

    Parameters
    ----------
    low, high : sequence of float, length m
        Bounds of the probabilities, 0 <= low <= high <= 1; at most 16 types.

    Examples
    --------
    >>> from vicinal.smoothed import FixedSize, Histogram, Interval, smoothed_delta
    >>> voters = Interval([0.4, 0.4], [0.6, 0.6])
    >>> smoothed_delta(Histogram(FixedSize(50)), voters, 100, epsilon=1.0).upper < 0.01
    True
    """

    low: Sequence[float]
    high: Sequence[float]
    vertices: Floats = field(init=False, repr=False)

    def __post_init__(self) -> None:
        low, high = (_chances(name, getattr(self, name)) for name in ("low", "high"))
        if low.shape != high.shape or not 2 <= len(low) <= _MOST_TYPES_OF_A_BOX:
            raise InvalidInput(
                "The 'low' and 'high' parameters must have the same length, 2 to "
                f"{_MOST_TYPES_OF_A_BOX}. Got {len(low)} and {len(high)}."
            )
        corners: list[Floats] = []
        for corner in _box_corners(low, high):
            if all(np.abs(corner - other).max() > _SAME for other in corners):
                corners.append(corner)
        if (low > high).any() or not corners:
            raise InvalidInput("Between 'low' and 'high' there must be a distribution. Is none.")
        object.__setattr__(self, "vertices", np.array(corners))


@dataclass(frozen=True, eq=False)
class Heterogeneous(Population):
    """One world whose records have different distributions: groups of known sizes.

    For ``KNNVotes`` the groups follow one another from the nearest record on.

    Parameters
    ----------
    groups : sequence of (int, array-like)
        How many records, and their distribution over m types.

    Examples
    --------
    >>> from vicinal.smoothed import FixedSize, Heterogeneous, Histogram, smoothed_delta
    >>> world = Heterogeneous([(60, [0.4, 0.6]), (40, [0.7, 0.3])])
    >>> smoothed_delta(Histogram(FixedSize(50)), world, 100, epsilon=1.0).upper < 0.01
    True
    """

    groups: Sequence[tuple[int, Sequence[float]]]
    counts: Ints = field(init=False, repr=False)
    vertices: Floats = field(init=False, repr=False)

    def __post_init__(self) -> None:
        groups = _pairs(self.groups)
        counts = [_checks.integer("groups", count, least=0) for count, _ in groups]
        object.__setattr__(self, "counts", np.array(counts, dtype=np.int64))
        rows = _distributions("groups", [row for _, row in groups])
        object.__setattr__(self, "vertices", rows)
        _checks.integer("groups", sum(counts), least=1)

    def check_records(self, n: int) -> None:
        """Refuse any n but the sum of the groups."""
        if _checks.integer("n", n, least=1) != self.counts.sum():
            raise InvalidInput(
                f"The 'n' parameter must be the sum of the groups, {self.counts.sum()}. Got {n}."
            )


def _pairs(groups: Iterable[Any]) -> list[tuple[int, Any]]:
    try:
        return [(count, row) for count, row in groups]
    except (TypeError, ValueError):
        raise InvalidInput(
            "The 'groups' parameter must be pairs of a count and a distribution. Got others."
        ) from None


def _chances(name: str, values: npt.ArrayLike) -> Floats:
    """Return probabilities as float64; fractions are welcome."""
    try:
        array = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise InvalidInput(f"The {name!r} parameter must hold numbers, in equal rows.") from None
    if not np.isfinite(array).all() or (array < 0).any() or (array > 1).any() or not array.size:
        raise InvalidInput(f"The {name!r} parameter must hold probabilities, 0 to 1. Got others.")
    return array


def _distributions(name: str, rows: npt.ArrayLike) -> Floats:
    array = _chances(name, rows)
    if array.ndim != 2 or array.shape[1] < 2:
        raise InvalidInput(
            f"The {name!r} parameter must be distributions (l, m) over m >= 2 types. Got shape "
            f"{array.shape}."
        )
    wrong = np.abs(array.sum(axis=1) - 1)
    if (wrong > _SUM_TO).any():
        raise InvalidInput(
            f"The {name!r} parameter must have rows that sum to 1. Got one that is off by "
            f"{wrong.max():.3g}."
        )
    return array


def _box_corners(low: Floats, high: Floats) -> Iterable[Floats]:
    m = len(low)
    for free in range(m):
        for choice in itertools.product((0, 1), repeat=m - 1):
            corner = np.insert(
                np.where(choice, np.delete(high, free), np.delete(low, free)), free, 0
            )
            corner[free] = 1 - corner.sum()
            if low[free] - _SUM_TO <= corner[free] <= high[free] + _SUM_TO:
                yield np.clip(corner, 0.0, 1.0)


def _corners(points: Floats) -> Floats:
    """Return the points that are not strictly inside the hull of the others, by linear programs."""
    centre = points.mean(axis=0)
    corners = list(range(len(points)))
    for place in range(len(points)):
        others = [other for other in corners if other != place]
        if len(others) > 1 and _room(points[place], centre, points[others]) > _INSIDE:
            corners = others
    return points[corners]


def _room(point: Floats, centre: Floats, others: Floats) -> float:
    """Return how far the point can move away from the centre and stay inside the others' hull."""
    outward = point - centre
    size = float(np.abs(outward).max())
    if size == 0:
        return 0.0
    # Weights of the others, and a step s >= 0: others^T w - s outward = point, sum w = 1; max s.
    equal = np.vstack([np.column_stack([others.T, -outward]), [*np.ones(len(others)), 0.0]])
    solution = linprog(
        [*np.zeros(len(others)), -1.0], A_eq=equal, b_eq=[*point, 1.0], bounds=(0, 10 / size)
    )
    return float(solution.x[-1]) * size if solution.success else 0.0
