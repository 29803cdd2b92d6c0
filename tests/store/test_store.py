"""The store: the same answers as in memory, budgets that outlive it, replays, quotas, audiences."""

import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import numpy as np
import pytest

import store_tools as tools
from made_up import raising
from store_tools import PEOPLE, Q, R, X, Y, make, points, units
from vicinal import IndKNNClassifier
from vicinal.accounting.budget import UNITS
from vicinal.errors import InvalidInput, KeyReused, NoSubjectIds, PrivacyRefused, StorageFailed
from vicinal.ledger.audiences import sum_exactly, sum_logged_charges
from vicinal.ledger.tables import Tables
from vicinal.store import Query, Store, StoreExtractor
from vicinal.store.requests import ClassReply


@pytest.fixture(params=["sqlite", "postgres"])
def ledger(request, postgres_url):
    """Return a function that returns the argument `ledger` for a new store."""
    return postgres_url if request.param == "postgres" else lambda: "sqlite"


def reopen(store, path):
    store.close()
    return Store.open(path)


# ---------------------------------------------------------------- the same as in memory

PLANS = {
    "votes": {},
    "labels": {"release": "label"},
    "sequential": {"execution": "sequential"},
    "rbf": {"kernel": "rbf"},
    "private count": {"neighbor_count": "private", "execution": "sequential"},
    "rdp": {"accounting": "rdp"},
    "automatic": {
        "n_neighbors": "auto", "noise_multiplier": "auto", "epsilon": 20.0, "model_share": 0,
    },
    "fixed radius": {"min_similarity": 0.8, "n_neighbors": "auto"},
    "hashing": {"index": {"kind": "lsh", "tables": 4, "bits": 3}},
}  # fmt: skip


@pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)
def test_a_store_answers_and_charges_as_a_classifier_does_with_the_same_noise(tmp_path, plan):
    settings = {**tools.PLAN, "n_records": 300, "simulation_seed": 7, **plan}
    classifier = IndKNNClassifier(range(3), **settings).fit(X, Y, PEOPLE, public=R)
    with make(tmp_path / "store", **settings) as store:
        for part in (Q[:10], Q[10:40]):
            reply, answers = store.predict(part), classifier.query(part)
            np.testing.assert_array_equal(reply.labels, answers.labels)
            assert (reply.votes is None) == ("release" in plan)
            if reply.votes is not None:
                np.testing.assert_array_equal(reply.votes, answers.votes)
        memory = classifier._engine.shard.ledger
        for subject_id in set(PEOPLE):
            assert units(store, subject_id) == memory.remaining[memory.list_slots([subject_id])[0]]
        audience = store._store.ledger.audiences["default"]
        spent, _ = sum_logged_charges(store._store.database, audience.number)
        assert spent + audience.checkpointed == sum(memory.charges_by_block) > 0
        assert store.verify()
        assert str(store.guarantee()).startswith("NO GUARANTEE"), "it is a simulation"
        assert store.facts()["audiences"]["default"]["guarantee"]["epsilon"] is None


def test_the_size_is_estimated_once_and_charged(tmp_path):
    with make(tmp_path / "store", n_records=None) as store:
        assert 0 < units(store, "person-3") < UNITS
        found = store.facts()["audiences"]["default"]["plan"]["n_records"]
        before = units(store, "person-3")
    with Store.open(tmp_path / "store") as store:
        assert store.facts()["audiences"]["default"]["plan"]["n_records"] == found
        assert units(store, "person-3") == before
        assert "estimated once with noise" in str(store.guarantee())
        assert store.verify()


# ---------------------------------------------------------------- life on the disk


