"""Writes docs/api.md, the list of public names: `python -m docs.api`.

Nothing is imported: names and docstrings are read from the sources.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCES = ROOT / "src"
PAGE = ROOT / "docs" / "api.md"

HEAD = """# Public names

Whatever a package exports is listed here. Nothing else is public: other modules, functions and
attributes begin with an underscore and may change without notice. `python -m docs.api` writes this
page from the docstrings; a test fails when it and the exports differ.
"""


def main() -> None:
    """Write the page."""
    PAGE.write_text(page(), encoding="utf-8")


def page() -> str:
    """Return the text of the page."""
    sections = (_section(path) for path in public_packages())
    return HEAD + "".join(sections)


def public_packages() -> list[Path]:
    """Return the `__init__.py` of every package without an underscore, and `errors.py`."""
    inits = sorted((SOURCES / "vicinal").rglob("__init__.py"))
    places = [path for path in inits if "/_" not in str(path.parent.relative_to(SOURCES))]
    return [places[0], SOURCES / "vicinal" / "errors.py", *places[1:]]


def exports(path: Path) -> list[str]:
    """Return `__all__` of a module; of `errors`, all classes."""
    for name, value, _ in _assignments(_tree(path)):
        if name == "__all__":
            return list(ast.literal_eval(value))
    return sorted(node.name for node in _tree(path).body if isinstance(node, ast.ClassDef))


def _section(path: Path) -> str:
    names = [name for name in exports(path) if not name.startswith("__")]
    if not names:
        return ""
    rows = "".join(f"| `{name}` | {summary(path, name)} |\n" for name in names)
    title = f"\n## {_module(path)}\n\n{_first_line(_tree(path))}\n"
    return f"{title}\n| name | what it is |\n|---|---|\n{rows}"


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
    for module in _origins(tree, name):
        submodule = _path(f"{module}.{name}")
        return _first_line(_tree(submodule)) if submodule else summary(_known(module), name)
    raise LookupError(f"{path} exports {name}, which is not there")


def _origins(tree: ast.Module, name: str) -> Iterator[str]:
    for node in ast.walk(tree):
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


if __name__ == "__main__":
    main()
