"""The program as its users see it: exit codes, JSON, silence when piped, no tracebacks."""

import io
import json
import sys
from xml.etree import ElementTree as ET

import numpy as np
import pytest

import vicinal
import vision_tools
from command_line import invoked, option_words, printed, run_vicinal
from experiments.__main__ import Experiments
from experiments.__main__ import app as experiments
from experiments.accuracy import recipes
from experiments.accuracy.comparison import Comparison
from experiments.accuracy.search import ParameterGrid
from experiments.trials import Setting
from made_up import raising
from vicinal.cli.main import Commands
from vicinal.cli.output import show_progress_bars
from vicinal.errors import PrivacyRefused
from vicinal.features import PublicMap

QUERIES = 30


@pytest.fixture(scope="module")
def digits(tmp_path_factory):
    """Write a small file laid out like MNIST."""
    images, labels = vision_tools.digits()
    path = tmp_path_factory.mktemp("digits") / "digits.npz"
    train = {"x_train": images[:700], "y_train": labels[:700]}
    np.savez(path, **train, x_test=images[700:850], y_test=labels[700:850])
    return path


def demo(digits, *more, **options):
    """Return the result of a demo; a message that ends it is one line on standard error."""
    given = {"data": digits, "epsilon": 8, "queries": QUERIES, **options}
    result = invoked("demo", *more, **given)
    if result.exit_code:
        assert_one_line(result)
    return result


def assert_one_line(result):
    assert result.stdout == ""
    assert result.stderr.startswith("vicinal: ")
    assert result.stderr.count("\n") == 1
    assert "Traceback" not in result.stderr


def test_version():
    assert printed("--version") == f"vicinal {vicinal.__version__}\n"


@pytest.mark.parametrize("command", ["", "keys add", "smoothed audit", *Commands.import_paths])
def test_every_command_has_help(command):
    assert "Usage:" in printed(*command.split(), "--help")


@pytest.mark.parametrize("command", Experiments.import_paths)
def test_every_experiment_has_help(command):
    assert "Usage:" in printed(command, "--help", program=experiments)


@pytest.mark.parametrize(
    "arguments", [["nonsense"], ["demo", "--nonsense"], ["demo", "--queries", "many"]]
)
def test_bad_usage_exits_with_2(arguments):
    result = invoked(*arguments, code=2)
    assert result.stdout == ""
    assert "Error" in result.stderr


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("epsilon", "0"), ("epsilon", "nan"), ("delta", "1"), ("queries", "0"),
        ("queries", "150"), ("data", "no-such-file.npz"),
    ],
)  # fmt: skip
def test_demo_refuses_bad_input_in_one_line(digits, tmp_path, option, value):
    result = demo(digits, **{option: value}, out=tmp_path, code=2)
    assert (value if option == "data" else option) in result.stderr


def test_demo_refuses_a_folder_that_cannot_be_made_before_any_work(digits, tmp_path):
    (tmp_path / "file").touch()
    demo(digits, out=tmp_path / "file" / "folder", code=2)


def test_a_refusal_for_privacy_exits_with_3(digits, tmp_path, monkeypatch):
    refuse = raising(PrivacyRefused("This would break\nthe guarantee."))
    monkeypatch.setattr("vicinal.reports.demo.answer_queries", refuse)
    result = demo(digits, out=tmp_path, code=3)
    assert result.stderr == "vicinal: This would break the guarantee.\n"


def test_demo_writes_a_report_and_says_where(digits, tmp_path):
    result = demo(digits, out=tmp_path / "new" / "folder")
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
    given = {"data": digits, "epsilon": 8, "queries": QUERIES, "out": tmp_path}
    done = run_vicinal("demo", "--json", *option_words(**given), cwd=tmp_path)
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


@pytest.mark.parametrize("silent", [False, True])
@pytest.mark.parametrize("stdout", [Terminal, io.StringIO])
@pytest.mark.parametrize("stderr", [Terminal, io.StringIO])
def test_bars_are_shown_only_at_a_terminal(monkeypatch, stdout, stderr, silent):
    monkeypatch.setattr(sys, "stdout", stdout())
    monkeypatch.setattr(sys, "stderr", stderr())
    monkeypatch.setenv("TERM", "xterm")
    with show_progress_bars(silent=silent) as begin:
        begin("features", 2)(2)
    are_shown = stdout is stderr is Terminal and not silent
    assert ("features" in sys.stderr.getvalue()) == are_shown
    assert sys.stdout.getvalue() == ""


def test_reproduce_prints_and_writes_a_table(digits, tmp_path, monkeypatch):
    grid = ParameterGrid((0.2, 0.3), (0.3,))
    settings = (Setting(8.0, 20), Setting(4.0, 20))
    small = Comparison("HOG", PublicMap(20), settings, grid, 50, runs=2)
    monkeypatch.setattr(recipes, "images", lambda _runs: (small,))
    given = {"data": digits, "out": tmp_path, "program": experiments}
    text = printed("indknn-fashion", **given)
    assert (tmp_path / "indknn-fashion.txt").read_text() == text
    assert "no guarantee" in " ".join(text.split())
    as_json = json.loads(printed("indknn-fashion", "--json", **given))
    assert len(as_json["rows"]) == 7
    assert as_json["simulation"] is True
    assert json.loads((tmp_path / "indknn-fashion.json").read_text())["rows"] == as_json["rows"]
