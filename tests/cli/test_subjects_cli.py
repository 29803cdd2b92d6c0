"""Erasing by the command line and by HTTP: whatever the list looks like, nobody stays unnoticed."""

from urllib.parse import quote

import pytest

import serving_tools
from command_line import shown as run
from command_line import write_table
from store_tools import PLAN, R, points
from vicinal.cli.records import describe_missing_subjects
from vicinal.distributed import split
from vicinal.store import Store
from vicinal.store.status import Presence
from vicinal.store.store_schema import StoreExtractor

X, Y = points(40, 3)
PEOPLE = [*range(1, 39), "A7", "Zo\u00eb"]


@pytest.fixture
def path(tmp_path):
    settings = {"classes": range(3), "public": R, "n_records": 40, **PLAN}
    Store.init(tmp_path / "store", X, Y, PEOPLE, **settings).close()
    return tmp_path / "store"


def people(path):
    with Store.open(path) as store:
        return set(store._store.ledger.slot_table.slot_of)


def test_one_odd_id_in_a_table_makes_nobody_new(path, tmp_path):
    more = write_table(tmp_path / "more.csv", X[:3], y=Y[:3], who=["5", "6", "B7"])
    run("add", path, data=more, label="y", subject="who")
    assert people(path) == {*PEOPLE, "B7"}
    told = run("add", path, data=more, label="y", code=2)
    assert "column 6 of the file" in told or "must be given" in told
    run("erase", "--yes", path, "--subject", "5")
    assert people(path) == {*PEOPLE, "B7"} - {5}
    run("verify", path, "--erased", "5")
    run("verify", path, "--erased", "6", code=2)


@pytest.mark.parametrize("shards", [0, 2])
def test_ids_that_lost_their_zeros_get_no_second_budgets(path, tmp_path, shards):
    """Of whole numbers first, and as a spreadsheet or another program writes them later."""
    if shards:
        split(path, tmp_path / "cluster", shards)
    store = tmp_path / ("cluster" if shards else "store")
    run("erase", "--yes", store, "--subject", "7")
    ids = ["005", "007", "a 7", "B7"]
    rows = write_table(tmp_path / "more.csv", X[:4], y=Y[:4], who=ids)
    more = {"data": rows, "label": "y", "subject": "who"}
    for command in ("add", "evaluate"):
        told = run(command, store, **more, code=3)
        assert "3 of the new ids differ" in told
        assert "--ids-differ option" in told
    run("add", store, "--ids-differ", **more)
    run("add", store, **more)  # they are known now


@pytest.mark.parametrize(
    ("name", "is_found"),
    [
        ("patientId", True), ("patientID", True), ("PatientId", True), ("visit2Id", True),
        ("étudiantId", True), ("PATIENT_ID", True), ("paid", False), ("Identity", False),
        ("PAID", False), ("avoidedUsers", False),
    ],
)  # fmt: skip
def test_names_of_columns_of_ids_are_split_into_words(name, is_found):
    note = describe_missing_subjects(StoreExtractor("columns", {}, None, ["dose", name]))
    assert (f"The column {name!r} may hold ids" in note) == is_found


@pytest.fixture
def rows(tmp_path):
    """Return the options of `init` for a table whose rows have ids, which they leave out."""
    write_table(tmp_path / "rows.csv", X, y=Y, who=list(map(str, PEOPLE)))
    write_table(tmp_path / "public.csv", R)
    return {
        "data": tmp_path / "rows.csv", "label": "y", "public": tmp_path / "public.csv",
        "columns": "a,b,c,d", "classes": "0,1,2", "records": 40, "queries": 9,
    }  # fmt: skip


def test_rows_without_ids_are_people_and_init_says_so(rows, tmp_path):
    told = run("init", tmp_path / "rows", "--quiet", **rows).splitlines()
    (line,) = [line for line in told if "every row counts as a subject" in line]
    assert "A person with several rows is not protected as one subject" in line
    assert "no subject can be erased by id" in line
    # The note comes before anything is read, and names a column that may hold ids.
    missing = {**rows, "data": tmp_path / "missing.csv", "columns": "patient_id"}
    told = run("init", tmp_path / "missing", **missing, code=2)
    assert "The column 'patient_id' may hold ids: --subject patient_id." in told
    assert told.index("every row counts as a subject") < told.index("There is no file")
    told = run("plan", records=400, queries=9, classes=2)
    assert "no subject can be erased by id." in told
    assert "every row" not in run("init", tmp_path / "ids", "--quiet", **rows, subject="who")
    told = run("erase", "--yes", tmp_path / "rows", subject="5", code=2)
    assert "every row is a subject" in told
    with serving_tools.running(tmp_path / "served", make=make_without_ids) as service:
        refused = service.call("DELETE", "/v1/subjects/5", key="curator")
        assert (refused.status, refused.body["type"].rpartition("/")[2]) == (409, "no-ids")


