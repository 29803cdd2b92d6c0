"""Names on the command line: of classes, of columns, and of files that commands write."""

import json
import unicodedata

import numpy as np
import pytest
from pyarrow import csv

from command_line import invoked, make_table, shown, write_table
from command_line import printed as run
from serving_tools import running
from store_tools import PEOPLE, R, X, Y, copied, points
from vicinal.errors import InvalidInput
from vicinal.store import Store, StoreExtractor
from vicinal.store.input_files import read_queries

COMPOSED, DECOMPOSED = "Grün", unicodedata.normalize("NFD", "Grün")
QUICK = ("--queries", 60, "--records", 300, "--epsilon", 4, "--model-share", 0, "-q", "--yes")
CLASSES = [DECOMPOSED, "rot", "a, b; c"]
QUERIES = points(5, 9)[0]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Write tables of records, public rows and queries, and make a store with `CLASSES`."""
    data = tmp_path_factory.mktemp("names")
    names = np.array([COMPOSED, *CLASSES[1:]])
    write_table(data / "train.parquet", X, colour=names[Y], who=PEOPLE)
    write_table(data / "numbers.parquet", X, who=PEOPLE, age=X[:, 0], label=X[:, 1])
    write_table(data / "public.parquet", R)
    roles = ("id", "label", "confidence", "p_rot", "age", "error_age", "share_x", "file")
    columns = {name: [f"{name}-{i}" for i in range(5)] for name in roles}
    write_table(data / "queries.csv", QUERIES, **columns)
    init(data, label="colour", classes=CLASSES)
    return data


def init(data, name="store", table="train", **more):
    """Make a store; the public table names the columns of its features."""
    files = {"data": data / f"{table}.parquet", "public": data / "public.parquet"}
    run("init", data / name, *QUICK, **files, subject="who", **more)
    return data / name


@pytest.fixture
def data(made, tmp_path):
    """Return a folder of its own with the tables and the store."""
    copied(made / "store", tmp_path)
    for path in made.iterdir():
        if path.suffix in (".csv", ".parquet"):
            (tmp_path / path.name).write_bytes(path.read_bytes())
    return tmp_path


@pytest.fixture
def store(data):
    return data / "store"


def left(store):
    facts = json.loads(run("inspect", store, "--json"))
    return facts["audiences"]["default"]["queries"]["left"]


def test_a_class_name_may_hold_both_separators_and_look_as_macos_writes_it(data, store):
    assert json.loads(run("inspect", store, "--json"))["classes"] == [COMPOSED, *CLASSES[1:]]
    asked = run("predict", store, "-q", data=data / "queries.csv")
    assert asked.splitlines()[0] == f'label,confidence,p_{COMPOSED},p_rot,"p_a, b; c"'
    more = write_table(data / "more.csv", X[:2], colour=[DECOMPOSED, "rot"], who=["x", "y"])
    run("add", store, data=more, label="colour", subject="who")


@pytest.mark.parametrize("classes", [["rot,rot"], [f"{COMPOSED},{DECOMPOSED},rot"], ["a", "a"]])
def test_equal_class_names_are_refused_before_anything_is_made(classes, made, tmp_path):
    told = run(
        *("init", tmp_path / "store"), data=made / "train.parquet", public=made / "public.parquet",
        label="colour", subject="who", classes=classes, code=2,
    )  # fmt: skip
    assert "The --classes option must hold different names. Got" in told
    assert not (tmp_path / "store").exists()


def test_the_service_has_one_form_of_a_name(tmp_path):
    def make(path):
        names = np.array([DECOMPOSED, "rot", "blau"])
        settings = {"public": R, "n_records": 300, "epsilon": 4.0, "n_queries": 60}
        settings |= {"n_neighbors": 40, "noise_multiplier": 1.5, "classes": names.tolist()}
        return Store.init(path, X, names[Y], [f"p{i}" for i in range(len(X))], **settings)

    with running(tmp_path / "store", make=make) as service:
        assert service.call("GET", "/v1/status").body["classes"] == [COMPOSED, "rot", "blau"]
        labels = service.predict(points(20, 3)[0].tolist()).body["labels"]
        assert set(labels) <= {COMPOSED, "rot", "blau"}
        for name, status in ((COMPOSED, 200), (DECOMPOSED, 200), ("Grun", 422)):
            body = {"vectors": X[:1].tolist(), "labels": [name], "subjects": [f"new {name}"]}
            assert service.call("POST", "/v1/records", body, key="curator").status == status


@pytest.mark.parametrize("name", ["label", "confidence", "p_rot", " label "])
@pytest.mark.parametrize("more", [(), ("--json",), ("--out", "answers.csv")])
def test_an_id_with_the_name_of_an_answer_is_refused_before_a_charge(
    name, more, made, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    store = made / "store"
    told = run("predict", store, *more, data=made / "queries.csv", id=name, code=2)
    assert f"The --id option must not be {name.strip()!r}" in told
    assert "Rename the column" in told
    assert left(store) == 60
    assert not (tmp_path / "answers.csv").exists()


def test_an_id_or_a_feature_may_stand_beside_the_answers(data, store):
    lines = run("predict", store, "-q", data=data / "queries.csv", id="id").splitlines()
    assert lines[0].startswith("id,label,confidence,")
    assert lines[1].startswith("id-0,")
    told = run("predict", store, "-q", data=data / "queries.csv", id="a")
    assert told.startswith("a,label,")


def test_ids_are_refused_whatever_records_carry(data):
    bounds = init(data, "numbers", table="numbers", target="age=-1..4,label=-1..4")
    asked = {"data": data / "queries.csv"}
    for name in ("age", "error_age", "label"):
        assert "--id option must not be" in run("predict", bounds, **asked, id=name, code=2)
    assert left(bounds) == 60
    header = run("predict", bounds, "-q", **asked, id="id").splitlines()[0]
    assert header == "id,age,error_age,label,error_label"
    alone = init(data, "alone", release="label", label="colour", classes=CLASSES)
    told = run("predict", alone, **asked, id="confidence", code=2)
    assert "--id option must not be" in told, "whether it leaves depends on the audience"


def test_names_of_files_do_not_replace_an_answer(tmp_path):
    extractor = StoreExtractor("hog")
    with pytest.raises(InvalidInput, match="have a column 'file', in which the names of files"):
        read_queries(tmp_path, extractor, None, ["file", "error_file"])


@pytest.mark.parametrize("out", ["queries.csv", "store/answers.csv", "nowhere/answers.csv"])
def test_answers_never_replace_what_the_command_reads(out, data, store):
    before = (data / "queries.csv").read_bytes()
    told = run("predict", store, data=data / "queries.csv", out=data / out, code=2)
    assert "The --out option must not name" in told or "cannot be written" in told
    assert (data / "queries.csv").read_bytes() == before
    assert left(store) == 60
    assert run("verify", store)


@pytest.fixture
def files(tmp_path):
    np.savez(tmp_path / "private.npz", x=X, y=Y)
    np.savez(tmp_path / "public.npz", x=R)
    return tmp_path


@pytest.mark.parametrize("command", ["label", "transfer"])
def test_released_files_never_replace_inputs(command, files):
    before = {path: path.read_bytes() for path in files.glob("*.npz")}
    given = (command, "--private", files / "private.npz", "--public", files / "public.npz")
    given += ("--epsilon", 4, "--yes", "--classes", "0-2", "--folder", files / "run")
    for out in ("private.npz", "public.npz", "run/answers.npz", "no/answers.npz"):
        told = run(*given, out=files / out, code=2)
        assert "--out" in told or "cannot be written" in told
    for option in ("--schema", "--model"):
        told = run(*given, option, files / "a", out=files / "a", code=2)
        assert f"{option} option names it" in told
    assert {path: path.read_bytes() for path in files.glob("*.npz")} == before
    assert not (files / "run").exists(), "refused before anything is asked"


def test_a_student_replaces_neither_answers_nor_its_other_form(files):
    (files / "answers.npz").write_bytes(b"answers")
    given = ("student", files / "answers.npz", "--public", files / "public.npz")
    for out, option, path in (
        ("answers.npz", "--onnx", "other"), ("public.npz", "--onnx", "other"),
        ("s.pt", "--onnx", "s.pt"), ("s.pt", "--schema", "s.pt"),
    ):  # fmt: skip
        told = run(*given, "--out", files / out, option, files / path, code=2)
        assert "must not name" in told
    assert (files / "answers.npz").read_bytes() == b"answers"
    assert not (files / "s.pt").exists()


def test_a_column_has_one_role_in_every_command(made, tmp_path):
    told = run(
        *("init", tmp_path / "other"), data=made / "train.parquet", label="a", columns="a,b",
        public=made / "public.parquet", classes="0,1", code=2,
    )  # fmt: skip
    assert "'a' is named as label and as feature column" in told
    given = {"data": made / "train.parquet", "label": "colour", "subject": "a"}
    assert "'a' is named as subject and as feature" in run("add", made / "store", **given, code=2)
    told = run("schema", made / "queries.csv", label="id", subject="id", code=2)
    assert "must name different columns" in told


def test_tables_are_aligned_by_name_or_refused_with_the_names(data, store):
    asked = run("predict", store, "-q", data=data / "queries.csv")
    columns = make_table(QUERIES, id=range(5))
    csv.write_csv(columns.select(["d", "id", "b", "a", "c"]), data / "turned.csv")
    assert run("predict", store, "-q", data=data / "turned.csv") == asked
    csv.write_csv(columns.select(["b", "a"]), data / "fewer.csv")
    assert "no columns 'c', 'd'" in run("predict", store, data=data / "fewer.csv", code=2)


def test_where_no_public_table_names_the_columns_an_option_must(made, tmp_path):
    """Fails if the private table is kept in its own order: queries may have another."""
    np.savez(tmp_path / "public.npz", x=R)
    given = {"data": made / "train.parquet", "public": tmp_path / "public.npz"}
    given |= {"label": "colour", "subject": "who", "classes": CLASSES}
    told = run("init", tmp_path / "npz", *QUICK, **given, code=2)
    assert "The --columns option must name the feature columns" in told
    run("init", tmp_path / "npz", *QUICK, **given, columns=["a", "b", "c", "d"])


def test_texts_are_one_column(made, tmp_path):
    told = run(
        *("init", tmp_path / "other"), data=made / "train.parquet", label="who", classes="0,1",
        public=made / "queries.csv", features="text", columns="id,file", code=2,
    )  # fmt: skip
    assert "The --columns option must name one column of texts" in told


def test_no_output_replaces_a_table_a_key_or_a_part_of_the_store(data, store):
    run("receipt", "key", data / "key")
    run("erase", store, "--yes", subject="person-1")
    erasure = ("receipt", "erasure", store, "--key", data / "key", "--subject", "person-1")
    public, key = (data / "queries.csv").read_bytes(), (data / "key").read_bytes()
    for command, out in (
        (("schema", data / "queries.csv"), data / "queries.csv"),
        (erasure, data / "key"),
        (("certificate", store), store / "more"),
        (("export-guarantee", store), store / "guarantee.txt"),
    ):
        assert "must not name" in run(*command, "--out", out, code=2)
    assert (public, key) == ((data / "queries.csv").read_bytes(), (data / "key").read_bytes())
    assert not (store / "more").exists()


def test_an_error_names_the_file_that_it_is_about(made, tmp_path):
    (tmp_path / "public.csv").write_text("a,b,c,d\n1,2,3\n")
    told = run(
        *("init", tmp_path / "other"), data=made / "train.parquet", label="colour",
        subject="who", public=tmp_path / "public.csv", classes=CLASSES, code=2,
    )  # fmt: skip
    assert "public.csv is damaged" in told
    assert "train.parquet" not in told


def test_marks_of_a_csv_file_are_declared_in_the_schema(tmp_path):
    rng = np.random.default_rng(0)
    towns = np.array(["'it\\'s; here'", "'plain'"])
    for name, size in (("public", 200), ("private", 300)):
        columns = rng.integers(0, 90, size), rng.choice(towns, size), rng.integers(0, 2, size)
        rows = [f"{age};{town};{ill}" for age, town, ill in zip(*columns, strict=True)]
        lines = ["# made by a program, with commas, many, many", "age;town;ill", *rows[:9]]
        lines += ["# half; of it; is here", *rows[9:]]
        (tmp_path / f"{name}.csv").write_text("\n".join(lines) + "\n")
    public, private, schema = (tmp_path / n for n in ("public.csv", "private.csv", "schema.json"))
    said = shown("schema", public, out=schema, label="ill", quote="'", escape="\\", comment="#")
    assert 'quote "\'", escape' in said
    drafted = json.loads(schema.read_text())
    assert drafted["file"] == {
        "delimiter": ";", "decimal": ".", "encoding": "utf-8", "quote": "'", "escape": "\\",
        "comment": "#",
    }  # fmt: skip
    assert drafted["columns"]["town"]["values"] == ["it's; here", "plain"]
    labels = {"schema": schema, "label": "ill", "classes": "0,1"}
    run("schema", check=private, **labels, reference=public)
    given = {"data": private, "features": "table", "public": public, **labels}
    run("init", tmp_path / "dry", *QUICK, "--dry-run", **given)
    run("init", tmp_path / "store", *QUICK[2:], **given, queries=200)
    asked = run("predict", tmp_path / "store", "-q", data=public, id="age")
    assert len(asked.splitlines()) == 201


def test_quiet_commands_show_nothing_beside_their_result(data, store):
    assert invoked("predict", store, "-q", data=data / "queries.csv").stderr == ""
