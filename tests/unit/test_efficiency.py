"""Tables of indexes, reuse and releases, on data small enough to see."""

from __future__ import annotations

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from experiments.__main__ import app as experiments
from experiments.planning import efficiency, releases
from vicinal.reports._trials import Benchmark, Setting

CLASSES, D = 3, 12


@pytest.fixture(scope="module")
def benchmark_data():
    rng = np.random.default_rng(0)
    y = rng.integers(0, CLASSES, 1400)
    X = (3 * np.eye(CLASSES, D)[y] + rng.normal(size=(1400, D))).astype(np.float32)
    return Benchmark(range(CLASSES), X[:700], y[:700], X[700:], y[700:])


def test_every_index_and_every_reuse_has_a_row(benchmark_data, monkeypatch):
    monkeypatch.setattr(efficiency, "N_REFERENCE", 300)
    monkeypatch.setattr(efficiency, "N_QUERIES", 150)
    told = []
    indexes, reuses = efficiency.measure(benchmark_data, 2, 0.5, 0.5, told.append)
    assert sum(told) == efficiency.work(2)
    assert len(indexes) == 2 * len(efficiency.INDEXES)
    assert [row.reuse for row in reuses] == list(efficiency.REUSES)
    for row in indexes:
        assert len(row.accuracies) == 2
        assert 0 < row.recall <= 1
        assert row.milliseconds > 0
    assert {row.recall for row in indexes if row.index == "exact"} == {1.0}
    assert reuses[0].asked == 1.0 > reuses[1].asked
    table = efficiency.text_tables(indexes, reuses)
    assert "hashing, L = 30" in table
    assert "gate" in table


def test_every_release_has_a_row_in_every_setting(benchmark_data, monkeypatch):
    settings = Setting(4.0, 100), Setting(8.0, 200)
    monkeypatch.setattr(releases, "N_REFERENCE", 300)
    monkeypatch.setattr(releases, "SETTINGS", settings)
    told = []
    rows = releases.measure(benchmark_data, 2, told.append)
    assert sum(told) == releases.work(2)
    assert len(rows) == len(settings) * len(releases.WAYS)
    assert all(0.5 < accuracy <= 1 for row in rows for accuracy in row.accuracies)
    table = releases.text_table(rows)
    assert len(table.splitlines()) == 1 + len(settings)
    assert table.count("100% asked") >= 4


def test_the_commands_print_tables_and_json(benchmark_data, monkeypatch, tmp_path):
    monkeypatch.setattr("vicinal.reports._trials.image_benchmark", lambda *_: benchmark_data)
    monkeypatch.setattr("vicinal.datasets.load_mnist", lambda: None)
    monkeypatch.setattr(efficiency, "N_REFERENCE", 300)
    monkeypatch.setattr(efficiency, "N_QUERIES", 100)
    monkeypatch.setattr(releases, "N_REFERENCE", 300)
    monkeypatch.setattr(releases, "SETTINGS", (Setting(2.0, 100),))
    for name in ("indknn-efficiency", "indknn-labels"):
        arguments = [name, "--runs", "1", "--out", str(tmp_path)]
        printed = CliRunner().invoke(experiments, arguments)
        assert printed.exit_code == 0, printed.output
        assert "without a guarantee" in " ".join(printed.stdout.split())
        found = CliRunner().invoke(experiments, [*arguments, "--json"])
        assert json.loads(found.stdout)["experiment"] == name
        assert (tmp_path / f"{name}.txt").exists()
