"""What a published student gives away of the one person who may be in the private records.

The student is trained by the installed code on labels that left, in order of class, and on public
examples. It is a function of those labels, the same for the same ones, so each is trained once.
"""

from __future__ import annotations

import numpy as np

from vicinal._arrays import Floats, Ints
from vicinal.audit._vote_trials import LabelsTrial
from vicinal.mechanisms import public_draws

_STEPS = 10
_POOL, _WIDTH = 6, 16  # public examples; the first is the query, two others have public labels


class StudentTrial(LabelsTrial):
    """Students of the labels of one query: how sure each is there of the subject's class."""

    mechanism = "Student"

    def _prepare(self) -> None:
        self._known: dict[bytes, float] = {}

    def play(self, present: bool) -> Floats:
        """Return what the student of each universe gives to the subject's class, (runs,)."""
        labels = self._visits.answers(present, self._damage).reshape(self._visits.rounds, -1)
        kinds, which = np.unique(np.sort(labels, axis=0), axis=1, return_inverse=True)
        return np.array([self._sureness(kind) for kind in kinds.T])[which.ravel()]

    def _sureness(self, labels: Ints) -> float:
        kind = labels.tobytes()
        if kind not in self._known:
            self._known[kind] = sureness(labels)
        return self._known[kind]


def sureness(labels: Ints) -> float:
    """Return how sure a student of these labels of one query, (q,), is of the first of two."""
    from vicinal.students import Recipe, train_student

    pool = public_draws(0).normal(size=(_POOL, _WIDTH)).astype(np.float32)
    rows = np.concatenate([np.zeros(len(labels), dtype=int), [1, 2]])
    recipe = Recipe(network="mlp", method="plain", steps=_STEPS, labelled=8, unlabelled=2)
    student = train_student(pool, rows, [*labels.tolist(), 0, 1], [0, 1], recipe)
    return float(student.predict_proba(pool[:1])[0, 0])
