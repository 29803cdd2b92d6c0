"""The package's table of accuracies, and how often ranges from similar tables are right."""

from pathlib import Path

import pytest

from command_line import printed
from experiments.__main__ import app
from experiments.report_set import similar_tables
from experiments.report_set.page import read
from experiments.report_set.similar_tables import (
    collect_accuracies,
    evaluate_ranges,
    read_shapes,
    write_rows,
)
from vicinal.planning.measured_accuracy import MeasuredAccuracy, read_measured_accuracies

ROOT = Path(__file__).parents[2]
CELLS = ROOT / "docs" / "reference" / "report-set.csv"
SHAPES = ROOT / "experiments" / "report_set" / "shapes.csv"


def test_the_package_has_the_recorded_results(tmp_path):
    accuracies = collect_accuracies(read(CELLS), read_shapes(SHAPES))
    assert list(read_measured_accuracies()) == accuracies
    write_rows(tmp_path / "again.csv", MeasuredAccuracy, accuracies)
    packaged = ROOT / "src" / "vicinal" / "planning" / "measured_accuracy.csv"
    assert (tmp_path / "again.csv").read_bytes() == packaged.read_bytes()


def test_the_command_writes_both_files(tmp_path, monkeypatch):
    shapes = read_shapes(SHAPES)
    monkeypatch.setattr(similar_tables, "measure_shapes", lambda: shapes)
    paths = {"--shapes": tmp_path / "shapes.csv", "--out": tmp_path / "out.csv", "--cells": CELLS}
    options = [part for pair in paths.items() for part in pair]
    text = printed("similar-tables", "--run", "--write", *options, program=app)
    assert paths["--shapes"].read_bytes() == SHAPES.read_bytes()
    assert text.count("| two |") == 3


def test_the_page_states_how_often_a_range_contains_a_table_of_its_own():
    page = " ".join((ROOT / "docs" / "reference" / "report-set.md").read_text("utf-8").split())
    accuracies = read_measured_accuracies()
    two_classes = [each for each in accuracies if each.n_classes == 2]
    more_classes = [each for each in accuracies if each.n_classes > 2]
    rows = [
        ("two classes", two_classes, False),
        ("two classes, with `--class-prior`", two_classes, True),
        ("three to ten classes", more_classes, False),
        ("three to ten classes, with `--class-prior`", more_classes, True),
        ("numbers (R squared)", [each for each in accuracies if each.n_classes == 1], False),
    ]
    for name, plans, with_class_shares in rows:
        found = evaluate_ranges(
            accuracies, plans, with_features=True, with_class_shares=with_class_shares
        )
        width = f"{found.width:.2f}".lstrip("0")
        shares = f"{found.coverage:.0%} | {found.too_high:.0%} | {width}".replace("%", " %")
        assert f"| {name} | {found.n_plans} | {shares} |" in page
        assert found.coverage >= (0.8 if "numbers" in name else 0.87)


def test_a_range_that_leaves_a_table_out_does_not_use_it():
    others = [
        MeasuredAccuracy(str(number), 1000, 10, 2, 0.6, 1.0, 0.7 + number / 100)
        for number in range(3)
    ]
    high = MeasuredAccuracy("high", 1000, 10, 2, 0.6, 1.0, 0.9)
    found = evaluate_ranges([*others, high], [high], with_features=True, with_class_shares=False)
    assert (found.n_plans, found.coverage, found.too_high) == (1, 0, 0)
    assert found.width == pytest.approx(0.02)