def test_budgets_answers_and_slack_survive_a_restart(tmp_path, ledger):
    store = make(tmp_path / "store", ledger=ledger())
    reply = store.predict(Q[:20], idempotency_key="a")
    account = tools.remaining(store)
    slack = store._audience_states["default"].slack.spent
    store = reopen(store, tmp_path / "store")
    np.testing.assert_array_equal(tools.remaining(store), account)
    assert store._audience_states["default"].slack.spent == slack > 0
    repeated = store.predict(Q[:20])
    np.testing.assert_array_equal(repeated.votes, reply.votes)
    assert repeated.charged == 0
    assert repeated.left == reply.left == 40
    units_left = units(store, "person-7")
    assert store.erase(["person-7", "person-8", "nobody"]) == 4
    store.add(*points(5, 9), ["person-7", "new", "new", "newer", "person-1"])
    store = reopen(store, tmp_path / "store")
    assert units(store, "person-7") == units_left
    assert units(store, "new") == UNITS
    assert "person-8" not in store._store.ledger.slot_table.slot_of
    assert store.facts(curator=True)["private"]["records"] == 301
    assert store.verify(["person-8"])
    store.close()


def test_records_without_subjects_are_people_who_cannot_be_erased(tmp_path):
    settings = {"classes": range(3), "public": R, "n_records": 300, **tools.PLAN}
    with Store.init(tmp_path / "store", X, Y, **settings) as store:
        for _ in range(2):
            with pytest.raises(NoSubjectIds, match="every row is a subject of its own"):
                store.erase([299])
            store.add(*points(2, 3))
        assert store._store.ledger.slot_table.slot_of.keys() == set(range(304))


@pytest.mark.usefixtures("store")
def test_two_processes_cannot_charge_one_store(tmp_path):
    with pytest.raises(PrivacyRefused, match="open"):
        Store.open(tmp_path / "store")


def test_a_fork_gets_no_turn(store):
    child = os.fork()
    if child == 0:
        try:
            store.predict(Q[:1])
        except PrivacyRefused:
            os._exit(7)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7


def test_a_closed_store_answers_nothing(store):
    store.close()
    store.close()
    for call in (lambda: store.predict(Q[:1]), lambda: store.erase(["x"]), store.verify):
        with pytest.raises(StorageFailed, match="closed"):
            call()


@pytest.mark.parametrize("kernel", ["cosine", "rbf"])
def test_an_index_is_the_same_after_a_restart_and_an_erasure(tmp_path, kernel):
    queries, labels = points(700, 5)
    index = {"kind": "lsh", "tables": 6, "bits": 3}
    store = make(tmp_path / "store", index=index, kernel=kernel, n_queries=400, epsilon=20.0)
    assert store.facts()["index"] == index
    store.predict(Q[:20])
    store.erase(["person-3", "person-148"])
    store.add(*points(6, 9), ["person-3", *["new"] * 5])
    # So little noise that a label is wrong where neighbours are: no draw can decide this test.
    quiet = {"n_records": 300, "n_queries": 200, "epsilon": 20.0, "noise_multiplier": 0.2}
    store.open_audience("press", **{**tools.PLAN, **quiet})
    wanted = found_by(store)
    kind = type(store._store.shard.index)
    store = reopen(store, tmp_path / "store")
    assert type(store._store.shard.index) is kind
    assert found_by(store) == wanted
    reply = store.predict(queries[20:120], audience="press")
    assert (reply.labels == labels[20:120]).mean() > 0.7
    assert store.verify(["person-148"])
    store.close()


def found_by(store):
    """Return the rows that an index finds, as a set for each of some queries."""
    engine = store._audience_states["default"].engine
    queries = engine.votes.kernel.encode(Q[:30])
    near = store._store.shard.get_index().search(queries, engine.radius.thresholds(queries))
    return [
        set(near.rows[a:b].tolist()) for a, b in zip(near.starts, near.starts[1:], strict=False)
    ]


# ---------------------------------------------------------------- replays


