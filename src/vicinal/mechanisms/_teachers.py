"""Teachers on disjoint parts of the people: who teaches whom, and what teachers vote.

Proof note: teachers.md. Source: Papernot et al. 2017, 2018.
"""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.base import clone

from vicinal._checks import SubjectId

FALLBACK = 0
"""The class that a teacher votes for when it cannot tell: public, and the same for all."""

Labels = npt.NDArray[np.int32]


def teacher_of(subject: SubjectId, key: bytes, n_teachers: int) -> int:
    """Return the teacher of a subject: a secret function of its id, and of nothing else.

    `subject` is in its one form, as :func:`vicinal._checks.subject_ids` returns it.
    """
    named = f"{type(subject).__name__}:{subject}".encode()
    digest = hashlib.blake2b(named, key=key, digest_size=16).digest()
    return int.from_bytes(digest, "big") % n_teachers


def teachers_of(ids: Sequence[SubjectId], key: bytes, n_teachers: int) -> npt.NDArray[np.int64]:
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

    Parameters
    ----------
    model : scikit-learn classifier
        Cloned, and trained on class positions; everything in it called ``random_state`` is set.
    X : float (m, d)
        The part's features.
    labels : int32 (m,)
        The part's class positions.
    n_classes : int
        Number of classes.
    seed : int
        Seed of the model's own randomness.
    """

    def __init__(
        self, model: Any, X: npt.NDArray[np.floating], labels: Labels, n_classes: int, seed: int
    ) -> None:
        self._n_classes = n_classes
        present = np.unique(labels)
        self._only = int(present[0]) if len(present) == 1 else FALLBACK
        self._model = _trained(model, X, labels, seed) if len(present) > 1 else None

    def votes(self, queries: npt.NDArray[np.floating]) -> npt.NDArray[np.int64]:
        """Return the class position that the teacher votes for, int64 (q,). Private."""
        if self._model is None:
            return np.full(len(queries), self._only, dtype=np.int64)
        found = _asked(self._model, queries)
        usable = (found >= 0) & (found < self._n_classes)
        return np.where(usable, found, FALLBACK)


def _trained(model: Any, X: npt.NDArray[np.floating], labels: Labels, seed: int) -> Any | None:
    """Return a model trained on a copy of the part, or None if that is not to be had."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            teacher = clone(model)
            seeds = {name: seed for name in teacher.get_params() if _is_random_state(name)}
            return teacher.set_params(**seeds).fit(X.copy(), labels.copy())
    except Exception:  # noqa: BLE001 (whether a teacher fails depends on private records)
        return None


def _asked(model: Any, queries: npt.NDArray[np.floating]) -> npt.NDArray[np.int64]:
    """Return what a model says, -1 for all if it raises or says no class positions."""
    nothing = np.full(len(queries), -1, dtype=np.int64)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = np.asarray(model.predict(queries.copy()))
            whole = found.astype(np.int64)
    except Exception:  # noqa: BLE001 (as above)
        return nothing
    fits = found.shape == (len(queries),) and bool((whole == found).all())
    return whole if fits else nothing


def _is_random_state(name: str) -> bool:
    return name == "random_state" or name.endswith("__random_state")


def count_votes(
    teachers: Sequence[Teacher], queries: npt.NDArray[np.floating], n_classes: int
) -> npt.NDArray[np.int64]:
    """Return the votes of all teachers, int64 (q, c); one each. Private."""
    counts = np.zeros((len(queries), n_classes), dtype=np.int64)
    every = np.arange(len(queries))
    for teacher in teachers:
        counts[every, teacher.votes(queries)] += 1
    return counts
