"""Worlds in which Ind-KNN is audited: votes, labels, vectors, returns, private counts.

The subject at risk spends its whole budget in one place, so that the claim is met and not only
kept. The attacker knows everything but whether it is there: the same estimator without noise gives
it the mean of every vote in both worlds, and it tests by the likelihood ratio.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from vicinal.audit._trials import SumsTrial
from vicinal.audit.claims import GaussianClaim
from vicinal.audit.interactions import (
    CHARGING,
    REFERENCE,
    AuditInteraction,
    Damage,
    Placed,
    Universes,
    build_universes,
    damages,
)
from vicinal.linear.private_model import SHARE
from vicinal.mechanisms.votes import SLACK_SHARE
from vicinal.planning.guarantees import total_budget
from vicinal.planning.plan import IndKNNPlan
from vicinal.predictors.averaging import ESTIMATORS
from vicinal.predictors.ind_knn import IndKNNClassifier
from vicinal.targets.kinds import declared_target
from vicinal.targets.target import VectorTarget
from vicinal.testing import World

NUMBERS: Mapping[str, Any] = {"bounds": (-1, 3)}
"""What records carry where vectors are audited without a store."""

NOISE, NEIGHBORS = 8.0, 4
"""Noise in votes, and neighbours, where the audited settings leave them open."""

RETURNING = ("ask", "leave", "return", "ask", "ask", "ask")
"""What is done with somebody whose budget lasts for one answer and a quarter."""

_SHIFTS = np.linspace(1e-3, 1.0, 1000)
_LABELS = 8  # asked of somebody alone, whose budget pays for one
_MANY = 30  # records of the subject at risk, where neighbours are counted


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
    through : str
        The door that everything goes through, where that can be: "fit", "store" or "shards".
    """

    n_classes: int = 10
    epsilon: float = 1.0
    delta: float = 1e-5
    noise: float = NOISE
    n_neighbors: int = NEIGHBORS
    further: Mapping[str, Any] = field(default_factory=dict)
    through: str = "fit"

    def parameters(self, count: int, release: str, **more: Any) -> dict[str, Any]:
        """Return parameters under which each universe's reference point sets its radius."""
        k = self.n_neighbors
        multiplier = self.noise / math.sqrt(k)
        return {
            "classes": range(self.n_classes), "epsilon": self.epsilon, "delta": self.delta,
            "n_queries": 100_000, "n_neighbors": k, "n_records": k * count,
            "noise_multiplier": multiplier, "release": release, "model_share": 0,
            **self.further, **more,
        }  # fmt: skip

    def votes(self, target: Mapping[str, Any] | None = None) -> SumsTrial:
        """Return the attack on somebody who spends everything on one answer.

        `target`, here and below, is what records carry, if no classes: parameters of the estimator
        of numbers or several labels. The subject's records then have the longest vectors.
        """
        own, other, length = _extremes(target)
        victim: list[Placed] = [(1.0, own)] * math.ceil(self.records / length)
        words = "one subject, many records, all spent on one answer"
        broken = damages("noise halved", "subjects forgotten", "memory not cleaned", *CHARGING)
        return self._trial(_sums(target), victim, [(0.9, other)], words, broken, target=target)

    def two_labels(self) -> SumsTrial:
        """Return the attack on somebody whose records have two labels."""
        victim: list[Placed] = [(1.0, 0), (0.97, 1)] * self.records
        words = "one subject, records of two labels, among others"
        broken = damages(*CHARGING)
        return self._trial("votes", victim, [(0.9, 1)] * 2, words, broken)

    def leaves_and_returns(self, target: Mapping[str, Any] | None = None) -> SumsTrial:
        """Return the attack on somebody who leaves and returns; a budget lasts 1.25 answers."""
        own, other, length = _extremes(target)
        audit = replace(self, noise=length * math.sqrt(1.25) / self.budget_mu("votes"))
        words = "one record, leaves and returns, budget nearly spent"
        broken = damages("refilled on return", "memory not cleaned", *CHARGING)
        others: list[Placed] = [(0.9, other)] * 3
        return audit._trial(
            _sums(target), [(1.0, own)], others, words, broken, RETURNING, target=target
        )

    def restarts(self, **carried: Any) -> SumsTrial:
        """Return the attack on a store that is closed and opened between answers."""
        acts = ("ask", "ask", "restart", "ask", "ask")
        words, broken = "one record; the store is closed and opened again", "refilled at restart"
        return self._one_record("restart", words, broken, acts, **carried)

    def shards(self) -> SumsTrial:
        """Return the attack on one record that is asked about through shards."""
        words, acts = "one record, asked about, reopened", ("ask", "ask", "restart", "ask", "ask")
        audit = replace(self, through="shards")
        return audit._one_record("shards", words, "refilled at restart", acts)

    def size(self, **carried: Any) -> SumsTrial:
        """Return the attack on the noisy number of records, which every subject pays for first."""
        words, acts = "one record, counted first, then asked about", ("ask",) * 3
        # Counted before a store is split, if it is.
        return replace(self, through="store")._one_record(
            "noisy size", words, "size uncharged", acts, n_records=None, **carried
        )

    def evaluation(self, **carried: Any) -> SumsTrial:
        """Return the attack on an evaluation, which those who bring labels pay for."""
        words, acts = "one record, and its label evaluated", ("ask", "evaluate", "ask", "ask")
        return self._one_record("evaluation", words, "evaluation uncharged", acts, **carried)

    def _one_record(
        self, name: str, words: str, broken: str, acts: Sequence[str], *,
        label: bool = False, target: Mapping[str, Any] | None = None, **more: Any,
    ) -> SumsTrial:  # fmt: skip
        """Return an attack on one record in a store, whose budget lasts for 1.25 answers, or so."""
        own, other, length = _extremes(target)
        release = "label" if label else "votes"
        shift = self._affordable("label") if label else self.budget_mu("votes") / math.sqrt(1.25)
        audit, others = replace(self._stored, noise=length / shift), [(0.9, other)] * 2
        return audit._trial(
            name,
            [(1.0, own)],
            others,
            words,
            damages(broken, *CHARGING),
            acts,
            release,
            target,
            **more,
        )

    def total(self, epsilon: float) -> SumsTrial:
        """Return the attack of two audiences on what a store promises of all audiences together."""
        budget = total_budget(epsilon, self.delta)
        # Plans of the store's own may need many audiences to come up to the total.
        audit = replace(self, noise=math.sqrt(0.625 / budget), epsilon=epsilon)
        parameters = audit.parameters(1, "votes", epsilon_total=epsilon)
        acts = ("ask", "open", "ask_other", "ask_other", "ask")
        world = build_universes([(1.0, 0)], [(0.9, 1)])
        claim = GaussianClaim(math.sqrt(2 * budget), self.delta, 10 * SLACK_SHARE * self.delta)
        words, broken = (
            "one record, asked about by two audiences",
            damages("total uncharged", *CHARGING),
        )
        interaction = AuditInteraction(parameters, world, acts, through="store")
        return SumsTrial("Total over audiences", interaction, words, broken, claim)

    def model(
        self, share: float = SHARE, refreshes: int = 1, release: str = "votes",
        target: Mapping[str, Any] | None = None,
    ) -> SumsTrial:  # fmt: skip
        """Return the attack on a private model: trained, asked beside, trained again.

        Training takes all of its part of the subject's budget, answers take the rest, and what is
        trained after them must find nothing left.
        """
        shift = self.budget_mu(release) if release == "votes" else self._affordable(release)
        own, other, length = _extremes(target)
        audit = replace(self._stored, noise=length / shift)
        parameters = audit.parameters(
            _MODEL_PUBLIC, release, model_share=share, model_refreshes=refreshes
        )
        acts = ("ask", "ask", "refresh") if refreshes else ("ask", "ask")
        broken = damages(
            "training uncharged",
            "training neither charged nor stopped",
            "noise a quarter",
            *CHARGING,
        )
        if not refreshes:  # a first training stops nobody, and is told by what comes after it
            del broken["stopped late"]
        world, words = (
            _model_world(own, other),
            "one record, its part of the budget trained on, then asked",
        )
        interaction = audit._interaction(parameters, world, (*acts, "restart", "ask"), target)
        return SumsTrial("Ind-KNN private model", interaction, words, broken)

    def opposite_vectors(self, target: Mapping[str, Any] = NUMBERS) -> SumsTrial:
        """Return the attack on somebody whose records say opposite things: their sum is charged."""
        longest, shortest, _ = _extremes(target)
        pair: list[Placed] = [(1.0, longest), (0.97, shortest)]
        victim = pair * math.ceil(self.records / _length(target, pair))
        words = "one subject, records that say opposite things, among others"
        broken = damages(*CHARGING)
        return self._trial("vectors", victim, [(0.9, shortest)], words, broken, target=target)

    def sparse_vectors(self) -> SumsTrial:
        """Return the attack on two labels of very many, under one record and under several."""
        return self.leaves_and_returns({"labels": range(50), "tau": 2.0})

    @property
    def records(self) -> int:
        """Records that spend a whole budget on the votes of one answer."""
        return math.ceil(1.01 * self.noise * self.budget_mu("votes")) + 1

    def labels(self) -> SumsTrial:
        """Return the attack on somebody who spends everything on one label with many records."""
        shift = self._affordable("label")
        records = max(1, round(NOISE * shift))
        audit, victim = replace(self, noise=records / shift), [(1.0, 0)] * records
        words = "one subject, many records, all spent on one label"
        broken, acts = damages("noise a third", *CHARGING), ("ask",) * 2  # again when all is spent
        return audit._trial("labels", victim, [(0.1, 1)], words, broken, acts, "label")

    def labels_alone(self) -> SumsTrial:
        """Return the attack on somebody alone, asked long after its budget is spent."""
        audit = replace(self, noise=1 / self._affordable("label"))
        words = "one record, alone, asked long after its budget is spent"
        broken, acts = damages("noise a third", *CHARGING), ("ask",) * _LABELS
        return audit._trial("labels", [(1.0, 0)], [(0.1, 1)], words, broken, acts, "label")

    def counts(self) -> SumsTrial:
        """Return the attack on a private count: somebody with many records spends all on one."""
        estimator = IndKNNClassifier.zhu2023(
            range(self.n_classes), self.epsilon, self.delta, 3 * _MANY**2 + 1, tau=0.8,
            noise_multiplier=1.0,
        )  # fmt: skip
        parameters = {**estimator.get_params(), **self.further, "n_records": 5}
        del parameters["interactions"]
        world = build_universes([(1.0, 0)] * _MANY, [(0.9, 0)] * 5)
        words = "one subject, many records, all spent on counts and votes"
        broken = damages("noise halved", "counts uncharged", *CHARGING)
        interaction = AuditInteraction(parameters, world, ("ask",) * 3)
        return SumsTrial("Ind-KNN private count", interaction, words, broken)

    def canaries(
        self, count: int, release: str, target: Mapping[str, Any] | None, asks: int, cost: float
    ) -> AuditInteraction:
        """Return one interaction with `count` canaries, asked so often; one could cost `cost`.

        In whole budgets. What is dearer than a budget is cut to it.
        """
        own, other, length = _extremes(target)
        shift = self._affordable("label") if release == "label" else self.budget_mu("votes")
        # No answer moves by more than its noise, so a large budget takes several.
        rounds = math.ceil(cost * shift**2)
        audit = replace(self, noise=length * math.sqrt(rounds / cost) / shift)
        parameters = audit.parameters(count, release, n_queries=2 * asks * rounds * count)
        world = build_universes([(1.0, own)], [(0.9, other)], count=count, twice=False)
        acts = ("ask",) * (asks * rounds)
        return replace(audit, through="fit")._interaction(parameters, world, acts, target)

    def _trial(
        self,
        name: str,
        victim: list[Placed],
        others: list[Placed],
        words: str,
        broken: Mapping[str, Damage],
        acts: Sequence[str] = ("ask",) * 3,
        release: str = "votes",
        target: Mapping[str, Any] | None = None,
        **more: Any,
    ) -> SumsTrial:
        # Far from the query, so that no shard holds the subject alone.
        bystanders = [(0.0, others[0][1])] * (24 if self.through == "shards" else 0)
        world = build_universes(victim, [*others, *bystanders])
        parameters = self.parameters(1, release, **more)
        interaction = self._interaction(parameters, world, acts, target)
        return SumsTrial(f"Ind-KNN {name}", interaction, words, broken)

    @property
    def _stored(self) -> "IndKNNAudit":
        """The same where there must be a store."""
        return replace(self, through="store") if self.through == "fit" else self

    def _interaction(
        self, parameters: dict[str, Any], world: Universes, acts: Sequence[str],
        target: Mapping[str, Any] | None,
    ) -> AuditInteraction:  # fmt: skip
        if target is None:
            return AuditInteraction(parameters, world, acts, through=self.through)
        carried = ("classes", "release")
        own = {k: v for k, v in parameters.items() if k not in carried} | dict(target)
        estimator = ESTIMATORS[declared_target(target).kind]
        return AuditInteraction(own, world, acts, estimator, self.through)

    def _settings(self, release: str) -> IndKNNPlan:
        return IndKNNPlan.of(IndKNNClassifier(**self.parameters(1, release)))

    def _affordable(self, release: str) -> float:
        """Return the largest shift in noise scales of one vote that a budget pays for."""
        charges = self._settings(release).charges
        costs = [float(charges.share(s, 1.0)) * s**2 / (2 * charges.budget) for s in _SHIFTS]
        affordable = [s for s, cost in zip(_SHIFTS.tolist(), costs, strict=True) if cost <= 1]
        return float(max(affordable, default=_SHIFTS[0]))

    def budget_mu(self, release: str) -> float:
        """Return the Gaussian shift that a whole budget stands for, sqrt(2 B)."""
        return math.sqrt(2 * self._settings(release).spendable)


