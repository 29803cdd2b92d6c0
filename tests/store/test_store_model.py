"""A private model in a store: durable with its charges, the same after opening, in a cluster."""

import dataclasses

import numpy as np
import pytest

import store_tools as tools
from command_line import printed
from made_up import Killed, components_for_few, dies_at, raising, trains_free
from store_tools import CLASSES, PEOPLE, Q, R, X, Y, points, units
from vicinal import IndKNNClassifier
from vicinal.accounting.budget import UNITS
from vicinal.errors import InvalidInput, PrivacyRefused, StorageFailed
from vicinal.ledger.answers import read_components
from vicinal.mechanisms.linear_model import GradientRelease
from vicinal.store import Store, audience_state, private_models
from vicinal.store.private_models import _SEED_STEP
from vicinal.store.receipts import SigningKey, check_receipt, create_erasure_receipt

SHARE = {"epsilon": 8.0, "n_queries": 60, "model_share": 0.5, "n_records": 300}
YQ = points(60, 2)[1]


def make(path, **parameters):
    given = {"classes": range(CLASSES), "public": R, **SHARE, **parameters}
    return Store.init(path, X, Y, PEOPLE, **given)


def model_of(store, audience="default"):
    return store._audience_states[audience].private_model.model


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A closed store whose model has answered 30 queries; copied by tests that change it."""
    path = tmp_path_factory.mktemp("model") / "store"
    with make(path) as store:
        store.predict(Q[:30])
    return path


@pytest.fixture
def opened(folder, tmp_path):
    with Store.open(tools.copied(folder, tmp_path)) as store:
        yield store


def test_it_answers_the_same_after_opening_and_asks_on_where_it_stopped(opened, tmp_path):
    state = opened._audience_states["default"]
    before = state.n_private_queries
    assert 0 < before < 15
    reply = opened.predict(Q[:30])
    assert reply.charged == 0
    assert np.isfinite(reply.votes).all()
    assert (reply.votes.argmax(axis=1) == YQ[:30]).mean() > 0.9
    assert (opened.predict(Q[30:50]).labels == YQ[30:50]).mean() > 0.9
    opened.predict((Q[:10] + Q[10:20]) / 2)  # between classes no model is sure
    assert before < state.n_private_queries <= 15
    assert opened.verify()
    np.testing.assert_allclose(reply.probabilities.sum(axis=1), 1)
    points = np.float32(Q)
    predicted = state.engine.model_gate.model.predict(points)
    opened.close()
    with Store.open(tmp_path / "store") as again:
        model = again._audience_states["default"].engine.model_gate.model
        np.testing.assert_array_equal(model.predict(points), predicted)
        np.testing.assert_array_equal(again.predict(Q[:30]).probabilities, reply.probabilities)


def test_training_is_charged_in_the_ledger(tmp_path):
    with make(tmp_path / "store") as store:
        audience = store._store.ledger.audiences["default"]
        left = audience.account.durable
        assert (left >= UNITS - UNITS // 2).all()
        assert (left < UNITS).all()
        assert audience.slack > 0, "the grid of the gradients takes part of delta"
        assert store.verify()
        assert "stays in the model" in str(store.guarantee())
        assert "in fit" not in str(store.guarantee())
        assert store.facts()["audiences"]["default"]["plan"]["model_share"] == 0.5


def learns_of_others(patch):
    """Have training use the labels of the next record instead of a record's own."""
    honest = private_models.train_and_charge_model

    def broken(settings, encoder, records, public, people, *rest):
        other = dataclasses.replace(people, targets=np.roll(people.labels, 1))
        return honest(settings, encoder, records, public, other, *rest)

    patch.setattr(private_models, "train_and_charge_model", broken)


def train_as_the_estimator(folder):
    """Train a store and an estimator with equal noise, and compare models and charges."""
    with make(folder / "store", simulation_seed=5) as store:
        twin = IndKNNClassifier(range(CLASSES), **SHARE, simulation_seed=5 + _SEED_STEP)
        twin.fit(X, Y, PEOPLE, public=R)
        assert (model_of(store).model.weights == twin._model.model.weights).all()
        for person in ("person-0", "person-77"):
            slot = twin._shard.ledger.list_slots([person])[0]
            assert units(store, person) == twin._shard.ledger.remaining[slot]


def test_store_and_estimator_train_alike(tmp_path):
    """The estimator's training is attacked elsewhere."""
    train_as_the_estimator(tmp_path)


