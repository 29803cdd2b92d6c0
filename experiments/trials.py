"""Public benchmark data with a part played as private, and neighbours alone on trials of it.

Trials run in simulation mode: the noise comes from seeds, so that tables can be repeated, and the
results carry no guarantee. That is right for measuring accuracy on data that is public anyway, and
for nothing else: every run would spend a fresh budget.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from sklearn.neighbors import KNeighborsClassifier

from vicinal import IndKNNClassifier
from vicinal.datasets import Dataset
from vicinal.errors import InvalidInput
from vicinal.features import PublicMap
from vicinal.reports.demo import Trial
from vicinal.reports.outcomes import AnswerCounts

Array = npt.NDArray[Any]

YARDSTICK_NEIGHBORS = 200
DEFAULT = "vicinal, neighbours alone"
NOT_PRIVATE = f"{YARDSTICK_NEIGHBORS}-NN, not private"


class Split(NamedTuple):
    """Which test rows are public reference, and which are queries; never both."""

    reference: Array
    queries: Array


def split(n_rows: int, n_reference: int, n_queries: int, seed: int) -> Split:
    """Return a public split of test rows, the same for the same seed."""
    if n_reference + n_queries > n_rows:
        raise InvalidInput(
            f"The test part must have at least {n_reference} + {n_queries} rows, for reference "
            f"points and queries. Got {n_rows}; ask fewer queries."
        )
    generator = np.random.default_rng(seed)  # noqa: TID251 (public split; no privacy hangs on it)
    order = generator.permutation(n_rows)
    return Split(order[:n_reference], order[n_reference : n_reference + n_queries])


@dataclass(frozen=True, slots=True, eq=False)
class Benchmark:
    """Raw features of a public data set: a training part played as private, and a test part.

    `learnt` are the options of the public map that suits them.
    """

    classes: Sequence[Any]
    records: Array
    labels: Array
    test: Array
    test_labels: Array
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


def labels_of(dataset: Dataset) -> Array:
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


def limit_queries(trial: Trial, n_queries: int) -> Trial:
    """Return the trial with its first `n_queries` queries only."""
    return replace(trial, queries=trial.queries[:n_queries], truth=trial.truth[:n_queries])


def fitted(trial: Trial, setting: Setting, seed: int, **options: Any) -> IndKNNClassifier:
    """Return the classifier over the records of a trial, simulated, without a private model.

    The tables that are printed from it are about neighbours alone; `options` are the classifier's.
    """
    return IndKNNClassifier(
        trial.classes, setting.epsilon, setting.delta, setting.n_queries,
        simulation_seed=seed, **{"model_share": 0, **options},
    ).fit(trial.records, trial.labels, public=trial.reference)  # fmt: skip


def default_outcome(
    trial: Trial, setting: Setting, seed: int, release: str = "votes"
) -> AnswerCounts:
    """Simulate the default, which has nothing to tune; `release` tells what leaves."""
    classifier = fitted(trial, setting, seed, release=release)
    return AnswerCounts.from_answers(classifier.predict(trial.queries), trial.truth)


def yardstick_outcome(trial: Trial) -> AnswerCounts:
    """Return what a plain majority of the nearest neighbours reaches, without any privacy."""
    return AnswerCounts.from_answers(plain_neighbors(trial), trial.truth)


def plain_neighbors(trial: Trial) -> Any:
    """Return the majority label of each query's nearest neighbours, (q,), without any privacy."""
    # On rows of length one, the nearest are those with the largest cosine.
    neighbors = min(YARDSTICK_NEIGHBORS, len(trial.records))
    plain = KNeighborsClassifier(neighbors, algorithm="brute").fit(trial.records, trial.labels)
    return np.asarray(plain.predict(trial.queries))
