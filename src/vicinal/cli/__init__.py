"""The command line; one file a command group, started by :mod:`vicinal.cli._main`."""

from vicinal._lazy import lazy_exports

__getattr__, __dir__, __all__ = lazy_exports(__name__)
