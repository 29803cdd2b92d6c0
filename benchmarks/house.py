"""Measure the shape of the sources: `python -m benchmarks.house [OTHER]`.

Prints the number of lines of every package, the size of the whole project beside its limits,
private imports, import cycles, comment density, and the number of steps of a query, a charge, a
request and a plan through the code, with the default private model. `--files` lists the files on
each path. With another checkout, or a commit, its figures stand in the first column.
"""

import argparse
import ast
import io
import json
import os
import subprocess
import sys
import tarfile
import tempfile
import tokenize
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

HERE = Path(__file__).parents[1]

ALL = {
    "lines of src": 67_250,  # HOUSE.md: 54,000 at the end of the house issue
    "lines of tests": 47_000,  # HOUSE.md: 38,000 at the end of the house issue
    "lines of experiments and benchmarks": 9_760,  # HOUSE.md: 9,500
    "words of pages": 45_000,
    "words of decisions": 16_000,
    "decisions": 40,
    "private imports across packages": 0,
    "cycles of imports": 0,
    "class names used twice": 0,
}
"""Limits of the whole project. No package has a limit of its own."""

COMMENTED = {"mechanisms": 25, "neighbours/engines": 25, "engine": 25}
"""Lines of code for each line of comment, at most, where a stranger stops reading."""

LAYOUT = {
    *(tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT),
    tokenize.ENDMARKER,
}
"""Tokens that are no code by themselves."""


@dataclass(frozen=True)
class Module:
    """One file of Python."""

    path: Path

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.path.read_text(encoding="utf-8"))

    @cached_property
    def lines(self) -> int:
        return len(self.path.read_text(encoding="utf-8").splitlines())

    @cached_property
    def code_and_comments(self) -> tuple[int, int]:
        """Lines that hold code, and lines that hold comments."""
        text = self.path.read_text(encoding="utf-8")
        tokens = list(tokenize.generate_tokens(io.StringIO(text).readline))
        spans = [range(t.start[0], t.end[0] + 1) for t in tokens if t.type not in LAYOUT]
        texts = {line for node in ast.walk(self.tree) for line in _text_lines(node)}
        comments = {
            t.start[0]
            for t in tokens
            if t.type == tokenize.COMMENT
            and not t.string.startswith(("# type:", "# noqa", "# fmt:"))
        }
        return len({line for span in spans for line in span} - texts), len(comments)

    def imports(self) -> Iterator[tuple[str, str]]:
        """Yield (module, name) of everything that is imported from vicinal, at any depth."""
        for node in ast.walk(self.tree):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("vicinal"):
                yield from ((str(node.module), alias.name) for alias in node.names)
            elif isinstance(node, ast.Import):
                yield from ((a.name, "") for a in node.names if a.name.startswith("vicinal"))


def _text_lines(node: ast.AST) -> range:
    """Return the lines of a text that stands alone as a statement: a docstring."""
    value = getattr(node, "value", None) if isinstance(node, ast.Expr) else None
    if not isinstance(value, ast.Constant) or not isinstance(value.value, str):
        return range(0)
    return range(node.lineno, (node.end_lineno or node.lineno) + 1)


