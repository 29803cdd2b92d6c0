"""Mutants of what anybody pays, and which of them the nearest tests let live.

`python -m benchmarks.mutants [FILE ...] [--only NAME,...] [--sample N] [--again LOG] [--quick]
[--tests ...]`

A mutant is the file with one small fault in it: a number doubled, a sign turned, a bound moved by a
step, a least taken for a most, a statement left out, a condition turned round. The package is
copied, each mutant written into the copy, and the nearest tests run on it until one fails. What
survives is either no fault (the same results, only slower) or a test that is missing. One process,
one after the other: a file takes minutes to hours, a sample of N over all files what N of them do.

Mutants have all rights of the process. As root, mutants of code that writes files at given paths
(`ledger/output_files.py`) can replace files of the system, as one did with `/dev/null`: run them in
a container or a mount namespace with a read-only root and a `/dev` of its own.
"""

import argparse
import ast
import copy
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent

NEAREST = {
    "mechanisms/charging.py": (
        "mechanisms/test_charging_kernels.py",
        "mechanisms/test_charging.py",
        "engine/test_algorithm3.py",
        "engine/test_vectors.py",
        "engine/test_labels.py",
    ),
    "mechanisms/count.py": (
        "engine/test_algorithm3.py",
        "mechanisms/test_charging_kernels.py",
        "mechanisms/test_alone_and_together.py",
    ),
    "mechanisms/votes.py": (
        "mechanisms/test_charging_kernels.py",
        "mechanisms/test_charging.py",
        "engine",
    ),
    "mechanisms/gradients.py": ("mechanisms/test_linear_model.py", "linear", "baselines"),
    "mechanisms/linear_model.py": ("mechanisms/test_linear_model.py", "linear"),
    "mechanisms/noisy_labels.py": (
        "ground/test_refusals.py",
        "mechanisms/test_charging_kernels.py",
        "engine",
    ),
    "linear/private_model.py": (
        "linear/test_descent.py",
        "linear/test_private_model.py",
        "linear/test_private_model_leak.py",
    ),
    "linear/class_intercepts.py": ("linear/test_class_intercepts.py",),
    "mechanisms/injected_sources.py": ("mechanisms/test_injection.py",),
    "linear/descent.py": ("linear/test_descent.py", "linear/test_private_model.py"),
    "engine/engine.py": ("engine", "congruence/test_fronts.py"),
    "engine/shard.py": ("engine", "congruence/test_fronts.py", "congruence/test_shards.py"),
    "ledger/ledger.py": (
        "store/test_store.py",
        "store/test_total.py",
        "ledger",
        "store/test_evaluation.py",
        "store/test_store_erasure.py",
        "store/test_renewal.py",
        "crash/test_durable_steps.py",
    ),
    "mechanisms/tally.py": ("store/test_evaluation.py",),
    "interactions/fit_registry.py": ("interactions", "ground/test_refusals.py"),
    "distributed/_sharded_training.py": (
        "distributed/test_sharded_training.py",
        "distributed/test_guard_advances.py",
    ),
    "ledger/output_files.py": ("ledger/test_output_files.py", "cli/test_output_failures.py"),
    "ledger/renewal.py": ("store/test_renewal.py",),
    "ledger/total.py": ("store/test_total.py",),
}
"""By file of the package: tests, the quickest first; `--tests` names others, as tests/audit."""

LIVED = "SURVIVED"

_SECONDS = 300  # a mutant that never ends is a dead one

Change = Callable[[Any], None]

_TURNED: dict[type, type] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult,
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq, ast.LShift: ast.RShift, ast.RShift: ast.LShift, ast.BitAnd: ast.BitOr,
}  # fmt: skip
_OTHER = {"min": "max", "max": "min", "ceil": "floor", "floor": "ceil", "minimum": "maximum",
          "maximum": "minimum", "find_affordable_norm": "min", "trunc": "ceil"}  # fmt: skip


def changes(node: ast.AST) -> Iterator[tuple[str, Change]]:
    """Yield what can be wrong with a node of the syntax, in words, and what makes it so."""
    number = node.value if isinstance(node, ast.Constant) else None
    if isinstance(number, int | float) and not isinstance(number, bool):
        for value in {2 * number, number + 1} - {number}:
            yield f"{number} -> {value}", lambda n, v=value: setattr(n, "value", v)
    if isinstance(node, ast.If | ast.While | ast.IfExp):
        turn = "condition turned round"
        yield turn, lambda n: setattr(n, "test", ast.UnaryOp(ast.Not(), n.test))
    yield from _turned(node)
    yield from _left_out(node)


