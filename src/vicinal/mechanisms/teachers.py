"""PATE: teachers trained on disjoint sets of subjects, and planned answers from their votes.

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

# The class for which a teacher votes when it has no usable prediction: public, and the same for all
# teachers.
FALLBACK = 0

# Queries of a block, between two reports of progress.
_BLOCK = 1000


def assign_teacher(subject: SubjectId, key: bytes, n_teachers: int) -> int:
    """Return the index of a subject's teacher, 0 to `n_teachers` - 1, a function of its id only.

    `subject`: the id in canonical form (:func:`vicinal.checks.subject_ids`). `key`: the secret key
    of the hash that assigns subjects to teachers.
    """
    message = f"{type(subject).__name__}:{subject}".encode()
    digest = hashlib.blake2b(message, key=key, digest_size=16).digest()
    return int.from_bytes(digest, "big") % n_teachers


def assign_teachers(ids: Sequence[SubjectId], key: bytes, n_teachers: int) -> Ints:
    """Return the index of every record's teacher, 0 to `n_teachers` - 1, int64 (n,).

    `ids`: canonical subject id of every record. `key`: the secret key that assigns teachers.
    """
    teacher_by_subject = {
        subject: assign_teacher(subject, key, n_teachers) for subject in dict.fromkeys(ids)
    }
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

    - `model`: scikit-learn classifier, which is cloned and trained on class indices. Every
      parameter called ``random_state`` is set to `seed`.
    - `X`, float (m, d): features of the teacher's records.
    - `labels`, int32 (m,): their class indices.
    - `n_classes`: number of classes.
    - `seed`: seed of the model's randomness.
    """

    def __init__(
        self, model: Any, X: FloatMatrix, labels: Ints32, n_classes: int, seed: int
    ) -> None:
        self._n_classes = n_classes
        classes = np.unique(labels)
        self._constant_vote = int(classes[0]) if len(classes) == 1 else FALLBACK
        self._model = _train_model(model, X, labels, seed) if len(classes) > 1 else None

    def vote(self, queries: FloatMatrix) -> Ints:
        """Return the class index that the teacher votes for at each query, int64 (q,); private.

        `queries`, (q, d): features.
        """
        if self._model is None:
            return np.full(len(queries), self._constant_vote, dtype=np.int64)
        labels = _predict_classes(self._model, queries)
        usable = (labels >= 0) & (labels < self._n_classes)
        return np.where(usable, labels, FALLBACK)


def _train_model(model: Any, X: FloatMatrix, labels: Ints32, seed: int) -> Any | None:
    """Return a clone of `model`, trained on copies of a teacher's records; None if training fails.

    `X`, float (m, d), `labels`, int32 (m,): features and class indices. `seed`: value of every
    parameter ``random_state``.
    """
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
    """Return the class indices that `model` predicts for `queries` (q, d), int64 (q,).

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
    """Return the number of teachers' votes for each class at each query, int64 (q, c); private.

    `queries`, (q, d): features. `n_classes`: number of classes c.
    """
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

    - `model`: scikit-learn classifier, cloned for each teacher.
    - `X`, float (n, d), `labels`, int32 (n,): features and class indices of the records.
    - `ids`: canonical subject id of every record.
    - `key`: the secret key that assigns subjects to teachers and derives the teachers' seeds.
    - `n_teachers`, `n_classes`: number of teachers, and of classes.
    """
    teacher_indices = assign_teachers(ids, key, n_teachers)
    return [
        Teacher(
            model,
            X[teacher_indices == teacher],
            labels[teacher_indices == teacher],
            n_classes,
            derive_seed(teacher, key),
        )
        for teacher in range(n_teachers)
    ]


class PATERelease(PlannedAnswers):
    """Mechanism that answers planned queries by the noisy votes of teachers.

    :meth:`answer` counts releases before it makes them, and returns noisy values. For one thread.

    - `teachers`: the trained teachers; private.
    - `n_classes`: number of classes.
    - `screening`: decides which queries are answered; None to answer all.
    - `voting`: releases the answers.
    - `query_counter`: counter of the planned queries.
    """

    def __init__(
        self,
        teachers: Sequence[Teacher],
        n_classes: int,
        screening: NoisyThreshold | None,
        voting: NoisyMax,
        query_counter: ReleaseCounter,
    ) -> None:
        self.teachers = teachers
        self._n_classes = n_classes
        super().__init__(screening, voting, query_counter)

    def split_blocks(self, queries: FloatMatrix) -> Iterator[FloatMatrix]:
        """Yield blocks of at most `_BLOCK` consecutive `queries`, (q, d), to report progress."""
        for start in range(0, len(queries), _BLOCK):
            yield queries[start : start + _BLOCK]

    def answer(self, queries: FloatMatrix) -> tuple[Bools, AnyArray]:
        """Return whether each query (q, d) is answered, bool (q,), and the answers to those.

        Raises PrivacyRefused, before any noise is drawn, if the plan does not cover the queries.
        """
        self._query_counter.note_releases(len(queries))
        vote_counts = count_votes(self.teachers, queries, self._n_classes)
        passed = self._select_answered(len(queries), lambda: vote_counts.max(axis=1))
        return passed, self._voting.publish(vote_counts[passed] * self._voting.steps)
