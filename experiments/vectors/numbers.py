"""Regression on tables: neighbours against linear models, with privacy and without."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow.parquet as pq
from sklearn.linear_model import Ridge
from sklearn.neighbors import KNeighborsRegressor

from experiments.ridge import AdaSSP
from vicinal import IndKNNRegressor
from vicinal.mechanisms import public_draws

Floats = npt.NDArray[np.float64]

DELTA = 1e-5
_CUT = ["Fair", "Good", "Very Good", "Premium", "Ideal"]
_CLARITY = ["I1", "SI2", "SI1", "VS2", "VS1", "VVS2", "VVS1", "IF"]


@dataclass(frozen=True, slots=True)
class NumberTable:
    """Rows of features and a target; the first rows are public, the next are queries."""

    name: str
    features: Floats
    target: Floats
    bounds: tuple[float, float]
    scale: str = "log"
    n_public: int = 2000
    n_queries: int = 2000

    def parts(self, seed: int) -> tuple[Floats, Floats, Floats, Floats, Floats]:
        """Return public rows, queries with targets, private rows with targets, one order a seed.

        Columns are centred and scaled by the public rows, and cut at 4 of their deviations.
        """
        order = public_draws(seed).permutation(len(self.target))
        X, y = self.features[order], self.target[order]
        public = X[: self.n_public]
        scaled = np.clip((X - public.mean(axis=0)) / (public.std(axis=0) + 1e-9), -4, 4)
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
    return NumberTable(name, np.array(columns, dtype=float).T, price, bounds, scale)


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
    return NumberTable("gss_wages, log income", np.array(columns).T, income, (500.0, 300000.0))


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


def scores(table: NumberTable, seed: int, n_queries: int, epsilons: tuple[float, ...]) -> Iterator[
    NumberScore
]:  # fmt: skip
    """Yield the scores of all methods on one split."""
    public, queries, truth, records, target = table.parts(seed)
    onto = np.log if table.scale == "log" else np.asarray
    queries, truth = queries[:n_queries], onto(np.clip(truth[:n_queries], *table.bounds))
    low, high = onto(table.bounds)
    values = onto(np.clip(target, *table.bounds))

    def score(method: str, epsilon: float | None, predicted: Floats) -> NumberScore:
        errors = np.square(predicted - truth)
        r2 = 1 - errors.sum() / np.square(truth - truth.mean()).sum()
        rmse = float(np.sqrt(errors.mean()))
        return NumberScore(table.name, method, epsilon, n_queries, seed, float(r2), rmse)

    yield score(
        "200-NN, not private", None, KNeighborsRegressor(200).fit(records, values).predict(queries)
    )
    yield score("ridge, not private", None, Ridge().fit(records, values).predict(queries))
    scaled = (values - low) / (high - low) * 2 - 1
    bound = float(np.quantile(np.linalg.norm(public, axis=1), 0.95))
    for epsilon in epsilons:
        linear = AdaSSP.fit(records, scaled, bound, epsilon, DELTA, seed).predict(queries)
        yield score("AdaSSP", epsilon, (linear + 1) / 2 * (high - low) + low)
        model = IndKNNRegressor(
            table.bounds, epsilon, DELTA, n_queries, scale=table.scale, kernel="rbf",
            simulation_seed=seed,
        )  # fmt: skip
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model.fit(records, target, public=public)
            yield score("IndKNNRegressor", epsilon, onto(model.predict(queries)))
