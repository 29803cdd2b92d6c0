"""The price before it is paid: --dry-run, `plan`, and figures of noise alone."""

import hashlib
import json
import os
import re

import numpy as np
import pytest
from pyarrow import parquet

from command_line import invoked as run
from command_line import option_words
from made_up import patients, raising
from store_tools import copied
from vicinal.cli import output
from vicinal.store import Store


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("clinic")
    parquet.write_table(patients(400, 0), folder / "private.parquet")
    parquet.write_table(patients(370, 5, shift=4.0), folder / "others.parquet")
    parquet.write_table(patients(300, 1).drop_columns(["who"]), folder / "public.parquet")
    parquet.write_table(patients(60, 2), folder / "queries.parquet")
    features = folder / "features.parquet"
    parquet.write_table(patients(300, 1).drop_columns(["y", "who"]), features)
    run("schema", features, "-o", folder / "schema.json")
    run(*init(folder, "store"), "--model-refreshes", 1)
    run("predict", folder / "store", "--data", folder / "queries.parquet", "--quiet", "--json")
    return folder


def init(folder, name, private="private.parquet", **changes):
    """Return the words of `init`; `changes` replace options, or leave them out if []."""
    options = {
        "data": folder / private, "label": "y", "subject": "who", "features": "table",
        "public": folder / "public.parquet", "schema": folder / "schema.json",
        "classes": "ill,well", "epsilon": 4, "queries": 60, "records": 400, **changes,
    }  # fmt: skip
    return "init", folder / name, *option_words(**options)


def contents(folder):
    """Return what files hold, but for the witness, which every opening writes anew."""
    return {
        path.relative_to(folder): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.suffix != ".witness"
    }


@pytest.mark.parametrize("name", ["init", "audience"])
def test_a_dry_run_says_the_price_and_leaves_everything_as_it_was(folder, name, monkeypatch):
    monkeypatch.setattr(os, "urandom", raising(AssertionError("something was drawn")))
    before = contents(folder)
    audience = ("audience", folder / "store", "more", "--queries", 30)
    command = init(folder, "new") if name == "init" else audience
    shown = " ".join(run(*command, "--dry-run").stdout.split())
    assert "Dry run: nothing was written, drawn or charged." in shown
    assert "noise" in shown
    priced = dry_run(*command)
    assert priced["costs"] or priced["plan"]["participations"] > 0
    assert contents(folder) == before


def dry_run(*command):
    return json.loads(run(*command, "--dry-run", "--json").stdout)


def test_an_init_is_priced_by_the_plan_and_whoever_is_in_the_table(folder):
    """Fails if what a dry run prints depends on private records, or is not what `plan` says."""
    ours = dry_run(*init(folder, "new"))
    assert ours == dry_run(*init(folder, "new", "others.parquet"))
    assert 0.8 < ours["plan"]["outlook"]["accuracy"] <= 1
    _, _, *options = init(folder, "new", data=[], subject=[])
    planned = json.loads(run("plan", *options, "--json").stdout)
    assert planned["plan"] == ours["plan"]
    assert len(planned["alternatives"]) > 5


def test_a_dry_run_without_public_labels_shows_the_accuracy_on_similar_tables(folder):
    command = init(folder, "new", public=folder / "features.parquet", records=2000)
    shown = " ".join(run(*command, "--dry-run").stdout.split())
    assert "accuracy not simulated, because the public rows have no labels (--label)" in shown
    assert "unchanged" not in shown
    assert re.search(r"similar data accuracy \d+ % to \d+ %, for half of the tables", shown)
    assert dry_run(*command)["plan"]["similar_tables"]["n_tables"] == 15