def test_an_equal_query_is_replayed_in_one_version_and_asked_anew_in_the_next(store):
    first = store.predict(Q[:4])
    assert store.predict(Q[[1, 1, 3]]).charged == 0
    assert store.predict(np.concatenate([Q[:2], Q[4:6], Q[4:6]])).charged == 2
    store.erase(["nobody at all"])
    repeated = store.predict(Q[:4])
    assert repeated.charged == 4, "that nobody was there must not show"
    assert (repeated.votes != first.votes).any()


def test_one_key_sent_ten_thousand_times_is_one_charge_and_one_answer(store):
    first = store.predict(Q[:3], idempotency_key="k")
    store.erase(PEOPLE[:100])  # the key outlives the version, and the answer the erased subjects
    before = tools.remaining(store)
    for reply in store.predict_many([Query(Q[:3], idempotency_key="k")] * 10_000):
        np.testing.assert_array_equal(reply.votes, first.votes)
    assert store.quota().used == 3
    np.testing.assert_array_equal(tools.remaining(store), before)


def test_keys_of_a_block_are_looked_up_at_once(store, monkeypatch):
    first = store.predict(Q[:1], idempotency_key="0")
    database, asked = store._store.database, []
    run = database._run
    monkeypatch.setattr(
        database, "_run", lambda text, *rest: asked.append(text) or run(text, *rest)
    )
    replies = store.predict_many(
        [Query(Q[i : i + 1], idempotency_key=str(i)) for i in range(20)]
        + [Query(Q[:2], idempotency_key="3"), Query(Q[:1], idempotency_key="\ud800")]
        + [Query(Q[4:5], idempotency_key="4")]
    )
    assert sum("FROM requests" in text for text in asked) == 1
    np.testing.assert_array_equal(replies[0].votes, first.votes)
    assert [reply.charged for reply in replies[:20]] == [0] + 19 * [1]
    assert isinstance(replies[20], KeyReused)
    assert isinstance(replies[21], InvalidInput)
    np.testing.assert_array_equal(replies[22].votes, replies[4].votes)
    assert store.quota().used == 20, "a key twice in one batch is one request"


def test_a_key_is_its_analysts_own_and_good_for_one_request(store):
    store.predict(Q[:3], idempotency_key="k")
    with pytest.raises(InvalidInput, match="idempotency_key"):
        store.predict(Q[:4], idempotency_key="k")
    assert store.predict(Q[5:7], idempotency_key="k", analyst="bob").charged == 2


# ---------------------------------------------------------------- plans, quotas, audiences


def test_the_plan_is_refused_in_time_and_replays_go_on(store):
    store.predict(Q[:55])
    before = tools.remaining(store)
    with pytest.raises(PrivacyRefused, match=r"has 5 of 60 answers left.*open another audience"):
        store.predict(points(6, 77)[0])
    assert store.predict(Q[:55]).charged == 0
    np.testing.assert_array_equal(tools.remaining(store), before)
    assert store.predict(points(5, 78)[0]).left == 0


ESTIMATED = "vicinal.planning.engine_factory._estimate_size"
FAILING = {"noise": {"noise_multiplier": 1e-3, "n_neighbors": None}, "delta": {"delta": 1e-30}}


@pytest.mark.parametrize("case", FAILING)
def test_what_is_refused_is_refused_before_a_size_is_drawn(tmp_path, monkeypatch, case):
    """Otherwise a fresh noisy size could be released any number of times without a charge."""
    noise_values = []
    monkeypatch.setattr(ESTIMATED, lambda *_: noise_values.append(1))
    given = {name: each for name, each in FAILING[case].items() if each is not None}
    left_out = dict.fromkeys(FAILING[case]) | {"n_records": None}
    plan = {name: each for name, each in tools.PLAN.items() if name not in left_out}
    with pytest.raises(InvalidInput):
        Store.init(tmp_path / "s", X, Y, PEOPLE, classes=range(3), public=R, **plan, **given)
    assert not noise_values
    assert not (tmp_path / "s").exists()
    with make(tmp_path / "store") as store:
        with pytest.raises(InvalidInput):
            store.open_audience("other", **{**plan, **given})
        assert not noise_values
        assert store.predict(Q[:1]).charged == 1  # nothing was begun


