"""Every key that leaves this package is the one that it was: on disk, in JSON, in messages.

Where a dataclass is written by the names of its fields, a new name in the code is a new key in the
file, and nothing else notices. `written_keys.json` has all keys; what is written there anew is a
change of a format: data on disk needs a step that reads the old one, the rest a line in the
changelog. `WRITE_GOLDEN=1 pytest` of this file writes it.
"""

import dataclasses
import importlib
import json
import os
import re
import sqlite3
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("torch", reason="torch is not installed (extra `students`)")

from typer.testing import CliRunner

import shard_tools
import store_tools as tools
import vicinal
from vicinal.cli._main import app
from vicinal.features import PublicMap
from vicinal.labelling import (
    AskedRound,
    FileJournal,
    IndKNNLabeller,
    JournalEntry,
    ReleasedLabels,
    Round,
    save_answers,
)
from vicinal.serving._keys import KeyFile
from vicinal.store._receipts import SigningKey, erasure_receipt
from vicinal.students import _files as student_files

pytestmark = pytest.mark.quick

GOLDEN = Path(__file__).with_name("written_keys.json")
PACKAGE = Path(vicinal.__file__).parent
EXAMPLES = Path(__file__).parents[2] / "examples" / "plans"

BY_FIELDS = {
    "accounting._guarantee": ["Guarantee"],
    "audit._inspection": ["ModelInspection"],
    "audit._one_run": ["audit._guesses.Guesses"],
    "audit._trials": ["ControlResult"],
    "cli._demo": [],  # LabellingPlan or PlanChoice, which stand below
    "cli._keys": [],
    "cli._plan": ["ClassOptions", "engine._noise_planning.ReferenceUsage"],
    "cli._plan_vectors": ["planning._vector_plan.ExpectedError"],
    "cli._schema": ["datasets._coincidences.Coincidences"],
    "distributed._folders": ["ClusterDescription"],
    "labelling._labellers": ["linear._model_rule.ModelRule"],  # in this order
    "labelling._plan": ["LabellingPlan", "Round"],
    "reports._outcomes": ["FigureInterval"],
    "reports._plan_report": [
        "planning._plan_choice.PlanRequest",
        "planning._plan_simulation.SimulationResult",
    ],
    "serving._keys": ["ApiKey"],
    "serving._routes": ["store._status.Presence"],
    "smoothed._theorems": ["Bounds"],
    "store._erasure": ["Erasure"],
    "store._noisy_figures": ["store._evaluation.Evaluation"],
    "store._status": ["Quota"],
}
"""Modules with `asdict`, `astuple` or `vars(self)`; whose fields become keys there."""

WHOLE = ("distributed._messages", "serving._models")
"""Modules all of whose classes travel: as they are, or as JSON."""

NOT_KEPT = {
    "cli._output": "prints what others made",
    "datasets._dataset": "an example in a docstring",
    "labelling._loop": "a digest of a run's parameters",
    "predictors._fixed_plan": "a name in memory",
    "planning._plan_guarantee": "a name in memory",
}
"""Modules whose keys no other process reads, or another test sees."""


def of_module(name):
    return importlib.import_module(f"vicinal.{name}")


def fields_of(cls):
    if dataclasses.is_dataclass(cls):
        return [field.name for field in dataclasses.fields(cls)]
    return sorted(getattr(cls, "model_fields", ()))


def classes():
    """Yield the name and the fields of every class that is written by their names."""
    for module, names in BY_FIELDS.items():
        for name in names:
            place, _, cls = (name if "." in name else f"{module}.{name}").rpartition(".")
            yield f"{place}.{cls}", fields_of(getattr(of_module(place), cls))
    for module in WHOLE:
        for name, cls in vars(of_module(module)).items():
            if getattr(cls, "__module__", "") == f"vicinal.{module}" and fields_of(cls):
                yield f"{module}.{name}", fields_of(cls)


def keys_of(value, path=""):
    """Yield the path of every key in plain values."""
    if isinstance(value, dict):
        for key, one in value.items():
            yield f"{path}.{key}".lstrip(".")
            yield from keys_of(one, f"{path}.{key}")
    elif isinstance(value, list | tuple):
        for one in value:
            yield from keys_of(one, f"{path}[]")


DUMPS = json.dumps


class Spy:
    """Notes the keys of all JSON and of all arrays that modules of this package write."""

    def __init__(self, patch):
        self.seen = {}
        patch.setattr(json, "dumps", self._noting(json.dumps))
        patch.setattr(np, "savez", self._noting(np.savez))

    def _noting(self, function):
        def noting(first, **named):
            module = sys._getframe(1).f_globals["__name__"]
            if module.startswith("vicinal."):
                arrays = () if function is DUMPS else named.keys() - {"allow_pickle"}
                known = self.seen.setdefault(module[8:], set())
                known.update(keys_of(first), (re.sub(r"\d+", "N", name) for name in arrays))
            return function(first, **named)

        return noting


