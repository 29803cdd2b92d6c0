"""Every input of every estimator: columns go by name, and rows by position in one order.

A new argument or method fails :func:`test_every_argument_is_listed` until it is listed here, and
with that is put through all cases.
"""

import inspect

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from scipy import sparse
from sklearn import config_context
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.utils.estimator_checks import check_dataframe_column_names_consistency

import vicinal
from vicinal import (
    IndKNNClassifier,
    IndKNNMultiLabelClassifier,
    IndKNNRegressor,
    NoisySGDClassifier,
    PATEClassifier,
    PrivateKNNClassifier,
    PublicMap,
    Store,
)
from vicinal.errors import InvalidInput
from vicinal.labelling import IndKNNLabeller, LabellingTask
from vicinal.store import StoreExtractor

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")
"""Of few records, of noise, and of queries; those about names are asked for below."""

N, NAMES = 300, ["age", "dose", "rate"]
SCALES = np.array([1.0, 3.0, 0.2])


def draw(size, seed):
    """Return rows of different scales in round numbers, which every library holds exactly."""
    rows = np.random.default_rng(seed).normal(size=(size, len(NAMES))) * SCALES
    return np.round(rows * 64) / 64


X, PUBLIC, QUERIES, ADDED = (draw(size, seed) for seed, size in enumerate((N, 200, 6, 20)))
SUBJECTS = np.arange(N) + 1000
Y = {
    "classes": np.where(X[:, 0] > 0, "yes", "no"),
    "bounds": np.stack([X[:, 0], 10 * X[:, 1]], axis=1),
    "labels": (X[:, :2] > 0).astype(int),
}
TARGET_NAMES = {"bounds": ["weight", "height"], "labels": ["left", "up"]}
PLAN = {"n_queries": 20, "n_records": N, "epsilon": 50.0, "simulation_seed": 0, "model_share": 0}
BOUNDS = {"weight": (-4, 4), "height": (-90, 90)}
MADE = {
    "IndKNNClassifier": ("classes", lambda: IndKNNClassifier(["no", "yes"], **PLAN)),
    "IndKNNRegressor": ("bounds", lambda: IndKNNRegressor(BOUNDS, **PLAN)),
    "IndKNNMultiLabelClassifier": (
        "labels",
        lambda: IndKNNMultiLabelClassifier(["left", "up"], **PLAN),
    ),
    "NoisySGDClassifier": (
        "classes",
        lambda: NoisySGDClassifier(["no", "yes"], 50.0, n_records=N, simulation_seed=0),
    ),
    "PrivateKNNClassifier": (
        "classes",
        lambda: PrivateKNNClassifier(["no", "yes"], 20, sigma_votes=1.0, simulation_seed=0),
    ),
    "PrivateKNNClassifier, labels": (
        "labels",
        lambda: PrivateKNNClassifier(["left", "up"], 20, tau=2.0, simulation_seed=0),
    ),
    "PATEClassifier": (
        "classes",
        lambda: PATEClassifier(["no", "yes"], 10, sigma_votes=1.0, simulation_seed=0),
    ),
    "PublicMap": (None, lambda: PublicMap(2)),
}
TABLES, COLUMNS = {"X", "public"}, {"y", "subjects"}
OTHER = {
    "schema", "return_std", "abstain_below", "delta", "votes", "noise", "answers", "deep", "params",
    "path", "sample_weight",
}  # fmt: skip
"""Arguments that are no tables of the caller: options, and what a query returned."""


def frame(values, names=None, **options):
    return pd.DataFrame(values, columns=NAMES if names is None else names, **options)


def inputs(estimator):
    """Return the arguments of ``fit``, with names where they have columns."""
    kind, made = MADE[estimator]
    if kind is None:
        return {"X": frame(PUBLIC)}
    given = {"X": frame(X), "y": Y[kind], "subjects": SUBJECTS, "public": frame(PUBLIC)}
    if kind in TARGET_NAMES:
        given["y"] = frame(Y[kind], TARGET_NAMES[kind])
    known = inspect.signature(type(made()).fit).parameters
    return {name: value for name, value in given.items() if name in known}


def fitted(estimator, **changes):
    return MADE[estimator][1]().fit(**{**inputs(estimator), **changes})


