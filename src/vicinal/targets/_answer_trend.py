r"""A linear trend through released answers: post-processing, which costs nothing.

Answer i is an average z_i over records around a centre c_i, which public points tell, with noise of
known variance v_i. Ridge regression through all of them says how averages change with their centre,
z_i ~ a + b c_i, and by how much they differ beyond that, tau^2. The answer at the query q_i becomes

    a + b q_i + tau^2 / (tau^2 + v_i) (z_i - a - b (q_i + k_i (c_i - q_i))).

The trend corrects for neighbours that do not lie around the query (Abadie & Imbens 2011), and the
factor takes away as much of the rest as noise has put there (Efron & Morris 1973). k_i does the
same to the distance of the centre from the query, which few public points tell poorly.
"""

from dataclasses import dataclass
from typing import Self

import numpy as np
from scipy.sparse import csr_array

from vicinal._arrays import AnyInts, Floats
from vicinal.errors import InvalidInput

LEAST_ANSWERS = 30
"""Answers that a trend is fitted to, at least."""

_CAUTION = 1.4
"""What a parameter counts for in cross-validation, which otherwise overfits where answers are few
(Kim & Gu 2004)."""

_ROUNDS = 4
_PENALTIES = np.append(np.geomspace(1e-6, 1e3, 19), np.inf)
"""Ridge penalties that are compared, over the largest squared singular value; inf: no slope."""

_TINY = 1e-12


@dataclass(frozen=True, slots=True, eq=False)
class PublicSurroundings:
    """What public points say of where the records around each query lie.

    `queries`, `points`, float64 (q, d), (p, d): the queries, and all public points. `shares`,
    csr_array (q, p): the kernel weights of the points inside a query's radius, over their sum.
    """

    queries: Floats
    points: Floats
    shares: csr_array

    @classmethod
    def of(
        cls, queries: Floats, points: Floats, starts: AnyInts, rows: AnyInts, weights: Floats
    ) -> Self:
        """Return those of queries whose points are rows[starts[i]] on, with these weights."""
        table = csr_array((weights, rows, starts), (len(queries), len(points)))
        sums = table.sum(axis=1)
        table.data /= np.repeat(np.where(sums > 0, sums, 1.0), np.diff(starts))
        return cls(queries, points, table)

    @property
    def centres(self) -> Floats:
        """Means of the points, (q, d); the query itself where no point has any weight."""
        return self.queries + self._away(self.points, self.queries)

    def distances(self, slope: Floats) -> tuple[Floats, Floats]:
        """Return slope' (centre - query), (q, m), and its variance, for a slope (d, m).

        The mean of a few points is off by what they differ, so a distance counts by how much of it
        is more than that.
        """
        marks = self.points @ slope
        away = self._away(marks, self.queries @ slope)
        means = self.shares @ marks
        spread = np.maximum(self.shares @ np.square(marks) - np.square(means), 0)
        error = spread * self.shares.multiply(self.shares).sum(axis=1)[:, None]
        true = np.maximum((np.square(away) - error).mean(axis=0), _TINY)
        return away * true / (true + error), error * true / (true + error)

    def _away(self, points: Floats, queries: Floats) -> Floats:
        """Return means of the points around each query, less the query; 0 where there are none."""
        empty = self.shares.sum(axis=1) <= 0
        return np.where(empty[:, None], 0.0, self.shares @ points - queries)


