"""Every input takes the same kinds of tables and columns, and refuses the same ones with advice."""

import datetime as dt
import uuid
import warnings
from decimal import Decimal

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from scipy import sparse

from vicinal import (
    IndKNNClassifier,
    IndKNNMultiLabelClassifier,
    IndKNNRegressor,
    NoisySGDClassifier,
    PATEClassifier,
    PrivateKNNClassifier,
    PublicMap,
    Store,
    checks,
)
from vicinal.errors import InvalidInput
from vicinal.targets.classes import encode_labels

N = 60
WHOLE = np.random.default_rng(0).integers(0, 2, size=(N, 3)).astype(float)
WHOLE[:2] = [[0, 1, 0], [1, 0, 1]]
PUBLIC = np.random.default_rng(1).integers(0, 2, size=(40, 3)).astype(float)
PUBLIC[:2] = [[0, 1, 1], [1, 0, 0]]
CLASSES = np.array(["no", "yes"])[WHOLE[:, 0].astype(int)]
PLAN = {"n_queries": 20, "n_records": N, "epsilon": 20.0, "simulation_seed": 0}


def frame(values):
    return pd.DataFrame(values, columns=["a", "b", "c"][: np.shape(values)[1]])


def mixed(values):
    """Return a table whose columns are of three types."""
    types = {"a": bool, "b": "Float64", "c": object}
    return frame(values).astype({name: types[name] for name in frame(values)})


KINDS = {
    "nested lists": lambda values: values.tolist(),
    "integers": lambda values: values.astype(np.int8),
    "booleans": lambda values: values.astype(bool),
    "an array of objects": lambda values: values.astype(object),
    "pandas": frame,
    "pandas, booleans": lambda values: frame(values).astype(bool),
    "pandas, nullable": lambda values: frame(values).astype("Float64"),
    "pandas, nullable booleans": lambda values: frame(values).astype("boolean"),
    "pandas, Arrow": lambda values: frame(values).astype("double[pyarrow]"),
    "pandas, objects": lambda values: frame(values).astype(object),
    "pandas, decimals": lambda values: frame(values).map(lambda value: Decimal(int(value))),
    "pandas, categories": lambda values: frame(values).astype("category"),
    "pandas, sparse columns": lambda values: frame(values).astype(pd.SparseDtype(float)),
    "pandas, of several types": mixed,
    "polars": lambda values: pl.DataFrame(frame(values)),
    "polars, booleans": lambda values: pl.DataFrame(frame(values).astype(bool)),
    "Arrow": lambda values: pa.table(frame(values)),
    "Arrow, of several types": lambda values: pa.table(frame(values).astype({"a": bool})),
    "Arrow, decimals": lambda values: pa.table(frame(values).astype(int)).cast(
        pa.schema([(name, pa.decimal128(19)) for name in frame(values)])
    ),
    "an Arrow batch": lambda values: pa.RecordBatch.from_pandas(frame(values)),
    "columns by name": lambda values: frame(values).to_dict("list"),
    "a list of mappings": lambda values: frame(values).to_dict("records"),
    "a structured array": lambda values: np.array(
        list(map(tuple, values)), dtype=[(name, float) for name in "abc"[: values.shape[1]]]
    ),
}  # fmt: skip


KINDS_OF_COMMON_READER = (
    "pandas, of several types",
    "polars",
    "Arrow, decimals",
    "a list of mappings",
    "a structured array",
)


def made(kind):
    """Return an unfitted estimator and the labels of its records."""
    names = ["no", "yes"]
    noise = {"sigma_votes": 1.0, "simulation_seed": 0}
    match kind:
        case "IndKNN":
            return IndKNNClassifier(names, **PLAN), CLASSES
        case "regressor":
            return IndKNNRegressor((0, 1), **PLAN), WHOLE[:, 0]
        case "multi-label":
            return IndKNNMultiLabelClassifier(["a", "b"], **PLAN), WHOLE[:, :2].astype(int)
        case "NoisySGD":
            return NoisySGDClassifier(names, 20.0, n_records=N, simulation_seed=0), CLASSES
        case "PrivateKNN":
            return PrivateKNNClassifier(names, 9, **noise), CLASSES
    return PATEClassifier(names, 3, **noise), CLASSES


def answers(kind, X=WHOLE, y=None, public=PUBLIC, queries=PUBLIC[:5], subjects=None):
    """Return what an estimator answers, fitted with these inputs."""
    estimator, targets = made(kind)
    given = {} if kind == "PATE" else {"public": public}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        estimator.fit(X, targets if y is None else y, subjects, **given)
        return estimator.predict(queries)


