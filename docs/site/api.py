"""The reference of Python names: one page a package, with a page for each class and function.

The names are those that packages export; Sphinx makes the pages from the docstrings. What is public
and what a name's first sentence says is read from the sources, without an import.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
SOURCES = ROOT / "src"

_HEAD = """Python
======

Whatever a package exports is listed here. Nothing else is public: other modules, functions and
attributes begin with an underscore and may change without notice.

.. toctree::
   :maxdepth: 1

"""


def pages(root: Path) -> Iterator[tuple[str, str]]:  # noqa: ARG001 (every part has this signature)
    """Yield a page for each public package, and the list of packages."""
    places = [path for path in public_packages() if exports(path)]
    known: dict[int, str] = {}
    for path in places:
        yield f"api/p-{_module(path)}.rst", _package(path, known)
    entries = "".join(f"   p-{_module(path)}\n" for path in places)
    yield "api/index.rst", _HEAD + entries


def _package(path: Path, known: dict[int, str]) -> str:
    """Return a package's page; `known` maps what has a page already to its name."""
    module = _module(path)
    package = import_module(module)
    names = {name: getattr(package, name) for name in exports(path) if not name.startswith("__")}
    here = [name for name, value in names.items() if _has_page(value) and id(value) not in known]
    elsewhere = [(name, known[id(value)]) for name, value in names.items() if id(value) in known]
    known |= {id(names[name]): f"{module}.{name}" for name in here}
    constants = [n for n, v in names.items() if not _has_page(v) and not inspect.ismodule(v)]
    rows = [f"   * - ``{name}``\n     - {summary(path, name)}\n" for name in constants]
    parts = [
        f"{module}\n{'=' * len(module)}\n\n{_first_line(_tree(path))}\n\n",
        f".. currentmodule:: {module}\n\n",
        _summary_table(here),
        "**Constants and types**\n\n.. list-table::\n\n" + "".join(rows) + "\n" if rows else "",
        *(f":obj:`{name} <{page}>` is ``{page}``.\n\n" for name, page in elsewhere),
        *(f":doc:`p-{v.__name__}`\n\n" for v in names.values() if inspect.ismodule(v)),
    ]
    return "".join(parts)


def _has_page(value: Any) -> bool:
    return inspect.isclass(value) or inspect.isroutine(value)


def _summary_table(names: list[str]) -> str:
    if not names:
        return ""
    entries = "".join(f"   {name}\n" for name in names)
    return f".. autosummary::\n   :toctree: .\n   :nosignatures:\n\n{entries}\n"


def public_packages() -> list[Path]:
    """Return the `__init__.py` of every package with public names, and the two public modules."""
    vicinal = SOURCES / "vicinal"
    inits = [vicinal / "__init__.py", *sorted(vicinal.glob("*/__init__.py"))]
    places = [path for path in inits if path.with_suffix(".pyi").is_file()]
    modules = [SOURCES / "vicinal" / f"{name}.py" for name in ("errors", "testing")]
    return [places[0], *modules, *places[1:]]


def exports(path: Path) -> list[str]:
    """Return the public names of a package, as its stub has them; of a module, what it defines."""
    if path.name == "__init__.py":
        return list(getattr(import_module(_module(path)), "__all__", ()))
    kinds = ast.ClassDef | ast.FunctionDef
    names = [node.name for node in _tree(path).body if isinstance(node, kinds)]
    return sorted(name for name in names if not name.startswith("_"))


def summary(path: Path, name: str) -> str:
    """Return the first sentence of what a module exports as `name`."""
    tree = _tree(path)
    for node in tree.body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef) and node.name == name:
            return _first_line(node)
    body = iter(tree.body)
    for node in body:
        if any(found == name for found, _, _ in _assignments(ast.Module([node], []))):
            following = next(body, None)
            return _plain(_constant(following)) if _constant(following) else "(a constant)"
    for module in _origins(path, name):
        submodule = _path(f"{module}.{name}")
        return _first_line(_tree(submodule)) if submodule else summary(_known(module), name)
    raise LookupError(f"{path} exports {name}, which is not there")


def _origins(path: Path, name: str) -> Iterator[str]:
    """Yield the modules that `name` comes from: as the stub of a package says, or its imports."""
    stub = path.with_suffix(".pyi")
    for node in ast.walk(_tree(stub if stub.is_file() else path)):
        if isinstance(node, ast.ImportFrom) and node.module:
            names = {alias.asname or alias.name for alias in node.names}
            yield from [node.module] if name in names else []


def _assignments(tree: ast.Module) -> Iterator[tuple[str, ast.expr, ast.stmt]]:
    for node in tree.body:
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        for target in targets:
            value = getattr(node, "value", None)
            if isinstance(target, ast.Name) and value is not None:
                yield target.id, value, node


def _constant(node: ast.stmt | None) -> str:
    value = node.value if isinstance(node, ast.Expr) else None
    return str(value.value) if isinstance(value, ast.Constant) else ""


def _first_line(node: ast.Module | ast.ClassDef | ast.FunctionDef) -> str:
    return _plain(ast.get_docstring(node) or "")


def _plain(text: str) -> str:
    paragraph = " ".join(text.strip().split("\n\n")[0].split())
    return paragraph.replace("``", "`").replace("|", "\\|")


def _module(path: Path) -> str:
    place = path.parent if path.name == "__init__.py" else path.with_suffix("")
    return ".".join(place.relative_to(SOURCES).parts)


def _path(module: str) -> Path | None:
    place = SOURCES.joinpath(*module.split("."))
    choices = (place / "__init__.py", place.with_suffix(".py"))
    return next((path for path in choices if path.exists()), None)


def _known(module: str) -> Path:
    path = _path(module)
    if path is None:
        raise LookupError(f"there is no module {module}")
    return path


@cache
def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))
