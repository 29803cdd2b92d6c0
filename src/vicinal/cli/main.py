"""The program `vicinal`: its commands.

Exit codes: 0 done, 2 bad usage or input, 3 refused for privacy. What went wrong is one line on
stderr. Commands import what takes long to load when they run, never at the top of their module.
"""

from __future__ import annotations

from typing import Annotated, ClassVar

import typer

from vicinal.cli.group import PLAIN, CommandGroup


class Commands(CommandGroup):
    """The commands of `vicinal`."""

    places: ClassVar = {
        "account": "vicinal.cli.account:account",
        "add": "vicinal.cli.store:add",
        "allow": "vicinal.cli.store:allow",
        "audience": "vicinal.cli.store:audience",
        "backup": "vicinal.cli.store:backup",
        "bench": "vicinal.cli.bench:bench",
        "calibrate": "vicinal.cli.account:calibrate",
        "demo": "vicinal.cli.demo:demo",
        "erase": "vicinal.cli.subjects:erase",
        "export-guarantee": "vicinal.cli.store:export_guarantee",
        "init": "vicinal.cli.store:init",
        "inspect": "vicinal.cli.store:inspect",
        "keys": "vicinal.cli.keys:app",
        "label": "vicinal.cli.label:label",
        "merge-subjects": "vicinal.cli.subjects:merge_subjects",
        "plan": "vicinal.cli.plan:plan",
        "predict": "vicinal.cli.store:predict",
        "restore": "vicinal.cli.store:restore",
        "serve": "vicinal.cli.serve:serve",
        "shard": "vicinal.cli.shards:shard",
        "smoothed": "vicinal.cli.smoothed:app",
        "student": "vicinal.cli.student:student",
        "transfer": "vicinal.cli.transfer:transfer",
        "verify": "vicinal.cli.store:verify",
    }


app = typer.Typer(
    cls=Commands,
    help="Differentially private prediction by nearest neighbours.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    **PLAIN,
)


def _show_version(wanted: bool) -> None:
    if wanted:
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
