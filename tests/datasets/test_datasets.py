"""Loaders of npz, CSV and Parquet files and of the shipped digits."""

import csv
import gzip
import hashlib
from importlib.resources import files

import numpy as np
import pyarrow as pa
import pytest
from numpy.testing import assert_array_equal
from pyarrow import parquet

from vicinal.datasets import Dataset, load_mnist, load_table
from vicinal.errors import InvalidInput

MNIST_SHA256 = "06af5dfe73b70e3bc1c36439982b18a8d76803db9b544f6fdf838a37fbb01b64"


def test_the_shipped_mnist_file_is_the_one_described():
    data = files("vicinal.datasets") / "data"
    assert hashlib.sha256((data / "mnist.npz").read_bytes()).hexdigest() == MNIST_SHA256
    assert MNIST_SHA256 in (data / "README.md").read_text()


def test_mnist_has_its_published_sizes():
    train, test = load_mnist().split()
    assert train.features.shape == (60_000, 28, 28)
    assert test.features.shape == (10_000, 28, 28)
    assert train.features.dtype == np.uint8
    assert np.bincount(train.labels).tolist() == [
        5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949,
    ]  # fmt: skip
    assert np.bincount(test.labels)[:3].tolist() == [980, 1135, 1032]


def test_a_data_set_hands_out_chosen_records():
    held_out = Dataset(np.zeros((1, 2)))
    data = Dataset(
        np.arange(8).reshape(4, 2), np.array([0, 1, 2, 3]), np.array(list("abca")), held_out
    )
    for rows in (slice(1, 4, 2), np.array([1, 3]), np.array([False, True, False, True])):
        taken = data.take(rows)
        assert_array_equal(taken.features, [[2, 3], [6, 7]])
        assert_array_equal(taken.labels, [1, 3])
        assert_array_equal(taken.subjects, ["b", "a"])
        assert taken.test is None
    train, test = data.split()
    assert test is held_out
    assert train.test is None
    assert len(train) == 4


def test_a_representation_tells_neither_values_nor_how_many():
    data = Dataset(np.full((4321, 5), 77.0), np.full(4321, 77), test=Dataset(("secret",)))
    assert repr(data) == "Dataset(float64 records of shape (5,), labels, test)"
    assert repr(data.test) == "Dataset(texts)"


def test_npz_with_short_keys(tmp_path):
    path = tmp_path / "short.npz"
    for labels in (["a", "b", "a"], [True, False, True]):
        np.savez(path, x=np.eye(3), y=np.array(labels), subjects=np.array([4, 4, 5]))
        data = load_table(path)
        assert_array_equal(data.features, np.eye(3))
        assert data.labels.tolist() == labels
        assert_array_equal(data.subjects, [4, 4, 5])
        assert data.test is None


def test_npz_with_a_test_part(tmp_path):
    path = tmp_path / "long.npz"
    np.savez(path, x_train=np.eye(3), y_train=np.arange(3), x_test=np.ones((1, 3)))
    train, test = load_table(str(path)).split()
    assert_array_equal(train.labels, [0, 1, 2])
    assert_array_equal(test.features, np.ones((1, 3)))
    assert test.labels is None


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"z": np.eye(3)}, "x_train"),
        ({"x": np.eye(3), "y": np.arange(2)}, "one for every record"),
        ({"x": np.eye(3), "y": np.zeros(3)}, "integers or strings"),
        ({"x": np.eye(3), "subjects": np.zeros(3)}, "integers or strings"),
        ({"x": np.eye(3), "subjects": np.array([True, False, True])}, "integers or strings"),
        ({"x": np.zeros(3)}, "one row per record"),
        ({"x": np.full((1, 2), np.nan)}, "finite"),
        ({"x": np.full((1, 2), "secret")}, "numbers"),
        ({"x": np.full((1, 2), "secret", dtype=object)}, "Python objects are never read"),
    ],
)
def test_unusable_npz_files_are_refused(arrays, message, tmp_path):
    np.savez(tmp_path / "wrong.npz", **arrays)
    with pytest.raises(InvalidInput, match=message) as caught:
        load_table(tmp_path / "wrong.npz")
    assert "secret" not in str(caught.value)


