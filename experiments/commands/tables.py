"""`tables`: records about people, with real and made-up references, beside rivals."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from experiments.commands.options import OUT, Out, Runs, result_of, with_notes, write_table
from vicinal.cli import Json, output_folder
from vicinal.errors import InvalidInput

NAME = "tables"

NOTE = (
    "Accuracy of the likelier class / balanced accuracy of the class that is likelier than its "
    "share / AUC. Private: up to 20,000 rows, per person, delta 1e-5; 2,000 public rows; queries "
    "are of other people. Class shares are public, to two digits. The schema is drafted from the "
    "real public rows in all columns. Run r has split r and noise seed r. Simulated with seeded "
    "noise on public data, without a guarantee."
)


def tables(
    data: Annotated[Path, typer.Option(help="Folder of nassCDS.parquet, rwm5yr.parquet, ...")],
    runs: Runs = 5,
    queries: Annotated[str, typer.Option(help="Numbers of queries, comma-separated.")] = "500,2000",
    epsilon: Annotated[str, typer.Option(help="Epsilons, comma-separated.")] = ".5,1,2,4",
    method: Annotated[list[str] | None, typer.Option(help="A contender; repeat for more.")] = None,
    merge: Annotated[
        list[Path] | None, typer.Option(help="A tables.cells.jsonl of another run; repeat.")
    ] = None,
    known: Annotated[
        bool, typer.Option("--known", help="Measure nothing: show what the files have of it.")
    ] = False,
    json: Json = False,
    out: Out = OUT,
) -> None:
    """Compare on nassCDS, rwm5yr, gss_wages and Fertility; goes on where it was interrupted."""
    from experiments.tables.contenders import PLAIN, PRIVATE
    from experiments.tables.data import TASKS
    from experiments.tables.table import (
        ahead_as_text,
        as_text,
        cells,
        known_cells,
        references_as_text,
    )

    if not any((data / f"{task.file}.parquet").is_file() for task in TASKS):
        raise InvalidInput(f"The 'data' option must be a folder of these tables. {data} has none.")
    folder = output_folder(out)
    wanted = tuple(int(part) for part in queries.split(","))
    epsilons = tuple(float(part) for part in epsilon.split(","))
    methods = tuple(method or (*PLAIN, *PRIVATE))
    if unknown := set(methods) - {*PLAIN, *PRIVATE}:
        raise InvalidInput(
            f"The 'method' option must be one of {', '.join((*PLAIN, *PRIVATE))}. "
            f"Got {min(unknown)!r}."
        )
    kept, others = folder / f"{NAME}.cells.jsonl", merge or []
    if known:
        found = [
            cell
            for cell in known_cells([*others, kept]).values()
            if cell.run < runs
            and cell.n_queries in wanted
            and cell.method in methods
            and cell.epsilon in (None, *epsilons)
        ]
    else:
        found = list(cells(data, runs, wanted, epsilons, methods, kept, others))
    tables = (as_text(found), ahead_as_text(found), references_as_text(found))
    text = with_notes("\n\n".join(tables), NOTE)
    write_table(out, NAME, result_of(NAME, NOTE, found), text, json=json)