def test_a_dry_run_accepts_the_public_rows_that_init_accepts(folder, tmp_path):
    """Fails if a missing label or id of a public row ends a dry run, or if rows vote at home."""
    table = patients(300, 1)
    labels = table["y"].to_pylist()
    ids = [str(row // 3) for row in range(300)]
    labels[7] = ids[250] = None
    for name, values in (("y", labels), ("who", ids)):
        table = table.set_column(table.column_names.index(name), name, [values])
    parquet.write_table(table, tmp_path / "public.parquet")
    command = init(folder, "gaps", public=tmp_path / "public.parquet")
    priced = run(*command, "--dry-run")
    note = "Simulations and comparisons leave out 2 public rows without label or id."
    assert note in priced.stderr
    assert "the public rows have about 3 rows per subject" in priced.stdout
    assert dry_run(*command)["plan"]["outlook"]["subjects"] == 100
    run(*command, "-q")


def test_a_dry_run_refuses_what_the_command_refuses(folder):
    store = folder / "store"
    cases = [
        (("audience", store, "default"), 2),
        (("audience", store, "more", "--epsilon", 50), 3),
        (init(folder, "store"), 2),
        (init(folder, "new", delta=0.5), 3),
    ]
    for command, code in cases:
        refused = run(*command, "--dry-run", code=code)
        assert refused.stderr.splitlines()[-1] == run(*command, code=code).stderr.splitlines()[-1]


def test_a_million_declared_records_need_no_yes(folder):
    """Their store keeps delta, whatever number of records is planned with later."""
    many = init(folder, "many", records=1_000_000)
    priced = dry_run(*many)
    assert priced["plan"]["delta"] == pytest.approx(1e-7, rel=1e-12)
    run(*many)
    with Store.open(folder / "many") as store:
        assert store.plans[0]["delta"] == store.guarantee().delta == priced["plan"]["delta"]
    refused = run(*init(folder, "more", records=1_000_000, delta=1e-5), code=3)
    assert "--yes" in refused.stderr


def test_a_private_number_of_records_is_not_looked_up(folder):
    shown = run(*init(folder, "new", records=[]), "--dry-run").stdout
    for size in ("300 records", "100,000 records"):
        assert size in shown
    assert "400 records" not in shown


def test_labels_of_public_rows_say_what_is_always_right_and_which_class_is_rare(folder, tmp_path):
    table = patients(300, 1).drop_columns(["who"])
    labels = np.array(table["y"].to_pylist())
    labels[20:] = "well"
    table = table.set_column(table.column_names.index("y"), "y", [labels.tolist()])
    parquet.write_table(table, tmp_path / "rare.parquet")
    _, _, *options = init(folder, "new", data=[], subject=[], public=tmp_path / "rare.parquet")
    command = ["plan", *options]
    shown = run(*command).stdout
    assert "% if every answer were the commonest" in " ".join(shown.split())
    assert "If published figures confirm these shares, use --class-prior 0.0" in shown
    assert "--class-prior" not in run(*command, "--class-prior", ".1,.9").stdout


def test_a_model_is_announced_before_anything_is_read(folder):
    told = run(*init(folder, "nowhere", "missing.parquet"), code=2).stderr
    assert "up to 90% of each budget trains a private model" in told


def test_figures_that_are_all_noise_are_refused_unless_they_are_meant(folder, tmp_path):
    copied(folder / "store", tmp_path)
    rows = ("--data", folder / "queries.parquet", "--label", "y", "--subject", "who")
    with Store.open(tmp_path / "store") as store:
        history = store.facts()["audiences"]["default"]["evaluations"]
    refused = run("evaluate", tmp_path / "store", *rows, "--share", 0.001, code=3)
    assert "--accept-noise" in refused.stderr
    with Store.open(tmp_path / "store") as store:
        assert store.facts()["audiences"]["default"]["evaluations"] == history == []
    meant = run("evaluate", tmp_path / "store", *rows, "--share", 0.001, "--accept-noise")
    assert "See --accept-noise" not in meant.stdout
    assert "-0" not in meant.stdout


def test_an_evaluation_states_its_precision_before_and_its_shares_after(folder, tmp_path):
    """Fails if a charged evaluation prints no figure, or a repeated one no earlier share."""
    copied(folder / "store", tmp_path)
    store = tmp_path / "store"
    before = contents(tmp_path)
    preview = run("evaluate", store, "--dry-run", "--share", 0.5).stdout
    assert re.search(r"^With \d+ subjects who pay at most 0.5 of their budgets", preview)
    few = json.loads(run("evaluate", store, "--dry-run", "--people", 4, "--json").stdout)
    assert few["figures"]["accuracy"]["value"] is None
    assert contents(tmp_path) == before
    assert "--data" in run("evaluate", store, code=2).stderr
    rows = ("--data", folder / "queries.parquet", "--label", "y", "--subject", "who")
    refused = run("evaluate", store, *rows, "--share", 0.5, "--people", 4, code=3).stderr
    assert "4 are expected. Nobody was charged." in refused
    assert "Earlier" not in run("evaluate", store, *rows, "--people", 4, code=3).stderr
    first = run("evaluate", store, *rows, "--share", 0.5)
    assert "earlier evaluation" not in first.stderr
    assert re.search(r"^Accuracy: [01]\.\d{3} \([\d.]+ to [\d.]+\)", first.stdout, re.MULTILINE)
    again = run("evaluate", store, *rows, "--share", 0.25, "--accept-noise")
    assert "Earlier: 1 evaluation, which offered a share of 0.5 of each budget." in again.stderr
    inspected = run("inspect", store).stdout
    assert "2 evaluations, which offered shares of 0.5, 0.25 of each budget, 0.75 in" in inspected


def test_compiling_is_told_as_it_goes_on(monkeypatch, capsys):
    monkeypatch.setattr(output, "FIRST_COMPILE_NOTE_S", 0.0)
    watch = output.make_compile_reporter()
    watch(3, 70)
    watch(4, 70)  # too soon for another line
    told = capsys.readouterr().err
    start = "vicinal: compiling, which happens once on a machine: "
    assert told == f"{start}3 of at most 70 functions in 0 s.\n"
