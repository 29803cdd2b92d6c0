"""Lazy imports: names of user-facing packages, modules of commands, and packages of extras."""

import ast
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

from vicinal.errors import MissingExtra


def build_lazy_exports(
    package: str,
) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """Return `__getattr__`, `__dir__` and `__all__` of a user-facing package (PEP 562).

    The stub of the package, ``__init__.pyi``, lists its public names, one import each. Type
    checkers read it, and so does this function, so that the names are declared once. A name is
    imported from its module when it is first used. `package`: the package's `__name__`.
    """
    module = sys.modules[package]
    stub = Path(str(module.__file__)).with_suffix(".pyi")
    modules: dict[str, str] = {}  # of every name that the stub imports, `from module import x as x`
    for node in ast.parse(stub.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ImportFrom):
            modules |= {str(alias.asname): str(node.module) for alias in node.names}

    def import_name(name: str) -> Any:
        """Import a public name of the package at its first use; raise AttributeError for others."""
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        source = modules[name]
        if source == package:  # `from package import module`
            value: Any = import_module(f"{package}.{name}")
        else:
            value = getattr(import_module(source), name)
        setattr(module, name, value)
        return value

    return import_name, lambda: sorted({*vars(module), *modules}), sorted(modules)


def import_from_extra(extra: str, package: str, purpose: str) -> Any:
    """Import and return an optional package; raise MissingExtra if it is not installed.

    `package`: its import name. `extra`: name of vicinal's extra that contains it. `purpose`: the
    feature that needs it, for the message.
    """
    try:
        return import_module(package)
    except (ImportError, RuntimeError) as error:
        # torchvision raises RuntimeError if it was built for another version of torch.
        raise MissingExtra(
            f"{purpose} needs the package {package}. Install it with: pip install "
            f"'vicinal[{extra}]'"
        ) from error