@pytest.mark.parametrize("weak", [{"epsilon": 20.1}, {"delta": 0.0034}])
def test_a_plan_that_protects_next_to_nobody_has_to_be_meant(tmp_path, weak):
    with pytest.raises(PrivacyRefused, match="set the 'accept_weak_plan' parameter"):
        make(tmp_path / "store", **weak)
    make(tmp_path / "void", simulation_seed=1, **weak).close()
    with make(tmp_path / "store", accept_weak_plan=True, **weak) as store:
        with pytest.raises(PrivacyRefused, match="accept_weak_plan"):
            store.open_audience("other", n_records=300, **{**tools.PLAN, **weak})
        assert store.audiences == ("default",)
        given = {"n_records": 300, **tools.PLAN, **weak}
        store.open_audience("other", accept_weak_plan=True, **given)
        store.open_audience(
            "edge", n_records=300, **{**tools.PLAN, "epsilon": 20, "delta": 1 / 300}
        )


@pytest.mark.filterwarnings("error")
def test_warnings_that_tell_a_size_come_after_it_is_paid_for(tmp_path):
    with pytest.raises(UserWarning, match="too small for a radius"):
        make(tmp_path / "store", public=R[:3], n_neighbors=2, n_records=None)
    with Store.open(tmp_path / "store") as store:
        assert units(store, "person-3") < UNITS
        with pytest.raises(UserWarning, match="too small for a radius"):
            store.open_audience("other", **tools.PLAN | {"n_neighbors": 2})
        assert units(store, "person-3", "other") < UNITS
        assert store.verify()


def test_names_have_one_form_and_no_twins(store):
    composed, parts = "Zo\u00eb", "Zo\u0065\u0308"
    store.allow(parts, 2)
    assert store.predict(Q[:2], analyst=composed, idempotency_key=parts).charged == 2
    assert store.predict(Q[:2], analyst=parts, idempotency_key=composed).charged == 0
    with pytest.raises(PrivacyRefused, match="0 of 2 answers left"):
        store.predict(Q[2:3], analyst=parts)
    assert store.quota(parts) == store.quota(composed)
    store.open_audience(parts, n_records=300, **tools.PLAN)
    with pytest.raises(InvalidInput, match="must be new"):
        store.open_audience(composed, n_records=300, **tools.PLAN)
    assert store.predict(Q[2:3], audience=composed, analyst="eve").charged == 1
    for name in ("a\u3164", "a\xa0b", "a\ufe0f", " a", "\ufffd", "a\u200b"):
        with pytest.raises(InvalidInput, match=r"characters\. Got "):
            store.allow(name, 1)


def test_an_analyst_of_one_audience_gets_no_answer_of_another(store):
    """Fails if an older copy of the file of keys lifts the refusal."""
    store.open_audience("press", n_records=300, **tools.PLAN)
    store.predict(Q[:1], analyst="anna")
    both = [Query(Q[1:2], "press", "eve"), Query(Q[1:2], "default", "eve")]
    one, other = store.predict_many(both)
    assert one.charged == 1
    with pytest.raises(PrivacyRefused, match="of the audience 'default'"):
        store.predict(Q[:1], audience="press", analyst="anna")
    assert isinstance(other, PrivacyRefused)
    assert store.predict(Q[:1], audience="press").charged == 1


def test_mappings_that_requests_read_without_the_lock_are_replaced_and_never_changed(store):
    """A thread that read the analysts while another one was added ended in a RuntimeError."""
    audience = store._audience_states["default"].audience
    states, analysts = store._audience_states, audience.analysts
    store.predict(Q[:1], analyst="anna")
    store.allow("bob", 3)
    store.open_audience("press", n_records=300, **tools.PLAN)
    assert "press" not in states
    assert not {"anna", "bob"} & analysts.keys()
    assert {"anna", "bob"} <= audience.analysts.keys()
    assert set(store._audience_states) == {"default", "press"}


