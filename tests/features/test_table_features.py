"""Table features: schemas are parsed strictly, cells as declared, and every row independently."""

import datetime as dt
import json
import math

import numpy as np
import pyarrow as pa
import pytest
from sklearn.base import clone
from sklearn.pipeline import make_pipeline

from vicinal import IndKNNClassifier, IndKNNRegressor, NoisySGDClassifier
from vicinal.errors import InvalidInput
from vicinal.features import TableFeatures, TableSchema, draft_schema
from vicinal.features.table_features import check_table
from vicinal.features.table_kinds import MAX_DEVIATIONS
from vicinal.store import Store, StoreExtractor

PRIVATE = "Ms Secret"


def make_schema(**columns):
    return {"format": "vicinal table schema", "version": 1, "columns": columns}


FULL_SCHEMA = make_schema(
    age={"kind": "whole", "low": 0, "high": 100},
    income={"kind": "number", "low": 0, "center": 10.0, "spread": 1.0, "log": True},
    stage={"kind": "levels", "values": ["I", "II", "III"]},
    sex={"kind": "category", "values": ["f", "m"]},
    smoker={"kind": "yes_no"},
    seen={"kind": "date", "low": "2000-01-01", "high": "2020-01-01"},
    name={"kind": "ignored"},
)

SEX_SCHEMA = make_schema(age=FULL_SCHEMA["columns"]["age"], sex=FULL_SCHEMA["columns"]["sex"])

ROWS = {
    "age": [0, 50, 100, None],
    "income": [0.0, math.expm1(10), math.expm1(11), 1e300],
    "stage": ["I", "II", "III", ""],
    "sex": ["f", "m", "x", None],
    "smoker": ["yes", "no", "TRUE", "NA"],
    "seen": ["2000-01-01", "2020-01-01", "2030-05-05T10:00:00", "2010-01-01"],
    "name": [PRIVATE] * 4,
}


def compute_features(rows=ROWS, declared=FULL_SCHEMA):
    return TableFeatures(declared).transform(rows)


def test_cells_become_the_numbers_that_the_schema_declares():
    names = TableFeatures(FULL_SCHEMA).get_feature_names_out().tolist()
    result = dict(zip(names, compute_features().T.astype(float).round(3).tolist(), strict=True))
    assert result["age"] == [-1.732, 0, 1.732, 0], "a uniform number's deviation is range / sqrt 12"
    assert result["age is missing"] == [0, 0, 0, 1]
    assert result["income"] == [-MAX_DEVIATIONS, 0, 1, MAX_DEVIATIONS]
    assert result["stage"] == pytest.approx([-1.225, 0, 1.225, 0], abs=1e-3)
    half = round(math.sqrt(0.5), 3)
    assert result["sex=f"] == pytest.approx([half, 0, 0, 0], abs=1e-3)
    assert result["sex=(other)"] == pytest.approx([0, 0, half, 0], abs=1e-3)
    assert result["sex is missing"] == pytest.approx([0, 0, 0, half], abs=1e-3)
    assert result["smoker"] == [0.5, -0.5, 0.5, 0]
    assert result["seen"] == pytest.approx([-1.732, 1.732, 1.732, 0], abs=2e-3), "clipped"


def test_every_row_is_a_function_of_itself():
    rng = np.random.default_rng(0)
    n = 997
    rows = {
        "age": rng.integers(0, 120, n), "income": rng.lognormal(9, 2, n),
        "stage": rng.choice(["I", "II", "III"], n), "sex": rng.choice(["f", "m", "d"], n),
        "smoker": rng.choice([True, False], n), "seen": rng.choice(["2001-02-03", ""], n),
    }  # fmt: skip
    together = compute_features(rows)
    order = rng.permutation(n)
    shuffled = {name: column[order] for name, column in reversed(rows.items())}
    np.testing.assert_array_equal(compute_features(shuffled), together[order])
    for i in range(0, n, 83):
        alone = {name: column[i : i + 1] for name, column in rows.items()}
        np.testing.assert_array_equal(compute_features(alone), together[i : i + 1])


