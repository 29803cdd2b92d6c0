"""Figures on pages are those of the files that commands wrote."""

import csv
import json
import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from statistics import fmean

import pytest

from experiments.accuracy import small_tables

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
BEHIND = -0.002


def kept(name):
    """Return the rows of a file of the reference."""
    with (DOCS / "reference" / name).open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def words(path):
    """Return the text of a page on one line."""
    return " ".join((ROOT / path).read_text(encoding="utf-8").split())


def table(path, head):
    """Return the rows of the table of a page whose first line begins with `head`."""
    text = (ROOT / path).read_text(encoding="utf-8")
    (found,) = re.findall(rf"^\| {re.escape(head)}.*\n\|[-|]+\n((?:\|.*\n)+)", text, re.MULTILINE)
    lines = found.replace("**", "").splitlines()
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines]


def test_methods_side_by_side():
    ahead = defaultdict(list)
    for row in kept("comparison.csv"):
        ahead[row["data"]].append(float(row["ahead"]))
    every = [each for some in ahead.values() for each in some]
    shown = table("docs/reference/comparison.md", "data | cells")
    assert [row[0] for row in shown] == [*ahead, "all"]
    for (_, *figures), some in zip(shown, (*ahead.values(), every), strict=True):
        behind = sum(each < BEHIND for each in some)
        assert [int(each) for each in figures[:2]] == [len(some), behind]
        found = [float(each) for each in figures[2:]]
        assert found == pytest.approx([min(some), fmean(some)], abs=0.000051)
    page = words("docs/reference/comparison.md")
    assert f"On average of {len(every)} cells" in page
    assert f"was {fmean(every):.4f} more accurate".replace(" 0.", " .") in page
    for row in kept("queries-16000.csv"):
        assert float(row["private model"]) > float(row["NoisySGD"]), row
        assert float(row["private model"]) > float(row["neighbors alone"]), row


def test_forecasts():
    off = [float(row["foretold"]) - float(row["happened"]) for row in kept("forecasts.csv")]
    page = words("docs/reference/report-set.md")
    mean, low = (f"{value:.3f}"[1:] for value in (fmean(map(abs, off)), -fmean(off)))
    assert f"On the {len(off)} tables with classes" in page
    assert f"it was off by {mean} on average ({low} too low)" in page
    assert sum(abs(each) > 0.02 for each in off) == 3
    assert "by more than .02 on three" in page


def test_the_table_of_the_readme():
    cells = defaultdict(list)
    with (DOCS / "reference" / "comparison.cells.jsonl").open(encoding="utf-8") as file:
        for cell in map(json.loads, file):
            if (cell["epsilon"], cell["n_queries"]) == (1, 4000):
                cells[cell["data"], cell["method"]].append(cell["accuracy"])
    shown = table("README.md", "private records, features")
    assert [name.split(",")[0] for name, *_ in shown] == [
        "MNIST", "Fashion-MNIST", "AG News", "CIFAR-10",
    ]  # fmt: skip
    methods = ("model", "labels", "noisy-sgd", "least-squares")
    for name, *figures in shown:
        runs = [cells[name.split(",")[0], method] for method in methods]
        assert all(len(each) == 5 for each in runs)
        found = [fmean(each) for each in runs]
        assert [float(each) for each in figures] == pytest.approx(found, abs=0.00051)


WITHOUT_EXTRAS = """
import sys
class Refuse:
    def find_spec(name, path=None, target=None):
        if name.partition(".")[0] in ("pandas", "torch"):
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Refuse)
"""
SCORE_WINE = """
import json
from experiments.accuracy import small_tables
print(json.dumps(small_tables._score_split(small_tables.TABLES[1], 100, 1.0, 0)))
"""


