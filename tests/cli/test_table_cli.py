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


def init(folder, name, **options):
    """Return the result of `init` on the private table; `options` add to usual ones or replace."""
    given = {
        "data": folder / "private.parquet", "label": "y", "subject": "who", "features": "table",
        "schema": folder / "schema.json", "classes": "ill,well", "epsilon": 8, "queries": 20,
        "records": 400, **options,
    }  # fmt: skip
    return run("init", folder / name, **given)


@pytest.fixture(scope="module")
def store(folder):
    made = init(folder, "store", public=folder / "public.parquet")
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
    said = run("schema", folder / "private.parquet", label="z", code=2).stderr
    assert "The --label option must name a column of" in said
    assert "There is no 'z', only age, " in said


def test_columns_go_by_name_and_answers_keep_their_ids(folder, store):
    found = predicted(store, folder / "queries.parquet", "--id", "visit")
    assert found["ids"] == ["v0", "v1", "v2", "v3", "v4", "v5", "v0"]
    table = parquet.read_table(folder / "queries.parquet")
    csv.write_csv(table.select(table.column_names[::-1]), folder / "turned.csv")
    again = predicted(store, folder / "turned.csv", "--id", "visit")
    assert again["charged"] == 0
    assert (again["labels"], again["ids"]) == (found["labels"], found["ids"])


def test_columns_that_are_missing_are_named_beside_those_that_are_there(folder, store):
    left = predicted(store, folder / "queries.parquet")["left"]
    table = parquet.read_table(folder / "queries.parquet")
    parquet.write_table(table.drop_columns(["age"]), folder / "less.parquet")
    names = [name.upper() for name in table.column_names]
    parquet.write_table(table.rename_columns(names), folder / "capitals.parquet")
    for name, column, message in (
        ("less", "visit", "less.parquet: The table lacks column 'age' of the schema"),
        ("capitals", "VISIT", " of the schema. The table has 'AGE',"),
        ("queries", "nobody", "no column 'nobody'"),
        ("queries", "Visit", "which the --id option names. The table has 'visit'."),
    ):
        refused = run("predict", store, data=folder / f"{name}.parquet", id=column, code=2)
        assert message in refused.stderr
    assert predicted(store, folder / "queries.parquet")["left"] == left


def test_rows_that_do_not_fit_are_named_for_queries_and_not_for_records(folder, store):
    for name, command, named in (
        ("queries", ("predict", store), True),
        ("private", ("add", store, "--label", "y", "--subject", "who"), False),
    ):
        table = parquet.read_table(folder / f"{name}.parquet").slice(0, 5)
        ages = pa.array(["1", "2", "secret", "4", "5"])
        wrong = table.set_column(table.column_names.index("age"), "age", ages)
        parquet.write_table(wrong, folder / "wrong.parquet")
        said = run(*command, data=folder / "wrong.parquet", code=2).stderr
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
        # Python first tries the folder with a file of another name.
        while not list(tmp_path.glob("tmp*")):
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


def test_what_cannot_be_is_refused_before_anything_is_made(folder):
    public = {"public": folder / "public.parquet"}
    generated = {"reference": "from-schema"}
    schema = json.loads((folder / "schema.json").read_text())
    schema["columns"]["y"] = {"kind": "category", "values": ["ill", "well"]}
    (folder / "leaky.json").write_text(json.dumps(schema))
    no_schema = {"schema": [], **generated}
    for options, message in (
        ({"public": folder / "private.parquet"}, "private records"),
        ({**public, **generated}, "but not both"),
        ({"reference": "magic"}, "must be from-schema"),
        ({**no_schema, "features": "columns"}, "--features table"),
        (no_schema, "The --schema option must name the public schema"),
        (no_schema, "docs/reference/table-schema.md"),
        ({**public, "schema": folder / "leaky.json"}, "column of labels"),
    ):
        assert message in init(folder, "no", **options, code=2).stderr
    assert not (folder / "no").exists()


def test_a_store_without_public_rows(folder):
    told = init(folder, "made_up", reference="from-schema", model_share=0)
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
    told = run(
        *("schema", "--json"), check=folder / "private.parquet", schema=folder / "schema.json",
        label="y", subject="who", reference=folder / "public.parquet",
    ).stdout  # fmt: skip
    assert json.loads(told)["fits"]
    assert json.loads(told)["coincidences"]["public"] == 300


@pytest.mark.parametrize("share", ["0", "auto"])
def test_what_a_plan_needs_is_said_for_what_will_answer(folder, share):
    """Fails if a private model is judged by what votes alone would need, or the line ends init."""
    told = init(
        folder, f"needs-{share}", public=folder / "public.parquet", model_share=share
    ).stderr
    assert ("A private model needs about" in told) == (share == "auto")
    assert ("Neighbours alone need" in told) == (share == "0")
