"""The program `vicinal`: its commands.

Exit codes: 0 done, 2 bad usage or input, 3 refused for privacy, 130 interrupted. What went wrong is
one line on stderr. Commands import what takes long to load when they run, never at the top of their
module.
"""

from __future__ import annotations

from typing import Annotated, ClassVar

import typer

from vicinal.cli._group import PLAIN, CommandGroup


class Commands(CommandGroup):
    """The commands of `vicinal`."""

    places: ClassVar = {
        "account": "vicinal.cli._account:account",
        "add": "vicinal.cli._store:add",
        "allow": "vicinal.cli._store:allow",
        "audience": "vicinal.cli._init:audience",
        "audit": "vicinal.cli._audit:audit",
        "backup": "vicinal.cli._store:backup",
        "calibrate": "vicinal.cli._account:calibrate",
        "certificate": "vicinal.cli._certificate:certificate",
        "demo": "vicinal.cli._demo:demo",
        "doctor": "vicinal.cli._doctor:doctor",
        "evaluate": "vicinal.cli._evaluate:evaluate",
        "erase": "vicinal.cli._subjects:erase",
        "export-guarantee": "vicinal.cli._store:export_guarantee",
        "init": "vicinal.cli._init:init",
        "inspect": "vicinal.cli._store:inspect",
        "keys": "vicinal.cli._keys:app",
        "label": "vicinal.cli._label:label",
        "plan": "vicinal.cli._plan:plan",
        "predict": "vicinal.cli._store:predict",
        "receipt": "vicinal.cli._receipt:app",
        "refresh": "vicinal.cli._store:refresh",
        "restore": "vicinal.cli._store:restore",
        "schema": "vicinal.cli._schema:schema",
        "serve": "vicinal.cli._serve:serve",
        "shard": "vicinal.cli._shards:shard",
        "smoothed": "vicinal.cli._smoothed:app",
        "student": "vicinal.cli._student:student",
        "transfer": "vicinal.cli._transfer:transfer",
        "verify": "vicinal.cli._store:verify",
    }
    tasks: ClassVar = {
        "Try it": ("demo", "doctor"),
        "Plan and price": ("plan", "account", "calibrate", "smoothed"),
        "Make a store and ask": ("schema", "init", "predict", "evaluate", "serve", "keys"),
        "Change its data": ("add", "erase", "refresh"),
        "Budgets": ("audience", "allow", "inspect", "export-guarantee"),
        "Keep it safe": ("backup", "restore", "verify", "shard"),
        "Show evidence": ("audit", "certificate", "receipt"),
        "Publish a student": ("transfer", "label", "student"),
    }


app = typer.Typer(
    cls=Commands,
    help="Differentially private prediction by nearest neighbours.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    **PLAIN,
)


def _show_version(requested: bool) -> None:
    if requested:
        from vicinal import __version__

        typer.echo(f"vicinal {__version__}")
        raise typer.Exit


@app.callback()
def _main(
    version: Annotated[
        bool,
        typer.Option("--version", help="Show the version.", callback=_show_version, is_eager=True),
    ] = False,
) -> None:
    """Differentially private prediction by nearest neighbours."""
