"""`python -m experiments NAME`: one command an experiment."""

from typing import ClassVar

import typer

from vicinal.cli.main import TYPER_ARGUMENTS, CommandGroup


class Experiments(CommandGroup):
    """All experiments, by name."""

    import_paths: ClassVar = {
        "accounting": "experiments.commands.accounting:accounting",
        "accuracy": "experiments.commands.methods:accuracy",
        "audit-controls": "experiments.commands.audits:audit_controls",
        "audit-errors": "experiments.commands.audits:audit_errors",
        "coverage-sets": "experiments.commands.coverage:coverage_sets",
        "coverage-worlds": "experiments.commands.coverage:coverage_worlds",
        "forecasts": "experiments.commands.report_set:forecasts",
        "indknn-agnews": "experiments.commands.comparison:indknn_agnews",
        "indknn-fashion": "experiments.commands.comparison:indknn_fashion",
        "indknn-mnist": "experiments.commands.comparison:indknn_mnist",
        "losses": "experiments.commands.losses:losses",
        "promises": "experiments.commands.promises:promises",
        "report-set": "experiments.commands.report_set:report_set",
        "similar-tables": "experiments.commands.report_set:similar_tables",
        "small-tables": "experiments.commands.small_tables:small_tables",
        "smoothed-figures": "experiments.commands.smoothed:smoothed_figures",
        "smoothed-reference": "experiments.commands.smoothed:smoothed_reference",
        "table1-mnist": "experiments.commands.table1_mnist:table1_mnist",
        "tightness": "experiments.commands.audits:tightness",
    }


app = typer.Typer(
    cls=Experiments,
    help="Print a table of the documentation, from the data.",
    no_args_is_help=True,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    **TYPER_ARGUMENTS,
)


@app.callback()
def _main() -> None:
    """Print a table of the documentation, from the data."""


if __name__ == "__main__":
    app(prog_name="python -m experiments")
