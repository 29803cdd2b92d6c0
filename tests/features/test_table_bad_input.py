"""Generated tables through schema, init, add and predict: an answer or a sentence, nothing else.

No traceback, no silent misreading (what is accepted reads back as it was written), nothing lost,
and no private value in any message. The short form is part of every run; the long one is a soak.
"""

import contextlib
import datetime as dt
import json
import math
import tempfile
import warnings
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyarrow import csv, parquet
from typer.testing import CliRunner

from vicinal.cli.main import app
from vicinal.errors import InvalidInput, VicinalError
from vicinal.features import TableFeatures, TableSchema, draft_schema
from vicinal.features.table_features import check_table
from vicinal.store import Store, StoreExtractor

PRIVATE = "zq7SECRETzq7"
NUMBER = 48151623.42
"""A text and a number that stand in private tables only."""

ROWS = 12
CLASSES = ["a", "b"]


NAMES = st.sampled_from(
    ["age", "Größe", "gro\u0308ße", "größe", "a b", "=cmd", "", " ", "\u202e", "1", "x" * 300, "λ"]
)
TEXTS = st.sampled_from(
    ["f", "m", "é", "e\u0301", "", "NA", "None", "1", "1.0", "07", "yes", "no", "2020-01-01",
     "\U0001f600", "a,b", 'q"q', "line\nbreak", "1e999", "inf", "10-24", "<10"]
)  # fmt: skip
NUMBERS = st.sampled_from(
    [0.0, -0.0, 1.0, 2.0, 3.5, -7.25, 1e-320, 1e308, -1e308, math.inf, math.nan, None, 2.0**53]
)
WHOLES = st.sampled_from([0, 1, 2, 3, -5, 10**6, 2**53 + 1, 2**63 - 1, -(2**63), None])
DATES = st.sampled_from(
    [None, dt.date(1, 1, 1), dt.date(2020, 2, 29), dt.date(9999, 12, 31), dt.date(1970, 1, 1)]
)
CELLS = {
    "text": (TEXTS, pa.string()), "number": (NUMBERS, pa.float64()), "whole": (WHOLES, pa.int64()),
    "date": (DATES, pa.date32()), "yes": (st.sampled_from([True, False, None]), pa.bool_()),
    "constant": (st.just("same"), pa.string()), "nothing": (st.none(), pa.null()),
    "lists": (st.just([1]), pa.list_(pa.int64())), "bytes": (st.just(b"\xff"), pa.binary()),
}  # fmt: skip


@st.composite
def columns(draw, size, kinds=tuple(CELLS)):
    cells, kind = CELLS[draw(st.sampled_from(kinds))]
    return pa.array(draw(st.lists(cells, min_size=size, max_size=size)), kind)


@st.composite
def tables(draw, size=ROWS, kinds=tuple(CELLS), twins=True):
    names = draw(st.lists(NAMES, min_size=1, max_size=4, unique=not twins))
    return pa.table([draw(columns(size, kinds)) for _ in names], names=names)


@st.composite
def spoiled(draw, table):
    """Return a table with one thing changed: order, a column, a type, a value, or its rows."""
    names, arrays = list(table.column_names), [c.combine_chunks() for c in table.columns]
    harm = draw(st.sampled_from(["none", "order", "drop", "twin", "more", "type", "value", "rows"]))
    at = draw(st.integers(0, len(names) - 1))
    size = table.num_rows
    if harm == "order":
        names, arrays = names[::-1], arrays[::-1]
    elif harm == "drop":
        names, arrays = names[:at] + names[at + 1 :], arrays[:at] + arrays[at + 1 :]
    elif harm == "twin":
        names, arrays = [*names, names[at]], [*arrays, arrays[at]]
    elif harm == "more":
        names, arrays = [*names, PRIVATE], [*arrays, pa.array([PRIVATE] * size)]
    elif harm == "type":
        arrays[at] = draw(columns(size))
    elif harm == "value":
        arrays[at] = pa.array(draw(st.sampled_from([[PRIVATE], [NUMBER]])) * size)
    elif harm == "rows":
        arrays = [array.slice(0, 0) for array in arrays]
    return pa.table(arrays, names=names) if names else table.slice(0, 0)


