"""Stores of numbers or of several labels instead of classes."""

import json

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import csv, parquet

from command_line import printed as run
from serving_tools import running
from store_tools import completed_change, copied
from vicinal import IndKNNMultiLabelClassifier, IndKNNRegressor
from vicinal.accounting.budget import UNITS
from vicinal.errors import InvalidInput, PrivacyRefused, StoreDamaged
from vicinal.ledger.answers import write_components
from vicinal.mechanisms.subject_table import UNIT, RecordVectors
from vicinal.planning.plan import IndKNNPlan
from vicinal.serving.models import AnswersResponse
from vicinal.store import Store
from vicinal.store.private_models import _SEED_STEP, _encode_arrays
from vicinal.targets.kinds import declared_target

N, D = 600, 3
rng = np.random.default_rng(7)
X, R = rng.normal(size=(N, D)), rng.normal(size=(200, D))
Q = R[:12] + 0.01
PEOPLE = [f"person-{i // 2:04}" for i in range(N)]
SIGNS = (X > 0).astype(int)
TABLE = np.stack([50 + 20 * np.sign(X[:, 0]), 1.0 * (X[:, 1] > 0)], axis=1)
BOUNDS = {"age": (0, 110), "readmitted": (0, 1)}
PLAN = {"epsilon": 6.0, "delta": 1e-4, "n_queries": 60, "n_records": N, "public": R}
KINDS = {
    "number": (TABLE[:, 0], {"bounds": (0, 110)}),
    "numbers": (TABLE, {"bounds": BOUNDS}),
    "typical": (TABLE[:, :1], {"bounds": {"age": (0, 110)}, "typical_range": {"age": (20, 70)}}),
    "log": (TABLE[:, :1], {"bounds": {"age": (1, 110)}, "scale": "log"}),
    "labels": (SIGNS, {"labels": ["left", "up", "near"]}),
    "tau": (SIGNS, {"labels": ["left", "up", "near"], "tau": 2.0}),
}
every_kind = pytest.mark.parametrize("kind", KINDS)


def make_store(path, kind, **plan):
    y, target = KINDS[kind]
    return Store.init(path, X, y, PEOPLE, **{**PLAN, **target, **plan})


@pytest.fixture(scope="module")
def number_store(tmp_path_factory):
    """The folder of a closed store of one number, with a private model."""
    path = tmp_path_factory.mktemp("number") / "store"
    make_store(path, "number").close()
    return path


def make_estimator(kind, **plan):
    """Return the estimator that a store must answer and charge like."""
    y, target = KINDS[kind]
    given = {name: value for name, value in {**PLAN, **target, **plan}.items() if name != "public"}
    estimator = IndKNNMultiLabelClassifier if "labels" in target else IndKNNRegressor
    return estimator(**given).fit(X, y, PEOPLE, public=R)


@every_kind
def test_a_store_answers_and_charges_as_the_estimator(tmp_path, kind):
    """Fails if a vector is rounded on its way to the disk, or an answer is read another way."""
    plan = {"simulation_seed": 3, "model_share": 0}  # a training of a store has noise of its own
    like = make_estimator(kind, **plan)
    with make_store(tmp_path / "store", kind, **plan) as store:
        reply = store.predict(Q)
        mine = store._audience_states["default"].audience.account.remaining
    expected = like.predict(Q).reshape(reply.labels.shape)
    # Vectors stored as float32 would differ by 1e-7.
    np.testing.assert_allclose(reply.labels, expected, rtol=1e-12)
    np.testing.assert_array_equal(mine, like._shard.ledger.remaining)
    assert (mine < UNITS).any()


