"""One person, one identity: every spelling of an id through every door, and no two people one."""

import unicodedata
from decimal import Decimal
from functools import partial

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from PIL import Image
from pyarrow import csv, parquet

from store_tools import PLAN, Q, R, points, units
from vicinal import checks
from vicinal.baselines import NoisySGDClassifier
from vicinal.cli.records import listed_ids
from vicinal.datasets import load_images, load_table
from vicinal.datasets.id_lists import read_ids
from vicinal.distributed import Coordinator, split
from vicinal.distributed.transports import local_transports
from vicinal.errors import IdsAlike, InvalidInput
from vicinal.features import PublicMap
from vicinal.labelling import IndKNNLabeller
from vicinal.ledger.id_encoding import fold_ids, frame_id, parse_framed_id
from vicinal.mechanisms.teachers import teachers_of
from vicinal.predictors import (
    IndKNNClassifier,
    IndKNNMultiLabelClassifier,
    IndKNNRegressor,
    PrivateKNNClassifier,
)
from vicinal.predictors.inputs import FitInputs
from vicinal.serving.app import checked_ids
from vicinal.store import Store
from vicinal.store.status import Presence

FAULTS = {
    "empty": "", "blank before": " 5", "blank after": "5 ", "wide blank": "\u3000a",
    "line break after": "a\n", "line break inside": "a\nb", "tab": "a\tb", "zero byte": "a\0b",
    "delete": "a\x7fb", "next line": "a\x85b", "line separator": "a\u2028b",
    "byte order mark": "\ufeffa", "zero width": "a\u200bb", "right to left": "a\u202eb",
    "undecodable": "M\ufffdller",
    "variation": "a\ufe0fb", "joiner": "a\u034fb", "filler": "a\u3164b", "Hangul": "a\u115fb",
    "Braille": "a\u2800b", "tag": "a\U000e0041b", "selector": "a\U000e0100b",
    "no break": "a\xa0b", "narrow": "a\u202fb", "wide": "a\u3000b",
    "surrogate": "a\ud800", "not in Unicode": "a\U000e0fff", "decimal point": "5.0",
    "point alone": "-5.", "float": 5.0, "numpy float": np.float64(5), "nan": float("nan"),
    "none": None, "decimal": Decimal("5"), "decimal nan": Decimal("NaN"), "bool": True,
    "numpy bool": np.True_, "bytes": b"a", "list": ["a"], "complex": 1j, "huge": 1 << 4000,
}  # fmt: skip
NAMED = {
    "empty": "empty", "blank before": "blanks", "line break after": "line break",
    "line break inside": "line break", "zero width": "invisible", "surrogate": "Unicode",
    "decimal point": "decimal point", "float": "floating-point", "nan": "missing",
    "none": "missing", "decimal nan": "missing",
}  # fmt: skip
DISTINCT = [
    5, "05", "-0", 0, "+5", -5, "5,", "A7", "a7", "\uff15", "\u0665", "e", "é", "ﬁ", "fi", "5e0",
    "0x5", "1_000", 1000, "1.5", "5.01", "None", "nan", "True", 2**63, -(2**63), "a b", "a  b",
]  # fmt: skip


@pytest.mark.parametrize("case", FAULTS)
def test_a_faulty_id_is_refused_by_the_name_of_its_fault_and_not_shown(case):
    with pytest.raises(InvalidInput, match=NAMED.get(case, "Got")) as refused:
        checks.subject_ids("subjects", ["fine", FAULTS[case]])
    assert "'subjects'" in str(refused.value)
    assert checks.id_fault(FAULTS[case]) in str(refused.value)
    if isinstance(FAULTS[case], str) and len(FAULTS[case].strip()) > 1 and case != "decimal point":
        assert FAULTS[case].strip() not in str(refused.value)


def test_every_blank_and_every_invisible_character_is_refused():
    """All characters of Unicode: what prints as nothing, or as a blank, makes no other id."""
    for code in [*range(0xD800), *range(0xE000, 0x110000)]:
        one = chr(code)
        if unicodedata.category(one) in ("Zs", "Cf", "Cc", "Zl", "Zp") and one != " ":
            assert checks.text_fault(f"a{one}b"), hex(code)


