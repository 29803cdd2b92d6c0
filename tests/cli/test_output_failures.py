"""Output that fails or is dangerous: one sentence, exit code 2, no key lost, no text executed."""

import csv
import errno
import os
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import typer
from pyarrow import parquet

import store_tools as tools
from command_line import shown
from other_accounts import other_account
from vicinal.cli import output
from vicinal.cli._store import _write_answers
from vicinal.errors import IdsAlike, InvalidInput, PrivacyRefused, PrivacyWarning
from vicinal.predictors.ind_knn import IndKNNClassifier
from vicinal.serving.keys import KeyFile
from vicinal.store import Store

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
    assert KeyFile(tmp_path / "store").load_keys() == []
    process = run_vicinal("keys", "add", tmp_path / "store", "anna", stdout=subprocess.PIPE)
    assert process.returncode == 0
    assert [key.name for key in KeyFile(tmp_path / "store").load_keys()] == ["anna"]


def test_a_command_without_standard_output_does_nothing(tmp_path):
    tools.make(tmp_path / "store").close()
    arguments = f"{sys.executable} -m vicinal keys add {tmp_path}/store anna >&-"
    process = subprocess.run(
        ["sh", "-c", arguments], stderr=subprocess.PIPE, text=True, check=False
    )
    assert process.returncode == 2
    assert "standard output is closed" in process.stderr
    assert KeyFile(tmp_path / "store").load_keys() == []


def make_queried_store(tmp_path):
    """Return the paths of a store of which nothing was asked, and of a file with three queries."""
    tools.make(tmp_path / "store").close()
    queries = tmp_path / "queries.npz"
    np.savez(queries, x=tools.Q[:3])
    return tmp_path / "store", queries


def count_answers(store):
    with Store.open(store, read_only=True) as opened:
        return opened.quota().used


def open_closed_pipe():
    """Return the writing end of a pipe without a reader."""
    reader, writer = os.pipe()
    os.close(reader)
    return os.fdopen(writer, "w")


@pytest.mark.skipif(not FULL.exists(), reason="the system has no /dev/full")
@pytest.mark.parametrize("options", [(), ("--json",), ("--quiet",)])
def test_nothing_is_charged_for_a_standard_output_that_cannot_be_written(tmp_path, options):
    """Fails if the output is first tried after the charge."""
    store, queries = make_queried_store(tmp_path)
    command = ("predict", store, "--data", queries, *options)
    for stream, reason in (
        (FULL.open("w"), "No space left on device"),
        (open_closed_pipe(), "Broken pipe"),
        (os.fdopen(os.open(os.devnull, os.O_RDONLY)), "Bad file descriptor"),
    ):
        with stream:
            process = run_vicinal(*command, stdout=stream)
        assert process.returncode == 2
        assert process.stderr == f"vicinal: the output cannot be written: {reason}.\n"
    assert count_answers(store) == 0


@pytest.mark.skipif(not FULL.exists(), reason="the system has no /dev/full")
@pytest.mark.parametrize("arguments", [("--help",), ("--version",), ("predict", "--help"), ()])
def test_help_that_cannot_be_shown_is_one_sentence(arguments):
    with FULL.open("w") as full:
        process = run_vicinal(*arguments, stdout=full)
    assert process.returncode == 2
    assert process.stderr == "vicinal: the output cannot be written: No space left on device.\n"


@contextmanager
def small_disk(folder):
    """Mount a file system of a few pages in a new folder, and fill it."""
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=128k", "tmpfs", folder]
    if os.geteuid() or subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("only root mounts file systems")
    try:
        (folder / "rest").write_bytes(bytes(100 << 10))
        yield
    finally:
        subprocess.run(["umount", folder], check=True)