def added(estimator, **changes):
    """Return an estimator to which records were added."""
    given = {"X": frame(ADDED), "y": inputs(estimator)["y"][:20], "subjects": np.arange(20)}
    return fitted(estimator).add(**{**given, **changes})


def outcome(model, queries=None):
    """Return what a fitted estimator makes of queries, which must not hang on what was changed."""
    names = ("transform", "decision_function", "predict")
    method = next(getattr(model, name) for name in names if hasattr(model, name))
    return np.asarray(method(frame(QUERIES) if queries is None else queries))


def calls():
    """Yield every argument with columns: its name, a table of it, and what calls it with another.

    The columns of `X` in ``fit`` are those that all others are matched with.
    """

    def change(make, estimator, argument):
        return lambda value: outcome(make(estimator, **{argument: value}))

    def predict(estimator):
        return lambda value: outcome(fitted(estimator), value)

    for name, (kind, made) in MADE.items():
        given = inputs(name)
        if "public" in given:
            yield f"{name} fit public", given["public"], change(fitted, name, "public")
        yield f"{name} predict X", frame(QUERIES), predict(name)
        if kind in TARGET_NAMES:
            yield f"{name} fit y", given["y"], change(fitted, name, "y")
        if hasattr(made(), "add"):
            yield f"{name} add X", frame(ADDED), change(added, name, "X")
            if kind in TARGET_NAMES:
                yield f"{name} add y", given["y"][:20], change(added, name, "y")


each_call = pytest.mark.parametrize(
    ("table", "call"), [pytest.param(*case, id=name) for name, *case in calls()]
)


def test_every_argument_is_listed():
    """An estimator, a method or an argument that is new must be put into the tables above."""
    estimators = {
        name for name in vicinal.__all__
        if inspect.isclass(kind := getattr(vicinal, name)) and hasattr(kind, "get_params")
    }  # fmt: skip
    without_columns = {  # of texts, images, and of tables with a schema
        "SentenceFeatures", "ImageFeatures", "HOGFeatures", "TableFeatures",
    }  # fmt: skip
    assert estimators - without_columns == {name.split(",")[0] for name in MADE}
    for _, made in MADE.values():
        kind = type(made())
        for name, method in inspect.getmembers(kind, inspect.isfunction):
            if name.startswith(("_", "set_", "get_")) or method.__module__.startswith("sklearn."):
                continue
            unknown = (
                set(inspect.signature(method).parameters) - TABLES - COLUMNS - OTHER - {"self"}
            )
            assert not unknown, (kind, name, unknown)


# ---------------------------------------------------------------- columns


@each_call
def test_columns_in_another_order_are_aligned_or_refused(table, call, request):
    expected = call(table)
    for other in (table[table.columns[::-1]], pa.table(table[table.columns[::-1]])):
        try:
            answered = call(other)
        except InvalidInput as error:
            assert request.node.callspec.id.endswith("X"), "all others are put in order"
            assert all(name in str(error) for name in NAMES)  # noqa: PT017
            continue
        np.testing.assert_array_equal(answered, expected)


@each_call
@pytest.mark.parametrize("change", ["renamed", "lacking", "further", "twice"])
def test_other_columns_are_refused_by_name(table, call, change):
    first, *others = table.columns
    changed, named = {
        "renamed": (table.rename(columns={first: "another"}), ["another", first]),
        "lacking": (table[others], [first]),
        "further": (table.assign(another=1.0), ["another"]),
        "twice": (table.rename(columns={others[0]: first}), [first]),
    }[change]
    with pytest.raises(InvalidInput) as refused:
        call(changed)
    assert all(name in str(refused.value) for name in named)


@each_call
def test_arrays_go_by_position(table, call):
    expected = call(table)
    np.testing.assert_array_equal(call(table.to_numpy()), expected)
    np.testing.assert_array_equal(call(table.to_numpy().tolist()), expected)
    numbered = pd.DataFrame(table.to_numpy())  # pandas' own numbers are no names
    np.testing.assert_array_equal(call(numbered), expected)


