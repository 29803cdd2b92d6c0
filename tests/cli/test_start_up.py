"""What starting loads: heavy libraries are imported where they are used, not before."""

from pathlib import Path

import pytest

import vicinal
from command_line import run_python

HEAVY = ("matplotlib", "numba", "numpy", "pyarrow", "ray", "scipy", "skimage", "sklearn", "torch")
PLAN = Path(__file__).parents[2] / "examples" / "plans" / "table1_mnist.json"

PROGRAM = """
import sys
from vicinal.cli.main import app
try:
    app({arguments!r})
except SystemExit as stopped:
    assert not stopped.code, stopped.code
"""


def loaded(code):
    """Return the names of all modules that a fresh interpreter has loaded after `code`."""
    done = run_python("-c", code + "\nimport sys\nprint()\nprint(*sys.modules)")
    assert done.returncode == 0, done.stderr
    return set(done.stdout.splitlines()[-1].split())


def test_starting_loads_nothing_heavy():
    """Neither the package, nor the version, nor the help of the program or of a group."""
    commands = (["--version"], ["--help"], ["keys", "--help"])
    programs = [PROGRAM.format(arguments=arguments) for arguments in commands]
    package = "import vicinal; vicinal.__version__; vicinal.Guarantee; dir(vicinal)"
    assert loaded("\n".join([package, *programs])).isdisjoint(HEAVY)


ESTIMATORS_ONLY = {"matplotlib", "pandas", "scipy.stats", "sklearn", "torch"}
OTHER_COMMANDS = {"vicinal.cli._store", "vicinal.cli._machine", "vicinal.cli._init"}
PRICED_WITHOUT = {
    "matplotlib", "numba", "pyarrow", "sklearn", "scipy.fft", "scipy.optimize", "scipy.stats",
    "vicinal.predictors", "vicinal.neighbours",
}  # fmt: skip


@pytest.mark.parametrize(
    ("commands", "needed", "not_needed"),
    [
        ([["account", "--help"]], "cli._plan", OTHER_COMMANDS),
        (
            [["init", "--help"], ["audience", "--help"]],
            "planning.parameter_tables",
            ESTIMATORS_ONLY,
        ),
        ([["account", str(PLAN)]], "accounting.plan", PRICED_WITHOUT),
    ],
    ids=["account --help", "init --help", "account"],
)
def test_a_command_loads_only_what_it_needs(commands, needed, not_needed):
    modules = loaded("\n".join(PROGRAM.format(arguments=arguments) for arguments in commands))
    assert f"vicinal.{needed}" in modules
    assert modules.isdisjoint(not_needed)


STORE = """
import numpy as np
from vicinal.store import Store

X, y = np.random.default_rng(0).normal(size=(60, 4)), np.arange(60) % 3
plan = {"epsilon": 4.0, "n_queries": 60, "n_neighbors": 40, "noise_multiplier": 1.5}
plan |= {"public": np.random.default_rng(1).normal(size=(20, 4)), "simulation_seed": 0}
Store.init(FOLDER, X, y, range(60), classes=range(3), n_records=60, **plan).close()
with Store.open(FOLDER) as store:
    store.predict(X[:5])
    store.erase([7])
    store.add(X[:2], y[:2], [1, 2])
"""


def test_a_store_needs_no_scikit_learn(tmp_path):
    """Fails if what only estimators need is loaded with every store: it takes a second."""
    modules = loaded(f"FOLDER = {str(tmp_path / 'store')!r}\n{STORE}")
    assert "vicinal.store" in modules
    assert modules.isdisjoint(ESTIMATORS_ONLY)


PACKAGES = """
import vicinal.cli.main, vicinal.features, vicinal.labelling, vicinal.reports.text
import vicinal.serving.app, vicinal.serving._protocol
from vicinal.reports import outcomes, plots
plots.plot_accuracy_by_class({"a": outcomes.AnswerCounts(1, 2)})
"""


def test_packages_leave_out_what_they_do_not_use():
    """Fails if torch is loaded by others than students, or an oracle of ours by features.

    Or if the service loads telemetry, which would hand paths, with ids, to whatever collector is
    configured; or if a plot loads pyplot, which keeps all figures.
    """
    modules = loaded(PACKAGES)
    assert {"matplotlib", "starlette", "vicinal.labelling"} <= modules
    heavy = {"torch", "skimage", "sentence_transformers", "transformers"}
    assert {name.partition(".")[0] for name in modules}.isdisjoint(
        {*heavy, "fastapi", "opentelemetry"}
    )
    assert "matplotlib.pyplot" not in modules


def test_public_names_and_no_others_are_found_when_they_are_used():
    for name in vicinal.__all__:
        assert getattr(vicinal, name) is getattr(vicinal, name)
        assert name in dir(vicinal)
    with pytest.raises(AttributeError, match="nonsense"):
        vicinal.nonsense  # noqa: B018
