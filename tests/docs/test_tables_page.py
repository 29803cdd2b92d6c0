"""What the page on tables and the README show of tables is run as it stands."""

import csv
import json
import os
import shlex
import subprocess
import sys

import pytest
from pyarrow import parquet

import programs
import serving_tools as tools
from page_tools import ROOT, blocks, run, run_python

PAGE, README = ROOT / "docs" / "how-to" / "tables.md", ROOT / "README.md"

pytestmark = pytest.mark.slow


def shell(folder, script, **env):
    """Run commands of a page with this interpreter, and return what they print.

    Their noise is seeded: answers are judged, which true noise could turn.
    """
    here = f'vicinal() {{ "{sys.executable}" "{ROOT}/tests/seeded.py" -m vicinal "$@"; }}\n'
    done = subprocess.run(
        ["bash", "-euc", here + script], cwd=folder, capture_output=True, text=True,
        env={**os.environ, **env}, timeout=1800, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def answers(folder):
    """Return the share of visitors whose answer is right; every one has its own."""
    rows = list(csv.DictReader((folder / "answers.csv").read_text().splitlines()))
    truth = parquet.read_table(folder / "truth.parquet").to_pylist()
    assert list(rows[0]) == ["visit", "label", "confidence", "p_healthy", "p_ill"]
    assert [row["visit"] for row in rows] == [row["visit"] for row in truth]
    right = [a["label"] == b["diagnosis"] for a, b in zip(rows, truth, strict=True)]
    return sum(right) / len(right)


def test_the_readmes_table_and_its_service(tmp_path, monkeypatch):
    """Three commands from own files to private answers; then the same store over HTTP.

    The three run in this process. That each runs as one of its own is seen by the site, whose
    tutorial on tables starts the same ones; here keys, the service and its caller do.
    """
    pytest.importorskip("uvicorn")
    programs.needed("curl")
    monkeypatch.chdir(tmp_path)
    _, table, service = blocks(README, "sh")
    assert len(table.splitlines()) == 3
    run(f"python examples/patients.py {tmp_path}")
    run(table)
    assert answers(tmp_path) > 0.7
    first, serve, call = service.splitlines()
    reply = served(tmp_path, first + "\n", serve.removesuffix(" &"), call)
    assert reply["labels"][0] in ("healthy", "ill")
    assert reply["charged"] == 1


def served(folder, first, serve, call):
    """Return what a call gets from a service, at another port than the page's."""
    port = str(tools.free_port())
    key = shell(folder, first + 'echo "$KEY"').split()[-1]
    options = serve.partition("vicinal serve")[2]
    command = [sys.executable, "-m", "vicinal", "serve", *options.replace("8000", port).split()]
    process = subprocess.Popen(command, cwd=folder, stderr=subprocess.DEVNULL)
    try:
        tools.wait_for(tools.Service(int(port), folder, None, {}), process)
        return json.loads(shell(folder, call.replace("8000", port), KEY=key))
    finally:
        process.terminate()
        assert process.wait(240) == 0


def words(script):
    """Return the words of some lines, of JSON its value."""
    found = shlex.split(script.replace("\\\n", " ").replace("&", ""))
    return [json.loads(word) if word.startswith("{") else word for word in found]


def test_the_tutorial(tmp_path, monkeypatch):
    """Its commands are run in this process; the service that it starts is the README's, above."""
    monkeypatch.chdir(tmp_path)
    *steps, serve, call = blocks(PAGE, "sh")
    printed = run("".join(steps))
    assert "fits" in printed or "note" in printed
    assert "public rows equal a record" in printed
    assert "differential privacy for every subject" in printed
    assert "Balanced accuracy: 0." in printed
    assert answers(tmp_path / "clinic") > 0.7
    (python,) = blocks(PAGE, "python")
    assert "ill" in run_python(python)
    *_, service = blocks(README, "sh")
    assert words(serve + call) == words(service)
