"""Subject ids: all spellings of an id are one subject everywhere; different ids are distinct."""

import re
import unicodedata
from decimal import Decimal
from functools import partial
from itertools import product

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
from vicinal.cli.records import collect_subject_ids
from vicinal.datasets import load_images, load_table
from vicinal.datasets.id_lists import read_ids
from vicinal.distributed import Coordinator, split
from vicinal.distributed.transports import local_transports
from vicinal.errors import IdsAlike, InvalidInput, PrivacyWarning
from vicinal.labelling import IndKNNLabeller
from vicinal.ledger.id_encoding import find_similar_ids, fold_ids, frame_id, parse_framed_id
from vicinal.mechanisms.teachers import assign_teachers
from vicinal.predictors import IndKNNClassifier, PrivateKNNClassifier
from vicinal.predictors.inputs import FitInputs
from vicinal.serving.app import parse_subject_ids
from vicinal.store import Store
from vicinal.store.requests import normalize_name
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
    "decimal signalling nan": Decimal("sNaN"),  # its comparison raises InvalidOperation
    "numpy bool": np.True_, "bytes": b"a", "list": ["a"], "complex": 1j, "huge": 1 << 4000,
}  # fmt: skip
NAMED = {
    "empty": "empty", "blank before": "blanks", "line break after": "line break",
    "line break inside": "line break", "zero width": "invisible", "surrogate": "Unicode",
    "decimal point": "decimal point", "float": "floating-point", "nan": "missing",
    "none": "missing", "decimal nan": "missing", "decimal signalling nan": "missing",
}  # fmt: skip
DISTINCT = [
    5, "05", "-0", 0, "+5", -5, "5,", "A7", "a7", "\uff15", "\u0665", "e", "é", "ﬁ", "fi", "5e0",
    "0x5", "1_000", 1000, "1.5", "5.01", "None", "nan", "True", 2**63, -(2**63), "a b", "a  b",
]  # fmt: skip


@pytest.mark.parametrize("case", FAULTS)
def test_a_faulty_id_is_refused_by_the_name_of_its_fault_and_not_shown(case):
    with pytest.raises(InvalidInput, match=NAMED.get(case, "Got")) as refused:
        checks.check_subject_ids("subjects", ["fine", FAULTS[case]])
    assert "'subjects'" in str(refused.value)
    assert checks.describe_id_problem(FAULTS[case]) in str(refused.value)
    if isinstance(FAULTS[case], str) and len(FAULTS[case].strip()) > 1 and case != "decimal point":
        assert FAULTS[case].strip() not in str(refused.value)


def test_every_blank_and_every_invisible_character_is_refused():
    """Characters of all of Unicode that are displayed as nothing or as a blank."""
    for code in [*range(0xD800), *range(0xE000, 0x110000)]:
        character = chr(code)
        is_blank = unicodedata.category(character) in ("Zs", "Cf", "Cc", "Zl", "Zp")
        if is_blank and character != " ":
            assert checks.describe_text_problem(f"a{character}b"), hex(code)


def test_masked_ids_and_labels_are_refused_by_name(tmp_path):
    """Masked tables are refused in test_input_kinds.py, but for a list of masked rows."""
    masked = np.ma.masked_array(np.arange(30), Y == 0)
    rows = list(np.ma.masked_array(X, X > 1))
    fit = partial(IndKNNClassifier(range(3), n_records=30, **PLAN).fit, public=R)
    init = partial(Store.init, tmp_path / "store", **STORE)
    cases = {"subjects": (X, Y, masked), "y": (X, masked, None), "X": (rows, Y, None)}
    for (name, arguments), method in product(cases.items(), (fit, init)):
        with pytest.raises(InvalidInput, match=f"'{name}' parameter must not be a masked"):
            method(*arguments)


def test_distinct_ids_stay_distinct():
    canonical = checks.check_subject_ids("subjects", DISTINCT)
    assert len(set(canonical)) == len(DISTINCT)
    assert checks.check_subject_ids("subjects", canonical) == canonical


