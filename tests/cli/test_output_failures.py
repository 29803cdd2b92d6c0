"""Output that fails or is dangerous: one sentence, exit code 2, no key lost, no text executed."""

import csv
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

import store_tools as tools
from vicinal.cli import output
from vicinal.cli._store import _write_answers
from vicinal.errors import PrivacyRefused
from vicinal.serving.keys import KeyFile

FULL = Path("/dev/full")


def run_vicinal(*arguments, **options):
    """Return a finished process of the program."""
    command = [sys.executable, "-m", "vicinal", *map(str, arguments)]
    return subprocess.run(command, stderr=subprocess.PIPE, text=True, check=False, **options)


@pytest.mark.skipif(not FULL.exists(), reason="the system has no /dev/full")
def test_a_key_that_cannot_be_shown_is_not_added(tmp_path):
    tools.make(tmp_path / "store").close()
    with FULL.open("w") as full:
        process = run_vicinal("keys", "add", tmp_path / "store", "anna", stdout=full)
    assert process.returncode == 2
    assert process.stderr == ("vicinal: the output cannot be written: No space left on device.\n")
    assert KeyFile(tmp_path / "store").all() == []
    process = run_vicinal("keys", "add", tmp_path / "store", "anna", stdout=subprocess.PIPE)
    assert process.returncode == 0
    assert [key.name for key in KeyFile(tmp_path / "store").all()] == ["anna"]


def test_a_command_without_standard_output_does_nothing(tmp_path):
    tools.make(tmp_path / "store").close()
    arguments = f"{sys.executable} -m vicinal keys add {tmp_path}/store anna >&-"
    process = subprocess.run(
        ["sh", "-c", arguments], stderr=subprocess.PIPE, text=True, check=False
    )
    assert process.returncode == 2
    assert "standard output is closed" in process.stderr
    assert KeyFile(tmp_path / "store").all() == []


def test_exhausted_memory_is_one_sentence_without_sizes(monkeypatch, capsys):
    """The message of NumPy names the shape of an array, which may be that of the records."""
    from vicinal.cli import main

    def exhaust(*_, **__):
        raise MemoryError("Unable to allocate 7 GiB for an array with shape (123456, 9)")

    monkeypatch.setattr(main.CommandGroup.__base__, "invoke", exhaust)
    with pytest.raises(SystemExit) as exit_info:
        main.app(["doctor"], prog_name="vicinal")
    assert exit_info.value.code == 2
    error = capsys.readouterr().err
    assert "not enough memory" in error
    assert "123456" not in error


def test_keys_can_be_revoked_while_another_is_shown(tmp_path):
    """A terminal that stalls while it shows a key holds no lock; a conflict is found afterwards."""
    tools.make(tmp_path / "store").close()
    keys = KeyFile(tmp_path / "store")
    keys.add("anna", "analyst", "default")

    def show(_):
        keys.revoke(keys.all()[0].id)
        keys.add("berta", "monitor", "default")

    keys.add("clara", "analyst", "default", show)
    states = [(key.name, key.revoked is None) for key in keys.all()]
    assert states == [("anna", False), ("berta", True), ("clara", True)]
    with pytest.raises(PrivacyRefused):
        keys.add("dora", "monitor", "a", lambda _: keys.add("dora", "monitor", "b"))
    assert [key.audience for key in keys.all() if key.name == "dora"] == ["b"]


@pytest.mark.parametrize("character", ["\x1b", "\r", "\x9b", "\u202e", "\u2066", "\x07"])
def test_no_text_of_others_controls_a_terminal(capsys, character):
    output.echo(f"the class 'a{character}b'")
    output.print_note(f"the column 'a{character}b'")
    shown = capsys.readouterr()
    escaped = character.encode("unicode_escape").decode()
    assert shown.out == f"the class 'a{escaped}b'\n"
    assert shown.err == f"vicinal: the column 'a{escaped}b'\n"


def test_data_for_a_program_stay_unchanged(capsys):
    output.echo_data("id\n\u202e\n")
    assert capsys.readouterr().out == "id\n\u202e\n"


def test_no_cell_of_a_csv_file_is_a_formula(tmp_path):
    ids = ["=cmd|' /C calc'!A0", "@SUM(1)", "+A1", "-A1", "\tx", "-5", "+5.5e3", "-", "a=b", "x-1"]
    table = pa.table({"id": ids, "count": range(-1, 9)})
    _write_answers(table, tmp_path / "answers.csv")
    rows = list(csv.reader((tmp_path / "answers.csv").read_text(encoding="utf-8").splitlines()))
    assert [row[0] for row in rows[1:]] == [f"'{text}" for text in ids[:5]] + ids[5:]
    assert rows[1][1] == "-1"
    _write_answers(table, tmp_path / "answers.parquet")
    assert parquet.read_table(tmp_path / "answers.parquet")["id"].to_pylist() == ids
