"""`planning`: what tuning would gain."""

from __future__ import annotations

from experiments.commands.options import (
    OUT,
    AgTest,
    AgTrain,
    Data,
    Out,
    Runs,
    benchmark,
    result_of,
    text_benchmark,
    texts,
    with_notes,
    write_table,
)
from vicinal.cli._options import Json
from vicinal.cli._output import output_folder, progress

PLANNING = "planning"

PLANNING_NOTE = (
    "All training rows private, HOG or sentence embeddings half-whitened, delta 1e-5, at most "
    "5,000 public reference points; means over public splits. The oracle takes the k and the noise "
    "(multiples of the plan's) with the best mean accuracy on the queries themselves, which nobody "
    "could do. Foretold: accuracy "
    "by simulation on the public points with their labels; unchanged: share of simulated answers "
    "that noise and wear leave as they are, with labels and with clusters in their place. "
    "Simulated with seeded noise on public data, without a guarantee."
)


def planning(
    data: Data = None,
    agnews_train: AgTrain = None,
    agnews_test: AgTest = None,
    runs: Runs = 3,
    json: Json = False,
    out: Out = OUT,
) -> None:
    """Compare the default plan with an oracle tuned on test labels, and with what was foretold.

    On AG News, if its files are given; else on images.
    """
    from experiments.planning import tuning

    folder = output_folder(out)
    paths = texts(agnews_train, agnews_test)
    with progress(silent=json) as begin:
        found = benchmark(data, begin) if paths is None else text_benchmark(paths, folder, begin)
        rows = tuning.measure(found, runs, begin("planning", tuning.work(runs)))
    result = result_of(PLANNING, PLANNING_NOTE, rows)
    text = with_notes(tuning.text_table(rows), PLANNING_NOTE)
    write_table(folder, PLANNING, result, text, json=json)
