"""What experiments share: options, the images, and how a table is written."""

from __future__ import annotations

import csv
import io
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vicinal.cli.output import as_json, write_file
from vicinal.errors import InvalidInput

if TYPE_CHECKING:
    from experiments.trials import Benchmark
    from vicinal.datasets import Dataset
    from vicinal.progress import Begin

Data = Annotated[
    Path | None,
    typer.Option(help="npz with x_train, y_train, x_test, y_test; else the shipped MNIST."),
]
_TEXTS = "Table with columns label (0 to 3) and text"
AgTrain = Annotated[Path | None, typer.Option(help=f"AG News: {_TEXTS}.")]
AgTest = Annotated[Path | None, typer.Option(help="The same, for public rows and queries.")]
Runs = Annotated[int, typer.Option(help="Splits and seeds.", min=1)]
Out = Annotated[Path, typer.Option(help="Folder for the table, as text and JSON.")]

OUT = Path("out/experiments")

_WIDTH = 88
"""Columns of running text."""


def images(data: Path | None) -> Dataset:
    """Return the images of a file, or the shipped MNIST."""
    from vicinal.datasets import load_mnist, load_table

    return load_mnist() if data is None else load_table(data)


def benchmark(data: Path | None, begin: Begin) -> Benchmark:
    """Return HOG features of those images, of ten classes."""
    from experiments.feature_maps import HOG

    return HOG.benchmark(images(data), range(10), begin)


def texts(train: Path | None, test: Path | None) -> tuple[Path, Path] | None:
    """Return both files of AG News, or None for none.

    Raises InvalidInput if one is missing.
    """
    if (train is None) != (test is None):
        raise InvalidInput("The options --agnews-train and --agnews-test belong together.")
    return None if train is None or test is None else (train, test)


def text_benchmark(paths: tuple[Path, Path], folder: Path, begin: Begin) -> Benchmark:
    """Return sentence embeddings of AG News, of four classes; they are kept in the folder."""
    from experiments import text_benchmark as embedded
    from vicinal.datasets import load_table

    train, test = (load_table(path, "label", text="text") for path in paths)
    return embedded.text_benchmark(paths, (train, test), range(4), folder, begin)


def write_table(
    folder: Path, name: str, table: str, *notes: str, json: bool, **fields: Any
) -> None:
    """Write a table into a folder, as text with its notes and as JSON, and print one of them.

    `fields`: what the JSON holds besides the name and the first note. Raises InvalidInput if a file
    cannot be written.
    """
    text = "\n\n".join([table, *(textwrap.fill(note, _WIDTH) for note in notes)])
    result = as_json({"experiment": name, **({"note": notes[0]} if notes else {}), **fields})
    write_file(folder / f"{name}.json", result + "\n")
    write_file(folder / f"{name}.txt", text + "\n")
    typer.echo(result if json else text)


def write_csv(folder: Path, name: str, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write rows of equal fields into a folder, numbers with five digits."""
    text = io.StringIO()
    lines = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    lines.writeheader()
    for row in rows:
        lines.writerow({k: f"{v:.5g}" if isinstance(v, float) else v for k, v in row.items()})
    write_file(folder / f"{name}.csv", text.getvalue())