def list_spellings(subject_id):
    """Return objects that denote the same subject id."""
    texts = {unicodedata.normalize(form, str(subject_id)) for form in ("NFC", "NFD")}
    spellings = [*texts, *(np.str_(text) for text in texts)]
    if isinstance(subject_id, int) and abs(subject_id) < 2**62:
        spellings += [subject_id, np.int64(subject_id), np.array(subject_id)[()]]
    return spellings


TEXTS = st.text(st.characters(codec="utf-8"), min_size=1, max_size=12).filter(
    lambda text: checks.describe_id_problem(text) is None
)
NAMES = st.one_of(st.integers(), st.sampled_from(DISTINCT), TEXTS)


@given(NAMES, NAMES)
def test_spellings_of_one_id_are_one_and_ids_are_one_only_if_spelt_alike(first, second):
    first_id = checks.check_subject_id("subjects", first)
    second_id = checks.check_subject_id("subjects", second)
    parsed = [checks.check_subject_id("subjects", text) for text in list_spellings(first_id)]
    assert set(parsed) == {first_id}
    assert set(map(type, parsed)) == {type(first_id)}
    assert checks.check_subject_id("subjects", first_id) == first_id
    assert parse_framed_id(frame_id(first_id)) == first_id
    has_equal_text = unicodedata.normalize("NFC", str(first)) == (
        unicodedata.normalize("NFC", str(second))
    )
    assert (first_id == second_id) == has_equal_text


@pytest.mark.parametrize("dtype", [np.int8, np.int32, np.uint16, np.uint64, np.int64])
def test_numbers_of_every_width_are_the_same_people(dtype):
    assert checks.check_subject_ids("subjects", np.array([5, 6], dtype)) == [5, 6]
    assert checks.check_subject_ids("subjects", pa.array(np.array([5, 6], dtype))) == [5, 6]
    assert all(type(value) is int for value in checks.check_subject_ids("s", np.array([5], dtype)))


def test_numbers_of_more_than_64_bits_are_their_text():
    for large in ([2**63], np.array([2**63], np.uint64)):
        assert checks.check_subject_ids("s", large) == [str(2**63)]


# Tables.


def test_folders_of_people_are_the_same_people(tmp_path):
    image = Image.new("L", (4, 4))
    for subject_id in ("5", "07", "Zo\u0065\u0308"):
        (tmp_path / "label" / subject_id).mkdir(parents=True)
        image.save(tmp_path / "label" / subject_id / "i.png")
    subjects = checks.check_subject_ids("subjects", load_images(tmp_path).subjects)
    assert sorted(map(str, subjects)) == sorted(["5", "07", "Zo\u00eb"])


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


# Lists.


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


# Two worlds.

X, Y = points(30, 12)
STORE = {"classes": range(3), "public": R, "n_records": 30, **PLAN}
"""Parameters of a store of these records."""


def fit(subjects):
    classifier = IndKNNClassifier(range(3), n_records=30, **PLAN)
    classifier.fit(X, Y, subjects, public=R)
    classifier.predict(Q[:5])
    return classifier


def list_remaining_units(classifier):
    memory = classifier._engine.shard.ledger
    return sorted(memory.remaining[memory.list_slots(memory._slot_of)].tolist())


@settings(max_examples=20, deadline=None)
@given(
    st.lists(NAMES, min_size=1, max_size=6, unique_by=lambda subject: fold_ids([subject])[0]),
    st.data(),
)
def test_one_person_keeps_one_budget_however_the_id_is_spelt(names, data):
    subjects = list(dict.fromkeys(checks.check_subject_ids("subjects", names)))
    spelt = [
        data.draw(st.sampled_from(list_spellings(subjects[i % len(subjects)]))) for i in range(30)
    ]
    classifier = fit(spelt)
    remaining = list_remaining_units(classifier)
    assert len(remaining) == len(subjects)
    spellings = list_spellings(subjects[0])
    first, second, third = (data.draw(st.sampled_from(spellings)) for _ in range(3))
    classifier.add(X[:1], Y[:1], [first])
    assert list_remaining_units(classifier) == remaining
    assert classifier.erase([second]) == 2 + len(range(len(subjects), 30, len(subjects)))
    classifier.add(X[:1], Y[:1], [third])
    assert list_remaining_units(classifier) == remaining


