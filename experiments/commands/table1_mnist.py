"""`table1-mnist`: the student of Private-kNN's Table 1, correctly accounted."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from experiments.commands.options import OUT, images, write_table
from vicinal.cli.labelling import Overlapping
from vicinal.cli.options import Json
from vicinal.cli.output import create_output_folder, show_progress_bars

if TYPE_CHECKING:
    from vicinal.datasets import Dataset

NAME = "table1-mnist"

NOTE = (
    "Simulated with seeded noise on public data: these figures show accuracy and carry no "
    "guarantee. Run r has public split r, noise seed r and training seed r. 60,000 training images "
    "are the private records; 5,000 test images are public and unlabelled; the student is tested "
    "on the other 5,000. Epsilon is over both rounds and the estimate of the size, at delta=1e-5."
)

_STEPS = (500, 800)
"""Steps of training in the first round, and in all later ones."""


def table1_mnist(
    data: Annotated[
        Path | None, typer.Option(help="npz with x_train, y_train, x_test, y_test; else MNIST.")
    ] = None,
    epsilon: Annotated[
        list[float] | None, typer.Option(help="May be given several times; .25, .47 and 1.")
    ] = None,
    rounds: Annotated[int, typer.Option(help="Rounds of asking and learning.", min=1)] = 2,
    runs: Annotated[int, typer.Option(help="Splits and seeds to take the mean over.", min=1)] = 3,
    first_run: Annotated[int, typer.Option(help="Number of the first run.", min=0)] = 0,
    model_keep: Annotated[
        float | None,
        typer.Option(help="Label all in one round beside a private model; learn from this share."),
    ] = None,
    vectors: Annotated[
        Path | None, typer.Option(help="An .npz of features, for records and students, as images.")
    ] = None,
    augmentation: Annotated[str, typer.Option(help="digits or clothes.")] = "digits",
    overlapping: Overlapping = False,
    out: Annotated[Path, typer.Option(help="Folder for the table.")] = OUT,
    json: Json = False,
) -> None:
    """Train the student of ZYCW20's Table 1 by rounds of Ind-KNN."""
    from experiments.students import runs as labelling_runs
    from vicinal import __version__
    from vicinal.students import Recipe, StudentLearner
    from vicinal.students.training import adapt_to_digits, adapt_to_overlapping_classes

    start = time.perf_counter()
    folder = create_output_folder(out)
    dataset = images(data) if vectors is None else _vectors(vectors)
    ensemble = model_keep is not None
    results = []
    with show_progress_bars(silent=json) as begin:
        cached = labelling_runs.Cached(dataset, begin)
        for target in epsilon or (0.25, 0.47, 1.0):
            for run in range(first_run, first_run + runs):
                recipes = [
                    Recipe("uda", "small", augmentation, steps, ensemble=ensemble, seed=run)
                    for steps in (_STEPS if model_keep is None else _STEPS[1:])
                ]
                if model_keep is not None and augmentation == "digits" and not overlapping:
                    recipes = [adapt_to_digits(recipe) for recipe in recipes]
                if vectors is not None:
                    recipes = [Recipe("vat", "mlp", steps=_STEPS[1], seed=run)]
                if vectors is not None and model_keep is not None:
                    recipes = [Recipe("plain", "kernel", ensemble=True, seed=run)]
                if overlapping and vectors is None:
                    recipes = [adapt_to_overlapping_classes(recipe) for recipe in recipes]
                learner = StudentLearner(range(10), recipes)
                world = labelling_runs.World.of(dataset, cached, run)
                results.append(
                    labelling_runs.one_run(
                        world,
                        learner,
                        target,
                        rounds,
                        run,
                        begin,
                        overlapping=overlapping,
                        model_keep=model_keep,
                    )
                )
    given = vectors or data
    name = NAME if given is None else f"table1-{given.stem}"
    words = f"{labelling_runs.PAPER}; {labelling_runs.OURS_OF_PAPER}."
    write_table(
        folder, name, labelling_runs.text_table(results), NOTE, words, json=json, simulation=True,
        paper=words, runs=[result.to_dict() for result in results],
        seconds=round(time.perf_counter() - start, 1), version=__version__,
    )  # fmt: skip


def _vectors(path: Path) -> Dataset:
    """Return features of a file as a data set: whitened by the test part, of length 1."""
    from experiments.feature_cache import vectors_npz
    from vicinal.datasets import Dataset
    from vicinal.features import PublicMap

    found = vectors_npz(path)
    public = PublicMap(**found.learnt).fit(found.test)
    test = Dataset(public.transform(found.test), found.test_labels)
    return Dataset(public.transform(found.records), found.labels, test=test)