def mapped(X=PUBLIC, queries=WHOLE):
    return PublicMap(2).fit(X).transform(queries)


def stored(folder, X=WHOLE, public=PUBLIC, queries=PUBLIC[:5], **_):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        plan = {"classes": ["no", "yes"], "public": public, **PLAN}
        with Store.init(folder, X, CLASSES, np.arange(N), **plan) as store:
            first = store.predict(queries).labels
            store.add(queries, CLASSES[: len(first)], np.arange(len(first)))
            store.evaluate(queries, CLASSES[: len(first)], np.arange(len(first)), accept_noise=True)
            return first


ARGUMENTS = [
    *[(kind, "X", WHOLE) for kind in ("IndKNN", "NoisySGD", "PrivateKNN", "PATE")],
    *[(kind, "public", PUBLIC) for kind in ("IndKNN", "NoisySGD", "PrivateKNN")],
    *[(kind, "queries", PUBLIC[:5]) for kind in ("IndKNN", "NoisySGD", "PrivateKNN", "PATE")],
    ("regressor", "y", WHOLE[:, :1]), ("multi-label", "y", WHOLE[:, :2]),
    ("map", "X", PUBLIC), ("map", "queries", WHOLE),
    ("store", "X", WHOLE), ("store", "public", PUBLIC), ("store", "queries", PUBLIC[:5]),
]  # fmt: skip
NAMED = {"queries": "X"}
"""What messages call an argument."""


@pytest.fixture
def result(tmp_path):
    """Return a function: what comes of one input that is given in another form."""
    n_calls = iter(range(100))

    def call(what, argument, value):
        changed = {argument: value}
        if what == "map":
            return mapped(**changed)
        if what == "store":
            return stored(tmp_path / str(next(n_calls)), **changed)
        return answers(what, **changed)

    return call


@pytest.mark.parametrize(("what", "argument", "values"), ARGUMENTS)
def test_every_kind_of_table_is_read_alike(what, argument, values, result):
    """All kinds for a map; for other arguments, those that only the common reader can read."""
    expected = result(what, argument, values)
    for kind in KINDS if what == "map" else KINDS_OF_COMMON_READER:
        answers = result(what, argument, KINDS[kind](values))
        np.testing.assert_array_equal(answers, expected, err_msg=kind)


def changed(cell):
    """Return what puts another first column into a table, all cells of which are the same."""
    return lambda values: frame(values).assign(a=[cell] * len(values))


REFUSED = {
    "text": (changed("secret"), "text in column 'a'.*'schema'.*TableFeatures"),
    "digits": (changed("4711"), r"text in column 'a'.*astype\(float\)"),
    "dates": (changed(pd.Timestamp("2026-01-31")), "dates or times in column 'a'.*'schema'"),
    "zoned dates": (
        changed(pd.Timestamp("2026-01-31", tz="UTC")), "dates or times in column 'a'",
    ),
    "days": (changed(dt.date(2026, 1, 31)), "Got date in column 'a'.*'schema'"),
    "categories": (
        lambda values: frame(values).assign(a=pd.Categorical(["secret"] * len(values))),
        "text in column 'a'",
    ),
    "an Arrow text": (
        lambda values: pa.table({"a": pa.array(["secret"] * len(values), pa.string_view())}),
        "text in column 'a'|must have the columns|match those",
    ),
    "complex numbers": (lambda values: values + 1j, "Complex data not supported"),
    "sparse": (sparse.csr_matrix, r"sparse.*toarray\(\).*sparse_output=False"),
    "a sparse array": (sparse.coo_array, r"sparse.*toarray\(\)"),
    "masked": (lambda values: np.ma.masked_array(values, values > 0), "masked"),
    "ragged": (lambda values: [[*values[0], 1.0], *values[1:].tolist()], "one length"),
}  # fmt: skip
MISSING = {
    "NaN": changed(np.nan),
    "infinity": changed(np.inf),
    "a nullable gap": lambda values: frame(values).astype("Float64").mask(frame(values) > 0),
    "an Arrow gap": lambda values: pa.table(frame(values).replace({1.0: None})),
    "a polars gap": lambda values: pl.DataFrame(frame(values)).with_columns(a=pl.lit(None)),
    "None": lambda values: frame(values).astype(object).assign(a=None),
}


def assert_refused(message, function, *arguments):
    """Assert that a call is refused with a message that matches and holds no private value."""
    with pytest.raises(InvalidInput, match=message) as refused:
        function(*arguments)
    assert "secret" not in str(refused.value)
    assert "4711" not in str(refused.value)


