"""Every key that leaves this package is the one that it was: on disk, in JSON, in messages.

Where a dataclass is written by the names of its fields, a new name in the code is a new key in the
file, and nothing else notices. `written_keys.json` has all keys; what is written there anew is a
change of a format: data on disk needs a step that reads the old one, the rest a line in the
changelog. `WRITE_GOLDEN=1 pytest` of this file writes it.
"""

import dataclasses
import functools
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
from vicinal import labelling
from vicinal.cli import app
from vicinal.features import PublicMap
from vicinal.serving import KeyFile
from vicinal.store import SigningKey, erasure_receipt
from vicinal.students import about

pytestmark = pytest.mark.quick

GOLDEN = Path(__file__).with_name("written_keys.json")
PACKAGE = Path(vicinal.__file__).parent
EXAMPLES = Path(__file__).parents[2] / "examples" / "plans"

BY_FIELDS = {
    "accounting": ["Guarantee"], "audit": ["ControlResult"],
    "cli": ["ReferenceUsage", "Coincidences"], "distributed": ["ClusterDescription"],
    "labelling": ["LabellingPlan", "Round"], "ledger": ["Renewal"],
    "reports": ["SimulationResult", "ExpectedError"],
    "serving": ["ApiKey", "Presence"], "smoothed": ["Bounds"],
    "store": ["Erasure", "Evaluation", "Quota"],
}  # fmt: skip
"""By package: classes whose fields become keys there, by `asdict`, `astuple` or `vars(self)`."""

WHOLE = ("VoteRequest", "PredictRequest")
"""One class of each module all of whose classes travel: as they are, or as JSON."""

NOT_KEPT = {
    "datasets": "an example in a docstring",
    "ledger": "the columns of its tables, which are looked at",
    "planning": "a name in memory",
    "predictors": "a name in memory",
}
"""Packages whose keys no other process reads, or another test sees."""


@functools.cache
def homes():
    """Return the module that defines each class, by the class's name, which is used once."""
    found = {}
    for path in PACKAGE.rglob("*.py"):
        module = ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts)
        for name in re.findall(r"^class (\w+)", path.read_text("utf-8"), re.MULTILINE):
            found[name] = module
    return found


def fields_of(cls):
    if dataclasses.is_dataclass(cls):
        return [field.name for field in dataclasses.fields(cls)]
    return sorted(getattr(cls, "model_fields", ()))


def classes():
    """Yield the name and the fields of every class that is written by their names."""
    for name in {name for names in BY_FIELDS.values() for name in names}:
        yield name, fields_of(getattr(importlib.import_module(homes()[name]), name))
    for one in WHOLE:
        for name, cls in vars(importlib.import_module(homes()[one])).items():
            if getattr(cls, "__module__", "") == homes()[one] and fields_of(cls):
                yield name, fields_of(cls)


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
            frame = sys._getframe(1)
            while (
                frame.f_globals["__name__"] == "vicinal.ledger._sealed_files"
            ):  # for somebody else
                frame = frame.f_back
            module = frame.f_globals["__name__"]
            if module.startswith("vicinal."):
                arrays = () if function is DUMPS else named.keys() - {"allow_pickle"}
                known = self.seen.setdefault(module.split(".")[1], set())
                known.update(keys_of(first), (re.sub(r"\d+", "N", name) for name in arrays))
            return function(first, **named)

        return noting


def write_a_store(folder):
    """Answer, evaluate and erase; return the tables of the ledger, and what `meta` holds."""
    with tools.make(folder / "store", index={"kind": "lsh", "tables": 4}) as store:
        store.predict(tools.Q[:4], idempotency_key="one")
        store.open_audience("other", n_queries=60, model_share=0.5)
        store.allow("somebody", 30, audience="other")
        store.predict(tools.Q[:30], audience="other", analyst="somebody")
        store.add(tools.X[:2], tools.Y[:2], ["new", "new"], idempotency_key="two")
        store.evaluate(tools.Q[:9], [0, 1, 2] * 3, [f"v{i}" for i in range(9)], accept_noise=True)
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
    return sorted(keys_of(about(student)))


def write_labels(folder):
    """Write a journal whose state has a private model, the answers, and the key of an API."""
    labeller = labelling.IndKNNLabeller(
        range(3), tools.Y, tools.PEOPLE, epsilon=4.0, n_records=300, model_share=0.2
    )
    labeller.embed(tools.X, tools.R, labelling.Round(60, 1.0))
    labeller.label(tools.Q[:4])
    soft = np.full((2, 2), 0.5, dtype=np.float32)
    asked = labelling.AskedRound(np.arange(2), np.arange(2), np.zeros(2), soft)
    labelling.FileJournal(folder).commit(labelling.JournalEntry("run", (asked,), labeller.state()))
    given = np.arange(2), np.arange(2), np.zeros(2), np.ones(2, bool), (0, 1), {}, soft
    kept = labelling.ReleasedLabels(*given)
    labelling.save_answers(kept, folder / "answers.npz")
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
    """Return all keys, by the package that writes them, or by the class whose fields they are."""
    folder = tmp_path_factory.mktemp("written")
    with pytest.MonkeyPatch.context() as patch:
        spy = Spy(patch)
        ledger = write_a_store(folder)
        write_a_cluster(folder / "cluster")
        write_labels(folder)
    seen = {name: sorted(keys) for name, keys in spy.seen.items() if name not in NOT_KEPT}
    seen["students"] = a_student()
    seen |= printed(folder)
    return {**ledger, **dict(sorted(seen.items())), **dict(sorted(classes()))}


def test_every_key_is_the_one_that_it_was(written):
    if os.environ.get("WRITE_GOLDEN"):
        GOLDEN.write_text(json.dumps(written, indent=1) + "\n")
    known = json.loads(GOLDEN.read_text())
    assert {name: keys for name, keys in written.items() if keys != known.get(name)} == {}
    assert written.keys() == known.keys()


WRITES = re.compile(r"\b(json\.dumps|np\.savez)\(")
FIELDS = re.compile(
    r"\b(asdict|astuple|vars)\((?!estimator|settings|decorated|models|self\)(\.|$))"
)


def packages_with(pattern):
    texts = {path: path.read_text("utf-8") for path in PACKAGE.rglob("*.py")}
    return {
        path.relative_to(PACKAGE).parts[0] for path, text in texts.items() if pattern.search(text)
    }


def test_no_package_writes_keys_unseen(written):
    seen = written.keys() | NOT_KEPT.keys() | {"cli"}  # prints what others made
    assert packages_with(WRITES) <= seen
    assert packages_with(FIELDS) - {"_lazy.py", "testing.py"} <= BY_FIELDS.keys() | NOT_KEPT.keys()
