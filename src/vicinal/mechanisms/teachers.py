"""PATE: teachers trained on disjoint sets of subjects, and planned answers from their votes.

Everywhere in this module: `queries`, (q, d), and `X`, (m, d), are features of queries and private
records; `labels`, int32 (m,), class indices from 0 to `n_classes` - 1; `key`, a secret key, from
which the assignment of subjects to teachers and the teachers' seeds follow; `model`, a scikit-learn
classifier.

Proof note: teachers.md. Source: Papernot et al. 2017, 2018.
"""

import hashlib
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from vicinal.arrays import AnyArray, Bools, FloatMatrix, Ints, Ints32
from vicinal.checks import SubjectId
from vicinal.mechanisms.planned_releases import PlannedAnswers

# The class for which a teacher votes when it has no usable prediction: public, and the same for all
# teachers.
FALLBACK = 0

# Queries of a block, between two reports of progress.
_BLOCK = 1000


def assign_teachers(ids: Sequence[SubjectId], key: bytes, n_teachers: int) -> Ints:
    """Return the index of every record's teacher, 0 to `n_teachers` - 1, int64 (n,).

    It is a function of the subject's id only. `ids`: subject id of every record in canonical form
    (:func:`vicinal.checks.check_subject_ids`).
    """
    teacher_by_subject = {}
    for subject in dict.fromkeys(ids):
        message = f"{type(subject).__name__}:{subject}".encode()
        digest = hashlib.blake2b(message, key=key, digest_size=16).digest()
        teacher_by_subject[subject] = int.from_bytes(digest, "big") % n_teachers
    return np.array([teacher_by_subject[subject] for subject in ids], dtype=np.int64)


def derive_seed(teacher: int, key: bytes) -> int:
    """Return the seed of a teacher's training, 0 to 2^31 - 1, from its index and the secret key."""
    digest = hashlib.blake2b(f"seed:{teacher}".encode(), key=key, digest_size=4).digest()
    return int.from_bytes(digest, "big") >> 1


class Teacher:
    """A classifier trained on the records of some subjects, which always votes; private.

    Without records, or with records of one class only, it needs no model. If a model raises an
    exception or predicts something other than a class index, the teacher votes for
    :data:`FALLBACK`. Warnings are suppressed, because they may describe private records.

    A clone of the `model` is trained, with `seed` as the value of its parameters ``random_state``.
    """

    def __init__(
        self, model: Any, X: FloatMatrix, labels: Ints32, n_classes: int, seed: int
    ) -> None:
        self._n_classes = n_classes
        classes = np.unique(labels)
        self._constant_vote = int(classes[0]) if len(classes) == 1 else FALLBACK
        self._model = _train_model(model, X, labels, seed) if len(classes) > 1 else None

    def vote(self, queries: FloatMatrix) -> Ints:
        """Return the class index that the teacher votes for at each query, int64 (q,); private."""
        if self._model is None:
            return np.full(len(queries), self._constant_vote, dtype=np.int64)
        labels = _predict_classes(self._model, queries)
        usable = (labels >= 0) & (labels < self._n_classes)
        return np.where(usable, labels, FALLBACK)


def _train_model(model: Any, X: FloatMatrix, labels: Ints32, seed: int) -> Any | None:
    """Return a clone of `model` with `seed`, trained on copies of the records; None if it fails."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            from sklearn.base import clone  # slow to load, and only teachers need it

            teacher = clone(model)
            seeds = {
                name: seed
                for name in teacher.get_params()
                if name == "random_state" or name.endswith("__random_state")  # of a nested model
            }
            return teacher.set_params(**seeds).fit(X.copy(), labels.copy())
    except Exception:  # noqa: BLE001 (whether a teacher fails depends on private records)
        return None


def _predict_classes(model: Any, queries: FloatMatrix) -> Ints:
    """Return the predicted class indices, int64 (q,).

    All are -1 if the model fails or predicts something other than an integer per query.
    """
    unusable = np.full(len(queries), -1, dtype=np.int64)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            labels = np.asarray(model.predict(queries.copy()))
            integers = labels.astype(np.int64)
    except Exception:  # noqa: BLE001 (as above)
        return unusable
    are_integers = labels.shape == (len(queries),) and bool((integers == labels).all())
    return integers if are_integers else unusable


def count_votes(teachers: Sequence[Teacher], queries: FloatMatrix, n_classes: int) -> Ints:
    """Return the number of teachers' votes for each class at each query, int64 (q, c); private."""
    counts = np.zeros((len(queries), n_classes), dtype=np.int64)
    query_indices = np.arange(len(queries))
    for teacher in teachers:
        counts[query_indices, teacher.vote(queries)] += 1
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
    """Return the teachers, each trained on the records of its subjects; private.

    `ids`: canonical subject id of every record.
    """
    teacher_indices = assign_teachers(ids, key, n_teachers)
    teachers = []
    for index in range(n_teachers):
        is_own = teacher_indices == index
        seed = derive_seed(index, key)
        teachers.append(Teacher(model, X[is_own], labels[is_own], n_classes, seed))
    return teachers


@dataclass(eq=False)
class PATERelease(PlannedAnswers):
    """Mechanism that answers planned queries by the noisy votes of teachers.

    :meth:`answer` counts releases before it makes them, and returns noisy values. For one thread.

    `teachers`: the trained teachers; private. Other attributes: see :class:`PlannedAnswers`.
    """

    teachers: Sequence[Teacher]
    n_classes: int

    def split_blocks(self, queries: FloatMatrix) -> Iterator[FloatMatrix]:
        """Yield blocks of at most `_BLOCK` consecutive `queries`, (q, d), to report progress."""
        for start in range(0, len(queries), _BLOCK):
            yield queries[start : start + _BLOCK]

    def answer(self, queries: FloatMatrix) -> tuple[Bools, AnyArray]:
        """Return whether each query (q, d) is answered, bool (q,), and the answers to those.

        Raises PrivacyRefused, before any noise is drawn, if the plan does not cover the queries.
        """
        self.query_counter.note_releases(len(queries))
        vote_counts = count_votes(self.teachers, queries, self.n_classes)
        passed = self._select_answered(len(queries), lambda: vote_counts.max(axis=1))
        return passed, self.voting.publish(vote_counts[passed] * self.voting.steps)