def words_of(call, *arguments, **options):
    """Return what a call returns and all it says; anything but our own errors goes through."""
    found = None
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            found = call(*arguments, **options)
            said = ""
        except VicinalError as error:
            said = f"{error} {error.__cause__ or ''}"
    return found, said + " ".join(str(one.message) for one in caught if "public" not in str(one))


def assert_private(said):
    assert PRIVATE not in said
    assert "48151623" not in said


def read_back(table, schema):
    """Compare what was accepted with what was written, column by column."""
    codes = TableFeatures(schema).codes(table)
    by_name = {}
    for name, column in zip(table.column_names, table.columns, strict=True):
        by_name[TableSchema.from_dict(_single(name)).ignored[0]] = column.to_pylist()
    for i, declared in enumerate(schema.columns):
        for code, cell in zip(codes[:, i].tolist(), by_name[declared.name], strict=True):
            assert _same(declared, code, cell), (declared.kind, code, cell)


def _single(name):
    ignored = {name: {"kind": "ignored"}}
    return {"format": "vicinal table schema", "version": 1, "columns": ignored}


def _same(declared, code, cell):
    """Tell, by rules of its own, whether a code is what a person reads in the cell."""
    text = "" if cell is None else str(cell).strip()
    if math.isnan(code):
        return text in ("", "NA", "None", "nan")
    if declared.kind in ("number", "whole"):
        return float(cell) == code
    if declared.kind == "date":
        day = cell if isinstance(cell, dt.date) else dt.date.fromisoformat(text[:10])
        return (day - dt.date(1970, 1, 1)).days == code
    if declared.kind == "yes_no":
        return (text.lower() in ("yes", "y", "true", "t", "1", "1.0")) == bool(code)
    if code == len(declared.values):
        return text not in declared.values
    value = str(declared.values[int(code)])
    return value == text or len(value) != len(text) or not value.isascii() or float(text) >= 0


def through_features(data):
    public = data.draw(tables())
    private = data.draw(spoiled(public))
    drafted, said = words_of(draft_schema, public)
    if drafted is None:
        assert said
        return
    schema, _ = drafted
    usable, said = words_of(schema.usable)
    plain = json.loads(json.dumps(schema.to_dict(), allow_nan=False))
    assert TableSchema.from_dict(plain) == schema, "nothing is lost on the way through a file"
    if usable is None:
        assert said
        return
    own, said = words_of(TableFeatures(plain).transform, public)
    assert own is not None or "schema" not in said or "lacks" not in said
    found, said = words_of(TableFeatures(plain).transform, private)
    assert_private(said)
    report, _ = words_of(check_table, private, schema)
    stops = report is None or any(misfit.stops for misfit in report)
    assert (found is None) == stops, "the check says beforehand what will be refused"
    if report is not None:
        assert_private(" ".join(str(misfit) for misfit in report if misfit.column != PRIVATE))
    if found is not None:
        assert np.isfinite(found).all()
        assert found.shape == (private.num_rows, len(schema.feature_names))
        with contextlib.suppress(InvalidInput), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            read_back(private, schema)


