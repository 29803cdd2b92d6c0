"""Audits of noisy gradients: NoisySGD, and the private model that Ind-KNN trains in `fit`.

Every subject at risk has a feature of its own, so its gradient lies in a row of its own, and the
noise there is drawn for itself: one release on many features is as many independent runs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from vicinal._arrays import Floats
from vicinal.accounting import UNITS
from vicinal.audit._claims import PlanClaim, gaussian_claim
from vicinal.audit._damage import Heads, damages
from vicinal.audit._trials import AuditTrial
from vicinal.mechanisms import (
    DeltaSlackAccountant,
    IndividualGradient,
    NoisyGradient,
    ReleaseCounter,
    SubjectRows,
    SystemBernoulli,
)
from vicinal.planning import IndKNNSettings
from vicinal.predictors import IndKNNClassifier

RUNS = 256
"""Subjects at risk in one release."""

UNIT = 1000.0
"""Integer steps of a feature of 1."""

SHARE = 0.7
"""Of a budget, which training takes where no plan says another."""

_CLASSES, _CLIP, _STEPS, _REPEATS = 2, 0.5, 4, 16
_ALONG = np.array([-1.0, 1.0]) / math.sqrt(2)
"""Direction of the gradient of a record with label 0 at weights 0, in its row."""


def lone_subjects(present: bool, records: int = 1, *, forgets: bool = False) -> SubjectRows:
    """Return subjects with `records` equal records each, on a feature of their own; or none."""
    count = RUNS if present else 0
    rows = np.repeat(UNIT * np.eye(RUNS, dtype=np.float32)[:count], records, axis=0)
    slots = np.arange(count * records) if forgets else np.repeat(np.arange(count), records)
    size = count * records if forgets else count
    return SubjectRows(rows, np.zeros(len(rows), dtype=np.int32), slots.astype(np.int32), size)


class NoisySGDTrial(AuditTrial):
    """Gradients of sampled batches, each subject alone.

    `gamma`, `sigma`: sampling rate and noise multiplier. `steps`: gradients of one run. `delta`: of
    the claim.
    """

    mechanism = "NoisySGD"
    world = "gradients of one subject, alone in its batch"
    _damages = damages("noise halved", "subjects forgotten", "everybody sampled")

    def __init__(
        self, gamma: float = 0.15, sigma: float = 0.6, steps: int = 3, delta: float = 1e-5
    ) -> None:
        self._gamma, self._sigma, self._steps = gamma, sigma, steps
        release = {"kind": "gaussian", "sigma": sigma, "gamma": gamma, "count": steps}
        self.claim = PlanClaim({"delta": delta, "releases": [release]})

    def play(self, present: bool) -> Floats:
        """Return the log likelihood ratio of all gradients of each subject's row."""
        people = lone_subjects(present, 3, forgets=self._damage.forgets_subjects)
        gradient = NoisyGradient(
            people, _CLASSES, UNIT, self._gamma, _CLIP, self._sigma,
            ReleaseCounter(self._steps, "steps"), self._damage.noise(),
            Heads() if self._damage.samples_all else SystemBernoulli(),
        )  # fmt: skip
        weights, total = np.zeros((RUNS, _CLASSES)), np.zeros(RUNS)
        for _ in range(self._steps):
            along = gradient.publish(weights) @ _ALONG
            away = (along - 0.5) / self._sigma**2
            total += np.logaddexp(math.log(self._gamma) + away, math.log1p(-self._gamma))
        return total


class PrivateModelTrial(AuditTrial):
    """Gradients that Ind-KNN trains its private model by, charged to each subject.

    `parameters`: of :class:`~vicinal.predictors.IndKNNClassifier`. `share`: of every budget, which
    training may take: that is all that it may show.
    """

    mechanism = "Ind-KNN private model"
    world = "one subject, its whole share spent on a few gradients"
    _damages = damages("noise a quarter", "subjects forgotten")

    def __init__(self, parameters: Mapping[str, Any], share: float = SHARE) -> None:
        self._share = share
        settings = IndKNNSettings.of(IndKNNClassifier(**parameters))
        self._budget = settings.spendable
        self.claim = gaussian_claim(settings, share)

    def play(self, present: bool) -> Floats:
        """Return a score for each subject's row: about 0 without it, 1 with it."""
        people = lone_subjects(present, 2, forgets=self._damage.forgets_subjects)
        sigma = math.sqrt(_STEPS / (2 * self._share * self._budget))
        gradient = IndividualGradient(
            people, _CLASSES, UNIT, _CLIP, sigma, self._share, self._budget, self._damage.noise(),
            DeltaSlackAccountant(1e-5, needed=False),
        )  # fmt: skip
        remaining = np.full(len(people), UNITS, dtype=np.int64)
        weights, total = np.zeros((RUNS, _CLASSES)), np.zeros((_REPEATS, RUNS))
        for _ in range(_STEPS):
            release = gradient.release(sigma)
            # Charged once for all repeats: noise does not enter contributions.
            sums, _ = release.collect(weights, remaining)
            total += [release.publish(sums) @ _ALONG / _STEPS for _ in range(_REPEATS)]
        return total.ravel()