def test_tables_of_all_forms_give_the_same_features():
    pandas, polars = pytest.importorskip("pandas"), pytest.importorskip("polars")
    first_rows = {name: column[:3] for name, column in ROWS.items()}
    expected = compute_features(first_rows)
    arrow = pa.table(first_rows)
    listed = arrow.to_pylist()
    batch = arrow.to_batches()[0]
    coded = arrow.set_column(3, "sex", arrow["sex"].dictionary_encode())
    text = pa.table({name: [str(v) for v in column] for name, column in first_rows.items()})
    typed = arrow.set_column(
        5, "seen", pa.array([dt.date(2000, 1, 1), dt.date(2020, 1, 1), dt.date(2030, 5, 5)])
    )
    stamped = typed.set_column(5, "seen", typed["seen"].cast(pa.timestamp("ns", "UTC")))
    indexed = pandas.DataFrame(first_rows, index=[5, 5, 6]).astype({"sex": "category"})
    lazy = polars.from_arrow(arrow).with_columns(polars.col("sex").cast(polars.Categorical))
    for equal_input in (arrow, listed, batch, coded, text, typed, stamped, indexed, lazy):
        np.testing.assert_array_equal(compute_features(equal_input), expected)
    structured = np.array([("f", 1), ("m", 2)], dtype=[("sex", "U1"), ("age", "i8")])
    rows = {"age": [1, 2], "sex": ["f", "m"]}
    expected = compute_features(rows, SEX_SCHEMA)
    np.testing.assert_array_equal(compute_features(structured, SEX_SCHEMA), expected)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("age", "x", "not numbers"), ("income", math.inf, "not finite"),
        ("stage", "IV", "does not declare"), ("smoker", "perhaps", "neither yes nor no"),
        ("seen", "01/02/2003", "not dates"), ("age", 1.5, "not whole"),
        ("age", True, "another type"), ("age", dt.date(2000, 1, 1), "another type"),
        ("age", b"1", "another type"), ("age", "1,000", "not numbers"),
        ("age", "1e999", "not finite"), ("smoker", 7, "neither yes nor no"),
        ("seen", 20000101, "another type"), ("seen", "2000-02-31", "not dates"),
        ("sex", [1], "another type"), ("sex", {"a": 1}, "another type"),
    ],
)  # fmt: skip
def test_a_fault_names_column_kind_and_fix_and_no_value(name, value, message):
    rows = {**{other: column[:1] for other, column in ROWS.items()}, name: [value]}
    with pytest.raises(InvalidInput, match=message) as caught:
        compute_features(rows)
    assert repr(name) in str(caught.value)
    assert str(value) not in str(caught.value)
    (misfit,) = [m for m in check_table(rows, TableSchema.from_dict(FULL_SCHEMA)) if m.stops]
    assert (misfit.column, misfit.rows) == (name, (1,))
    assert message in str(misfit)


def test_columns_of_several_types_are_refused_without_their_values():
    rows = {**{name: result[:2] for name, result in ROWS.items()}, "age": [1, PRIVATE]}
    with pytest.raises(InvalidInput, match="'age' must hold one type") as caught:
        compute_features(rows)
    assert PRIVATE not in str(caught.value)
    assert caught.value.__cause__ is None


def test_lacking_columns_are_named_and_others_left_out_with_a_word():
    with pytest.raises(InvalidInput, match="lacks columns 'age', 'seen'"):
        compute_features({name: v for name, v in ROWS.items() if name not in ("age", "seen")})
    with pytest.warns(UserWarning, match="2 columns that the schema does not name") as caught:
        compute_features({**ROWS, PRIVATE: [1] * 4, "b": [2] * 4})
    assert (PRIVATE in str(caught[0].message), caught[0].filename) == (False, __file__)
    twice = pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["age", "age"])
    with pytest.raises(InvalidInput, match="two columns named 'age'"):
        TableFeatures(make_schema(age={"kind": "whole", "low": 0, "high": 9})).transform(twice)
    for wrong in (np.ones((2, 2)), [[1]], 7):
        with pytest.raises(InvalidInput, match="named columns"):
            compute_features(wrong)


def test_declared_words_are_values_even_if_they_say_missing_elsewhere():
    declared = make_schema(a={"kind": "category", "values": ["None", "some"], "other": False})
    result = compute_features({"a": ["None", "some", "NA"]}, declared)
    assert (result > 0).tolist() == [
        [True, False, False],
        [False, True, False],
        [False, False, True],
    ]