def write_a_store(folder):
    """Answer, evaluate and erase; return the tables of the ledger, and what `meta` holds."""
    more = {"reuse_predictions": "gate", "index": {"kind": "centroids", "cells": 4}}
    with tools.make(folder / "store", **more) as store:
        store.predict(tools.Q[:4], idempotency_key="one")
        store.open_audience("other", n_queries=60, model_share=0.5)
        store.allow("somebody", 30, audience="other")
        store.predict(tools.Q[:30], audience="other", analyst="somebody")
        store.add(tools.X[:2], tools.Y[:2], ["new", "new"], idempotency_key="two")
        store.evaluate(tools.Q[:9], [0, 1, 2] * 3, [f"v{i}" for i in range(9)])
        store.erase(["new"])
        erasure_receipt(store._parts, ["new"], SigningKey.create(folder / "key"))
    with sqlite3.connect(folder / "store" / "ledger.db") as database:
        names = "SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name"
        tables = {
            name: [row[1] for row in database.execute(f"PRAGMA table_info({name})")]
            for (name,) in database.execute(names).fetchall()
        }
        meta = database.execute("SELECT name FROM meta ORDER BY name").fetchall()
    database.close()
    return {"ledger tables": tables, "ledger meta": [name for (name,) in meta]}


def write_a_cluster(folder):
    """Answer, open an audience and add."""
    folder.mkdir()
    with shard_tools.local(shard_tools.clustered(folder, 2)) as cluster:
        cluster.predict(tools.Q[:4], idempotency_key="one")
        cluster.add(tools.X[:2], tools.Y[:2], ["new", "new"])
        cluster.erase(["new"])


def a_student():
    """Return the keys of what a student's file says."""
    images = SimpleNamespace(shape=(8, 8), mean=(0.0,), deviation=(1.0,))
    student = SimpleNamespace(
        name="mlp", classes=(0, 1), preprocessing=images, ranges=(), guarantee={}, second=None
    )
    return sorted(keys_of(student_files.about(student)))


def write_labels(folder):
    """Write a journal whose state has a private model, the answers, and the key of an API."""
    labeller = IndKNNLabeller(
        range(3), tools.Y, tools.PEOPLE, epsilon=4.0, n_records=300, model_share=0.2
    )
    labeller.embed(tools.X, tools.R, Round(60, 1.0))
    labeller.label(tools.Q[:4])
    soft = np.full((2, 2), 0.5, dtype=np.float32)
    asked = AskedRound(np.arange(2), np.arange(2), np.zeros(2), soft)
    FileJournal(folder).commit(JournalEntry("run", (asked,), labeller.state()))
    given = np.arange(2), np.arange(2), np.zeros(2), np.ones(2, bool), (0, 1), {}, soft
    kept = ReleasedLabels(*given)
    save_answers(kept, folder / "answers.npz")
    KeyFile(folder / "store").add("somebody", "analyst", "default")
    PublicMap(n_components=2).fit(tools.R).save(folder / "map.npz")


def printed(folder):
    """Yield the keys of what commands give as JSON."""
    plan = ["plan", "--records", "300", "--queries", "60", "--classes", "3", "--json"]
    priced = ["account", str(EXAMPLES / "ind_knn.json"), "--json"]
    for command in (plan, priced, ["inspect", str(folder / "store"), "--json"]):
        done = CliRunner().invoke(app, command)
        assert done.exit_code == 0, done.output
        yield f"vicinal {command[0]}", sorted(set(keys_of(json.loads(done.stdout))))
    done = CliRunner().invoke(
        app, ["certificate", str(folder / "store"), "--out", str(folder / "papers")]
    )
    assert done.exit_code == 0, done.output
    (paper,) = (folder / "papers").glob("*.json")
    yield "vicinal certificate", sorted(set(keys_of(json.loads(paper.read_text()))))


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """Return all keys, by the module that writes them, or by the class whose fields they are."""
    folder = tmp_path_factory.mktemp("written")
    with pytest.MonkeyPatch.context() as patch:
        spy = Spy(patch)
        ledger = write_a_store(folder)
        write_a_cluster(folder / "cluster")
        write_labels(folder)
    seen = {name: sorted(keys) for name, keys in spy.seen.items() if name not in NOT_KEPT}
    seen["students._files"] = a_student()
    seen |= printed(folder)
    return {**ledger, **dict(sorted(seen.items())), **dict(classes())}


def test_every_key_is_the_one_that_it_was(written):
    """Fails if a field, a column, a key or an array is called anything else where it is written."""
    if os.environ.get("WRITE_GOLDEN"):
        GOLDEN.write_text(json.dumps(written, indent=1) + "\n")
    known = json.loads(GOLDEN.read_text())
    assert {name: keys for name, keys in written.items() if keys != known.get(name)} == {}
    assert written.keys() == known.keys()


WRITES = re.compile(r"\b(json\.dumps|np\.savez)\(")
FIELDS = re.compile(
    r"\b(asdict|astuple|vars)\((?!estimator|settings|decorated|models|self\)(\.|$))"
)


def modules_with(pattern):
    texts = {path: path.read_text("utf-8") for path in PACKAGE.rglob("*.py")}
    return {
        ".".join(path.relative_to(PACKAGE).with_suffix("").parts)
        for path, text in texts.items()
        if pattern.search(text)
    }


def test_no_module_writes_keys_unseen(written):
    """Fails if a module begins to write what this file does not look at."""
    assert modules_with(WRITES) - written.keys() <= NOT_KEPT.keys()
    assert modules_with(FIELDS) - {"_lazy"} <= BY_FIELDS.keys()
