"""Columns are found by name and have one role; wide tables are read in linear time."""

import unicodedata

import numpy as np
import pyarrow as pa
import pytest
from PIL import Image
from pyarrow import parquet

from vicinal.datasets import load_images, load_table
from vicinal.datasets.tables import _ColumnRoles
from vicinal.errors import InvalidInput
from vicinal.features import CsvForm, TableSchema

COMPOSED, DECOMPOSED = "Größe", unicodedata.normalize("NFD", "Größe")


@pytest.mark.parametrize(
    ("roles", "words"),
    [
        ({"label": "a", "subject": "a"}, "'a' is named as label and as subject"),
        ({"label": "a", "columns": ["a", "b"]}, "'a' is named as label and as feature column"),
        ({"subject": "b", "columns": ["a", "b"]}, "'b' is named as subject and as feature column"),
        ({"columns": ["a", "b", "a"]}, "'a' is named twice as feature column"),
        ({"columns": ["a", " a "]}, "'a' is named twice as feature column"),
        ({"label": "a", "text": "a"}, "'a' is named as label and as text column"),
        ({"subject": "a", "text": "a"}, "'a' is named as subject and as text column"),
        ({"subject": "a", "targets": ["a"]}, "'a' is named as subject and as target column"),
        ({"targets": ["b"], "columns": ["a", "b"]}, "'b' is named as target column and as feature"),
        ({"targets": ["a", "a"]}, "'a' is named twice as target column"),
    ],
)
def test_a_column_has_one_role(roles, words, tmp_path):
    (tmp_path / "table.csv").write_text("a,b\n1,2\n3,4\n")
    with pytest.raises(InvalidInput, match=words):
        load_table(tmp_path / "table.csv", **roles)


def test_a_feature_of_the_schema_is_no_label(tmp_path):
    (tmp_path / "table.csv").write_text("a,b\n1,2\n3,4\n")
    number = {"kind": "number", "low": 0, "high": 9}
    declared = {"format": "vicinal table schema", "version": 1, "columns": {"a": number}}
    with pytest.raises(InvalidInput, match="declares 'a' as a feature, but it is the column of"):
        load_table(tmp_path / "table.csv", label="a", schema=TableSchema.from_dict(declared))


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_names_of_columns_are_compared_composed_and_trimmed(suffix, tmp_path):
    path = tmp_path / f"table{suffix}"
    if suffix == ".csv":
        path.write_text(f" {DECOMPOSED} ,b\n7,1\n8,2\n", encoding="utf-8")
    else:
        parquet.write_table(pa.table({f" {DECOMPOSED} ": [7, 8], "b": [1, 2]}), path)
    assert load_table(path, label=COMPOSED).labels.tolist() == [7, 8]
    assert load_table(path, subject=f"{DECOMPOSED} ").subjects.tolist() == [7, 8]
    assert load_table(path, columns=["b", COMPOSED]).features.tolist() == [[1, 7], [2, 8]]


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
@pytest.mark.parametrize("names", [("a", "b", "a"), ("a", "b", " a"), (COMPOSED, "b", DECOMPOSED)])
def test_two_columns_of_one_name_are_refused_by_their_numbers(suffix, names, tmp_path):
    path = tmp_path / f"table{suffix}"
    if suffix == ".csv":
        path.write_text(",".join(names) + "\n1,2,3\n", encoding="utf-8")
    else:
        parquet.write_table(pa.Table.from_arrays([pa.array([1])] * 3, names=list(names)), path)
    with pytest.raises(InvalidInput, match="two columns of one name, column 1 and column 3"):
        load_table(path)


def test_all_lacking_feature_columns_are_named(tmp_path):
    (tmp_path / "table.csv").write_text("a,b\n1,2\n")
    with pytest.raises(InvalidInput, match="no columns 'c', 'd', which hold features"):
        load_table(tmp_path / "table.csv", columns=["a", "c", "d"])


class CountedTable:
    """A table that counts how often all its names are listed, which takes time linear in width."""

    def __init__(self, width):
        self.table = pa.table({f"c{i}": [1.0] for i in range(width)})
        self.n_listings = 0

    @property
    def column_names(self):
        self.n_listings += 1
        return self.table.column_names

    def column(self, index):
        return self.table.column(index)


def test_finding_a_column_takes_no_longer_in_a_wide_table():
    """Fails if reading is quadratic in the columns: 8,000 of them took 26 seconds."""
    listings = set()
    for width in (10, 500):
        table = CountedTable(width)
        roles = _ColumnRoles(None, None, None, None, None, ())
        assert roles.build_dataset(table).features.shape == (1, width)
        listings.add(table.n_listings)
    assert len(listings) == 1


def test_a_wide_table_is_read(tmp_path):
    width = 5_000
    lines = [[f"c{i}" for i in range(width)], *(["1,5"] * width for _ in range(3))]
    path = tmp_path / "wide.csv"
    path.write_text("".join(";".join(line) + "\n" for line in lines))
    data = load_table(path, form=CsvForm(";", ","))
    assert data.features.shape == (3, width)
    assert np.all(data.features == 1.5)


@pytest.mark.parametrize("suffix", [".csv", ".parquet", ".npz", ""])
def test_labels_are_composed_from_every_source(suffix, tmp_path):
    """MacOS returns decomposed names of folders, which differ from typed names."""
    path = tmp_path / f"data{suffix}"
    labels = [DECOMPOSED, "a", COMPOSED]
    if suffix == ".csv":
        path.write_text("x,y\n" + "".join(f"1,{y}\n" for y in labels), encoding="utf-8")
    elif suffix == ".parquet":
        parquet.write_table(pa.table({"x": [1, 2, 3], "y": labels}), path)
    elif suffix == ".npz":
        np.savez(path, x=np.eye(3), y=np.array(labels))
    else:
        for name in labels[:2]:
            (path / name).mkdir(parents=True)
            Image.new("L", (8, 8)).save(path / name / "1.png")
    if suffix == "":
        data = load_images(path)
    else:
        data = load_table(path, **({} if suffix == ".npz" else {"label": "y"}))
    assert set(data.labels.tolist()) == {"a", COMPOSED}
