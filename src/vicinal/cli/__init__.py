"""The command line; one file a command group, started by :mod:`vicinal.cli._main`."""

__all__: list[str] = []
