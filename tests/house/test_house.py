"""The house: every room is in the contracts, and contracts bite."""

import ast
import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from benchmarks import house

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "vicinal"
LINTER = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
CONTRACTS = {contract["id"]: contract for contract in LINTER["contracts"]}

# One import for each contract that must not pass: (contract, module, line).
BROKEN_IMPORTS = [
    ("layers", "smoothed/mechanism.py", "from vicinal.accounting import budget"),
    ("cycles", "reports/text.py", "from vicinal.reports import demo"),
    ("experiments", "../experiments/smoothed/tables.py", "from experiments.accuracy import grid"),
    ("noise", "predictors/ind_knn.py", "from vicinal.noise import bernoulli"),
    ("injected", "store/store.py", "from vicinal.mechanisms import injected_sources"),
    ("accounting", "accounting/gaussian.py", "import os"),
    ("product", "errors.py", "import experiments.spread"),
    ("databases", "predictors/ind_knn.py", "import sqlite3"),
    ("torch", "neighbours/scan.py", "import torch.nn"),
    ("ray", "predictors/ind_knn.py", "import ray"),
    ("web", "reports/__init__.py", "import starlette"),
]


def copy_of_package(folder):
    """Copy the sources into `folder`, where a test may spoil them."""
    leave_out = shutil.ignore_patterns("data", "__pycache__")
    shutil.copytree(ROOT / "experiments", folder / "experiments", ignore=leave_out)
    return shutil.copytree(PACKAGE, folder / "vicinal", ignore=leave_out)


def append(path, line):
    path.write_text(f"{path.read_text()}\n{line}\n")


def lint_imports(package):
    """Return what import-linter says of `package`, by the project's own contracts."""
    command = [Path(sys.executable).with_name("lint-imports"), "--no-cache", "--no-logo"]
    report = subprocess.run(
        [*command, "--config", ROOT / "pyproject.toml"], cwd=package.parent,
        env={**os.environ, "PYTHONPATH": f"{package.parent}{os.pathsep}{ROOT}"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    return report.stdout + report.stderr


def ruff_on(code, path):
    """Return what ruff says of banned names in `code`, as if it stood at `path`."""
    command = [Path(sys.executable).with_name("ruff"), "check", "--select", "TID251"]
    return subprocess.run(
        [*command, "--stdin-filename", path, "-"], cwd=ROOT, input=code, capture_output=True,
        text=True, check=False,
    ).stdout  # fmt: skip


@pytest.fixture(scope="module")
def report_on_broken_copy(tmp_path_factory):
    package = copy_of_package(tmp_path_factory.mktemp("broken"))
    for _, module, line in BROKEN_IMPORTS:
        append(package / module, line)
    return lint_imports(package)


def test_every_contract_is_tried():
    assert [contract for contract, _, _ in BROKEN_IMPORTS] == list(CONTRACTS)


@pytest.mark.parametrize("contract", [contract for contract, _, _ in BROKEN_IMPORTS])
def test_a_forbidden_import_is_caught(report_on_broken_copy, contract):
    assert f"{CONTRACTS[contract]['name']} BROKEN" in report_on_broken_copy


def test_a_room_without_a_floor_is_caught(tmp_path):
    package = copy_of_package(tmp_path)
    (package / "annexe.py").touch()
    assert f"{CONTRACTS['layers']['name']} BROKEN" in lint_imports(package)


def test_the_house_as_it_stands_keeps_every_contract():
    assert f"Contracts: {len(CONTRACTS)} kept, 0 broken." in lint_imports(PACKAGE)


@pytest.mark.parametrize(
    "code",
    [
        "import numpy as np\n\nnp.random.default_rng(0)",
        "import os\n\nos.urandom(8)",
        "import random",
    ],
)
def test_the_linter_bans_randomness_outside_noise(code):
    assert "TID251" in ruff_on(code, PACKAGE / "accounting" / "coins.py")
    assert "All checks passed" in ruff_on(code, PACKAGE / "noise" / "coins.py")


def list_repeated_constants(source):
    """Return the names to which a module assigns more than once."""
    statements = [each for each in ast.parse(source).body if isinstance(each, ast.Assign)]
    names = [ast.unparse(target) for each in statements for target in each.targets]
    return sorted({name for name in names if names.count(name) > 1})


def test_no_constant_is_defined_twice_in_a_module():
    """No linter finds it, and the later value would serve code that means the earlier one."""
    repeated = {path: list_repeated_constants(path.read_text()) for path in PACKAGE.rglob("*.py")}
    assert [path for path, names in repeated.items() if names] == []
    assert list_repeated_constants("A = 1\nB = 1\nA = 2") == ["A"]


@pytest.fixture(scope="module")
def measured():
    return house.House(ROOT)


def test_the_whole_weighs_no_more_than_it_may(measured):
    weights = measured.weights()
    assert {name: weights[name] for name, limit in house.ALL.items() if weights[name] > limit} == {}


def test_code_where_strangers_stop_says_why(measured):
    ratios = measured.commented()
    assert {
        place: ratios[place] for place in ratios if ratios[place] > house.COMMENTED[place]
    } == {}


def package_of(folder, **modules):
    """Return a made-up checkout; ``a_b`` stands for the module b of the package a."""
    for name, content in modules.items():
        path = folder / "src" / "vicinal" / Path(*name.split("__")).with_suffix(".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    return house.House(folder)


def test_private_imports_are_noticed_between_packages_alone(tmp_path):
    other = "from vicinal.ledger._rows import Row\nfrom vicinal.ledger import _rows, Row\n"
    spoilt = package_of(tmp_path / "1", store__one=other, ledger___rows="class Row: ...\n")
    assert len(spoilt.private_imports()) == 2
    own = "from vicinal.store._two import Two\nfrom vicinal import _checks\n"
    assert not package_of(tmp_path / "2", store___one=own, _checks="").private_imports()
    below = {"checks": "from vicinal import IndKNNClassifier\nfrom vicinal import errors\n"}
    assert len(package_of(tmp_path / "3", **below, errors="").private_imports()) == 1


def test_a_cycle_and_a_class_name_used_twice_are_noticed(tmp_path):
    one, two = "def f():\n    from vicinal.a._two import g\n", "from vicinal.a import _one\n"
    assert package_of(tmp_path / "1", a___one=one, a___two=two).cycles()
    twice = package_of(tmp_path / "2", a___one="class A: ...\n", b___two="class A: ...\n")
    assert twice.weights()["class names used twice"] == 1


def test_lines_words_and_comments_are_counted(tmp_path):
    text = '"""One."""\n\nx = 1  # why\ny = 2\n'
    made = package_of(tmp_path, engine___one=text)
    (tmp_path / "docs").mkdir()
    (tmp_path / "README.md").write_text("four words stand here")
    weights = made.weights()
    assert made.package_lines()["engine"] == weights["lines of src"] == 4
    assert weights["words of pages"] == 4
    assert made.sources[Path("engine/_one.py")].code_and_comments == (2, 1)


def test_injected_sources_occur_only_where_they_may():
    """The contract of imports finds no access through the package, by a string or in tests."""
    folders = [ROOT / folder for folder in ("src", "tests", "benchmarks", "experiments")]
    found = {
        str(module.relative_to(ROOT))
        for folder in folders
        for module in folder.rglob("*.py")
        if "injected_sources" in module.read_text(encoding="utf-8")
    }
    assert found == {
        "src/vicinal/mechanisms/noise_sources.py",
        "src/vicinal/testing.py",
        "benchmarks/mutants.py",
        "tests/house/test_house.py",
    }
