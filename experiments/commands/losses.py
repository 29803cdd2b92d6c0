"""`losses`: where the private model is behind, from results of `accuracy`."""

from pathlib import Path
from typing import Annotated

import typer

from experiments.commands.options import OUT, Out, write_table
from vicinal.cli.options import Json
from vicinal.cli.output import create_output_folder
from vicinal.errors import InvalidInput

NAME = "losses"

NOTE = (
    "Of the runs that the method and all its rivals have. The best rival is the one with the best "
    "mean among them, chosen in hindsight for every cell. Error: standard error of the difference "
    "over runs. Simulated with seeded noise on public data, without a guarantee."
)

OTHER_RUNS = (
    "Of the runs that the method and all its rivals have. The rival of each run is the best one of "
    "the other runs, so that choosing it takes no luck of the run itself. Error: standard error of "
    "the difference over runs. Simulated with seeded noise on public data, without a guarantee."
)

# The results hold a gate of earlier answers, which was a method when they were measured.
RIVALS = "labels,labels-gate,noisy-sgd,least-squares"


def losses(
    files: Annotated[list[Path], typer.Argument(help="Files of results, *.cells.jsonl.")],
    ours: Annotated[str, typer.Option(help="The method.")] = "model",
    rivals: Annotated[str, typer.Option(help="Methods, comma-separated.")] = RIVALS,
    runs: Annotated[str, typer.Option(help="Runs that count, comma-separated.")] = "0,1,2,3,4",
    every: Annotated[bool, typer.Option("--every", help="All cells, not the lost ones.")] = False,
    by_other_runs: Annotated[
        bool, typer.Option("--by-other-runs", help="A run's rival is the best of the other runs.")
    ] = False,
    json: Json = False,
    out: Out = OUT,
) -> None:
    """Where a method is behind the best private rival, and by how much."""
    from experiments.accuracy import losses as made
    from experiments.accuracy.result_cache import Cells

    try:
        wanted = [int(part) for part in runs.split(",")]
    except ValueError:
        raise InvalidInput("The 'runs' parameter must hold numbers, comma-separated.") from None
    scores = {
        place: score for path in files for place, score in Cells.at(path, resume=True).items()
    }
    found = made.standings(scores, ours, rivals.split(","), wanted, by_other_runs=by_other_runs)
    if not found:
        raise InvalidInput("The files must hold results of the method and of a rival.")
    text = f"{made.summary(found)}\n\n{made.text_table(found, every=every)}"
    note = OTHER_RUNS if by_other_runs else NOTE
    rows = [each.to_dict() for each in found]
    write_table(create_output_folder(out), NAME, text, note, json=json, rows=rows)