@pytest.mark.parametrize("has_subjects", [True, False])
def test_records_with_and_without_subjects_do_not_mix(has_subjects):
    classifier = fit([f"p{i}" for i in range(30)] if has_subjects else None)
    with pytest.raises(InvalidInput, match="must be given" if has_subjects else "left out"):
        classifier.add(X[:1], Y[:1], None if has_subjects else ["p1"])
    classifier.add(X[:1], Y[:1], ["p1"] if has_subjects else None)


def test_other_methods_count_the_same_people():
    subjects = ["5", "Zo\u00eb", "a"] * 10
    spelt = ["5", "Zo\u0065\u0308", "a", 5, "Zo\u00eb", "a"] * 5
    ids = checks.check_subject_ids("subjects", spelt)
    assert FitInputs(np.zeros((len(ids), 1)), ids, None).slots[1] == 3
    assert len({tuple(assign_teachers(ids[i::3], bytes(32), 1000)) for i in range(3)}) == 3
    for estimator in (
        PrivateKNNClassifier(range(3), 2, 0.5, n_queries=5, simulation_seed=1),
        NoisySGDClassifier(range(3), n_steps=3, n_records=3, simulation_seed=1),
    ):
        columns = (subjects, ids, spelt)
        answers = [estimator.fit(X, Y, column).predict(Q[:5]).tolist() for column in columns]
        assert answers[0] == answers[1] == answers[2]


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
    subjects = [("5", "Zo\u00eb", "a7")[i % 3] for i in range(30)]
    path = tmp_path_factory.mktemp("ids") / "store"
    with Store.init(path, X, Y, subjects, **STORE) as store:
        store.predict(Q[:5])
        yield store


def read_by_csv(folder, subject_id):
    csv.write_csv(pa.table({"x": [0.0], "who": pa.array([str(subject_id)])}), folder / "who.csv")
    return load_table(folder / "who.csv", subject="who").subjects


def read_by_parquet(folder, subject_id):
    plain_type = int if isinstance(subject_id, int | np.integer) else str
    column = pa.array([plain_type(subject_id)])
    parquet.write_table(pa.table({"x": [0.0], "who": column}), folder / "who.parquet")
    return load_table(folder / "who.parquet", subject="who").subjects


def read_by_npz(folder, subject_id):
    np.savez(folder / "who.npz", x=np.zeros((1, 1)), subjects=np.array([subject_id]))
    return load_table(folder / "who.npz").subjects


def read_by_list(folder, subject_id):
    (folder / "who.txt").write_bytes(f"\ufeff0\r\n{subject_id}\r\n\r\n".encode())
    return read_ids(folder / "who.txt")[1:]


INTERFACES = (
    read_by_csv,
    read_by_parquet,
    read_by_npz,
    read_by_list,
    lambda _, subject_id: parse_subject_ids([subject_id]),  # of an HTTP request
    lambda _, subject_id: collect_subject_ids([str(subject_id)], None),  # of a command
    lambda _, subject_id: [subject_id],
)
UNUSUAL = {"", "NA", "N/A", "NaN", "nan", "null", "NULL", "None", ".", ".."}


@settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))
@given(name=NAMES, data=st.data())
def test_a_person_keeps_one_budget_through_every_door(store, tmp_path_factory, name, data):
    subject_id = checks.check_subject_id("subjects", name)
    text = str(subject_id)
    assume(not UNUSUAL & {text, *text.split("/")} and not set(text) & set(',;"'))
    assume(
        len(frame_id(subject_id)) < 300
        and frame_id(subject_id) not in map(frame_id, [5, "Zo\u00eb", "a7"])
    )
    folder = tmp_path_factory.mktemp("doors")

    def read_spelling():
        read = data.draw(st.sampled_from(INTERFACES))
        return read(folder, data.draw(st.sampled_from(list_spellings(subject_id))))

    # The id may be similar to ids of the store or of earlier examples, as "05" is to 5.
    store.add(X[:1], Y[:1], read_spelling(), ids_differ=True)
    store._store.ledger.audiences["default"].account.set_units(
        store._store.ledger.list_slots([subject_id]), np.array([12345]), store._store.ledger.size
    )
    store.add(X[1:2], Y[1:2], read_spelling())
    assert store.erase(read_spelling()) == 2
    store.add(X[:1], Y[:1], read_spelling())
    assert units(store, subject_id) == 12345
    assert not store.verify(read_spelling())
    assert store.erase(read_spelling()) == 1
    assert store.presence(read_spelling()) == Presence(0, 1, 0)


