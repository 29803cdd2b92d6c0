"""The command line; one file a command group, started by :mod:`vicinal.cli.main`."""
