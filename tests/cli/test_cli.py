"""The program as its users see it: exit codes, JSON, silence when piped, no tracebacks."""

import inspect
import io
import json
import os
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import numpy as np
import pytest
from typer.testing import CliRunner

import vicinal
from experiments.__main__ import Experiments
from experiments.__main__ import app as experiments
from experiments.accuracy import recipes
from experiments.accuracy.comparison import Comparison
from experiments.accuracy.search import ParameterGrid
from experiments.trials import Setting
from made_up import raising
from vicinal.cli import _store
from vicinal.cli.main import Commands, app
from vicinal.cli.output import show_progress_bars
from vicinal.errors import PrivacyRefused
from vicinal.features import PublicMap

QUERIES = 30


@pytest.fixture(scope="module")
def digits(tmp_path_factory):
    """Write a small file laid out like MNIST: bars of ten directions, with noise."""
    rng = np.random.default_rng(0)
    ramp = np.arange(28) - 13.5

    def part(rows):
        labels = rng.integers(0, 10, rows)
        angles = np.pi * labels / 10 + rng.normal(size=rows) * 0.05
        across = (
            np.cos(angles)[:, None, None] * ramp + np.sin(angles)[:, None, None] * ramp[:, None]
        )
        images = 200 * (np.abs(across) < 3) + rng.integers(0, 40, (rows, 28, 28))
        return images.astype(np.uint8), labels.astype(np.uint8)

    (x_train, y_train), (x_test, y_test) = part(700), part(150)
    path = tmp_path_factory.mktemp("digits") / "digits.npz"
    np.savez(path, x_train=x_train, y_train=y_train, x_test=x_test, y_test=y_test)
    return path


def run(*arguments, program=app):
    return CliRunner().invoke(program, [str(argument) for argument in arguments])


def demo(digits, *more):
    return run("demo", "--data", digits, "--epsilon", "8", "--queries", QUERIES, *more)


def assert_one_line(result, code):
    assert result.exit_code == code
    assert result.stdout == ""
    assert result.stderr.startswith("vicinal: ")
    assert result.stderr.count("\n") == 1
    assert "Traceback" not in result.stderr


def test_version():
    assert run("--version").stdout == f"vicinal {vicinal.__version__}\n"


COMMANDS = [
    *(
        (app, [*name.split()])
        for name in ("", "keys add", "smoothed audit", *Commands.import_paths)
    ),
    *((experiments, [name]) for name in Experiments.import_paths),
]


@pytest.mark.parametrize(("program", "command"), COMMANDS)
def test_every_command_has_help(program, command):
    result = run(*command, "--help", program=program)
    assert result.exit_code == 0
    assert "Usage:" in result.stdout


def test_all_functions_of_the_store_module_are_commands():
    """A command that is written but not listed would be lost in silence."""
    written = {
        f"vicinal.cli._store:{name}"
        for name, found in vars(_store).items()
        if inspect.isfunction(found)
        and found.__module__ == _store.__name__
        and not name.startswith("_")
    }
    assert written <= set(Commands.import_paths.values())


