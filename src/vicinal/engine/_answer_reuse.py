"""What a classifier makes of its own earlier answers; they are public, so it costs nothing.

Everything here sees queries, released answers and public facts, and nothing else: whatever it
decides is post-processing of the public transcript. What the engine asks of it, and the class that
reuses nothing, stand beside the engine (:class:`~vicinal.engine._engine.AnswerReuse`).
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from vicinal._arrays import Floats, Places, Steps
from vicinal.engine._engine import UNKNOWN, AnswerReuse, PublicVotes
from vicinal.engine._noise_planning import GATE_OPENS
from vicinal.engine._public_model import PublicModel
from vicinal.engine._reference_neighborhoods import LocatedQueries, ReferenceNeighborhoods
from vicinal.neighbours import ExactIndex, IntegerMatrix, Kernel


class AnsweredNeighbours(AnswerReuse):
    """Answered queries vote like records, with their kernel weight and for free (ZZGW23, 3.1).

    Of the published algorithm: votes join where counts are private.

    `kernel`: the kernel of the private votes. `weights`, int64 (LEVELS,): its table of values in
    grid steps. `n_features`, `n_classes`, `block`: sizes; queries between two lessons.
    """

    def __init__(
        self, kernel: Kernel, weights: Steps, n_features: int, n_classes: int, block: int
    ) -> None:
        self.block = block
        self._kernel = kernel
        self._weights = weights
        self._n_classes = n_classes
        self._index = ExactIndex(kernel, n_features)
        self._labels = np.zeros(0, dtype=np.int64)

    def reusable(self, queries: IntegerMatrix) -> Places:
        """Return `UNKNOWN` throughout: every query is asked."""
        return np.full(len(queries), UNKNOWN, dtype=np.int64)

    def support(self, queries: IntegerMatrix, thresholds: Places) -> PublicVotes:
        """Return the votes of earlier queries inside the radii."""
        neighbours = self._index.search(queries, thresholds)
        counts = np.diff(neighbours.starts)
        votes = np.zeros((len(queries), self._n_classes), dtype=np.int64)
        place = np.repeat(np.arange(len(queries)), counts), self._labels[neighbours.rows]
        np.add.at(votes, place, self._weights[self._kernel.levels(neighbours.similarities)])
        return PublicVotes(votes, counts)

    def learn(self, queries: IntegerMatrix, labels: Places) -> None:
        """Add queries with their answers as public records."""
        self._index.add(queries)
        self._labels = np.concatenate([self._labels, labels])


@dataclass(slots=True)
class ConfidenceGate(AnswerReuse):
    """Answers from a model of earlier answers where it is sure, and asks the others.

    One in `FLOOR` queries on which it is sure is asked all the same, so that it goes on seeing all
    kinds of queries. Where asking is not worth it any more the model answers everything, and learns
    nothing.

    - `scale`: integer length of a unit vector: features are brought back to length one.
    - `n_classes`: number of classes.
    - `reference`, integer matrix (m, d): public points among which queries are located.
    - `sure`: probability of the best class from which on the model answers.
    - `block`: queries between two lessons.
    """

    scale: float
    n_classes: int
    reference: IntegerMatrix | None = None
    sure: float = 0.95
    block: int = 128
    unsure: float | None = None
    asking: bool = True
    _queries: list[LocatedQueries] = field(default_factory=list)
    _labels: list[Places] = field(default_factory=list)
    _fitted_on: int = 0
    _n_sure: int = 0
    _model: PublicModel | None = None
    _neighborhoods: ReferenceNeighborhoods = field(init=False)

    def __post_init__(self) -> None:
        points = np.zeros((0, 1)) if self.reference is None else self._floats(self.reference)
        self._neighborhoods = ReferenceNeighborhoods(points)

    def reusable(self, queries: IntegerMatrix) -> Places:
        """Return the model's answers where it is sure, but for one in `FLOOR`; or all of them."""
        answers = np.full(len(queries), UNKNOWN, dtype=np.int64)
        if self._model is None:
            return answers
        chances = self._model.chances(self._located(queries))
        if not self.asking:
            return np.asarray(chances.argmax(axis=1))
        sure = np.flatnonzero(chances.max(axis=1) >= self.sure)
        turns = self._n_sure + np.arange(len(sure))
        self._n_sure += len(sure)
        free = sure[turns % FLOOR != 0]
        answers[free] = chances[free].argmax(axis=1)
        return answers

    def learn(self, queries: IntegerMatrix, labels: Places) -> None:
        """Keep answers, and refit once there are a seventh more than at the last fit."""
        self._queries.append(self._located(queries))
        self._labels.append(labels)
        known = sum(map(len, self._labels))
        if known >= max(GATE_OPENS, self._fitted_on + self._fitted_on // 7):
            self._fit(known)

    def _fit(self, known: int) -> None:
        queries, labels = LocatedQueries.joined(self._queries), np.concatenate(self._labels)
        self._model = PublicModel(self.n_classes).fit(queries, labels)
        self._fitted_on = known
        if self.reference is not None:
            self.unsure = self._share_unsure(self.reference[:_PROBES])

    def _share_unsure(self, points: IntegerMatrix) -> float:
        """Return the share of points that would be asked for, were they queries."""
        assert self._model is not None  # noqa: S101 (narrows the type: just fitted)
        chances = self._model.chances(self._located(points))
        sure = float((chances.max(axis=1) >= self.sure).mean())
        return 1 - sure * (1 - 1 / FLOOR)

    def _located(self, queries: IntegerMatrix) -> LocatedQueries:
        return self._neighborhoods.locate(self._floats(queries))

    def _floats(self, queries: IntegerMatrix) -> Floats:
        return queries.astype(np.float64) / self.scale


_PROBES = 500
FLOOR = 25
"""One in so many queries on which the gate is sure is asked nevertheless."""