def test_nothing_is_charged_for_an_output_file_that_cannot_be_written(tmp_path):
    """Fails if a missing folder, a read-only or a full disk is noticed after the charge."""
    store, queries = make_queried_store(tmp_path)
    disk = tmp_path / "disk"
    with small_disk(disk):
        for name in ("missing/out.csv", "out.csv", "out.parquet"):
            process = run_vicinal("predict", store, "--data", queries, "--out", disk / name)
            assert process.returncode == 2
            assert "cannot be written" in process.stderr
        with (disk / "stdout").open("w") as output:
            process = run_vicinal("predict", store, "--data", queries, stdout=output)
        assert process.returncode == 2
        assert "No space left" in process.stderr
        (disk / "rest").unlink()
        subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
        process = run_vicinal("predict", store, "--data", queries, "--out", disk / "out.csv")
        assert "Read-only file system" in process.stderr
        assert [path.name for path in disk.iterdir()] == ["stdout"]
    assert count_answers(store) == 0


def test_a_later_failure_keeps_the_earlier_file_and_states_that_nothing_is_charged_again(
    tmp_path, monkeypatch
):
    store, queries = make_queried_store(tmp_path)
    out = tmp_path / "out.csv"
    out.write_text("earlier")
    out.chmod(0o640)

    real_replace = os.replace

    def refuse(source, target, **folders):
        if target == "out.csv":
            raise OSError(errno.ENOSPC, "No space left on device")
        real_replace(source, target, **folders)

    command = ("predict", store, "--data", queries, "--out", out)
    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", refuse)
        message = " ".join(shown(*command, code=2).split())
    assert "nothing is charged again" in message
    assert out.read_text() == "earlier"
    assert count_answers(store) == 3
    shown(*command)
    assert count_answers(store) == 3
    assert out.read_text().startswith("label")
    assert out.stat().st_mode & 0o777 == 0o640
    assert not list(tmp_path.glob(".vicinal*"))


def test_a_pipe_gets_the_answers_of_one_charge(tmp_path):
    """Fails if the pipe is opened and closed before the charge: its reader would leave."""
    store, queries = make_queried_store(tmp_path)
    pipe = tmp_path / "out.csv"
    os.mkfifo(pipe)
    with subprocess.Popen(["cat", pipe], stdout=subprocess.PIPE, text=True) as reader:
        command = ("predict", store, "--data", queries, "--out", pipe)
        assert run_vicinal(*command, timeout=60).returncode == 0
        received, _ = reader.communicate(timeout=60)
    assert received.startswith("label")
    assert pipe.is_fifo()
    assert count_answers(store) == 3


def test_a_folder_as_an_output_is_refused_before_the_charge(tmp_path):
    store, queries = make_queried_store(tmp_path)
    (tmp_path / "out.csv").mkdir()
    command = ("predict", store, "--data", queries, "--out", tmp_path / "out.csv")
    assert "cannot be written: Is a directory" in shown(*command, code=2)
    assert count_answers(store) == 0


def test_no_output_replaces_a_witness(tmp_path):
    """Without it, the store would open only after all budgets are spent."""
    store, _ = make_queried_store(tmp_path)
    witness = store.with_name(store.name + ".witness")
    content = witness.read_bytes()
    message = shown("export-guarantee", store, "--out", witness, code=2)
    assert "is the witness of a store" in message
    assert witness.read_bytes() == content


@pytest.mark.parametrize("option", ["--out", "--data"])
def test_a_path_that_cannot_be_used_is_one_sentence(tmp_path, option):
    store, queries = make_queried_store(tmp_path)
    (tmp_path / "loop.csv").symlink_to("loop.csv")
    for name, reason in (
        ("a" * 300 + ".csv", "File name too long"),
        ("loop.csv", "Too many levels of symbolic links"),
        ("queries.npz/out.csv", "Not a directory"),
    ):
        paths = {"--data": queries, "--out": tmp_path / "out.csv", option: tmp_path / name}
        command = [argument for pair in paths.items() for argument in pair]
        message = shown("predict", store, *command, code=2)
        assert f"cannot be used: {reason}." in " ".join(message.split())
    assert count_answers(store) == 0