def make_without_ids(path):
    return Store.init(path, X, Y, classes=range(3), public=R, n_records=40, **PLAN)


@pytest.mark.parametrize("weak", [{"epsilon": 21}, {"delta": 0.026}])
def test_a_weak_guarantee_needs_yes(rows, tmp_path, weak):
    told = run("init", tmp_path / "weak", **rows, **weak, code=3)
    assert "set the --yes option" in told
    run("init", tmp_path / "weak", "--yes", **rows, **weak)


def test_a_limit_over_all_audiences_is_stated_and_kept(rows, tmp_path):
    told = run("init", tmp_path / "total", **rows, epsilon_total=21, code=3)
    assert "The --epsilon-total option, 21, lets" in told
    assert "set the --yes option" in told
    told = run("init", tmp_path / "total", **rows, epsilon_total=2)
    assert "together holds: epsilon 2 at delta 1e-05, for all audiences ever opened" in told
    told = run("audience", tmp_path / "total", "b", epsilon=2.1, queries=5, code=2)
    assert "--epsilon option must be at most 2" in told
    run("audience", tmp_path / "total", "b", epsilon=2, queries=5, records=40)
    told = run("inspect", tmp_path / "total")
    assert "All audiences together: epsilon 2 at delta 1e-05, for all" in told


def test_lists_erase_whom_they_name_or_nobody(path, tmp_path):
    (tmp_path / "ids").write_bytes("\ufeff5\r\n6\r\nZo\u0065\u0308\r\n\r\n".encode())
    told = run("erase", "--yes", path, "--subjects", tmp_path / "ids")
    assert told.startswith("Erased. Of 3 ids, 3 enrolled, 0 already erased and 0 unknown.")
    assert people(path) == set(PEOPLE) - {5, 6, "Zo\u00eb"}
    run("verify", path, "--erased-list", tmp_path / "ids")
    (tmp_path / "ids").write_text("7\n8,9\n")
    assert "Line 2 " in run("erase", "--yes", path, "--subjects", tmp_path / "ids", code=2)
    assert people(path) == set(PEOPLE) - {5, 6, "Zo\u00eb"}


def test_an_erasure_of_nobody_says_so(path):
    told = run("erase", "--yes", path, "--subject", "05", "--subject", "nobody", code=2)
    assert told == (
        "Nothing was erased: none of these ids was ever in the store. Of 2 ids, "
        "0 enrolled, 0 already erased and 2 unknown. These numbers are private.\n"
        "Of the unknown ids, 1 differs only in spelling from an id that is enrolled, or was "
        "erased or evaluated. "
        "Check it: these records may still be in the store.\n"
    )
    for command in (
        ("erase", path, "5", "--yes"),
        ("receipt", "erasure", path, "5", "--key", path),
    ):
        assert "Name ids with --subject." in run(*command, code=2)
    assert people(path) == set(PEOPLE)
    run("erase", "--yes", path, "--subject", "5", "--subject", "nobody")
    told = run("erase", "--yes", path, "--subject", "5", "--subject", "nobody")
    assert told.startswith("Nothing was erased: none of these ids is in the store any more.")
    assert "0 enrolled, 1 already erased and 1 unknown" in told
    assert people(path) == set(PEOPLE) - {5}


REACHED = [*"5?%", 6, "a/b", "a b", "a%2Fb", "Zo\u0065\u0308", "\U0001f600", "..a", "a\\b", "//"]


def test_whoever_can_be_added_by_http_can_be_erased_by_it(tmp_path):
    with serving_tools.running(tmp_path / "store") as service:
        for who in REACHED:
            record = {"vectors": X[:1].tolist(), "labels": [0], "subjects": [who]}
            assert service.call("POST", "/v1/records", record, "curator").status == 200
            assert service.store.presence([who]) == Presence(1, 0, 0)
            place = f"/v1/subjects/{quote(str(who), safe='')}?outcome=true"
            erased = service.call("DELETE", place, key="curator").body["outcome"]
            assert erased == {"enrolled": 1, "erased": 0, "unknown": 0, "similar": 0}
            assert service.store.presence([who]) == Presence(0, 1, 0)
        similar = service.call("DELETE", "/v1/subjects/PERSON-1?outcome=true", key="curator")
        assert similar.body["outcome"] == {"enrolled": 0, "erased": 0, "unknown": 1, "similar": 1}
        for faulty in ("a%0Ab", "%20a", "a%20", "%EF%BB%BFa", "5.0"):
            reply = service.call("DELETE", f"/v1/subjects/{faulty}", key="curator")
            assert reply.status in (404, 422)
