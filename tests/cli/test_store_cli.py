"""The commands of a store, from a table to a verified erasure."""

import json

import numpy as np
import pytest

from command_line import invoked, write_table
from command_line import printed as run
from store_tools import PEOPLE, Q, R, X, Y, points


@pytest.fixture
def data(tmp_path):
    names = np.array(["red", "green", "blue"])
    write_table(tmp_path / "train.parquet", X, colour=names[Y], who=PEOPLE)
    write_table(tmp_path / "public.parquet", R)
    write_table(tmp_path / "queries.csv", Q[:5])
    return tmp_path


def init(data, name, *words, code=0, **changes):
    """Return the result of `init`; `changes` add to its usual options, or replace them."""
    options = {
        "data": data / "train.parquet", "label": "colour", "subject": "who", "columns": "a,b,c,d",
        "public": data / "public.parquet", "classes": "red,green,blue", "records": 300,
        "epsilon": 4, "queries": 12, **changes,
    }  # fmt: skip
    return invoked("init", data / name, *words, **options, code=code)


@pytest.fixture
def store(data):
    init(data, "store")
    return data / "store"


def test_from_a_table_to_answers_and_back_out(data, store):
    answers = json.loads(run("predict", store, "--data", data / "queries.csv", "--json"))
    assert answers["charged"] == 5
    assert answers["left"] == 7
    assert set(answers["labels"]) <= {"red", "green", "blue"}
    text = run("predict", store, "--data", data / "queries.csv").splitlines()
    assert text[0] == "label,confidence,p_red,p_green,p_blue"
    assert [line.split(",")[0] for line in text[1:]] == answers["labels"]
    run("predict", store, "--data", data / "queries.csv", "--out", data / "answers.csv")
    assert (data / "answers.csv").read_text().splitlines() == text
    told = run("erase", "--yes", store, "--subject", "person-3").splitlines()
    assert told[0] == (
        "Erased. Of 1 id, 1 enrolled, 0 already erased and 0 unknown. These numbers are private."
    )
    assert "keeps its weights" in told[1]
    assert "All is well" in run("verify", store, "--erased", "person-3")
    run("verify", store, "--erased", "person-4", code=2)


def test_what_is_public_and_what_is_the_curators(data, store):
    run("export-guarantee", store, "--out", data / "guarantee.txt")
    assert "(4, 1e-05)-differential privacy" in (data / "guarantee.txt").read_text()
    assert json.loads(run("export-guarantee", store, "--json"))["epsilon"] == 4
    public = run("inspect", store)
    assert "differential privacy" in public
    assert "PRIVATE" not in public
    assert "records" not in json.loads(run("inspect", store, "--json"))
    private = run("inspect", store, "--curator")
    assert "PRIVATE" in private
    assert json.loads(run("inspect", store, "--curator", "--json"))["private"]["subjects"] == 150
    told = run("erase", "--yes", store, "--subject", "person-3", "--curator")
    assert told.endswith("\nPrivate: 2 records were erased.\n")


def test_records_are_added_and_audiences_and_quotas_kept(data, store):
    columns = {"colour": ["red", "red", "blue"], "who": ["x", "x", "person-1"]}
    more = write_table(data / "more.parquet", points(3, 5)[0], **columns)
    run("add", store, data=more, label="colour", subject="who")
    run("audience", store, "press", "--queries", 4, "--epsilon", 2)
    run("allow", store, "bob", 2, "--audience", "press")
    asked = ("predict", store, "--data", data / "queries.csv", "--audience", "press")
    run(*asked, "--analyst", "bob", code=3)
    run(*asked, code=3)
    facts = json.loads(run("inspect", store, "--curator", "--json"))
    assert facts["private"]["records"] == 303
    assert facts["audiences"]["press"]["queries"] == {"planned": 4, "used": 0, "left": 4}


def test_a_backup_is_restored_under_the_name_of_its_store(store, tmp_path):
    """Fails if the message advises to spend every budget before the harmless remedies."""
    run("backup", store, tmp_path / "backup")
    store.rename(tmp_path / "broken")
    message = run("restore", tmp_path / "backup", tmp_path / "other", code=3)
    remedy = "Restore under the name that the store had, or name its witness with the --witness"
    assert remedy in message
    assert "--accept-loss" in message.partition(remedy)[2]
    witness = store.with_name(f"{store.name}.witness")
    run("restore", tmp_path / "backup", tmp_path / "other", "--witness", witness)


def test_ids_from_a_file_and_numbers_that_are_numbers(data):
    write_table(data / "train.parquet", X, y=Y, who=np.arange(300))
    init(data, "store", release="label", index="lsh", label="y", classes="0,1,2")
    assert json.loads(run("inspect", data / "store", "--json"))["index"] == {"kind": "lsh"}
    (data / "ids.txt").write_text("7\n8\n")
    run("erase", "--yes", data / "store", "--subjects", data / "ids.txt", "--subject", "9")
    facts = json.loads(run("inspect", data / "store", "--curator", "--json"))
    assert facts["private"]["records"] == 297
    text = run("predict", data / "store", "--data", data / "queries.csv").splitlines()
    assert text[0] == "label"
    assert set(text[1:]) <= {"0", "1", "2"}


@pytest.mark.parametrize(
    "arguments",
    [
        ("inspect", "nowhere"),
        ("init", "s", "--data", "train.parquet", "--classes", "red,green,blue"),
        ("init", "s", "--data", "no.parquet", "--classes", "0,1", "--label", "y"),
        ("init", "s", "--data", "train.parquet", "--classes", "0,1", "--features", "none"),
        ("erase", "nowhere"),
        ("restore", "nowhere", "s"),
    ],
)
def test_bad_usage_ends_with_two_and_leaves_nothing(data, monkeypatch, arguments):
    monkeypatch.chdir(data)
    run(*arguments, code=2)
    assert not (data / "s").exists()


def test_budgets_that_renew_are_declared_stated_and_refused_with_a_date(data):
    place = data / "renewing"
    for options, words in (
        ({"periods": 3}, "The --periods option needs --renew"),
        ({"renew": "weekly"}, "The --renew option needs --periods"),
        ({"renew": "yearly", "periods": 3}, "The --renew option must be 'monthly'"),
        ({"renew": "0", "periods": 3}, "The --renew option must be an integer"),
        ({"renew": "30", "periods": 3, "unspent": "kept"}, "The --unspent option must be"),
        ({"renew": "30", "periods": 13}, "The --queries option must be at least 13"),
    ):
        assert words in init(data, "renewing", **options, code=2).stderr
    renew = {"renew": "30", "periods": 3, "unspent": "carried"}
    words = "3 parts, one every 30 days, and what is not spent is carried"
    assert words in init(data, "renewing", "--dry-run", **renew).stdout
    said = init(data, "renewing", **renew).output
    assert words in said
    assert "up to 75% of each budget trains a private model" in said
    said = run("predict", place, "--data", data / "queries.csv", code=3)
    assert "has 4 of 4 answers left, and 5 new ones were asked for" in said
    assert "The next part of answers and budgets comes on 20" in said
    shown = run("inspect", place)
    assert f"Part 1 of {words}: the next comes on 20" in shown
    late = ("audience", place, "late", "--queries", 10, "--model-share", 0)
    assert words in run(*late, "--dry-run", **renew)
    assert words in run(*late, **renew)
    run("certificate", place, "--out", data / "certificate")
    certificate = (data / "certificate" / "certificate.json").read_text()
    assert words in certificate
    assert "ledger/renewal.md" in certificate
