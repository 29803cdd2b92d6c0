"""Experiments `market-attributes` and `table1-cifar`: exact counts, prices, marked features."""

import io
import json

import numpy as np
import pyarrow as pa
import pytest
from PIL import Image
from pyarrow import parquet
from typer.testing import CliRunner

from experiments.__main__ import app as experiments
from experiments.students import attributes as wing
from experiments.students import methods
from experiments.students.packed import is_packed, packed_images
from vicinal.accounting._plan import account
from vicinal.datasets import Dataset
from vicinal.errors import InvalidInput

# Three people to train on, with 1, 2 and 3 attributes; an age is one of them.
TABLE = """split,identity,gender,age,hat
train,0001,1,2,1
train,0002,2,2,1
train,0003,2,3,2
test,0004,1,1,2
test,0005,2,4,1
"""


def run(*arguments, code=0):
    result = CliRunner().invoke(experiments, [str(part) for part in arguments])
    assert result.exit_code == code, result.output
    return result.stdout if code == 0 else result.output


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "people.csv"
    path.write_text(TABLE)
    return path


# ---------------------------------------------------------------- market-attributes


def test_attributes_are_read_exactly_and_identities_are_not_kept(table):
    people = wing.Attributes.load(table)
    assert people.names == ("gender", "age1", "age2", "age3", "age4", "hat")
    assert people.private.sum(axis=1).tolist() == [1, 2, 3]
    assert people.public.tolist() == [
        [False, True, False, False, False, True],
        [True, False, False, False, True, False],
    ]


@pytest.mark.parametrize(
    ("tau", "people", "lost"), [(3.0, 0, 0.0), (2.0, 1, 1 / 6), (1.0, 2, 3 / 6), (1.5, 2, 2 / 6)]
)
def test_what_a_tau_clips_is_counted_exactly(table, tau, people, lost):
    clipped = wing.Clipped.by(wing.Attributes.load(table).private, tau)
    assert (clipped.people, clipped.of) == (people, 3)
    assert clipped.lost == pytest.approx(lost)


@pytest.mark.parametrize(
    "content",
    [
        "",
        "split,identity,age\ntrain,1,2\ntest,2,2\n",  # no attribute but age
        TABLE.replace("0001,1,2,1", "0001,1,2"),
        TABLE.replace("0001,1,2,1", "0001,3,2,1"),
        TABLE.replace("0001,1,2,1", "0001,1,5,1"),
        TABLE.replace("test", "train"),
        "\udcff",
    ],
)
def test_bad_tables_are_refused_without_echo(tmp_path, content):
    path = tmp_path / "people.csv"
    path.write_bytes(content.encode("utf-8", "surrogateescape"))
    with pytest.raises(InvalidInput) as error:
        wing.Attributes.load(path)
    assert "0001" not in str(error.value)
    with pytest.raises(InvalidInput, match="no file"):
        wing.Attributes.load(tmp_path / "none.csv")


def test_the_command_prices_correctly_and_says_that_features_are_made(table, tmp_path):
    out = tmp_path / "out"
    asked = ("market-attributes", "--data", table, "--neighbors", 10)
    told = json.loads(run(*asked, "--runs", 1, "--out", out, "--json"))
    assert told["features"] == "made"
    assert told["simulation"] is True
    for point in told["points"]:
        release = {"kind": "multilabel", "tau": point["tau"], "sigma": point["sigma"]}
        sampled = {**release, "gamma": point["gamma"], "count": wing.QUERIES}
        price = account({"delta": 1e-5, "releases": [sampled]})
        assert point["epsilon"]["best"] == price["epsilon"]
    text = (out / "market-attributes.txt").read_text()
    assert "made features" in text
    assert "0.67" in text
    assert (out / "market-attributes.png").stat().st_size > 10_000


# ---------------------------------------------------------------- table1-cifar


def pack(path, images, labels):
    parts = []
    for image in images:
        file = io.BytesIO()
        Image.fromarray(image).save(file, "PNG")
        parts.append(file.getvalue())
    offsets = np.cumsum([0, *map(len, parts)])
    data = np.frombuffer(b"".join(parts), dtype=np.uint8)
    np.savez(path, data=data, offsets=offsets, labels=np.asarray(labels, dtype=np.uint8))
    return path


