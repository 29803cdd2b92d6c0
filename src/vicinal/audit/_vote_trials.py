"""Attacks on noisy sums, labels and private counts of Ind-KNN, by the likelihood ratio."""

import math
import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
from scipy.special import log_ndtr

from vicinal._arrays import Floats, Ints
from vicinal.accounting import UNITS
from vicinal.audit._claims import PlanClaim, gaussian_claim
from vicinal.audit._schedule import AuditTrial
from vicinal.audit._visits import Damage, Heads, Visits, damages
from vicinal.mechanisms import (
    DeltaSlackAccountant,
    IndividualGradient,
    NoisyGradient,
    ReleaseCounter,
    SubjectRows,
    SystemBernoulli,
    public_draws,
)
from vicinal.planning import IndKNNPlan
from vicinal.predictors import IndKNNClassifier
from vicinal.testing import refill

MANY, COMPANY = 30, 5
"""Records of the subject at risk, and of others, where neighbours are counted."""

_NODES, _NODE_WEIGHTS = np.polynomial.hermite_e.hermegauss(81)


class UniversesTrial(AuditTrial):
    """An attack on universes; `world` says where the subject stands, `damages` what to break."""

    def __init__(self, visits: Visits, world: str, damages: Mapping[str, Damage]) -> None:
        self.world = world
        self._visits, self._damages = visits, damages
        self.claim = visits.claim
        self._prepare()


class VotesTrial(UniversesTrial):
    """Noisy votes of universes, scored by the likelihood ratio of all votes of a universe."""

    mechanism = "Ind-KNN votes"

    def _prepare(self) -> None:
        self._absent, there = (
            self._visits.sums(present, self._damage) for present in (False, True)
        )
        self._shift = there - self._absent
        self._length = np.square(self._shift).sum(axis=(0, 2))

    def play(self, present: bool) -> Floats:
        votes = self._visits.answers(present, self._damage)
        away = votes.reshape(len(votes), -1, *self._shift.shape[1:]) - self._absent[:, None]
        gain = (away * self._shift[:, None]).sum(axis=(0, 3))
        return np.asarray(gain / self._length).ravel()


class VectorsTrial(VotesTrial):
    """The same for estimators whose records add vectors."""

    mechanism = "Ind-KNN vectors"


class GateTrial(VotesTrial):
    """Noisy votes that leave while a model of earlier answers answers where it is sure."""

    mechanism = "Ind-KNN gate"

    def play(self, present: bool) -> Floats:
        classifier = self._visits.fitted(present, self._damage)
        gain = np.zeros(self._absent.shape[1])
        for number, (absent, shift) in enumerate(zip(self._absent, self._shift, strict=True)):
            if number and self._damage.skips_charges:
                refill(classifier)
            answers = classifier.query(self._visits.world.queries)
            assert answers.votes is not None  # noqa: S101 (votes leave)
            away = answers.votes / answers.noise[:, None] - absent
            gain += np.nan_to_num(away * shift).sum(axis=1)
        return np.asarray(gain / self._length)


class LabelsTrial(UniversesTrial):
    """Labels of universes, scored by the likelihood ratio of whether the subject's class won."""

    mechanism = "Ind-KNN labels"

    def _prepare(self) -> None:
        wins = [
            chances_of_first(self._visits.sums(present, self._damage) * self._damage.noise_divisor)
            for present in (False, True)
        ]
        self._won = np.log(wins[1] / wins[0])
        self._lost = np.log((1 - wins[1]) / (1 - wins[0]))

    def play(self, present: bool) -> Floats:
        labels = self._visits.answers(present, self._damage)
        won = labels.reshape(len(labels), -1, self._won.shape[1]) == 0
        gain = np.where(won, self._won[:, None], self._lost[:, None]).sum(axis=0)
        return np.asarray(gain).ravel()


class CountsTrial(AuditTrial):
    """Private counts of neighbours: the noisy count itself, though only its noise scale leaves.

    Who sees the votes learns less about the count than who sees the count.
    """

    mechanism = "Ind-KNN private count"
    world = "one subject, many records, all spent on one count"

    _damages = damages("noise halved")

    def __init__(self, visits: Visits) -> None:
        self._visits = visits
        self.claim = visits.claim

    def play(self, present: bool) -> Floats:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            classifier = self._visits.fitted(present, self._damage)
        engine = classifier._engine
        counter = engine.count
        assert counter is not None  # noqa: S101 (counts are private here)
        queries = classifier._encoded(self._visits.world.queries)
        thresholds = engine.radius.thresholds(queries)
        (rounds,) = engine.shard.rounds(queries, thresholds, together=True)
        counter.price(len(queries))
        counts = rounds.charge_counts(counter)
        drawn = np.concatenate([counter.publish(counts) for _ in range(self._visits.repeats)])
        return np.asarray((drawn - COMPANY) / MANY)