@pytest.mark.parametrize("estimator", MADE)
@pytest.mark.parametrize("labels", [[30, 10, 20], [0, 1, 2], [("a", 1), ("a", 2), ("b", 1)]])
def test_columns_with_other_labels_than_texts_are_matched_too(estimator, labels):
    """Also those that pandas numbered, once they are in another order."""
    tables = {name: value for name, value in inputs(estimator).items() if name in TABLES}
    model = fitted(estimator, **{k: v.set_axis(labels, axis=1) for k, v in tables.items()})
    assert not hasattr(model, "feature_names_in_")
    queries = pd.DataFrame(QUERIES, columns=labels)
    with pytest.raises(InvalidInput, match="same order"):
        outcome(model, queries[labels[::-1]])
    outcome(model, queries)


@pytest.mark.parametrize("estimator", MADE)
def test_numbered_columns_in_another_order_are_refused_after_an_array(estimator):
    model = fitted(estimator, X=inputs(estimator)["X"].to_numpy())
    with pytest.raises(InvalidInput, match="same order"):
        outcome(model, pd.DataFrame(QUERIES)[[2, 0, 1]])


@pytest.mark.parametrize("estimator", MADE)
def test_names_of_several_types_are_refused(estimator):
    with pytest.raises(InvalidInput, match=r"'X' parameter .*astype\(str\)"):
        fitted(estimator, X=pd.DataFrame(inputs(estimator)["X"].to_numpy(), columns=["a", 1, 2]))


@pytest.mark.parametrize("estimator", [name for name in MADE if MADE[name][0] != "bounds"])
def test_feature_names_are_those_of_scikit_learn(estimator):
    model = fitted(estimator)
    assert model.feature_names_in_.tolist() == NAMES
    assert model.feature_names_in_.dtype == object
    fit_again = model.fit(**{**inputs(estimator), "X": inputs(estimator)["X"].to_numpy()})
    assert not hasattr(fit_again, "feature_names_in_")


class Two(NoisySGDClassifier):
    """The check of scikit-learn fits classes 0 and 1."""

    def __init__(self):
        super().__init__([0, 1], 10.0, n_records=100, simulation_seed=0)


@pytest.mark.parametrize("estimator", [Two(), PublicMap(2)], ids=["classifier", "map"])
def test_scikit_learn_checks_the_names_of_columns(estimator):
    check_dataframe_column_names_consistency(type(estimator).__name__, estimator)


@pytest.mark.parametrize("estimator", [name for name in MADE if MADE[name][0] is not None])
def test_names_on_one_side_only_warn_as_in_scikit_learn(estimator):
    model = fitted(estimator)
    with pytest.warns(UserWarning, match="does not have valid feature names"):
        model.predict(QUERIES)
    model = fitted(estimator, X=X)
    with pytest.warns(UserWarning, match="fitted without feature names"):
        model.predict(frame(QUERIES))


def test_a_single_target_has_a_name_too():
    model = IndKNNRegressor({"weight": (-4, 4)}, **PLAN)
    y = pd.Series(X[:, 0], name="height")
    for wrong in (y, y.to_frame(), pl.Series("height", X[:, 0])):
        with pytest.raises(InvalidInput, match=r"'height'.*'weight'"):
            model.fit(X, wrong, public=PUBLIC)
    model.fit(X, y.rename("weight"), public=PUBLIC)
    model.fit(X, y.to_numpy(), public=PUBLIC)


def test_public_maps_keep_names_in_their_file(tmp_path):
    fitted("PublicMap").save(tmp_path / "map.npz")
    again = PublicMap.load(tmp_path / "map.npz")
    assert again.feature_names_in_.tolist() == NAMES
    with pytest.raises(InvalidInput, match="same order"):
        again.transform(frame(QUERIES)[NAMES[::-1]])
    PublicMap(2).fit(PUBLIC).save(tmp_path / "plain.npz")
    assert "column_names" not in np.load(tmp_path / "plain.npz")


# ---------------------------------------------------------------- rows


@pytest.mark.parametrize("method", ["fit", "add"])
@pytest.mark.parametrize("argument", sorted(COLUMNS))
@pytest.mark.parametrize("estimator", [name for name in MADE if MADE[name][0] is not None])
def test_columns_with_the_index_of_the_records_in_another_order_are_refused(
    estimator, argument, method
):
    index = pd.Index([f"row {i}" for i in range(N)])
    given = inputs(estimator) | {"X": frame(X, index=index)}
    values = given[argument]
    wrong = pd.DataFrame(values) if np.ndim(values) > 1 else pd.Series(values)
    model, size = fitted(estimator), N
    if method == "add":
        if not hasattr(model, "add"):
            pytest.skip("records cannot be added")
        del given["public"]
        size = 20
        given |= {name: value[:size] for name, value in given.items()}
    with pytest.raises(InvalidInput, match=rf"'{argument}' parameter .* another order.*X.index"):
        getattr(model, method)(**{**given, argument: wrong[:size].set_axis(index[:size][::-1])})
    outcome(model)  # as it was
    if method == "fit":  # the same order, and labels of other rows: by position
        for right in (index, pd.RangeIndex(N)):
            fitted(estimator, **{**given, argument: wrong.set_axis(right)})


