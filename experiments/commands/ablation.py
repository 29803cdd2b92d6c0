"""`ablation`: what public feature maps buy."""

from __future__ import annotations

import time

from experiments.commands.options import OUT, Data, Out, Runs, images, with_notes, write_table
from vicinal.cli import Json, output_folder, peak_memory, progress

NAME = "ablation"

NOTE = (
    "The training part is private, 5,000 test rows are public, delta 1e-5; run r has split "
    "and noise r; mean, and spread of a run. Only the feature map differs; nothing is tuned to a "
    "plan. NoisySGD trains once for all queries and takes the same rows. Simulated with seeded "
    "noise on public data, without a guarantee."
)


def ablation(data: Data = None, runs: Runs = 5, json: Json = False, out: Out = OUT) -> None:
    """Accuracy on several public feature maps: HOG and wavelet scattering, by what leaves."""
    from experiments.planning import feature_maps

    start = time.perf_counter()
    folder = output_folder(out)
    dataset = images(data)
    with progress(silent=json) as begin:
        rows = feature_maps.measure(dataset, range(10), runs, begin)
    result = {
        "experiment": NAME,
        "simulation": True,
        "note": NOTE,
        "n_records": len(dataset.split()[0]),
        "rows": [row.to_dict() for row in rows],
        "seconds": round(time.perf_counter() - start, 1),
        "peak_memory_bytes": peak_memory(),
    }
    text = with_notes(feature_maps.text_table(rows), NOTE)
    write_table(folder, NAME, result, text, json=json)