def test_the_readme_shows_what_small_tables_prints():
    """The cheapest row is measured again; the other rows must exist, in the printed order."""
    shown = table("README.md", "table of scikit-learn")
    expected = [[small.name, str(size)] for small in small_tables.TABLES for size in small.sizes]
    assert [row[:2] for row in shown] == expected
    wine = small_tables.TABLES[1]
    command = [sys.executable, "-c", WITHOUT_EXTRAS + SCORE_WINE]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    score, constant, linear = json.loads(run.stdout)
    assert constant < 0.5 < score < linear
    row = small_tables.SmallTableScores(wine.name, 100, 0.8, -0.0131, 0.9851)
    assert small_tables.format_small_tables([row]).endswith(
        f"| {wine.name} | 100 | .800 | -.013 | .985 |"
    )


PROMISES = {
    "vicinal, default": "vicinal, default",
    "neighbours alone": "Ind-KNN votes",
    "NoisySGD": "NoisySGD",
    "Private-kNN": "Private-kNN",
    "PATE": "PATE",
    "sums of kernels, released once": "kernel sums",
    "PAC prediction": "PAC prediction",
    "ten neighbours, no noise": "10 neighbours, no noise",
}
DATA = ("MNIST", "AG News", "health survey")


def test_what_a_promise_is_worth():
    found = {(row["data"], row["method"]): row for row in kept("promises.csv")}
    shown = table("docs/explanation/evidence.md", "accuracy, share of right guesses")
    assert [row[0] for row in shown] == list(PROMISES)
    for name, *cells, proven in shown:
        rows = [found[data, PROMISES[name]] for data in DATA]
        for cell, row in zip(cells, rows, strict=True):
            figures = [float(each) for each in cell.split(",")]
            assert figures[0] == pytest.approx(float(row["accuracy"]), abs=0.00051)
            assert figures[1] == pytest.approx(float(row["measured"]), abs=0.0051)
            assert float(row["at_least"]) <= float(row["proven"])
        stated = float(rows[0]["promised" if "promised" in proven else "proven"])
        if proven == "none":
            assert stated == 1
        else:
            assert float(proven.split()[-1]) == pytest.approx(stated, abs=0.0051)


def test_the_published_algorithm_is_level_or_behind():
    rows = kept("published-algorithm.csv")
    ahead = [float(row["neighbors alone"]) - float(row["Zhu et al. 2023"]) for row in rows]
    assert min(ahead) > -0.0021
    assert f"ahead by up to {100 * max(ahead):.0f} points" in words("docs/reference/accuracy.md")
    name = None
    for data, epsilon, *figures in table("docs/reference/accuracy.md", "data, features"):
        name = data or name
        kind, features = re.split(
            r" (?:HOG )?(?=centred|half|sentences)", name.replace(",", ""), maxsplit=1
        )
        asked = "800" if kind == "AG News" else "1000"
        (row,) = (
            row for row in rows
            if (row["data"], row["queries"], float(row["epsilon"])) == (kind, asked, float(epsilon))
            and row["features"].split(", ")[1] in features
        )  # fmt: skip
        columns = ("neighbors alone", "Zhu et al. 2023", "200-NN without privacy")
        assert [float(each) for each in figures] == [float(row[each]) for each in columns]


def test_the_papers_epsilons():
    found = {row["ZYCW20"]: row for row in kept("papers-epsilon.csv")}
    page = words("docs/explanation/accounting.md")
    five = found["Figure 5, subsampled screening"]
    mnist, cifar = found["Table 1, MNIST"], found["CIFAR-10, the answers alone"]

    def short(row, column):
        return row[column].replace("0.", ".", 1).rstrip("0") if row[column] < "1" else row[column]

    assert f"{five['printed']} is printed for the screening, and we get {five['Mironov']}" in page
    assert f"({short(five, 'Balle et al.')} by BBGHS20, {short(five, 'PLD')} by PLD)" in page
    assert f"no analysis can give less than {short(five, 'at least')}" in page
    assert f"For MNIST, {short(mnist, 'printed')} is printed" in page
    assert f"The stated parameters cost {short(mnist, 'PLD')}" in page
    assert f"answers alone cost {float(cifar['PLD']):.2f}" in page
