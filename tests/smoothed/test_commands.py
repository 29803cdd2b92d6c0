"""`vicinal smoothed` and the reproductions of LWX23 on the command line."""

import json
from pathlib import Path

import numpy as np
import pytest

from command_line import printed as run
from experiments.__main__ import app as experiments
from experiments.smoothed import figures, reference
from experiments.smoothed.tables import reference_entries
from vicinal.smoothed import Average, Vertices, compute_level_probabilities, smoothed_delta
from vicinal.smoothed.average import LEVELS

EXAMPLES = Path(__file__).parents[2] / "examples" / "smoothed"


def test_audits_of_the_examples():
    report = json.loads(run("smoothed", "audit", EXAMPLES / "one_fold.json", "--json"))
    uppers = [row["smoothed"]["upper"] for row in report["rows"]]
    assert uppers == sorted(uppers, reverse=True)
    assert report["rows"][0]["worst_case"]["upper"] == pytest.approx(0.9)
    output = run("smoothed", "audit", EXAMPLES / "one_fold.json")
    assert "1,000 records of 2 types" in output
    assert "share their coins" in run("smoothed", "audit", EXAMPLES / "both_folds.json", code=3)


def test_private_deltas_are_marked(tmp_path):
    spec = json.loads((EXAMPLES / "one_fold.json").read_text())
    path = tmp_path / "spec.json"
    path.write_text(json.dumps({**spec, "n": 1000, "database": [300, 700], "levels": [1e-3]}))
    output = run("smoothed", "audit", path)
    assert "PRIVATE delta of the database" in output
    assert "Pr[delta(x) > 0.001]" in output


@pytest.mark.parametrize("text", ["[]", '{"n": 5}', '{"n": NaN}', "{"])
def test_specifications_that_are_none(tmp_path, text):
    path = tmp_path / "spec.json"
    path.write_text(text)
    assert "vicinal: " in run("smoothed", "audit", path, code=2)


def test_drawn_databases_say_how_sure_that_is():
    world = Vertices([compute_level_probabilities("gaussian")])
    delta = smoothed_delta(Average(LEVELS, 5), world, 30, 2.0, draws=3)
    assert delta.method == "monte carlo"
    assert "standard error" in delta.note


def test_every_value_of_the_reference_file():
    report = json.loads(run("smoothed-reference", "--json", program=experiments))
    assert report["agree"]
    assert len(report["rows"]) == len(reference_entries()) == 37
    assert all(row["difference"] <= 1e-12 for row in report["rows"] if row["kind"] == "exact")


def test_a_wrong_reference_value_is_noticed(monkeypatch):
    entries = reference_entries()
    spoilt = {**entries[0], "exact": "600001/1000000"}
    monkeypatch.setattr(reference, "reference_entries", lambda: [spoilt, *entries[1:3]])
    assert "2 of 3 agree" in run("smoothed-reference", code=1, program=experiments)


def test_figures_are_drawn(tmp_path, monkeypatch):
    selected = {name: figures._DRAWN[name] for name in ("1", "2 right")}
    monkeypatch.setattr(figures, "_DRAWN", selected)
    compute_gradients = figures.gradients
    monkeypatch.setattr(figures, "gradients", lambda _, *rest: compute_gradients((20, 30), *rest))
    output = run("smoothed-figures", "--databases", 2, "--out", tmp_path, program=experiments)
    assert "Not stated in the paper" in output
    assert (tmp_path / "smoothed-figure-1.png").stat().st_size > 5000
    report = json.loads((tmp_path / "smoothed-figures.json").read_text())
    years = {row["election"]: row for row in report["figures"][0]["rows"]}
    assert 10 ** years["2020 (later totals)"]["log10_delta"] == pytest.approx(1.19716e-32, rel=1e-5)
    assert 10 ** years["2020 (later totals)"]["log10_utility"] == pytest.approx(
        1.1132e-32, rel=1e-5
    )
    assert 10 ** years["1924"]["log10_delta"] == pytest.approx(3.23397e-8, rel=1e-5)


def test_figure_2_left():
    rows = figures.all_dc([10**5, 5 * 10**5], 0.002, (0.5, 1.0, 2.0, 7.0))
    logs = [row["log10_upper"] for row in rows]
    expected = [-1.78, -2.72, -4.22, -4.94, -4.29, -8.72, -16.90, -24.72]
    assert logs == pytest.approx(expected, abs=0.006)
    assert np.allclose(logs, [row["log10_lower"] for row in rows], atol=1e-4)
