"""All methods side by side, on data small enough to see; what goes wrong costs accuracy only."""

import json

import numpy as np
import pytest

from command_line import printed
from experiments import trials
from experiments.__main__ import app as experiments
from experiments.accuracy import calibrated, grid, losses, search
from experiments.accuracy.calibrated import Facts
from experiments.accuracy.grid import Table
from experiments.accuracy.methods import CONTENDERS, answered
from experiments.accuracy.result_cache import Cells, Place, Score
from experiments.accuracy.table import crossings, entries, text_tables
from experiments.trials import Benchmark, Setting
from vicinal import PATEClassifier, PrivateKNNClassifier
from vicinal.accounting import Plan
from vicinal.errors import InvalidInput

CLASSES, D = 3, 12
PLACE = Place("toy", 10, 5, "default", 1.0, 100, 0)
SCORE = Score(0.9, 1.0, 0.5, 0.1, {"k": 3.0})


def data(seed, n=1500):
    rng = np.random.default_rng(seed)
    y = rng.integers(0, CLASSES, 2 * n)
    X = (3 * np.eye(CLASSES, D)[y] + rng.normal(size=(2 * n, D))).astype(np.float32)
    return Benchmark(range(CLASSES), X[:n], y[:n], X[n:], y[n:])


@pytest.fixture(scope="module")
def benchmark_data():
    return data(0)


@pytest.fixture(scope="module")
def trial(benchmark_data):
    return grid.trial_of(benchmark_data, Table((), (4.0,), (200,), 1), 0)


@pytest.fixture
def unpriced(monkeypatch):
    """Noise of 2 votes, without the seconds that pricing a plan takes."""
    rules = calibrated.private_knn, calibrated.pate
    monkeypatch.setattr(calibrated, "_noise", lambda *_: 2.0)
    for rule in rules:
        rule.cache_clear()
    yield
    for rule in rules:
        rule.cache_clear()


ways = pytest.mark.parametrize("screened", [False, pytest.param(True, marks=pytest.mark.soak)])
"""Screened plans are priced for seconds; how noise is found is the same, and tested below."""


@pytest.mark.slow
@ways
@pytest.mark.parametrize(
    ("rule", "rival"),
    [(calibrated.pate, PATEClassifier), (calibrated.private_knn, PrivateKNNClassifier)],
)
def test_a_calibrated_rival_keeps_epsilon_and_does_not_waste_it(rule, rival, screened):
    options = rule(Setting(1.0, 300), Facts(60000, 10), screened)
    plan = Plan.from_dict(rival(range(10), **options).plan())
    methods = ("rdp", "pld")
    spent = min(plan.composition().to_epsilon(plan.delta, method) for method in methods)
    assert 0.98 < spent <= 1.0


@pytest.mark.parametrize("start", [0.1, 50.0, 1e5])
@pytest.mark.parametrize("power", [0.6, 1.0, 1.4])
def test_noise_is_found_from_anywhere_on_the_safe_side(start, power):
    def cost(noise):
        return (30 / noise) ** power

    assert 0.98 < cost(calibrated._noise(cost, 1.0, start)) <= 1.0


@pytest.mark.usefixtures("unpriced")
@pytest.mark.parametrize("name", list(CONTENDERS))
def test_every_contender_answers_every_query(name, trial):
    reply = answered(name, trial, Setting(8.0, 200), 0)
    assert reply.labels.shape == reply.asked.shape == trial.truth.shape
    known = np.isin(reply.labels, trial.classes)
    assert known.all() or name.endswith("screened")
    right = (reply.labels == trial.truth)[known]
    assert right.mean() > 0.5 or not known.any()
    again = answered(name, trial, Setting(8.0, 200), 0)
    assert np.array_equal(reply.labels, again.labels)


def test_a_split_is_public_repeatable_and_disjoint():
    first, again, other = (trials.split(100, 60, 30, seed) for seed in (1, 1, 2))
    np.testing.assert_array_equal(first.queries, again.queries)
    assert set(first.queries) != set(other.queries)
    assert set(first.reference).isdisjoint(first.queries)


