"""`vicinal reproduce ablation`: what public feature maps buy."""

from __future__ import annotations

import textwrap
import time
from pathlib import Path
from typing import Annotated

import typer

from vicinal.cli.output import as_json, output_folder, peak_memory, write_file
from vicinal.cli.progress import progress

NAME = "ablation"

NOTE = (
    "The training part is private, 5,000 test rows are public, delta 1e-5; run r has split "
    "and noise r; mean, and spread of a run. Only the feature map differs; nothing is tuned to a "
    "plan. NoisySGD trains once for all queries and takes the same rows. Simulated with seeded "
    "noise on public data, without a guarantee."
)


def reproduce_ablation(
    data: Annotated[
        Path | None,
        typer.Option(help="npz with x_train, y_train, x_test, y_test; else the shipped MNIST."),
    ] = None,
    runs: Annotated[int, typer.Option(help="Splits and seeds.", min=1)] = 5,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    out: Annotated[Path, typer.Option(help="Folder for the table, as text and JSON.")] = Path(
        "out/reproduce"
    ),
) -> None:
    """Accuracy on several public feature maps: HOG and wavelet scattering, by what leaves."""
    from vicinal.datasets import image_npz, load_mnist
    from vicinal.reports import feature_maps

    start = time.perf_counter()
    folder = output_folder(out)
    dataset = load_mnist() if data is None else image_npz(data)
    with progress(silent=json) as begin:
        rows = feature_maps.measure(dataset, range(10), runs, begin)
    result = {
        "experiment": NAME,
        "simulation": True,
        "note": NOTE,
        "n_records": len(dataset.split()[0]),
        "rows": [row.to_dict() for row in rows],
        "seconds": round(time.perf_counter() - start, 1),
        "peak_memory_bytes": peak_memory(),
    }
    text = f"{feature_maps.text_table(rows)}\n\n{textwrap.fill(NOTE, 88)}"
    write_file(folder / f"{NAME}.json", as_json(result) + "\n")
    write_file(folder / f"{NAME}.txt", text + "\n")
    typer.echo(as_json(result) if json else text)
