"""Names that a terminal or spreadsheet would obey: escaped for people, exact for programs."""

import csv
import io
import re
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import csv as arrow_csv

import vicinal.cli
from command_line import invoked as run
from store_tools import PLAN, R, points
from vicinal.cli.output import confirm, escape_controls, print_data, print_note, print_text
from vicinal.errors import InvalidInput
from vicinal.store import Store

X, Y = points(30, 12)

HOSTILE = [
    "=cmd|' /C calc'!A0", "+1", "@SUM(A1)", "-2+3", "a\x1b[2Jb", "a\rb", "a\x9b31mb", "a\u202eb",
    "a\u2066b", "a\u2028b", "a,b", 'a"b', "a\nb", "a\tb",
]  # fmt: skip
CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize("text", HOSTILE)
def test_no_text_for_people_commands_the_terminal(text, monkeypatch, capsys):
    print_text(text)
    print_text(text, err=True)
    print_note(text)
    with pytest.raises(InvalidInput):
        confirm(text, yes=False)
    for stream in capsys.readouterr():
        assert not CONTROLS.search(stream)
    monkeypatch.setattr(sys, "stdout", Terminal())
    print_data(text)
    assert not CONTROLS.search(sys.stdout.getvalue())
    assert escape_controls(escape_controls(text)) == escape_controls(text)


def test_escapes_are_readable_and_other_text_is_unchanged():
    assert escape_controls("\x1b[2J \u202e \r") == "\\x1b[2J \\u202e \\r"
    assert escape_controls("Zoë\u200c\n\t=1+1") == "Zoë\u200c\n\t=1+1"


def test_commands_print_by_the_functions_that_escape():
    for path in Path(vicinal.cli.__file__).parent.glob("*.py"):
        if path.name != "output.py":
            assert not re.search(r"\b(echo|secho|print)\(", path.read_text()), path.name


def test_the_columns_of_a_table_do_not_reach_the_terminal_raw(tmp_path):
    columns = {"a\x1b[2Jb": [1.0, 2.0], "c\u202ed": [1.0, 2.0]}
    arrow_csv.write_csv(pa.table(columns), tmp_path / "t.csv")
    result = run("schema", tmp_path / "t.csv", "--label", "absent", code=2)
    assert "a\\x1b[2Jb" in result.stderr
    assert not CONTROLS.search(result.stderr)


@pytest.mark.parametrize("has_file", [True, False])
def test_answers_keep_ids_and_class_names_exactly(tmp_path, has_file):
    names = np.array(HOSTILE[:3])
    labels = names[Y % 3]
    store_path = tmp_path / "store"
    Store.init(store_path, X, labels, classes=names, public=R, n_records=30, **PLAN).close()
    features = {f"f{i}": column for i, column in enumerate(X[: len(HOSTILE)].T)}
    arrow_csv.write_csv(pa.table({**features, "id": HOSTILE}), tmp_path / "queries.csv")
    out = ("--out", tmp_path / "answers.csv") if has_file else ()
    printed = run("predict", store_path, "--data", tmp_path / "queries.csv", "--id", "id", *out)
    text = (tmp_path / "answers.csv").read_bytes().decode() if has_file else printed.stdout
    rows = list(csv.DictReader(io.StringIO(text, newline="")))
    assert [row["id"] for row in rows] == HOSTILE
    assert {row["label"] for row in rows} <= set(names)