@pytest.mark.parametrize(
    "arguments", [["nonsense"], ["demo", "--nonsense"], ["demo", "--queries", "many"]]
)
def test_bad_usage_exits_with_2(arguments):
    result = run(*arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert "Error" in result.stderr


@pytest.mark.parametrize(
    ("option", "value", "named"),
    [
        ("--epsilon", "0", "epsilon"), ("--epsilon", "nan", "epsilon"), ("--delta", "1", "delta"),
        ("--queries", "0", "queries"), ("--queries", "150", "queries"),
        ("--data", "no-such-file.npz", "no-such-file.npz"),
    ],
)  # fmt: skip
def test_demo_refuses_bad_input_in_one_line(digits, tmp_path, option, value, named):
    result = run("demo", "--data", digits, "--out", tmp_path, option, value)
    assert_one_line(result, 2)
    assert named in result.stderr


def test_demo_refuses_a_folder_that_cannot_be_made_before_any_work(digits, tmp_path):
    (tmp_path / "file").touch()
    assert_one_line(demo(digits, "--out", tmp_path / "file" / "folder"), 2)


def test_a_refusal_for_privacy_exits_with_3(digits, tmp_path, monkeypatch):
    refuse = raising(PrivacyRefused("This would break\nthe guarantee."))
    monkeypatch.setattr("vicinal.reports.demo.answer_queries", refuse)
    result = demo(digits, "--out", tmp_path)
    assert_one_line(result, 3)
    assert result.stderr == "vicinal: This would break the guarantee.\n"


def test_demo_writes_a_report_and_says_where(digits, tmp_path):
    result = demo(digits, "--out", tmp_path / "new" / "folder")
    assert result.exit_code == 0
    assert result.stderr == ""
    assert not {"\x1b", "\r", "\b"} & set(result.stdout), "no escape codes off a terminal"
    report = tmp_path / "new" / "folder" / "report.html"
    assert str(report) in result.stdout
    assert "(8, 1e-05)-differential privacy for every subject" in " ".join(result.stdout.split())
    page = report.read_text(encoding="utf-8")
    ET.fromstring(page)  # noqa: S314 (made here)
    assert "vicinal demo --data digits.npz --epsilon 8 --delta 1e-05 --queries 30" in page
    assert str(digits.parent) not in page


@pytest.mark.quick
def test_demo_gives_one_json_object_and_a_quiet_terminal_when_piped(digits, tmp_path):
    options = ["--epsilon", "8", "--queries", str(QUERIES), "--json", "--out", tmp_path]
    done = subprocess.run(
        [sys.executable, "-m", "vicinal", "demo", "--data", digits, *options], capture_output=True,
        cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(Path(vicinal.__file__).parents[1])},
        text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    found = json.loads(done.stdout)
    assert (found["guarantee"]["holds"], found["guarantee"]["epsilon"]) == (True, 8)
    assert found["report"] == str(tmp_path / "report.html")
    assert found["total"] == QUERIES
    assert found["correct"] / QUERIES == found["accuracy"]
    low, high = found["interval_95"]
    assert low < found["accuracy"] < high or found["correct"] == QUERIES


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize(
    ("stdout", "stderr", "silent", "shown"),
    [
        (Terminal, Terminal, False, True),
        (Terminal, Terminal, True, False),
        (io.StringIO, Terminal, False, False),
        (Terminal, io.StringIO, False, False),
    ],
)
def test_bars_are_shown_only_at_a_terminal(monkeypatch, stdout, stderr, silent, shown):
    monkeypatch.setattr(sys, "stdout", stdout())
    monkeypatch.setattr(sys, "stderr", stderr())
    monkeypatch.setenv("TERM", "xterm")
    with show_progress_bars(silent=silent) as begin:
        begin("features", 2)(2)
    assert ("features" in sys.stderr.getvalue()) == shown
    assert sys.stdout.getvalue() == ""


def small(name, n_components):
    settings = (Setting(8.0, 20), Setting(4.0, 20))
    public_map = PublicMap(n_components)
    return Comparison(name, public_map, settings, ParameterGrid((0.2, 0.3), (0.3,)), 50, runs=2)


def test_reproduce_prints_and_writes_a_table(digits, tmp_path, monkeypatch):
    monkeypatch.setattr(recipes, "images", lambda _runs: (small("HOG", 20),))
    options = ["--data", digits, "--out", tmp_path]
    printed = run("indknn-fashion", *options, program=experiments)
    assert printed.exit_code == 0
    assert (tmp_path / "indknn-fashion.txt").read_text() == printed.stdout
    as_json = json.loads(run("indknn-fashion", *options, "--json", program=experiments).stdout)
    assert len(as_json["rows"]) == 7
    assert as_json["simulation"] is True
    assert json.loads((tmp_path / "indknn-fashion.json").read_text())["rows"] == as_json["rows"]
    assert "no guarantee" in " ".join(printed.stdout.split())


def test_a_missing_extra_is_one_line_with_the_remedy(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "sentence_transformers", None)
    (tmp_path / "texts.csv").write_text("label,text\n1,one\n0,two\n" * 60)
    files = "--train", tmp_path / "texts.csv", "--test", tmp_path / "texts.csv"
    result = run("indknn-agnews", *files, "--out", tmp_path / "out", program=experiments)
    assert_one_line(result, 2)
    assert "vicinal[text]" in result.stderr
