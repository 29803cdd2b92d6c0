"""`accuracy`: all methods side by side."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from experiments.commands.options import OUT, AgTest, AgTrain, text_benchmark, texts, write_table
from vicinal.cli.options import Json
from vicinal.cli.output import create_output_folder, show_progress_bars
from vicinal.errors import InvalidInput

if TYPE_CHECKING:
    from experiments.trials import Benchmark
    from vicinal.progress import Begin

ACCURACY = "accuracy"

HOG = "hog"
SCATTERING = "scattering"
LITE0 = "lite0"

NOTE = (
    "Simulated with seeded noise on public data: these figures show accuracy and carry no "
    "guarantee. All methods have the same features (mapped by public rows), records and "
    "queries; run r has public split r and noise seed r; mean ± standard deviation of one run; "
    "delta 1e-5. Nothing is tuned on labels: Ind-KNN plans from public rows, also the radius and "
    "noise of Zhu et al. 2023; Private-kNN and PATE keep their papers' proportions, noise "
    "calibrated to epsilon; NoisySGD has its defaults and answers any number of queries. In "
    "brackets: the share of queries that a screening let through; accuracy counts the others as "
    "wrong."
)

_QUICK = ((0.5, 1.0, 2.0), (1000, 4000), 2)
_FULL = ((0.25, 0.5, 1.0, 2.0, 4.0), (500, 1000, 2000, 4000, 8000), 5)
_METHODS = (
    "zhu2023", "default", "labels", "private-knn",
    "private-knn-screened", "pate", "pate-screened", "noisy-sgd", "not-private",
)  # fmt: skip

_IMAGES = "npz with x_train, y_train, x_test, y_test"

Mnist = Annotated[bool, typer.Option("--mnist/--no-mnist", help="With the shipped MNIST.")]
Fashion = Annotated[Path | None, typer.Option(help=f"Fashion-MNIST: {_IMAGES}.")]
Cifar = Annotated[Path | None, typer.Option(help=f"CIFAR-10: {_IMAGES}.")]
Vectors = Annotated[
    list[str] | None,
    typer.Option(help="NAME=FILE.npz of features in place of images; may be given several times."),
]
Resume = Annotated[bool, typer.Option("--resume", help="Go on with what the folder holds.")]
Out = Annotated[Path, typer.Option(help="Folder for results, tables and pictures.")]


@dataclass(frozen=True, slots=True)
class _Source:
    """A data set by its name, loaded when its turn comes."""

    name: str
    load: Callable[[Begin], Benchmark]


def sources(
    mnist: bool, fashion: Path | None, cifar: Path | None,
    agnews: tuple[Path | None, Path | None], folder: Path, features: str = HOG,
    vectors: Sequence[str] = (),
) -> list[_Source]:  # fmt: skip
    """Return the data sets that options name; features of images lie in the folder."""
    from vicinal.datasets import load_mnist, load_table

    found = [_image_source("MNIST", load_mnist, features, folder)] if mnist else []
    if fashion is not None:
        found.append(_image_source("Fashion-MNIST", partial(load_table, fashion), features, folder))
    if cifar is not None:
        found.append(_image_source("CIFAR-10", partial(load_table, cifar), features, folder))
    if (paths := texts(*agnews)) is not None:
        found.append(_Source("AG News", lambda begin: text_benchmark(paths, folder, begin)))
    for name, _, file in (given.partition("=") for given in vectors):
        found.append(_Source(name, partial(_vectors, Path(file))))
    if not found:
        raise InvalidInput("There must be a data set: give the files of at least one.")
    return found


def _vectors(path: Path, _begin: Begin) -> Benchmark:
    from experiments.feature_cache import vectors_npz

    return vectors_npz(path)


def _image_source(name: str, load: Callable[[], Any], features: str, folder: Path) -> _Source:
    from experiments import feature_maps

    maps = {SCATTERING: feature_maps.SCATTERING, LITE0: feature_maps.LITE0, HOG: feature_maps.HOG}
    used, words = maps[features], name if features == HOG else f"{name}, {features}"
    return _Source(words, lambda begin: used.benchmark(load(), range(10), begin, folder))


def accuracy(
    mnist: Mnist = True,
    fashion: Fashion = None,
    cifar: Cifar = None,
    agnews_train: AgTrain = None,
    agnews_test: AgTest = None,
    vectors: Vectors = None,
    methods: Annotated[
        list[str] | None, typer.Option(help="May be given several times; else all but hashing.")
    ] = None,
    epsilon: Annotated[list[float] | None, typer.Option(help="Several times.")] = None,
    queries: Annotated[list[int] | None, typer.Option(help="Several times.", min=1)] = None,
    full: Annotated[
        bool, typer.Option("--full", help="epsilon .25 to 4, T 500 to 8,000, 5 runs: hours.")
    ] = False,
    runs: Annotated[
        int | None, typer.Option(help="Splits and seeds; else 2, or 5 with --full.", min=1)
    ] = None,
    first_run: Annotated[int, typer.Option(help="Number of the first run.", min=0)] = 0,
    public_rows: Annotated[
        int, typer.Option(help="At most, of what queries leave of the test part.", min=1)
    ] = 5000,
    records: Annotated[int | None, typer.Option(help="Private records, at most.", min=1)] = None,
    held_out: Annotated[
        int, typer.Option(help="Training rows that join the test part, for more queries.", min=0)
    ] = 0,
    cache: Annotated[
        Path | None, typer.Option(help="Folder that keeps features; else that of the results.")
    ] = None,
    features: Annotated[
        str, typer.Option(help="Of images: hog, scattering, or lite0 (EfficientNet).")
    ] = HOG,
    resume: Resume = False,
    json: Json = False,
    out: Out = OUT,
) -> None:
    """Every method on every data set: epsilon .5, 1, 2 with T 1,000 and 4,000, unless told.

    An interrupted run goes on with --resume; the same folder can take more methods or settings.
    """
    from experiments.accuracy import grid
    from experiments.accuracy.methods import chosen
    from experiments.accuracy.result_cache import SUFFIX, Cells
    from experiments.accuracy.table import crossings, entries, text_tables
    from vicinal import __version__
    from vicinal.reports.text import format_duration

    if features not in (HOG, SCATTERING, LITE0):
        raise InvalidInput(f"'features' must be {HOG}, {SCATTERING} or {LITE0}. Got {features!r}.")
    if not all(0 < value < math.inf for value in epsilon or ()):
        raise InvalidInput(f"'epsilon' must be a number above 0. Got {epsilon}.")
    epsilons, counts, n_runs = _FULL if full else _QUICK
    table = grid.Table(
        chosen(methods, _METHODS),
        tuple(epsilon or epsilons),
        tuple(dict.fromkeys(queries or counts)),
        runs or n_runs,
        first_run,
        public_rows,
        records,
    )
    folder = create_output_folder(out)
    agnews = agnews_train, agnews_test
    kept = folder if cache is None else create_output_folder(cache)
    given = sources(mnist, fashion, cifar, agnews, kept, features, vectors or ())
    cells = Cells.at(folder / f"{ACCURACY}{SUFFIX}", resume=resume)
    if not json:
        expected = format_duration(grid.work(table) * len(given) / 1000)
        announced = f"About {expected} of processor time, besides features; --resume goes on later."
        typer.echo(announced, err=True)
    with show_progress_bars(silent=json) as begin:
        for source in given:
            benchmark = _held_out(source.load(begin), held_out)
            step = begin(source.name, grid.work(table))
            grid.measure(source.name, benchmark, table, cells, step)
    found = entries(cells)
    text = "\n\n".join([text_tables(found), *crossings(found)])
    rows = [entry.to_dict() for entry in found]
    write_table(
        folder, ACCURACY, text, NOTE, json=json, simulation=True, rows=rows, version=__version__
    )


def _held_out(benchmark: Benchmark, n_rows: int) -> Benchmark:
    """Return the same data with the last `n_rows` of the training part in the test part."""
    import numpy as np

    n_records = len(benchmark.records) - n_rows
    if n_records <= 0:
        raise InvalidInput(
            f"The training part must have more than {n_rows} rows, of which so many are held out. "
            f"Got {len(benchmark.records)}."
        )
    return replace(
        benchmark,
        records=benchmark.records[:n_records],
        labels=benchmark.labels[:n_records],
        test=np.concatenate([benchmark.test, benchmark.records[n_records:]]),
        test_labels=np.concatenate([benchmark.test_labels, benchmark.labels[n_records:]]),
    )
