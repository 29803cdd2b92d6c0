"""`vicinal reproduce indknn-efficiency` and `indknn-labels`: indexes, reuse, what labels buy."""

from __future__ import annotations

import textwrap
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vicinal.cli.output import as_json, output_folder, write_file
from vicinal.cli.progress import progress

if TYPE_CHECKING:
    from vicinal.reports.experiments import Benchmark
    from vicinal.reports.steps import Begin

NAME = "indknn-efficiency"
LABELS = "indknn-labels"

NOTE = (
    "60,000 private records, HOG half-whitened, epsilon 1, 1,000 queries planned. Recall is the "
    "share of the records inside the radius that an index finds; ms a query are whole answers, "
    "noise included, in blocks of 256 (the paper's algorithm: query by query over the lists of a "
    "block). Simulated with seeded noise on public data, without a guarantee."
)


LABELS_NOTE = (
    "60,000 private records, HOG half-whitened, delta 1e-5, nothing tuned; mean, spread of a run "
    "over public splits. Asked is the share of queries that private records were asked. Simulated "
    "with seeded noise on public data, without a guarantee."
)

Data = Annotated[
    Path | None,
    typer.Option(help="npz with x_train, y_train, x_test, y_test; else the shipped MNIST."),
]
Runs = Annotated[int, typer.Option(help="Splits and seeds.", min=1)]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
Out = Annotated[Path, typer.Option(help="Folder for the table, as text and JSON.")]

_OUT = Path("out/reproduce")


def reproduce_efficiency(
    data: Data = None,
    tau: Annotated[float, typer.Option(help="The published algorithm's radius.")] = 0.4,
    multiplier: Annotated[float, typer.Option(help="Its noise multiplier.")] = 0.6,
    runs: Runs = 5,
    json: Json = False,
    out: Out = _OUT,
) -> None:
    """Hashing as in Table 3 and Figure 4 of Zhu et al. 2023, other indexes, reuse of answers."""
    from vicinal.reports import efficiency

    with progress(silent=json) as begin:
        benchmark = _images(data, begin)
        step = begin("indexes and reuse", efficiency.work(runs))
        indexes, reuses = efficiency.measure(benchmark, runs, tau, multiplier, step)
    result = {
        "experiment": NAME,
        "simulation": True,
        "note": NOTE,
        "indexes": [asdict(row) for row in indexes],
        "reuse": [asdict(row) for row in reuses],
    }
    _write(NAME, result, efficiency.text_tables(indexes, reuses), NOTE, json=json, out=out)


def reproduce_labels(
    data: Data = None, runs: Runs = 5, json: Json = False, out: Out = _OUT
) -> None:
    """Accuracy where votes leave, labels alone, and labels alone behind a gate."""
    from vicinal.reports import releases

    with progress(silent=json) as begin:
        benchmark = _images(data, begin)
        rows = releases.measure(benchmark, runs, begin("releases", releases.work(runs)))
    result = {
        "experiment": LABELS,
        "simulation": True,
        "note": LABELS_NOTE,
        "rows": [row.to_dict() for row in rows],
    }
    _write(LABELS, result, releases.text_table(rows), LABELS_NOTE, json=json, out=out)


def _images(data: Path | None, begin: Begin) -> Benchmark:
    from vicinal.datasets import image_npz, load_mnist
    from vicinal.reports.inputs import image_benchmark

    return image_benchmark(load_mnist() if data is None else image_npz(data), range(10), begin)


def _write(
    name: str, result: dict[str, Any], table: str, note: str, *, json: bool, out: Path
) -> None:
    """Write the table as JSON and as text, and print one of them."""
    folder = output_folder(out)
    text = f"{table}\n\n{textwrap.fill(note, 88)}"
    write_file(folder / f"{name}.json", as_json(result) + "\n")
    write_file(folder / f"{name}.txt", text + "\n")
    typer.echo(as_json(result) if json else text)
