"""The program `vicinal`: its commands, and how errors reach the caller.

Exit codes: 0 done, 2 bad usage or input, 3 refused for privacy. What went wrong is one line on
stderr. Modules that take long to load are imported by the commands that need them.
"""

from __future__ import annotations

from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperGroup

from vicinal.cli import (
    account,
    attributes,
    bench,
    demo,
    efficiency,
    feature_maps,
    keys,
    label,
    methods,
    plan,
    planning,
    reproduce,
    serve,
    smoothed,
    store,
    student,
    table1,
    table1_cifar,
    transfer,
)
from vicinal.errors import PrivacyRefused, VicinalError

BAD_INPUT = 2
REFUSED = 3


class Commands(TyperGroup):
    """Commands whose errors end the program with a sentence instead of a traceback."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command that was asked for."""
        try:
            return super().invoke(ctx)
        except PrivacyRefused as error:
            _stop(error, REFUSED)
        except VicinalError as error:
            _stop(error, BAD_INPUT)


def _stop(error: VicinalError, code: int) -> NoReturn:
    typer.echo("vicinal: " + " ".join(str(error).split()), err=True)
    raise typer.Exit(code)


app = typer.Typer(
    cls=Commands,
    help="Differentially private prediction by nearest neighbours.",
    no_args_is_help=True,
    rich_markup_mode=None,
    # A traceback with local variables would show private records.
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
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


app.command("account")(account.account)
app.command("bench")(bench.bench)
app.command("calibrate")(account.calibrate)
app.command("demo")(demo.demo)
app.command("label")(label.label)
app.command("plan")(plan.plan)
app.command("serve")(serve.serve)
app.command("student")(student.student)
app.command("transfer")(transfer.transfer)
reproduce.app.command(attributes.NAME)(attributes.market)
reproduce.app.command(table1.NAME)(table1.table1)
reproduce.app.command(table1_cifar.NAME)(table1_cifar.table1_cifar)
store.register(app)
reproduce.app.command("accounting")(account.reproduce_accounting)
reproduce.app.command(feature_maps.NAME)(feature_maps.reproduce_ablation)
reproduce.app.command(efficiency.NAME)(efficiency.reproduce_efficiency)
reproduce.app.command(efficiency.LABELS)(efficiency.reproduce_labels)
reproduce.app.command(methods.ACCURACY)(methods.reproduce_accuracy)
reproduce.app.command(methods.ROBUSTNESS)(methods.reproduce_robustness)
reproduce.app.command(methods.FIGURES)(methods.reproduce_figures)
reproduce.app.command(planning.PLANNING)(planning.reproduce_planning)
reproduce.app.command(planning.WEAR)(planning.reproduce_wear)
reproduce.app.command("smoothed-figures")(smoothed.reproduce_figures)
reproduce.app.command("smoothed-reference")(smoothed.reproduce_reference)
app.add_typer(keys.app, name="keys")
app.add_typer(reproduce.app, name="reproduce")
app.add_typer(smoothed.app, name="smoothed")
