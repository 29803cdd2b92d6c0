"""Worlds in which Ind-KNN is audited: votes, labels, vectors, gates, returns, private counts.

The subject at risk spends its whole budget in one place, so that the claim is met and not only
kept. The attacker knows everything but whether it is there: the same estimator without noise gives
it the mean of every vote in both worlds, and it tests by the likelihood ratio.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from scipy.stats import binom

from vicinal.audit._claims import Claim, RateBounds, ind_knn_claim
from vicinal.audit._visits import Damage, Placed, Visits, damages, universes
from vicinal.audit._vote_trials import (
    COMPANY,
    MANY,
    CountsTrial,
    GateTrial,
    LabelsTrial,
    VectorsTrial,
    VotesTrial,
    chances_of_first,
)
from vicinal.planning import GATE, IndKNNPlan
from vicinal.predictors import ESTIMATORS, IndKNNClassifier
from vicinal.targets import VectorTarget, declared_target

NUMBERS: Mapping[str, Any] = {"bounds": (-1, 3)}
"""What records carry where vectors are audited without a store."""

NOISE, NEIGHBORS = 8.0, 4
"""Noise in votes, and neighbours, where the audited settings leave them open."""

ROUNDS = 3
"""How often somebody is asked about whose budget lasts for one answer."""

_RECORDS = 1 << 14  # of all universes together, or so
_OFFSETS = np.linspace(0.0, 3.0, 13)
_SHIFTS = np.linspace(1e-3, 1.0, 1000)
_EXPECTED_RUNS = 300_000
_LABELS = 8  # asked of somebody alone, whose budget pays for one
_CROWD = 45  # others whose label the gate learns to be sure of


@dataclass(frozen=True)
class IndKNNAudit:
    """What is known of the classifier that is audited; all of it is public.

    Attributes
    ----------
    n_classes : int
        c.
    epsilon, delta : float
        The guarantee.
    noise : float
        Noise on every class in votes; larger needs more records and time.
    n_neighbors : int
        k.
    further : mapping
        Other parameters of the estimator, such as its kernel or accounting.
    """

    n_classes: int = 10
    epsilon: float = 1.0
    delta: float = 1e-5
    noise: float = NOISE
    n_neighbors: int = NEIGHBORS
    further: Mapping[str, Any] = field(default_factory=dict)

    def parameters(self, count: int, release: str, **more: Any) -> dict[str, Any]:
        """Return parameters under which each universe's reference point sets its radius."""
        k = self.n_neighbors
        multiplier = self.noise / math.sqrt(k)
        return {
            "classes": range(self.n_classes), "epsilon": self.epsilon, "delta": self.delta,
            "n_queries": 100_000, "n_neighbors": k, "n_records": k * count,
            "noise_multiplier": multiplier, "release": release, **self.further, **more,
        }  # fmt: skip

    def votes(self) -> VotesTrial:
        """Return the attack on somebody who spends everything on one answer."""
        victim: list[Placed] = [(1.0, 0)] * self.records
        count = _count_for(self.records + 1)
        world = universes(victim, [(0.9, 1)], count=count)
        visits = Visits(self.parameters(count, "votes"), world, rounds=ROUNDS)
        broken = damages("noise halved", "charge skipped", "subjects forgotten")
        return VotesTrial(visits, "one subject, many records, all spent on one answer", broken)

    def two_labels(self) -> VotesTrial:
        """Return the attack on somebody whose records have two labels."""
        count = _count_for(2 * self.records + 2)
        victim: list[Placed] = [(1.0, 0), (0.97, 1)] * self.records
        world = universes(victim, [(0.9, 1)] * 2, count=count)
        visits = Visits(self.parameters(count, "votes"), world, rounds=ROUNDS)
        words = "one subject, records of two labels, among others"
        return VotesTrial(visits, words, damages("charge skipped"))

    def gate(self) -> GateTrial:
        """Return the attack on answers that a model is trained on, which then answers itself."""
        victim: list[Placed] = [(1.0, 0)] * self.records
        # All in one block: a gate that learnt from an earlier one would answer the rest itself.
        count = _count_for(self.records + _CROWD)
        records = universes(victim, [(0.9, 1)] * _CROWD, count=count)
        parameters = self.parameters(count, "votes", reuse_predictions=GATE)
        # A gate opens in the third round.
        visits = Visits(parameters, records, ROUNDS, repeats=1)
        world = "one subject, all spent on one answer; a model of earlier answers answers"
        return GateTrial(visits, world, damages("charge skipped"))

    def vectors(self, target: Mapping[str, Any] = NUMBERS) -> VectorsTrial:
        """Return the attack on vectors: many records of the longest one, in one answer.

        `target` is what records carry: parameters of the estimator of numbers or several labels.
        """
        longest, shortest, length = _extremes(target)
        victim = [(1.0, longest)] * math.ceil(self.records / length)
        words = "one subject, many of the longest vectors, all spent on one answer"
        broken = damages("noise halved", "charge skipped", "subjects forgotten")
        return self._vector_trial(target, victim, shortest, words, broken)

    def opposite_vectors(self, target: Mapping[str, Any] = NUMBERS) -> VectorsTrial:
        """Return the attack on somebody whose records say opposite things: their sum is charged."""
        longest, shortest, _ = _extremes(target)
        pair: list[Placed] = [(1.0, longest), (0.97, shortest)]
        victim = pair * math.ceil(self.records / _length(target, pair))
        words = "one subject, records that say opposite things, among others"
        return self._vector_trial(target, victim, shortest, words, damages("charge skipped"))

    def returning_vectors(self, target: Mapping[str, Any] = NUMBERS) -> VectorsTrial:
        """Return the attack on a vector that leaves and returns; a budget lasts 1.25 answers."""
        longest, shortest, length = _extremes(target)
        audit = replace(self, noise=length * math.sqrt(1.25) / self.budget_mu("votes"))
        words = "one vector, leaves and returns, budget nearly spent"
        broken = damages("refilled on return")
        return audit._vector_trial(target, [(1.0, longest)], shortest, words, broken, returns=True)

    def _vector_trial(
        self,
        target: Mapping[str, Any],
        victim: list[Placed],
        other: Any,
        words: str,
        broken: Mapping[str, Damage],
        *,
        returns: bool = False,
    ) -> VectorsTrial:
        count = 64 if returns else _count_for(len(victim) + 1)
        shared = self.parameters(count, "votes")
        del shared["classes"], shared["release"]
        world = universes(victim, [(0.9, other)], count=count)
        visits = Visits(
            {**shared, **target}, world, ROUNDS + returns, returns=returns,
            estimator=ESTIMATORS[declared_target(target).kind],
        )  # fmt: skip
        return VectorsTrial(visits, words, broken)

    @property
    def records(self) -> int:
        """Records that spend a whole budget on the votes of one answer."""
        return math.ceil(1.01 * self.noise * self.budget_mu("votes")) + 1

    def leaves_and_returns(self) -> VotesTrial:
        """Return the attack on somebody who leaves and returns; a budget lasts 1.25 answers."""
        noise = math.sqrt(1.25) / self.budget_mu("votes")
        world = universes([(1.0, 0)], [(0.9, 1)] * 3, count=64)
        audit = replace(self, noise=noise)
        visits = Visits(audit.parameters(64, "votes"), world, rounds=4, returns=True)
        words = "one record, leaves and returns, budget nearly spent"
        return VotesTrial(visits, words, damages("refilled on return", "noise halved"))

    def labels(self) -> LabelsTrial:
        """Return the attack on somebody who spends everything on a few labels, behind rivals."""
        return self._raced(LabelsTrial, "")

    def students(self) -> LabelsTrial:
        """Return the same attack on students of two classes, trained on those labels alone."""
        from vicinal.audit._vote_trials import StudentTrial

        audit = replace(self, n_classes=2)
        return audit._raced(StudentTrial, "a student of labels; ", further=0)

    def _raced(self, trial: type[LabelsTrial], words: str, further: int = 1) -> LabelsTrial:
        """Return a race; so many `further` labels are asked when the budget is spent."""
        race = _best_race(self._settings("label"))
        audit = replace(self, noise=max(1, round(NOISE * race.shift)) / race.shift)
        victim: list[Placed] = [(1.0, 0)] * round(audit.noise * race.shift)
        rivals = round(race.offset * audit.noise / 0.9)
        others: list[Placed] = [(0.9, c) for c in range(1, self.n_classes) for _ in range(rivals)]
        count = _count_for(len(victim) + len(others) + 1)
        world = universes(victim, others or [(0.1, 1)], count=count)
        visits = Visits(audit.parameters(count, "label"), world, rounds=race.rounds + further)
        words += f"one subject, all spent on {race.rounds} of the labels, behind equal rivals"
        return trial(visits, words, damages("noise a third"))

    def labels_alone(self) -> LabelsTrial:
        """Return the attack on somebody alone, asked long after its budget is spent."""
        shift = _affordable_shift(self._settings("label"), 1)
        audit = replace(self, noise=1 / shift)
        world = universes([(1.0, 0)], [(0.1, 1)], count=64)
        visits = Visits(audit.parameters(64, "label"), world, rounds=_LABELS)
        words = "one record, alone, asked long after its budget is spent"
        return LabelsTrial(visits, words, damages("charge skipped", "noise a third"))

    def counts(self) -> CountsTrial:
        """Return the attack on a private count: somebody with many records spends all on one."""
        estimator = IndKNNClassifier.zhu2023(
            range(self.n_classes), self.epsilon, self.delta, 3 * MANY**2 + 1, tau=0.8,
            noise_multiplier=1.0,
        )  # fmt: skip
        world = universes([(1.0, 0)] * MANY, [(0.9, 0)] * COMPANY, count=64)
        parameters = {**estimator.get_params(), **self.further, "n_records": 64 * COMPANY}
        del parameters["interactions"]
        return CountsTrial(Visits(parameters, world, rounds=1))

    def _settings(self, release: str) -> IndKNNPlan:
        return IndKNNPlan.of(IndKNNClassifier(**self.parameters(1, release)))

    def budget_mu(self, release: str) -> float:
        """Return the Gaussian shift that a whole budget stands for, sqrt(2 B)."""
        return math.sqrt(2 * self._settings(release).spendable)