def combine(cases, cases_of_common_reader):
    """Return a decorator with all `cases` of a map and of targets, and few of other arguments.

    All arguments have one reader of numbers; the few cases show an argument that avoids it.
    """
    combinations = [
        (what, argument, values, case)
        for what, argument, values in ARGUMENTS
        for case in (cases if what == "map" or argument == "y" else cases_of_common_reader)
    ]
    return pytest.mark.parametrize(("what", "argument", "values", "case"), combinations)


@combine(REFUSED, ["text", "dates", "sparse", "masked"])
def test_a_table_that_holds_no_numbers_is_refused_with_advice(what, argument, values, case, result):
    make, words = REFUSED[case]
    name = NAMED.get(argument, argument)
    assert_refused(f"(?s)'{name}' parameter.*({words})", result, what, argument, make(values))


@combine(MISSING, ["NaN", "a nullable gap"])
def test_missing_numbers_are_named_with_their_column(what, argument, values, case, result):
    name = NAMED.get(argument, argument)
    column = "" if argument == "y" else ".*'a'"
    with pytest.raises(InvalidInput, match=f"'{name}' parameter .* finite .*NaN{column}"):
        result(what, argument, MISSING[case](values))


# ---------------------------------------------------------------- ids and labels

IDS = ["a", "b", "7"]
COLUMNS = {
    "list": list,
    "tuple": tuple,
    "generator": iter,
    "array": np.array,
    "array of objects": lambda values: np.array(values, dtype=object),
    "pandas": pd.Series,
    "pandas, objects": lambda values: pd.Series(values, dtype=object),
    "pandas, Arrow": lambda values: pd.Series(values, dtype="string[pyarrow]"),
    "pandas, categories": lambda values: pd.Series(values, dtype="category"),
    "an index": pd.Index,
    "polars": pl.Series,
    "polars, categories": lambda values: pl.Series(values, dtype=pl.Categorical),
    "Arrow": pa.array,
    "Arrow, views": lambda values: pa.array(values, pa.string_view()),
    "Arrow, in parts": lambda values: pa.chunked_array([values]),
    "Arrow, dictionary": lambda values: pa.array(values).dictionary_encode(),
}
ONE_COLUMN = {
    "a matrix": lambda values: np.array(values)[:, None],
    "a pandas table": lambda values: pd.DataFrame({"who": values}),
    "a polars table": lambda values: pl.DataFrame({"who": values}),
    "an Arrow table": lambda values: pa.table({"who": values}),
}


@pytest.mark.parametrize("kind", COLUMNS)
def test_every_kind_of_column_is_read_alike(kind):
    make = COLUMNS[kind]
    assert checks.check_subject_ids("subjects", make(IDS)) == ["a", "b", 7]
    assert encode_labels(make(IDS), 3, np.array(IDS)).tolist() == [0, 1, 2]
    expected = answers("IndKNN", subjects=[str(i) for i in range(N)])
    given = {"y": make(CLASSES.tolist()), "subjects": make([str(i) for i in range(N)])}
    np.testing.assert_array_equal(answers("IndKNN", **given), expected)


@pytest.mark.parametrize("kind", ONE_COLUMN)
def test_a_table_of_one_column_is_taken_with_a_warning(kind):
    with pytest.warns(UserWarning, match="column-vector subjects") as warned:
        assert checks.check_subject_ids("subjects", ONE_COLUMN[kind](IDS)) == ["a", "b", 7]
    assert warned[0].filename == __file__
    with pytest.warns(UserWarning, match="column-vector y"):
        assert encode_labels(ONE_COLUMN[kind](IDS), 3, np.array(IDS)).tolist() == [0, 1, 2]