@every_kind
def test_a_store_trains_as_the_estimator_and_keeps_its_model(tmp_path, kind):
    """Fails if it trains on other vectors, charges otherwise, or forgets the model."""
    with make_store(tmp_path / "store", kind, simulation_seed=5) as store:
        first = store._audience_states["default"].private_model.model.model.weights
        mine = store._audience_states["default"].audience.account.remaining
        like = make_estimator(kind, simulation_seed=5 + _SEED_STEP)
        np.testing.assert_array_equal(first, like._model.model.weights)
        np.testing.assert_array_equal(mine, like._shard.ledger.remaining)
        assert (mine < UNITS).all()
        reply = store.predict(Q, idempotency_key="a")
    with Store.open(tmp_path / "store") as store:
        state = store._audience_states["default"]
        np.testing.assert_array_equal(state.private_model.model.model.weights, first)
        assert state.private_model.model.score_std == like._model.score_std > 0
        repeated = store.predict(Q, idempotency_key="a")
        noise = np.full(len(Q), state.noise_scale)
        told = state.plan.target.compute_answers(reply.sums, noise)
        assert store.quota().used == len(Q)
    assert repeated.charged == 0
    np.testing.assert_array_equal(repeated.labels, reply.labels)
    np.testing.assert_array_equal(repeated.errors, told.errors)


@pytest.mark.parametrize(
    ("part", "value"),
    [
        *[("doubts", np.ones((D + 151, *more))) for more in ((), (0,), (66,))],
        *[("doubts", np.full((D + 151, 65), each)) for each in (0.5, 1e200, np.nan, "1", 1j)],
        *[("weights", each) for each in ("", "AAAAAAAA8D8=", "#", np.ones((1, 1)))],
        ("weights", np.ones((D + 151, 1), dtype="M8[s]")),
        *[("used", each) for each in ("AA==", np.ones(1), np.full(len(R), "1"))],
        ("shifts", np.ones(2, dtype=np.int16)),
        ("put", "-5"),
        ("trained", "x"),
    ],
)  # fmt: skip
def test_a_damaged_model_is_refused_at_opening(number_store, tmp_path, part, value):
    """Too few weights would have compiled products read what lies behind them in memory."""
    path = copied(number_store, tmp_path)
    with Store.open(path) as store:
        ledger = store._store.ledger
        with completed_change(ledger, "test"):
            content = {part: value} if isinstance(value, str) else _encode_arrays({part: value})
            write_components(ledger.database, ledger.audiences["default"].number, content)
        store._note_change()
    with pytest.raises(StoreDamaged, match="Restore a backup"):
        Store.open(path)


def test_a_model_of_numbers_takes_most_of_the_noise_away(tmp_path):
    truth = 50 + 20 * np.tanh(Q[:, 0])
    y = 50 + 20 * np.tanh(X[:, 0])
    plan = {**PLAN, "epsilon": 1.0, "bounds": (0, 110), "simulation_seed": 3}
    off = []
    for share in (0, "auto"):
        with Store.init(tmp_path / f"{share}", X, y, PEOPLE, model_share=share, **plan) as store:
            reply = store.predict(Q)
        off.append(np.abs(reply.labels[:, 0] - truth).mean())
        assert np.isfinite(reply.errors).all()
    assert off[1] < 0.5 * off[0]


@every_kind
def test_a_reopened_store_has_the_same_vectors_and_answers(tmp_path, kind):
    y, _ = KINDS[kind]
    with make_store(tmp_path / "store", kind) as store:
        first = store.predict(Q)
        old_targets = store._store.shard.subject_table.targets
        added = store.add(X[:4], y[:4], ["new", "new", *PEOPLE[:2]])
        assert "votes" not in json.loads(json.dumps(first.to_dict(), allow_nan=False))
        facts = json.loads(json.dumps(store.facts(), allow_nan=False))
        assert (facts["target"]["kind"], facts["classes"]) == (store.schema.target.kind, [])
        assert "the class names" not in facts["audiences"]["default"]["guarantee"]["text"]
    with Store.open(tmp_path / "store") as store:
        new_targets = store._store.shard.subject_table.targets
        np.testing.assert_array_equal(
            new_targets.to_dense_steps()[:N], old_targets.to_dense_steps()
        )
        np.testing.assert_array_equal(
            new_targets.to_dense_steps()[N:], old_targets.to_dense_steps()[:4]
        )
        assert store.version == added
        assert store.erase(["new", PEOPLE[10]]) == 4
        assert store.verify(["new", PEOPLE[10]])

    with Store.open(tmp_path / "store") as store:
        assert store.verify()
        repeated = store.predict(Q)
        assert repeated.charged == len(Q)
        assert first.labels.shape == repeated.labels.shape