def test_a_quota_binds_its_analyst_only(tmp_path, store):
    store.allow("bob", 3)
    store.predict(Q[:2], analyst="bob")
    with pytest.raises(PrivacyRefused, match="1 of 3"):
        store.predict(Q[2:4], analyst="bob")
    with pytest.raises(InvalidInput, match="because it has quotas: bob"):
        store.predict(Q[2:4], analyst="anna")
    store.allow("anna", None)
    reply = store.predict(Q[2:4], analyst="anna")
    assert (reply.charged, reply.left) == (2, store.quota().left)
    reply = store.predict(Q[2:4], analyst="bob")
    assert reply.charged == 0, "what anna asked is public"
    assert reply.left == 1 < store.quota().left, "bob's own limit is the smaller one"
    assert store.predict(Q[2:4]).charged == 0, "a request without a name has no quota"
    store = reopen(store, tmp_path / "store")
    found = store.quota("bob")
    assert (found.analyst_quota, found.analyst_used, found.analyst_left) == (3, 2, 1)
    assert store.quota("anna").analyst_left is None
    n_left = store.quota().left
    store.allow("bob", 10**6)
    assert store.quota("bob").analyst_left == n_left, "the audience's limit is the smaller one"
    store.close()


def test_a_batch_answers_the_requests_that_it_can(store):
    store.allow("bob", 1)
    store.allow("ann", 3)
    replies = store.predict_many(
        [
            Query(Q[:2], analyst="bob"), Query(Q[:2]), Query(Q[:1], audience="nobody"),
            Query(np.full((1, 4), np.nan)), Query(Q[:2], analyst="bob"),
            Query(Q[2:4], analyst="ann"), Query(Q[4:6], analyst="ann"),
        ]
    )  # fmt: skip
    kinds = [PrivacyRefused, ClassReply, InvalidInput, InvalidInput, ClassReply]
    kinds += [ClassReply, PrivacyRefused]  # requests of one batch share their analyst's quota
    assert [type(reply) for reply in replies] == kinds
    assert store.quota().used == 4
    assert store.quota("ann").analyst_used == 2


def test_audiences_have_budgets_of_their_own(tmp_path, ledger):
    store = make(tmp_path / "store", ledger=ledger())
    store.predict(Q[:20])
    units_left = units(store, "person-7")
    plan = {**tools.PLAN, "n_queries": 10, "n_records": 300}
    store.open_audience("press", release="label", **plan)
    assert units(store, "person-7", "press") == UNITS
    reply = store.predict(Q[:10], audience="press")
    assert reply.votes is None
    assert reply.charged == 10
    assert units(store, "person-7") == units_left
    with pytest.raises(PrivacyRefused, match="press"):
        store.predict(Q[10:11], audience="press")
    store = reopen(store, tmp_path / "store")
    assert store.audiences == ("default", "press")
    np.testing.assert_array_equal(store.predict(Q[:10], audience="press").labels, reply.labels)
    assert "press" in str(store.guarantee("press"))
    store.erase(["person-7"])
    store.add(X[:1], Y[:1], ["person-7"])
    assert units(store, "person-7") == units_left
    assert store.verify()
    store.close()


def test_an_audience_that_is_refused_leaves_the_others_their_answers(store, monkeypatch):
    store.open_audience("press", **{**tools.PLAN, "n_records": 300})
    refuse = raising(PrivacyRefused("The grid is used up."))
    monkeypatch.setattr(store._audience_states["press"].slack, "charge", refuse)
    before = units(store, "person-7", "press")
    queries = [Query(Q[:2], "press", idempotency_key="k"), Query(Q[:2])]
    refused, answered = store.predict_many(queries)
    assert isinstance(refused, PrivacyRefused)
    assert answered.charged == 2
    assert units(store, "person-7", "press") == before
    assert not store._store.database.read_rows(Tables.REQUESTS), "a refused request has no answers"
    assert store.verify()