NO_IDS = {
    "Decimal": ([Decimal("4711")], r"a Decimal; .*int\(id\)"),
    "UUID": ([uuid.UUID(int=4711)], r"a UUID; .*str\(id\)"),
    "bytes": ([b"secret"], "a bytes; decode"),
    "an array of bytes": (np.array([b"secret"]), "a bytes; decode"),
    "dates": (np.array(["2026-01-31"], "M8[ns]"), r"a datetime64; .*str\(id\)"),
    "pandas dates": (pd.Series(pd.to_datetime(["2026-01-31"])), r"a Timestamp; .*str\(id\)"),
    "lists": ([["secret"]], "a list; choose the one column"),
    "a gap": (pd.Series([4711, None], dtype="Int64"), "a missing id"),
    "a polars gap": (pl.Series(["secret", None]), "a missing id"),
    "a mapping": ({"secret": 1}, "put it into a list"),
    "a table": (pd.DataFrame({"who": ["secret"], "when": ["secret"]}), "2 columns. Choose one"),
    "an Arrow table": (pa.table({"who": ["secret"], "when": ["secret"]}), "2 columns. Choose one"),
    "sparse": (sparse.csr_matrix([[1]]), "toarray"),
}
NO_LABELS = {
    "NaN": ([0, np.nan], "missing label .*Drop"),
    "None": (["no", None], "missing label .*Drop"),
    "a nullable gap": (pd.Series([0, None], dtype="Int64"), "missing label .*Drop"),
    "an Arrow gap": (pa.array(["secret", None]), "missing label .*Drop"),
    "a text gap": (pd.Series(["secret", None]), "missing label .*Drop"),
    "fractions": ([0.5, 1.0], "continuous.*IndKNNRegressor"),
    "bytes": ([b"secret", b"no"], "bytes.*Convert"),
    "Decimal": ([Decimal(4711), Decimal(1)], "Decimal.*Convert"),
    "dates": (pd.Series(pd.to_datetime(["2026-01-31"] * 2)), "Timestamp.*Convert"),
    "two columns": (np.zeros((2, 2)), "flat"),
    "a table": (pd.DataFrame({"a": [0, 1], "b": [0, 1]}), "2 columns. Choose one"),
}


@pytest.mark.parametrize("case", NO_IDS)
def test_ids_of_other_types_are_refused_with_advice(case):
    wrong, words = NO_IDS[case]
    message = f"'subjects' parameter .*{words}"
    assert_refused(message, checks.check_subject_ids, "subjects", wrong)


@pytest.mark.parametrize("case", NO_LABELS)
@pytest.mark.parametrize("classes", [["no", "yes"], [0, 1]])
def test_labels_of_other_types_are_refused_with_advice(case, classes):
    wrong, words = NO_LABELS[case]
    assert_refused(f"'y' parameter .*{words}", encode_labels, wrong, 2, np.array(classes))


@pytest.mark.filterwarnings("ignore:The public reference")
def test_a_noise_that_is_too_small_names_the_parameter_that_was_set():
    for made_by in (IndKNNClassifier(["no", "yes"]), IndKNNRegressor((0, 1))):
        y = CLASSES if isinstance(made_by, IndKNNClassifier) else WHOLE[:, 0]
        made_by.set_params(epsilon=1e6, n_records=N, n_queries=20, simulation_seed=0)
        with pytest.raises(InvalidInput, match="'epsilon'") as refused:
            made_by.fit(WHOLE, y, public=PUBLIC)
        assert "noise_multiplier" not in str(refused.value)


def test_students_refuse_tables_and_read_answers_of_every_kind():
    students = pytest.importorskip("vicinal.students")
    recipe = students.Recipe(network="mlp", method="plain", steps=1)
    pool, rows = np.eye(4, 3, dtype=np.float32), np.arange(2)
    for kind in ("list", "Arrow, views", "polars", "pandas"):
        answers = COLUMNS[kind](["no", "yes"])
        student = students.train_student(pool, rows, answers, ["no", "yes"], recipe)
    for table in (frame(pool), pl.DataFrame(frame(pool))):
        with pytest.raises(InvalidInput, match=r"to_numpy\(\)"):
            students.train_student(table, rows, ["no", "yes"], ["no", "yes"], recipe)
        for method in (student.predict, student.predict_proba, student.transform):
            with pytest.raises(InvalidInput, match=r"to_numpy\(\)"):
                method(table)


def test_names_that_are_values_of_a_record_are_not_quoted(tmp_path):
    """As of a file that is read without its header, and of a table that is transposed."""
    X = pd.DataFrame(np.arange(60.0).reshape(20, 3) % 7, columns=["age", "weight", "dose"])
    settings = {"n_records": 20, "n_queries": 5, "model_share": 0}
    with Store.init(
        tmp_path / "store", X, np.arange(20) % 2, classes=[0, 1], public=X + 0.5, **settings
    ) as store:
        headerless = pd.DataFrame([[1.0, 2.0, 3.0]], columns=["54", "7431.25", "2"])
        transposed = pd.DataFrame(np.ones((3, 9)), columns=[f"patient-{i}" for i in range(9)])
        for wrong in (headerless, transposed):
            with pytest.raises(InvalidInput, match="is the header missing") as refused:
                store.predict(wrong)
            assert not any(name in str(refused.value) for name in wrong.columns if len(name) > 1)
