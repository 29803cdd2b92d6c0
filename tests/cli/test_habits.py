"""What people expect without reading: HTML in notebooks, grouped help, a doctor."""

import json
from collections import Counter

import numpy as np

from command_line import commands, printed
from vicinal import IndKNNClassifier
from vicinal.accounting import Guarantee
from vicinal.cli import _machine
from vicinal.cli.main import Commands, app


def test_a_guarantee_is_a_table_whose_text_is_escaped():
    guarantee = Guarantee(
        epsilon=1.0, delta=1e-5, method="GDP", assumptions=("a & b",),
        neighbouring="<b>one</b> subject", protected=("x",), public=("y",),
    )  # fmt: skip
    shown = guarantee._repr_html_()
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
    named = [name for names in Commands.commands_by_heading.values() for name in names]
    assert sorted(named) == sorted(Commands.import_paths)


def test_the_doctor_says_what_is_here():
    found = json.loads(printed("doctor", "--json"))
    assert found["packages"]["numpy"] == np.__version__
    assert found["engines"]["int8"] in found["engines"]["proven"]  # whichever was measured faster
    assert found["processor"]["cores"] >= 1


def test_the_doctor_has_advice_where_something_is_short(monkeypatch):
    monkeypatch.setattr(_machine, "_find_open_file_limit", lambda: 256)
    monkeypatch.setattr(_machine, "find_available_bytes", lambda: 2**20)
    shown = printed("doctor")
    assert "ulimit -n" in shown
    assert "1 GiB" in shown


def test_no_two_options_of_a_command_have_one_flag():
    twice = [
        (name, flag)
        for name, command in commands(app)
        for flag, times in Counter(f for each in command.params for f in each.opts).items()
        if times > 1
    ]
    assert twice == []
    assert "vicinal init" in dict(commands(app))
