"""Measure the shape of the sources: `python -m benchmarks.house [OTHER]`.

Prints one table: size, names, who imports whom, the files whose Python runs for a query, a charge,
a request and a plan, and start-up in processor time. `--files` lists the files of each way in
order, and those between which it goes most often. `--tests` runs the tests, too. With another
checkout, or a commit, its figures stand in the first column.
"""

from __future__ import annotations

import argparse
import ast
import io
import os
import resource
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time
import tokenize
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

HERE = Path(__file__).parents[1]
REPEATS = 5
UNRELATED = 4
"""A verb counts if at least so many classes define it that share no base."""

VAGUE = {
    *("found", "given", "kept", "left", "told", "said", "asked", "what", "whole", "wanted"),
    *("made", "rest", "seen"),
}
"""Names that a reader has to look up; `left` does not count in a module that has `right`, too."""

LAYOUT = {
    *(tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT),
    tokenize.ENDMARKER,
}
"""Tokens that are no code by themselves."""

TRACE = """
import collections, importlib, json, pathlib, sys, threading
import numpy as np
import serving_tools, store_tools as tools
import vicinal
src = str(pathlib.Path(vicinal.__file__).parent)
order, switches = [], 0
last, pairs = {}, collections.Counter()
def note(frame, event, _):
    global switches
    path = frame.f_code.co_filename
    if event == "call" and path.startswith(src):
        name = path[len(src) + 1 :]
        before = last.get(threading.get_ident())
        switches += before != name
        if before not in (None, name):
            pairs[" and ".join(sorted([before, name]))] += 1
        last[threading.get_ident()] = name
        if name not in order:
            order.append(name)
def traced(work):
    global switches
    order.clear(); last.clear(); pairs.clear(); switches = 0
    threading.setprofile_all_threads(note) if hasattr(threading, "setprofile_all_threads") else None
    threading.setprofile(note); sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None); threading.setprofile(None)
    return list(order), switches, pairs.most_common(6)
found, folder = {}, pathlib.Path(sys.argv[1])
clf = vicinal.IndKNNClassifier(range(3), epsilon=4.0, n_queries=60, n_records=300, model_share=0)
clf.fit(tools.X, tools.Y, public=tools.R)
clf.predict(tools.Q[:5])
found["query"] = traced(lambda: clf.predict(tools.Q[5:10]))
with tools.make(folder / "a") as store:
    store.predict(tools.Q[:5])
    found["charge"] = traced(lambda: store.predict(tools.Q[5:10]))
request = lambda: None
def serve():
    with serving_tools.running(folder / "b") as service:
        service.predict(tools.Q[:5].tolist())
        marked = service.predict
        def again():
            marked(tools.Q[5:10].tolist())
        order.clear(); last.clear(); pairs.clear()
        global switches; switches = 0
        again()
        found["request"] = (list(order), switches, pairs.most_common(6))
threading.setprofile(note)
serve()
threading.setprofile(None)
for name in ("_plan", "plan"):
    try:
        plans = importlib.import_module("vicinal.accounting." + name); break
    except ModuleNotFoundError:
        pass
given = json.loads((pathlib.Path(sys.argv[2]) / "examples/plans/table1_mnist.json").read_text())
plans.account(given)
found["plan"] = traced(lambda: plans.account(given))
print(json.dumps(found))
"""


Traces = dict[str, tuple[list[str], int, list[tuple[str, int]]]]
"""By way: files in order, steps from one to another, and between which most of them go."""


