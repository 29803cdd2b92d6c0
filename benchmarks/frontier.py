"""Processor time beside a private model: ``python -m benchmarks.frontier``.

MNIST on HOG features, half-whitened, labels alone; noise seeded, so without a guarantee. Its
accuracy is a method of `python -m experiments accuracy --methods model`.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Iterator

from vicinal.datasets import load_mnist
from vicinal.errors import PrivacyWarning
from vicinal.features import PublicMap
from vicinal.predictors import IndKNNClassifier
from vicinal.reports._trials import Trial, image_benchmark, split


def times(trial: Trial, block: int, turns: int = 3) -> Iterator[str]:
    """Yield processor time of fit and of an answer, beside a model and without, in turns."""
    fitted = {}
    for name, share in (("auto", "auto"), ("neighbours", 0)):
        start = time.process_time()
        fitted[name] = IndKNNClassifier(
            range(10), n_queries=len(trial.queries), release="label",
            n_records=len(trial.records), model_share=share, simulation_seed=0,
        ).fit(trial.records, trial.labels, public=trial.reference)  # fmt: skip
        yield f"{name}: fit {time.process_time() - start:.2f} s"
    for turn in range(turns + 1):
        queries = trial.queries[turn * block : (turn + 1) * block]
        for name, classifier in fitted.items():
            start = time.process_time()
            asked = classifier.query(queries).asked.mean()
            each = 1000 * (time.process_time() - start) / block
            if turn:  # the first block compiles
                yield f"{name}: {each:.4f} ms an answer, {asked:.0%} asked"


def main() -> None:
    """Print the times."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.frontier", description=__doc__)
    parser.add_argument("--block", type=int, default=1024, help="queries asked at once")
    given = parser.parse_args()
    warnings.simplefilter("ignore", PrivacyWarning)
    benchmark = image_benchmark(load_mnist(), range(10), lambda _name, _size: lambda _done: None)
    trial = benchmark.trial(PublicMap(), split(len(benchmark.test), 2000, 8000, seed=0))
    for line in times(trial, given.block):
        print(line, flush=True)


if __name__ == "__main__":
    main()
