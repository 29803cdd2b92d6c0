"""Names on the command line: of classes, of columns, and of files that commands write."""

import json
import unicodedata

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import csv, parquet

from command_line import invoked, shown
from command_line import printed as run
from serving_tools import running
from store_tools import D, R, X, Y, points
from vicinal.errors import InvalidInput
from vicinal.store import Store, StoreExtractor
from vicinal.store.input_files import read_queries

COMPOSED, DECOMPOSED = "Grün", unicodedata.normalize("NFD", "Grün")
FEATURES = ["a", "b", "c", "d"]
QUICK = ("--queries", 60, "--records", 300, "--epsilon", 4, "--model-share", 0, "-q", "--yes")


def table(features, **others):
    return pa.table({**dict(zip(FEATURES, np.asarray(features).T, strict=True)), **others})


@pytest.fixture
def data(tmp_path):
    people = [f"person-{i // 2}" for i in range(len(X))]
    names = np.array([COMPOSED, "rot", "a, b; c"])
    numbers = {"age": X[:, 0], "label": X[:, 1]}
    parquet.write_table(table(X, colour=names[Y], who=people), tmp_path / "train.parquet")
    parquet.write_table(table(X, who=people, **numbers), tmp_path / "numbers.parquet")
    parquet.write_table(table(R), tmp_path / "public.parquet")
    queries = points(5, 9)[0]
    every = ("id", "label", "confidence", "p_rot", "age", "error_age", "share_x", "file")
    columns = {name: [f"{name}-{i}" for i in range(5)] for name in every}
    csv.write_csv(table(queries, **columns), tmp_path / "queries.csv")
    return tmp_path


def made(data, *more, name="store", table="train"):
    run(
        "init", data / name, "--data", data / f"{table}.parquet", "--public",
        data / "public.parquet", "--columns", "a,b,c,d", "--subject", "who", *QUICK, *more,
    )  # fmt: skip
    return data / name


CLASSES = ("--label", "colour", "--classes", DECOMPOSED, "--classes", "rot", "--classes", "a, b; c")


@pytest.fixture
def store(data):
    return made(data, *CLASSES)


def left(store, audience="default"):
    facts = json.loads(run("inspect", store, "--json"))
    return facts["audiences"][audience]["queries"]["left"]


def test_a_class_name_may_hold_both_separators_and_look_as_macos_writes_it(data, store):
    facts = json.loads(run("inspect", store, "--json"))
    assert facts["classes"] == [COMPOSED, "rot", "a, b; c"]
    asked = ("predict", store, "--data", data / "queries.csv")
    header = run(*asked, "-q").splitlines()[0]
    assert header == f'label,confidence,p_{COMPOSED},p_rot,"p_a, b; c"'
    more = table(X[:2], colour=[DECOMPOSED, "rot"], who=["x", "y"])
    parquet.write_table(more, data / "more.parquet")
    run("add", store, "--data", data / "more.parquet", "--label", "colour", "--subject", "who")


@pytest.mark.parametrize("classes", [("rot,rot",), (f"{COMPOSED},{DECOMPOSED},rot",), ("a", "a")])
def test_equal_class_names_are_refused_before_anything_is_made(classes, data):
    given = [word for name in classes for word in ("--classes", name)]
    told = run(
        "init", data / "store", "--data", data / "train.parquet", "--public",
        data / "public.parquet", "--label", "colour", "--subject", "who", *given, code=2,
    )  # fmt: skip
    assert "The --classes option must hold different names. Got" in told
    assert not (data / "store").exists()


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
        for i, name in enumerate((COMPOSED, DECOMPOSED)):
            body = {"vectors": X[:1].tolist(), "labels": [name], "subjects": [f"new-{i}"]}
            assert service.call("POST", "/v1/records", body, key="curator").status == 200
        body = {"vectors": X[:1].tolist(), "labels": ["Grun"], "subjects": ["new"]}
        assert service.call("POST", "/v1/records", body, key="curator").status == 422


@pytest.mark.parametrize("name", ["label", "confidence", "p_rot", " label "])
@pytest.mark.parametrize("more", [(), ("--json",), ("--out", "answers.csv")])
def test_an_id_with_the_name_of_an_answer_is_refused_before_a_charge(
    name, more, data, store, monkeypatch
):
    monkeypatch.chdir(data)
    asked = ("predict", store, "--data", data / "queries.csv")
    told = run(*asked, "--id", name, *more, code=2)
    assert f"The --id option must not be {name.strip()!r}" in told
    assert "Rename the column" in told
    assert left(store) == 60
    assert not (data / "answers.csv").exists()
    lines = run(*asked, "--id", "id", "-q").splitlines()
    assert lines[0].startswith("id,label,confidence,")
    assert lines[1].startswith("id-0,")
    assert run(*asked, "--id", "a", "-q").startswith("a,label,"), "a feature may stand beside"