@pytest.fixture
def packed(tmp_path):
    images = np.random.default_rng(0).integers(0, 256, (5, 8, 8, 3), dtype=np.uint8)
    return pack(tmp_path / "images.npz", images, [3, 1, 4, 1, 5]), images


def test_packed_images_are_unpacked(packed):
    path, images = packed
    assert is_packed(path)
    found = packed_images(path)
    np.testing.assert_array_equal(found.features, images)
    assert found.labels.tolist() == [3, 1, 4, 1, 5]


@pytest.mark.parametrize(
    "change",
    [
        {"labels": np.array([1, 2])},
        {"offsets": np.array([0, 10, 20, 30, 40, 50])},
        {"offsets": np.array([])},
        {"data": np.zeros(10)},
        {"data": np.zeros(400, dtype=np.uint8)},
    ],
)
def test_damaged_packages_are_refused(packed, tmp_path, change):
    with np.load(packed[0]) as stored:
        np.savez(tmp_path / "bad.npz", **{**stored, **change})
    with pytest.raises(InvalidInput, match="not a sound"):
        packed_images(tmp_path / "bad.npz")
    with pytest.raises(InvalidInput, match="no file"):
        packed_images(tmp_path / "none.npz")


class Naive:
    """Learns the commonest answer of the nearest places, without torch."""

    class Student:
        def __init__(self, examples, labels):
            self.examples, self.labels = examples.reshape(len(examples), -1).astype(float), labels

        def transform(self, examples):
            return examples.reshape(len(examples), -1).astype(float)

        def predict_proba(self, examples):
            from sklearn.neighbors import KNeighborsClassifier

            model = KNeighborsClassifier(5).fit(self.examples, self.labels)
            found = np.zeros((len(examples), 3))
            found[:, model.classes_] = model.predict_proba(self.transform(examples))
            return found

    def learn(self, examples, rows, labels, _number, _begin, *_guide):
        return self.Student(examples[rows], labels)

    def save(self, _student, path, _guarantee):
        path.touch()

    def load(self, path):
        raise AssertionError(path)


def images(size, seed):
    generator = np.random.default_rng(seed)
    labels = generator.integers(3, size=size)
    pictures = generator.integers(0, 60, (size, 16, 16, 3)).astype(np.uint8)
    for row, label in enumerate(labels):
        pictures[row, :, 5 * label : 5 * label + 5] += 150
    return Dataset(pictures, labels)


@pytest.fixture
def few(monkeypatch):
    """Ask about few public examples, as there are no more in these tests."""
    from experiments.students import runs as labelling_runs

    for module in (labelling_runs, methods):
        monkeypatch.setattr(module, "N_PUBLIC", 120)
    for name, value in (("ANSWERS", 100), ("K", 20), ("SIGMA", 3.0)):
        monkeypatch.setattr(methods, name, value)


@pytest.fixture
def world(few):  # noqa: ARG001 (must come first)
    from experiments.students import runs as labelling_runs

    records, test = images(900, 2), images(240, 3)
    dataset = Dataset(records.features, records.labels, test=test)
    cached = labelling_runs.Cached(dataset, lambda *_: lambda _: None)
    return labelling_runs.World.of(dataset, cached, 0)


def test_methods_stand_side_by_side_at_their_correct_prices(world):
    begin = lambda *_: lambda _: None  # noqa: E731
    first = methods.private_knn(world, Naive(), 0, begin)
    release = {"kind": "noisy_max", "sigma": 3.0, "gamma": methods.GAMMA, "count": 100}
    assert first.epsilon == account({"delta": 1e-5, "releases": [release]})["epsilon"]
    lines = [
        first,
        methods.ind_knn(world, Naive(), first.epsilon, 2, 0, begin),
        methods.noisy_sgd(world, first.epsilon, 0),
        methods.not_private(world, Naive(), 0, begin),
    ]
    assert all(line.right > 0.8 for line in lines), lines
    text = methods.text_table(lines)
    assert len(text.splitlines()) == 5
    assert "none" in text.splitlines()[-1]