@pytest.mark.parametrize("argument", sorted(COLUMNS))
@pytest.mark.parametrize("estimator", [name for name in MADE if MADE[name][0] == "classes"])
def test_a_set_is_refused_as_it_has_no_order(estimator, argument):
    with pytest.raises(InvalidInput, match=f"'{argument}' parameter .* a set"):
        fitted(estimator, **{argument: {"no", "yes"}})


# ---------------------------------------------------------------- stores


@pytest.fixture(params=["columns", "a fitted map", "a map of the caller"])
def store(request, tmp_path):
    extractor, public = None, frame(PUBLIC)
    if request.param == "a fitted map":
        extractor, public = StoreExtractor("columns").fit_public_map(frame(PUBLIC), n_components=3)
    elif request.param == "a map of the caller":
        public_map = PublicMap(3).fit(frame(PUBLIC))
        extractor = StoreExtractor(public_map=public_map)
        public = public_map.transform(frame(PUBLIC))
    first = frame(X)[NAMES[::-1]] if extractor else frame(X)
    given = {"classes": ["no", "yes"], "public": public, "extractor": extractor, **PLAN}
    with Store.init(tmp_path / "store", first, Y["classes"], SUBJECTS, **given) as made:
        yield made


REQUESTS = {
    "predict": lambda store, table: store.predict(table),
    "add": lambda store, table: store.add(table, Y["classes"][:6], np.arange(6)),
    "evaluate": lambda store, table: store.evaluate(
        table, Y["classes"][:6], SUBJECTS[:6], accept_noise=True
    ),
}


@pytest.mark.parametrize("request_name", REQUESTS)
def test_stores_match_columns_by_name(store, request_name):
    table, ask = frame(QUERIES), REQUESTS[request_name]
    asked = store.predict(table)
    for other in (table[NAMES[::-1]], pl.DataFrame(table[NAMES[::-1]]), QUERIES):
        again = store.predict(other)
        assert again.charged == 0  # the very same rows
        np.testing.assert_array_equal(again.labels, asked.labels)
    for wrong in (table.rename(columns={"age": "years"}), table.rename(columns={"age": "dose"})):
        with pytest.raises(InvalidInput, match=r"'X' parameter.*'(years|dose)'"):
            ask(store, wrong)
    ask(store, table[NAMES[::-1]])


def test_stores_keep_names_and_public_rows_are_put_in_order(tmp_path):
    given = {"classes": ["no", "yes"], **PLAN}
    with Store.init(tmp_path / "s", frame(X), Y["classes"], public=frame(PUBLIC), **given) as store:
        expected = store.predict(QUERIES).labels
    with Store.open(tmp_path / "s") as store, pytest.raises(InvalidInput, match="'years'"):
        store.predict(frame(QUERIES, ["years", "dose", "rate"]))
    reversed_public = frame(PUBLIC)[NAMES[::-1]]
    with Store.init(
        tmp_path / "t", frame(X), Y["classes"], public=reversed_public, **given
    ) as store:
        np.testing.assert_array_equal(store.predict(QUERIES).labels, expected)
    with pytest.raises(InvalidInput, match=r"'public' parameter .*'years'"):
        Store.init(
            tmp_path / "u", frame(X), Y["classes"], public=frame(PUBLIC, ["years", *NAMES[1:]]),
            **given,
        )  # fmt: skip
    assert not (tmp_path / "u").exists()


