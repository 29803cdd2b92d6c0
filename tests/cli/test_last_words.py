"""The program's last words: flags in messages, confirmations, interruptions, warnings."""

import signal
import subprocess
import sys
import warnings

import numpy as np
import pytest

from command_line import run_python
from command_line import shown as run
from vicinal.cli._reference import warn_about_reference
from vicinal.cli.main import Commands, insert_flags


@pytest.mark.parametrize(
    ("command", "message", "words"),
    [
        ("plan", "The 'n_queries' parameter must be 1", "The --queries option must be 1"),
        ("init", "The 'n_queries' parameter must be 1", "The --queries option must be 1"),
        ("verify", "The 'n_queries' parameter", "The 'n_queries' parameter"),
        ("backup", "accept the loss", "accept the loss (--accept-loss)"),
        # Commands that only read, or ask for a store that is sound.
        ("verify", "accept the loss", "accept the loss (--accept-loss of a command that writes)"),
        ("shard", "accept the loss", "accept the loss (--accept-loss of a command that writes)"),
        ("add", "The 'subjects' parameter", "The --subject option"),
        ("add", "The 'labels' parameter", "The --label option"),
        ("serve", "The 'deadline' parameter", "The --shard-s option"),
    ],
)
def test_messages_name_the_flag(command, message, words):
    assert insert_flags(message, Commands(name="vicinal").get_command(None, command)) == words


def test_an_error_of_a_command_names_the_flag():
    told = run("plan", "--records", 10, "--queries", 0, "--classes", 2, code=2)
    assert "--queries" in told
    assert "n_queries" not in told


@pytest.mark.parametrize("arguments", [
    ("erase", "nowhere", "--subject", "5"), ("shard", "nowhere", "--out", "new"),
    ("restore", "nowhere", "new", "--accept-loss"),
])  # fmt: skip
def test_what_cannot_be_undone_needs_yes_without_a_terminal(arguments, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert "confirm it with --yes" in run(*arguments, code=2)
    assert "--yes" not in run(*arguments, "--yes", code=2)


# Whoever starts the tests in the background of a shell has them ignore SIGINT, and their children.
HEARS = "import signal\nsignal.signal(signal.SIGINT, signal.default_int_handler)\n"
INTERRUPTED_WHILE_IMPORTING = f"""{HEARS}
import os, sys
class Interrupting:
    def find_spec(self, name, *_):
        if name == sys.argv[1]:
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Interrupting())
from vicinal.__main__ import main
main()
"""


@pytest.mark.parametrize("module", ["vicinal.cli", "typer"])
def test_an_interruption_while_the_program_is_imported_ends_in_one_line(module):
    ended = run_python("-c", INTERRUPTED_WHILE_IMPORTING, module, timeout=240)
    assert (ended.returncode, ended.stderr) == (130, "vicinal: interrupted.\n")


@pytest.mark.parametrize("arguments", [
    ("predict", "nowhere", "--data", "-"), ("erase", "nowhere", "--subjects", "/dev/stdin"),
])  # fmt: skip
def test_an_interruption_ends_in_one_line(arguments):
    """Fails if a signal is lost that comes while a command is not waiting, but about to."""
    code = f"{HEARS}from vicinal.__main__ import main\nmain()"
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    command = [sys.executable, "-c", code, *arguments]
    with subprocess.Popen(command, **pipes, start_new_session=True) as process:
        try:
            # More than a pipe holds: once it is written the command reads, and waits for the end.
            process.stdin.write(bytes(1 << 20))
            process.stdin.flush()
            process.send_signal(signal.SIGINT)
            process.wait(timeout=240)
        finally:
            process.kill()
        assert process.stderr.read() == b"vicinal: interrupted.\n"
    assert process.returncode == 130


def test_warnings_about_a_reference_name_its_features():
    rng = np.random.default_rng(0)
    good = rng.normal(size=(60, 3))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_about_reference(good, ["a", "b", "c"])
        warn_about_reference(good * [1, 1, 0], ["a", "b", "b is missing"])
    for points, words in (
        (good[:3], "only 3 public rows"), (good[:20], "only 20 public rows"),
        (good * [1, 0, 1], "useless: b"), (good * [1, 1, 1e3], "Feature c has .* of the var"),
        (good * [1e200, 1, 1], "Feature a has .* of the var"),
    ):  # fmt: skip
        with pytest.warns(UserWarning, match=words):
            warn_about_reference(points, ["a", "b", "c"])


def test_misspelt_commands_and_options_get_a_suggestion():
    assert "Did you mean 'predict'" in run("predit", code=2)
    assert "Did you mean 'verify'" in run("receipt", "verfy", code=2)
    assert "--epsilon" in run("plan", "--epsilom", "1", code=2)


def test_plans_show_technical_lines_only_on_request():
    command = ["plan", "--records", 1500, "--queries", 500, "--classes", 2]
    shown = run(*command, code=0)
    detailed = run(*command, "--details", code=0)
    for term in ("sigma2", "clipping bounds", "k = "):
        assert term not in shown
        assert term in detailed
    assert shown.splitlines()[2].startswith("records      1,500 records, 500 queries")
    assert "--details shows" in shown


def test_a_command_without_torch_names_the_extra(tmp_path):
    program = (
        "import sys\n"
        "import importlib.util as util; found = util.find_spec\n"
        "util.find_spec = lambda name, *rest: None if name == 'torch' else found(name, *rest)\n"
        "from vicinal.__main__ import main; main()"
    )
    student = ("student", "answers.npz", "--public", "p.csv", "--out", tmp_path / "s.pt")
    done = run_python("-c", program, *student)
    assert done.returncode == 2
    assert done.stderr == (
        "vicinal: Students need the package torch. Install it with: pip install "
        "'vicinal[students]'\n"
    )
