"""Stores whose records carry the words of texts."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import csv, parquet
from typer.testing import CliRunner

from made_up import NoNoise
from serving_tools import running
from vicinal import IndKNNKeywords
from vicinal.accounting._budget import UNITS
from vicinal.cli._main import app
from vicinal.errors import InvalidInput
from vicinal.mechanisms._record_vectors import UNIT, RecordVectors
from vicinal.predictors import public_vocabulary
from vicinal.serving._models import AnswersResponse
from vicinal.store import KeywordReply, Store
from vicinal.store._targets import TargetSchema

N, SECRET = 600, "zygomatic"
rng = np.random.default_rng(7)
X, R = rng.normal(size=(N, 3)), rng.normal(size=(200, 3))
Q = R[:12] + 0.01
OWNERS = [f"owner-{i // 2:04}" for i in range(N)]
TEXTS = [
    ("Pain in the left knee" if x[0] > 0 else "A cold, and a cough") + " fever" * int(x[1] > 0)
    for x in X
]
WORDS = {"knee": 2.0, "left": 1.0, "pain": 1.5, "cold": 1.0, "cough": 2.0, "fever": 1.2}
PLAN = {
    "vocabulary": WORDS, "words_per_text": 3, "n_keywords": 2, "epsilon": 6.0, "delta": 1e-4,
    "n_queries": 60, "n_records": N,
}  # fmt: skip


def made(path, **plan):
    return Store.init(path, X, TEXTS, OWNERS, public=R, **{**PLAN, **plan})


@pytest.mark.parametrize("words", [WORDS, list(WORDS)])
def test_a_store_answers_and_charges_as_the_estimator(tmp_path, words):
    """Fails if a text's vector is rounded on its way to the disk, or an answer read otherwise."""
    plan = {**PLAN, "vocabulary": words, "simulation_seed": 3}
    like = IndKNNKeywords(**plan).fit(X, TEXTS, OWNERS, public=R)
    with made(tmp_path / "store", **plan) as store:
        reply = store.predict(Q)
        mine = store._audience_states["default"].audience.account.remaining
    found, weights, noise = like.predict(Q, return_weights=True)
    assert type(reply) is KeywordReply
    np.testing.assert_array_equal(reply.labels, found)
    np.testing.assert_array_equal(reply.votes, weights)
    np.testing.assert_allclose(reply.noise, noise, rtol=1e-6)
    np.testing.assert_array_equal(mine, like._shard.ledger.remaining)
    assert (mine < UNITS).any()


def test_words_survive_everything_that_stores_go_through(tmp_path):
    """Fails if opening, adding, erasing, or a backup changes a vector or an answer."""
    with made(tmp_path / "store") as store:
        first = store.predict(Q, idempotency_key="a")
        before = store._parts.shard.subject_table.targets
        store.add(X[:3], [TEXTS[0], f"{SECRET} fever", TEXTS[2]], ["new", "new", OWNERS[0]])
    with Store.open(tmp_path / "store") as store:
        after = store._parts.shard.subject_table.targets
        np.testing.assert_array_equal(after.steps()[:N], before.steps())
        np.testing.assert_array_equal(after.steps()[N], before.steps()[0])
        again = store.predict(Q, idempotency_key="a")
        assert again.to_dict() == {**first.to_dict(), "charged": 0}
        assert store.erase(["new", OWNERS[10]]) == 4
        assert store.verify(["new", OWNERS[10]])
        store.open_audience("second", epsilon=1.0, n_queries=10, n_keywords=5)
        assert store.predict(Q[:2], audience="second").labels.shape == (2, 5)
        store.backup(tmp_path / "backup")
    with Store.open(tmp_path / "store") as store:
        assert store.verify()
        assert store.predict(Q).charged == len(Q)
    with Store.restore(
        tmp_path / "backup", tmp_path / "other", accept_loss=True, witness=tmp_path / "seen"
    ) as store:
        assert store.verify()


def test_no_text_is_kept_and_an_erased_vector_is_wiped(tmp_path):
    """Fails if a text, or its length, can be read off the disk, or a vector after an erasure."""
    with made(tmp_path / "store") as store:
        store.add(X[:1], [f"knee knee {SECRET} cold"], ["goes"])
        code = store.schema.target.rows(
            store.schema.targets([f"knee knee {SECRET} cold"], 1)
        ).tobytes()
        file = tmp_path / "store" / "records" / "labels"
        assert code in file.read_bytes()
        assert file.stat().st_size == (N + 1) * 2 * PLAN["words_per_text"] * 4
        store.erase(["goes"])
        assert code not in file.read_bytes()
    held = b"".join(p.read_bytes() for p in tmp_path.rglob("*") if p.is_file())
    assert SECRET.encode() not in held
    assert b"Pain in the" not in held