class Sources:
    """The modules of one checkout, parsed."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._package = root / "src" / "vicinal"
        self.trees = {
            path: ast.parse(path.read_text(encoding="utf-8"))
            for path in sorted(self._package.rglob("*.py"))
        }
        self._nodes = [
            node
            for tree in self.trees.values()
            for node in ast.walk(tree)
            if isinstance(node, ast.ClassDef)
        ]
        self._known = {node.name: node for node in self._nodes}

    def figures(self) -> dict[str, str]:
        """Return what can be read without running anything."""
        code, documentation, others = self._lines()
        names = Counter(node.name for node in self._classes())
        importers = self._importers()
        return {
            "files in src": f"{len(self.trees):,}",
            "lines in src": f"{code + documentation + others:,}",
            "lines of code": f"{code:,}",
            "lines of docstrings": f"{documentation:,}",
            "lines of comments, and empty ones": f"{others:,}",
            "files over 400 lines": str(sum(self._long_files())),
            "functions over 40 lines, text and head aside": str(sum(self._long_functions())),
            "names exported by packages": str(sum(map(self._exports, self.trees))),
            "names exported by vicinal": str(self._exports(self._package / "__init__.py")),
            "class names used twice": str(sum(count > 1 for count in names.values())),
            f"verbs of {UNRELATED} or more unrelated classes": str(len(self.verbs())),
            "uses of names as found, given, kept": f"{self._vague():,}",
            "modules with one importer": str(sum(len(by) == 1 for by in importers.values())),
            "types of arrays outside their module": str(sum(map(self._array_types, self.trees))),
            "modules with an underscore": str(sum(self._internal(path) for path in self.trees)),
        }

    def _lines(self) -> tuple[int, int, int]:
        """Return lines with code, lines of docstrings (those of attributes, too), and the rest."""
        total = code = documentation = 0
        for path, tree in self.trees.items():
            text = path.read_text(encoding="utf-8")
            total += len(text.splitlines())
            texts = {line for node in ast.walk(tree) for line in _documentation(node)}
            tokens = tokenize.generate_tokens(io.StringIO(text).readline)
            spans = [range(t.start[0], t.end[0] + 1) for t in tokens if t.type not in LAYOUT]
            code += len({line for span in spans for line in span} - texts)
            documentation += len(texts)
        return code, documentation, total - code - documentation

    def _long_files(self) -> Iterator[bool]:
        return (len(path.read_text(encoding="utf-8").splitlines()) > 400 for path in self.trees)

    def _long_functions(self) -> Iterator[bool]:
        for node in (node for tree in self.trees.values() for node in ast.walk(tree)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                body = node.body[bool(ast.get_docstring(node)) :] or node.body
                yield (body[-1].end_lineno or 0) - body[0].lineno >= 40

    def verbs(self) -> dict[str, int]:
        """Return methods by how many unrelated classes define them."""
        families: dict[str, set[str]] = defaultdict(set)
        for node in self._classes():
            base = self._family(node)
            for method in node.body:
                plain = isinstance(method, ast.FunctionDef) and not method.decorator_list
                if plain and not method.name.startswith("_"):
                    families[method.name].add(base)
        return {name: len(by) for name, by in families.items() if len(by) >= UNRELATED}

    def _vague(self) -> int:
        """Return how often names, parameters, attributes and functions say nothing."""
        return sum(map(self._vague_names, self.trees.values()))

    @staticmethod
    def _vague_names(tree: ast.Module) -> int:
        names = Counter(
            str(getattr(node, field, None)).lstrip("_")
            for node in ast.walk(tree)
            for field in ("id", "arg", "attr", "name")
            if not isinstance(node, ast.alias)
        )
        return sum(names[name] for name in VAGUE - ({"left"} if names["right"] else set()))

    def _classes(self) -> Iterator[ast.ClassDef]:
        return iter(self._nodes)

    def _family(self, node: ast.ClassDef) -> str:
        while True:
            bases = [base.id for base in node.bases if isinstance(base, ast.Name)]
            above = next((self._known[name] for name in bases if name in self._known), None)
            if above is None or above is node:
                return node.name
            node = above

    def _array_types(self, path: Path) -> int:
        """Return how often a module spells a type of array, or gives one another name."""
        if path.name == "_arrays.py":
            return 0
        nodes = list(ast.walk(self.trees[path]))
        named = {
            alias.asname or alias.name
            for node in nodes
            if isinstance(node, ast.ImportFrom) and node.module == "vicinal._arrays"
            for alias in node.names
        }
        spelt = sum(isinstance(n, ast.Attribute) and n.attr == "NDArray" for n in nodes)
        values = [n.value for n in self.trees[path].body if isinstance(n, ast.Assign)]
        return spelt + sum(isinstance(value, ast.Name) and value.id in named for value in values)

    def _exports(self, path: Path) -> int:
        for node in self.trees[path].body:
            targets = getattr(node, "targets", [getattr(node, "target", None)])
            if any(isinstance(name, ast.Name) and name.id == "__all__" for name in targets):
                return len(getattr(node.value, "elts", ()))
        return 0

    def _internal(self, path: Path) -> bool:
        parts = path.relative_to(self._package).parts
        return any(part.startswith("_") and not part.startswith("__") for part in parts)

    def _importers(self) -> dict[str, set[Path]]:
        modules = {self._name(path) for path in self.trees if path.name != "__init__.py"}
        importers: dict[str, set[Path]] = {module: set() for module in modules}
        for path, tree in self.trees.items():
            for node in ast.walk(tree):
                if isinstance(node, ast.ImportFrom) and node.module:
                    full = {f"{node.module}.{alias.name}" for alias in node.names} | {node.module}
                    for module in full & modules:
                        importers[module].add(path)
        return importers

    def _name(self, path: Path) -> str:
        return ".".join(path.relative_to(self.root / "src").with_suffix("").parts)


def _documentation(node: ast.AST) -> range:
    """Return the lines of a text that stands alone as a statement."""
    value = getattr(node, "value", None) if isinstance(node, ast.Expr) else None
    if not isinstance(value, ast.Constant) or not isinstance(value.value, str):
        return range(0)
    return range(node.lineno, (node.end_lineno or node.lineno) + 1)


def ways(root: Path) -> Traces:
    """Return, for a query, a charge, a request and a plan, its files and the steps between them."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-W", "ignore", "-c", TRACE, folder, str(root)]
        return dict(ast.literal_eval(_run(command, root).splitlines()[-1]))