class House:
    """A checkout, measured."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.package = root / "src" / "vicinal"

    @cached_property
    def sources(self) -> dict[Path, Module]:
        """The modules of the package, and the stubs that declare what packages export."""
        paths = sorted([*self.package.rglob("*.py"), *self.package.rglob("*.pyi")])
        return {path.relative_to(self.package): Module(path) for path in paths}

    def package_lines(self) -> dict[str, int]:
        """Return the number of lines of every package; modules beside packages count as `base`."""
        count: Counter[str] = Counter()
        for path, module in self.sources.items():
            count[path.parts[0] if len(path.parts) > 1 else "base"] += module.lines
        return dict(sorted(count.items()))

    def weights(self) -> dict[str, int]:
        """Return what :data:`ALL` bounds."""
        decisions = list((self.root / "docs" / "decisions").glob("[0-9]*.md"))
        pages = [p for p in (self.root / "docs").rglob("*.md") if "decisions" not in p.parts]
        drawn = {self.root / "docs" / "generated"}
        pages = [page for page in pages if not drawn & set(page.parents)]
        names = Counter(
            node.name
            for module in self.sources.values()
            for node in ast.walk(module.tree)
            if isinstance(node, ast.ClassDef)
        )
        return {
            "lines of src": sum(module.lines for module in self.sources.values()),
            "lines of tests": self._lines("tests"),
            "lines of experiments and benchmarks": self._lines("experiments", "benchmarks"),
            "words of pages": _words([*pages, self.root / "README.md"]),
            "words of decisions": _words(decisions),
            "decisions": len(decisions),
            "private imports across packages": len(self.private_imports()),
            "cycles of imports": len(self.cycles()),
            "class names used twice": sum(count > 1 for count in names.values()),
        }

    def commented(self) -> dict[str, float]:
        """Return lines of code for each line of comment, by the places of :data:`COMMENTED`."""
        ratios = {}
        for place in COMMENTED:
            counts = [
                module.code_and_comments
                for path, module in self.sources.items()
                if path.as_posix().startswith(place + "/") and path.suffix == ".py"
            ]
            code, comments = (sum(column) for column in zip(*counts, strict=True))
            ratios[place] = code / max(comments, 1)
        return ratios

    def _lines(self, *folders: str) -> int:
        return sum(
            Module(p).lines for folder in folders for p in (self.root / folder).rglob("*.py")
        )

    def private_imports(self) -> list[str]:
        """Return imports of an underscored module or name of a package from outside of it.

        Tests in ``tests/NAME`` may look into the package NAME, everything else into none. Nothing
        of the package is imported from the face of the whole, which stands above all of it.
        """
        found = []
        modules = {path.parts[0].removesuffix(".py") for path in self.sources} | {"__version__"}
        for folder in ("src/vicinal", "tests", "experiments", "benchmarks", "examples", "docs"):
            for path in sorted((self.root / folder).rglob("*.py")):
                own = path.relative_to(self.root / folder).parts[0]
                own = own if folder in ("src/vicinal", "tests") else ""
                for module, name in Module(path).imports():
                    place = [*module.split("."), name][1:]
                    inside = folder == "src/vicinal" and place[0].startswith("_")
                    if own in (place[0], "ground") and (own != "ground" or len(place) < 3):
                        continue
                    above = folder == "src/vicinal" and module == "vicinal" and name not in modules
                    if above or (not inside and any(_private(part) for part in place)):
                        found.append(f"{path.relative_to(self.root)}: {module} {name}".strip())
        return found

    def cycles(self) -> list[set[str]]:
        """Return groups of modules that import each other, at any depth of their code."""
        names = {
            ".".join(("vicinal", *path.with_suffix("").parts)): m
            for path, m in self.sources.items()
        }
        names = {
            name.removesuffix(".__init__"): m for name, m in names.items() if m.path.suffix == ".py"
        }
        graph = {
            name: {
                target
                for module, attribute in source.imports()
                for target in [
                    f"{module}.{attribute}" if f"{module}.{attribute}" in names else module
                ]
                if target in names and target != name
            }
            for name, source in names.items()
        }
        reach = {name: _reached(graph, name) for name in graph}
        groups = {frozenset(b for b in reach[a] if a in reach[b]) for a in graph if a in reach[a]}
        return [set(group) for group in groups]


def _private(part: str) -> bool:
    return part.startswith("_") and not part.startswith("__")


def _reached(graph: dict[str, set[str]], start: str) -> set[str]:
    known: set[str] = set()
    new = set(graph[start])
    while new:
        known |= new
        new = {target for name in new for target in graph[name]} - known
    return known


def _words(paths: list[Path]) -> int:
    return sum(len(path.read_text(encoding="utf-8").split()) for path in paths if path.is_file())


TRACE = """
import json, pathlib, sys, threading
import entropy, serving_tools, store_tools as tools
import vicinal
entropy.installed("0").start("the same answers in every run")
src = str(pathlib.Path(vicinal.__file__).parent)
order, steps, last = [], 0, {}
def note(frame, event, _):
    global steps
    path = frame.f_code.co_filename
    if event == "call" and path.startswith(src):
        name, thread = path[len(src) + 1 :], threading.get_ident()
        steps += last.get(thread) != name
        last[thread] = name
        if name not in order:
            order.append(name)