def _turned(node: ast.AST) -> Iterator[tuple[str, Change]]:
    """Yield other signs, comparisons and functions."""
    sign = getattr(node, "op", None) or (getattr(node, "ops", None) or [None])[0]
    if other := _TURNED.get(type(sign)):
        words = f"{type(sign).__name__} -> {other.__name__}"
        if isinstance(node, ast.Compare):
            yield words, lambda n: n.ops.__setitem__(0, other())
        else:
            yield words, lambda n: setattr(n, "op", other())
    if isinstance(node, ast.Call):
        kind = "id" if isinstance(node.func, ast.Name) else "attr"
        name = getattr(node.func, kind, "")
        if name in _OTHER:
            yield f"{name} -> {_OTHER[name]}", lambda n: setattr(n.func, kind, _OTHER[name])


def _left_out(node: ast.AST) -> Iterator[tuple[str, Change]]:
    """Yield statements that can be left out and leave a program."""
    for name in ("body", "orelse"):
        lines = getattr(node, name, None)
        for place, line in enumerate(lines if isinstance(lines, list) else ()):
            call = isinstance(line, ast.Expr) and not isinstance(line.value, ast.Constant)
            if call or isinstance(line, ast.AugAssign):
                words = f"left out: {ast.unparse(line)}"
                yield words, lambda n, p=place, k=name: getattr(n, k).__setitem__(p, ast.Pass())


def mutants(source: str, only: set[str]) -> Iterator[tuple[int, str, str]]:
    """Yield (line, what is wrong, source) of all mutants of functions and constants `only`."""
    tree = ast.parse(source)
    every = list(ast.walk(tree))
    for top in tree.body:
        targets = getattr(top, "targets", [])
        names = {getattr(top, "name", ""), *(getattr(each, "id", "") for each in targets)}
        inner = {each.name for each in getattr(top, "body", []) if hasattr(each, "name")}
        if only and not only & (names | inner):
            continue
        for node in ast.walk(top):
            for words, change in changes(node):
                mutant = copy.deepcopy(tree)
                change(list(ast.walk(mutant))[every.index(node)])
                yield getattr(node, "lineno", top.lineno), words, ast.unparse(mutant)


def survives(package: Path, tests: list[str], *, quick: bool = False) -> bool:
    """Return whether all tests pass on a package; with `quick`, those marked `quick` only."""
    environment = {
        **os.environ,
        "PYTHONPATH": f"{package.parent}{os.pathsep}{ROOT}",
        "XDG_CACHE_HOME": str(package.parent / "cache"),
    }
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-n0", "-p", "no:cacheprovider", *tests]
    command += ["-m", "quick"] if quick else []
    try:
        run = subprocess.run(
            command, cwd=ROOT, env=environment, capture_output=True, timeout=_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        return False
    return run.returncode == 0


def main() -> None:
    """Print every mutant with what became of it, then how many survived."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("files", nargs="*", default=[*NEAREST], help="of the package")
    parser.add_argument("--only", default="", help="functions, classes and constants, by commas")
    parser.add_argument("--tests", nargs="*", default=[], help="instead of the nearest ones")
    parser.add_argument("--sample", type=int, default=10**6, help="at most, drawn by a seed")
    parser.add_argument("--quick", action="store_true", help="only tests marked `quick`")
    parser.add_argument("--again", type=Path, help="what a run printed: those that survived it")
    given = parser.parse_args()
    only = {name for name in given.only.split(",") if name}
    with tempfile.TemporaryDirectory() as folder:
        package = shutil.copytree(ROOT / "src" / "vicinal", Path(folder) / "vicinal")
        sources = {file: (package / file).read_text(encoding="utf-8") for file in given.files}
        every = [
            (f"{file}:{line} {words}", file, mutant)
            for file, source in sources.items()
            for line, words, mutant in mutants(source, only)
        ]
        random.Random(0).shuffle(every)  # noqa: S311 (which are run)
        if given.again:
            lines = given.again.read_text(encoding="utf-8").splitlines()
            lived = {words for kind, _, words in (x.partition(" ") for x in lines) if kind == LIVED}
            every = [each for each in every if each[0] in lived]
        tests = {f: given.tests or [f"tests/{name}" for name in NEAREST[f]] for f in given.files}
        if not survives(
            package, sorted({name for names in tests.values() for name in names}), quick=given.quick
        ):
            raise SystemExit("The tests fail without any fault. Nothing can be told.")
        counts = [0, 0]
        print(f"{len(every)} mutants", flush=True)
        for words, file, mutant in every[: given.sample]:
            (package / file).write_text(mutant, encoding="utf-8")
            lives = survives(package, tests[file], quick=given.quick)
            (package / file).write_text(sources[file], encoding="utf-8")
            counts[lives] += 1
            print(f"{LIVED if lives else 'caught'} {words}", flush=True)
        print(f"{counts[0]} caught, {counts[1]} survived")


if __name__ == "__main__":
    main()