def test_who_is_behind_a_mask_is_refused_by_name(tmp_path):
    classifier = IndKNNClassifier(range(3), n_records=30, **PLAN)
    features, labels = np.ma.masked_array(X, X > 1), np.ma.masked_array(Y, Y == 0)
    people = np.ma.masked_array(np.arange(30), Y == 0)
    for name, arguments in {
        "subjects": (X, Y, people), "y": (X, labels, None), "X": (features, Y, None),
    }.items():  # fmt: skip
        with pytest.raises(InvalidInput, match=f"'{name}' parameter must not be a masked"):
            classifier.fit(*arguments, public=R)
        with pytest.raises(InvalidInput, match=f"'{name}' parameter must not be a masked"):
            Store.init(tmp_path / "s", *arguments, classes=range(3), public=R, n_records=30, **PLAN)
    with pytest.raises(InvalidInput, match="'public' parameter must not be a masked"):
        classifier.fit(X, Y, public=np.ma.masked_array(R, R > 1))
    with pytest.raises(InvalidInput, match="'X' parameter must not be a masked"):
        classifier.fit(list(features), Y, public=R)
    with pytest.raises(InvalidInput, match="'X' parameter must not be a masked"):
        PublicMap(2).fit(features)
    for target in (IndKNNRegressor(bounds=(0, 3)), IndKNNMultiLabelClassifier(["a", "b"])):
        with pytest.raises(InvalidInput, match="'y' parameter must not be a masked"):
            target.set_params(n_records=30).fit(X, labels, public=R)


def test_distinct_ids_stay_distinct():
    found = checks.subject_ids("subjects", DISTINCT)
    assert len(set(found)) == len(DISTINCT)
    assert checks.subject_ids("subjects", found) == found


def spellings(name):
    """Return what a person may bring as one id."""
    texts = {unicodedata.normalize(form, str(name)) for form in ("NFC", "NFD")}
    found = [*texts, *(np.str_(text) for text in texts)]
    if isinstance(name, int) and abs(name) < 2**62:
        found += [name, np.int64(name), np.array(name)[()]]
    return found


TEXTS = st.text(st.characters(codec="utf-8"), min_size=1, max_size=12).filter(
    lambda text: checks.id_fault(text) is None
)
NAMES = st.one_of(st.integers(), st.sampled_from(DISTINCT), TEXTS)


@given(NAMES, NAMES)
def test_spellings_of_one_id_are_one_and_ids_are_one_only_if_spelt_alike(one, other):
    name, another = (checks.subject_id("subjects", each) for each in (one, other))
    assert {checks.subject_id("subjects", each) for each in spellings(name)} == {name}
    assert {type(checks.subject_id("subjects", each)) for each in spellings(name)} == {type(name)}
    assert checks.subject_id("subjects", name) == name
    assert parse_framed_id(frame_id(name)) == name
    alike = unicodedata.normalize("NFC", str(one)) == unicodedata.normalize("NFC", str(other))
    assert (name == another) == alike


class Column:
    """A column as pandas has it: text, numbers and gaps in one, and a tolist."""

    def __init__(self, values):
        self.values = values

    def __iter__(self):
        return iter(self.values)

    def tolist(self):
        return self.values


COLUMNS = {
    "list": lambda ids: ids,
    "tuple": tuple,
    "generator": lambda ids: (each for each in ids),
    "NumPy text": lambda ids: np.array([str(each) for each in ids]),
    "NumPy objects": lambda ids: np.array(ids, dtype=object),
    "Arrow": lambda ids: pa.array([str(each) for each in ids]),
    "Arrow in parts": lambda ids: pa.chunked_array([[str(each)] for each in ids]),
    "Arrow dictionary": lambda ids: pa.array([str(each) for each in ids]).dictionary_encode(),
    "pandas": Column,
}
MIXED = [5, 6, "A7", "Zo\u0065\u0308", "07"]
ONE_FORM = [5, 6, "A7", "Zo\u00eb", "07"]


@pytest.mark.parametrize("kind", COLUMNS)
def test_every_column_means_the_same_people(kind):
    assert checks.subject_ids("subjects", COLUMNS[kind](MIXED)) == ONE_FORM


