"""`indknn-labels`: what labels alone, and a gate, buy."""

from __future__ import annotations

from experiments.commands.options import (
    OUT,
    Data,
    Out,
    Runs,
    benchmark,
    result_of,
    with_notes,
    write_table,
)
from vicinal.cli import Json, output_folder, progress

NAME = "indknn-labels"

NOTE = (
    "60,000 private records, HOG half-whitened, delta 1e-5, nothing tuned; mean, spread of a run "
    "over public splits. Asked is the share of queries that private records were asked. Simulated "
    "with seeded noise on public data, without a guarantee."
)


def indknn_labels(data: Data = None, runs: Runs = 5, json: Json = False, out: Out = OUT) -> None:
    """Accuracy where votes leave, labels alone, and labels alone behind a gate."""
    from experiments.planning import releases

    folder = output_folder(out)
    with progress(silent=json) as begin:
        images = benchmark(data, begin)
        rows = releases.measure(images, runs, begin("releases", releases.work(runs)))
    text = with_notes(releases.text_table(rows), NOTE)
    write_table(folder, NAME, result_of(NAME, NOTE, rows), text, json=json)
