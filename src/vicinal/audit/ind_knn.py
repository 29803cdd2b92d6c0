"""Attacks on Ind-KNN: on votes, labels, vectors, re-enrolment, private counts and models.

Each attack is tight: one subject, the victim, spends its whole budget, so that the privacy loss
equals the claim. The attacker knows everything but whether the victim is in the data set. It knows
the noise-free value of every release in both worlds, and uses the likelihood ratio test.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from vicinal.audit._trials import SumsTrial
from vicinal.audit.claims import GaussianClaim
from vicinal.audit.interactions import (
    CHARGE_FAULTS,
    REFERENCE_COSINE,
    AuditInteraction,
    CosineRecord,
    InjectedFault,
    Universes,
    build_universes,
    select_faults,
)
from vicinal.linear.private_model import MAX_TRAINING_SHARE
from vicinal.mechanisms.votes import SLACK_SHARE
from vicinal.planning.guarantees import total_budget
from vicinal.planning.plan import IndKNNPlan
from vicinal.predictors.averaging import ESTIMATORS
from vicinal.predictors.ind_knn import IndKNNClassifier
from vicinal.targets.kinds import declared_target
from vicinal.targets.target import VectorTarget
from vicinal.testing import World

NUMBER_TARGET: Mapping[str, Any] = {"bounds": (-1, 3)}
"""Target of the records where vectors are audited without a store: one bounded number."""

_DEFAULT_NOISE = 8.0
_DEFAULT_NEIGHBORS = 4
"""Noise on each class in votes, and number of neighbours k, if the settings leave them open."""

_RETURN_ACTIONS = ("query", "erase", "reenrol", "query", "query", "query")
"""Actions of the attack on re-enrolment. The budget of the victim lasts for 1.25 answers."""

_STORE_ACTIONS = ("query", "query", "restart", "query", "query")
"""Actions of the attacks on a store that is closed and opened between answers."""

_CANDIDATE_SHIFTS = np.linspace(1e-3, 1.0, 1000)
"""Shifts of one vote, in noise scales, among which the largest affordable one is chosen."""

_ALONE_QUERIES = 8
"""Queries beside a victim without neighbours, whose budget lasts for one label."""

_COUNT_RECORDS = 30
"""Records of the victim in the attack on the private count."""


@dataclass(frozen=True)
class IndKNNAudit:
    """The public settings of the estimator that is audited, and the attacks on it.

    A method that returns a `SumsTrial` returns an attack. Three arguments recur: `release` is
    "votes" or "label"; `label` is true if labels are released instead of votes; and `target` holds
    the estimator parameters that declare vector targets (numbers, or sets of labels), or None if
    the records have classes.

    Attributes
    ----------
    n_classes : int
        Number of classes c.
    epsilon, delta : float
        The guarantee.
    noise : float
        Standard deviation of the noise on each class, in votes. The number of records that spend a
        whole budget is proportional to it.
    n_neighbors : int
        Expected number of neighbours k.
    further : mapping
        Further parameters of the estimator, such as its kernel or accounting.
    interface : str
        The interface for all attacks that do not need another: "fit", "store" or "shards".
    """

    n_classes: int = 10
    epsilon: float = 1.0
    delta: float = 1e-5
    noise: float = _DEFAULT_NOISE
    n_neighbors: int = _DEFAULT_NEIGHBORS
    further: Mapping[str, Any] = field(default_factory=dict)
    interface: str = "fit"

    def build_parameters(self, count: int, release: str, **overrides: Any) -> dict[str, Any]:
        """Return estimator parameters for a data set of `count` universes.

        A universe is an independent copy of the attack: a victim, other subjects near it, one
        public reference point and one query, far from all other universes. The number of records is
        declared such that the reference point sets the radius of the query of its universe.
        `overrides` replace single parameters.
        """
        k = self.n_neighbors
        return {
            "classes": range(self.n_classes),
            "epsilon": self.epsilon,
            "delta": self.delta,
            "n_queries": 100_000,
            "n_neighbors": k,
            "n_records": k * count,
            "noise_multiplier": self.noise / math.sqrt(k),
            "release": release,
            "model_share": 0,
            **self.further,
            **overrides,
        }

    def votes(self, target: Mapping[str, Any] | None = None) -> SumsTrial:
        """Return the attack on a victim that spends its whole budget on the votes of one answer.

        It has many records with the same label; with a `target`, with the longest vector.
        """
        victim_target, background_target, norm = _find_extremes(target)
        n_records = math.ceil(self.n_budget_records / norm)
        victim: list[CosineRecord] = [(1.0, victim_target)] * n_records
        world = "one subject, many records, all spent on one answer"
        faults = select_faults(
            "noise halved", "subjects forgotten", "memory not cleaned", *CHARGE_FAULTS
        )
        background = [(0.9, background_target)]
        return self._build_trial(
            _name_sums(target), victim, background, world, faults, target=target
        )

    def two_labels(self) -> SumsTrial:
        """Return the attack on a victim whose records have two labels."""
        victim: list[CosineRecord] = [(1.0, 0), (0.97, 1)] * self.n_budget_records
        world = "one subject, records of two labels, among others"
        faults = select_faults(*CHARGE_FAULTS)
        return self._build_trial("votes", victim, [(0.9, 1)] * 2, world, faults)

    def leaves_and_returns(self, target: Mapping[str, Any] | None = None) -> SumsTrial:
        """Return the attack on a victim that is erased and enrolled again."""
        victim_target, background_target, norm = _find_extremes(target)
        audit = replace(self, noise=norm * math.sqrt(1.25) / self.compute_budget_mu("votes"))
        world = "one record, leaves and returns, budget nearly spent"
        faults = select_faults("refilled on return", "memory not cleaned", *CHARGE_FAULTS)
        background: list[CosineRecord] = [(0.9, background_target)] * 3
        return audit._build_trial(
            _name_sums(target),
            [(1.0, victim_target)],
            background,
            world,
            faults,
            _RETURN_ACTIONS,
            target=target,
        )

    def attack_restarts(
        self, *, label: bool = False, target: Mapping[str, Any] | None = None
    ) -> SumsTrial:
        """Return the attack on a store that is closed and opened between answers."""
        world = "one record; the store is closed and opened again"
        return self._attack_one_record(
            "restart", world, "refilled at restart", _STORE_ACTIONS, label=label, target=target
        )

    def attack_shards(self) -> SumsTrial:
        """Return the attack on a cluster of shards that is closed and opened between answers."""
        world = "one record, asked about, reopened"
        audit = replace(self, interface="shards")
        return audit._attack_one_record("shards", world, "refilled at restart", _STORE_ACTIONS)

    def attack_size(
        self, *, label: bool = False, target: Mapping[str, Any] | None = None
    ) -> SumsTrial:
        """Return the attack on the noisy number of records, released and charged before answers."""
        world = "one record, counted first, then asked about"
        actions = ("query",) * 3
        # A cluster is split from a store whose size has been released already.
        return replace(self, interface="store")._attack_one_record(
            "noisy size",
            world,
            "size uncharged",
            actions,
            label=label,
            target=target,
            n_records=None,
        )

    def attack_evaluation(
        self, *, label: bool = False, target: Mapping[str, Any] | None = None
    ) -> SumsTrial:
        """Return the attack on an evaluation, which is charged to the subjects with true labels."""
        world = "one record, and its label evaluated"
        actions = ("query", "evaluate", "query", "query")
        return self._attack_one_record(
            "evaluation", world, "evaluation uncharged", actions, label=label, target=target
        )

    def _attack_one_record(
        self,
        name: str,
        world: str,
        fault_name: str,
        actions: Sequence[str],
        *,
        label: bool = False,
        target: Mapping[str, Any] | None = None,
        **overrides: Any,
    ) -> SumsTrial:
        """Return an attack on a victim with one record in a store.

        Its budget lasts for one label, or for the votes of 1.25 answers.

        `name` and `world` are those of :meth:`_build_trial`, `actions` those of `AuditInteraction`;
        `fault_name`: fault of a control, besides all faults in charges; `overrides`: estimator
        parameters to replace.
        """
        victim_target, background_target, norm = _find_extremes(target)
        if label:
            release = "label"
            shift = self._find_affordable_shift("label")
        else:
            release = "votes"
            shift = self.compute_budget_mu("votes") / math.sqrt(1.25)
        audit = replace(self._with_store, noise=norm / shift)
        return audit._build_trial(
            name,
            [(1.0, victim_target)],
            [(0.9, background_target)] * 2,
            world,
            select_faults(fault_name, *CHARGE_FAULTS),
            actions,
            release,
            target,
            **overrides,
        )

    def attack_total(self, epsilon: float) -> SumsTrial:
        """Return the attack by two audiences on a store's guarantee over all audiences.

        `epsilon`: the total epsilon of the store.
        """
        budget = total_budget(epsilon, self.delta)
        # Two audiences with this epsilon and noise exhaust the total. With the store's own plans it
        # could take many audiences.
        audit = replace(self, noise=math.sqrt(0.625 / budget), epsilon=epsilon)
        parameters = audit.build_parameters(1, "votes", epsilon_total=epsilon)
        actions = ("query", "open_audience", "query_other", "query_other", "query")
        universes = build_universes([(1.0, 0)], [(0.9, 1)])
        # The slack of a total covers the grids of up to ten audiences.
        slack = 10 * SLACK_SHARE * self.delta
        claim = GaussianClaim(math.sqrt(2 * budget), self.delta, slack)
        world = "one record, asked about by two audiences"
        faults = select_faults("total uncharged", *CHARGE_FAULTS)
        interaction = AuditInteraction(parameters, universes, actions, interface="store")
        return SumsTrial("Total over audiences", interaction, world, faults, claim)

    def attack_model(
        self,
        share: float = MAX_TRAINING_SHARE,
        refreshes: int = 1,
        release: str = "votes",
        target: Mapping[str, Any] | None = None,
    ) -> SumsTrial:
        """Return the attack on a private model that is trained, and trained again after queries.

        The first training spends its share of the victim's budget and the answers spend the rest,
        so later training must find no remaining budget.

        - `share`: share of the budget that is planned for training.
        - `refreshes`: planned number of later trainings; one is carried out unless it is 0.
        - `release`, `target`: see the class.
        """
        if release == "votes":
            shift = self.compute_budget_mu(release)
        else:
            shift = self._find_affordable_shift(release)
        victim_target, background_target, norm = _find_extremes(target)
        audit = replace(self._with_store, noise=norm / shift)
        parameters = audit.build_parameters(
            _MODEL_PUBLIC_ROWS, release, model_share=share, model_refreshes=refreshes
        )
        actions = ("query", "query", "refresh") if refreshes else ("query", "query")
        faults = select_faults(
            "training uncharged",
            "training neither charged nor stopped",
            "noise a quarter",
            *CHARGE_FAULTS,
        )
        if not refreshes:
            # No budget is exhausted in the first training, so it reveals no subject that is
            # stopped too late.
            del faults["stopped late"]
        universes = _build_model_universe(victim_target, background_target)
        world = "one record, its part of the budget trained on, then asked"
        interaction = audit._build_interaction(
            parameters, universes, (*actions, "restart", "query"), target
        )
        return SumsTrial("Ind-KNN private model", interaction, world, faults)

    def attack_opposite_vectors(self, target: Mapping[str, Any] = NUMBER_TARGET) -> SumsTrial:
        """Return the attack on a victim with opposite vectors, charged for their sum's norm."""
        longest, shortest, _ = _find_extremes(target)
        pair: list[CosineRecord] = [(1.0, longest), (0.97, shortest)]
        victim = pair * math.ceil(self.n_budget_records / _compute_sum_norm(target, pair))
        world = "one subject, records that say opposite things, among others"
        faults = select_faults(*CHARGE_FAULTS)
        return self._build_trial("vectors", victim, [(0.9, shortest)], world, faults, target=target)

    def attack_sparse_vectors(self) -> SumsTrial:
        """Return the attack on sparse vectors: at most 2 of 50 labels, with re-enrolment."""
        return self.leaves_and_returns({"labels": range(50), "tau": 2.0})

    @property
    def n_budget_records(self) -> int:
        """Number of records of one label that spend a whole budget on the votes of one answer."""
        return math.ceil(1.01 * self.noise * self.compute_budget_mu("votes")) + 1

    def labels(self) -> SumsTrial:
        """Return the attack on a victim with many records that spends its budget on one label."""
        shift = self._find_affordable_shift("label")
        n_records = max(1, round(_DEFAULT_NOISE * shift))
        audit = replace(self, noise=n_records / shift)
        victim = [(1.0, 0)] * n_records
        world = "one subject, many records, all spent on one label"
        faults = select_faults("noise a third", *CHARGE_FAULTS)
        actions = ("query",) * 2  # The second query finds the budget spent.
        return audit._build_trial("labels", victim, [(0.1, 1)], world, faults, actions, "label")

    def attack_labels_alone(self) -> SumsTrial:
        """Return the attack on a victim without neighbours, queried after its budget is spent."""
        audit = replace(self, noise=1 / self._find_affordable_shift("label"))
        world = "one record, alone, asked long after its budget is spent"
        faults = select_faults("noise a third", *CHARGE_FAULTS)
        actions = ("query",) * _ALONE_QUERIES
        return audit._build_trial("labels", [(1.0, 0)], [(0.1, 1)], world, faults, actions, "label")

    def counts(self) -> SumsTrial:
        """Return the attack on the private count of neighbours of the paper preset."""
        estimator = IndKNNClassifier.zhu2023(
            range(self.n_classes),
            self.epsilon,
            self.delta,
            3 * _COUNT_RECORDS**2 + 1,
            tau=0.8,
            noise_multiplier=1.0,
        )
        parameters = {**estimator.get_params(), **self.further, "n_records": 5}
        del parameters["interactions"]
        universes = build_universes([(1.0, 0)] * _COUNT_RECORDS, [(0.9, 0)] * 5)
        world = "one subject, many records, all spent on counts and votes"
        faults = select_faults("noise halved", "counts uncharged", *CHARGE_FAULTS)
        interaction = AuditInteraction(parameters, universes, ("query",) * 3)
        return SumsTrial("Ind-KNN private count", interaction, world, faults)

    def create_canaries(
        self,
        count: int,
        release: str,
        target: Mapping[str, Any] | None,
        n_queries: int,
        cost_share: float,
    ) -> AuditInteraction:
        """Return one interaction with canaries, each the victim of a universe of its own.

        - `count`: number of canaries.
        - `release`, `target`: see the class.
        - `n_queries`: number of queries beside each canary. With a large budget a query is replaced
          by several with more noise, because one answer shifts by its noise scale at most.
        - `cost_share`: cost of the answer to one query as a multiple of the canary's budget. A cost
          above 1 is capped at the budget.
        """
        victim_target, background_target, norm = _find_extremes(target)
        if release == "label":
            shift = self._find_affordable_shift("label")
        else:
            shift = self.compute_budget_mu("votes")
        n_rounds = math.ceil(cost_share * shift**2)
        audit = replace(self, noise=norm * math.sqrt(n_rounds / cost_share) / shift)
        parameters = audit.build_parameters(
            count, release, n_queries=2 * n_queries * n_rounds * count
        )
        universes = build_universes(
            [(1.0, victim_target)], [(0.9, background_target)], count=count, twice=False
        )
        actions = ("query",) * (n_queries * n_rounds)
        return replace(audit, interface="fit")._build_interaction(
            parameters, universes, actions, target
        )

    def _build_trial(
        self,
        name: str,
        victim: list[CosineRecord],
        background: list[CosineRecord],
        world: str,
        faults: Mapping[str, InjectedFault],
        actions: Sequence[str] = ("query",) * 3,
        release: str = "votes",
        target: Mapping[str, Any] | None = None,
        **overrides: Any,
    ) -> SumsTrial:
        """Return the attack on one interaction in a single universe.

        - `name`, `world`: names of the attacked release and of the made-up world, for reports.
        - `victim`, `background`: records of the victim, and of the other subjects.
        - `faults`: faults of the controls, by name. `actions`: see `AuditInteraction`.
        - `**overrides`: estimator parameters to replace.
        """
        # Records far from the query ensure that no shard holds the victim alone.
        n_distant = 24 if self.interface == "shards" else 0
        distant = [(0.0, background[0][1])] * n_distant
        universes = build_universes(victim, [*background, *distant])
        parameters = self.build_parameters(1, release, **overrides)
        interaction = self._build_interaction(parameters, universes, actions, target)
        return SumsTrial(f"Ind-KNN {name}", interaction, world, faults)

    @property
    def _with_store(self) -> "IndKNNAudit":
        """The same settings with an interface that is a store or a cluster, not an estimator."""
        return replace(self, interface="store") if self.interface == "fit" else self

    def _build_interaction(
        self,
        parameters: dict[str, Any],
        universes: Universes,
        actions: Sequence[str],
        target: Mapping[str, Any] | None,
    ) -> AuditInteraction:
        """Return an interaction; with a `target`, its declaration replaces classes and release."""
        if target is None:
            return AuditInteraction(parameters, universes, actions, interface=self.interface)
        own = {
            name: value for name, value in parameters.items() if name not in ("classes", "release")
        }
        estimator = ESTIMATORS[declared_target(target).kind]
        return AuditInteraction(own | dict(target), universes, actions, estimator, self.interface)

    def _create_plan(self, release: str) -> IndKNNPlan:
        """Return the plan of a classifier with these settings."""
        return IndKNNPlan.from_estimator(IndKNNClassifier(**self.build_parameters(1, release)))

    def _find_affordable_shift(self, release: str) -> float:
        """Return the largest shift of one vote that a full budget pays for, in noise scales."""
        charges = self._create_plan(release).charges
        largest = float(_CANDIDATE_SHIFTS[0])
        for shift in _CANDIDATE_SHIFTS:
            cost_share = float(charges.share(shift, 1.0)) * shift**2 / (2 * charges.budget)
            if cost_share <= 1:
                largest = float(shift)
        return largest

    def compute_budget_mu(self, release: str) -> float:
        """Return the Gaussian shift that a full budget B permits: mu = sqrt(2 B)."""
        return math.sqrt(2 * self._create_plan(release).spendable)


