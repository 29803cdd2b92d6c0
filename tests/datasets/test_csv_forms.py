"""CSV files with declared quotes, escapes and comments, with one column, and with missing texts."""

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from vicinal.datasets import load_table
from vicinal.datasets.tables import detect_csv_format, read_table
from vicinal.errors import InvalidInput, UnusableRows
from vicinal.features import CsvForm, TableSchema

PLAIN_SCHEMA = {
    "format": "vicinal table schema", "version": 1,
    "columns": {"a": {"kind": "number", "low": 0, "high": 9}},
}  # fmt: skip


def write_text(path, content, encoding="utf-8"):
    path.write_bytes(content.encode(encoding))
    return path


@pytest.mark.parametrize(
    ("marks", "content", "texts"),
    [
        ({"quote": "'"}, "a,text\n1,'b, c'\n2,'it''s'\n3,say \"x\"\n", ["b, c", "it's", 'say "x"']),
        ({"quote": ""}, 'a,text\n1,5" pipe\n2,"open\n', ['5" pipe', '"open']),
        ({"escape": "\\"}, 'a,text\n1,b\\, c\n2,"say \\"x\\""\n', ["b, c", 'say "x"']),
        (
            {"comment": "#"},
            '# by x\na,text\n1,b # c\n#1,gone\n2,"two\n# lines"\n# end',
            ["b # c", "two\n# lines"],
        ),
        ({"comment": "//"}, "//x\na,text\n1,/b\n// y, z\n", ["/b"]),
        (
            {"quote": "'", "escape": "\\", "comment": "%", "delimiter": ";"},
            "%\na;text\n%;\n1;'it\\'s; \n%so'\n2;b\\;c\n", ["it's; \n%so", "b;c"],
        ),
    ],
)  # fmt: skip
@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "cp1252"])
def test_declared_marks_are_followed(marks, content, texts, encoding, tmp_path):
    path = write_text(tmp_path / "t.csv", content, encoding)
    form = CsvForm(encoding=encoding, **marks)
    assert load_table(path, text="text", form=form).features == tuple(texts)
    assert TableSchema.from_dict({**PLAIN_SCHEMA, "file": form.to_dict()}).file == form
    assert TableSchema.from_dict({**PLAIN_SCHEMA, "file": form.to_dict()}).to_dict()["file"] == (
        form.to_dict()
    )


def test_undeclared_marks_are_what_plain_csv_says(tmp_path):
    path = write_text(tmp_path / "t.csv", "a,text\n#1,'b'\n2,c\\n\n")
    assert load_table(path, text="text").features == ("'b'", "c\\n")


@pytest.mark.parametrize(
    ("declared", "message"),
    [
        ({"quote": "x"}, "'quote' parameter must be one character"),
        ({"quote": "''"}, "'quote' parameter"),
        ({"quote": None}, "'quote' parameter"),
        ({"escape": "ab"}, "'escape' parameter"),
        ({"escape": "§"}, "'escape' parameter"),
        ({"comment": "# "}, "'comment' parameter"),
        ({"comment": "rem"}, "'comment' parameter"),
        ({"comment": 1}, "'comment' parameter"),
        ({"delimiter": "§"}, "'delimiter' parameter"),
        ({"delimiter": '"'}, "'delimiter' parameter"),
        ({"escape": ","}, "another character than the 'delimiter' parameter"),
        ({"quote": "#", "comment": "#"}, "'comment' parameter must begin with another"),
        ({"comments": "#"}, "nothing else"),
    ],
)
def test_a_form_that_cannot_be_is_refused(declared, message):
    with pytest.raises(InvalidInput, match=message):
        TableSchema.from_dict({**PLAIN_SCHEMA, "file": declared})


def test_marks_are_taken_and_the_rest_is_found(tmp_path):
    path = write_text(tmp_path / "t.csv", "# one, two, three, four\na;b\n1,5;2,5\n")
    assert detect_csv_format(path, base_format=CsvForm(comment="#")) == CsvForm(
        ";", ",", comment="#"
    )
    with pytest.raises(InvalidInput, match="damaged"):
        detect_csv_format(path)


LINES = ["hello; world", "hello, world", "a | b", "tab\there", "all , ; | \t", "plain"]


@pytest.mark.parametrize("lines", [[line] for line in LINES] + [LINES])
def test_in_a_file_of_one_column_every_line_is_a_text(lines, tmp_path):
    """Fails if characters in rows, which may be private, decide how the file is read."""
    path = write_text(tmp_path / "t.csv", "text\n" + "".join(f"{line}\n" for line in lines))
    assert load_table(path, text="text").features == tuple(lines)
    assert read_table(path)["text"].to_pylist() == lines
    quoted = write_text(tmp_path / "q.csv", 'text\n"two\nlines, ""so"""\n')
    assert load_table(quoted, text="text").features == ('two\nlines, "so"',)


def test_delimiters_in_texts_beside_other_columns_do_not_count(tmp_path):
    path = write_text(tmp_path / "t.csv", "id,text\n1,a;b\n2,c;d;e\n")
    assert detect_csv_format(path) == CsvForm()
    assert load_table(path, text="text", subject="id").features == ("a;b", "c;d;e")


@pytest.mark.parametrize("content", ["a;b\n1;2;3\n", "a,b\n1,2\n1\n"])
def test_rows_of_other_lengths_than_the_header_are_damage(content, tmp_path):
    path = write_text(tmp_path / "t.csv", content)
    for reader in (detect_csv_format, load_table):
        with pytest.raises(InvalidInput, match=r"t\.csv is damaged"):
            reader(path)


MISSING = ["", "  ", "\t "]


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
@pytest.mark.parametrize("missing", [*MISSING, None])
def test_a_missing_text_is_refused_in_every_format(suffix, missing, tmp_path):
    """151 of 200 empty texts voted as "" from CSV, and were refused from Parquet."""
    path, texts = tmp_path / f"t{suffix}", ["secret", missing, "NA", "nan", missing]
    if suffix == ".csv":
        cells = "".join(f'{i},"{text or ""}"\n' for i, text in enumerate(texts))
        write_text(path, f"id,text\n{cells}")
    else:
        parquet.write_table(pa.table({"id": range(5), "text": texts}), path)
    with pytest.raises(UnusableRows, match="text column has empty cells") as caught:
        load_table(path, text="text")
    assert "2" not in str(caught.value), "the number of rows is private"
    assert "in row 2, 5" in caught.value.located
    assert "secret" not in caught.value.located


def test_an_empty_line_in_a_file_of_one_column_is_a_missing_text(tmp_path):
    path = write_text(tmp_path / "t.csv", "text\na\n\nb\n")
    with pytest.raises(UnusableRows) as caught:
        load_table(path, text="text")
    assert "in row 2." in caught.value.located


def test_a_column_without_any_text_is_missing_texts(tmp_path):
    path = tmp_path / "t.parquet"
    parquet.write_table(pa.table({"text": pa.nulls(3)}), path)
    with pytest.raises(UnusableRows, match="empty cells"):
        load_table(path, text="text")
    parquet.write_table(pa.table({"text": np.arange(3)}), path)
    with pytest.raises(InvalidInput, match="must hold strings"):
        load_table(path, text="text")