def test_keys_of_one_batch_have_their_answers_after_a_restart(store, tmp_path):
    """Fails if a stored request names another block than the one that the ledger wrote."""
    store.open_audience("press", **{**tools.PLAN, "n_records": 300})
    store.predict(Q[:3])
    queries = [Query(Q[2:5], idempotency_key="k"), Query(Q[:4], "press", idempotency_key="k")]
    replies = store.predict_many(queries)
    assert [reply.charged for reply in replies] == [2, 4]
    with reopen(store, tmp_path / "store") as again:
        for reply, repeated in zip(replies, again.predict_many(queries), strict=True):
            assert repeated.charged == 0
            np.testing.assert_array_equal(repeated.votes, reply.votes)


def test_many_threads_on_nearly_spent_budgets_charge_what_the_journal_says(tmp_path):
    plan = {"n_queries": 100_000, "noise_multiplier": 0.17, "epsilon": 0.5}
    with make(tmp_path / "store", **plan) as store:
        queries = points(32 * 8, 31)[0].reshape(32, 8, 1, 4)

        def client(number):
            for query in queries[number]:
                store.predict(query, analyst=f"client-{number}")

        with ThreadPoolExecutor(32) as threads:
            list(threads.map(client, range(32)))
        audience = store._store.ledger.audiences["default"]
        spent, _ = sum_logged_charges(store._store.database, audience.number)
        units_left = sum_exactly(audience.account.remaining)
        assert spent + audience.checkpointed + units_left == 150 * UNITS
        is_spent = (audience.account.remaining == 0).any() or units_left < 15 * UNITS
        assert is_spent, "the test must come near the end of budgets"
        assert store.verify()


def test_threads_that_add_the_same_people_take_turns_with_those_who_ask(store):
    """Fails if a subject gets two budgets, a call never returns, or a partial change is visible."""
    new, labels = points(40, 8)
    names, before = [f"new-{i // 2}" for i in range(38)] + PEOPLE[:2], store.version
    with ThreadPoolExecutor(5) as threads:
        added = [threads.submit(store.add, new, labels, names) for _ in range(3)]
        asked = [threads.submit(store.predict, Q[i : i + 1]) for i in range(10)]
        checked = threads.submit(store.verify, ["nobody"], new + 9)
        assert checked.result(60)
        assert sorted(one.result(60) for one in added) == [before + 1, before + 2, before + 3]
        assert all(one.result(60).charged <= 1 for one in asked)
    assert len(store._store.shard) == 300 + 3 * len(new)
    assert len(store._store.ledger.slot_table) == 150 + 19
    assert store.verify()


# ---------------------------------------------------------------- inputs

