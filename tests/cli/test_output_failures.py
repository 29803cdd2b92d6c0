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
from command_line import run_vicinal, shown
from made_up import raising
from other_accounts import other_account
from vicinal.cli import main, output
from vicinal.cli._store import _write_answers
from vicinal.errors import IdsAlike, InvalidInput, PrivacyRefused, PrivacyWarning
from vicinal.predictors.ind_knn import IndKNNClassifier
from vicinal.serving.keys import KeyFile
from vicinal.store import Store

FULL = Path("/dev/full")
needs_full_device = pytest.mark.skipif(not FULL.exists(), reason="the system has no /dev/full")


@pytest.fixture(scope="session")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("made")
    tools.make(folder / "store").close()
    return folder / "store"


@pytest.fixture
def store(made, tmp_path):
    """Return the path of a store of which nothing was asked."""
    return tools.copied(made, tmp_path)


@pytest.fixture
def queries(tmp_path):
    """Return the path of a file with three queries."""
    np.savez(tmp_path / "queries.npz", x=tools.Q[:3])
    return tmp_path / "queries.npz"


def count_answers(store):
    with Store.open(store, read_only=True) as opened:
        return opened.quota().used


@needs_full_device
def test_a_key_that_cannot_be_shown_is_not_added(store):
    with FULL.open("w") as full:
        process = run_vicinal("keys", "add", store, "anna", stdout=full)
    assert process.returncode == 2
    assert process.stderr == "vicinal: the output cannot be written: No space left on device.\n"
    assert KeyFile(store).load_keys() == []
    shown("keys", "add", store, "anna")
    assert [key.name for key in KeyFile(store).load_keys()] == ["anna"]


def test_a_command_without_standard_output_does_nothing(store):
    command = f"{sys.executable} -m vicinal keys add {store} anna >&-"
    process = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=False)
    assert process.returncode == 2
    assert "standard output is closed" in process.stderr
    assert KeyFile(store).load_keys() == []


def open_closed_pipe():
    """Return the writing end of a pipe without a reader."""
    reader, writer = os.pipe()
    os.close(reader)
    return os.fdopen(writer, "w")


@needs_full_device
@pytest.mark.parametrize(
    ("open_stream", "options", "reason"),
    [
        (lambda: FULL.open("w"), [], "No space left on device"),
        (open_closed_pipe, ["--json"], "Broken pipe"),
        (lambda: os.fdopen(os.open(os.devnull, os.O_RDONLY)), ["--quiet"], "Bad file descriptor"),
    ],
    ids=["full", "closed pipe", "read-only"],
)
def test_nothing_is_charged_for_a_standard_output_that_cannot_be_written(
    store, queries, open_stream, options, reason
):
    """Fails if the output is first tried after the charge."""
    with open_stream() as stream:
        process = run_vicinal("predict", store, "--data", queries, *options, stdout=stream)
    assert process.returncode == 2
    assert process.stderr == f"vicinal: the output cannot be written: {reason}.\n"
    assert count_answers(store) == 0


@needs_full_device
def test_help_that_cannot_be_shown_is_one_sentence():
    with FULL.open("w") as full:
        process = run_vicinal("predict", "--help", stdout=full)
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


def test_nothing_is_charged_for_an_output_file_that_cannot_be_written(store, queries, tmp_path):
    """Fails if a missing folder, a read-only or a full disk is noticed after the charge."""
    disk = tmp_path / "disk"
    with small_disk(disk):
        for name in ("missing/out.csv", "out.csv", "out.parquet"):
            message = shown("predict", store, data=queries, out=disk / name, code=2)
            assert "cannot be written" in message
        with (disk / "stdout").open("w") as stream:
            process = run_vicinal("predict", store, "--data", queries, stdout=stream)
        assert process.returncode == 2
        assert "No space left" in process.stderr
        (disk / "rest").unlink()
        subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
        message = shown("predict", store, data=queries, out=disk / "out.csv", code=2)
        assert "Read-only file system" in message
        assert [path.name for path in disk.iterdir()] == ["stdout"]
    assert count_answers(store) == 0


def test_a_later_failure_keeps_the_earlier_file_and_states_that_nothing_is_charged_again(
    store, queries, tmp_path, monkeypatch
):
    out = tmp_path / "out.csv"
    out.write_text("earlier")
    out.chmod(0o640)
    real_replace = os.replace

    def refuse(source, target, **folders):
        if target == "out.csv":
            raise OSError(errno.ENOSPC, "No space left on device")
        real_replace(source, target, **folders)

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", refuse)
        message = " ".join(shown("predict", store, data=queries, out=out, code=2).split())
    assert "nothing is charged again" in message
    assert out.read_text() == "earlier"
    assert count_answers(store) == 3
    shown("predict", store, data=queries, out=out)
    assert count_answers(store) == 3
    assert out.read_text().startswith("label")
    assert out.stat().st_mode & 0o777 == 0o640
    assert not list(tmp_path.glob(".vicinal*"))


