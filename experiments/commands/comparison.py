"""`python -m experiments`: the tables of the documentation, from the data."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from experiments.commands.options import OUT, Out, benchmark, text_benchmark, write_table
from vicinal.cli.options import Json
from vicinal.cli.output import create_output_folder, show_progress_bars

if TYPE_CHECKING:
    from experiments.accuracy.comparison import Comparison, Row
    from experiments.trials import Benchmark
    from vicinal.progress import Begin


NOTE = (
    "Simulated with seeded noise on public data: these figures show accuracy and carry no "
    "guarantee. Run r has public split r and noise seed r; spread is the standard deviation of "
    "one run. Neighbours alone have nothing tuned. Zhu et al. 2023 is given the best point found "
    "on a grid, by the very accuracy that is reported, which nobody could choose in practice."
)

Runs = Annotated[int, typer.Option(help="Splits and seeds to take the mean over.", min=1)]


def indknn_mnist(runs: Runs = 5, json: Json = False, out: Out = OUT) -> None:
    """Compare on the shipped MNIST: HOG features, 60,000 private records."""
    _reproduce_images("indknn-mnist", None, runs, json=json, out=out)


def indknn_fashion(
    data: Annotated[Path, typer.Option(help="npz with x_train, y_train, x_test, y_test.")],
    runs: Runs = 5,
    json: Json = False,
    out: Out = OUT,
) -> None:
    """Compare on Fashion-MNIST: HOG features, 60,000 private records."""
    _reproduce_images("indknn-fashion", data, runs, json=json, out=out)


def indknn_agnews(
    train: Annotated[Path, typer.Option(help="Table with columns label (0 to 3) and text.")],
    test: Annotated[Path, typer.Option(help="The same, for the reference and the queries.")],
    runs: Runs = 5,
    json: Json = False,
    out: Out = OUT,
) -> None:
    """Compare on AG News: sentence embeddings (extra 'text').

    Embedding takes minutes the first time; embeddings are kept in the output folder, and are as
    private as the texts.
    """
    from experiments.accuracy import recipes

    folder = create_output_folder(out)
    _reproduce(
        "indknn-agnews",
        lambda begin: text_benchmark((train, test), folder, begin),
        recipes.texts(runs),
        json=json,
        out=out,
    )


def _reproduce_images(name: str, data: Path | None, runs: int, *, json: bool, out: Path) -> None:
    from experiments.accuracy import recipes

    _reproduce(name, partial(benchmark, data), recipes.images(runs), json=json, out=out)


def _reproduce(
    name: str,
    load: Callable[[Begin], Benchmark],
    comparisons: tuple[Comparison, ...],
    *,
    json: bool,
    out: Path,
) -> None:
    """Run the comparisons, write the table, and print it."""
    from experiments.accuracy.comparison import text_table
    from vicinal import __version__

    start = time.perf_counter()
    folder = create_output_folder(out)
    rows: list[Row] = []
    with show_progress_bars(silent=json) as begin:
        benchmark = load(begin)
        for comparison in comparisons:
            step = begin(comparison.features, comparison.work)
            rows += comparison.rows(benchmark, step)
    write_table(
        folder, name, text_table(rows), NOTE, json=json, simulation=True,
        n_reference=comparisons[0].n_reference, runs=comparisons[0].runs,
        rows=[row.to_dict() for row in rows], seconds=round(time.perf_counter() - start, 1),
        version=__version__,
    )  # fmt: skip