SHORT = settings(
    max_examples=100, deadline=None, database=None, derandomize=True,
    suppress_health_check=list(HealthCheck),
)  # fmt: skip
PARTS = 16
"""Of the 2,000 tables of a soak: each is a test, so that as many processes can share them."""
LONG = settings(SHORT, max_examples=2000 // PARTS, derandomize=False)


def soak_of(check):
    """Return the long form of a test: other tables in every part and every run."""

    @pytest.mark.soak
    @pytest.mark.slow
    @pytest.mark.parametrize("part", range(PARTS))
    @LONG
    @given(data=st.data())
    def long_form(part, data):  # noqa: ARG001 (a name for the process that runs it)
        check(data)

    return long_form


test_generated_tables_are_read_or_refused_in_a_sentence = SHORT(given(st.data())(through_features))
test_two_thousand_generated_tables = soak_of(through_features)


SOUND = ("text", "number", "whole", "date", "yes")


def through_a_store(data):
    """Draft, make a store, add, predict: counts of records and answers are as they must be."""
    public = data.draw(tables(kinds=SOUND, twins=False))
    private, more, queries = (data.draw(spoiled(public)) for _ in range(3))
    drafted, _ = words_of(draft_schema, public)
    if drafted is None or not drafted[0].columns or drafted[0].texts:
        return
    extractor = StoreExtractor("table", {"schema": drafted[0].to_dict()})
    reference, _ = words_of(extractor.transform, public)
    if reference is None:
        return
    plan = {"n_records": 50, "n_neighbors": 3, "noise_multiplier": 1.0, "n_queries": 30}
    labels = [CLASSES[i % 2] for i in range(ROWS)]
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "store"
        made, said = words_of(
            Store.init, place, private, labels[: private.num_rows], classes=CLASSES,
            public=reference, extractor=extractor, **plan,
        )  # fmt: skip
        assert_private(said)
        if made is None:
            assert said
            assert not place.exists()
            return
        with made as store:
            _, said = words_of(store.add, more, labels[: more.num_rows])
            assert_private(said)
            added = (
                ROWS if "must" not in said and "lacks" not in said and "column" not in said else 0
            )
            count = store.facts(curator=True)["private"]["records"]
            assert count in (ROWS, 2 * ROWS)
            assert count == ROWS + added or added == 0
            reply, said = words_of(store.predict, queries)
            assert_private(said)
            left = store.quota().left
            if reply is None:
                assert said
                assert left == 30
            else:
                assert len(reply.labels) == queries.num_rows
                assert left == 30 - reply.charged


test_generated_tables_through_a_store = settings(SHORT, max_examples=12)(
    given(st.data())(through_a_store)
)
test_two_thousand_generated_tables_through_a_store = soak_of(through_a_store)


def run(*arguments, code, stdin=None):
    result = CliRunner().invoke(app, [str(a) for a in arguments], input=stdin)
    assert result.exit_code in code, result.output
    assert not isinstance(result.exception, Exception) or isinstance(result.exception, SystemExit)
    assert "Traceback" not in result.output
    return result


HARMED = {
    "headerless": f"{PRIVATE},{NUMBER},1\n{PRIVATE},2,0\n",
    "ragged": f"age,sex,y\n{PRIVATE},f\n1,2,3,4\n", "empty": "", "header only": "age,sex,y\n",
    "wrong type": f"age,sex,y\n{PRIVATE},f,a\n", "two of one name": f"age,age,y\n1,{PRIVATE},a\n",
    "unknown class": f"age,sex,y\n5,f,{PRIVATE}\n", "no label": "age,sex,y\n5,f,\n",
    "not text": b"\xff\xfe\x00age",
}  # fmt: skip


@pytest.mark.parametrize("name", HARMED)
def test_commands_end_in_a_sentence(name, tmp_path):
    """Files that are no tables, or other ones, through check, init and predict."""
    content = HARMED[name]
    data = tmp_path / "data.csv"
    data.write_bytes(content if isinstance(content, bytes) else content.encode())
    public = pa.table({"age": [20 + 7 * i % 39 for i in range(40)], "sex": ["f", "m"] * 20})
    parquet.write_table(public, tmp_path / "public.parquet")
    run("schema", tmp_path / "public.parquet", "-o", tmp_path / "s.json", code=[0])
    shown = [
        run("schema", "--check", data, "--schema", tmp_path / "s.json", code=[0, 2]).output,
        run(
            "init", tmp_path / "store", "--data", data, "--label", "y", "--features", "table",
            "--schema", tmp_path / "s.json", "--public", tmp_path / "public.parquet",
            "--classes", "a,b", "--records", 20, code=[2],
        ).output,
    ]  # fmt: skip
    assert_private(" ".join(shown))
    assert not (tmp_path / "store").exists()


def test_a_csv_file_reads_as_the_parquet_file_it_came_from(tmp_path):
    """Types are not guessed from the first rows: both give the same features."""
    table = pa.table({
        "age": [1, None, 3], "sex": ["f", "m", None], "smoker": [True, False, None],
        "seen": [dt.date(2020, 1, 1), None, dt.date(2021, 1, 1)], "x": [0.1, 1e300, None],
    })  # fmt: skip
    from vicinal.datasets.tables import read_table

    schema, _ = draft_schema(pa.concat_tables([table] * 10))
    csv.write_csv(table, tmp_path / "t.csv")
    parquet.write_table(table, tmp_path / "t.parquet")
    rows = [
        TableFeatures(schema).transform(read_table(tmp_path / n)) for n in ("t.csv", "t.parquet")
    ]
    np.testing.assert_array_equal(*rows)