@pytest.mark.parametrize("dtype", [np.int8, np.int32, np.uint16, np.uint64, np.int64])
def test_numbers_of_every_width_are_the_same_people(dtype):
    assert checks.subject_ids("subjects", np.array([5, 6], dtype)) == [5, 6]
    assert checks.subject_ids("subjects", pa.array(np.array([5, 6], dtype))) == [5, 6]
    assert all(type(each) is int for each in checks.subject_ids("s", np.array([5], dtype)))


def test_numbers_of_more_than_64_bits_are_their_text():
    large = np.array([2**63], np.uint64)
    assert checks.subject_ids("s", large) == checks.subject_ids("s", [2**63]) == [str(2**63)]


# ---------------------------------------------------------------- tables


def tables(folder, ids):
    """Yield a file of every kind that names these people."""
    texts = [str(each) for each in ids]
    features = pa.array(np.arange(float(len(ids))))
    for name, column in {
        "strings": pa.array(texts), "large": pa.array(texts, pa.large_string()),
        "dictionary": pa.array(texts).dictionary_encode(),
    }.items():  # fmt: skip
        parquet.write_table(pa.table({"x": features, "who": column}), folder / f"{name}.parquet")
        yield folder / f"{name}.parquet"
    csv.write_csv(pa.table({"x": features, "who": pa.array(texts)}), folder / "t.csv")
    yield folder / "t.csv"
    np.savez(folder / "t.npz", x=np.zeros((len(ids), 1)), subjects=np.array(texts))
    yield folder / "t.npz"


def test_files_of_every_kind_name_the_same_people(tmp_path):
    for path in tables(tmp_path, MIXED):
        named = {} if path.suffix == ".npz" else {"subject": "who"}
        found = load_table(path, **named).subjects
        assert checks.subject_ids("subjects", found) == ONE_FORM, path.name
    whole = pa.table({"x": [0.0, 1.0], "who": pa.array([5, 6], pa.uint32())})
    parquet.write_table(whole, tmp_path / "whole.parquet")
    found = load_table(tmp_path / "whole.parquet", subject="who").subjects
    assert found.dtype == np.int64


def test_folders_of_people_are_the_same_people(tmp_path):
    image = Image.new("L", (4, 4))
    for who in ("5", "07", "Zo\u0065\u0308"):
        (tmp_path / "label" / who).mkdir(parents=True)
        image.save(tmp_path / "label" / who / "i.png")
    found = checks.subject_ids("subjects", load_images(tmp_path).subjects)
    assert sorted(map(str, found)) == sorted(["5", "07", "Zo\u00eb"])


@pytest.mark.parametrize(
    "column",
    [
        pa.array(["canary", None, "b", ""]), pa.array([1, None, 2, None]),
        pa.array([1.0, float("nan"), 2.0, None]), pa.array(["canary", "NA", "nan", "b"]),
    ],
)  # fmt: skip
def test_missing_ids_are_refused_and_neither_counted_nor_shown(tmp_path, column):
    parquet.write_table(pa.table({"x": np.zeros(4), "who": column}), tmp_path / "t.parquet")
    with pytest.raises(InvalidInput, match="has rows without an id") as refused:
        load_table(tmp_path / "t.parquet", subject="who")
    assert "canary" not in str(refused.value)
    assert not any(character.isdigit() for character in str(refused.value))


def test_whole_numbers_that_became_floats_are_refused(tmp_path):
    parquet.write_table(pa.table({"x": [0.0], "who": [5.0]}), tmp_path / "t.parquet")
    (tmp_path / "t.csv").write_text("x,who\n0,5.0\n")
    for path in ("t.parquet", "t.csv"):
        with pytest.raises(InvalidInput, match=r"floating-point|decimal point"):
            load_table(tmp_path / path, subject="who")


# ---------------------------------------------------------------- lists


@pytest.mark.parametrize(
    "content",
    [
        b"5\n07\nZo\xc3\xab\n", b"5\r\n07\r\nZo\xc3\xab\r\n", b"5\r07\rZo\xc3\xab",
        b"\xef\xbb\xbf5\n07\nZoe\xcc\x88", b"5\n07\nZo\xc3\xab\n\n\r\n\n",
    ],
)  # fmt: skip
def test_lists_of_ids_are_read_whoever_wrote_them(tmp_path, content):
    (tmp_path / "ids").write_bytes(content)
    assert read_ids(tmp_path / "ids") == [5, "07", "Zo\u00eb"]


