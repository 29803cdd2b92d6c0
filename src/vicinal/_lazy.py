"""What is imported on first use: the names of a package, so that it takes no time, and extras."""

import re
import sys
from collections.abc import Callable
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

from vicinal.errors import MissingExtra

_ALL = "__all__: list[str]"
"""Ends the public part of a stub; what stands below is for other packages of vicinal alone."""

_EXPORT = re.compile(r"^from ([\w.]+) import (?:\(([^)]*)\)|([^\n(]*))", re.MULTILINE)


def lazy_exports(package: str) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """Return `__getattr__`, `__dir__` and `__all__` of a package (PEP 562), declared by its stub.

    The stub, ``__init__.pyi``, is the one place where exports are declared: type checkers read it,
    and so does this function. `package`: the package's `__name__`.
    """
    module = sys.modules[package]
    exports, public = declared_exports(Path(str(module.__file__)).parent)

    def attribute(name: str) -> Any:
        if name not in exports:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        source = exports[name]
        # A module of the package's own is declared as `from package import module`.
        found = (
            import_module(f"{package}.{name}")
            if source == package
            else getattr(import_module(source), name)
        )
        setattr(module, name, found)
        return found

    return attribute, lambda: sorted({*vars(module), *exports}), [*public]


@cache
def declared_exports(folder: Path) -> tuple[dict[str, str], list[str]]:
    """Return (module of every exported name, public names, sorted), as a package's stub has them.

    `folder`: of the package. Without a stub nothing is exported.
    """
    stub = folder / "__init__.pyi"
    if not stub.is_file():
        return {}, []
    public, _, shared = stub.read_text(encoding="utf-8").partition(_ALL)
    declared, others = _declared(public), _declared(shared)
    return {**declared, **others}, sorted(declared)


def _declared(part: str) -> dict[str, str]:
    """Return the module of every name that a part of a stub exports."""
    return {
        name: module
        for module, several, one in _EXPORT.findall(part)
        for name in re.findall(r"\bas (\w+)", several or one)
    }


def load_when_used(package: str, *names: str) -> None:
    """Let modules of a package load when something of theirs is used, not when it is listed.

    `from package import *` lists them. For a program with one thread: two that use such a module
    first at once could find half of it.
    """
    from importlib.util import LazyLoader, find_spec, module_from_spec

    parent = import_module(package)
    for name in names:
        full = f"{package}.{name}"
        spec = find_spec(full)
        if full not in sys.modules and spec is not None and spec.loader is not None:
            spec.loader = LazyLoader(spec.loader)
            module = sys.modules[full] = module_from_spec(spec)
            spec.loader.exec_module(module)
            setattr(parent, name, module)


def of_extra(extra: str, package: str, purpose: str) -> Any:
    """Return a package of an extra of vicinal, or say what needs it and how to install it."""
    try:
        return import_module(package)
    except (ImportError, RuntimeError) as error:
        # torchvision raises RuntimeError if it is of another build than torch.
        raise MissingExtra(
            f"{purpose} needs the package {package}. Install it with: pip install "
            f"'vicinal[{extra}]'"
        ) from error