SIMILAR_IDS = ["0042", "042", "P 7", "p7", "P007", "stra\u00dfe", "STRASSE"]
KNOWN_IDS = [42, "P7", "Strasse", 0, *range(100, 126)]


@pytest.mark.parametrize("are_erased", [False, True])
def test_new_ids_that_differ_by_zeros_case_or_blanks_are_refused(tmp_path, are_erased):
    """Known ids are enrolled or erased, since before this opening or during it."""
    path = tmp_path / "store"
    Store.init(path, X, Y, KNOWN_IDS, **STORE).close()
    with Store.open(path) as store:
        if are_erased:
            store.erase(KNOWN_IDS)
            store.add(X[:1], Y[:1], ["somebody"])
    with Store.open(path) as store:
        for new, n_similar in (
            (SIMILAR_IDS, 7),
            (["0042", "0042", 42, "43", "00"], 2),
            ([*KNOWN_IDS[1:], "new"], 0),
        ):
            if not n_similar:
                store.add(X[: len(new)], Y[: len(new)], new)
                continue
            version = store.version
            private_facts = store.facts(curator=True)["private"]
            with pytest.raises(IdsAlike, match=f"{n_similar} of the new ids .* 'ids_differ' param"):
                store.add(X[: len(new)], Y[: len(new)], new)
            with pytest.raises(IdsAlike, match=f"{n_similar} of the new ids"):
                store.evaluate(X[: len(new)], Y[: len(new)], new, accept_noise=True)
            assert (store.version, store.facts(curator=True)["private"]) == (version, private_facts)
        store.add(X[:7], Y[:7], SIMILAR_IDS, ids_differ=True)
        store.add(X[:7], Y[:7], SIMILAR_IDS)
        with pytest.raises(IdsAlike):
            store.add(X[:1], Y[:1], ["00042"])
        assert store.verify()


TWINS = ["0815", "815", "Ann", "ann", "\uff17", 7, "one", "one"]


@pytest.mark.parametrize("shards", [0, 2])
def test_new_ids_that_are_alike_in_one_batch_are_refused(tmp_path, shards):
    """Fails if two spellings of a subject in one file get two budgets, in `init` or later."""
    path, ids = tmp_path / "store", [*TWINS, *range(100, 122)]
    with pytest.raises(IdsAlike, match=r"6 of the new ids .* from each other"):
        Store.init(path, X, Y, ids, **STORE)
    assert not path.exists()
    Store.init(tmp_path / "meant", X, Y, ids, ids_differ=True, **STORE).close()
    holder = Store.init(path, X, Y, KNOWN_IDS, **STORE)
    if shards:
        holder.close()
        split(path, tmp_path / "cluster", shards)
        holder = Coordinator.open(tmp_path / "cluster", local_transports)
    with holder as store:
        for method in (store.add, partial(store.evaluate, accept_noise=True)):
            with pytest.raises(IdsAlike, match="6 of the new ids"):
                method(X[:8], Y[:8], TWINS)
        assert store.presence(TWINS).enrolled == 0
        store.add(X[:8], Y[:8], TWINS, ids_differ=True)
        store.add(X[:8], Y[:8], TWINS)


def test_estimators_warn_of_similar_ids():
    with pytest.warns(PrivacyWarning, match="differ from others in spelling only") as warned:
        fit(["Ann", "\u0410nn", *range(28)])
    assert "Ann" not in str(warned[0].message)
    assert warned[0].filename == __file__
    classifier = fit(["Ann", "+x", *range(28)])
    classifier.erase(["Ann"])
    for similar_ids in (["\u0410nn"], ["5e0"], ["new", "New"]):
        with pytest.warns(PrivacyWarning, match="differ from others in spelling only") as warned:
            classifier.add(X[: len(similar_ids)], Y[: len(similar_ids)], similar_ids)
        assert warned[0].filename == __file__
    classifier.add(X[:3], Y[:3], ["Ann", "other", 5])
    with pytest.warns(PrivacyWarning, match="differ from others in spelling only"):
        classifier.add(X[:1], Y[:1], ["Other"])