@dataclass(frozen=True)
class Race:
    """How labels are attacked: so many of them, at this shift, rivals so far ahead (in noise)."""

    rounds: int
    shift: float
    offset: float


def _best_race(settings: IndKNNPlan) -> Race:
    """Return the race that proves most of the claim, in as many runs as an audit may have."""
    shifts = {rounds: _affordable_shift(settings, rounds) for rounds in (1, 2, 4, 8, 16)}
    races = [
        Race(rounds, shift, float(offset))
        for rounds, shift in shifts.items()
        for offset in _OFFSETS
    ]
    claim, classes = ind_knn_claim(settings), len(settings.class_names)
    return max(races, key=lambda race: _promise(race, claim, classes))


def _affordable_shift(settings: IndKNNPlan, labels: int) -> float:
    """Return the shift in noise scales that an equal part of a budget pays for in one label."""
    charges = settings.charges
    costs = np.array([charges.share(float(shift)) * shift**2 / 2 for shift in _SHIFTS])
    return float(_SHIFTS[max(0, int(np.searchsorted(costs, charges.zcdp / labels)) - 1)])


def _promise(race: Race, claim: Claim, classes: int) -> float:
    """Return about which share of the claim an audit of a race would prove."""
    votes = np.zeros((2, classes))
    votes[:, 1:], votes[1, 0] = race.offset, race.shift
    chances = chances_of_first(votes)
    best = 0.0
    for wins in range(race.rounds):
        absent, present = (float(binom.sf(wins, race.rounds, p)) for p in chances)
        right = (present + 1 - absent) / 2
        low = [
            rate - 5 * math.sqrt(rate * (1 - rate) / _EXPECTED_RUNS)
            for rate in (present, 1 - absent)
        ]
        sure = right - 5 * math.sqrt(right * (1 - right) / (2 * _EXPECTED_RUNS))
        for rates in (RateBounds(low[0], 1 - low[1]), RateBounds(sure, 1 - sure, even=True)):
            if 0 < rates.false_alarms < rates.power < 1:
                best = max(best, rates.mu / claim.allowed(rates))
    return best


def _extremes(target: Mapping[str, Any]) -> tuple[Any, Any, float]:
    """Return what the longest vector and its opposite say, as in `y`, and the longest's length."""
    longest, shortest = _declared(target).extremes
    return longest, shortest, _length(target, [(1.0, longest)])


def _declared(target: Mapping[str, Any]) -> VectorTarget:
    declared = declared_target(target)
    assert isinstance(declared, VectorTarget)  # noqa: S101 (of targets that are no class)
    return declared


def _length(target: Mapping[str, Any], records: list[Placed]) -> float:
    """Return the length of the sum of records' vectors, under their kernel weights."""
    y = np.array([each for _, each in records])
    vectors = _declared(target).encode(y, len(y))
    return float(np.linalg.norm(np.array([cosine for cosine, _ in records]) @ vectors.dense()))


def _count_for(records: int) -> int:
    return max(32, min(128, _RECORDS // records))