def begin():
    global steps
    order.clear(); last.clear(); steps = 0
def traced(work):
    begin()
    threading.setprofile(note); sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None); threading.setprofile(None)
    return list(order), steps
found, folder = {}, pathlib.Path(sys.argv[1])
clf = vicinal.IndKNNClassifier(range(3), epsilon=4.0, n_queries=60, n_records=300)
clf.fit(tools.X, tools.Y, public=tools.R)
clf.predict(tools.Q[:5])
found["query"] = traced(lambda: clf.predict(tools.Q[5:10]))
with tools.make(folder / "a", model_share="auto") as store:
    store.predict(tools.Q[:5])
    found["charge"] = traced(lambda: store.predict(tools.Q[5:10]))
threading.setprofile(note)
with serving_tools.running(folder / "b", model_share="auto") as service:
    service.predict(tools.Q[:5].tolist())
    begin()
    service.predict(tools.Q[5:10].tolist())
    found["request"] = list(order), steps
threading.setprofile(None)
plan = json.loads((pathlib.Path(sys.argv[2]) / "examples/plans/table1_mnist.json").read_text())
vicinal.account(plan)
found["plan"] = traced(lambda: vicinal.account(plan))
print(json.dumps(found))
"""

Traces = dict[str, tuple[list[str], int]]
"""By way: its files in order, and how often it goes from one to another."""


def ways(root: Path) -> Traces:
    """Return the ways of a query, a charge, a request and a plan."""
    path = os.pathsep.join(str(root / name) for name in ("src", "tests", "."))
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [sys.executable, "-W", "ignore", "-c", TRACE, folder, str(root)],
            cwd=root,
            env={**os.environ, "PYTHONPATH": path},
            capture_output=True,
            text=True,
            check=True,
        )
    return dict(json.loads(done.stdout.splitlines()[-1]))


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


def column(root: Path, traces: Traces) -> dict[str, str]:
    """Return a column of the table."""
    house = House(root)
    ratios = house.commented() if (root / "src/vicinal/engine").is_dir() else {}
    return {
        **{f"lines of {name}": f"{lines:,}" for name, lines in house.package_lines().items()},
        **{name: f"{value:,}" for name, value in house.weights().items()},
        **{f"code to a comment, {place}": f"{ratio:.0f}" for place, ratio in ratios.items()},
        **{f"files of a {name}": str(len(files)) for name, (files, _) in traces.items()},
        **{f"steps of a {name}": str(steps) for name, (_, steps) in traces.items()},
    }


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description="Measure the shape of the sources.")
    parser.add_argument("other", nargs="?", help="a checkout or a commit to compare with")
    parser.add_argument("--files", action="store_true", help="list the files of every way")
    options = parser.parse_args()
    with checkouts(options.other) as roots:
        traces = [ways(root) for root in roots]
        columns = [column(root, trace) for root, trace in zip(roots, traces, strict=True)]
    limits = ALL | {f"code to a comment, {place}": most for place, most in COMMENTED.items()}
    heads = " | ".join(["before", "now"][-len(columns) :])
    print(f"| | {heads} | at most |\n|---|{'---|' * (len(columns) + 1)}")
    for row in columns[-1]:
        cells = " | ".join(each.get(row, "") for each in columns)
        most = f"{limits[row]:,}" if row in limits else ""
        print(f"| {row} | {cells} | {most} |")
    for name, (files, _) in traces[-1].items() if options.files else ():
        print(f"\n{name}:", *files, sep="\n  ")


if __name__ == "__main__":
    main()