_MODEL_PUBLIC_ROWS = 100
"""Number of public rows near the two clusters in the attack on a private model."""


def _build_model_universe(victim_target: Any, background_target: Any) -> Universes:
    """Return a data set for the attack on a private model."""
    # The victim's only feature is its own, orthogonal to two opposite clusters; the model predicts
    # their targets with confidence. Private records answer only those queries for which the model
    # is less confident than for most public rows, and the query at the victim is such a query.
    query, aside, cluster, spread = np.eye(4)
    angles = np.linspace(-0.3, 0.3, _MODEL_PUBLIC_ROWS)[:, None]
    cluster_rows = np.cos(angles) * cluster + np.sin(angles) * spread
    records = np.concatenate([cluster_rows, cluster_rows, -cluster_rows, -cluster_rows])
    # Subjects of the first cluster have one record each, those of the second cluster two.
    n_rows = len(cluster_rows)
    ids = 1 + np.concatenate([np.arange(2 * n_rows), 2 * n_rows + np.arange(n_rows).repeat(2)])
    targets = np.repeat(np.array([background_target, victim_target]), 2 * n_rows, axis=0)
    reference_point = REFERENCE_COSINE * query + 0.6 * aside
    public = np.concatenate([[reference_point], cluster_rows[1::2], -cluster_rows[1:-1:2]])
    victim = World(query[None], np.array([victim_target]), np.zeros(1, dtype=int))
    return Universes(1, victim, World(records, targets, ids), public, query[None])


