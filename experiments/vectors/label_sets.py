"""Several yes-or-no columns of real tables, answered at once: Ind-KNN beside Private-kNN."""

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
from sklearn.neighbors import KNeighborsClassifier

from experiments.vectors.numbers import CUT, DELTA
from vicinal import IndKNNMultiLabelClassifier, PrivateKNNClassifier
from vicinal.mechanisms import public_draws

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]
N_PUBLIC = 2000
N_QUERIES = 500


@dataclass(frozen=True, slots=True)
class LabelTable:
    """Rows of features with several labels.

    Attributes
    ----------
    features : float64 (n, d)
        As numbers.
    labels : dict of str to bool (n,)
        Labels by name.
    """

    name: str
    features: Floats
    labels: dict[str, Bools]


def crashes(folder: Path) -> LabelTable:
    """Return people in crashes reported to the police (nassCDS): what happened, and to whom."""
    table = pq.read_table(folder / "nassCDS.parquet").to_pandas()
    table = table.drop(columns="caseid").dropna()
    speeds = ["1-9km/h", "10-24", "25-39", "40-54", "55+"]
    columns = [table["dvcat"].map(speeds.index), np.log1p(table["weight"])]
    columns += [table[name] for name in ("ageOFocc", "yearacc", "yearVeh", "injSeverity")]
    labels = {
        "airbag": table["airbag"] == "airbag",
        "belted": table["seatbelt"] == "belted",
        "female": table["sex"] == "f",
        "driver": table["occRole"] == "driver",
    }
    labels |= {name: table[name] == 1 for name in ("frontal", "deploy")}
    return _table("crashes", columns, labels)


def households(folder: Path) -> LabelTable:
    """Return people asked by the General Social Survey: work, family, degree."""
    table = pq.read_table(folder / "gss_wages.parquet").to_pandas()
    table = table.drop(columns="occ10").dropna()
    columns = [np.log(table["realrinc"]), table["age"], table["prestg10"], table["year"]]
    columns += [table["occrecode"] == name for name in sorted(table["occrecode"].unique())]
    labels = {
        "female": table["gender"] == "Female",
        "married": table["maritalcat"] == "Married",
        "children": table["childs"] > 0,
        "full time": table["wrkstat"] == "Full-Time",
        "degree": table["educcat"].isin(["Bachelor", "Graduate"]),
    }
    return _table("households", columns, labels)


def _table(name: str, columns: list[Any], labels: dict[str, Any]) -> LabelTable:
    features = np.stack([np.asarray(column, dtype=float) for column in columns], axis=1)
    return LabelTable(
        name, features, {key: np.asarray(value, dtype=np.bool_) for key, value in labels.items()}
    )


@dataclass(frozen=True, slots=True)
class LabelScore:
    """Shares of right answers of each label, (c,), by a method at an epsilon."""

    table: str
    method: str
    epsilon: float | None
    seed: int
    right: Floats

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, for JSON."""
        plain = {name: getattr(self, name) for name in self.__slots__}
        return {**plain, "right": self.right.tolist()}


def scores(table: LabelTable, seed: int, epsilons: tuple[float, ...]) -> Iterator[LabelScore]:
    """Yield the scores of all methods on one split, scaled by its public rows."""
    sets = np.stack(list(table.labels.values()), axis=1)
    order = public_draws(seed).permutation(len(sets))
    X, y = table.features[order], sets[order]
    X = (X - X[:N_PUBLIC].mean(axis=0)) / (X[:N_PUBLIC].std(axis=0) + 1e-9)
    X = np.clip(X, -CUT, CUT)
    last = N_PUBLIC + N_QUERIES
    public, queries, records = X[:N_PUBLIC], X[N_PUBLIC:last], X[last:]
    truth, carried = y[N_PUBLIC:last], y[last:]

    def score(method: str, epsilon: float | None, predict: Callable[[], Any]) -> LabelScore:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            right = (np.asarray(predict()) == truth).mean(axis=0)
        return LabelScore(table.name, method, epsilon, seed, right)

    def fitted(model: Any, asked: dict[str, Any] | None = None, **more: Any) -> Any:
        return model.fit(records, carried, **more).predict(queries, **asked or {})

    common = carried.mean(axis=0) >= 0.5
    yield score("commonest value", None, lambda: np.tile(common, (len(queries), 1)))
    nearest = KNeighborsClassifier(200)
    yield score("200-NN, not private", None, lambda: fitted(nearest))
    names = list(table.labels)
    shared: dict[str, Any] = {"n_queries": N_QUERIES, "simulation_seed": seed, "delta": DELTA}
    for epsilon in epsilons:
        for method, tau, trend in (
            ("Ind-KNN", None, False),
            ("Ind-KNN, by a trend", None, True),
            (f"Ind-KNN, tau {len(names) / 2:g}", len(names) / 2, False),
        ):
            own = IndKNNMultiLabelClassifier(
                names, epsilon, kernel="rbf", tau=tau, n_records=len(records),
                interactions="public", **shared,
            )  # fmt: skip
            predict = partial(fitted, own, {"trend": trend}, public=public)
            yield score(method, epsilon, predict)
        for k, gamma in ((100, 0.05), (300, 0.05), (300, 0.15)):
            other = PrivateKNNClassifier(
                names, k, gamma, epsilon=epsilon, tau=len(names), interactions="public", **shared
            )
            method = f"Private-kNN, k {k}, gamma {gamma:g}"
            yield score(method, epsilon, lambda other=other: fitted(other))  # type: ignore[misc]