def test_ids_are_refused_whatever_records_carry(data):
    bounds = made(data, "--target", "age=-1..4,label=-1..4", name="numbers", table="numbers")
    asked = ("predict", bounds, "--data", data / "queries.csv")
    for name in ("age", "error_age", "label"):
        assert "--id option must not be" in run(*asked, "--id", name, code=2)
    assert left(bounds) == 60
    header = run(*asked, "--id", "id", "-q").splitlines()[0]
    assert header == "id,age,error_age,label,error_label"
    labels = ("--release", "label", *CLASSES)
    assert "--id option must not be" in run(
        "predict", made(data, *labels, name="alone"), "--data", data / "queries.csv", "--id",
        "confidence", code=2,
    ), "whether it leaves depends on the audience"  # fmt: skip


def test_names_of_files_do_not_replace_an_answer(tmp_path):
    extractor = StoreExtractor("hog")
    with pytest.raises(InvalidInput, match="have a column 'file', in which the names of files"):
        read_queries(tmp_path, extractor, None, ["file", "error_file"])


@pytest.mark.parametrize("out", ["queries.csv", "store/answers.csv", "nowhere/answers.csv"])
def test_answers_never_replace_what_the_command_reads(out, data, store):
    before = (data / "queries.csv").read_bytes()
    told = run("predict", store, "--data", data / "queries.csv", "--out", data / out, code=2)
    assert "The --out option must not name" in told or "cannot be written" in told
    assert (data / "queries.csv").read_bytes() == before
    assert left(store) == 60
    assert run("verify", store)


def test_a_schema_never_replaces_the_table_that_it_is_of(data):
    public = data / "queries.csv"
    before = public.read_bytes()
    assert "must not name" in run("schema", public, "-o", public, code=2)
    assert public.read_bytes() == before


LABELLING = ("--epsilon", 4, "--yes", "--classes", "0-2")


@pytest.fixture
def files(tmp_path):
    np.savez(tmp_path / "private.npz", x=X, y=Y)
    np.savez(tmp_path / "public.npz", x=R)
    return tmp_path


@pytest.mark.parametrize("command", ["label", "transfer"])
@pytest.mark.parametrize("out", ["private.npz", "public.npz", "run/answers.npz", "no/answers.npz"])
def test_released_files_never_replace_inputs(command, out, files):
    before = {path: path.read_bytes() for path in files.glob("*.npz")}
    given = ("--private", files / "private.npz", "--public", files / "public.npz")
    told = run(command, *given, *LABELLING, "--folder", files / "run", "--out", files / out, code=2)
    assert "--out" in told or "cannot be written" in told
    for option in ("--schema", "--model"):
        named = (option, files / "a", "--folder", files / "run", "--out", files / "a")
        assert f"{option} option names it" in run(command, *given, *LABELLING, *named, code=2)
    assert {path: path.read_bytes() for path in files.glob("*.npz")} == before
    assert not (files / "run").exists(), "refused before anything is asked"


def test_a_student_replaces_neither_answers_nor_its_other_form(files):
    (files / "answers.npz").write_bytes(b"answers")
    given = ("student", files / "answers.npz", "--public", files / "public.npz")
    for more in (
        ("--out", files / "answers.npz"), ("--out", files / "public.npz"),
        ("--out", files / "s.pt", "--onnx", files / "s.pt"),
        ("--out", files / "s.pt", "--schema", files / "s.pt"),
    ):  # fmt: skip
        assert "must not name" in run(*given, *more, code=2)
    assert (files / "answers.npz").read_bytes() == b"answers"
    assert not (files / "s.pt").exists()


def test_a_label_is_no_feature(data, store):
    told = run(
        "init", data / "other", "--data", data / "train.parquet", "--label", "a", "--columns",
        "a,b", "--public", data / "public.parquet", "--classes", "0,1", code=2,
    )  # fmt: skip
    assert "'a' is named as label and as feature column" in told
    added = ("--data", data / "train.parquet", "--label", "colour", "--subject", "a")
    assert "'a' is named as subject and as feature" in run("add", store, *added, code=2)
    told = run("schema", data / "queries.csv", "--label", "id", "--subject", "id", code=2)
    assert "must name different columns" in told