def test_a_folder_that_cannot_be_read_is_one_sentence(shared_folder):
    private = shared_folder / "private"
    private.mkdir(mode=0o700)
    with other_account(), pytest.raises(InvalidInput, match=r"cannot be used: Permission denied\."):
        output.check_outputs({"out": private / "folder" / "out.csv"}, {"STORE": shared_folder})


@pytest.mark.skipif(not FULL.exists(), reason="the system has no /dev/full")
def test_notes_that_cannot_be_shown_lose_no_answers(tmp_path):
    store, queries = make_queried_store(tmp_path)
    command = [sys.executable, "-m", "vicinal", "predict", store, "--data", queries]
    with FULL.open("w") as full:
        process = subprocess.run(
            command, stdout=subprocess.PIPE, stderr=full, text=True, check=False
        )
    assert process.returncode == 0
    assert process.stdout.startswith("label")


@pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="the system has no files in memory")
def test_a_file_in_memory_is_not_full():
    descriptor = os.memfd_create("output")
    with os.fdopen(descriptor, "w+") as file:
        process = run_vicinal("--version", stdout=file)
        assert (process.returncode, process.stderr) == (0, "")
        file.seek(0)
        assert file.read().startswith("vicinal ")


def fail_on_stdout(monkeypatch, number):
    """Let every write to standard output fail with an error number."""
    real_echo = typer.echo

    def fail(text, *, err=False, **options):
        if not err:
            raise OSError(number, os.strerror(number))
        real_echo(text, err=err, **options)

    monkeypatch.setattr(typer, "echo", fail)
    monkeypatch.setattr(output, "redirect_to_null", lambda _: None)


@pytest.mark.parametrize("options", [(), ("--json",)])
def test_a_lost_standard_output_states_that_the_answers_are_stored(tmp_path, monkeypatch, options):
    store, queries = make_queried_store(tmp_path)
    with monkeypatch.context() as patch:
        fail_on_stdout(patch, errno.ENOSPC)
        message = shown("predict", store, "--data", queries, *options, code=2)
    assert " ".join(message.split()) == (
        "vicinal: the output cannot be written: No space left on device. A store keeps its "
        "answers. Repeat the command with another output: nothing is charged again."
    )
    assert count_answers(store) == 3


def test_a_reader_that_has_seen_enough_is_no_error(tmp_path, monkeypatch):
    store, queries = make_queried_store(tmp_path)
    with monkeypatch.context() as patch:
        fail_on_stdout(patch, errno.EPIPE)
        assert shown("predict", store, "--data", queries, "--quiet", code=1) == ""


def test_standard_input_that_cannot_be_copied_is_named(tmp_path):
    """Fails if the message states that the answers are stored: nothing was asked yet."""
    store, _ = make_queried_store(tmp_path)
    queries = tmp_path / "many.npz"
    np.savez(queries, x=np.zeros((5000, tools.Q.shape[1])))
    with small_disk(tmp_path / "disk"):
        environment = {**os.environ, "TMPDIR": str(tmp_path / "disk")}
        with queries.open() as stream:
            process = run_vicinal("predict", store, "--data", "-", stdin=stream, env=environment)
        assert not list((tmp_path / "disk").glob("tmp*"))
    assert process.returncode == 2
    assert process.stderr.startswith("vicinal: Standard input cannot be copied to the folder ")
    assert "No space left on device" in process.stderr
    assert "TMPDIR" in process.stderr
    assert "answers" not in process.stderr
    assert count_answers(store) == 0


