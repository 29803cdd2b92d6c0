"""`vicinal reproduce planning` and `wear`: what tuning would gain, what a shadow tells."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vicinal.cli.output import as_json, output_folder, write_file
from vicinal.cli.progress import progress

if TYPE_CHECKING:
    from vicinal.reports.experiments import Benchmark
    from vicinal.reports.steps import Begin

PLANNING = "planning"
WEAR = "wear"

PLANNING_NOTE = (
    "All training rows private, HOG half-whitened, delta 1e-5, 5,000 public reference points; "
    "means over public splits. The oracle takes the k and the noise (multiples of the plan's) with "
    "the best mean accuracy on the queries themselves, which nobody could do. Foretold: accuracy "
    "by simulation on the public points with their labels; unchanged: share of simulated answers "
    "that noise and wear leave as they are, with labels and with clusters in their place. "
    "Simulated with seeded noise on public data, without a guarantee."
)

WEAR_NOTE = (
    "All training rows private, HOG half-whitened, delta 1e-5; means over public splits. Used: "
    "mean share of budgets used at the end, as the shadow ledger tells it, and the truth; spent: "
    "share of people with less than 1 % left, the same; by region: mean error of the share used "
    "over 16 regions; blind: that error for somebody who knows the true mean, and no regions. A "
    "tenth of a skewed stream is drawn from all queries; a region is the nearest 5 % of them. The "
    "true budgets are private: they may be looked up here because the data is public. Simulated "
    "with seeded noise, without a guarantee."
)

Data = Annotated[
    Path | None,
    typer.Option(help="npz with x_train, y_train, x_test, y_test; else the shipped MNIST."),
]
Runs = Annotated[int, typer.Option(help="Splits and seeds.", min=1)]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
Out = Annotated[Path, typer.Option(help="Folder for the table, as text and JSON.")]

_OUT = Path("out/reproduce")


def reproduce_planning(
    data: Data = None, runs: Runs = 3, json: Json = False, out: Out = _OUT
) -> None:
    """Compare the default plan with an oracle tuned on test labels, and with what was foretold."""
    from vicinal.reports import tuning

    folder = output_folder(out)
    with progress(silent=json) as begin:
        benchmark = _images(data, begin)
        rows = tuning.measure(benchmark, runs, begin("planning", tuning.work(runs)))
    result = _result(PLANNING, PLANNING_NOTE, rows)
    _write(folder, PLANNING, result, tuning.text_table(rows), PLANNING_NOTE, json=json)


def reproduce_wear(data: Data = None, runs: Runs = 3, json: Json = False, out: Out = _OUT) -> None:
    """Compare a shadow ledger's wear with the truth, and noise that follows it with fixed noise."""
    from vicinal.reports import wear
    from vicinal.reports.outlook_plot import draw_wear

    folder = output_folder(out)
    with progress(silent=json) as begin:
        benchmark = _images(data, begin)
        rows = wear.measure(benchmark, runs, begin("streams", wear.work(runs)))
    write_file(folder / f"{WEAR}.png", draw_wear(rows))
    result = _result(WEAR, WEAR_NOTE, rows)
    _write(folder, WEAR, result, wear.text_table(rows), WEAR_NOTE, json=json)


def _images(data: Path | None, begin: Begin) -> Benchmark:
    from vicinal.datasets import image_npz, load_mnist
    from vicinal.reports.inputs import image_benchmark

    return image_benchmark(load_mnist() if data is None else image_npz(data), range(10), begin)


def _result(name: str, note: str, rows: Any) -> dict[str, Any]:
    plain = [row.to_dict() for row in rows]
    return {"experiment": name, "simulation": True, "note": note, "rows": plain}


def _write(
    folder: Path, name: str, result: dict[str, Any], table: str, note: str, *, json: bool
) -> None:
    """Write the table as JSON and as text, and print one of them."""
    text = f"{table}\n\n{textwrap.fill(note, 88)}"
    write_file(folder / f"{name}.json", as_json(result) + "\n")
    write_file(folder / f"{name}.txt", text + "\n")
    typer.echo(as_json(result) if json else text)
