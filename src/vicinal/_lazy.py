"""What is imported on first use: public names, so that a package takes no time, and extras."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

from vicinal.errors import MissingExtra

Attributes = Callable[[str], Any]
Directory = Callable[[], list[str]]


def lazy_exports(
    package: str, namespace: dict[str, Any], modules: Mapping[str, str]
) -> tuple[Attributes, Directory]:
    """Return `__getattr__` and `__dir__` of a package (PEP 562).

    `package`: the package's `__name__`. `namespace`: its `globals()`, where a name is kept once it
    was used. `modules`: every public name, and the module that defines it. A module without a name
    of its own is given by its place: ``{"errors": "vicinal.errors"}``.
    """

    def attribute(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module = import_module(modules[name])
        exported = module if modules[name] == f"{package}.{name}" else getattr(module, name)
        namespace[name] = exported
        return exported

    def directory() -> list[str]:
        return sorted({*namespace, *modules})

    return attribute, directory


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
    except ImportError as error:
        raise MissingExtra(
            f"{purpose} needs the package {package}. Install it with: pip install "
            f"'vicinal[{extra}]'"
        ) from error