@pytest.mark.parametrize("control", [trains_free, learns_of_others])
def test_a_store_that_trains_otherwise_is_caught(control, tmp_path, monkeypatch):
    control(monkeypatch)
    with pytest.raises((AssertionError, PrivacyRefused)):
        train_as_the_estimator(tmp_path)


def test_a_broken_training_leaves_nothing(tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        dies_at(patch, GradientRelease, "publish", 3, done=True)
        with pytest.raises(Killed):
            make(tmp_path / "store")
    assert not (tmp_path / "store").exists()
    make(tmp_path / "store").close()


@pytest.mark.parametrize("moment", ["in the training", "before the charges"])
def test_a_broken_training_of_another_audience_leaves_the_store_as_it_was(
    opened, monkeypatch, moment
):
    """The charges are written after the model, in one transaction: if they fail, it is gone."""
    path, before = opened._store.folder.path, units(opened, "person-0")
    with monkeypatch.context() as patch:
        if moment == "in the training":
            dies_at(patch, GradientRelease, "publish", 40, done=True)
        else:
            patch.setattr(type(opened._store.ledger), "write_charges", raising(Killed))
        with pytest.raises(Killed):
            opened.open_audience("other", **SHARE)
    opened.close()
    with Store.open(path) as again:
        assert again.audiences == ("default",)
        assert units(again, "person-0") == before
        assert not read_components(again._store.database, 2)
        assert again.verify()


def test_each_audience_has_a_model_and_budgets_of_its_own(opened):
    before = units(opened, "person-0")
    opened.open_audience("other", **SHARE)
    assert (model_of(opened).model.weights != model_of(opened, "other").model.weights).any()
    opened.predict(Q[:30], audience="other")
    assert units(opened, "person-0") == before


def test_the_records_in_the_metric_follow_the_store(opened):
    path = opened._store.folder.path
    opened.erase(["person-3", "person-149"])
    opened.add(X[:4] + 0.1, Y[:4], ["new", "new", "person-3", "person-7"])
    opened.predict(Q[30:45])
    shard = opened._audience_states["default"].engine.shard
    rows = shard.mapped.index.features.copy()
    assert len(rows) == len(opened._store.shard) == 300
    opened.close()
    with Store.open(path) as again:
        assert (again._audience_states["default"].engine.shard.mapped.index.features == rows).all()
        assert again.verify()


def test_a_broken_block_is_counted_as_it_was(opened, monkeypatch):
    state = opened._audience_states["default"]
    n_asked, usage = state.n_private_queries, state.proxies.used_shares.copy()
    with tools.broken_off(monkeypatch, type(opened._store.ledger), "commit", error=OSError):
        opened.predict(Q[30:])
    state.reset_counters()
    assert state.n_private_queries == n_asked
    assert np.abs(state.proxies.used_shares - usage).max() < 1e-4


def test_labels_alone_and_quotas_go_together_with_it(tmp_path):
    with make(tmp_path / "store", release="label") as store:
        reply = store.predict(Q[:40])
        assert reply.votes is None
        assert (reply.labels == YQ[:40]).mean() > 0.9
        assert store.quota().left == 20


DEFAULT_SHARE = {name: value for name, value in SHARE.items() if name != "model_share"}


def test_by_default_the_rule_decides(tmp_path):
    given = {"classes": range(CLASSES), **DEFAULT_SHARE}
    with Store.init(tmp_path / "one", X, Y, PEOPLE, public=R, **given) as store:
        assert store.plans[0]["model_share"] == "auto"
        assert store.facts()["audiences"]["default"]["plan"]["model_share"] > 0
        assert store.models_stay
    Store.init(tmp_path / "two", X, Y, PEOPLE, public=R[:9], **given).close()
    with Store.open(tmp_path / "two") as store:
        assert not store.models_stay
        reason = "no private model was trained, as it takes 10 public rows"
        assert reason in str(store.guarantee())
        assert not read_components(store._store.database, 1)
        assert store._audience_states["default"].n_private_queries is None


def test_an_erasure_says_that_weights_stay(opened, tmp_path):
    before = model_of(opened).model.weights.copy()
    path = opened._store.folder.path
    opened.close()
    erase = ("erase", path, "--subject", PEOPLE[0], "--yes")
    assert "keeps its weights" in printed(*erase)
    repeated = printed(*erase)
    assert "Nothing was erased" in repeated
    assert "keeps its weights" not in repeated
    with Store.open(path) as again:
        assert (model_of(again).model.weights == before).all()
        key = SigningKey.create(tmp_path / "key")
        receipt = create_erasure_receipt(
            again._store, [PEOPLE[0]], key, models_kept=again.models_stay
        )
        assert receipt["models"] == "kept"
        assert check_receipt(receipt, key.public_key)


def test_no_byte_of_the_erased_is_left_beside_a_model_with_trees(tmp_path):
    canary = "canary-90c3d1"
    with make(tmp_path / "store", model_refreshes=1) as store:
        assert model_of(store).model.features.trees.cuts.size
        features = points(3, 123)[0]
        store.add(features, [0, 1, 2], [canary] * 3)
        store.predict(Q[:5])
        store.refresh_model()  # the model has learnt of the canary, too
        stored = store._store.schema.create_kernel().encode(features)
        mapped = store._audience_states["default"].private_model.map_records(stored)
        rows = [row.tobytes() for row in stored]
        needles = [canary.encode(), *rows, *(row.tobytes() for row in mapped)]
        assert all(tools.files_with(tmp_path, each) for each in [canary.encode(), *rows])
        assert store.erase([canary]) == 3
        assert not any(tools.files_with(tmp_path, each) for each in needles)
        assert store.verify([canary], features)
    assert not any(tools.files_with(tmp_path, each) for each in needles)


def test_declared_shares_and_a_model_go_together_in_a_store(tmp_path):
    shares = [0.2, *[0.8 / (CLASSES - 1)] * (CLASSES - 1)]
    with make(tmp_path / "store", class_prior=shares, cost="balanced", simulation_seed=5) as store:
        assert store.facts()["audiences"]["default"]["plan"]["model_share"] == 0.5
        reply = store.predict(Q)
        best = (reply.probabilities / np.array(shares)).argmax(axis=1)
        np.testing.assert_array_equal(reply.labels, best)
        assert (reply.labels == YQ).mean() > 0.85
        found = store.evaluate(Q, YQ, [f"v{i}" for i in range(len(Q))], share=0.9)
        assert found.scores is not None
        assert store.verify()


# ---------------------------------------------------------------- trained again

REFRESHED = {**SHARE, "n_queries": 40, "model_refreshes": 2}


@pytest.fixture(scope="module")
def fresh(tmp_path_factory):
    """A closed store whose model may be trained twice more; copied by tests that change it."""
    path = tmp_path_factory.mktemp("refresh") / "store"
    with make(path, **REFRESHED) as store:
        store.predict(Q[:20])
    return path


@pytest.fixture
def refreshable(fresh, tmp_path):
    with Store.open(tools.copied(fresh, tmp_path)) as store:
        yield store


def test_every_training_is_charged_its_part(refreshable):
    audience = refreshable._store.ledger.audiences["default"]
    account, slack = audience.account, audience.slack
    before, part = account.durable.copy(), UNITS // 6
    assert refreshable.refresh_model() == 1
    assert audience.slack > slack
    after = account.durable
    assert (before - after > 0).all()
    assert (before - after <= part + 1).all()
    assert refreshable.refresh_model() == 0
    with pytest.raises(PrivacyRefused, match="no refresh"):
        refreshable.refresh_model()
    assert (account.durable >= 0).all()
    assert refreshable.verify()
    assert "trains it again" in str(refreshable.guarantee())


def test_one_training_of_several_takes_no_more_than_its_part(tmp_path, monkeypatch):
    """Where gradients are cut nothing stops a subject, so noise must not be for more."""
    monkeypatch.setattr("vicinal.linear.private_model.MAX_CLIP", 0.25)
    with make(tmp_path / "store", model_share=0.8, model_refreshes=1) as store:
        durable = store._store.ledger.audiences["default"].account.durable
        assert 0.2 * UNITS < (UNITS - durable).max() <= 0.4 * UNITS


def test_a_refreshed_model_is_of_the_people_of_now(refreshable):
    old = model_of(refreshable).model.weights.copy()
    refreshable.erase(list(dict.fromkeys(PEOPLE))[:100])
    flipped = (Y + 1) % CLASSES
    refreshable.add(X, flipped, [f"new-{n}" for n in range(len(X))])
    refreshable.refresh_model()
    new = model_of(refreshable)
    assert (new.model.weights != old).any()
    assert len(refreshable._store.shard._mapped) == 1  # the old model's rows are let go of
    queries = refreshable.schema.create_kernel().encode(Q).astype(np.float32)
    wrong = (new.predict(queries).argmax(axis=1) != YQ).mean()
    assert wrong > 0.3  # most labels were flipped


def test_usage_grows_and_opening_finds_the_new_model(refreshable):
    assert refreshable.predict(Q[:20]).charged == 0
    usage = refreshable._audience_states["default"].proxy_shares
    refreshable.refresh_model()
    state = refreshable._audience_states["default"]
    assert (state.proxy_shares >= usage).all()
    assert (state.proxy_shares > usage).any()
    assert refreshable.predict(Q[:5]).charged == 5  # data and model have changed
    weights, asked = model_of(refreshable).model.weights, state.n_private_queries
    path = refreshable._store.folder.path
    refreshable.close()
    with Store.open(path) as opened:
        assert (model_of(opened).model.weights == weights).all()
        assert opened._audience_states["default"].n_private_queries == asked
        assert opened.refresh_model() == 0


def test_a_kill_inside_a_refresh_leaves_no_half(refreshable, monkeypatch):
    path = refreshable._store.folder.path
    weights = model_of(refreshable).model.weights.copy()
    with monkeypatch.context() as patch:
        dies_at(patch, GradientRelease, "publish", 20, done=True)
        with pytest.raises(Killed):
            refreshable.refresh_model()
    with pytest.raises(StorageFailed):
        refreshable.predict(Q[30:31])
    refreshable.close()
    with Store.open(path) as opened:
        assert (model_of(opened).model.weights == weights).all()
        assert opened.refresh_model() == 1


@pytest.mark.parametrize(
    ("owner", "name"),
    [(audience_state, "open_audience_state"), (audience_state.StoredModel, "open_shard")],
)
def test_a_refresh_that_is_not_in_memory_answers_nothing(refreshable, monkeypatch, owner, name):
    """Fails if the index of the old model goes on answering, which no erasure reaches any more."""
    path = refreshable._store.folder.path
    with tools.broken_off(monkeypatch, owner, name, error=MemoryError):
        refreshable.refresh_model()
    assert not refreshable.is_consistent
    for work in (lambda: refreshable.erase(PEOPLE[:2]), lambda: refreshable.predict(Q[30:31])):
        with pytest.raises(StorageFailed):
            work()
    refreshable.close()
    with Store.open(path) as opened:
        assert opened.refresh_model() == 0
        assert opened.verify()


def test_the_command_refreshes(refreshable, tmp_path):
    refreshable.close()
    assert "Refreshes left: 1" in printed("refresh", tmp_path / "store")


@pytest.fixture
def of_components(tmp_path, monkeypatch):
    """A store whose model was trained on components of a kernel, and its first 30 answers."""
    components_for_few(monkeypatch)
    with make(tmp_path / "store", model_refreshes=1) as store:
        yield store


def test_components_are_the_same_after_opening_and_after_a_refresh(of_components):
    path, kernel = of_components._store.folder.path, model_of(of_components).model.features.kernel
    queries = of_components.schema.create_kernel().encode(Q).astype(np.float32)
    scores = model_of(of_components).model.compute_scores(queries)
    of_components.close()
    with Store.open(path) as opened:
        again = model_of(opened).model
        assert (again.compute_scores(queries) == scores).all()
        arrays = again.features.kernel.to_arrays()
        assert all((arrays[name] == each).all() for name, each in kernel.to_arrays().items())
        assert (opened.predict(Q).labels == YQ).mean() > 0.9
        opened.refresh_model()
        assert model_of(opened).model.features.kernel.width == kernel.width
        assert opened.verify()


def test_what_votes_cannot_be_is_refused_before_a_model_is_trained(tmp_path, monkeypatch):
    """A later refusal could be repeated with new noise any number of times without a charge."""
    monkeypatch.setattr(private_models, "train_and_charge_model", lambda *_, **__: 1 / 0)
    plan = {**DEFAULT_SHARE, "n_records": 600, "n_queries": 10**12}
    with pytest.raises(InvalidInput, match="noise must be larger"):
        Store.init(tmp_path / "store", X, Y, PEOPLE, classes=range(CLASSES), public=R, **plan)
