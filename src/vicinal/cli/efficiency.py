"""`vicinal reproduce indknn-efficiency`: hashing, other indexes and reuse, as in the paper."""

from __future__ import annotations

import textwrap
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from vicinal.cli.output import as_json, output_folder, write_file
from vicinal.cli.progress import progress

NAME = "indknn-efficiency"

NOTE = (
    "60,000 private records, HOG half-whitened, epsilon 1, 1,000 queries planned. Recall is the "
    "share of the records inside the radius that an index finds; ms a query are whole answers, "
    "noise included, in blocks of 256 (the paper's algorithm: query by query over the lists of a "
    "block). Simulated with seeded noise on public data, without a guarantee."
)


def reproduce_efficiency(
    data: Annotated[
        Path | None,
        typer.Option(help="npz with x_train, y_train, x_test, y_test; else the shipped MNIST."),
    ] = None,
    tau: Annotated[float, typer.Option(help="The published algorithm's radius.")] = 0.4,
    multiplier: Annotated[float, typer.Option(help="Its noise multiplier.")] = 0.6,
    runs: Annotated[int, typer.Option(help="Splits and seeds.", min=1)] = 5,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    out: Annotated[Path, typer.Option(help="Folder for the table, as text and JSON.")] = Path(
        "out/reproduce"
    ),
) -> None:
    """Hashing as in Table 3 and Figure 4 of Zhu et al. 2023, other indexes, reuse of answers."""
    from vicinal.datasets import image_npz, load_mnist
    from vicinal.reports import efficiency
    from vicinal.reports.inputs import image_benchmark

    folder = output_folder(out)
    dataset = load_mnist() if data is None else image_npz(data)
    with progress(silent=json) as begin:
        benchmark = image_benchmark(dataset, range(10), begin)
        step = begin("indexes and reuse", efficiency.work(runs))
        indexes, reuses = efficiency.measure(benchmark, runs, tau, multiplier, step)
    result = {
        "experiment": NAME,
        "simulation": True,
        "note": NOTE,
        "indexes": [asdict(row) for row in indexes],
        "reuse": [asdict(row) for row in reuses],
    }
    table = f"{efficiency.text_tables(indexes, reuses)}\n\n{textwrap.fill(NOTE, 88)}"
    write_file(folder / f"{NAME}.json", as_json(result) + "\n")
    write_file(folder / f"{NAME}.txt", table + "\n")
    typer.echo(as_json(result) if json else table)