@pytest.mark.parametrize(
    ("content", "line"),
    [
        ("subject\n5\n6\n", 1), ("Patient ID\n5\n", 1), ("canary\n5\n6\n", 1), ("id\n", 1),
        ("5\n6,canary\n", 2), ("5\n6;canary\n", 2), ('5\n"6"\n', 2), ("5\n\n6\n", 2),
        ("5\ncanary \n", 2), ("5\n canary\n", 2), ("5\ncan\tary\n", 2), ("5\n6\n7.0\n", 3),
        ("5\ncan\u200bary\n", 2), ("5\ncan\x00ary\n", 2), ("5\x0b6\n", 1), ("5\u20286\n", 1),
    ],
)  # fmt: skip
def test_lists_are_refused_with_the_lines_number_and_never_what_it_says(tmp_path, content, line):
    (tmp_path / "ids").write_text(content, encoding="utf-8")
    with pytest.raises(InvalidInput, match=f"Line {line} of") as refused:
        read_ids(tmp_path / "ids")
    assert "canary" not in str(refused.value)


@pytest.mark.parametrize("content", [b"", b"\n\n", b"\xef\xbb\xbf", b"\xff\xfe5\x00", b"a\xff\n"])
def test_lists_without_ids_or_in_another_coding_are_refused(tmp_path, content):
    (tmp_path / "ids").write_bytes(content)
    with pytest.raises(InvalidInput, match=r"holds no id|UTF-8|Line 1"):
        read_ids(tmp_path / "ids")


# ---------------------------------------------------------------- two worlds

X, Y = points(30, 12)


def fitted(people):
    classifier = IndKNNClassifier(range(3), n_records=30, **PLAN)
    classifier.fit(X, Y, people, public=R)
    classifier.predict(Q[:5])
    return classifier


def left(classifier):
    ledger = classifier._engine.shard.ledger
    return sorted(ledger.remaining[ledger.slots(ledger._slot_of)].tolist())


@settings(max_examples=20, deadline=None)
@given(st.lists(NAMES, min_size=1, max_size=6, unique_by=str), st.data())
def test_one_person_keeps_one_budget_however_the_id_is_spelt(names, data):
    people = list(dict.fromkeys(checks.subject_ids("subjects", names)))
    spelt = [data.draw(st.sampled_from(spellings(people[i % len(people)]))) for i in range(30)]
    classifier = fitted(spelt)
    before = left(classifier)
    assert len(before) == len(people)
    who = people[0]
    one, other, third = (data.draw(st.sampled_from(spellings(who))) for _ in range(3))
    classifier.add(X[:1], Y[:1], [one])
    assert left(classifier) == before
    assert classifier.erase([other]) == 2 + len(range(len(people), 30, len(people)))
    classifier.add(X[:1], Y[:1], [third])
    assert left(classifier) == before


@pytest.mark.parametrize("given", [True, False])
def test_records_with_and_without_subjects_do_not_mix(given):
    classifier = fitted([f"p{i}" for i in range(30)] if given else None)
    with pytest.raises(InvalidInput, match="must be given" if given else "left out"):
        classifier.add(X[:1], Y[:1], None if given else ["p1"])
    classifier.add(X[:1], Y[:1], ["p1"] if given else None)


def test_other_methods_count_the_same_people():
    people = [("5", "Zo\u00eb", "a")[i % 3] for i in range(30)]
    spelt = [(5, "Zo\u0065\u0308", "a")[i % 3] if i % 2 else who for i, who in enumerate(people)]
    ids = checks.subject_ids("subjects", spelt)
    assert FitInputs(np.zeros((len(ids), 1)), ids, None).slots[1] == 3
    assert len({tuple(teachers_of(ids[i::3], bytes(32), 1000)) for i in range(3)}) == 3
    for make in (
        lambda: PrivateKNNClassifier(range(3), 2, 0.5, n_queries=5, simulation_seed=1),
        lambda: NoisySGDClassifier(range(3), n_steps=3, n_records=3, simulation_seed=1),
    ):
        fits = [make().fit(X, Y, each).predict(Q[:5]).tolist() for each in (people, ids, spelt)]
        assert fits[0] == fits[1] == fits[2]


