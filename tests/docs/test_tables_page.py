"""The tutorial of tables.md and the README's table example are run as they stand."""

from __future__ import annotations

import csv
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from pyarrow import parquet

import serving_tools as tools

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "how-to" / "tables.md").read_text(encoding="utf-8")
README = (ROOT / "README.md").read_text(encoding="utf-8")

pytestmark = pytest.mark.slow


def shell(folder, script, **env):
    """Run commands of a page with this interpreter, and return what they print.

    Their noise is seeded: answers are judged, which true noise could turn.
    """
    here = "".join(
        f'{name}() {{ "{sys.executable}" "{ROOT}/tests/seeded.py" {module} "$@"; }}\n'
        for name, module in (("python", ""), ("vicinal", "-m vicinal"))
    )
    script = script.replace("examples/", f"{ROOT}/examples/")
    done = subprocess.run(
        ["bash", "-euc", here + script], cwd=folder, capture_output=True, text=True,
        env={**os.environ, **env}, timeout=300, check=False,
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


def test_the_readme_example(tmp_path):
    lines = [line.split("#")[0] for line in README.splitlines() if " clinic" in line]
    assert len(lines) == 4
    shell(tmp_path, "\n".join(lines).replace(".venv/bin/", ""))
    assert answers(tmp_path / "clinic") > 0.7


@pytest.mark.skipif(shutil.which("curl") is None, reason="there is no curl here")
def test_the_tutorial(tmp_path):
    pytest.importorskip("uvicorn")
    blocks = re.findall(r"^```(python|sh)\n(.*?)^```", PAGE, re.S | re.M)
    *steps, serve, call = (text for kind, text in blocks if kind == "sh")
    printed = shell(tmp_path, "".join(steps))
    folder = tmp_path / "clinic"
    assert "fits" in printed or "note" in printed
    assert "public rows equal a record" in printed
    assert "differential privacy for every subject" in printed
    assert "Balanced accuracy: 0." in printed
    assert answers(folder) > 0.7
    (python,) = (text for kind, text in blocks if kind == "python")
    assert "ill" in shell(folder, f"python - <<'END'\n{python}END\n")
    port = str(tools.free_port())
    first, _, options = serve.partition("vicinal serve")
    key = shell(folder, first + 'echo "$KEY"').split()[-1]
    command = [sys.executable, "-m", "vicinal", "serve", *options.replace("8000", port).split()]
    process = subprocess.Popen(command, cwd=folder, stderr=subprocess.DEVNULL)
    try:
        tools.wait_for(tools.Service(int(port), folder, None, {}), process)
        answer = json.loads(shell(folder, call.replace("8000", port), KEY=key))
        assert answer["labels"][0] in ("healthy", "ill")
        assert answer["charged"] == 1
    finally:
        process.terminate()
        assert process.wait(60) == 0
