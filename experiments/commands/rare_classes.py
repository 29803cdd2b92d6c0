"""`rare-classes`: class shares, costs and a private model where one class is rare."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from experiments.commands.options import OUT, Out, Runs, result_of, with_notes, write_table
from vicinal.cli._options import Json
from vicinal.cli._output import output_folder
from vicinal.errors import InvalidInput

NAME = "rare-classes"

NOTE = (
    "Real reference, per person, delta 1e-5, up to 20,000 private rows and 2,000 public ones. "
    "Accuracy and balanced accuracy are of the labels that leave. Simulated with seeded noise on "
    "public data, without a guarantee."
)


def rare_classes(
    data: Annotated[Path, typer.Option(help="Folder of nassCDS.parquet, rwm5yr.parquet, ...")],
    task: Annotated[list[str] | None, typer.Option(help="A table's task; repeat for more.")] = None,
    runs: Runs = 1,
    queries: Annotated[int, typer.Option(help="Queries planned and asked.", min=2)] = 500,
    epsilon: Annotated[float, typer.Option(help="The guarantee simulated.", min=0.01)] = 1.0,
    json: Json = False,
    out: Out = OUT,
) -> None:
    """Compare rules that turn votes into labels on nassCDS dead, or other tasks of `tables`."""
    from experiments.tables.data import TASKS
    from experiments.tables.rare import as_text, rule_cells

    wanted = task or ["nassCDS dead"]
    known = [one.name for one in TASKS]
    if unknown := set(wanted) - set(known):
        raise InvalidInput(
            f"The 'task' option must be one of {', '.join(known)}. Got {min(unknown)!r}."
        )
    output_folder(out)
    found = list(rule_cells(data, wanted, runs, queries, epsilon))
    if not found:
        raise InvalidInput(f"The 'data' option must be a folder of these tables. {data} has none.")
    text = with_notes(as_text(found), NOTE)
    write_table(out, NAME, result_of(NAME, NOTE, found), text, json=json)
