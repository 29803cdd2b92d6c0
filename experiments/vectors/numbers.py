"""Regression on tables: neighbours against linear models, with privacy and without."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow.parquet as pq
from sklearn.linear_model import Ridge
from sklearn.neighbors import KNeighborsRegressor

from experiments.ridge import AdaSSP
from experiments.vectors.diffprivlib_models import linear_regression
from vicinal import IndKNNRegressor
from vicinal.mechanisms import public_draws

Floats = npt.NDArray[np.float64]

DELTA = 1e-5
CUT = 4.0
_CUT = ["Fair", "Good", "Very Good", "Premium", "Ideal"]
_CLARITY = ["I1", "SI2", "SI1", "VS2", "VS1", "VVS2", "VVS1", "IF"]


@dataclass(frozen=True, slots=True)
class NumberTable:
    """Rows of features and a target; the first rows are public, the next are queries.

    Bounds and typical range are declared by who knows prices or incomes, not read off the rows.
    """

    name: str
    features: Floats
    target: Floats
    bounds: tuple[float, float]
    scale: str = "log"
    typical: tuple[float, float] | None = None
    n_public: int = 2000
    n_queries: int = 2000

    def onto(self, numbers: Floats) -> Floats:
        """Return numbers on the scale on which they are predicted."""
        return np.log(numbers) if self.scale == "log" else np.asarray(numbers)

    def parts(self, seed: int) -> tuple[Floats, Floats, Floats, Floats, Floats]:
        """Return public rows, queries with targets, private rows with targets, one order a seed.

        Columns are centred and scaled by the public rows, and cut at `CUT` of their deviations.
        """
        order = public_draws(seed).permutation(len(self.target))
        X, y = self.features[order], self.target[order]
        public = X[: self.n_public]
        scaled = np.clip((X - public.mean(axis=0)) / (public.std(axis=0) + 1e-9), -CUT, CUT)
        first, last = self.n_public, self.n_public + self.n_queries
        return scaled[:first], scaled[first:last], y[first:last], scaled[last:], y[last:]


def diamonds(folder: Path, scale: str) -> NumberTable:
    """Return prices of diamonds, 300 to 20,000 dollars; with "log" carats are logarithms, too."""
    table = pq.read_table(folder / "diamonds.parquet").to_pydict()
    levels = {"cut": _CUT, "color": list("JIHGFED"), "clarity": _CLARITY}
    carat = np.array(table["carat"], dtype=float)
    columns = [np.log(carat) if scale == "log" else carat]
    columns += [[order.index(v) for v in table[name]] for name, order in levels.items()]
    columns += [table[name] for name in ("depth", "table", "x", "y", "z")]
    price = np.array(table["price"], dtype=float)
    bounds = (300.0, 20000.0)
    name = f"diamonds, {scale} price"
    typical = (500.0 if scale == "log" else 300.0, 12000.0)
    return NumberTable(name, np.array(columns, dtype=float).T, price, bounds, scale, typical)


def wages(folder: Path) -> NumberTable:
    """Return real incomes of the General Social Survey, 500 to 300,000 dollars."""
    table = pq.read_table(folder / "gss_wages.parquet").drop_columns(["row", "occ10"]).to_pydict()
    whole = [i for i, row in enumerate(zip(*table.values(), strict=True)) if None not in row]
    income = np.array(table.pop("realrinc"), dtype=object)[whole].astype(float)
    columns: list[Floats] = []
    for values in table.values():
        column = np.array(values, dtype=object)[whole]
        if isinstance(column[0], str):
            # The names are the questionnaire's, and public.
            columns += [(column == name).astype(float) for name in sorted(set(column))[1:]]
        else:
            columns.append(column.astype(float))
    features = np.array(columns).T
    return NumberTable("gss_wages, log income", features, income, (500, 3e5), typical=(5e3, 8e4))


@dataclass(frozen=True, slots=True)
class NumberScore:
    """How good predictions are, on the table's scale.

    Attributes
    ----------
    r2, rmse : float
        Share of the variance that is explained, and root mean square error.
    """

    table: str
    method: str
    epsilon: float | None
    n_queries: int
    seed: int
    r2: float
    rmse: float

    def to_dict(self) -> dict[str, Any]:
        """Return the fields by name."""
        return {name: getattr(self, name) for name in self.__slots__}


Predict = Callable[[], Floats]


def methods(
    table: NumberTable, seed: int, n_queries: int, epsilon: float | None
) -> Iterator[tuple[str, Predict]]:
    """Yield what predicts the first queries of a split, by name, on the table's scale.

    Without `epsilon` those without privacy, with it those of that epsilon.
    """
    public, queries, _, records, target = table.parts(seed)
    queries, onto = queries[:n_queries], table.onto
    low, high = onto(np.array(table.bounds))
    values = onto(np.clip(target, *table.bounds))
    if epsilon is None:
        for name, model in (("200-NN", KNeighborsRegressor(200)), ("ridge", Ridge())):
            yield f"{name}, not private", partial(_fitted, model, records, values, queries)
        return
    bound = float(np.quantile(np.linalg.norm(public, axis=1), 0.95))

    def ada() -> Floats:
        scaled = (values - low) / (high - low) * 2 - 1
        linear = AdaSSP.fit(records, scaled, bound, epsilon, DELTA, seed).predict(queries)
        return np.asarray((linear + 1) / 2 * (high - low) + low)

    def neighbors(*, trend: bool = False, **more: Any) -> Floats:
        model = IndKNNRegressor(
            table.bounds, epsilon, DELTA, n_queries, scale=table.scale, kernel="rbf",
            simulation_seed=seed, n_records=len(records), interactions="public", **more,
        )  # fmt: skip
        model.fit(records, target, public=public)
        return onto(model.predict(queries, trend=trend))

    yield "AdaSSP", ada
    linear = linear_regression(epsilon, CUT, (float(low), float(high)), seed)
    if linear is not None:
        yield "diffprivlib", partial(_fitted, linear, records, values, queries)
    yield "IndKNNRegressor", neighbors
    yield "  by a trend", partial(neighbors, trend=True)
    if table.typical is not None:
        typical: dict[str, Any] = {"typical_range": table.typical}
        yield "  typical range", partial(neighbors, **typical)
        yield "  typical, by a trend", partial(neighbors, **typical, trend=True)


def _fitted(model: Any, records: Floats, values: Floats, queries: Floats) -> Floats:
    return np.asarray(model.fit(records, values).predict(queries), dtype=np.float64)


def scores(
    table: NumberTable,
    seed: int,
    n_queries: int,
    epsilons: tuple[float, ...],
    only: str = "",
) -> Iterator[NumberScore]:
    """Yield the scores on one split of all methods whose name begins with `only`."""
    truth = table.onto(np.clip(table.parts(seed)[2][:n_queries], *table.bounds))
    for epsilon in (None, *epsilons):
        for name, predict in methods(table, seed, n_queries, epsilon):
            if not name.strip().startswith(only):
                continue
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                predicted = np.clip(predict(), *table.onto(np.array(table.bounds)))
            errors = np.square(predicted - truth)
            r2 = float(1 - errors.mean() / truth.var())
            rmse = float(np.sqrt(errors.mean()))
            yield NumberScore(table.name, name, epsilon, n_queries, seed, r2, rmse)
