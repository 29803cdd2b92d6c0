"""Stores of earlier versions, which kept spellings of one id as several people."""

from __future__ import annotations

import shutil
import unicodedata

import numpy as np
import pytest
from typer.testing import CliRunner

import shard_tools
import store_tools
from store_tools import PLAN, Q, R, as_schema_eight, points, units
from vicinal._checks import subject_id
from vicinal.accounting._budget import UNITS
from vicinal.cli._main import app
from vicinal.distributed import split
from vicinal.distributed._folders import COORDINATOR, ShardFolder, shard_paths
from vicinal.errors import PrivacyRefused
from vicinal.ledger._departed import joined
from vicinal.ledger._id_encoding import framed
from vicinal.ledger._subject_pages import write_subjects
from vicinal.store import Presence, Store, _erasure, _subject_merging
from vicinal.store._identities import FORM, ONE_FORM_EVERYWHERE, repaired
from vicinal.store._opening import open_folder

NFD, NFC = "Zo\u0065\u0308", "Zo\u00eb"
X, Y = points(60, 4)
PEOPLE = [("five", "other", NFC, "anna", 8, "x7")[i % 6] for i in range(60)]
BEFORE = 6
"""Schema of the last version that knew several spellings."""


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Return a closed store of six people, all charged."""
    path = tmp_path_factory.mktemp("made") / "store"
    settings = {"classes": range(3), "public": R, "n_records": 60, **PLAN}
    settings["noise_multiplier"] = 8.0
    with Store.init(path, X, Y, PEOPLE, **settings) as store:
        store.predict(Q[:12])
        store.open_audience("press", **PLAN)
        store.predict(Q[:5], audience="press")
        left = {who: units(store, who) for who in set(PEOPLE)}
        press = {who: units(store, who, "press") for who in set(PEOPLE)}
    assert all(UNITS // 2 < each < UNITS for each in left.values())
    return path, left, press


@pytest.fixture
def path(tmp_path, made):
    for part in made[0].parent.iterdir():
        copy = shutil.copytree if part.is_dir() else shutil.copy
        copy(part, tmp_path / part.name)
    return tmp_path / "store"


def respell_parts(parts, spellings):
    """Give enrolled ids the spellings of an earlier version."""
    with parts.database.transaction():
        slot_of = parts.ledger.slot_table.slot_of
        new = {slot_of[who]: framed(other) for who, other in spellings.items() if who in slot_of}
        write_subjects(parts.database, new)
    parts.database.scrub()


def as_earlier(parts):
    """Let a ledger look as an earlier version left it."""
    with parts.database.transaction():
        as_schema_eight(parts.database)
        parts.database.execute("DROP TABLE models")
        parts.database.put("schema", str(BEFORE))
        parts.database.execute("DELETE FROM meta WHERE name IN (?, ?)", (FORM, ONE_FORM_EVERYWHERE))


def erase_as_earlier(parts, spellings):
    _erasure.decide(parts.ledger, parts.shard, list(spellings))
    _erasure.finish(parts.database, parts.record_files, parts.witness)
    parts.mark_change()


def respell(path, spellings, *, erased=()):
    """Give enrolled ids the spellings of an earlier version; erase some as it did."""
    with Store.open(path) as store:
        respell_parts(store._parts, spellings)
    with Store.open(path) as store:
        if erased:
            erase_as_earlier(store._parts, erased)
        as_earlier(store._parts)


TWINS = {
    "numbers": {"five": 5, "other": "5"},
    "forms of Unicode": {NFC: "zoe", "five": NFC, "other": NFD},
    "blanks": {"five": "anna ", "other": "Bob\n"},
    "invisible": {"other": "an\u200bna"},
    "decimal point": {"five": 5, "other": "5.0"},
}


@pytest.mark.parametrize("case", TWINS)
def test_twins_are_refused_then_merged_and_nobody_gains(path, made, case):
    respelt = TWINS[case]
    respell(path, respelt)
    with pytest.raises(PrivacyRefused, match="vicinal merge-subjects"):
        Store.open(path)
    told = CliRunner().invoke(app, ["merge-subjects", str(path)])
    assert told.exit_code == 0, told.output
    assert told.output.startswith("Private:")
    expected: dict[object, list[int]] = {}
    for who, left in made[1].items():
        expected.setdefault(repaired(respelt.get(who, who)), []).append(left)
    with Store.open(path) as store:
        assert store.verify()
        assert store.facts(curator=True)["private"]["records"] == 60
        assert {who: units(store, who) for who in store._parts.ledger.slot_table.slot_of} == {
            who: joined(left) for who, left in expected.items()
        }
        store.predict(Q[30:40])
        store.erase(["5", NFD, "anna"])
        assert store.verify([5, NFC, "anna"])
    assert Store.open(path).close() is None


@pytest.mark.parametrize("at", ["_bring_back", "_remember"])
def test_a_merge_that_was_broken_off_is_finished_by_the_next(path, made, monkeypatch, at):
    respell(path, {"five": 5, "other": "5"})

    def dying(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(_subject_merging, at, dying)
        with pytest.raises(KeyboardInterrupt):
            _subject_merging.merge_subjects(path)
    with pytest.raises(PrivacyRefused, match="vicinal merge-subjects"):
        Store.open(path)
    _subject_merging.merge_subjects(path)
    with Store.open(path) as store:
        assert store.verify()
        assert units(store, 5) == joined([made[1]["five"], made[1]["other"]])
        assert store.facts(curator=True)["private"]["records"] == 60


def test_without_twins_ids_get_their_one_form_when_the_store_is_opened(path, made):
    respell(path, {"five": "5", "other": "05", NFC: NFD, "x7": "X7"})
    with Store.open(path) as store:
        assert {5, "05", NFC, "anna", 8, "X7"} == set(store._parts.ledger.slot_table.slot_of)
        assert [type(who) for who in store._parts.ledger.slot_table.slot_of if who == 5] == [int]
        assert units(store, 5) == made[1]["five"]
        assert store.verify()
        store.erase([5])
        assert store.verify(["5"])


@pytest.mark.parametrize("spelling", ["5", NFD, "anna ", "5.0", "\ufeffanna"])
def test_who_left_under_another_spelling_returns_with_what_was_left(path, made, spelling):
    name = repaired(spelling)
    respell(path, {name: "somebody else", "five": spelling}, erased=[spelling])
    with Store.open(path) as store:
        assert store.presence([name, "nobody"]) == Presence(0, 1, 1)
        assert store.verify()
        store.add(X[:1], Y[:1], [name])
        assert units(store, name) == made[1]["five"]
        assert store.verify()
        store.erase([name])
        store.add(X[:1], Y[:1], [str(name)])
        assert units(store, name) == made[1]["five"]


def test_two_spellings_that_both_left_return_as_one_person(path, made):
    respell(path, {"five": 5, "other": "5"}, erased=[5, "5"])
    with Store.open(path) as store:
        store.add(X[:1], Y[:1], [5])
        assert units(store, 5) == joined([made[1]["five"], made[1]["other"]])
        assert store.verify()


def test_who_is_here_and_left_under_another_spelling_is_two_people(path, made):
    respell(path, {"five": "anna\n"}, erased=["anna\n"])
    with pytest.raises(PrivacyRefused, match="merge-subjects"):
        Store.open(path)
    _subject_merging.merge_subjects(path)
    with Store.open(path) as store:
        assert units(store, "anna") == joined([made[1]["five"], made[1]["anna"]])
        assert store.verify()


PLACES = {"five": 0, "other": 1, NFC: 0, "anna": 1, 8: 0, "x7": 1}


def change_shard(path, spellings, erased=()):
    for work in (respell_parts, erase_as_earlier):
        given = spellings if work is respell_parts else erased
        parts = open_folder(ShardFolder.read(path).folder)
        try:
            if given:
                work(parts, given)
            if work is erase_as_earlier:
                as_earlier(parts)
        finally:
            parts.resources.close()


@pytest.mark.parametrize("left", [(), ("5",)])
def test_twins_on_two_shards_are_merged(tmp_path, path, made, left):
    cluster = tmp_path / "cluster"
    split(path, cluster, 2, place=PLACES.__getitem__)
    shards = shard_paths(cluster, 2)
    change_shard(shards[0], {"five": 5})
    change_shard(shards[1], {"other": "5"}, left)
    change_shard(cluster / COORDINATOR, {})
    with pytest.raises(PrivacyRefused, match="vicinal merge-subjects"):
        shard_tools.local(cluster)
    told = CliRunner().invoke(app, ["merge-subjects", str(cluster)])
    assert told.exit_code == 0, told.output
    assert ("1 of them had records on several shards" in told.output) == (not left)
    for name, budgets in (("default", made[1]), ("press", made[2])):
        expected = {who: left for who, left in budgets.items() if who not in ("five", "other")}
        expected[5] = joined([budgets["five"], budgets["other"]])
        assert shard_tools.budgets(cluster, name) == expected
    with shard_tools.local(cluster) as opened:
        assert opened.verify()
        private = opened.facts(curator=True)["private"].values()
        assert sum(one["records"] for one in private) == 50, "those of one spelling are gone"
        opened.predict(Q[30:33])
        opened.erase(["5"])
        assert opened.presence([5, "nobody"]) == Presence(0, 1, 1)


def test_who_left_two_shards_under_two_spellings_cannot_come_back(tmp_path, path):
    cluster = tmp_path / "cluster"
    split(path, cluster, 2, place=PLACES.__getitem__)
    shards = shard_paths(cluster, 2)
    change_shard(shards[0], {"five": 5}, [5])
    change_shard(shards[1], {"other": "5"}, ["5"])
    change_shard(cluster / COORDINATOR, {})
    CliRunner().invoke(app, ["merge-subjects", str(cluster)])
    with shard_tools.local(cluster) as opened:
        with pytest.raises(PrivacyRefused, match="cannot come back"):
            opened.add(X[:1], Y[:1], [5])
        opened.add(X[:1], Y[:1], [6])


def test_a_split_keeps_both_spellings_of_who_left_together(tmp_path, path, made):
    respell(path, {"five": 5, "other": "5"}, erased=[5, "5"])
    split(path, tmp_path / "cluster", 3)
    with shard_tools.local(tmp_path / "cluster") as opened:
        opened.add(X[:1], Y[:1], [5])
    assert shard_tools.budgets(tmp_path / "cluster")[5] == joined(
        [made[1]["five"], made[1]["other"]]
    )


def test_charges_add_up_to_a_whole_budget_at_most():
    assert joined([UNITS]) == UNITS
    assert joined([UNITS // 2, UNITS]) == UNITS // 2
    assert joined([UNITS // 2, UNITS // 2 - 1]) == 0
    assert joined([3, 5, UNITS]) == 0


def test_what_is_repaired_is_an_id():
    for faulty in ("", " ", "\u200b", "a\nb", "\ufeff", " 5\r\n", "5.", "-0.0", NFD + "\x00"):
        name = repaired(faulty)
        assert subject_id("x", name) == name
        assert not isinstance(name, str) or unicodedata.is_normalized("NFC", name)
    assert repaired(" 5\r\n") == 5
    assert repaired("a\nb") != repaired("ab")
    assert np.unique([len(str(repaired(i))) for i in range(10)]).tolist() == [1]


def records_of(store):
    """Return features with the vector beside each, as a sorted list of bytes."""
    shard = store._parts.shard
    vectors = shard.subject_table.targets.dense()
    pairs = zip(shard.index.features, vectors, strict=True)
    return sorted(x.tobytes() + v.tobytes() for x, v in pairs)


@pytest.mark.parametrize("target", store_tools.TARGETS)
def test_vectors_of_twins_stay_beside_their_records(tmp_path, target):
    """Fails if rows of the width of a vector are moved, or read, as rows of classes are."""
    path, who = tmp_path / "store", store_tools.PEOPLE
    with store_tools.make(path, target, noise_multiplier=8.0) as store:
        store.predict(Q[:6])
        before = records_of(store)
        left = [units(store, each) for each in who[:4:2]]
    respell(path, {who[0]: 5, who[2]: "5"})
    with pytest.raises(PrivacyRefused, match="vicinal merge-subjects"):
        Store.open(path)
    told = CliRunner().invoke(app, ["merge-subjects", str(path)])
    assert told.exit_code == 0, told.output
    with Store.open(path) as store:
        assert store.verify()
        assert records_of(store) == before
        assert units(store, 5) == joined(left)
        store.predict(Q[30:33])
        assert store.erase(["5"]) == 4, "two records of each twin"
        assert store.verify([5])