def test_labellers_know_the_same_people_by_one_digest():
    labels = list(Y[:4])
    digests = {
        IndKNNLabeller(range(3), labels, subjects).digest()
        for subjects in ([5, 6, 7, 8], ["5", "6", "7", "8"], np.array([5, 6, 7, 8], np.int16))
    }
    assert len(digests) == 1
    assert IndKNNLabeller(range(3), labels, ["05", "6", "7", "8"]).digest() not in digests


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    people = [("5", "Zo\u00eb", "a7")[i % 3] for i in range(30)]
    path = tmp_path_factory.mktemp("ids") / "store"
    with Store.init(path, X, Y, people, classes=range(3), public=R, n_records=30, **PLAN) as made:
        made.predict(Q[:5])
        yield made


@pytest.mark.parametrize("who", [5, "Zo\u00eb"])
def test_a_store_knows_a_person_by_every_spelling(store, who):
    def remaining():
        book = store._parts.ledger
        return int(book.audiences["default"].account.remaining[book.slots([who])][0])

    before = remaining()
    for spelling in spellings(who):
        assert store.presence([spelling, spelling]) == Presence(1, 0, 0)
        store.add(X[:1], Y[:1], [spelling])
        assert remaining() == before
        assert not store.verify([spelling])
        assert store.erase([spelling])
        assert store.presence(spellings(who)) == Presence(0, 1, 0)
        store.add(X[:1], Y[:1], [spelling])
        assert remaining() == before


def by_csv(folder, who):
    csv.write_csv(pa.table({"x": [0.0], "who": pa.array([str(who)])}), folder / "who.csv")
    return load_table(folder / "who.csv", subject="who").subjects


def by_parquet(folder, who):
    column = pa.array([int(who) if isinstance(who, int | np.integer) else str(who)])
    parquet.write_table(pa.table({"x": [0.0], "who": column}), folder / "who.parquet")
    return load_table(folder / "who.parquet", subject="who").subjects


def by_npz(folder, who):
    np.savez(folder / "who.npz", x=np.zeros((1, 1)), subjects=np.array([who]))
    return load_table(folder / "who.npz").subjects


def by_list(folder, who):
    (folder / "who.txt").write_bytes(f"\ufeff0\r\n{who}\r\n\r\n".encode())
    return read_ids(folder / "who.txt")[1:]


def by_http(_, who):
    return checked_ids([who])


def by_command(_, who):
    return listed_ids([str(who)], None)


DOORS = (by_csv, by_parquet, by_npz, by_list, by_http, by_command, lambda _, who: [who])
UNUSUAL = {"", "NA", "N/A", "NaN", "nan", "null", "NULL", "None", ".", ".."}


@settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))
@given(name=NAMES, data=st.data())
def test_a_person_keeps_one_budget_through_every_door(store, tmp_path_factory, name, data):
    who = checks.subject_id("subjects", name)
    text = str(who)
    assume(not UNUSUAL & {text, *text.split("/")} and not set(text) & set(',;"'))
    assume(len(frame_id(who)) < 300 and frame_id(who) not in map(frame_id, [5, "Zo\u00eb", "a7"]))
    folder = tmp_path_factory.mktemp("doors")

    def spelt():
        door = data.draw(st.sampled_from(DOORS))
        return door(folder, data.draw(st.sampled_from(spellings(who))))

    store.add(X[:1], Y[:1], spelt())
    store._parts.ledger.audiences["default"].account.assign(
        store._parts.ledger.slots([who]), np.array([12345]), store._parts.ledger.size
    )
    store.add(X[1:2], Y[1:2], spelt())
    assert store.erase(spelt()) == 2
    store.add(X[:1], Y[:1], spelt())
    assert units(store, who) == 12345
    assert store.erase(spelt()) == 1
    assert store.presence(spelt()) == Presence(0, 1, 0)


ALIKE = ["0042", "042", "P 7", "p7", "P007", "stra\u00dfe", "STRASSE"]
KNOWN = [42, "P7", "Strasse", 0, *range(100, 126)]