def test_the_command_prints_all_methods(few, tmp_path):  # noqa: ARG001 (must come first)
    pytest.importorskip("torch", reason="students need the extra 'students'")
    files = []
    for name, size in (("train", 900), ("test", 240)):
        data = images(size, size)
        files += [f"--{name}", pack(tmp_path / f"{name}.npz", data.features, data.labels)]
    how = ("--network", "small", "--steps", 3, "--rounds", 1, "--runs", 2)
    out = ("--out", tmp_path / "out", "--json")
    told = json.loads(run("table1-cifar", *files, *how, *out))
    first, *rest = told["lines"][:6]
    spent = [line["epsilon"] for line in rest]
    expected = [methods.PRINTED, methods.PRINTED, first["epsilon"], first["epsilon"], None]
    assert spent == expected
    assert told["simulation"] is True
    text = (tmp_path / "out" / "table1-cifar.txt").read_text()
    assert "is not to be had offline" in " ".join(text.split())
    assert [line.split()[-1] for line in text.splitlines()[1:7]] == ["2"] * 6


def test_the_command_of_tables_ends_and_names_its_contenders(tmp_path):
    """On a made-up table under the name of a real one."""
    rng = np.random.default_rng(0)
    age, kids = rng.normal(30, 5, 2300), rng.random(2300)
    more = np.where(kids + (age - 30) / 20 > 0.5, "yes", "no")
    columns = {"row": np.arange(2300), "age": age, "work": rng.random(2300), "morekids": more}
    parquet.write_table(pa.table(columns), tmp_path / "Fertility.parquet")
    method = "logistic regression, not private"
    asked = ("tables", "--data", tmp_path, "--runs", 1, "--queries", 100, "--epsilon", 1)
    told = run(*asked, "--method", method, "--out", tmp_path)
    assert f"| Fertility morekids | 100 | {method} | ." in told
    (row,) = json.loads((tmp_path / "tables.json").read_text())["rows"]
    assert 0.5 < row["auc"] < 1
    assert 0 < row["auc_error"] < 0.1
    assert "one of" in run(*asked, "--method", "another", code=2)
    kept = (tmp_path / "tables.cells.jsonl").read_text()
    ours = [
        kept.replace(method, name).replace('"epsilon": null', '"epsilon": 1.0')
        for name in ("Ind-KNN with model", "NoisySGD", "Ind-KNN with model, from schema")
    ]
    elsewhere = ours[1].replace("NoisySGD", "AdaSSP").replace('"run": 0', '"run": 7')
    kept = "".join([*ours, elsewhere, ours[0].rstrip("\n")[:-9]])
    (tmp_path / "other.jsonl").write_text(kept)
    told = run(*asked, "--merge", tmp_path / "other.jsonl", "--known", "--out", tmp_path)
    assert ": +0.000 (one split) |" in told, "a line that was cut is left out"
    assert "| +0.000 (+0.000 to +0.000) |" in told, "made-up rows beside real ones"
    assert "AdaSSP" not in told, "its run was not asked for"
    small = ("small-tables", "--data", tmp_path, "--records", "30,200", "--public", "40")
    plans = ("--queries", 20, "--epsilon", 9, "--answers", 40)
    cells = json.loads(run(*small, *plans, "--json", "--out", tmp_path))["rows"]
    assert [cell["share"] > 0 for cell in cells] == [False, True]
    assert cells[0]["accuracy_gain"] == cells[0]["auc_gain"] == 0
    assert all(cell["runs"] == 2 for cell in cells if cell["share"])
    rules = ("rare-classes", "--data", tmp_path, "--task", "Fertility morekids", "--queries", 60)
    told = json.loads(run(*rules, "--epsilon", 9, "--json", "--out", tmp_path))["rows"]
    assert [row["auc"] is None for row in told] == [False, False, False, True, False, False, False]
    assert all(0.5 < row["accuracy"] <= 1 for row in told)
    assert "one of" in run("rare-classes", "--data", tmp_path, "--task", "another", code=2)