def test_numbers_as_categories_are_compared_as_numbers_and_names_in_nfc():
    declared = make_schema(größe={"kind": "category", "values": [1, 2.5], "other": False})
    decomposed = "gro\u0308ße"
    for equal_input in ([1, 2.5], ["1.0", "2.5"], ["1", "2.50"]):
        result = compute_features({decomposed: equal_input}, declared)
        assert (result > 0).tolist() == [[True, False, False], [False, True, False]]


WRONG = {
    "format": ({"columns": {}}, "format"),
    "version": ({**FULL_SCHEMA, "version": 2}, "version"),
    "no version": (
        {name: FULL_SCHEMA[name] for name in ("format", "columns")},
        '"version": 1 and "columns"',
    ),
    "more": ({**FULL_SCHEMA, "extra": 1}, "nothing else"),
    "kind": (make_schema(a={"kind": "magic"}), '"kind"'),
    "unknown": (make_schema(a={"kind": "yes_no", "low": 1}), '"low"'),
    "bounds": (make_schema(a={"kind": "number", "low": 2, "high": 1}), '"low"'),
    "half": (make_schema(a={"kind": "number", "low": 2}), '"high"'),
    "center": (make_schema(a={"kind": "number", "center": 2}), '"spread"'),
    "spread": (make_schema(a={"kind": "number", "center": 2, "spread": 0}), '"spread"'),
    "nan": (make_schema(a={"kind": "number", "low": math.nan, "high": 1}), '"low"'),
    "log": (make_schema(a={"kind": "number", "low": -1, "high": 1, "log": True}), '"log"'),
    "date": (make_schema(a={"kind": "date", "low": "x", "high": "2000-01-01"}), "date"),
    "values": (make_schema(a={"kind": "category"}), '"values"'),
    "twins": (make_schema(a={"kind": "category", "values": ["x", " x"]}), "differ"),
    "empty": (make_schema(a={"kind": "category", "values": [" "]}), "not empty"),
    "one level": (make_schema(a={"kind": "levels", "values": ["x"]}), "two"),
    "shares": (make_schema(a={"kind": "category", "values": ["x"], "shares": [1]}), '2 "shares"'),
    "weight": (make_schema(a={"kind": "yes_no", "weight": 0}), '"weight"'),
    "alike": (
        make_schema(**{name: {"kind": "yes_no"} for name in ("gr\u00f6", "gro\u0308")}),
        "alike",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_schema_is_refused_in_words(name):
    declared, message = WRONG[name]
    with pytest.raises(InvalidInput, match=message):
        TableSchema.from_dict(declared)


def test_texts_are_refused_with_a_pointer_and_so_is_a_schema_without_columns():
    with pytest.raises(InvalidInput, match="--features text"):
        compute_features(declared=make_schema(a={"kind": "text"}))
    with pytest.raises(InvalidInput, match="at least one"):
        compute_features(declared=make_schema(a={"kind": "ignored"}))


def test_a_schema_comes_back_from_json_as_it_was(tmp_path):
    path = tmp_path / "schema.json"
    path.write_text(json.dumps(FULL_SCHEMA))
    loaded = TableSchema.load(path)
    assert loaded == TableSchema.from_dict(FULL_SCHEMA)
    assert TableSchema.from_dict(json.loads(json.dumps(loaded.to_dict()))) == loaded
    np.testing.assert_array_equal(compute_features(declared=str(path)), compute_features())
    path.write_text('{"a": 1, "a": 2}')
    with pytest.raises(InvalidInput, match="twice"):
        TableSchema.load(path)
    with pytest.raises(InvalidInput, match="cannot be read"):
        TableSchema.load(tmp_path / "none.json")


def test_drafts_find_the_kinds():
    rng = np.random.default_rng(1)
    n = 400
    public = pa.table({
        "row": np.arange(n), "id": [f"p:{i}" for i in range(n)],
        "note": [f"the patient number {i} came again" for i in range(n)],
        "age": rng.integers(18, 90, n), "dose": rng.choice([0.1, 0.5, 1.0], n),
        "platelets": rng.lognormal(12, 1, n), "sex": rng.choice(["f", "m"], n),
        "speed": rng.choice(["55+", "<10", "10-24", "25-54"], n), "smoker": rng.choice([0, 1], n),
        "seen": pa.array([dt.date(2020, 1, 1) + dt.timedelta(int(i)) for i in range(n)]),
        "nothing": pa.nulls(n), "same": np.ones(n), "y": rng.choice(["a", "b"], n),
        "zip": [f"0{i % 7}" for i in range(n)], "parts": [[1]] * n,
        "patient": rng.choice(4000, n, replace=False), "rent": rng.choice(10**6, n, replace=False),
    })  # fmt: skip
    result, notes = draft_schema(public, ["y"])
    kinds = {name: column["kind"] for name, column in result.to_dict()["columns"].items()}
    assert kinds == {
        "age": "whole", "dose": "number", "platelets": "number", "sex": "category",
        "speed": "levels", "smoker": "yes_no", "seen": "date", "zip": "category", "note": "text",
        "row": "ignored", "id": "ignored", "nothing": "ignored", "same": "ignored",
        "y": "ignored", "parts": "ignored", "patient": "ignored", "rent": "whole",
    }  # fmt: skip
    columns = result.to_dict()["columns"]
    assert columns["platelets"]["log"]
    assert columns["speed"]["values"] == ["<10", "10-24", "25-54", "55+"]
    assert any("--features text" in note for note in notes)
    with pytest.raises(InvalidInput, match="--features text"):
        result.require_features()
    usable, _ = draft_schema(public.drop_columns(["note"]))
    rows = TableFeatures(usable).transform(public.drop_columns(["note"]))
    assert np.isfinite(rows).all()
    assert check_table(public, usable)[-1].column == "note"


def test_a_check_counts_for_the_owner_and_says_what_stops():
    rows = {**ROWS, "age": [200, 50, 300, 400]}
    result = check_table(rows, TableSchema.from_dict(FULL_SCHEMA))
    misfit_of = {m.column: m for m in result}
    assert not any(m.stops for m in result)
    assert misfit_of["age"].rows == (1, 3, 4)
    assert "units may differ" in misfit_of["age"].fix
    assert PRIVATE not in " ".join(map(str, result))
    lacking = check_table({PRIVATE: [1]}, TableSchema.from_dict(FULL_SCHEMA))
    assert all(m.stops for m in lacking)
    assert PRIVATE not in " ".join(map(str, lacking)), "no header: a name may be a record"


def test_fit_goes_the_whole_way_of_a_table():
    """A schema in fit: features, a map of public rows, queries and later records as tables."""
    rng = np.random.default_rng(2)

    def sample_patients(size):
        y = rng.integers(0, 2, size)
        rows = {"age": 30 + 40 * y, "sex": rng.choice(["f", "m"], size), "income": 10.0**6 * y}
        return pa.table(rows), y

    income = {"kind": "number", "low": 0, "high": 2e6}
    declared = make_schema(**SEX_SCHEMA["columns"], income=income)
    rows, y = sample_patients(300)
    public, _ = sample_patients(200)
    queries, truth = sample_patients(20)
    unfitted = IndKNNClassifier([0, 1], epsilon=50, n_queries=40, n_records=300, simulation_seed=0)
    model = clone(unfitted)
    for reference in (None, public):
        model.fit(rows, y, public=reference, schema=declared)
        answers = model.query(queries)
        assert (answers.labels == truth).mean() > 0.9
    model.add(*sample_patients(5))
    assert model.predict_proba(queries).shape == (20, 2)
    with pytest.raises(InvalidInput, match="lacks column 'age'"):
        model.predict({"sex": ["f"], "income": [1.0]})
    with pytest.raises(InvalidInput, match="part of the private records"):
        clone(model).fit(rows, y, public=rows, schema=declared)
    records, reference, questions = map(TableFeatures(declared).transform, (rows, public, queries))
    model.fit(records, y, public=reference)  # without a schema features are numbers again
    np.testing.assert_array_equal(model.query(questions).votes, answers.votes)


def test_columns_of_very_different_scales_warn():
    rng = np.random.default_rng(3)
    public = np.column_stack([rng.normal(0, 15, 200), rng.normal(0, 2, 200)])  # age, education
    X = public + rng.normal(size=public.shape)
    model = IndKNNClassifier([0, 1], n_queries=5, n_records=200, simulation_seed=0)
    with pytest.warns(UserWarning, match=r"Feature 1 of 2 has 9\d%.*PublicMap.*TableFeatures"):
        model.fit(X, np.arange(200) % 2, public=public)


def test_a_pipeline_takes_tables_and_learns_nothing_from_them():
    rng = np.random.default_rng(2)
    y = rng.integers(0, 2, 200)
    rows = pa.table({"age": 30 + 40 * y, "sex": rng.choice(["f", "m"], 200)})
    table = TableFeatures(SEX_SCHEMA)
    assert clone(table).get_params() == {"schema": SEX_SCHEMA}
    model = IndKNNClassifier([0, 1], epsilon=8, n_queries=20, n_records=200)
    reference = table.transform({"age": [30, 70] * 20, "sex": ["f", "m"] * 20})
    pipeline = make_pipeline(table, model)
    pipeline.fit(rows, y, indknnclassifier__public=reference)
    assert (pipeline.predict(rows.slice(0, 20)) == y[:20]).mean() > 0.8


PLAN = {"n_queries": 40, "n_records": 300, "simulation_seed": 0}
EXTRACTOR = StoreExtractor("table", {"schema": SEX_SCHEMA})


def make_people(n_rows, seed):
    draws = np.random.default_rng(seed)
    return {"age": draws.integers(20, 90, n_rows), "sex": draws.choice(["f", "m"], n_rows).tolist()}


def predict_with(kind, tmp_path):
    """Return the method `predict` of an estimator, or of a store, on a table of people."""
    people = make_people(300, seed=0)
    labels = np.where(people["age"] > 60, "ill", "well")
    public = make_people(60, seed=1)
    plan = {"classes": ["ill", "well"], **PLAN}
    if kind == "estimator":
        model = IndKNNClassifier(**plan)
        return model.fit(people, labels, public=public, schema=SEX_SCHEMA).predict
    public = EXTRACTOR.transform(public)
    path = tmp_path / "s"
    return Store.init(path, people, labels, public=public, extractor=EXTRACTOR, **plan).predict


@pytest.mark.parametrize("kind", ["estimator", "store"])
def test_queries_with_other_spellings_warn_and_empty_ones_are_refused(kind, tmp_path):
    predict = predict_with(kind, tmp_path)
    predict({"age": [30, 70], "sex": ["f", "m"]})
    predict({"age": [50], "sex": [None]})
    with pytest.warns(UserWarning, match="The queries: column 'sex': 2 rows hold") as found:
        predict({"age": [31, 71], "sex": ["F", "M"]})
    assert len(found) == 1
    with pytest.warns(UserWarning, match="They count as .other.. There are so many"):
        predict({"age": [32, 72], "sex": ["female", "male"]})
    with pytest.raises(InvalidInput, match="A query must have a value in at least one column"):
        predict({"age": [33, None], "sex": ["f", None]})


def test_a_single_row_or_column_is_refused_with_advice():
    for library in (pytest.importorskip("pandas"), pytest.importorskip("polars")):
        with pytest.raises(InvalidInput, match="A single row is a table too"):
            compute_features(library.Series([50, 20]))


def test_labels_and_ids_among_the_features_are_refused(tmp_path):
    pandas = pytest.importorskip("pandas")
    people = pandas.DataFrame(make_people(300, seed=0))
    plan = {"classes": ["f", "m"], **PLAN}
    with pytest.raises(InvalidInput, match="must not be a feature: column 'sex'"):
        IndKNNClassifier(**plan).fit(people, people.sex, schema=SEX_SCHEMA)
    with pytest.raises(InvalidInput, match="'subjects' parameter must not be a feature"):
        IndKNNClassifier(**plan).fit(people, people.sex.array, people.age, schema=SEX_SCHEMA)
    with pytest.raises(InvalidInput, match="must not be a feature: column 'age'"):
        IndKNNRegressor((0, 100)).fit(people[["age"]], people[["age"]])
    store = tmp_path / "s"
    public = EXTRACTOR.transform(make_people(60, seed=1))
    with pytest.raises(InvalidInput, match="must not be a feature: column 'sex'"):
        Store.init(store, people, people.sex, public=public, extractor=EXTRACTOR, **plan)
    assert not store.exists()
    with pytest.raises(InvalidInput, match="'y' parameter must not be a feature"):
        NoisySGDClassifier([0, 1]).fit(people.assign(ill=1), pandas.Series([1] * 300, name="ill"))
