"""What adversaries of Chadha et al. 2024 get of Private-kNN and PATE in our settings.

An adversary may choose the others' data, the subject's place among the neighbours, and the
queries. What it does not choose is natural: others' labels are drawn, the subject lies farther off,
the query is somebody else's. Votes leave, and all adversaries have the same claim.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

import numpy as np
import numpy.typing as npt
from sklearn.neighbors import KNeighborsClassifier

from vicinal.audit import AuditResult, carry_out
from vicinal.audit._fixed_plans import FixedPlanTrial, answers_at_origin
from vicinal.mechanisms import public_draws
from vicinal.predictors import PATEClassifier, PrivateKNNClassifier
from vicinal.predictors.pate import _parameters

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

_RANK = 40
"""Others that are nearer than the subject, where the adversary did not choose the neighbours."""

_NATURAL = 0.8
"""Share of others that have the commonest class, where it did not choose the data."""

_KEY = bytes(32)
"""By which both worlds of PATE assign subjects to teachers."""

_HEAD = (
    f"{'mechanism':14}{'chosen':28}{'eps claim':>10}{'eps lower':>10}{'mu lower':>10}{'runs':>9}"
)


@dataclass(frozen=True)
class Adversary:
    """What an adversary chooses beside being asked at all."""

    data: bool
    neighbors: bool
    queries: bool

    def __str__(self) -> str:
        """Name it by what it chooses."""
        named = (("data", self.data), ("neighbours", self.neighbors), ("queries", self.queries))
        return ", ".join(name for name, chosen in named if chosen) or "nothing"


class Margin:
    """Scores answers by how far the subject's class is ahead; the best score for one shift."""

    def __init__(self, of_subject: int) -> None:
        self._along = np.array([1.0, -1.0]) * (1 if of_subject == 0 else -1)

    def score(self, passed: Bools, answers: Floats) -> Floats:
        """Return the lead of the subject's class for every query, (q,)."""
        scores = np.zeros(len(passed))
        scores[passed] = answers @ self._along
        return scores


class PrivateKNNAdversary(FixedPlanTrial):
    """Votes of sampled neighbours; the subject's record has class 0, and lies where it lies."""

    mechanism = "Private-kNN"

    def __init__(self, adversary: Adversary) -> None:
        gamma, k = 0.15, 8
        classifier = PrivateKNNClassifier(range(2), k, gamma, sigma_votes=0.7, n_queries=2)
        super().__init__(classifier, Margin(0), str(adversary))  # type: ignore[arg-type]
        near = adversary.neighbors
        self._rank = 0 if near and adversary.queries else _RANK if near else 4 * _RANK
        size = round(30 * k / gamma)
        drawn = public_draws().random(size) < _NATURAL
        self._labels = np.ones(size, dtype=int) if adversary.data else np.where(drawn, 0, 1)

    def _fit(self, classifier: Any, present: bool) -> Any:
        labels = np.insert(self._labels, self._rank, 0) if present else self._labels
        places = 1.0 + np.arange(len(self._labels))
        if present:
            places = np.insert(places, self._rank, self._rank + 0.5)
        classifier.set_params(norm_bound=2.0 * len(labels))
        fitted = classifier.fit(places[:, None] * np.array([[1.0, 0.0]]), labels)
        fitted._release.encode_by(np.zeros((1, 2)), 1.0)
        return fitted

    def _answers(self, fitted: Any, size: int) -> tuple[Bools, npt.NDArray[Any]]:
        return answers_at_origin(fitted, size)


class PATEAdversary(FixedPlanTrial):
    """Votes of teachers that go by the nearest record; the subject's one has class 1."""

    mechanism = "PATE"

    def __init__(self, adversary: Adversary) -> None:
        teachers, others = 50, 250
        classifier = PATEClassifier(
            range(2), teachers, sigma_votes=2.0, teacher=KNeighborsClassifier(1), n_queries=2
        )
        super().__init__(classifier, Margin(1), str(adversary))  # type: ignore[arg-type]
        draws = public_draws()
        self._places = draws.random((others, 2))
        drawn = (draws.random(others) < _NATURAL).astype(int)
        self._labels = np.zeros(others, dtype=int) if adversary.data else drawn
        self._query = np.full(2, 0.5) if adversary.queries else draws.random(2)

    def _fit(self, classifier: Any, present: bool) -> Any:
        own = 1 if present else 0
        places = np.concatenate([np.full((own, 2), 0.5), self._places])
        labels = np.concatenate([np.ones(own, dtype=int), self._labels])
        ids = np.arange(1 - own, 1 + len(self._labels))
        # Who shares a teacher is drawn for every fit; two worlds differ in one subject alone.
        with patch.object(_parameters, "fresh_key", return_value=_KEY):
            return classifier.fit(places, labels, ids)

    def _answers(self, fitted: Any, size: int) -> tuple[Bools, npt.NDArray[Any]]:
        fitted.n_asked_ += size
        passed, answers = fitted._release.answer(np.tile(self._query, (size, 1)))
        return np.asarray(passed), answers


def trials() -> Iterator[FixedPlanTrial]:
    """Make all rows of the table; PATE knows no neighbours."""
    for chosen in ((1, 1, 1), (0, 1, 1), (1, 1, 0), (1, 0, 0), (0, 0, 0)):
        yield PrivateKNNAdversary(Adversary(*map(bool, chosen)))
    for data, queries in ((1, 1), (0, 1), (1, 0), (0, 0)):
        yield PATEAdversary(Adversary(bool(data), neighbors=False, queries=bool(queries)))


def measured(runs: int, seconds: float) -> Iterator[AuditResult]:
    """Carry out all of them, each with so many runs or seconds at most."""
    for trial in trials():
        yield carry_out(trial, seconds, runs=runs, controls=False)


def text_row(found: AuditResult | None = None) -> str:
    """Return a line of the table; without a result its head."""
    if found is None:
        return _HEAD
    return (
        f"{found.mechanism:14}{found.world:28}{found.epsilon_claim:>10.3f}"
        f"{found.epsilon_lower:>10.3f}{found.lower:>10.3f}{found.runs:>9}"
    )
