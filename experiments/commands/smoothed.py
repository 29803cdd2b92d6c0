"""`smoothed-figures` and `smoothed-reference`: the figures of LWX23, and checked values."""

import time
from pathlib import Path
from typing import Annotated

import typer

from experiments.commands.options import OUT, write_table
from vicinal.cli.options import Json
from vicinal.cli.output import as_json, create_output_folder, write_file


def smoothed_figures(
    databases: Annotated[int, typer.Option(help="Drawn for each point on gradients.", min=2)] = 10,
    json: Json = False,
    out: Annotated[Path, typer.Option(help="Folder for the tables and pictures.")] = OUT,
) -> None:
    """Draw Figures 1 to 5 of the Smoothed DP paper, with their tables."""
    from experiments.smoothed.figures import all_figures, as_text
    from experiments.smoothed.plots import draw_figure

    start, folder = time.perf_counter(), create_output_folder(out)
    figures = all_figures(databases, lambda name: typer.echo(f"Figure {name} ...", err=True))
    for figure in figures:
        picture = f"smoothed-figure-{figure.name.replace(' ', '-')}.png"
        write_file(folder / picture, draw_figure(figure))
    write_table(
        folder, "smoothed-figures", as_text(figures), json=json,
        figures=[figure.to_dict() for figure in figures], databases=databases,
        seconds=round(time.perf_counter() - start, 1),
    )  # fmt: skip


def smoothed_reference(json: Json = False) -> None:
    """Compare every value of the reference file with what is computed here."""
    from experiments.smoothed.reference import as_text, check_reference

    rows = check_reference()
    agree = all(row.agrees for row in rows)
    found = {"agree": agree, "rows": [row.to_dict() for row in rows]}
    typer.echo(as_json(found) if json else as_text(rows))
    if not agree:
        raise typer.Exit(1)