def test_a_pipe_gets_the_answers_of_one_charge(store, queries, tmp_path):
    """Fails if the pipe is opened and closed before the charge: its reader would leave."""
    pipe = tmp_path / "out.csv"
    os.mkfifo(pipe)
    with subprocess.Popen(["cat", pipe], stdout=subprocess.PIPE, text=True) as reader:
        process = run_vicinal("predict", store, "--data", queries, "--out", pipe, timeout=60)
        assert process.returncode == 0
        received, _ = reader.communicate(timeout=60)
    assert received.startswith("label")
    assert pipe.is_fifo()
    assert count_answers(store) == 3


def test_a_folder_as_an_output_is_refused_before_the_charge(store, queries, tmp_path):
    (tmp_path / "out.csv").mkdir()
    message = shown("predict", store, data=queries, out=tmp_path / "out.csv", code=2)
    assert "cannot be written: Is a directory" in message
    assert count_answers(store) == 0


def test_no_output_replaces_a_witness(store):
    """Without it, the store would open only after all budgets are spent."""
    witness = store.with_name(store.name + ".witness")
    content = witness.read_bytes()
    assert "is the witness of a store" in shown("export-guarantee", store, out=witness, code=2)
    assert witness.read_bytes() == content


@pytest.mark.parametrize("option", ["out", "data"])
def test_a_path_that_cannot_be_used_is_one_sentence(store, queries, tmp_path, option):
    (tmp_path / "loop.csv").symlink_to("loop.csv")
    for name, reason in (
        ("a" * 300 + ".csv", "File name too long"),
        ("loop.csv", "Too many levels of symbolic links"),
        ("queries.npz/out.csv", "Not a directory"),
    ):
        paths = {"data": queries, "out": tmp_path / "out.csv", option: tmp_path / name}
        message = shown("predict", store, **paths, code=2)
        assert f"cannot be used: {reason}." in " ".join(message.split())
    assert count_answers(store) == 0


def test_a_folder_that_cannot_be_read_is_one_sentence(shared_folder):
    private = shared_folder / "private"
    private.mkdir(mode=0o700)
    with other_account(), pytest.raises(InvalidInput, match=r"cannot be used: Permission denied\."):
        output.check_outputs({"out": private / "folder" / "out.csv"}, {"STORE": shared_folder})


@needs_full_device
def test_notes_that_cannot_be_shown_lose_no_answers(store, queries):
    with FULL.open("w") as full:
        process = run_vicinal("predict", store, "--data", queries, stderr=full)
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


@pytest.fixture
def lose_stdout(monkeypatch):
    """Return a function: from its call on, writes to standard output fail with an error number."""
    real_echo = typer.echo

    def lose(number):
        def fail(text, *, err=False, **options):
            if not err:
                raise OSError(number, os.strerror(number))
            real_echo(text, err=err, **options)

        monkeypatch.setattr(typer, "echo", fail)
        monkeypatch.setattr(output, "redirect_to_null", lambda _: None)

    return lose


@pytest.mark.parametrize("options", [(), ("--json",)])
def test_a_lost_standard_output_states_that_the_answers_are_stored(
    store, queries, options, lose_stdout
):
    lose_stdout(errno.ENOSPC)
    message = shown("predict", store, *options, data=queries, code=2)
    assert " ".join(message.split()) == (
        "vicinal: the output cannot be written: No space left on device. A store keeps its "
        "answers. Repeat the command with another output: nothing is charged again."
    )
    assert count_answers(store) == 3


def test_a_reader_that_has_seen_enough_is_no_error(store, queries, lose_stdout):
    lose_stdout(errno.EPIPE)
    assert shown("predict", store, "--quiet", data=queries, code=1) == ""


def test_standard_input_that_cannot_be_copied_is_named(store, tmp_path):
    """Fails if the message states that the answers are stored: nothing was asked yet."""
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


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (OSError(errno.EIO, "Input/output error"), "an input or output without a name cannot be"),
        # The message of NumPy names the shape of an array, which may be that of the records.
        (MemoryError("Unable to allocate an array with shape (123456, 9)"), "not enough memory"),
    ],
)
def test_an_error_of_the_system_is_one_sentence_without_sizes(error, words, monkeypatch, capsys):
    monkeypatch.setattr(main.CommandGroup.__base__, "invoke", raising(error))
    monkeypatch.setattr(main, "redirect_to_null", lambda _: None)
    with pytest.raises(SystemExit) as exit_info:
        main.app(["doctor"], prog_name="vicinal")
    assert exit_info.value.code == 2
    message = capsys.readouterr().err
    assert words in message
    assert "123456" not in message


def test_keys_can_be_revoked_while_another_is_shown(store):
    """A terminal that stalls while it shows a key holds no lock; a conflict is found afterwards."""
    keys = KeyFile(store)
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
