"""What the README shows of tables is run as it stands."""

import json
import subprocess
import sys

import pytest

import programs
import serving_tools as tools
from page_tools import ROOT, answers, blocks, run, shell

README = ROOT / "README.md"

pytestmark = pytest.mark.slow


def test_the_readmes_table_and_its_service(tmp_path, monkeypatch):
    """Three commands from own files to private answers; then the same store over HTTP.

    The three run in this process; keys, the service and its caller run in their own.
    """
    pytest.importorskip("uvicorn")
    programs.needed("curl")
    monkeypatch.chdir(tmp_path)
    *_, table, service = blocks(README, "sh")
    assert len(table.replace("\\\n", "").splitlines()) == 3
    run(f"python examples/patients.py {tmp_path}")
    run(table)
    assert answers(tmp_path) > 0.7
    first, serve, call = service.split("\n", 2)
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
