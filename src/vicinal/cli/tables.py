"""What commands of `vicinal reproduce` share: options, the images, and how a table is written."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vicinal.cli.output import as_json, write_file

if TYPE_CHECKING:
    from vicinal.datasets import Dataset
    from vicinal.reports.experiments import Benchmark
    from vicinal.reports.steps import Begin

Data = Annotated[
    Path | None,
    typer.Option(help="npz with x_train, y_train, x_test, y_test; else the shipped MNIST."),
]
Runs = Annotated[int, typer.Option(help="Splits and seeds.", min=1)]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
Out = Annotated[Path, typer.Option(help="Folder for the table, as text and JSON.")]

OUT = Path("out/reproduce")

_WIDTH = 88
"""Columns of running text."""


def images(data: Path | None) -> Dataset:
    """Return the images of a file, or the shipped MNIST."""
    from vicinal.datasets import image_npz, load_mnist

    return load_mnist() if data is None else image_npz(data)


def benchmark(data: Path | None, begin: Begin) -> Benchmark:
    """Return HOG features of those images, of ten classes."""
    from vicinal.reports.inputs import image_benchmark

    return image_benchmark(images(data), range(10), begin)


def result_of(name: str, note: str, rows: Iterable[Any]) -> dict[str, Any]:
    """Return the rows of a simulated experiment, for JSON."""
    plain = [row.to_dict() for row in rows]
    return {"experiment": name, "simulation": True, "note": note, "rows": plain}


def with_notes(table: str, *notes: str) -> str:
    """Return a table with what has to be said about it."""
    return "\n\n".join([table, *(textwrap.fill(note, _WIDTH) for note in notes)])


def write_table(folder: Path, name: str, result: dict[str, Any], text: str, *, json: bool) -> None:
    """Write a table into a folder, as JSON and as text, and print one of them.

    Raises
    ------
    InvalidInput
        If it cannot be written.
    """
    write_file(folder / f"{name}.json", as_json(result) + "\n")
    write_file(folder / f"{name}.txt", text + "\n")
    typer.echo(as_json(result) if json else text)
