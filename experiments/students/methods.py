"""Methods side by side on one public split: who teaches a student, at what price, and how well.

Simulated with seeded noise on public data, as in :mod:`experiments.students.runs`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from experiments.spread import mean_and_spread
from experiments.students.runs import N_PUBLIC, RunResult, World, carried_out
from vicinal._progress import Begin
from vicinal.features import PublicMap
from vicinal.labelling import FixedPlanLabeller, IndKNNLabeller, LabellingPlan, Round, default_plan
from vicinal.labelling._labellers import Learner
from vicinal.predictors import NoisySGDClassifier, PrivateKNNClassifier
from vicinal.reports._outcomes import rightness

K, GAMMA, SIGMA, ANSWERS = 300, 0.2, 20.0, 3877
"""ZYCW20's Private-kNN on CIFAR-10, as far as we know it; k is the one that it states for digits.

What was screened, and how, we do not know: here every question is answered.
"""

PRINTED = 2.92
"""The epsilon that ZYCW20 prints for CIFAR-10."""

DELTA = 1e-5


@dataclass(frozen=True, slots=True)
class Line:
    """One method in one run.

    Attributes
    ----------
    method : str
        Which.
    epsilon : float or None
        What it costs by our accounting at delta 1e-5; None without privacy.
    run : int
        Number of split and seeds.
    answers : float or None
        Share of right answers that the last student learnt from; None where nobody was asked.
    right : float
        Share of test examples that what is published gets right.
    """

    method: str
    epsilon: float | None
    run: int
    answers: float | None
    right: float

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, for JSON."""
        return asdict(self)


def private_knn(world: World, learner: Learner[Any], run: int, begin: Begin) -> Line:
    """Simulate Private-kNN at the paper's known parameters, one round, as many answers."""
    plan = LabellingPlan((Round(ANSWERS, 1.0, keep=1.0),), run)

    def make(_part: Round) -> PrivateKNNClassifier:
        return PrivateKNNClassifier(
            world.classes, K, GAMMA, sigma_votes=SIGMA, delta=DELTA, simulation_seed=run
        )

    labeller = FixedPlanLabeller(make, plan, world.labels)
    found = carried_out(world, labeller, learner, plan, labeller.epsilon(), run, begin)
    return _line("Private-kNN, the paper's parameters", found)


def ind_knn(
    world: World, learner: Learner[Any], epsilon: float, rounds: int, run: int, begin: Begin
) -> Line:
    """Simulate rounds of Ind-KNN, planned for classes that overlap."""
    labeller = IndKNNLabeller(
        world.classes, world.labels, epsilon=epsilon, delta=DELTA, simulation_seed=run
    )
    plan = default_plan(rounds, N_PUBLIC, seed=run, overlapping=True)
    found = carried_out(world, labeller, learner, plan, epsilon, run, begin)
    return _line(f"Ind-KNN, {rounds} rounds", found)


def noisy_sgd(world: World, epsilon: float, run: int) -> Line:
    """Simulate linear NoisySGD on the features of the first round."""
    job = world.job
    public = job.extractor.transform(job.pool)
    public_map = PublicMap().fit(public)
    records = public_map.transform(job.extractor.transform(job.records))
    tested = public_map.transform(world.cached.tested(world.tested))
    classifier = NoisySGDClassifier(world.classes, epsilon, delta=DELTA, simulation_seed=run)
    guesses = classifier.fit(records, world.labels).predict(tested)
    right = float(rightness(guesses, world.truth[world.tested]).mean())
    return Line("NoisySGD, linear, same features", epsilon, run, None, right)


def not_private(world: World, learner: Learner[Any], run: int, begin: Begin) -> Line:
    """Train the student's network on all private images and their labels."""
    rows, labels = np.arange(len(world.labels)), world.labels.astype(np.int64)
    student = learner.learn(world.job.records, rows, labels, 0, begin)
    return Line("the same network on all records", None, run, None, world.right(student))


def text_table(lines: Sequence[Line]) -> str:
    """Return a line for each method and epsilon: means and spreads over runs."""
    rows = [f"{'':36}  epsilon  answers  right   spread  runs"]
    for key in dict.fromkeys((line.method, line.epsilon) for line in lines):
        same = [line for line in lines if (line.method, line.epsilon) == key]
        mean, spread = mean_and_spread([line.right for line in same])
        epsilon = "none" if key[1] is None else f"{key[1]:.3f}"
        given = [line.answers for line in same if line.answers is not None]
        answers = f"{np.mean(given):.3f}" if given else ""
        rows.append(
            f"{key[0]:36}  {epsilon:>7}  {answers:>7}  {mean:.4f}  {spread:.4f}  {len(same):4d}"
        )
    return "\n".join(rows)


def _line(method: str, found: RunResult) -> Line:
    last = found.rounds[-1]
    return Line(method, found.epsilon, found.run, last.answers_kept, last.student)
