"""`report-set`: tables that no constant was chosen on, beside rivals."""

from pathlib import Path
from typing import Annotated

import typer

from experiments.commands.options import Runs
from vicinal.errors import InvalidInput

CELLS = Path("docs/reference/report-set.csv")


def report_set(
    group: Annotated[str, typer.Option(help="report, tuning or known.")] = "report",
    run: Annotated[bool, typer.Option("--run", help="Measure the cells that are missing.")] = False,
    anew: Annotated[
        bool, typer.Option("--anew", help="Drop the cells of these methods first.")
    ] = False,
    runs: Runs = 2,
    method: Annotated[list[str] | None, typer.Option(help="One to measure; repeat.")] = None,
    records: Annotated[str, typer.Option(help="Private records at most, by commas.")] = (
        "20000,2000,1000,500"
    ),
    epsilon: Annotated[str, typer.Option(help="Epsilons, by commas.")] = ".5,1,2,4",
    public: Annotated[int, typer.Option(help="Public rows.", min=2)] = 300,
    cells: Annotated[Path, typer.Option(help="File of the cells measured so far.")] = CELLS,
) -> None:
    """Print the tables of the report set, where the default is behind first."""
    from experiments.report_set.data import GROUPS
    from experiments.report_set.methods import MADE_UP, METHODS, absent
    from experiments.report_set.page import Run, as_text, read

    if group not in GROUPS:
        raise InvalidInput(f"The 'group' option must be one of {', '.join(GROUPS)}. Got {group!r}.")
    methods = tuple(method or (name for name in METHODS if name != MADE_UP))
    if unknown := set(methods) - METHODS.keys():
        raise InvalidInput(
            f"The 'method' option must be one of {', '.join(METHODS)}. Got {min(unknown)!r}."
        )
    if run:
        sizes = tuple(int(part) for part in records.split(","))
        epsilons = tuple(float(part) for part in epsilon.split(","))
        for name in (missing := absent(methods)):
            typer.echo(f"Left out: {name}, whose package cannot be imported here.", err=True)
        methods = tuple(name for name in methods if name not in missing)
        Run(group, methods, runs, public, sizes, epsilons).measure(cells, anew=anew)
    typer.echo(as_text(read(cells), group, public))


FORETOLD = Path("docs/reference/forecasts.csv")


def forecasts(
    group: Annotated[str, typer.Option(help="report or tuning.")] = "report",
    run: Annotated[bool, typer.Option("--run", help="Measure them, and write the file.")] = False,
    records: Annotated[int, typer.Option(help="Private records at most.", min=500)] = 2000,
    epsilon: Annotated[float, typer.Option(help="The budget.")] = 1.0,
    cells: Annotated[Path, typer.Option(help="File of what was measured.")] = FORETOLD,
) -> None:
    """Print what plans foretell of the report set's tables, beside what happened."""
    from experiments.report_set.forecasts import as_text, measure, write

    if run:
        write(cells, measure(group, records, epsilon))
    typer.echo(as_text(cells))


SHAPES = Path("experiments/report_set/shapes.csv")
MEASURED = Path("src/vicinal/planning/measured_accuracy.csv")


def similar_tables(
    run: Annotated[
        bool, typer.Option("--run", help="Measure the shapes of the tables, and write them.")
    ] = False,
    write: Annotated[
        bool, typer.Option("--write", help="Write the package's table from recorded results.")
    ] = False,
    cells: Annotated[Path, typer.Option(help="File of the recorded results.")] = CELLS,
    shapes: Annotated[Path, typer.Option(help="File of the tables' shapes.")] = SHAPES,
    out: Annotated[Path, typer.Option(help="The package's table.")] = MEASURED,
) -> None:
    """Print how often ranges of accuracy from similar tables contain that of another table."""
    from experiments.report_set import similar_tables as ranges
    from experiments.report_set.page import read
    from vicinal.planning.measured_accuracy import MeasuredAccuracy

    if run:
        ranges.write_rows(shapes, ranges.TableShape, ranges.measure_shapes())
    accuracies = ranges.collect_accuracies(read(cells), ranges.read_shapes(shapes))
    if write:
        ranges.write_rows(out, MeasuredAccuracy, accuracies)
    typer.echo(ranges.format_evaluation(accuracies))