def test_the_default_the_published_algorithm_and_plain_neighbours_find_clusters(trial):
    setting, point = Setting(8.0, 200), search.Point(0.5, 0.5)
    assert trials.default_outcome(trial, setting, seed=0).accuracy > 0.8
    assert search.published_outcome(trial, setting, point, seed=0).accuracy > 0.8
    assert trials.yardstick_outcome(trial).accuracy > 0.8


def test_cells_come_back_from_the_disk(tmp_path):
    path = tmp_path / "x.cells.jsonl"
    cells = Cells.at(path, resume=False)
    cells.put(PLACE, SCORE)
    cells.put(PLACE._replace(run=1), SCORE)
    with pytest.raises(InvalidInput, match="--resume"):
        Cells.at(path, resume=False)
    again = Cells.at(path, resume=True)
    assert PLACE in again
    assert PLACE._replace(run=2) not in again
    assert again.runs() == {PLACE._replace(run=-1): [SCORE, SCORE]}


def test_a_table_is_filled_once(benchmark_data, tmp_path):
    table = Table(("default", "noisy-sgd", "not-private"), (2.0, 8.0), (100, 200), 2)
    cells = Cells.at(tmp_path / "x.cells.jsonl", resume=False)
    told = []
    grid.measure("toy", benchmark_data, table, cells, told.append)
    assert sum(told) == grid.work(table)
    assert len(cells) == 2 * (4 + 4 + 2)
    before = (tmp_path / "x.cells.jsonl").read_bytes()
    grid.measure("toy", benchmark_data, table, cells, told.append)
    assert (tmp_path / "x.cells.jsonl").read_bytes() == before
    found = entries(cells)
    assert {len(entry.scores) for entry in found} == {2}
    text = text_tables(found)
    assert text.count("200-NN, not private") == 2
    assert text.count("±") == 2 * (2 + 2 + 2)
    assert len(crossings(found)) == 2


@pytest.fixture
def toy(benchmark_data, monkeypatch):
    monkeypatch.setattr("experiments.feature_maps.FeatureMap.benchmark", lambda *_: benchmark_data)
    monkeypatch.setattr("vicinal.datasets.load_mnist", lambda: None)


@pytest.mark.usefixtures("toy")
def test_the_accuracy_command_goes_on_where_it_stopped(tmp_path):
    arguments = [
        "accuracy", "--methods", "default", "--methods", "not-private",
        "--epsilon", "4", "--queries", "100", "--runs", "1", "--out", str(tmp_path),
    ]  # fmt: skip
    assert "Ind-KNN, default" in printed(*arguments, program=experiments)
    assert "--resume" in printed(*arguments, code=2, program=experiments)
    more = [*arguments, "--resume", "--methods", "labels", "--json"]
    found = json.loads(printed(*more, program=experiments))
    assert found["simulation"]
    assert [row["method"] for row in found["rows"]] == ["default", "not-private", "labels"]
    assert (tmp_path / "accuracy.txt").exists()


def test_losses_are_against_the_best_rival_of_a_cell():
    scores = {}
    for run in range(3):
        for method, right in (("model", 0.90), ("labels", 0.91), ("noisy-sgd", 0.80)):
            place = PLACE._replace(method=method, run=run)
            scores[place] = Score(right + run / 100, 1.0, 0.0, 0.1)
        scores[PLACE._replace(method="model", run=run, epsilon=2.0)] = Score(0.95, 1, 0, 0.1)
        scores[PLACE._replace(method="labels", run=run, epsilon=2.0)] = Score(0.94, 1, 0, 0.1)
    (lost, won) = losses.standings(scores, "model", ["labels", "noisy-sgd"], range(5))
    assert (lost.rival, lost.runs) == ("labels", 3)
    assert lost.ahead == pytest.approx(-0.01)
    assert lost.error == pytest.approx(0, abs=1e-12)
    assert won.ahead == pytest.approx(0.01)
    assert "-0.0100" in losses.text_table([lost, won])
    assert "+0.0100" not in losses.text_table([lost, won])
    assert "| 2     | 1  " in losses.summary([lost, won])
    assert losses.standings(scores, "model", ["pate"], range(5)) == []