@pytest.mark.parametrize("gone", [False, True])
def test_new_ids_that_differ_by_zeros_case_or_blanks_are_refused(tmp_path, gone):
    """Whoever is known, here or erased, before this opening or after it."""
    path = tmp_path / "store"
    Store.init(path, X, Y, KNOWN, classes=range(3), public=R, n_records=30, **PLAN).close()
    with Store.open(path) as store:
        if gone:
            store.erase(KNOWN)
            store.add(X[:1], Y[:1], ["somebody"])
    with Store.open(path) as store:
        for new, n_alike in (
            (ALIKE, 7),
            (["0042", "0042", 42, "43", "00"], 2),
            ([*KNOWN[1:], "new"], 0),
        ):
            if not n_alike:
                store.add(X[: len(new)], Y[: len(new)], new)
                continue
            version, before = store.version, store.facts(curator=True)["private"]
            with pytest.raises(IdsAlike, match=f"{n_alike} of the new ids .* 'ids_differ' param"):
                store.add(X[: len(new)], Y[: len(new)], new)
            with pytest.raises(IdsAlike, match=f"{n_alike} of the new ids"):
                store.evaluate(X[: len(new)], Y[: len(new)], new, accept_noise=True)
            assert (store.version, store.facts(curator=True)["private"]) == (version, before)
        store.add(X[:7], Y[:7], ALIKE, ids_differ=True)
        store.add(X[:7], Y[:7], ALIKE)
        with pytest.raises(IdsAlike):
            store.add(X[:1], Y[:1], ["00042"])
        assert store.verify()


TWINS = ["0815", "815", "Ann", "ann", "\uff17", 7, "one", "one"]


@pytest.mark.parametrize("shards", [0, 2])
def test_new_ids_that_are_alike_in_one_batch_are_refused(tmp_path, shards):
    """Fails if a file that writes people in two ways gives them two budgets, at first or later."""
    plan = {"classes": range(3), "public": R, "n_records": 30, **PLAN}
    path, ids = tmp_path / "store", [*TWINS, *range(100, 122)]
    with pytest.raises(IdsAlike, match=r"6 of the new ids .* from each other"):
        Store.init(path, X, Y, ids, **plan)
    assert not path.exists()
    Store.init(tmp_path / "meant", X, Y, ids, ids_differ=True, **plan).close()
    Store.init(path, X, Y, KNOWN, **plan).close()
    if shards:
        split(path, tmp_path / "cluster", shards)
    opened = (
        Coordinator.open(tmp_path / "cluster", local_transports) if shards else Store.open(path)
    )
    with opened as store:
        for work in (store.add, partial(store.evaluate, accept_noise=True)):
            with pytest.raises(IdsAlike, match="6 of the new ids"):
                work(X[:8], Y[:8], TWINS)
        assert store.presence(TWINS).enrolled == 0
        store.add(X[:8], Y[:8], TWINS, ids_differ=True)
        store.add(X[:8], Y[:8], TWINS)


def test_whoever_was_only_evaluated_is_not_new_in_another_spelling(tmp_path):
    with Store.init(
        tmp_path / "store", X, Y, KNOWN, classes=range(3), public=R, n_records=30, **PLAN
    ) as store:
        store.predict(X[:2])
        store.evaluate(X[:2], Y[:2], ["Visitor 7", "somebody"], accept_noise=True)
        for spelling in ("visitor07", "VISITOR \uff17"):
            with pytest.raises(IdsAlike):
                store.add(X[:1], Y[:1], [spelling])


def test_case_and_width_never_make_two_people():
    letters = [chr(code) for code in range(0x110000) if chr(code).isalpha()]
    letters = [one for one in letters if unicodedata.is_normalized("NFC", one)]
    for change in (str.upper, str.lower, str.title, partial(unicodedata.normalize, "NFKC")):
        others = [unicodedata.normalize("NFC", change(one)) for one in letters]
        assert fold_ids(others) == fold_ids(letters)


@given(st.lists(NAMES, min_size=1, max_size=4), st.lists(NAMES, min_size=1, max_size=4))
def test_ids_fold_as_each_alone(some, others):
    ids = checks.subject_ids("subjects", [*some, *others])
    assert fold_ids(ids) == [one for each in ids for one in fold_ids([each])]
    assert fold_ids(fold_ids(ids)) == fold_ids(ids)


def test_a_store_takes_records_with_subjects_if_its_first_had_some(store):
    with pytest.raises(InvalidInput, match="must be given"):
        store.add(X[:1], Y[:1])
    assert store.facts(curator=True)["private"]["subjects"] == 3
