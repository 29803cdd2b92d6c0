"""Scores on scikit-learn's small tables, by the number of private records."""

import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from sklearn.datasets import load_breast_cancer, load_diabetes, load_wine
from sklearn.dummy import DummyClassifier, DummyRegressor
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from vicinal import IndKNNClassifier, IndKNNRegressor
from vicinal.features import draft_schema

N_QUERIES = 100
"""Planned and answered queries; the smallest table leaves about as many after 100 records."""


@dataclass(frozen=True)
class SmallTable:
    """A table inside scikit-learn, and the numbers of private records to measure.

    - `name`: name on the page.
    - `load`: loader of scikit-learn.
    - `sizes`: numbers of private records; the remaining rows are queries.
    - `bounds`: public range of a number to predict; None for classes.
    """

    name: str
    load: Callable[..., Any]
    sizes: tuple[int, ...]
    bounds: tuple[float, float] | None = None


TABLES = (
    SmallTable("breast cancer, 30 columns", load_breast_cancer, (100, 200, 400)),
    SmallTable("wine, 13 columns, 3 classes", load_wine, (100,)),
    SmallTable("diabetes, 10 columns, R squared", load_diabetes, (100, 200, 300), (25.0, 346.0)),
)
"""The numbers of diabetes are scores from 25 to 346."""


@dataclass(frozen=True)
class SmallTableScores:
    """Mean scores of one table with one number of private records.

    A score is the accuracy of classes, or R squared of numbers.

    - `name`: name of the table.
    - `n_records`: number of private records.
    - `vicinal`: score of the default.
    - `constant`: score of always predicting the most frequent class, or the mean.
    - `linear`: score of a linear model without privacy.
    """

    name: str
    n_records: int
    vicinal: float
    constant: float
    linear: float


def measure_small_tables(epsilon: float, n_runs: int) -> Iterable[SmallTableScores]:
    """Yield the scores of every table and size, as means of `n_runs` splits.

    `epsilon`: budget of a subject, with delta 1e-5.
    """
    for table in TABLES:
        for n_records in table.sizes:
            runs = [_score_split(table, n_records, epsilon, run) for run in range(n_runs)]
            yield SmallTableScores(table.name, n_records, *np.mean(runs, axis=0).tolist())


def _score_split(
    table: SmallTable, n_records: int, epsilon: float, run: int
) -> tuple[float, float, float]:
    """Return the scores of vicinal, of a constant and of a linear model on split `run`."""
    data = table.load()
    # A table of pyarrow, because pandas is not among the core dependencies.
    columns = pa.table(dict(zip(data.feature_names, data.data.T, strict=True)))
    # These rows are published with their ranges, so the schema may be drafted from all of them.
    schema, _ = draft_schema(columns)
    strata = None if table.bounds else data.target
    private, queries = train_test_split(
        np.arange(len(data.target)), train_size=n_records, random_state=run, stratify=strata
    )
    queries = queries[:N_QUERIES]
    targets, truth = data.target[private], data.target[queries]
    options: dict[str, Any] = {"n_queries": N_QUERIES, "simulation_seed": run}
    model: IndKNNClassifier | IndKNNRegressor
    if table.bounds is None:
        model = IndKNNClassifier(np.unique(data.target), epsilon, **options)
        constant = DummyClassifier()
        linear = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000))
    else:
        model = IndKNNRegressor(table.bounds, epsilon, **options)
        constant = DummyRegressor()
        linear = make_pipeline(StandardScaler(), Ridge())
    with warnings.catch_warnings():
        # `fit` warns that some sizes are too small, which is what this table measures.
        warnings.simplefilter("ignore")
        model.fit(columns.take(private), targets, schema=schema)
        score = model.score(columns.take(queries), truth)
    rivals = [
        rival.fit(data.data[private], targets).score(data.data[queries], truth)
        for rival in (constant, linear)
    ]
    return float(score), float(rivals[0]), float(rivals[1])


def format_small_tables(scores: Iterable[SmallTableScores]) -> str:
    """Return scores as a table in Markdown, in the format of the README."""
    header = (
        "| table of scikit-learn | private records | vicinal | constant | linear, not private |"
    )
    lines = [header, "|---|---|---|---|---|"]
    for row in scores:
        figures = (_format_score(value) for value in (row.vicinal, row.constant, row.linear))
        lines.append(f"| {row.name} | {row.n_records} | {' | '.join(figures)} |")
    return "\n".join(lines)


def _format_score(score: float) -> str:
    """Return a score with three decimals and without the leading zero."""
    return f"{score:.3f}".replace("0.", ".", 1).replace("-.000", ".000")
