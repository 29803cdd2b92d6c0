"""Accuracy beside a private model: ``python -m benchmarks.frontier``.

HOG features, half-whitened, 100 components learnt on 2,000 public rows of the test set; queries
from its rest; delta 1e-5, labels alone; noise seeded, so without a guarantee. "auto" is beside a
private model, the others are without one.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from vicinal.errors import PrivacyWarning
from vicinal.features import HOGFeatures, PublicMap
from vicinal.predictors import IndKNNClassifier, NoisySGDClassifier

Rows = Any
PUBLIC = 2000


@dataclass(frozen=True, slots=True, eq=False)
class Split:
    """Mapped features, labels and queries of a data set."""

    records: Rows
    labels: Rows
    public: Rows
    queries: Rows
    truth: Rows


def split(path: Path) -> Split:
    """Return one split of a data set of 28 x 28 images, x_train, y_train, x_test, y_test."""
    with np.load(path) as data:
        hog = HOGFeatures()
        train, test = hog.transform(data["x_train"]), hog.transform(data["x_test"])
        labels, truth = data["y_train"].astype(int), data["y_test"].astype(int)
    order = np.random.default_rng(0).permutation(len(test))
    public, rest = order[:PUBLIC], order[PUBLIC:]
    found = PublicMap(100).fit(test[public])
    maps = [found.transform(rows) for rows in (train, test[public], test[rest])]
    return Split(maps[0], labels, maps[1], maps[2], truth[rest])


def lines(data: Split, epsilons: list[float], lengths: list[int], seeds: int) -> Iterator[str]:
    """Yield a line for every epsilon and number of queries: mean accuracies over seeds."""
    for epsilon in epsilons:
        models = [_noisy_sgd(data, epsilon, seed) for seed in range(seeds)]
        for n_queries in lengths:
            cells: dict[str, list[float]] = {
                "NoisySGD": [],
                "neighbours": [],
                "gate": [],
                "auto": [],
                "its model": [],
            }
            for seed in range(seeds):
                part = slice(seed * n_queries, (seed + 1) * n_queries)
                part = slice(0, n_queries) if part.stop > len(data.queries) else part
                truth = data.truth[part]
                cells["NoisySGD"].append((models[seed][part] == truth).mean())
                plain = _ind_knn(data, epsilon, part, seed)
                gated = _ind_knn(data, epsilon, part, seed, reuse_predictions="gate")
                both = _ind_knn(data, epsilon, part, seed, model_share="auto")
                cells["neighbours"].append(plain[0])
                cells["gate"].append(gated[0])
                cells["auto"].append(both[0])
                cells["its model"].append(both[1])
            row = "  ".join(f"{name} {np.mean(found):.4f}" for name, found in cells.items())
            yield f"epsilon {epsilon:g}, T = {n_queries}:  {row}"


def _noisy_sgd(data: Split, epsilon: float, seed: int) -> Rows:
    model = NoisySGDClassifier(
        range(10), epsilon, n_records=len(data.records), simulation_seed=seed
    ).fit(data.records, data.labels)
    return model.predict(data.queries)


def _ind_knn(
    data: Split, epsilon: float, part: slice, seed: int, **options: Any
) -> tuple[float, float]:
    """Return the accuracy, and that of the private model alone (nan without one)."""
    queries, truth = data.queries[part], data.truth[part]
    classifier = IndKNNClassifier(
        range(10), epsilon, n_queries=len(queries), release="label",
        n_records=len(data.records), simulation_seed=seed, **{"model_share": 0, **options},
    ).fit(data.records, data.labels, public=data.public)  # fmt: skip
    alone = float("nan")
    if (model := classifier._model) is not None:
        alone = float((model.prior(queries).argmax(axis=1) == truth).mean())
    return float((classifier.predict(queries) == truth).mean()), alone


def times(data: Split, n_queries: int = 8000, block: int = 1024, turns: int = 3) -> Iterator[str]:
    """Yield processor time of fit and of an answer, beside a model and without, in turns."""
    fitted = {}
    for name, share in (("auto", "auto"), ("neighbours", 0)):
        start = time.process_time()
        fitted[name] = IndKNNClassifier(
            range(10), n_queries=n_queries, release="label", n_records=len(data.records),
            model_share=share, simulation_seed=0,
        ).fit(data.records, data.labels, public=data.public)  # fmt: skip
        yield f"{name}: fit {time.process_time() - start:.2f} s"
    for turn in range(turns + 1):
        queries = data.queries[turn * block : (turn + 1) * block]
        for name, classifier in fitted.items():
            start = time.process_time()
            asked = classifier.query(queries).asked.mean()
            each = 1000 * (time.process_time() - start) / block
            if turn:  # the first block compiles
                yield f"{name}: {each:.4f} ms an answer, {asked:.0%} asked"


def main() -> None:
    """Print the table of a data set."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path, help="an .npz of images, such as mnist.npz")
    parser.add_argument("--epsilon", type=float, nargs="+", default=[0.5, 1.0])
    parser.add_argument("--queries", type=int, nargs="+", default=[1000, 4000])
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--time", action="store_true", help="processor times instead")
    given = parser.parse_args()
    warnings.simplefilter("ignore", PrivacyWarning)
    data = split(given.data)
    found = times(data) if given.time else lines(data, given.epsilon, given.queries, given.seeds)
    for line in found:
        print(line, flush=True)


if __name__ == "__main__":
    main()