def processor_seconds(root: Path, *arguments: str) -> str:
    """Return the median processor time of a fresh interpreter."""
    times = []
    for _ in range(REPEATS):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        _run([sys.executable, *arguments], root)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        times.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return f"{statistics.median(times):.2f} s"


def test_minutes(root: Path) -> dict[str, str]:
    """Return how long the tests take in three processes, by the clock and of processors."""
    begin, before = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
    options = ("-q", "--numprocesses=3", "--dist=worksteal", "tests")
    _run([sys.executable, "-m", "pytest", *options], root, check=False)
    clock, after = time.monotonic() - begin, resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {"minutes of the tests": f"{clock / 60:.1f}", "of processors": f"{used / 60:.1f}"}


@contextmanager
def checkouts(name: str | None) -> Iterator[list[Path]]:
    """Yield the folders to measure: that of `name`, a folder or a commit, and this one."""
    if name is None or Path(name).is_dir():
        yield [path.resolve() for path in (name and Path(name), HERE) if path]
        return
    with tempfile.TemporaryDirectory() as folder:
        files = Path(folder) / "files.tar"
        command = ["git", "archive", f"--output={files}", name]
        subprocess.run(command, cwd=HERE, check=True)
        with tarfile.open(files) as archive:
            archive.extractall(folder, filter="data")
        yield [Path(folder), HERE]


def figures(root: Path, traces: Traces) -> dict[str, str]:
    """Return a column of the table."""
    traced = {f"files of a {name}": str(len(files)) for name, (files, _, _) in traces.items()}
    steps = {f"steps between files, a {name}": str(steps) for name, (_, steps, _) in traces.items()}
    start = {
        "import vicinal": processor_seconds(root, "-c", "import vicinal"),
        "vicinal --version": processor_seconds(root, "-m", "vicinal", "--version"),
    }
    return {**Sources(root).figures(), **traced, **steps, **start}


def _run(command: list[str], root: Path, *, check: bool = True) -> str:
    path = os.pathsep.join(str(root / name) for name in ("src", "tests", "."))
    environment = {**os.environ, "PYTHONPATH": path}
    done = subprocess.run(
        command, cwd=root, env=environment, capture_output=True, text=True, check=check
    )
    return done.stdout


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description="Measure the shape of the sources.")
    parser.add_argument("other", nargs="?", help="a checkout or a commit to compare with")
    parser.add_argument("--tests", action="store_true", help="run the tests (many minutes)")
    parser.add_argument("--files", action="store_true", help="list the files of every way")
    options = parser.parse_args()
    with checkouts(options.other) as roots:
        traces = [ways(root) for root in roots]
        columns = [figures(root, trace) for root, trace in zip(roots, traces, strict=True)]
        for column, root in zip(columns, roots, strict=True) if options.tests else ():
            column.update(test_minutes(root))
    heads = " | ".join(["before", "after"][-len(columns) :])
    print(f"| | {heads} |\n|---|{'---|' * len(roots)}")
    for row in columns[-1]:
        print(f"| {row} | {' | '.join(column.get(row, '') for column in columns)} |")
    for name, (files, _, pairs) in traces[-1].items() if options.files else ():
        print(f"\n{name}:", *files, sep="\n  ")
        print(" most steps:", *(f"{count:4} between {pair}" for pair, count in pairs), sep="\n  ")


if __name__ == "__main__":
    main()
