"""What people expect without reading: HTML in notebooks, grouped help, a doctor, a sign of life."""

import json
import time
from collections import Counter

import numpy as np
import pytest
from typer.testing import CliRunner

from command_line import commands
from vicinal import IndKNNClassifier
from vicinal.accounting import Guarantee
from vicinal.cli import _output as _progress
from vicinal.cli._main import Commands, app


def small_guarantee(**changed):
    words = {"neighbouring": "<b>one</b> subject", "protected": ("x",), "public": ("y",)}
    given = {"epsilon": 1.0, "delta": 1e-5, "method": "GDP", "assumptions": ("a & b",)}
    return Guarantee(**given, **words, **changed)


def test_a_guarantee_is_a_table_whose_text_is_escaped():
    shown = small_guarantee()._repr_html_()
    assert "<td" in shown
    assert "&lt;b&gt;one&lt;/b&gt; subject" in shown
    assert "a &amp; b" in shown
    for name in ("epsilon", "delta", "neighbouring", "protected", "public", "assumed"):
        assert name in shown


def test_a_fitted_estimator_shows_its_guarantee_and_another_its_parameters():
    clf = IndKNNClassifier([0, 1], n_queries=10, n_records=400)
    assert "Differential privacy" not in clf._repr_html_()
    rng = np.random.default_rng(1)
    clf.fit(rng.normal(size=(400, 3)), rng.integers(0, 2, 400), public=rng.normal(size=(50, 3)))
    shown = clf._repr_html_()
    assert "Differential privacy for every subject" in shown
    assert shown.endswith(clf.guarantee()._repr_html_())
    assert "Differential privacy for every subject" in clf._repr_mimebundle_()["text/html"]


def test_every_command_is_under_one_task():
    named = [name for names in Commands.tasks.values() for name in names]
    assert sorted(named) == sorted(Commands.places)


def test_the_doctor_says_what_is_here():
    done = CliRunner().invoke(app, ["doctor", "--json"])
    assert done.exit_code == 0, done.output
    found = json.loads(done.output)
    assert found["packages"]["numpy"] == np.__version__
    assert found["engines"]["int8"] in found["engines"]["proven"]  # whichever was measured faster
    assert found["processor"]["cores"] >= 1


def test_the_doctor_has_advice_where_something_is_short(monkeypatch):
    from vicinal.cli import _machine

    monkeypatch.setattr(_machine, "_open_files", lambda: 256)
    monkeypatch.setattr(_machine, "_free_memory", lambda: 2**20)
    shown = CliRunner().invoke(app, ["doctor"]).output
    assert "ulimit -n" in shown
    assert "1 GiB" in shown


@pytest.mark.parametrize(("patience", "said"), [(0.01, True), (60.0, False)])
def test_off_a_terminal_a_long_command_says_once_that_it_goes_on(
    capsys, monkeypatch, patience, said
):
    monkeypatch.setattr(_progress, "PATIENCE", patience)
    with _progress.sign_of_life("bench"), _progress.progress() as begin:
        begin("sizes", 4)(1)
        end = time.monotonic() + 30
        shown = capsys.readouterr().err
        while said and not shown and time.monotonic() < end:
            time.sleep(0.005)
            shown = capsys.readouterr().err
    assert shown == (
        f"vicinal: bench is still running after {patience:g} s: sizes 25 %.\n" if said else ""
    )


def test_a_service_says_nothing_of_the_kind(capsys, monkeypatch):
    monkeypatch.setattr(_progress, "PATIENCE", 0.0)
    with _progress.sign_of_life("serve"):
        time.sleep(0.02)
    assert capsys.readouterr().err == ""


def test_no_two_options_of_a_command_have_one_flag():
    twice = [
        (name, flag)
        for name, command in commands(app)
        for flag, times in Counter(f for each in command.params for f in each.opts).items()
        if times > 1
    ]
    assert twice == []
    assert "vicinal init" in dict(commands(app))


def with_an_argument_too_many(name, command):
    """Return words that give a command all that it requires, and something else."""
    required = [
        each for each in command.params if each.required or each.param_type_name != "option"
    ]
    words = name.split()[1:]
    for each in required:
        words += ["1"] if each.param_type_name == "argument" else [each.opts[0], "1"]
    return [*words, "5"]


def optional_values(command):
    """Return the options with a value that nobody has to give, and that is no place to write."""
    return [
        each.opts[0]
        for each in command.params
        if each.param_type_name == "option" and not each.is_flag and not each.required
        if each.name not in ("onnx", "out", "plot", "report")
    ]


def test_an_argument_too_many_is_answered_with_the_options_that_it_may_belong_to():
    """The natural mistake is `erase STORE 5`; no other command leaves anybody alone, either."""
    for name, command in commands(app):
        if any(each.nargs == -1 for each in command.params):
            continue
        result = CliRunner().invoke(app, with_an_argument_too_many(name, command))
        assert result.exit_code == 2, name
        assert "extra argument" in result.stderr, name
        hint = result.stderr.partition("Put the option's name before it: ")[2]
        assert bool(hint) == bool(optional_values(command)), name
        assert not hint or hint.split()[0] in optional_values(command), name


@pytest.mark.parametrize(
    ("words", "flags"),
    [
        ("erase STORE 5", ("--subject (", "--subjects (")),
        ("verify STORE 5", ("--erased (", "--erased-list (")),
        ("export-guarantee STORE everybody", ("--audience (",)),
        ("receipt erasure STORE 5 --key k", ("--subject (", "--subjects (")),
    ],
)
def test_the_likeliest_options_are_named(words, flags):
    said = CliRunner().invoke(app, words.split()).stderr
    assert all(flag in said for flag in flags)
    assert "--out" not in said
