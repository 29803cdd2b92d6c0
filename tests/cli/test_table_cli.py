"""A store of table rows from the command line: named columns, ids, formats, summaries."""

import io
import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import csv, parquet

from command_line import invoked as run
from made_up import patients
from vicinal.features import TableFeatures, draft_schema
from vicinal.store import Store


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Files, and a store of table rows whose queries every test may repeat at no cost."""
    folder = tmp_path_factory.mktemp("clinic")
    parquet.write_table(patients(400, 0), folder / "private.parquet")
    public = patients(300, 1).drop_columns(["y", "who"])
    parquet.write_table(public, folder / "public.parquet")
    queries = public.slice(0, 6).append_column("visit", [[f"v{i}" for i in range(6)]])
    queries = pa.concat_tables([queries, queries.slice(0, 1)])
    parquet.write_table(queries, folder / "queries.parquet")
    run("schema", folder / "public.parquet", "-o", folder / "schema.json")
    return folder


def init(folder, name, *more, code=0, features="table"):
    schema = ("--schema", folder / "schema.json") if features == "table" else ()
    return run(
        "init", folder / name, "--data", folder / "private.parquet", "--label", "y", "--subject",
        "who", "--features", features, *schema, "--classes", "ill,well", "--epsilon", 8,
        "--queries", 20, "--records", 400, *more, code=code,
    )  # fmt: skip


@pytest.fixture(scope="module")
def store(folder):
    made = init(folder, "store", "--public", folder / "public.parquet")
    lines = made.stdout.splitlines()
    assert lines[0].endswith("20 answers of the classes ill, well.")
    assert "300 public rows" in lines[1]
    assert "noise of" in lines[2]
    assert lines[3].startswith("A private model was trained with at most 90%")
    assert "(8, 1e-05)-differential privacy" in lines[6]
    return folder / "store"


def predicted(store, data, *more):
    return json.loads(run("predict", store, "--data", data, "--json", *more).stdout)


def test_a_schema_is_not_drafted_without_a_column_that_is_named(folder):
    said = run("schema", folder / "private.parquet", "--label", "z", code=2).stderr
    assert "The --label option must name a column of" in said
    assert "There is no 'z', only age, " in said


def test_columns_go_by_name_and_answers_keep_their_ids(folder, store):
    found = predicted(store, folder / "queries.parquet", "--id", "visit")
    assert found["ids"] == ["v0", "v1", "v2", "v3", "v4", "v5", "v0"]
    table = parquet.read_table(folder / "queries.parquet")
    turned = table.select(table.column_names[::-1])
    csv.write_csv(turned, folder / "turned.csv")
    again = predicted(store, folder / "turned.csv", "--id", "visit")
    assert again["charged"] == 0
    assert (again["labels"], again["ids"]) == (found["labels"], found["ids"])
    left = again["left"]
    parquet.write_table(table.drop_columns(["age"]), folder / "less.parquet")
    said = run("predict", store, "--data", folder / "less.parquet", code=2).stderr
    assert "less.parquet: The table lacks column 'age' of the schema" in said
    names = [name.upper() for name in table.column_names]
    parquet.write_table(table.rename_columns(names), folder / "less.parquet")
    said = run("predict", store, "--data", folder / "less.parquet", code=2).stderr
    assert " of the schema. The table has 'AGE'," in said
    run("predict", store, "--data", folder / "queries.parquet", "--id", "nobody", code=2)
    said = run("predict", store, "--data", folder / "queries.parquet", "--id", "Visit", code=2)
    assert "no column 'Visit', which the --id option names. The table has 'visit'." in said.stderr
    assert predicted(store, folder / "turned.csv", "--id", "visit")["left"] == left


def test_rows_that_do_not_fit_are_named_for_queries_and_not_for_records(folder, store):
    for name, command, named in (
        ("queries", ("predict", store), True),
        ("private", ("add", store, "--label", "y", "--subject", "who"), False),
    ):  # fmt: skip
        table = parquet.read_table(folder / f"{name}.parquet").slice(0, 5)
        at = table.column_names.index("age")
        wrong = table.set_column(at, "age", pa.array(["1", "2", "secret", "4", "5"]))
        parquet.write_table(wrong, folder / "wrong.parquet")
        said = run(*command, "--data", folder / "wrong.parquet", code=2).stderr
        assert "The column 'age' holds" in said
        assert (" in row 3." in said) == named
        assert "secret" not in said


def test_answers_in_every_format(folder, store):
    asked = ("predict", store, "--data", folder / "queries.parquet", "--id", "visit")
    text = run(*asked).stdout
    names = ["visit", "label", "confidence", "p_ill", "p_well"]
    assert text.splitlines()[0] == ",".join(names)
    for suffix in ("csv", "parquet"):
        run(*asked, "--out", folder / f"answers.{suffix}")
    assert (folder / "answers.csv").read_text() == text
    rows = parquet.read_table(folder / "answers.parquet")
    assert rows.column_names == names
    ill = rows["p_ill"].to_numpy()
    np.testing.assert_allclose(ill + rows["p_well"].to_numpy(), 1, atol=2e-4)
    assert (rows["label"].to_numpy() == np.where(ill > 0.5, "ill", "well")).all()
    run(*asked, "--out", folder / "answers.xlsx", code=2)


def test_standard_input_and_output(folder, store):
    wanted = run("predict", store, "--data", folder / "queries.parquet", "--id", "visit").stdout
    table = parquet.read_table(folder / "queries.parquet")
    packed, text = io.BytesIO(), io.BytesIO()
    parquet.write_table(table, packed)
    csv.write_csv(table, text)
    for content in (packed, text):
        stdin = content.getvalue()
        found = run("predict", store, "--data", "-", "--out", "-", "--id", "visit", stdin=stdin)
        assert found.stdout == wanted
    said = run("predict", store, "--data", "-", stdin=b"age\n1\n", code=2).stderr
    assert "standard input.csv: The table lacks column 'sex'" in said
    assert "tmp" not in said, "where it lies for the moment is nobody's business"


def test_termination_leaves_no_copy_of_standard_input(store, tmp_path):
    command = [sys.executable, "-m", "vicinal", "predict", store, "--data", "-"]
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    with subprocess.Popen(command, stdin=subprocess.PIPE, env=environment) as process:
        while not list(tmp_path.iterdir()):
            time.sleep(0.01)
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=60) == 128 + signal.SIGTERM
    assert not list(tmp_path.iterdir())


def test_queries_that_look_alike_are_counted_and_quiet_is_quiet(folder, store):
    asked = ("predict", store, "--data", folder / "queries.parquet", "--id", "visit")
    told = run(*asked).stderr.splitlines()
    assert len(told) == 3
    assert told[0].startswith("7 queries: ")
    assert told[1] == "1 query has the features of an earlier one and got its answer."
    assert "planned answers left" in told[2]
    assert run(*asked, "--quiet").stderr == ""


def test_a_store_takes_tables_of_all_forms(folder, store):
    table = parquet.read_table(folder / "queries.parquet").drop_columns(["visit"])
    with Store.open(store) as opened:
        assert opened.schema.extractor.raw_form == "rows"
        labels = [
            opened.predict(rows).labels.tolist()
            for rows in (table, table.to_pylist(), table.to_pydict())
        ]
        assert labels[0] == labels[1] == labels[2]
        rows, keys = opened.extract_features(table)
        assert keys[0] == keys[6]
        assert opened.predict(rows).charged == 0


def test_plain_columns_go_by_the_public_files_names(folder):
    numbers = patients(400, 0).append_column("b", [np.arange(400.0)]).drop_columns(["sex"])
    parquet.write_table(numbers, folder / "numbers.parquet")
    public = pa.table({"b": np.arange(60.0), "age": np.linspace(30, 80, 60)})
    parquet.write_table(public, folder / "numbers_public.parquet")
    run(
        "init", folder / "plain", "--data", folder / "numbers.parquet", "--label", "y",
        "--subject", "who", "--public", folder / "numbers_public.parquet", "--classes",
        "ill,well", "--records", 400, "--quiet",
    )  # fmt: skip
    first = predicted(folder / "plain", folder / "numbers_public.parquet")
    parquet.write_table(public.select(["age", "b"]), folder / "turned.parquet")
    again = predicted(folder / "plain", folder / "turned.parquet")
    assert again["charged"] == 0
    assert again["labels"] == first["labels"]


def test_what_cannot_be_is_refused_before_anything_is_made(folder):
    private, public = folder / "private.parquet", folder / "public.parquet"
    assert "private records" in init(folder, "no", "--public", private, code=2).stderr
    both = ("--public", public, "--reference", "from-schema")
    assert "but not both" in init(folder, "no", *both, code=2).stderr
    assert "must be from-schema" in init(folder, "no", "--reference", "magic", code=2).stderr
    plain = init(folder, "no", "--reference", "from-schema", features="columns", code=2)
    assert "--features table" in plain.stderr
    table = ("--reference", "from-schema", "--features", "table")
    no_schema = init(folder, "no", *table, features="columns", code=2).stderr
    assert "The --schema option must name the public schema" in no_schema
    assert "docs/reference/table-schema.md" in no_schema
    schema = json.loads((folder / "schema.json").read_text())
    schema["columns"]["y"] = {"kind": "category", "values": ["ill", "well"]}
    (folder / "leaky.json").write_text(json.dumps(schema))
    leaky = ("--public", public, "--schema", folder / "leaky.json")
    assert "column of labels" in init(folder, "no", *leaky, code=2).stderr
    assert not (folder / "no").exists()


def test_a_store_without_public_rows(folder):
    made = "--reference", "from-schema", "--model-share", 0
    told = init(folder, "made_up", *made)
    assert "2000 public rows" in told.stdout
    assert "Use --model-share auto" in told.stderr
    found = predicted(folder / "made_up", folder / "queries.parquet", "--id", "visit")
    assert found["charged"] == 6


def test_a_draft_leaves_out_every_column_of_labels(folder):
    public = folder / "public.parquet"
    first, second, *_ = parquet.read_table(public).column_names
    columns = json.loads(run("schema", public, "--label", f"{first};{second}").stdout)["columns"]
    assert {columns[name]["kind"] for name in (first, second)} == {"ignored"}


def test_a_drafted_schema_fits_the_private_table(folder):
    public = parquet.read_table(folder / "public.parquet")
    drafted, _ = draft_schema(public)
    assert TableFeatures(drafted).transform(public).shape[0] == 300
    fine = run(
        "schema", "--check", folder / "private.parquet", "--schema", folder / "schema.json",
        "--label", "y", "--subject", "who", "--reference", folder / "public.parquet", "--json",
    )  # fmt: skip
    told = json.loads(fine.stdout)
    assert told["fits"]
    assert told["coincidences"]["public"] == 300


@pytest.mark.parametrize("share", ["0", "auto"])
def test_what_a_plan_needs_is_said_for_what_will_answer(folder, share):
    """Fails if a private model is judged by what votes alone would need, or the line ends init."""
    given = "--public", folder / "public.parquet", "--model-share", share
    told = init(folder, f"needs-{share}", *given).stderr
    assert ("A private model needs about" in told) == (share == "auto")
    assert ("Neighbours alone need" in told) == (share == "0")