def _name_sums(target: Mapping[str, Any] | None) -> str:
    """Return the name of the released sums, for reports: "votes" or "vectors"."""
    return "votes" if target is None else "vectors"


def _find_extremes(target: Mapping[str, Any] | None) -> tuple[Any, Any, float]:
    """Return the targets with the longest and the opposite vector, and the norm of the longest.

    The targets are in the format of `y`. Without a `target` they are two classes, whose vote has
    norm 1.
    """
    if target is None:
        return 0, 1, 1.0
    longest, shortest = _create_vector_target(target).extremes
    return longest, shortest, _compute_sum_norm(target, [(1.0, longest)])


def _create_vector_target(target: Mapping[str, Any]) -> VectorTarget:
    """Return the vector target that estimator parameters declare."""
    declared = declared_target(target)
    assert isinstance(declared, VectorTarget)  # noqa: S101 (callers declare no classes)
    return declared


def _compute_sum_norm(target: Mapping[str, Any], records: list[CosineRecord]) -> float:
    """Return the norm of the sum of the records' vectors, weighted by their cosines."""
    y = np.array([record_target for _, record_target in records])
    vectors = _create_vector_target(target).encode(y, len(y))
    weights = np.array([cosine for cosine, _ in records])
    return float(np.linalg.norm(weights @ vectors.dense()))