def test_an_erased_vector_is_on_no_disk(tmp_path):
    rare = 77.25
    with Store.init(
        tmp_path / "store", np.vstack([X, X[:1]]), np.append(TABLE[:, 0], rare),
        [*PEOPLE, "goes"], bounds=(0, 110), **PLAN,
    ) as store:  # fmt: skip
        code = store.schema.target.encode([rare], 1).to_dense_steps().tobytes()
        file = tmp_path / "store" / "records" / "labels"
        assert code in file.read_bytes()
        store.erase(["goes"])
        assert code not in file.read_bytes()


@pytest.mark.parametrize(
    "plan",
    [
        {"classes": [0, 1]}, {"bounds": None}, {"bounds": (3, 1)}, {"neighbor_count": "private"},
        {"min_similarity": 0.5}, {"model_share": 0.2, "kernel": "rbf"},
        {"reuse_predictions": False}, {"release": "label"},
    ],
    ids=str,
)  # fmt: skip
def test_what_a_store_of_numbers_cannot_do_is_refused_before_anything_is_written(tmp_path, plan):
    with pytest.raises(InvalidInput):
        make_store(tmp_path / "store", "number", **plan)
    assert not (tmp_path / "store").exists()


def test_unusable_numbers_and_audiences_are_refused_before_anything_changes(number_store, tmp_path):
    with Store.open(copied(number_store, tmp_path)) as store:
        version = store.version
        for y in (["a"], [np.nan], [[1, 2]], None):
            with pytest.raises(InvalidInput):
                store.add(X[:1], y, ["x"])
        with pytest.raises(InvalidInput, match="belongs to the store"):
            store.open_audience("second", bounds=(0, 5))
        assert store.version == version
        store.open_audience("second", epsilon=1.0, n_queries=10)
        assert store.predict(Q[:2], audience="second").labels.shape == (2, 1)
        with pytest.raises(PrivacyRefused):
            store.predict(Q, audience="second")