def test_tables_are_aligned_by_name_or_refused_with_the_names(data, store):
    columns = csv.read_csv(data / "queries.csv")
    asked = run("predict", store, "--data", data / "queries.csv", "-q")
    csv.write_csv(columns.select(["d", "id", "b", "a", "c"]), data / "turned.csv")
    assert run("predict", store, "--data", data / "turned.csv", "-q") == asked
    csv.write_csv(columns.select(["b", "a"]), data / "fewer.csv")
    told = run("predict", store, "--data", data / "fewer.csv", code=2)
    assert "no columns 'c', 'd'" in told


def test_where_no_public_table_names_the_columns_an_option_must(data):
    """Fails if the private table is kept in its own order: queries may have another."""
    given = ("--data", data / "train.parquet", "--label", "colour", "--subject", "who", *QUICK)
    classes = CLASSES[2:]
    np.savez(data / "public.npz", x=R)
    told = run("init", data / "npz", *given, *classes, "--public", data / "public.npz", code=2)
    assert "The --columns option must name the feature columns" in told
    columns = [word for name in FEATURES for word in ("--columns", name)]
    run("init", data / "npz", *given, *classes, "--public", data / "public.npz", *columns)
    assert len(FEATURES) == D


def test_texts_are_one_column(data):
    told = run(
        "init", data / "other", "--data", data / "train.parquet", "--label", "who", "--public",
        data / "queries.csv", "--features", "text", "--columns", "id,file", "--classes", "0,1",
        code=2,
    )  # fmt: skip
    assert "The --columns option must name one column of texts" in told


def test_a_receipt_and_a_certificate_replace_nothing(data, store):
    run("receipt", "key", data / "key")
    before = (data / "key").read_bytes()
    run("erase", store, "--subject", "person-1", "--yes")
    signing = ("receipt", "erasure", store, "--key", data / "key", "--subject", "person-1")
    assert "must not name" in run(*signing, "-o", data / "key", code=2)
    assert (data / "key").read_bytes() == before
    assert "must not name" in run("certificate", store, "-o", store / "more", code=2)
    assert not (store / "more").exists()
    assert "must not name" in run("export-guarantee", store, "--out", store / "g.txt", code=2)


def test_an_error_names_the_file_that_it_is_about(data):
    (data / "public.csv").write_text("a,b,c,d\n1,2,3\n")
    told = run(
        "init", data / "other", "--data", data / "train.parquet", "--label", "colour",
        "--subject", "who", "--public", data / "public.csv", *CLASSES[2:], code=2,
    )  # fmt: skip
    assert "public.csv is damaged" in told
    assert "train.parquet" not in told


def test_marks_of_a_csv_file_are_declared_in_the_schema(tmp_path):
    rng = np.random.default_rng(0)
    town = np.array(["'it\\'s; here'", "'plain'"])
    for name, size in (("public", 200), ("private", 300)):
        rows = [f"{i};{t};{y}" for i, t, y in zip(
            rng.integers(0, 90, size), town[rng.integers(0, 2, size)], rng.integers(0, 2, size),
            strict=True,
        )]  # fmt: skip
        lines = ["# made by a program, with commas, many, many", "age;town;ill", *rows[:9]]
        lines += ["# half; of it; is here", *rows[9:]]
        (tmp_path / f"{name}.csv").write_text("\n".join(lines) + "\n")
    public, private, schema = (tmp_path / n for n in ("public.csv", "private.csv", "schema.json"))
    marks = ("--quote", "'", "--escape", "\\", "--comment", "#")
    said = shown("schema", public, "-o", schema, "--label", "ill", *marks)
    assert 'quote "\'", escape' in said
    file = json.loads(schema.read_text())["file"]
    assert file == {"delimiter": ";", "decimal": ".", "encoding": "utf-8", "quote": "'",
                    "escape": "\\", "comment": "#"}  # fmt: skip
    assert json.loads(schema.read_text())["columns"]["town"]["values"] == ["it's; here", "plain"]
    check = ("--schema", schema, "--label", "ill", "--classes", "0,1")
    run("schema", "--check", private, *check, "--reference", public)
    run(
        "init", tmp_path / "dry", "--data", private, "--features", "table", "--schema", schema,
        "--public", public, "--label", "ill", "--classes", "0,1", *QUICK, "--dry-run",
    )  # fmt: skip
    run(
        "init", tmp_path / "store", "--data", private, "--features", "table", "--schema", schema,
        "--public", public, "--label", "ill", "--classes", "0,1", "--queries", 200, *QUICK[2:],
    )  # fmt: skip
    asked = run("predict", tmp_path / "store", "--data", public, "--id", "age", "-q")
    assert len(asked.splitlines()) == 201


def test_quiet_commands_show_nothing_beside_their_result(data, store):
    assert invoked("predict", store, "--data", data / "queries.csv", "-q").stderr == ""
