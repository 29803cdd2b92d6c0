"""`small-tables`: scores on tables of a few hundred records."""

from typing import Annotated

import typer

from experiments.commands.options import Runs


def small_tables(
    epsilon: Annotated[float, typer.Option(help="Budget of a subject.")] = 1.0, runs: Runs = 20
) -> None:
    """Print scores on scikit-learn's small tables; nothing is downloaded."""
    from experiments.accuracy.small_tables import format_small_tables, measure_small_tables

    typer.echo(format_small_tables(measure_small_tables(epsilon, runs)))
