"""Four tables about people, split by person into private records, public rows and queries."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow import parquet

from vicinal.features import (
    PublicMap,
    TableFeatures,
    TableSchema,
    draft_schema,
    rows_from_schema,
)

Matrix = npt.NDArray[Any]

N_REFERENCE = 2000
MOST_RECORDS = 20_000
DELTA = 1e-5
_COMPONENTS = 100
_ROWS_PER_FEATURE = 5


@dataclass(frozen=True)
class TableTask:
    """A question about a table.

    Attributes
    ----------
    name, file : str
        What the task is called, and the Parquet file's name without its suffix.
    positive : callable
        Tells from the table which rows are cases.
    left_out : tuple of str
        Columns that are no features: names, the answer, and what is known after it only.
    subject : str or None
        Column of people; None if each row is one.
    records_per_subject : float
        Rows of a person on average, as the table's documentation has them.
    """

    name: str
    file: str
    positive: Callable[[pa.Table], Matrix]
    left_out: tuple[str, ...]
    subject: str | None = None
    records_per_subject: float = 1.0


def _equals(column: str, value: Any) -> Callable[[pa.Table], Matrix]:
    return lambda table: np.array([cell == value for cell in table[column].to_pylist()])


def _hospital(table: pa.Table) -> Matrix:
    return np.asarray(table["hospvis"].to_numpy() > 0)


_GERMAN = ("row", "id", "edlevel1", "edlevel2", "edlevel3", "edlevel4")

TASKS = (
    TableTask(
        "nassCDS dead", "nassCDS", _equals("dead", "dead"),
        ("row", "caseid", "weight", "injSeverity", "dead"),
    ),
    TableTask(
        "rwm5yr outwork", "rwm5yr", _equals("outwork", 1), (*_GERMAN, "outwork"), "id", 3.2
    ),
    TableTask("rwm5yr hospvis > 0", "rwm5yr", _hospital, (*_GERMAN, "hospvis"), "id", 3.2),
    TableTask("gss_wages gender", "gss_wages", _equals("gender", "Female"), ("row", "gender")),
    TableTask("Fertility morekids", "Fertility", _equals("morekids", "yes"), ("row", "morekids")),
)  # fmt: skip


@dataclass(frozen=True, eq=False)
class TableSplit:
    """One split of a task; a query is one row of a person who is nobody else here.

    Attributes
    ----------
    rows : Table
        All rows' columns that are features.
    cases : bool (n,)
        The answers.
    subjects : int64 (n,)
        Who each row is about.
    private, reference, queries : int64
        Which rows are what.
    schema : TableSchema
        Drafted from the real public rows, whatever the reference.
    records_per_subject : float
        Declared.
    """

    rows: pa.Table
    cases: Matrix
    subjects: Matrix
    private: Matrix
    reference: Matrix
    queries: Matrix
    schema: TableSchema
    records_per_subject: float = 1.0

    @classmethod
    def of(cls, task: TableTask, folder: Path, run: int, n_queries: int) -> TableSplit:
        """Read a task's table and split it by person."""
        table = parquet.read_table(folder / f"{task.file}.parquet")
        cases, rows = task.positive(table), table.drop_columns(list(task.left_out))
        names = np.arange(len(cases))
        if task.subject is not None:
            names = np.unique(table[task.subject].to_numpy(), return_inverse=True)[1]
        generator = np.random.default_rng(run)  # noqa: TID251 (public)
        place = generator.permutation(names.max() + 1)[names]  # of each row's person
        shuffled = generator.permutation(len(names))
        first = shuffled[np.unique(place[shuffled], return_index=True)[1]]  # a row of each person
        reference, queries = first[:N_REFERENCE], first[N_REFERENCE : N_REFERENCE + n_queries]
        private = shuffled[place[shuffled] >= N_REFERENCE + n_queries][:MOST_RECORDS]
        schema, _ = draft_schema(rows.take(reference))
        parts = rows, cases, names, private, reference, queries, schema
        return cls(*parts, task.records_per_subject)

    def features(self, reference: str, seed: int) -> tuple[Matrix, Matrix, Matrix]:
        """Return private, public and query features, mapped as `vicinal init` does."""
        table = TableFeatures(self.schema)
        points = table.transform(self._reference(reference, seed))
        private, queries = (
            table.transform(self.rows.take(which)) for which in (self.private, self.queries)
        )
        width = points.shape[1]
        if len(points) < _ROWS_PER_FEATURE * width:
            return private, points, queries
        learnt = PublicMap(min(_COMPONENTS, width)).fit(points)
        return learnt.transform(private), learnt.transform(points), learnt.transform(queries)

    def _reference(self, kind: str, seed: int) -> pa.Table:
        if kind == "real":
            return self.rows.take(self.reference)
        return rows_from_schema(self.schema, N_REFERENCE, seed)