@pytest.mark.parametrize("kind", TARGET_NAMES)
def test_stores_match_targets_by_name(kind, tmp_path):
    y = frame(Y[kind], TARGET_NAMES[kind])
    declared = {kind: BOUNDS if kind == "bounds" else TARGET_NAMES[kind]}
    answers = []
    for name, given in {"a": y, "b": y[y.columns[::-1]], "c": y.to_numpy()}.items():
        with Store.init(
            tmp_path / name, X, given, SUBJECTS, public=PUBLIC, **declared, **PLAN
        ) as store:
            answers.append(store.predict(QUERIES).labels)
            wrong = y[:6].rename(columns={y.columns[0]: "another"})
            for call in (store.add, store.evaluate):
                with pytest.raises(InvalidInput, match=r"'y' parameter .*'another'"):
                    call(QUERIES, wrong, SUBJECTS[:6])
    for other in answers[1:]:
        np.testing.assert_array_equal(other, answers[0])


@pytest.mark.parametrize("argument", sorted(COLUMNS))
@pytest.mark.parametrize("method", ["init", "add", "evaluate"])
def test_stores_refuse_columns_in_another_order_of_rows(method, argument, tmp_path):
    index = pd.Index([f"row {i}" for i in range(N)])
    given = {"X": frame(X, index=index), "y": Y["classes"], "subjects": SUBJECTS}
    given[argument] = pd.Series(given[argument], index=index[::-1])
    refused = pytest.raises(InvalidInput, match=f"'{argument}' parameter .* another order")
    plan = {"classes": ["no", "yes"], "public": PUBLIC, **PLAN}
    if method == "init":
        with refused:
            Store.init(tmp_path / "s", **given, **plan)
        return
    with Store.init(tmp_path / "s", X, Y["classes"], SUBJECTS, **plan) as store, refused:
        getattr(store, method)(**given)


# ---------------------------------------------------------------- labelling, pipelines


def test_pools_of_a_labelling_are_matched_with_the_records():
    task = LabellingTask(frame(X), frame(PUBLIC)[NAMES[::-1]], PublicMap(2).fit(PUBLIC))
    np.testing.assert_array_equal(task.pool, PUBLIC)
    with pytest.raises(InvalidInput, match=r"'pool' parameter .*'years'"):
        LabellingTask(frame(X), frame(PUBLIC, ["years", *NAMES[1:]]), PublicMap(2))
    labels = pa.array(Y["classes"].tolist(), pa.string_view())
    of_lists = IndKNNLabeller(["no", "yes"], Y["classes"].tolist(), SUBJECTS.tolist())
    of_columns = IndKNNLabeller(["no", "yes"], labels, pd.Series(SUBJECTS))
    assert of_columns.digest() == of_lists.digest()


@config_context(enable_metadata_routing=True)
@pytest.mark.parametrize("estimator", ["IndKNNClassifier", "NoisySGDClassifier"])
def test_a_pipeline_transforms_public_rows(estimator):
    coded = frame(np.round(X)), frame(np.round(PUBLIC))
    scaler = FrozenEstimator(StandardScaler().fit(coded[1]))
    encoder = OneHotEncoder(sparse_output=False, handle_unknown="ignore").fit(coded[1])
    for step in (scaler, FrozenEstimator(encoder)):
        model = MADE[estimator][1]().set_fit_request(public=True, subjects=False)
        pipeline = make_pipeline(step, model, transform_input=["public"])
        asked = pipeline.fit(coded[0], Y["classes"], public=coded[1]).predict(coded[0][:6])
        assert len(asked) == 6
    with pytest.raises(InvalidInput, match=r"transform_input=\[\"public\"\]"):
        make_pipeline(step, model).fit(coded[0], Y["classes"], public=coded[1])
    with pytest.raises(InvalidInput, match="sparse_output=False"):
        make_pipeline(OneHotEncoder(), model).fit(coded[0], Y["classes"], public=coded[1])


def test_sparse_input_is_refused_everywhere_with_advice():
    for _, table, call in calls():
        with pytest.raises(InvalidInput, match=r"sparse.*toarray\(\).*sparse_output=False"):
            call(sparse.csr_matrix(table.to_numpy()))


def test_public_rows_with_names_beside_an_array_warn_of_the_position():
    """As inside a pipeline whose first step drops the names, and without transform_input."""
    table = frame(ADDED)
    classifier = IndKNNClassifier(range(2), n_queries=5, n_records=len(table), simulation_seed=0)
    y = np.arange(len(table)) % 2
    with pytest.warns(UserWarning, match=r"taken by position.*transform_input"):
        classifier.fit(table.to_numpy(), y, public=table + 0.25)
