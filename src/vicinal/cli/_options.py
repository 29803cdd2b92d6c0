"""Options that several commands have, each declared once."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
StorePath = Annotated[Path, typer.Argument(metavar="STORE", help="The store's folder.")]
Epsilon = Annotated[float, typer.Option(help="Bound on the privacy loss.")]
Delta = Annotated[float, typer.Option(help="Chance that the bound does not hold.")]
Data = Annotated[
    Path, typer.Option(help="Records: .parquet, .csv, .csv.gz, .npz, or a folder of images.")
]
Label = Annotated[str | None, typer.Option(help="Column of labels.")]
Subject = Annotated[str | None, typer.Option(help="Column of subject ids.")]
Text = Annotated[
    str | None, typer.Option(help="Column of texts whose words records carry, in a store of words.")
]
Audience = Annotated[str, typer.Option(help="Whose budgets and whose plan.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Leave out summaries and guarantee.")]
Ledger = Annotated[
    str | None, typer.Option(help="Keep budgets at this postgresql:// URL; default: SQLite.")
]
Witness = Annotated[
    Path | None, typer.Option(help="File that remembers how far the store came; on another disk.")
]