def test_whoever_was_only_evaluated_is_not_new_in_another_spelling(tmp_path):
    with Store.init(tmp_path / "store", X, Y, KNOWN_IDS, **STORE) as store:
        store.predict(X[:2])
        store.evaluate(X[:2], Y[:2], ["Visitor 7", "somebody"], accept_noise=True)
        for spelling in ("visitor07", "VISITOR \uff17"):
            with pytest.raises(IdsAlike):
                store.add(X[:1], Y[:1], [spelling])


def test_case_and_width_never_make_two_people():
    letters = [chr(code) for code in range(0x110000) if chr(code).isalpha()]
    letters = [letter for letter in letters if unicodedata.is_normalized("NFC", letter)]
    for change in (str.upper, str.lower, str.title, partial(unicodedata.normalize, "NFKC")):
        spellings = {letter: unicodedata.normalize("NFC", change(letter)) for letter in letters}
        changed = [letter for letter in letters if spellings[letter] != letter]
        assert fold_ids(spellings[letter] for letter in changed) == fold_ids(changed)


SPELLINGS = {
    "digits of other scripts": ["P12", "P\u0661\u0662", "p\u0967\u0968", "P\uff11\uff12"],
    "dashes": ["A-7", *(f"A{dash}7" for dash in "\u2010\u2011\u2013\u2014\u2212\ufe63\u02d7")],
    "quotes": ["O'Neil", *(f"O{mark}Neil" for mark in '\u2019\u2018`\u00b4\u02bc\u02bb\u05f3"')],
    "apostrophes of CSV files": ["@anna", "'@anna", "\u2019@Anna", "`@anna"],
    "apostrophes before signs": ["+49 170 123", "'+49 170 123", "'+49170123", "''+49170123"],
    "apostrophes before a minus": ["-x", "'-x", "\u2013x", "'\u2013x"],
    "apostrophes before an equals sign": ["=a", "'=a"],
    "apostrophes before numbers": [-5, "'-5", "'-5.0e0", "'-05"],
    "zeros of exponents": ["5.31e+002", "5.31E+02", "5.31e2", "5.31e0002", 531],
    "exponents with zeros": ["5e1", "5e001", "05e1", "5e+01", 50],
    "zeros with signs": [0, "-0", "+0", "-00", "-0e0"],
    "fractions": ["0.5", ".5", "0.50", "+.5", "5e-1", "50e-02"],
    "small fractions": ["-0.010", "-.01", "-1e-2", "-10e-003"],
    "negative numbers": [-531, "-5.31e2", "-0531", "\u2212531"],
    "numbers": [531, "+531", "531e0", "5.31e2", "53.1e1", "00531", "531.00e0", "5\u0663\u0661"],
    "Cyrillic and Greek": [
        "HAPPY", "\u041d\u0410\u0420\u0420\u0423", "\u0397\u0391\u03a1\u03a1\u03a5",
    ],
    "Persian joiner": ["\u0645\u06cc\u200c\u062e\u0648", "\u0645\u06cc\u062e\u0648"],
    "Indic joiners": ["\u0915\u094d\u200d\u0937", "\u0915\u094d\u0937", "\u0915\u094d\u200c\u0937"],
}  # fmt: skip


@pytest.mark.quick
@pytest.mark.parametrize("kind", SPELLINGS)
def test_spellings_of_one_subject_fold_alike(kind):
    ids = checks.check_subject_ids("subjects", SPELLINGS[kind])
    assert len(set(fold_ids(ids))) == 1
    assert len({fold_ids([subject])[0] for subject in ids}) == 1  # ASCII ids fold on another path.
    assert find_similar_ids(ids) == set(ids)


def test_codes_like_numbers_are_similar_to_their_value_only():
    codes = [
        "12E3", "12F3", "12E4", "13E3", 123, 1203, 12, "E3", "12E", "12E3A", "A12E3", "12E-3",
        "12E103", "1E99", "1E100", "1E999999999", "5e1", "-5e1", "0.05e1", "0.5e1", "0.010", 1,
    ]  # fmt: skip
    ids = checks.check_subject_ids("subjects", codes)
    assert not find_similar_ids(ids)
    assert find_similar_ids([*ids, 12000]) == {"12E3", 12000}
    assert find_similar_ids([*ids, "012e03"]) == {"12E3", "012e03"}
    assert max(map(len, fold_ids(ids))) == 100