@dataclass(frozen=True, slots=True, eq=False)
class AnswerTrend:
    """What averages are expected to be around a centre, for m averages of a query.

    - `mean`, float64 (d,): where the intercept is.
    - `intercept`, `slope`, `excess`, float64 (m,), (d, m), (m,): the trend, and the variance of
      true averages around it.
    - `axes`, `spread`, `level`, float64 (r, d), (r, m), float: of the trend's error: directions of
      the slope's, its standard deviations along them, and the variance of the intercept's.
    """

    mean: Floats
    intercept: Floats
    slope: Floats
    excess: Floats
    axes: Floats
    spread: Floats
    level: float

    @classmethod
    def fitted(cls, centres: Floats, values: Floats, variances: Floats) -> Self:
        """Return the trend through values (q, m) around centres (q, d), of known variances (q, m).

        Weights and the variance beyond the trend are settled in turns.
        """
        noise, excess = variances.mean(axis=1), np.maximum(values.var(axis=0), _TINY)
        for _ in range(_ROUNDS - 1):
            _, residuals, freedom = cls._round(centres, values, noise + excess.mean(), excess)
            weights = np.square(1 / (variances + excess))
            beyond = np.square(residuals) / (1 - freedom / len(values)) - variances
            excess = np.maximum((weights * beyond).sum(axis=0) / weights.sum(axis=0), _TINY)
        return cls._round(centres, values, noise + excess.mean(), excess)[0]

    @classmethod
    def _round(
        cls, centres: Floats, values: Floats, variances: Floats, excess: Floats
    ) -> tuple[Self, Floats, Floats]:
        """Return the trend by weights 1 / `variances` (q,), residuals, and degrees of freedom."""
        weights = 1 / variances
        mean = weights @ centres / weights.sum()
        intercept = weights @ values / weights.sum()
        roots = np.sqrt(weights)[:, None]
        directions, sizes, axes = np.linalg.svd(roots * (centres - mean), full_matrices=False)
        scaled = roots * (values - intercept)
        loads = directions.T @ scaled
        shrinkage = _shrinkage(sizes, loads, np.square(scaled).sum(axis=0), len(values))
        spread = np.divide(
            shrinkage, sizes[:, None], out=np.zeros_like(shrinkage), where=shrinkage > 0
        )
        slope = axes.T @ (spread * loads)
        residuals = values - intercept - (centres - mean) @ slope
        trend = cls(mean, intercept, slope, excess, axes, spread, float(1 / weights.sum()))
        return trend, residuals, 1 + shrinkage.sum(axis=0)

    def applied(
        self, around: PublicSurroundings, values: Floats, variances: Floats
    ) -> tuple[Floats, Floats]:
        """Return values at the queries, (q, m), and the variances of their errors, (q, m)."""
        shrinkage = self.excess / (self.excess + variances)
        away, doubt = around.distances(self.slope)
        here = around.queries - self.mean
        expected = self.intercept + here @ self.slope
        along = (1 - shrinkage.mean(axis=1, keepdims=True)) * (here @ self.axes.T)
        own = np.square(1 - shrinkage) * self.level + np.square(along) @ np.square(self.spread)
        refined = expected + shrinkage * (values - expected - away)
        return refined, shrinkage * variances + np.square(shrinkage) * doubt + own


def check_enough(answers: int) -> None:
    """Raise InvalidInput unless there are answers enough for a trend."""
    if answers < LEAST_ANSWERS:
        raise InvalidInput(
            f"The 'trend' parameter needs at least {LEAST_ANSWERS} queries in one call: a trend is "
            "fitted to their answers. Ask for more at a time."
        )


def refined(around: PublicSurroundings, values: Floats, errors: Floats) -> tuple[Floats, Floats]:
    """Return averages (q, m) with standard `errors` (q, m) by a trend through them, and errors."""
    variances = np.square(errors)
    trend = AnswerTrend.fitted(around.centres, values, variances)
    values, variances = trend.applied(around, values, variances)
    return values, np.sqrt(variances)


def _shrinkage(sizes: Floats, loads: Floats, totals: Floats, count: int) -> Floats:
    """Return how much of each direction ridge regression keeps, (r, m), by cross-validation.

    `loads` (r, m) are values along directions of `sizes` (r,), `totals` (m,) their squared length.
    The penalty of each column has the least generalised cross-validation error (Golub, Heath &
    Wahba 1979).
    """
    squares = np.square(sizes)
    best, chosen = np.full(len(totals), np.inf), np.zeros_like(loads)
    for penalty in _PENALTIES:
        shrinkage = squares / (squares + penalty * max(squares.max(initial=0.0), _TINY))
        residual = totals - (2 * shrinkage - shrinkage**2) @ np.square(loads)
        error = residual / max(1 - _CAUTION * (1 + shrinkage.sum()) / count, _TINY) ** 2
        better = error < best
        best[better] = error[better]
        chosen[:, better] = shrinkage[:, None]
    return chosen
