"""`small-tables`: the default beside neighbours alone where there are few records."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from experiments.commands.options import OUT, Out, result_of, with_notes, write_table
from vicinal.cli._options import Json
from vicinal.cli._output import output_folder
from vicinal.errors import InvalidInput

NAME = "small-tables"

NOTE = (
    "Votes, no class shares, real public rows, per person, delta 1e-5. Accuracy and AUC are of "
    "neighbours alone, over the answers of all runs; changes are those of the default, with the "
    "standard error of the change in accuracy. Run r has split r and noise seed r. Simulated with "
    "seeded noise on public data, without a guarantee."
)


def small_tables(
    data: Annotated[Path, typer.Option(help="Folder of nassCDS.parquet, rwm5yr.parquet, ...")],
    records: Annotated[str, typer.Option(help="Private records, comma-separated.")] = "1000,2000",
    public: Annotated[str, typer.Option(help="Public rows, comma-separated.")] = "10,50",
    queries: Annotated[str, typer.Option(help="Numbers of queries, comma-separated.")] = "20,100",
    epsilon: Annotated[str, typer.Option(help="Epsilons, comma-separated.")] = "1,4",
    answers: Annotated[int, typer.Option(help="Answers judged in a cell, or so.", min=1)] = 300,
    json: Json = False,
    out: Out = OUT,
) -> None:
    """Compare the default with neighbours alone on small parts of the tables of `tables`."""
    from experiments.tables.small import as_text, every_plan, small_cells

    output_folder(out)
    n, m, t = ([int(part) for part in text.split(",")] for text in (records, public, queries))
    plans = every_plan(n, m, t, [float(part) for part in epsilon.split(",")])
    found = list(small_cells(data, plans, answers))
    if not found:
        raise InvalidInput(f"The 'data' option must be a folder of these tables. {data} has none.")
    text = with_notes(as_text(found), NOTE)
    write_table(out, NAME, result_of(NAME, NOTE, found), text, json=json)