def test_damaged_npz_files_are_refused(tmp_path):
    whole = tmp_path / "whole.npz"
    np.savez_compressed(whole, x=np.random.default_rng(0).normal(size=(50, 50)))
    content = bytearray(whole.read_bytes())
    content[len(content) // 2] ^= 0xFF
    for name, damaged in (("cut", content[:-40]), ("flipped", content), ("empty", b"")):
        (tmp_path / f"{name}.npz").write_bytes(damaged)
        with pytest.raises(InvalidInput, match=f"{name}.npz is damaged, or is not an npz"):
            load_table(tmp_path / f"{name}.npz")


TABLE = "name,age,height,diagnosis\nAnn,30, 1.5 ,0\nBob,41,1e0,1\nAnn,31,-2,1\n"


@pytest.fixture(params=["table.csv", "table.csv.gz"])
def table(request, tmp_path):
    path = tmp_path / request.param
    content = gzip.compress(TABLE.encode()) if path.suffix == ".gz" else TABLE.encode()
    path.write_bytes(content)
    return path


def test_csv_columns_become_features_labels_and_subjects(table):
    data = load_table(table, label="diagnosis", subject="name")
    assert_array_equal(data.features, [[30, 1.5], [41, 1], [31, -2]])
    assert data.features.dtype == np.float64
    assert_array_equal(data.labels, [0, 1, 1])
    assert data.labels.dtype == np.int64
    assert_array_equal(data.subjects, ["Ann", "Bob", "Ann"])


@pytest.fixture
def small_blocks(monkeypatch):
    monkeypatch.setattr("vicinal.datasets.tables._BLOCK", 64)


@pytest.mark.usefixtures("small_blocks")
def test_csv_texts_with_commas_quotes_and_newlines_survive(tmp_path):
    texts = ["a, b", 'say "x"', "two\nlines", "NA", "  spaced  ", "naïve", "nan"] * 10
    with (tmp_path / "texts.csv").open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([("text", "label"), *((t, "World") for t in texts)])
    data = load_table(tmp_path / "texts.csv", label="label", text="text")
    assert data.features == tuple(texts)
    assert set(data.labels.tolist()) == {"World"}


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (["7", "-12", "0"], "i"), (["7", "07"], "U"), (["-0", "0"], "U"), (["true", "false"], "U"),
        (["12345678901234567890", "1"], "U"),
    ],
)  # fmt: skip
def test_names_are_integers_only_when_nothing_is_lost(values, kind, tmp_path):
    path = tmp_path / "names.csv"
    path.write_text("x,id\n" + "".join(f"1,{value}\n" for value in values))
    subjects = load_table(path, subject="id").subjects
    assert subjects.dtype.kind == kind
    assert [str(subject) for subject in subjects] == values