def chances_of_first(votes: Floats) -> Floats:
    """Return how likely the first class has the most noisy votes; `votes` in noise scales."""
    leads = votes[..., :1] - votes[..., 1:]
    wins = np.zeros(votes.shape[:-1])
    for node, weight in zip(_NODES.tolist(), _NODE_WEIGHTS.tolist(), strict=True):
        wins += weight * np.exp(log_ndtr(node + leads).sum(axis=-1))
    return np.clip(wins / math.sqrt(2 * math.pi), 1e-12, 1 - 1e-12)


# ---------------------------------------------------------------- noisy gradients

RUNS = 256
"""Subjects at risk in one release."""

UNIT = 1000.0
"""Integer steps of a feature of 1."""

SHARE = 0.7
"""Of a budget, which training takes where no plan says another."""

_CLASSES, _CLIP, _STEPS, _REPEATS = 2, 0.5, 4, 16
_ALONG = np.array([-1.0, 1.0]) / math.sqrt(2)
"""Direction of the gradient of a record with label 0 at weights 0, in its row."""


def _lone_subjects(present: bool, records: int = 1, *, forgets: bool = False) -> SubjectRows:
    """Return subjects with `records` equal records each, on a feature of their own; or none."""
    count = RUNS if present else 0
    rows = np.repeat(UNIT * np.eye(RUNS, dtype=np.float32)[:count], records, axis=0)
    slots = np.arange(count * records) if forgets else np.repeat(np.arange(count), records)
    size = count * records if forgets else count
    return SubjectRows(rows, np.zeros(len(rows), dtype=np.int32), slots.astype(np.int32), size)


class NoisySGDTrial(AuditTrial):
    """Gradients of sampled batches, each subject alone; `steps` of them are one run."""

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
        people = _lone_subjects(present, 3, forgets=self._damage.forgets_subjects)
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

    A training may take, and so show, a `share` of every budget.
    """

    mechanism = "Ind-KNN private model"
    world = "one subject, its whole share spent on a few gradients"
    _damages = damages("noise a quarter", "subjects forgotten")

    def __init__(self, parameters: Mapping[str, Any], share: float = SHARE) -> None:
        self._share = share
        settings = IndKNNPlan.of(IndKNNClassifier(**parameters))
        self._budget = settings.spendable
        self.claim = gaussian_claim(settings, share)

    def play(self, present: bool) -> Floats:
        people = _lone_subjects(present, 2, forgets=self._damage.forgets_subjects)
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


# ---------------------------------------------------------------- published students

_POOL, _WIDTH = 6, 16  # public examples; the first is the query, two others have public labels


class StudentTrial(LabelsTrial):
    """Students of the labels of one query: how sure each is there of the subject's class."""

    mechanism = "Student"

    def _prepare(self) -> None:
        self._known: dict[bytes, float] = {}

    def play(self, present: bool) -> Floats:
        labels = self._visits.answers(present, self._damage).reshape(self._visits.rounds, -1)
        kinds, which = np.unique(np.sort(labels, axis=0), axis=1, return_inverse=True)
        for kind in kinds.T:
            if kind.tobytes() not in self._known:
                self._known[kind.tobytes()] = _sureness(kind)
        return np.array([self._known[kind.tobytes()] for kind in kinds.T])[which.ravel()]


def _sureness(labels: Ints) -> float:
    """Return how sure a student of these labels of one query, (q,), is of the first of two."""
    from vicinal.students import Recipe, train_student

    pool = public_draws(0).normal(size=(_POOL, _WIDTH)).astype(np.float32)
    rows = np.concatenate([np.zeros(len(labels), dtype=int), [1, 2]])
    recipe = Recipe(network="mlp", method="plain", steps=10, labelled=8, unlabelled=2)
    student = train_student(pool, rows, [*labels.tolist(), 0, 1], [0, 1], recipe)
    return float(student.predict_proba(pool[:1])[0, 0])
