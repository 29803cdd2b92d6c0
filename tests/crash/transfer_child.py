"""Two rounds of queries in a process of their own, which a test kills."""

import os
import signal
import tempfile
from pathlib import Path
from unittest.mock import patch

import numpy as np

from vicinal.labelling import (
    FileJournal,
    IndKNNLabeller,
    LabellingPlan,
    LabellingTask,
    PrivateKNNLabeller,
    Round,
    run_labelling,
)
from vicinal.predictors import PrivateKNNClassifier

N, D, POOL, QUESTIONS, CLASSES = 1_000, 12, 1_000, 1_000, 3
BLOCK = 50
"""Questions between two commits: few, so that a round of few queries has many commits."""


class Turned:
    """Features that do not depend on answers, so that every run must cost the same."""

    def __init__(self, number):
        self.number = number

    def transform(self, examples):
        generator = np.random.default_rng(100 + self.number)
        return examples @ generator.normal(size=(D, D))

    def predict_proba(self, examples):
        return np.full((len(examples), CLASSES), 1 / CLASSES)


class Learner:
    def learn(self, _examples, rows, labels, number, _begin, _guide, **_):
        assert len(rows) == len(labels) > 0
        return Turned(number + 1)

    def save(self, student, path, guarantee):
        assert 0 < guarantee.epsilon <= 1.0
        path.write_text(str(student.number))

    def load(self, path):
        return Turned(int(path.read_text()))


SEED = 5


def data(seed=SEED):
    generator = np.random.default_rng(seed)
    labels = generator.integers(CLASSES, size=N)
    centres = generator.normal(size=(CLASSES, D)) * 2
    records = centres[labels] + generator.normal(size=(N, D))
    pool = centres[generator.integers(CLASSES, size=POOL)] + generator.normal(size=(POOL, D))
    return records, labels, pool


def die_at(stage, count):
    """Replace a step of writing by one that kills this process the N-th time."""
    seen = 0

    def deadly(step):
        def replaced(*arguments, **options):
            nonlocal seen
            seen += 1
            if seen == count and stage.startswith("before"):
                os.kill(os.getpid(), signal.SIGKILL)
            result = step(*arguments, **options)
            if seen == count:
                os.kill(os.getpid(), signal.SIGKILL)
            return result

        return replaced

    if stage.endswith("commit"):
        FileJournal.commit = deadly(FileJournal.commit)
    else:
        os.fsync = deadly(os.fsync)


def main(folder, *death, seed=SEED):
    """Carry out rounds of Ind-KNN; `death` is a stage of writing, and at which time it kills."""
    labels, subjects = data(seed)[1], np.arange(N) // 2  # two records a person
    if seed != SEED:
        subjects += N
    labeller = IndKNNLabeller(range(CLASSES), labels, subjects, epsilon=1.0, n_records=N)
    carry_out(folder, labeller, *death, seed=seed)


def main_planned(folder, *death, seed=SEED):
    """Carry out rounds of Private-kNN."""
    labeller = PrivateKNNLabeller(private_knn, plan(), data(seed)[1])
    carry_out(folder, labeller, *death, seed=seed)


def warm_up():
    """Load all code, and price both plans, before the first child: on records of nobody else."""
    for number, run in enumerate((main, main_planned), start=SEED + 1):
        with tempfile.TemporaryDirectory() as folder:
            run(Path(folder), seed=number)


def private_knn(_part):
    return PrivateKNNClassifier(range(CLASSES), 30, 0.3, sigma_votes=400.0)


def plan():
    part = {"queries": QUESTIONS, "share": 0.5, "components": None}
    return LabellingPlan((Round(**part), Round(**part)))


def carry_out(folder, labeller, *death, seed=SEED):
    patch("vicinal.labelling.loop.BLOCK", BLOCK).start()
    if death:
        die_at(*death)
    records, _, pool = data(seed)
    with FileJournal(folder) as kept:
        run_labelling(
            LabellingTask(records, pool, Turned(0)), labeller, Learner(), plan(), kept,
            lambda _name, _size: lambda _done: None,
        )  # fmt: skip
