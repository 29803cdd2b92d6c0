"""The commands of the quickstart in service.md, executed with a third of its digits."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

import programs
import serving_tools as tools
from page_tools import run, run_python, shell

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "service.md").read_text(encoding="utf-8")
SMALLER = PAGE.replace("6000:8000", "2000:2700").replace("6000", "2000")
BLOCKS = re.findall(r"^```(python|sh)\n(.*?)^```", SMALLER, re.S | re.M)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("quickstart")


@pytest.mark.slow
def test_the_quickstart(folder, monkeypatch):
    """Service and calls run as separate processes; the store is created in this process."""
    programs.needed("curl")
    monkeypatch.chdir(folder)
    run_python("\n".join(text for kind, text in BLOCKS if kind == "python"))
    start, *calls = (text for kind, text in BLOCKS if kind == "sh")
    calls = "".join(calls)
    port = str(tools.free_port())
    start, _, serve = start.replace("8000", port).partition("vicinal serve")
    run("\n".join(re.findall(r"^vicinal init(?:.*\\\n)*.*", start, re.M)))
    keys = [run(command).strip() for command in re.findall(r"=\$\((.*)\)", start)]
    process = subprocess.Popen(
        [sys.executable, "-m", "vicinal", "serve", *serve.split()],
        cwd=folder, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        tools.wait_for(tools.Service(int(port), folder, None, {}), process)
        printed = shell(
            folder, calls.replace("8000", port).replace("-s ", "-sw '\\n' "), KEY=keys[0],
            CURATOR=keys[1],
        )  # fmt: skip
        answer, quota, guarantee, history, erased = map(json.loads, printed.splitlines())
        assert (len(answer["labels"]), answer["charged"], answer["left"]) == (1, 1, 199)
        assert 0 < quota["audiences"]["default"].pop("usage") < 1
        assert quota["audiences"]["default"] == {"planned": 200, "used": 1, "left": 199}
        assert guarantee["guarantee"]["epsilon"] == 2
        assert [change["what"] for change in history["history"]] == ["add", "audience"]
        assert erased["done"] == "erased"
    finally:
        process.terminate()
        assert process.wait(240) == 0


def test_every_path_is_on_the_page(tmp_path):
    with tools.running(tmp_path / "store") as service:
        document = service.call("GET", "/openapi.json", key=None).body
    for path, operations in document["paths"].items():
        for method in operations:
            assert f"`{method.upper()} {path.replace('{subject}', '{id}')}`" in PAGE


def test_every_kind_of_problem_is_on_the_page():
    source = Path(tools.__file__).parents[1] / "src" / "vicinal" / "serving"
    text = "\n".join(path.read_text() for path in source.glob("*.py"))
    kinds = dict.fromkeys(re.findall(r'Problem\((\d+), "([a-z-]+)"', text))
    assert len(kinds) > 8
    rows = "\n".join(re.findall(r"^\| ([\d, ]+) \|", PAGE, re.M))
    for status, kind in kinds:
        assert status in rows, (status, kind)