BAD = {
    "empty": lambda s: s.predict(np.zeros((0, 4))), "flat": lambda s: s.predict(np.zeros(4)),
    "narrow": lambda s: s.predict(np.zeros((1, 3))),
    "infinite": lambda s: s.predict(np.full((1, 4), np.inf)),
    "text": lambda s: s.predict([["canary-1", "b", "c", "d"]]), "none": lambda s: s.predict(None),
    "objects": lambda s: s.predict(np.array([[object()] * 4])),
    "audience": lambda s: s.predict(Q[:1], audience="canary"),
    "no audience": lambda s: s.predict(Q[:1], audience=None),
    "analyst": lambda s: s.predict(Q[:1], analyst=""),
    "long analyst": lambda s: s.predict(Q[:1], analyst="x" * 201),
    "key": lambda s: s.predict(Q[:1], idempotency_key="a\nb"),
    "labels": lambda s: s.add(X[:2], ["canary", "b"], [1, 2]),
    "evaluated labels": lambda s: s.evaluate(Q[:1], ["canary"], ["v"], accept_noise=True),
    "few labels": lambda s: s.add(X[:2], [0], [1, 2]),
    "subjects": lambda s: s.add(X[:2], [0, 1], ["canary"]),
    "long subject": lambda s: s.add(X[:1], [0], ["canary" * 500]),
    "erase one": lambda s: s.erase("canary"), "erase floats": lambda s: s.erase([1.5]),
    "quota": lambda s: s.allow("bob", -2), "twice": lambda s: s.open_audience("default"),
    "plan": lambda s: s.open_audience("x", sigma=1),
    "kernel": lambda s: s.open_audience("x", kernel="rbf"),
    "reuse": lambda s: s.open_audience("x", reuse_predictions="gate"),
    "index": lambda s: s.open_audience("x", index="lsh"),
    "record key": lambda s: s.add(X[:1], [0], ["a"], idempotency_key="a\nb"),
    "epsilon": lambda s: s.open_audience("x", epsilon=-1),
}  # fmt: skip


@pytest.mark.parametrize("call", BAD.values(), ids=BAD)
def test_bad_input_is_refused_before_anything_changes_and_not_repeated(shared, call):
    before = shared.facts(curator=True), shared._store.ledger.clock
    with pytest.raises(InvalidInput) as caught:
        call(shared)
    assert "canary" not in str(caught.value)
    assert (shared.facts(curator=True), shared._store.ledger.clock) == before
    assert len(shared.predict(Q[:1]).labels) == 1, "and the store goes on"


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    with make(tmp_path_factory.mktemp("shared") / "store") as store:
        store.predict(Q[:1])
        yield store


@pytest.mark.parametrize(
    "change",
    [
        {"classes": None}, {"classes": [0]}, {"public": None}, {"public": X[:50]}, {"epsilon": 0},
        {"sigma": 1}, {"kernel": "linear"}, {"reuse_predictions": "gate"}, {"ledger": "mysql://x"},
        {"reuse_predictions": True, "neighbor_count": "private"},
        {"noise_multiplier": 1e-12}, {"index": "faiss"}, {"index": {"kind": "lsh", "bits": 99}},
        *(
            {"ledger": f"postgresql://{address}"}
            for address in (
                "me:secret@host/db", "me%3Ax@host/db", "me@host/db?pass%77ord=x",
                "/db?ssl%70assword=x",
            )
        ),
    ],
)  # fmt: skip
def test_a_store_that_cannot_be_is_not_begun(tmp_path, change):
    with pytest.raises(InvalidInput):
        make(tmp_path / "store", **change)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("store")
def test_a_store_is_made_in_a_new_place_only(tmp_path):
    with pytest.raises(InvalidInput, match="new folder"):
        make(tmp_path / "store")
    with pytest.raises(InvalidInput, match="no store"):
        Store.open(tmp_path)


def test_features_are_extracted_alike_for_records_and_queries(tmp_path):
    images = np.random.default_rng(0).integers(0, 255, (40, 12, 12))
    extractor, reference = StoreExtractor("hog", {"cell": 3}).fit_public_map(images[:15], 5)
    plan = {"n_neighbors": 5, "noise_multiplier": 1.0, "n_records": 20, "epsilon": 8.0}
    with Store.init(
        tmp_path / "store", images[15:35], np.arange(20) % 2, classes=[0, 1], public=reference,
        extractor=extractor, **plan,
    ) as store:  # fmt: skip
        first = store.predict(images[35:])
    with Store.open(tmp_path / "store") as store:
        repeated = store.predict(images[35:])
        assert repeated.charged == 0
        np.testing.assert_array_equal(repeated.votes, first.votes)
        with pytest.raises(InvalidInput):
            store.predict(reference)


# ---------------------------------------------------------------- adding once


