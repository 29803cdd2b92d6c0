"""Generated tables through schema, init, add and predict give an answer or a clear error message.

There is no traceback, no silent misreading (accepted values are read back as they were written),
no lost row, and no private value in any message. Every test run has the short form; the long one
is a soak.
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

from command_line import shown as run
from vicinal import checks
from vicinal.datasets.tables import read_table
from vicinal.errors import InvalidInput, VicinalError
from vicinal.features import TableFeatures, TableSchema, draft_schema
from vicinal.features.table_features import check_table
from vicinal.store import Store, StoreExtractor

PRIVATE = "zq7SECRETzq7"
NUMBER = 48151623.42
"""A text and a number that are only in private tables."""

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
def any_column(draw, size, kinds=tuple(CELLS)):
    cells, kind = CELLS[draw(st.sampled_from(kinds))]
    return pa.array(draw(st.lists(cells, min_size=size, max_size=size)), kind)


@st.composite
def any_table(draw, size=ROWS, kinds=tuple(CELLS), may_repeat_names=True):
    names = draw(st.lists(NAMES, min_size=1, max_size=4, unique=not may_repeat_names))
    return pa.table([draw(any_column(size, kinds)) for _ in names], names=names)


@st.composite
def damaged_table(draw, table):
    """Return a table with one thing changed: order, a column, a type, a value, or its rows."""
    names, arrays = list(table.column_names), [c.combine_chunks() for c in table.columns]
    damages = ["none", "order", "drop", "twin", "more", "type", "value", "rows"]
    damage = draw(st.sampled_from(damages))
    index = draw(st.integers(0, len(names) - 1))
    size = table.num_rows
    if damage == "order":
        names, arrays = names[::-1], arrays[::-1]
    elif damage == "drop":
        names, arrays = names[:index] + names[index + 1 :], arrays[:index] + arrays[index + 1 :]
    elif damage == "twin":
        names, arrays = [*names, names[index]], [*arrays, arrays[index]]
    elif damage == "more":
        names, arrays = [*names, PRIVATE], [*arrays, pa.array([PRIVATE] * size)]
    elif damage == "type":
        arrays[index] = draw(any_column(size))
    elif damage == "value":
        arrays[index] = pa.array(draw(st.sampled_from([[PRIVATE], [NUMBER]])) * size)
    elif damage == "rows":
        arrays = [array.slice(0, 0) for array in arrays]
    return pa.table(arrays, names=names) if names else table.slice(0, 0)


def capture_messages(call, *arguments, **options):
    """Return the result of a call, and its error and warnings as text; other errors are raised."""
    result = None
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            result = call(*arguments, **options)
            messages = ""
        except VicinalError as error:
            messages = f"{error} {error.__cause__ or ''}"
    return result, messages + " ".join(
        str(warning.message) for warning in caught if "public" not in str(warning)
    )


def assert_private(messages):
    assert PRIVATE not in messages
    assert "48151623" not in messages


def assert_codes_match(table, schema):
    """Compare the codes of accepted cells with the cells, column by column."""
    codes = TableFeatures(schema).codes(table)
    names = [checks.normalize_text(name) for name in table.column_names]
    cells_of = dict(zip(names, table.columns, strict=True))
    for i, declared in enumerate(schema.columns):
        cells = cells_of[declared.name].to_pylist()
        for code, cell in zip(codes[:, i].tolist(), cells, strict=True):
            assert has_same_meaning(declared, code, cell), (declared.kind, code, cell)


def has_same_meaning(declared, code, cell):
    """Return, by rules of the test itself, whether a code means the same as the cell."""
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


def check_features(data):
    public = data.draw(any_table())
    private = data.draw(damaged_table(public))
    draft, messages = capture_messages(draft_schema, public)
    if draft is None:
        assert messages
        return
    schema, _ = draft
    checked_schema, messages = capture_messages(schema.require_features)
    plain = json.loads(json.dumps(schema.to_dict(), allow_nan=False))
    assert TableSchema.from_dict(plain) == schema, "nothing is lost on the way through a file"
    if checked_schema is None:
        assert messages
        return
    public_features, messages = capture_messages(TableFeatures(plain).transform, public)
    assert public_features is not None or "schema" not in messages or "lacks" not in messages
    result, messages = capture_messages(TableFeatures(plain).transform, private)
    assert_private(messages)
    report, _ = capture_messages(check_table, private, schema)
    stops = report is None or any(misfit.stops for misfit in report)
    assert (result is None) == stops, "the check lists beforehand the faults that stop a table"
    if report is not None:
        assert_private(" ".join(str(misfit) for misfit in report if misfit.column != PRIVATE))
    if result is not None:
        assert np.isfinite(result).all()
        assert result.shape == (private.num_rows, len(schema.feature_names))
        with contextlib.suppress(InvalidInput), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            assert_codes_match(private, schema)


SHORT_RUN = settings(
    max_examples=100, deadline=None, database=None, derandomize=True,
    suppress_health_check=list(HealthCheck),
)  # fmt: skip
N_SOAK_TESTS = 16
"""Number of tests that share the 2,000 tables of a soak, so that processes run them in parallel."""
SOAK_RUN = settings(SHORT_RUN, max_examples=2000 // N_SOAK_TESTS, derandomize=False)


def make_soak_test(check):
    """Return the long form of a test, with other tables in every test and every run."""

    @pytest.mark.soak
    @pytest.mark.slow
    @pytest.mark.parametrize("index", range(N_SOAK_TESTS))
    @SOAK_RUN
    @given(data=st.data())
    def long_form(index, data):  # noqa: ARG001 (distinguishes the tests)
        check(data)

    return long_form


test_generated_tables_are_read_or_refused_in_a_sentence = SHORT_RUN(
    given(st.data())(check_features)
)
test_two_thousand_generated_tables = make_soak_test(check_features)


READABLE_KINDS = ("text", "number", "whole", "date", "yes")


def check_store(data):
    """Draft, make a store, add records and predict: records and answers are counted correctly."""
    public = data.draw(any_table(kinds=READABLE_KINDS, may_repeat_names=False))
    private, further, queries = (data.draw(damaged_table(public)) for _ in range(3))
    draft, _ = capture_messages(draft_schema, public)
    if draft is None or not draft[0].columns or draft[0].texts:
        return
    extractor = StoreExtractor("table", {"schema": draft[0].to_dict()})
    reference, _ = capture_messages(extractor.transform, public)
    if reference is None:
        return
    plan = {"n_records": 50, "n_neighbors": 3, "noise_multiplier": 1.0, "n_queries": 30}
    labels = [CLASSES[i % 2] for i in range(ROWS)]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "store"
        opened, messages = capture_messages(
            Store.init, path, private, labels[: private.num_rows], classes=CLASSES,
            public=reference, extractor=extractor, **plan,
        )  # fmt: skip
        assert_private(messages)
        if opened is None:
            assert messages
            assert not path.exists()
            return
        with opened as store:
            _, messages = capture_messages(store.add, further, labels[: further.num_rows])
            assert_private(messages)
            is_refused = any(word in messages for word in ("must", "lacks", "column"))
            count = store.facts(curator=True)["private"]["records"]
            assert count == 2 * ROWS or (is_refused and count == ROWS)
            reply, messages = capture_messages(store.predict, queries)
            assert_private(messages)
            remaining = store.quota().left
            if reply is None:
                assert messages
                assert remaining == 30
            else:
                assert len(reply.labels) == queries.num_rows
                assert remaining == 30 - reply.charged


test_generated_tables_through_a_store = settings(SHORT_RUN, max_examples=12)(
    given(st.data())(check_store)
)
test_two_thousand_generated_tables_through_a_store = make_soak_test(check_store)


DAMAGED_FILES = {
    "headerless": f"{PRIVATE},{NUMBER},1\n{PRIVATE},2,0\n",
    "ragged": f"age,sex,y\n{PRIVATE},f\n1,2,3,4\n", "empty": "", "header only": "age,sex,y\n",
    "wrong type": f"age,sex,y\n{PRIVATE},f,a\n", "two of one name": f"age,age,y\n1,{PRIVATE},a\n",
    "unknown class": f"age,sex,y\n5,f,{PRIVATE}\n", "no label": "age,sex,y\n5,f,\n",
    "not text": b"\xff\xfe\x00age",
}  # fmt: skip


@pytest.fixture(scope="module")
def public_files(tmp_path_factory):
    """A folder with a public table and the schema drafted from it."""
    folder = tmp_path_factory.mktemp("public")
    public = pa.table({"age": [20 + 7 * i % 39 for i in range(40)], "sex": ["f", "m"] * 20})
    parquet.write_table(public, folder / "public.parquet")
    run("schema", folder / "public.parquet", "-o", folder / "s.json")
    return folder


@pytest.mark.parametrize("name", DAMAGED_FILES)
def test_commands_end_in_a_sentence(name, public_files, tmp_path):
    """Files that are no tables, or other ones, through check and init."""
    content = DAMAGED_FILES[name]
    data, store = tmp_path / "data.csv", tmp_path / "store"
    data.write_bytes(content if isinstance(content, bytes) else content.encode())
    schema = ["--schema", public_files / "s.json"]
    records = ["--data", data, "--label", "y", "--features", "table", "--classes", "a,b"]
    public = ["--public", public_files / "public.parquet", "--records", 20]
    code = 0 if name in ("unknown class", "no label") else 2  # the check was given no classes
    assert_private(run("schema", "--check", data, *schema, code=code))
    assert_private(run("init", store, *records, *schema, *public, code=2))
    assert not store.exists()


def test_a_csv_file_reads_as_the_parquet_file_it_came_from(tmp_path):
    """Types are not guessed from the first rows: both give the same features."""
    table = pa.table({
        "age": [1, None, 3], "sex": ["f", "m", None], "smoker": [True, False, None],
        "seen": [dt.date(2020, 1, 1), None, dt.date(2021, 1, 1)], "x": [0.1, 1e300, None],
    })  # fmt: skip
    schema, _ = draft_schema(pa.concat_tables([table] * 10))
    csv.write_csv(table, tmp_path / "t.csv")
    parquet.write_table(table, tmp_path / "t.parquet")
    text, typed = read_table(tmp_path / "t.csv"), read_table(tmp_path / "t.parquet")
    compute_features = TableFeatures(schema).transform
    np.testing.assert_array_equal(compute_features(text), compute_features(typed))