def test_public_facts_are_short_and_json(tmp_path):
    with made(tmp_path / "store") as store:
        facts = json.loads(json.dumps(store.facts(), allow_nan=False))
        told = json.loads(json.dumps(store.predict(Q[:2]).to_dict(), allow_nan=False))
    assert facts["target"] == {"kind": "vocabulary", "vocabulary": 6, "words_per_text": 3}
    assert facts["audiences"]["default"]["plan"]["n_keywords"] == 2
    assert set(told) == {"keywords", "weights", "noise", "charged", "left"}
    assert "vocabulary" in facts["audiences"]["default"]["guarantee"]["text"]


REFUSED = {
    "two kinds": {"classes": [0, 1]},
    "no words": {"vocabulary": []},
    "more words than there are": {"n_keywords": 7},
    "private counts": {"neighbor_count": "private"},
    "reuse": {"reuse_predictions": "gate"},
    "label": {"release": "label"},
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_a_store_of_words_cannot_do_is_refused_before_anything_is_written(tmp_path, case):
    with pytest.raises(InvalidInput):
        made(tmp_path / "store", **REFUSED[case])
    assert not (tmp_path / "store").exists()


def test_unusable_texts_are_refused_before_anything_changes(tmp_path):
    with made(tmp_path / "store") as store:
        version = store.version
        for y in ([5], ["a", "b"], "ab", None, [None], [np.nan]):
            with pytest.raises(InvalidInput):
                store.add(X[:1], y, ["x"])
        with pytest.raises(InvalidInput, match="belongs to the store"):
            store.open_audience("second", vocabulary=["a"])
        assert store.version == version


BAD_ROWS = {
    "outside": [7, 0, 0, 5, 0, 0],
    "negative": [-1, 0, 0, 5, 0, 0],
    "twice": [2, 2, 0, 5, 5, 0],
    "falling": [3, 2, 0, 5, 5, 0],
    "gap": [2, 0, 3, 5, 0, 5],
    "no value": [2, 3, 0, 5, 0, 0],
    "no place": [2, 0, 0, 5, 5, 0],
    "too long": [1, 2, 0, UNIT, UNIT, 0],
}


@pytest.mark.parametrize("case", BAD_ROWS)
def test_rows_that_are_no_vector_are_found(case):
    target = TargetSchema.of({"vocabulary": list(WORDS), "words_per_text": 3})
    sound = target.rows(target.plain_settings.targets(["knee pain left", "", "cold"], 3))
    assert target.fault(sound) is None
    assert target.fault(np.array([*sound, BAD_ROWS[case]], dtype=np.int32)) is not None


def test_pairs_are_exact():
    vectors = RecordVectors.of_rows([[0.6, 0, -0.8], [0, 0, 0], [0, 1e-12, 1.0]])
    back = RecordVectors.of_pairs(3, vectors.pairs(2))
    for name in ("starts", "coordinates", "values"):
        np.testing.assert_array_equal(getattr(back, name), getattr(vectors, name))


def test_only_the_heaviest_words_of_a_text_count():
    words = {"a": 1.0, "b": 3.0, "c": 2.0, "d": 2.0}
    model = IndKNNKeywords(words, words_per_text=2, n_keywords=1)
    dense = model._plans.of(model).targets(["d c b a", "a"], 2).dense()
    np.testing.assert_allclose(dense[0], np.array([0, 3, 2, 0]) / np.sqrt(13), atol=1e-8)
    np.testing.assert_allclose(dense[1], [1, 0, 0, 0], atol=1e-8)


texts = st.lists(st.text(max_size=40) | st.text("ab é-_1\0", max_size=60), min_size=1, max_size=5)


@settings(deadline=None, max_examples=40)
@given(texts, st.integers(1, 3), st.floats(1e-300, 1e300))
def test_any_text_is_a_vector_of_length_one_or_nothing(documents, most, weight):
    """Fails if a text, whatever its letters and weights, gives a longer vector, or more words."""
    words = {"a": weight, "b": 1.0, "ab": 2.0, "é": 1e-9, "1": 1e9}
    target = TargetSchema.of({"vocabulary": words, "words_per_text": most})
    vectors = target.plain_settings.targets(documents, len(documents))
    assert (np.diff(vectors.starts) <= most).all()
    lengths = np.linalg.norm(vectors.dense(), axis=1)
    assert ((lengths <= 1) & ((lengths == 0) | (lengths > 1 - 1e-6))).all()
    rows = target.rows(vectors)
    assert target.fault(rows) is None
    np.testing.assert_array_equal(target.targets(rows).steps(), vectors.steps())


def test_a_public_vocabulary():
    texts = ["the knee hurts", "the cough", "the knee", "the end it"]
    assert list(public_vocabulary(texts, 2, most_common=0.5)) == ["knee", "hurts"]
    found = public_vocabulary(texts, most_common=0.5)
    assert "the" not in found
    assert "it" not in found
    assert found["knee"] == pytest.approx(np.log(2))
    for bad in ([], [3], ["the"], ["it is"]):
        with pytest.raises(InvalidInput):
            public_vocabulary(bad)
    with pytest.raises(InvalidInput):
        public_vocabulary(texts, 0)


NAMES = ["a", "b", "c"]


def run(*arguments, code=0):
    result = CliRunner().invoke(app, [str(a) for a in arguments])
    assert result.exit_code == code, result.output
    return result.stdout


def files(folder):
    """Write records with texts, a reference with texts, queries, words; return what init takes."""
    features = dict(zip(NAMES, X.T, strict=True))
    parquet.write_table(
        pa.table({**features, "note": TEXTS, "who": OWNERS}), folder / "notes.parquet"
    )
    reference = {
        **dict(zip(NAMES, R.T, strict=True)),
        "note": [f"the {list(WORDS)[i % 6]}" for i in range(len(R))],
    }
    parquet.write_table(pa.table(reference), folder / "public.parquet")
    csv.write_csv(pa.table(dict(zip(NAMES, Q.T, strict=True))), folder / "queries.csv")
    (folder / "words.txt").write_text("knee,2\npain\n\ncough, 1.5\n")
    return [
        "init", folder / "store", "--data", folder / "notes.parquet", "--subject", "who",
        "--public", folder / "public.parquet", "--text", "note", "--columns", "a,b,c",
        "--epsilon", 6, "--queries", 60, "--records", N,
    ]  # fmt: skip


@pytest.mark.parametrize(
    "vocabulary", [("--vocabulary", "words.txt"), ("--keywords", 4)], ids=["file", "public texts"]
)
def test_from_a_table_of_texts_to_keywords_and_back_out(tmp_path, vocabulary):
    option, value = vocabulary
    given = [option, tmp_path / value if option == "--vocabulary" else value, "--answer-words", 3]
    size = 3 if option == "--vocabulary" else 4
    assert f"keywords, out of {size} public words" in run(*files(tmp_path), *given)
    store, queries = tmp_path / "store", tmp_path / "queries.csv"
    lines = run("keywords", store, "--data", queries, "-m", 1, "-q").splitlines()
    assert len(lines) == len(Q)
    assert all(len(line.split(": ")[1].split(", ")) == 1 for line in lines)
    told = json.loads(run("keywords", store, "--data", queries, "--json", "-m", 2))
    assert np.shape(told["keywords"]) == np.shape(told["weights"]) == (len(Q), 2)
    assert told["charged"] == 0
    weighed = run("keywords", store, "--data", queries, "--weights", "-q").splitlines()
    word, weight = weighed[0].split(": ")[1].split(", ")[0].split(" ")
    assert word == told["keywords"][0][0]
    assert float(weight) == pytest.approx(told["weights"][0][0], abs=0.01)
    head = run("predict", store, "--data", queries, "-q").splitlines()[0]
    assert head.split(",") == [
        *(f"{n}_{i}" for i in (1, 2, 3) for n in ("keyword", "weight")),
        "noise",
    ]
    run("add", store, "--data", tmp_path / "notes.parquet", "--subject", "who", "--text", "note")
    run("erase", "--yes", store, "--subject", OWNERS[0])
    run("verify", store, "--erased", OWNERS[0])
    run("audience", store, "second", "--epsilon", 1, "--queries", 5, "--answer-words", 2)
    assert "(6, 1e-05)-differential privacy" in run("export-guarantee", store)
    for bad in (["-m", 4], [], ["--audience", "third"]):
        data = ["--data", queries] if bad else []
        run("keywords", store, *data, *bad, code=2)
    run("keywords", store, "where does it hurt?", code=2)


BAD = {
    "both": (["--vocabulary", "words.txt", "--keywords", "3"], "--keywords"),
    "no file": (["--vocabulary", "nothing.txt"], "nothing.txt"),
    "more words": (["--keywords", "2", "--answer-words", "3"], "--answer-words option"),
    "label": (["--keywords", "4", "--answer-words", "3", "--label", "a"], "--label option"),
    "no words": (["--classes", "1,2"], "--text option"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_options_are_refused_by_their_flags(tmp_path, case, monkeypatch):
    given = files(tmp_path)
    monkeypatch.chdir(tmp_path)
    options, named = BAD[case]
    result = CliRunner().invoke(app, [str(a) for a in [*given, *options]])
    assert result.exit_code == 2
    assert named in result.output
    assert not (tmp_path / "store").exists()


def test_a_service_answers_and_takes_texts(tmp_path):
    with running(tmp_path / "store", make=made) as service:
        reply = service.predict(Q[:3].tolist(), name="once")
        assert reply.status == 200, reply.body
        AnswersResponse.model_validate(reply.body)
        assert np.shape(reply.body["keywords"]) == (3, 2)
        again = service.predict(Q[:3].tolist(), name="once")
        assert again.body == {**reply.body, "charged": 0}
        target = service.call("GET", "/v1/status").body["target"]
        assert target == {"kind": "vocabulary", "vocabulary": 6, "words_per_text": 3}
        record = {"vectors": X[:2].tolist(), "subjects": ["x", "y"]}
        for bad in ({}, {"labels": ["a", "b"]}, {"documents": TEXTS[:2], "labels": ["a", "b"]}):
            refused = service.call("POST", "/v1/records", {**record, **bad}, "curator")
            assert refused.status == 422, refused.body
        body = {**record, "documents": TEXTS[:2]}
        added = service.call("POST", "/v1/records", body, "curator")
        assert added.status == 200, added.body


# ---------------------------------------------------------------- evaluations


ASKERS = [f"v{i}" for i in range(len(Q))]
TRUTH = ["knee pain" if x[0] > 0 else "nothing of it" for x in Q]


def counted(answers, truth):
    """Return how many words of its own answer, and of the next, each text has."""
    texts = [set(text.split()) for text in truth]
    pairs = zip(texts, answers, np.roll(answers, -1, axis=0), strict=True)
    return np.array([[len(text & set(own)), len(text & set(other))] for text, own, other in pairs])


def test_an_evaluation_counts_the_words_that_texts_have(tmp_path, monkeypatch):
    """Fails if a text is compared with another answer, or words are counted elsewhere."""
    with made(tmp_path / "store") as store:
        answers = store.predict(Q).labels
        state = store._audience_states["default"]
        before = state.audience.account.remaining.copy()
        monkeypatch.setattr(state.engine.votes, "noise", NoNoise())
        rows, texts = np.vstack([Q, X[:3]]), [*TRUTH, *TEXTS[:3]]  # the last were never asked
        found = store.evaluate(rows, texts, [*ASKERS, *OWNERS[:3]])
        np.testing.assert_array_equal(state.audience.account.remaining[: len(before)], before)
        told = json.loads(json.dumps(found.to_dict(), allow_nan=False))
        assert store.facts()["audiences"]["default"]["evaluations"] == [told]
    own, other = counted(answers, TRUTH).T
    np.testing.assert_allclose(found.hits, np.bincount(own, minlength=3), atol=1e-6)
    np.testing.assert_allclose(found.others, np.bincount(other, minlength=3), atol=1e-6)
    figures = found.figures_of(found.counts)
    assert figures["precision"] == pytest.approx(own.mean() / 2)
    assert figures["precision_by_chance"] == pytest.approx(other.mean() / 2)
    assert figures["found"] == pytest.approx((own > 0).mean())


def test_unusable_texts_are_refused_before_anybody_pays(tmp_path):
    with made(tmp_path / "store") as store:
        store.predict(Q)
        account = store._audience_states["default"].audience.account
        before = account.remaining.copy()
        for texts in (TRUTH[:3], None, [3.0] * len(Q), "knee"):
            with pytest.raises(InvalidInput):
                store.evaluate(Q, texts, ASKERS)
        np.testing.assert_array_equal(account.remaining, before)


def test_the_command_evaluates_words(tmp_path):
    with made(tmp_path / "store") as store:
        store.predict(Q)
    columns = {name: Q[:, i] for i, name in enumerate("abc")}
    table = pa.table({**columns, "note": TRUTH, "who": ASKERS})
    parquet.write_table(table, tmp_path / "rows.parquet")
    given = ["evaluate", str(tmp_path / "store"), "--data", str(tmp_path / "rows.parquet")]
    refused = CliRunner().invoke(app, [*given, "--subject", "who"])
    assert refused.exit_code == 2
    assert "--text" in refused.stderr
    result = CliRunner().invoke(app, [*given, "--subject", "who", "--text", "note", "--share", "1"])
    assert result.exit_code == 0, result.output
    assert "Share of an answer's words" in result.output
