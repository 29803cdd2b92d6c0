"""`indknn-efficiency` and `indknn-labels`: indexes, reuse, what labels buy."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

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
from vicinal.cli._options import Json
from vicinal.cli._output import output_folder, progress

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


def indknn_efficiency(
    data: Data = None,
    tau: Annotated[float, typer.Option(help="The published algorithm's radius.")] = 0.4,
    multiplier: Annotated[float, typer.Option(help="Its noise multiplier.")] = 0.6,
    runs: Runs = 5,
    json: Json = False,
    out: Out = OUT,
) -> None:
    """Hashing as in Table 3 and Figure 4 of Zhu et al. 2023, other indexes, reuse of answers."""
    from experiments.planning import efficiency

    folder = output_folder(out)
    with progress(silent=json) as begin:
        images = benchmark(data, begin)
        step = begin("indexes and reuse", efficiency.work(runs))
        indexes, reuses = efficiency.measure(images, runs, tau, multiplier, step)
    result = {
        "experiment": NAME,
        "simulation": True,
        "note": NOTE,
        "indexes": [asdict(row) for row in indexes],
        "reuse": [asdict(row) for row in reuses],
    }
    text = with_notes(efficiency.text_tables(indexes, reuses), NOTE)
    write_table(folder, NAME, result, text, json=json)


def indknn_labels(data: Data = None, runs: Runs = 5, json: Json = False, out: Out = OUT) -> None:
    """Accuracy where votes leave, labels alone, and labels alone behind a gate."""
    from experiments.planning import releases

    folder = output_folder(out)
    with progress(silent=json) as begin:
        images = benchmark(data, begin)
        rows = releases.measure(images, runs, begin("releases", releases.work(runs)))
    result = result_of(LABELS, LABELS_NOTE, rows)
    text = with_notes(releases.text_table(rows), LABELS_NOTE)
    write_table(folder, LABELS, result, text, json=json)