def test_a_vector_that_is_too_long_is_found_by_verify():
    target = declared_target({"bounds": (0, 1)})
    vectors = RecordVectors.from_rows([[0.6, 0.8]])
    assert target.find_error(target.encode_rows(vectors)) is None
    assert target.find_error(np.array([[UNIT, UNIT // 10]], dtype=np.int32)) is not None


NAMES = ["a", "b", "c"]
TARGETS = {
    "numbers": (["--target", "age=0..110,readmitted=0..1"], TABLE),
    "labels": (["--labels", "left;up;near"], SIGNS),
}


def write_files(folder, kind):
    """Write records with targets, a reference and queries; return the arguments of init."""
    options, y = TARGETS[kind]
    names = list(BOUNDS) if kind == "numbers" else ["left", "up", "near"]
    features = dict(zip(NAMES, X.T, strict=True))
    targets = dict(zip(names, y.T, strict=True))
    parquet.write_table(pa.table({**targets, **features, "who": PEOPLE}), folder / "train.parquet")
    parquet.write_table(pa.table(dict(zip(NAMES, R.T, strict=True))), folder / "public.parquet")
    csv.write_csv(pa.table(dict(zip(NAMES, Q.T, strict=True))), folder / "queries.csv")
    return [
        "init", folder / "store", "--data", folder / "train.parquet", "--subject", "who",
        "--public", folder / "public.parquet", "--epsilon", 6, "--queries", 60, "--records", N,
        *options,
    ]  # fmt: skip


@pytest.mark.parametrize("kind", TARGETS)
def test_from_a_table_of_targets_to_answers_and_back_out(tmp_path, kind):
    told = run(*write_files(tmp_path, kind))
    names = list(BOUNDS) if kind == "numbers" else ["left", "up", "near"]
    assert all(name in told for name in names)
    store, queries = tmp_path / "store", tmp_path / "queries.csv"
    answers = json.loads(run("predict", store, "--data", queries, "--json"))
    assert answers["charged"] == len(Q)
    head, *rows = run("predict", store, "--data", queries, "-q").splitlines()
    assert [name for name in head.split(",") if name in names] == names
    assert len(rows) == len(Q)
    run("add", store, "--data", tmp_path / "train.parquet", "--subject", "who")
    run("erase", "--yes", store, "--subject", PEOPLE[0])
    run("verify", store, "--erased", PEOPLE[0])
    run("audience", store, "second", "--epsilon", 1, "--queries", 5)
    assert "(6, 1e-05)-differential privacy" in run("export-guarantee", store)
    assert json.loads(run("inspect", store, "--json"))["target"]["kind"] in ("bounds", "labels")
    rows = (store, "--data", tmp_path / "train.parquet", "--subject", "who")
    told = run("evaluate", *rows, "--accept-noise")
    assert "too large for so few subjects" in told, "nobody's features were asked"

    n_remaining = json.loads(run("predict", store, "--data", queries, "--json"))["left"]
    cluster = tmp_path / "cluster"
    run("shard", store, "--out", cluster, "--shards", 2, "--yes")
    answers = json.loads(run("predict", cluster, "--data", queries, "--json"))
    assert (answers["charged"], answers["left"]) == (0, n_remaining)
    run("evaluate", cluster, *rows[1:], "--accept-noise")


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ("", "--classes option"),
        ("--target age=0..110 --classes 1,2", "--target option"),
        ("--target age", "--target option must be written NAME=LOW..HIGH"),
        (
            "--target age=0..110 --typical-range 20..70",
            "--typical-range option must be written NAME=LOW..HIGH",
        ),
        ("--target age=5..1", "--target option"),
        ("--target age=0..old", "--target option"),
        ("--target age=0..110 --neighbors many", "--neighbors option"),
        ("--target age=0..110 --epsilon much", "--epsilon option"),
        ("--target height=0..3", "height"),
        ("--target age=0..110 --label readmitted", "--label option"),
    ],
)
def test_bad_options_are_refused_by_their_flags(tmp_path, options, named):
    """Fails if an option that is made of the tables is read or named in another way."""
    given = write_files(tmp_path, "numbers")
    start = given.index("--target")
    assert named in run(*given[:start], *options.split(), code=2)
    assert not (tmp_path / "store").exists()


@pytest.mark.parametrize("kind", ["typical", "labels"])
def test_a_service_answers_and_takes_targets(tmp_path, kind):
    y, _ = KINDS[kind]
    with running(tmp_path / "store", make=lambda path: make_store(path, kind)) as service:
        reply = service.predict(Q[:3].tolist(), name="once")
        assert reply.status == 200, reply.body
        AnswersResponse.model_validate(reply.body)
        repeated = service.predict(Q[:3].tolist(), name="once")
        assert repeated.body == {**reply.body, "charged": 0}
        status = service.call("GET", "/v1/status").body
        assert status["target"]["kind"] in ("bounds", "labels")
        record = {"vectors": X[:2].tolist(), "subjects": ["x", "y"]}
        targets = np.asarray(y[:2], dtype=float).tolist()
        for bad in ({}, {"labels": [1, 0]}, {"targets": targets, "labels": [1, 0]}):
            refused = service.call("POST", "/v1/records", {**record, **bad}, "curator")
            assert refused.status == 422, refused.body
        added = service.call("POST", "/v1/records", {**record, "targets": targets}, "curator")
        assert added.status == 200, added.body
        assert service.call("GET", "/v1/quota").body["mine"]["used"] == 3


@pytest.mark.parametrize(
    ("target", "option", "said"),
    [
        ({"classes": ["a", "b"]}, {"scale": "log"}, "is for numbers, and records carry classes"),
        ({"bounds": (0, 1)}, {"release": "label"}, "is for classes, and records carry numbers"),
        ({"labels": ["a", "b"]}, {"scale": "log"}, "is for numbers, and records carry several"),
        ({"bounds": (0, 1)}, {"colour": "red"}, "'colour' parameter is not one of a plan. Leave"),
        ({"bounds": (0, 1)}, {"n_query": 9}, "one of a plan. Did you mean 'n_queries'?"),
    ],
)
def test_an_option_of_another_kind_of_target_is_named_with_its_kind(target, option, said):
    with pytest.raises(InvalidInput, match=said):
        IndKNNPlan.of_target(declared_target(target), option)
    with pytest.raises(InvalidInput, match=said):
        Store.init("nowhere", X, np.zeros(N), PEOPLE, **{**PLAN, **target, **option})