def fold_simply(text):
    """Return a text without leading zeros, case, blanks and width, as ids were once compared."""
    text = unicodedata.normalize("NFKD", unicodedata.normalize("NFD", text).casefold())
    text = unicodedata.normalize("NFKD", text.replace(" ", "").casefold())
    return re.sub("(?<![0-9])0+(?=[0-9])", "", text)


def has_value_of_its_own(text):
    """Return whether a text is like 1.05e2, no spelling of 1.5e2, its equal without zeros."""
    plain = unicodedata.normalize("NFKC", text).casefold().replace(" ", "")
    return re.fullmatch("'*[+-]?[0-9]*[.]0+[0-9]+e[+-]?[0-9]+", plain) is not None


def test_numbers_without_leading_zeros_stay_similar():
    """Fails if a rule for numbers separates ids that are equal without leading zeros."""
    texts = ["".join(text) for size in range(1, 6) for text in product("01e+-.", repeat=size)]
    ids = [text for text in texts if not checks.describe_id_problem(text)]
    ids = [text for text in ids if not has_value_of_its_own(text)]
    folded_of = {}
    for text, folded in zip(ids, fold_ids(ids), strict=True):
        assert folded_of.setdefault(fold_simply(text), folded) == folded, text


@given(st.data())
def test_case_blanks_width_and_zeros_stay_similar(data):
    """Fails if a newer rule separates ids that are equal without these differences."""
    text = data.draw(st.text("0159eExKs+-.,'@= \u00e9\uff15\uff0e\uff2b", min_size=1))
    narrow = partial(unicodedata.normalize, "NFKC")
    changes = [str, str.swapcase, narrow, " {}".format, "0{}".format]
    spelling = "".join(data.draw(st.sampled_from(changes))(character) for character in text)
    ids = [unicodedata.normalize("NFC", spelled.strip(" ")) for spelled in (text, spelling)]
    assume(not any(map(checks.describe_id_problem, ids)))
    assume(len(set(map(fold_simply, ids))) == 1)
    assume(not any(map(has_value_of_its_own, ids)))
    assert len(set(fold_ids(ids))) == 1


@given(
    st.lists(st.from_regex(r"[a-z]{1,4}[1-9][0-9]{0,3}", fullmatch=True), unique=True, max_size=9)
)
def test_different_plain_ids_fold_differently(ids):
    assert len(set(fold_ids(ids))) == len(ids)


@pytest.mark.parametrize(
    "text",
    [
        *("a\u200cb", "\u0645\u200c", "\u200c\u0645", "5\u200d6", "\u0645\u200d\u06cc"),
        *("\u061f\u200c\u0645", "\u0645\u200c\u061f", "\u0645\u200ca", "a\u200c\u0645"),
        "\u0645\u200c\u200c\u06cc",
    ],
)
def test_joiners_elsewhere_are_refused(text):
    assert "invisible" in checks.describe_id_problem(text)


@pytest.mark.parametrize("kind", ["Persian joiner", "Indic joiners"])
def test_names_have_no_joiners(kind):
    """Fails if two names that look alike have a quota each, as names are not folded."""
    name, _ = SPELLINGS[kind][:2]
    assert checks.describe_id_problem(name) is None
    with pytest.raises(InvalidInput, match="invisible"):
        normalize_name("analyst", name)


@given(st.lists(NAMES, min_size=1, max_size=4), st.lists(NAMES, min_size=1, max_size=4))
def test_ids_fold_as_each_alone(first, second):
    ids = checks.check_subject_ids("subjects", [*first, *second])
    assert fold_ids(ids) == [folded for subject_id in ids for folded in fold_ids([subject_id])]
    assert fold_ids(fold_ids(ids)) == fold_ids(ids)


def test_a_store_takes_records_with_subjects_if_its_first_had_some(store):
    with pytest.raises(InvalidInput, match="must be given"):
        store.add(X[:1], Y[:1])
    assert store.facts(curator=True)["private"]["subjects"] == 3