@pytest.mark.usefixtures("small_blocks")
def test_a_type_that_shows_late_in_a_csv_file_is_no_trouble(tmp_path):
    path = tmp_path / "late.csv"
    rows = 100
    path.write_text("x,id\n" + "1,1\n" * rows + "1.5,abc\n")
    data = load_table(path, subject="id")
    assert data.features[-1, 0] == 1.5
    assert data.subjects[[0, -1]].tolist() == ["1", "abc"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("x,y\n1,2\n1,secret\n", "column 2 of the file must hold finite numbers"),
        ("x,y\n1,2\n1,\n", "column 2 of the file lacks values"),
        ("x,y\n1,2\n1,NaN\n", "column 2 of the file lacks values"),
        ("x,y\n1,2\n1,NA\n", "column 2 of the file lacks values"),
        ("x,y\n1,2\n1,-inf\n", "column 2 of the file must hold finite"),
        ("x,y\n1,2\n1,2,secret\n", "damaged"), ("x,y\n1,2\nsecret\n", "damaged"),
        ("x,x\n1,2\n", "two columns of one name"), ("secret,y\n", "no records"), ("", "damaged"),
    ],
)  # fmt: skip
def test_unusable_csv_files_are_refused_without_an_echo(content, message, tmp_path):
    path = tmp_path / "wrong.csv"
    path.write_text(content)
    with pytest.raises(InvalidInput, match=message) as caught:
        load_table(path)
    assert "secret" not in str(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__ or caught.value.__context__ is None


def test_missing_labels_and_other_encodings_are_refused(tmp_path):
    path = tmp_path / "wrong.csv"
    path.write_text("x,y\n1,a\n2,\n")
    with pytest.raises(InvalidInput, match="label column lacks values"):
        load_table(path, label="y")
    path.write_bytes("x,y\n1,é\n".encode("latin-1"))
    with pytest.raises(InvalidInput, match="UTF-8"):
        load_table(path, label="y")
    (tmp_path / "wrong.csv.gz").write_text("x\n1\n")
    with pytest.raises(InvalidInput, match="damaged"):
        load_table(tmp_path / "wrong.csv.gz")


def test_the_call_itself_is_checked(table, tmp_path):
    for wrong, message in (
        ({"label": "nobody"}, "no column 'nobody', which you named as the label"),
        ({"subject": "nobody"}, "you named as the subject"),
        ({"text": "nobody"}, "named as the text column"),
        ({"columns": ["age", "nobody"]}, "no column 'nobody', which you named as a feature column"),
        ({"columns": "age"}, "put it into a list"),
        ({"columns": []}, "at least one feature"),
        ({"columns": ["age"], "text": "name"}, "either"),
    ):
        with pytest.raises(InvalidInput, match=message) as caught:
            load_table(table, **wrong)
        assert "diagnosis" not in str(caught.value)
    with pytest.raises(InvalidInput, match="no file"):
        load_table(tmp_path / "absent.csv")
    (tmp_path / "table.doc").touch()
    with pytest.raises(InvalidInput, match="must end in"):
        load_table(tmp_path / "table.doc")


def _write_parquet(path, **columns):
    parquet.write_table(pa.table(columns), path)
    return path


def test_parquet_columns_become_features_labels_and_subjects(tmp_path):
    path = _write_parquet(
        tmp_path / "t.parquet", whole=pa.array([1, 2], pa.uint8()),
        half=pa.array([0.5, 1.5], pa.float32()), flag=[True, False], ill=[False, True],
        who=pa.array(["Ann", "Bob"]).dictionary_encode(),
    )  # fmt: skip
    data = load_table(path, label="ill", subject="who")
    assert_array_equal(data.features, [[1, 0.5, 1], [2, 1.5, 0]])
    assert data.labels.tolist() == [0, 1]
    assert data.subjects.tolist() == ["Ann", "Bob"]
    assert load_table(path, text="who").features == ("Ann", "Bob")


@pytest.mark.parametrize(
    ("column", "message"),
    [
        (pa.array([1.0, None]), "lacks values"),
        (pa.array([1.0, np.nan]), "lacks values"),
        (pa.array([1.0, np.inf]), "finite"),
        (pa.array(["1", "secret"]), "numbers only"),
        (pa.array([[1.0], [2.0]]), "numbers only"),
        (pa.array([1, 2], pa.timestamp("s")), "numbers only"),
    ],
)
def test_unusable_parquet_columns_are_refused(column, message, tmp_path):
    with pytest.raises(InvalidInput, match=message) as caught:
        load_table(_write_parquet(tmp_path / "t.parquet", x=column))
    assert "secret" not in str(caught.value)


def test_names_in_parquet_must_be_integers_or_strings(tmp_path):
    path = _write_parquet(
        tmp_path / "t.parquet", x=[1.0, 2.0], y=[1.5, 2.0],
        big=pa.array([2**64 - 1, 0], pa.uint64()), gap=["a", None],
    )  # fmt: skip
    for name, message in (("y", "integers or strings"), ("big", "64 bits"), ("gap", "lacks")):
        with pytest.raises(InvalidInput, match=message):
            load_table(path, label=name)
    with pytest.raises(InvalidInput, match="text column must hold strings"):
        load_table(path, text="y")
    (tmp_path / "wrong.parquet").write_text("not parquet")
    with pytest.raises(InvalidInput, match="damaged"):
        load_table(tmp_path / "wrong.parquet")
