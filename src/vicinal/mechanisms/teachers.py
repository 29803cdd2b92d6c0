"""PATE: teachers on disjoint parts of the subjects, and the planned answers of their votes.

Proof note: teachers.md. Source: Papernot et al. 2017, 2018.
"""

import hashlib
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from vicinal.arrays import AnyArray, Bools, FloatMatrix, Ints, Ints32
from vicinal.checks import SubjectId
from vicinal.mechanisms.planned_releases import (
    NoisyMax,
    NoisyThreshold,
    PlannedAnswers,
    ReleaseCounter,
)

FALLBACK = 0  # the class that a teacher votes for when it cannot tell: public, and the same for all


_BLOCK = 1000


def teacher_of(subject: SubjectId, key: bytes, n_teachers: int) -> int:
    """Return the teacher of a subject: a secret function of its id, and of nothing else.

    `subject` is in its one form, as :func:`vicinal.checks.subject_ids` returns it.
    """
    named = f"{type(subject).__name__}:{subject}".encode()
    digest = hashlib.blake2b(named, key=key, digest_size=16).digest()
    return int.from_bytes(digest, "big") % n_teachers


def teachers_of(ids: Sequence[SubjectId], key: bytes, n_teachers: int) -> Ints:
    """Return the teacher of every record's subject, int64 (n,)."""
    place = {subject: teacher_of(subject, key, n_teachers) for subject in dict.fromkeys(ids)}
    return np.array([place[subject] for subject in ids], dtype=np.int64)


def randomness_of(teacher: int, key: bytes) -> int:
    """Return a seed for what a teacher draws while it trains, apart from all others'."""
    digest = hashlib.blake2b(f"seed:{teacher}".encode(), key=key, digest_size=4).digest()
    return int.from_bytes(digest, "big") >> 1


class Teacher:
    """A classifier on one part of the records, which always votes.

    A part without records, or with one class only, needs no model; a model that raises, or says
    something that is no class, counts as :data:`FALLBACK`. Warnings are kept back: they speak of
    private records.

    - `model`: cloned, and trained on class positions; everything in it called ``random_state`` is
      set.
    - `X`, float (m, d): the part's features.
    - `labels`, int32 (m,): the part's class positions.
    - `n_classes`: number of classes.
    - `seed`: seed of the model's own randomness.
    """

    def __init__(
        self, model: Any, X: FloatMatrix, labels: Ints32, n_classes: int, seed: int
    ) -> None:
        self._n_classes = n_classes
        present = np.unique(labels)
        self._only = int(present[0]) if len(present) == 1 else FALLBACK
        self._model = _trained(model, X, labels, seed) if len(present) > 1 else None

    def votes(self, queries: FloatMatrix) -> Ints:
        """Return the class position that the teacher votes for, int64 (q,). Private."""
        if self._model is None:
            return np.full(len(queries), self._only, dtype=np.int64)
        labels = _predictions_of(self._model, queries)
        usable = (labels >= 0) & (labels < self._n_classes)
        return np.where(usable, labels, FALLBACK)


def _trained(model: Any, X: FloatMatrix, labels: Ints32, seed: int) -> Any | None:
    """Return a model trained on a copy of the part, or None if that is not to be had."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            from sklearn.base import clone  # slow to load, and only teachers need it

            teacher = clone(model)
            seeds = {name: seed for name in teacher.get_params() if _is_random_state(name)}
            return teacher.set_params(**seeds).fit(X.copy(), labels.copy())
    except Exception:  # noqa: BLE001 (whether a teacher fails depends on private records)
        return None


def _predictions_of(model: Any, queries: FloatMatrix) -> Ints:
    """Return what a model says, -1 for all if it raises or says no class positions."""
    nothing = np.full(len(queries), -1, dtype=np.int64)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            labels = np.asarray(model.predict(queries.copy()))
            integers = labels.astype(np.int64)
    except Exception:  # noqa: BLE001 (as above)
        return nothing
    fits = labels.shape == (len(queries),) and bool((integers == labels).all())
    return integers if fits else nothing


def _is_random_state(name: str) -> bool:
    return name == "random_state" or name.endswith("__random_state")


def count_votes(teachers: Sequence[Teacher], queries: FloatMatrix, n_classes: int) -> Ints:
    """Return the votes of all teachers, int64 (q, c); one each. Private."""
    counts = np.zeros((len(queries), n_classes), dtype=np.int64)
    every = np.arange(len(queries))
    for teacher in teachers:
        counts[every, teacher.votes(queries)] += 1
    return counts


def train_teachers(
    model: Any,
    X: FloatMatrix,
    labels: Ints32,
    ids: Sequence[SubjectId],
    key: bytes,
    n_teachers: int,
    n_classes: int,
) -> list[Teacher]:
    """Return teachers, each trained on the records of the subjects that `key` gives it."""
    part = teachers_of(ids, key, n_teachers)
    return [
        Teacher(model, X[part == t], labels[part == t], n_classes, randomness_of(t, key))
        for t in range(n_teachers)
    ]


class PATERelease(PlannedAnswers):
    """Teachers that answer as planned, and remember their votes for the curator.

    Nothing leaves :meth:`answer` without noise, and without being counted first. Used by one
    thread at a time.

    - `teachers`: who votes.
    - `n_classes`: number of classes.
    - `screening`, `voting`, `planned`: see :class:`PlannedAnswers`.
    """

    def __init__(
        self,
        teachers: Sequence[Teacher],
        n_classes: int,
        screening: NoisyThreshold | None,
        voting: NoisyMax,
        planned: ReleaseCounter,
    ) -> None:
        self.teachers, self._n_classes = teachers, n_classes
        super().__init__(screening, voting, planned)

    def blocks(self, queries: FloatMatrix) -> Iterator[FloatMatrix]:
        """Yield consecutive queries, as many as a progress bar wants to hear of at a time."""
        for start in range(0, len(queries), _BLOCK):
            yield queries[start : start + _BLOCK]

    def answer(self, queries: FloatMatrix) -> tuple[Bools, AnyArray]:
        """Take from the quotas; return who is answered, bool (q,), and their answers."""
        self._planned.note_releases(len(queries))
        votes = count_votes(self.teachers, queries, self._n_classes)
        passed = self._passed(len(queries), lambda: votes.max(axis=1))
        return passed, self._voting.publish(votes[passed] * self._voting.steps)
