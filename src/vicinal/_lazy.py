"""What is imported on first use: public names, so that a package takes no time, and extras."""

from __future__ import annotations

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


def of_extra(extra: str, package: str, purpose: str) -> Any:
    """Return a package of an extra of vicinal, or say what needs it and how to install it."""
    try:
        return import_module(package)
    except ImportError as error:
        raise MissingExtra(
            f"{purpose} needs the package {package}. Install it with: pip install "
            f"'vicinal[{extra}]'"
        ) from error