def test_records_with_a_key_are_added_once(tmp_path, ledger):
    store = make(tmp_path / "store", ledger=ledger())
    records = (*points(3, 8), ["new", "new", "newer"])
    size = len(store._store.shard)
    version = store.add(*records, curator="carl", idempotency_key="k")
    assert version == store.version
    store.predict(Q[:2])
    assert store.add(*records, curator="carl", idempotency_key="k") == version
    store = reopen(store, tmp_path / "store")
    assert store.add(*records, curator="carl", idempotency_key="k") == version == store.version
    assert len(store._store.shard) == size + 3
    assert store.predict(Q[:2]).charged == 0, "no new version of the data"
    others = {
        "features": (*points(3, 9)[:1], *records[1:]),
        "labels": (records[0], (records[1] + 1) % 3, records[2]),
        "people": (*records[:2], ["new", "newer", "newer"]),
        "nobody": (*records[:2], None),
        "fewer": tuple(part[:2] for part in records),
    }
    for name, other in others.items():
        with pytest.raises(KeyReused):
            store.add(*other, curator="carl", idempotency_key="k")
        assert len(store._store.shard) == size + 3, name
    assert store.add(*records, curator="cora", idempotency_key="k") == version + 1
    assert store.add(*records, curator="carl") == version + 2
    assert len(store._store.shard) == size + 9
    assert store.verify()
    store.close()


def test_a_late_repetition_brings_nobody_back(store, tmp_path):
    """After an erasure no digest can confirm a guess of a record, and the key adds nothing."""
    records = (*points(2, 8), ["new", "new"])
    store.add(*records, idempotency_key="k")
    store.erase(["new"])
    assert {
        bytes(body) for (body,) in store._store.database.read("SELECT body FROM additions")
    } == {b""}
    for _ in range(2):
        with pytest.raises(KeyReused):
            store.add(*records, idempotency_key="k")
        store = reopen(store, tmp_path / "store")
    assert "new" not in store._store.ledger.slot_table.slot_of
    assert store.verify(["new"])
    store.close()


def test_keys_of_answers_and_of_records_do_not_meet(store):
    store.predict(Q[:1], analyst="carl", idempotency_key="k")
    store.add(*points(1, 8), ["new"], curator="carl", idempotency_key="k")
    with pytest.raises(KeyReused):
        store.predict(Q[:2], analyst="carl", idempotency_key="k")


def test_a_key_does_not_outlive_records_that_were_not_added(store, tmp_path, monkeypatch):
    records = (*points(2, 8), ["new", "new"])
    full = StorageFailed("The disk is full.")
    with tools.broken_off(monkeypatch, type(store._store.record_files), "append", error=full):
        store.add(*records, idempotency_key="k")
    store = reopen(store, tmp_path / "store")
    store.add(*records, idempotency_key="k")
    assert "new" in store._store.ledger.slot_table.slot_of
    store.close()


def test_opening_cuts_from_the_log_what_a_kill_broke_off(store, tmp_path):
    """The id of a subject about to be enrolled again must not stay behind the log's last commit."""
    database = store._store.database
    # So that pages reach the log before the commit:
    database._connection.execute("PRAGMA cache_size = 1")
    with suppress(KeyboardInterrupt), database.transaction():
        rows = ((10_000 + n, 0, b"", b"canary-anna" + bytes([n]) * 4000) for n in range(50))
        database.insert(Tables.SUBJECT_PAGES, rows)
        shutil.copytree(tmp_path / "store", tmp_path / "killed")
        shutil.copy(tmp_path / "store.witness", tmp_path / "killed.witness")
        raise KeyboardInterrupt
    with suppress(StorageFailed):
        store.close()
    assert b"canary-anna" in (tmp_path / "killed" / "ledger.db-wal").read_bytes()
    with Store.open(tmp_path / "killed") as found:
        assert found.verify()
        for path in (tmp_path / "killed").rglob("*"):
            assert path.is_dir() or b"canary-anna" not in path.read_bytes()
