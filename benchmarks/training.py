"""What a private model costs: its training by the clock and of processors, and an answer.

`python -m benchmarks --only training`; made-up records, noise seeded, so without a
guarantee.
"""

import time
import warnings
from collections.abc import Iterator
from typing import Any
from unittest.mock import patch

import numpy as np

from vicinal.errors import PrivacyWarning
from vicinal.planning.engine_factory import train_and_charge_model
from vicinal.predictors import IndKNNClassifier

CLASSES, FEATURES, PUBLIC, BLOCK = 10, 100, 2000, 1024


class Stopwatch:
    """Seconds of the calls of a function: `clock`, and of all processors, `processor`."""

    def __init__(self, work: Any) -> None:
        self._work = work
        self.clock = self.processor = 0.0

    def __call__(self, *arguments: Any) -> Any:
        """Call the function and keep what it took."""
        clock, processor = time.perf_counter(), time.process_time()
        try:
            return self._work(*arguments)
        finally:
            self.clock = time.perf_counter() - clock
            self.processor = time.process_time() - processor


def figures(n: int) -> Iterator[tuple[str, float, float, str]]:
    """Yield names, figures, goals and units for `n` records of 100 features, 10 classes."""
    warnings.simplefilter("ignore", PrivacyWarning)
    rng = np.random.default_rng(0)
    centers = rng.normal(size=(CLASSES, FEATURES))

    def drawn(count: int) -> tuple[Any, Any]:
        labels = rng.integers(0, CLASSES, count)
        return centers[labels] / 3 + rng.normal(size=(count, FEATURES)), labels

    (public, _), (queries, _) = drawn(PUBLIC), drawn(4 * BLOCK)
    fitted(drawn(3000), public)  # compiles
    whole, training = Stopwatch(fitted), Stopwatch(train_and_charge_model)
    with patch("vicinal.planning.engine_factory.train_and_charge_model", training):
        classifier = whole(drawn(n), public)
    size = f"n = {n:,}, d = {FEATURES}"
    yield f"training of a private model, {size}", training.clock, 3, "s"
    yield "the same, of processors", training.processor, 3, "s of cpu"
    yield f"fit with it, {size}, of processors", whole.processor, float("inf"), "s of cpu"
    blocks = [queries[start : start + BLOCK] for start in range(0, len(queries), BLOCK)]
    classifier.query(blocks[0])
    answers = Stopwatch(classifier.query)
    least, asked = min(_answered(answers, block) for block in blocks[1:])
    yield f"an answer where it answers {1 - asked:.0%}, of processors", least, 0.08, "ms of cpu"


def fitted(records: tuple[Any, Any], public: Any) -> IndKNNClassifier:
    X, y = records
    return IndKNNClassifier(
        range(CLASSES), n_queries=8000, release="label", n_records=len(X), model_share="auto",
        simulation_seed=0,
    ).fit(X, y, public=public)  # fmt: skip


def _answered(answers: Stopwatch, block: Any) -> tuple[float, float]:
    asked = float(answers(block).asked.mean())
    return 1000 * answers.processor / len(block), asked