_MODEL_PUBLIC = 100


def _model_world(own: Any, other: Any) -> Universes:
    """Return somebody whose feature is its own, far from two crowds that a model is sure of.

    A model leaves to records those queries that it is less sure of than of most public rows.
    """
    q, aside, crowd, spread = np.eye(4)
    angles = np.linspace(-0.3, 0.3, _MODEL_PUBLIC)[:, None]
    near = np.cos(angles) * crowd + np.sin(angles) * spread
    records = np.concatenate([near, near, -near, -near])
    ids = 1 + np.concatenate(
        [np.arange(2 * len(near)), 2 * len(near) + np.arange(len(near)).repeat(2)]
    )
    labels = np.repeat(np.array([other, own]), 2 * len(near), axis=0)
    public = np.concatenate([[REFERENCE * q + 0.6 * aside], near[1::2], -near[1:-1:2]])
    victim = World(q[None], np.array([own]), np.zeros(1, dtype=int))
    return Universes(1, victim, World(records, labels, ids), public, q[None])


def _sums(target: Mapping[str, Any] | None) -> str:
    """Return what noisy sums are called."""
    return "votes" if target is None else "vectors"


def _extremes(target: Mapping[str, Any] | None) -> tuple[Any, Any, float]:
    """Return what the longest vector and its opposite say, as in `y`, and the longest's length.

    Two classes, and one vote, where records carry classes.
    """
    if target is None:
        return 0, 1, 1.0
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
