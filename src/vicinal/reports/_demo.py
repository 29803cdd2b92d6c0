"""The demonstration: public test images, classified by the private neighbours among the rest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from vicinal._arrays import AnyArray, Floats
from vicinal._progress import Begin, Step
from vicinal.accounting import Guarantee
from vicinal.datasets import Dataset
from vicinal.errors import InvalidInput
from vicinal.features import PublicMap
from vicinal.predictors import IndKNNClassifier
from vicinal.reports._outcomes import Outcome, balanced_accuracy
from vicinal.reports._trials import (
    YARDSTICK_NEIGHBORS,
    Setting,
    Trial,
    default_outcome,
    image_benchmark,
    split,
    yardstick_outcome,
)

DEFAULT = "vicinal, neighbours alone"
NOT_PRIVATE = f"{YARDSTICK_NEIGHBORS}-NN, not private"


@dataclass(frozen=True, slots=True)
class Sweep:
    """Accuracy against epsilon on one trial; simulated, so it carries no guarantee.

    One outcome of neighbours alone, with nothing tuned, for every epsilon, and that of a majority
    vote without privacy.
    """

    epsilons: tuple[float, ...]
    default: tuple[Outcome, ...]
    yardstick: Outcome


def sweep(trial: Trial, epsilons: Sequence[float], delta: float, step: Step) -> Sweep:
    """Simulate neighbours alone at every epsilon; `step` is told of the queries answered."""
    n_queries = len(trial.truth)
    default = []
    for epsilon in epsilons:
        default.append(default_outcome(trial, Setting(epsilon, n_queries, delta), seed=0))
        step(n_queries)
    return Sweep(tuple(epsilons), tuple(default), yardstick_outcome(trial))


CLASSES = tuple(range(10))

MOST_REFERENCE = 5000
LEAST_REFERENCE = 20
"""Public reference points: as many as the test part has besides the queries, in these bounds."""

FEATURES = (
    "histograms of oriented gradients of square-rooted pixels, minus the mean of the public "
    f"reference, {PublicMap().n_components} principal components of the public reference, "
    "half-whitened, unit length"
)

EPSILONS = (0.25, 0.5, 1.0, 2.0, 4.0)

_SPLIT_SEED = 0


@dataclass(frozen=True, slots=True)
class PublicPlan:
    """What was fixed before the first answer; everybody may know all of it.

    `n_records` was estimated once with noise. The noise on each class's votes has standard
    deviation noise_multiplier sqrt(n_neighbors). `budget` is what each subject may lose in zCDP
    over all answers; `features` is the map in words.
    """

    n_records: int
    n_reference: int
    n_queries: int
    n_neighbors: int
    noise_multiplier: float
    budget: float
    features: str = FEATURES


@dataclass(frozen=True, slots=True, eq=False)
class DemoAnswers:
    """What one run with real noise gave: answers, and what may be told about them.

    `confidence` (q,) is the lead of the best class over the next, in standard deviations of the
    noise on that lead.
    """

    labels: AnyArray
    truth: AnyArray
    confidence: Floats
    guarantee: Guarantee
    plan: PublicPlan

    @property
    def outcome(self) -> Outcome:
        """How many answers were right."""
        return Outcome.of(self.labels, self.truth)

    @property
    def balanced_accuracy(self) -> float:
        """The mean share of right answers over classes."""
        return balanced_accuracy(self.labels, self.truth)


@dataclass(frozen=True, slots=True, eq=False)
class Prepared:
    """A trial, with the images of its queries."""

    trial: Trial
    images: AnyArray


def prepare(
    dataset: Dataset, n_queries: int, begin: Begin, classes: Sequence[int] = CLASSES
) -> Prepared:
    """Split the test part, extract features, and map them by what the reference teaches."""
    _, test = dataset.split()
    n_reference = min(MOST_REFERENCE, len(test) - n_queries)
    if n_reference < LEAST_REFERENCE:
        raise InvalidInput(
            f"The test part must have at least {n_queries + LEAST_REFERENCE} images for "
            f"{n_queries} queries and a public reference. Got {len(test)}; ask fewer queries."
        )
    parts = split(len(test), n_reference, n_queries, _SPLIT_SEED)
    benchmark = image_benchmark(dataset, classes, begin)
    trial = benchmark.trial(PublicMap(), parts)
    return Prepared(trial, np.asarray(test.features)[parts.queries])


def answer(trial: Trial, epsilon: float, delta: float, begin: Begin) -> DemoAnswers:
    """Answer all queries with real noise, nothing tuned, by neighbours alone."""
    n_queries = len(trial.truth)
    classifier = IndKNNClassifier(trial.classes, epsilon, delta, n_queries, model_share=0)
    classifier.fit(trial.records, trial.labels, public=trial.reference)
    votes = classifier.decision_function(trial.queries, progress=begin("answers", n_queries))
    plan = PublicPlan(
        classifier.n_records_,
        len(trial.reference),
        n_queries,
        int(classifier.n_neighbors_ or 0),
        classifier.noise_multiplier_,
        classifier.budget_,
    )
    return DemoAnswers(
        classifier.classes_[votes.argmax(axis=1)],
        trial.truth,
        classifier.confidence(votes),
        classifier.guarantee(),
        plan,
    )


def compare(trial: Trial, delta: float, begin: Begin) -> Sweep:
    """Simulate other epsilons; for public data only."""
    return sweep(trial, EPSILONS, delta, begin("comparison", len(trial.truth) * len(EPSILONS)))