def test_an_input_error_without_a_file_name_is_not_called_an_output(monkeypatch, capsys):
    from vicinal.cli import main

    def fail(*_, **__):
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(main.CommandGroup.__base__, "invoke", fail)
    monkeypatch.setattr(main, "redirect_to_null", lambda _: None)
    with pytest.raises(SystemExit) as exit_info:
        main.app(["doctor"], prog_name="vicinal")
    assert exit_info.value.code == 2
    assert "an input or output without a name cannot be used" in capsys.readouterr().err


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
        keys.revoke(keys.load_keys()[0].id)
        keys.add("berta", "monitor", "default")

    keys.add("clara", "analyst", "default", show)
    states = [(key.name, key.revoked is None) for key in keys.load_keys()]
    assert states == [("anna", False), ("berta", True), ("clara", True)]
    with pytest.raises(PrivacyRefused):
        keys.add("dora", "monitor", "a", lambda _: keys.add("dora", "monitor", "b"))
    assert [key.audience for key in keys.load_keys() if key.name == "dora"] == ["b"]


@pytest.mark.parametrize("character", ["\x1b", "\r", "\x9b", "\u202e", "\u2066", "\x07"])
def test_no_text_of_others_controls_a_terminal(capsys, character):
    output.echo(f"the class 'a{character}b'")
    output.print_note(f"the column 'a{character}b'")
    shown = capsys.readouterr()
    escaped = character.encode("unicode_escape").decode()
    assert shown.out == f"the class 'a{escaped}b'\n"
    assert shown.err == f"vicinal: the column 'a{escaped}b'\n"


def test_data_for_a_program_stay_unchanged(capsys):
    output.echo_data("id\n\u202e\x1b[2J\n")
    assert capsys.readouterr().out == "id\n\u202e\x1b[2J\n"


def test_no_cell_of_a_csv_file_is_a_formula(tmp_path):
    ids = ["=cmd|' /C calc'!A0", "@SUM(1)", "+A1", "-A1", "\tx", "-5", "+5.5e3", "-", "a=b", "x-1"]
    table = pa.table({"id": ids, "count": range(-1, 9)})
    _write_answers(table, tmp_path / "answers.csv")
    rows = list(csv.reader((tmp_path / "answers.csv").read_text(encoding="utf-8").splitlines()))
    assert [row[0] for row in rows[1:]] == [f"'{text}" for text in ids[:5]] + ids[5:]
    assert rows[1][1] == "-1"
    _write_answers(table.rename_columns(["=1+1", "count"]), tmp_path / "answers.csv")
    assert (tmp_path / "answers.csv").read_bytes().startswith(b"'=1+1,count\n")
    _write_answers(table, tmp_path / "answers.parquet")
    assert parquet.read_table(tmp_path / "answers.parquet")["id"].to_pylist() == ids


def test_an_id_from_a_csv_file_of_answers_gets_no_second_budget(tmp_path):
    """Fails if an id with the apostrophe of the file is a new subject unnoticed."""
    _write_answers(pa.table({"id": ["@anna"]}), tmp_path / "answers.csv")
    escaped = (tmp_path / "answers.csv").read_text(encoding="utf-8").splitlines()[1]
    assert escaped == "'@anna"
    ids = ["@anna", *range(29)]
    plan = {"classes": range(3), "public": tools.R, "n_records": 30, **tools.PLAN}
    with Store.init(tmp_path / "store", *tools.points(30, 12), ids, **plan) as store:
        for change in (lambda: None, lambda: store.erase(["@anna"])):
            change()
            with pytest.raises(IdsAlike):
                store.add(*tools.points(1, 13), [escaped])
    classifier = IndKNNClassifier(range(3), n_neighbors=1, n_records=30, noise_multiplier=9.0)
    with pytest.warns(PrivacyWarning, match="spelling only"):
        classifier.fit(*tools.points(30, 12), ["@anna", escaped, *range(28)], public=tools.R)


def test_a_carriage_return_in_an_id_ends_no_row(tmp_path):
    ids = ["a\rb", "a\nb", "a,b", "\x1b[2J", 'a"b']
    _write_answers(pa.table({"id": ids, "label": range(5)}), tmp_path / "answers.csv")
    with (tmp_path / "answers.csv").open(newline="", encoding="utf-8") as file:
        assert [row["id"] for row in csv.DictReader(file)] == ids
