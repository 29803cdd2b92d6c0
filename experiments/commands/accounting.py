"""`accounting`: the papers' epsilons against ours."""

from pathlib import Path
from typing import Annotated

import typer

from vicinal.cli.options import Json
from vicinal.cli.output import as_json, create_output_folder, write_file


def accounting(
    json: Json = False,
    figures: Annotated[
        Path | None, typer.Option(help="Folder for pictures of what screening costs.")
    ] = None,
) -> None:
    """Print the papers' epsilons against ours, and what would explain those that do not follow."""
    from experiments.accounting import table as printed

    folder = None if figures is None else create_output_folder(figures)
    rows, explained = printed.table(), printed.table(printed.EXPLAINED)
    if folder is not None:
        from experiments.accounting.figures import draw_all

        for name, content in draw_all().items():
            write_file(folder / f"screening-{name}.png", content)
    words = f"{printed.as_text(rows)}\n\n{printed.explanations_text(explained)}"
    typer.echo(as_json({"rows": rows, "explanations": explained}) if json else words)
