"""The planned answers of Private-kNN, its records spread over shards."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from vicinal import checks
from vicinal.distributed.folders import MOST_SHARDS
from vicinal.distributed.nearest import Drawing, NearestOfShards, NearestPart, local_drawings
from vicinal.errors import InvalidInput
from vicinal.mechanisms.ballots import LabelBallots
from vicinal.mechanisms.private_knn import SampledVotes
from vicinal.mechanisms.quota import Quota
from vicinal.mechanisms.sampling import Bools, coin_source
from vicinal.neighbours import RBF
from vicinal.neighbours.integers import IntegerMatrix
from vicinal.neighbours.poisson import Walk
from vicinal.predictors import PrivateKNNClassifier, claims, inputs
from vicinal.predictors.inputs import FloatMatrix
from vicinal.predictors.planned import subject_slots
from vicinal.predictors.private_knn_settings import KnnSettings

BLOCK = 256
"""Queries drawn for together."""


class ShardedKnnRelease:
    """The planned answers of Private-kNN from shards; used by one thread at a time.

    Attributes
    ----------
    largest : list of int
        The largest vote of every screened query so far. Private.
    """

    def __init__(self, settings: KnnSettings, kernel: RBF, votes: SampledVotes) -> None:
        self._kernel = kernel
        self._votes = votes
        self._asked = Quota(settings.n_queries, "queries")
        self.largest: list[int] = []

    def check(self, size: int) -> None:
        """Raise PrivacyRefused if `size` more queries were not planned."""
        self._asked.check(size)

    def blocks(self, queries: FloatMatrix) -> Iterator[FloatMatrix]:
        """Yield consecutive queries."""
        for start in range(0, len(queries), BLOCK):
            yield queries[start : start + BLOCK]

    def answer(self, queries: FloatMatrix) -> tuple[Bools, npt.NDArray[Any]]:
        """Take from the quota and answer, see :meth:`SampledVotes.answer`."""
        self._asked.take(len(queries))
        passed, answers, largest = self._votes.answer(self._kernel.encode(queries))
        self.largest += largest
        return passed, answers


def fit_on_shards(
    classifier: PrivateKNNClassifier,
    X: npt.ArrayLike,
    y: npt.ArrayLike,
    subjects: npt.ArrayLike | None = None,
    public: npt.ArrayLike | None = None,
    *,
    shards: int,
    start: Callable[[Sequence[NearestPart]], Sequence[Drawing]] = local_drawings,
) -> PrivateKNNClassifier:
    """Fit a classifier whose records lie on several shards; its plan and its answers are the same.

    Parameters
    ----------
    classifier : PrivateKNNClassifier
        Not fitted yet; changed in place, and returned.
    X, y, subjects, public
        As of its ``fit``. `public` is needed: all shards must have one grid before the first query.
    shards : int
        How many. Subjects go round them in the order of their first records.
    start : callable
        Starts shards, given what they are made of: :func:`local_drawings`, or
        :meth:`~vicinal.distributed.actors.RayCluster.drawings`.

    Raises
    ------
    InvalidInput
        Before anything is changed; also with `tau`, which shards do not know.
    """
    count = checks.integer("shards", shards, least=1, most=MOST_SHARDS)
    settings = KnnSettings.of(classifier)
    if settings.tau is not None:
        raise InvalidInput("The 'tau' parameter must be None on shards: they send one class each.")
    if public is None:
        raise InvalidInput("The 'public' parameter must be given on shards: it fixes their grid.")
    with inputs.unchanged_if_refused(classifier):
        records = inputs.records(classifier, X, subjects, public)
        assert records.reference is not None  # noqa: S101 (it was given)
        labels = inputs.labels(y, len(records), settings.classes)
        kernel = settings.kernel(records.reference, margin=1.0)
        claims.claim(classifier, settings, records, labels)
        slots, _ = subject_slots(records.names)
        parts = _parts(settings, kernel, kernel.encode(records.features), labels, slots, count)
        release = ShardedKnnRelease(settings, kernel, _votes(settings, kernel, parts, start))
        classifier._begin(release, settings)
    return classifier


def _parts(
    settings: KnnSettings,
    kernel: RBF,
    integers: IntegerMatrix,
    labels: npt.NDArray[np.int32],
    slots: npt.NDArray[np.int32],
    shards: int,
) -> list[NearestPart]:
    """Return what every shard is made of; subject s goes to shard s modulo their number."""
    places = [np.flatnonzero(slots % shards == number) for number in range(shards)]
    return [
        NearestPart(
            kernel=kernel,
            integers=integers[rows],
            labels=labels[rows],
            slots=slots[rows] // shards,
            numbers=rows.astype(np.int64),
            n_subjects=int(slots[rows].max()) // shards + 1 if len(rows) else 0,
            k=settings.k,
            gamma=settings.gamma,
            seed=None if settings.seed is None else settings.seed + number + 1,
        )
        for number, rows in enumerate(places)
    ]


def _votes(
    settings: KnnSettings,
    kernel: RBF,
    parts: Sequence[NearestPart],
    start: Callable[[Sequence[NearestPart]], Sequence[Drawing]],
) -> SampledVotes:
    """Return what gives the planned answers, its samples drawn by shards."""
    none = Walk(
        kernel, parts[0].integers[:0], parts[0].slots[:0], 0, settings.k, settings.gamma
    )  # fmt: skip
    n_classes = len(settings.classes)
    votes = settings.votes(none, LabelBallots(np.arange(n_classes, dtype=np.int32), n_classes))
    nearest = NearestOfShards(none, settings.gamma, coin_source(settings.seed), start(parts))
    return replace(votes, nearest=nearest)
