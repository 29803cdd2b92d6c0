"""What starting loads: heavy libraries are imported where they are used, not before."""

import subprocess
import sys
from pathlib import Path

import pytest

import vicinal

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
    code += "\nimport sys\nprint()\nprint(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.splitlines()[-1].split())


@pytest.mark.parametrize(
    "code",
    [
        "import vicinal; vicinal.__version__; dir(vicinal)",
        "from vicinal import Guarantee",
        PROGRAM.format(arguments=["--version"]),
        PROGRAM.format(arguments=["--help"]),
        PROGRAM.format(arguments=["keys", "--help"]),
    ],
    ids=["import", "guarantee", "--version", "--help", "keys"],
)
def test_starting_loads_nothing_heavy(code):
    assert loaded(code).isdisjoint(HEAVY)


ESTIMATORS_ONLY = {"matplotlib", "pandas", "scipy.stats", "sklearn", "torch"}
OTHER_COMMANDS = {"vicinal.cli._store", "vicinal.cli._machine", "vicinal.cli._init"}
# A compiler's tables take longer to load than all that a price needs.
PRICED_WITHOUT = {
    "matplotlib", "numba", "pyarrow", "sklearn", "numpy.f2py.f2py2e", "numpy.random.mtrand",
    "numpy.testing._private", "scipy.fft", "scipy.optimize", "scipy.stats", "vicinal.predictors",
    "vicinal.neighbours",
}  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "needed", "not_needed"),
    [
        (["account", "--help"], "cli._plan", OTHER_COMMANDS),
        (["init", "--help"], "planning.parameter_tables", ESTIMATORS_ONLY),
        (["audience", "--help"], "planning.parameter_tables", ESTIMATORS_ONLY),
        (["account", str(PLAN)], "accounting.plan", PRICED_WITHOUT),
    ],
    ids=["account --help", "init --help", "audience --help", "account"],
)
def test_a_command_loads_only_what_it_needs(arguments, needed, not_needed):
    modules = loaded(PROGRAM.format(arguments=arguments))
    assert f"vicinal.{needed}" in modules
    assert modules.isdisjoint(not_needed)


def test_a_module_that_loads_when_used_is_whole_once_it_is():
    code = "from vicinal.lazy import load_when_used; load_when_used('numpy', 'polynomial', 'ma')\n"
    assert "numpy.polynomial.polynomial" not in loaded(code + "from numpy import *")
    later = code + "from numpy import *; assert polynomial.Polynomial([1, 2])(3) == 7"
    assert "numpy.polynomial.polynomial" in loaded(later)


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


@pytest.mark.parametrize("name", vicinal.__all__)
def test_every_public_name_is_found_when_it_is_used(name):
    assert getattr(vicinal, name) is getattr(vicinal, name)
    assert name in dir(vicinal)


def test_a_name_that_is_not_public_is_an_attribute_error():
    with pytest.raises(AttributeError, match="nonsense"):
        vicinal.nonsense  # noqa: B018
