"""Methods on public benchmark data: the default, the published algorithm, no privacy at all.

Everything here runs in simulation mode: the noise comes from seeds, so that tables can be
repeated, and the results carry no guarantee. That is right for measuring accuracy on data that is
public anyway, and for nothing else: every run would spend a fresh budget.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from vicinal._arrays import AnyArray, FloatMatrix, Places
from vicinal._progress import Begin
from vicinal.datasets import Dataset
from vicinal.errors import InvalidInput
from vicinal.features import HOGFeatures, PublicMap
from vicinal.predictors import IndKNNClassifier
from vicinal.reports._outcomes import Outcome

Rows = FloatMatrix
_MANY = 2048
"""From this many images on, starting other processes pays."""

YARDSTICK_NEIGHBORS = 200
"""Neighbours of the majority vote without privacy."""


@dataclass(frozen=True, slots=True)
class Split:
    """Which test rows are public reference, and which are queries; never both."""

    reference: Places
    queries: Places


def split(n_rows: int, n_reference: int, n_queries: int, seed: int) -> Split:
    """Return a public split of test rows, the same for the same seed.

    Raises
    ------
    InvalidInput
        If there are not as many rows as are wanted.
    """
    if n_reference + n_queries > n_rows:
        raise InvalidInput(
            f"The test part must have at least {n_reference} + {n_queries} rows, for reference "
            f"points and queries. Got {n_rows}; ask fewer queries."
        )
    generator = np.random.default_rng(seed)  # noqa: TID251 (public split; no privacy hangs on it)
    order = generator.permutation(n_rows)
    return Split(order[:n_reference], order[n_reference : n_reference + n_queries])


@dataclass(frozen=True, slots=True, eq=False)
class Trial:
    """One split, ready for every method: mapped features, and the queries' true labels."""

    classes: Sequence[Any]
    records: Rows
    labels: AnyArray
    reference: Rows
    queries: Rows
    truth: AnyArray

    def first(self, n_queries: int) -> Trial:
        """Return the same trial with only the first queries."""
        return replace(self, queries=self.queries[:n_queries], truth=self.truth[:n_queries])


@dataclass(frozen=True, slots=True, eq=False)
class Benchmark:
    """Raw features of a public data set: a training part played as private, and a test part.

    `learnt` are the options of the public map that suits them.
    """

    classes: Sequence[Any]
    records: Rows
    labels: AnyArray
    test: Rows
    test_labels: AnyArray
    learnt: Mapping[str, Any] = field(default_factory=dict)

    def trial(self, public_map: PublicMap, parts: Split) -> Trial:
        """Fit the map on the reference of a split, and map everything by it."""
        fitted = public_map.fit(self.test[parts.reference])
        return Trial(
            self.classes,
            fitted.transform(self.records),
            self.labels,
            fitted.transform(self.test[parts.reference]),
            fitted.transform(self.test[parts.queries]),
            self.test_labels[parts.queries],
        )


def image_benchmark(dataset: Dataset, classes: Sequence[Any], begin: Begin) -> Benchmark:
    """Return histograms of oriented gradients of a training and a test part."""
    records, test = dataset.split()
    step = begin("HOG features", len(records) + len(test))

    def features(part: Dataset) -> Rows:
        extractor = HOGFeatures(n_jobs=-1 if len(part) >= _MANY else None)
        vectors: Rows = extractor.transform(np.asarray(part.features), progress=step)
        return vectors

    return Benchmark(
        classes, features(records), labels_of(records), features(test), labels_of(test)
    )


def labels_of(dataset: Dataset) -> AnyArray:
    """Return the labels of a data set that must have them."""
    if dataset.labels is None:
        raise InvalidInput("The data must have labels, in the training and in the test part.")
    return dataset.labels


@dataclass(frozen=True, slots=True)
class Setting:
    """A guarantee, and how many queries it has to last for."""

    epsilon: float
    n_queries: int
    delta: float = 1e-5


def fitted(trial: Trial, setting: Setting, seed: int, **options: Any) -> IndKNNClassifier:
    """Return the classifier over the records of a trial, simulated, without a private model.

    The tables that are printed from it are about neighbours alone; `options` are the classifier's.
    """
    return IndKNNClassifier(
        trial.classes, setting.epsilon, setting.delta, setting.n_queries,
        simulation_seed=seed, **{"model_share": 0, **options},
    ).fit(trial.records, trial.labels, public=trial.reference)  # fmt: skip


def default_outcome(trial: Trial, setting: Setting, seed: int, release: str = "votes") -> Outcome:
    """Simulate the default, which has nothing to tune; `release` tells what leaves."""
    classifier = fitted(trial, setting, seed, release=release)
    return Outcome.of(classifier.predict(trial.queries), trial.truth)


def yardstick_outcome(trial: Trial) -> Outcome:
    """Return what a plain majority of the nearest neighbours reaches, without any privacy."""
    return Outcome.of(plain_neighbors(trial), trial.truth)


def plain_neighbors(trial: Trial) -> AnyArray:
    """Return the majority label of each query's nearest neighbours, (q,), without any privacy."""
    from sklearn.neighbors import KNeighborsClassifier

    # On rows of length one, the nearest are those with the largest cosine.
    neighbors = min(YARDSTICK_NEIGHBORS, len(trial.records))
    plain = KNeighborsClassifier(neighbors, algorithm="brute").fit(trial.records, trial.labels)
    return np.asarray(plain.predict(trial.queries))
