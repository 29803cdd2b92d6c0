"""What every command loads and takes: `python -m benchmarks --commands`.

Those that can run beside a small store or a plan do their work, the others print their help. Each
is a process of its own: seconds by the clock, those of imports (`python -X importtime`, which
makes them a little longer), and which heavy packages were loaded.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from benchmarks.goals import ROOT, least, run
from vicinal.cli._main import Commands
from vicinal.store import Store

HEAVY = ("matplotlib", "numba", "numpy", "pandas", "pyarrow", "scipy", "sklearn", "torch")
"""Packages that take a tenth of a second or more to load."""

_IMPORT = re.compile(r"^import time:\s*(\d+) \|\s*\d+ \| ( *)(\S+)$", re.MULTILINE)


def works(store: Path) -> dict[str, list[str]]:
    """Return what commands are given that do their work; `store` is one of a few records."""
    plan = str(ROOT / "examples" / "plans" / "table1_mnist.json")
    sizes = ["--records", "60000", "--queries", "1000", "--classes", "10"]
    return {
        "account": [plan],
        "calibrate": [plan, "--epsilon", "1", "--release", "1", "--field", "sigma"],
        "plan": sizes,
        **{name: [str(store)] for name in ("inspect", "verify", "export-guarantee")},
        "predict": [str(store), "--data", str(store.with_suffix(".npz")), "--json"],
    }


def make_store(path: Path) -> None:
    """Make a store of 500 records, and queries beside it."""
    rng = np.random.default_rng(0)
    rows, public = rng.normal(size=(500, 16)), rng.normal(size=(200, 16))
    people = [f"person-{number}" for number in range(500)]
    labels = rng.integers(0, 3, 500)
    Store.init(
        path, rows, labels, people, classes=range(3), epsilon=4.0, public=public, model_share=0
    ).close()
    np.savez(path.with_suffix(".npz"), x_train=rng.normal(size=(20, 16)))


def line(name: str, arguments: list[str]) -> str:
    """Return a line of the table."""
    command = ["-m", "vicinal", *([] if name == "vicinal" else [name]), *arguments]
    seconds = least(lambda: run(command), 2)
    done = subprocess.run(
        [sys.executable, "-X", "importtime", *command], capture_output=True, text=True, check=True
    )
    imports = _IMPORT.findall(done.stderr)
    took = sum(int(own) for own, _, _ in imports) / 1e6
    packages = {module.partition(".")[0] for _, _, module in imports}
    loads = ", ".join(sorted(packages.intersection(HEAVY)))
    does = "" if "--help" in arguments else "*"
    return f"{name + does:<22}{seconds:8.2f}{took:10.2f}   {loads}"


def report() -> Iterator[str]:
    """Yield the lines of the table as they are measured."""
    yield f"{'* does its work':<22}{'seconds':>8}{'imports':>10}   loads"
    with tempfile.TemporaryDirectory() as folder:
        store = Path(folder) / "store"
        make_store(store)
        given = works(store)
        yield line("vicinal", ["--help"])
        for name in Commands.places:
            yield line(name, given.get(name, ["--help"]))
