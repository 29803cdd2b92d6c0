"""Figures of audits: how often they are wrong, how soon they catch."""

import csv
from pathlib import Path

import pytest

from audit_tools import Shift
from experiments.audits import power
from experiments.audits.kept import RunFolder

NOWHERE = RunFolder(None, {})


def test_small_audits_are_wrong_as_seldom_as_the_table_allows():
    makers = {
        "kept": lambda: Shift(1.0, 1.0, block=1000), "passed": lambda: Shift(2.0, 1.0, block=1000)
    }  # fmt: skip
    kept, passed = power.wrong(makers, audits=40, runs=100, confidence=0.9, folder=NOWHERE)
    assert (kept.audits, kept.allowed) == (40, pytest.approx(0.1))
    assert kept.above <= 4
    assert kept.above / 40 < kept.at_most < 0.25
    assert passed.above > 30


def test_a_broken_version_is_caught_and_timed():
    makers = {"shift": lambda: Shift(1.0, 1.0, {"broken": Shift(3.0, 1.0, block=1000)})}
    (found,) = power.caught(makers, 3, 4096, 1 - 1e-6, NOWHERE)
    assert (found.caught, found.audits, found.most_runs) == (3, 3, power.STRETCH)
    assert found.at_least == pytest.approx(0.05 ** (1 / 3))


def test_the_page_says_what_the_files_say():
    docs = Path(__file__).parents[2] / "docs"
    page = " ".join((docs / "explanation" / "evidence.md").read_text().split())
    with (docs / "reference" / "audits.csv").open() as file:
        ratios = {row["attack"]: float(row["ratio"]) for row in csv.DictReader(file)}
    with (docs / "reference" / "audit-controls.csv").open() as file:
        copies = list(csv.DictReader(file))
    assert max(ratios.values()) <= 1
    assert f"In {len(ratios)} attacks" in page
    assert f"{sum(ratio >= 0.92 for ratio in ratios.values())} attacks reached 92 %" in page
    labels = min(ratios["labels"], ratios["labels-alone"], ratios["labels-two-classes"])
    assert f"Labels alone reached {labels:.0%}".replace("%", " %") in page
    assert f"private model {ratios['model-labels']:.0%}".replace("%", " %") in page
    assert f"{len(copies)} copies of the code" in page
    assert all(copy["caught"] == copy["audits"] == "100" for copy in copies)
    assert f"{sum(copy['most_runs'] == '512' for copy in copies)} copies within 512" in page
