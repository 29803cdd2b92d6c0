"""Attacks on Ind-KNN: on votes, labels, vectors, re-enrolment, private counts and models.

Each attack is tight: one subject, the victim, spends its whole budget, so that the privacy loss
equals the claim. The attacker knows everything but whether the victim is in the data set. It knows
the noise-free value of every release in both worlds, and uses the likelihood ratio test.

Records are pairs (cosine to the query, target). Those at a cosine of .9 or more are neighbours of
the query. Those at .1 or less are not, because the public reference point is at `REFERENCE_COSINE`.
A victim has its records at 1, or at 1 and .97 to give two targets unequal weights. If it adds a
vector of norm w to the votes of an answer, it is charged w^2 / (2 noise^2) of its budget mu^2 / 2.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from vicinal.audit._attacks import SumsAttack
from vicinal.audit.claims import GaussianClaim
from vicinal.audit.interactions import (
    CHARGE_FAULTS,
    REFERENCE_COSINE,
    AttackCopies,
    AuditInteraction,
    CosineRecord,
    InjectedFault,
    build_attack_copies,
    select_faults,
)
from vicinal.linear.private_model import MAX_TRAINING_SHARE
from vicinal.mechanisms.votes import SLACK_SHARE
from vicinal.planning.guarantees import compute_total_budget
from vicinal.planning.plan import IndKNNPlan
from vicinal.predictors.averaging import ESTIMATORS
from vicinal.predictors.ind_knn import IndKNNClassifier
from vicinal.targets.kinds import declared_target
from vicinal.targets.target import VectorTarget
from vicinal.testing import World

TargetSpec = Mapping[str, Any]
"""Estimator parameters that declare vector targets: numbers, or sets of labels.

For example {"bounds": (-1, 3)}, or {"labels": range(50), "tau": 2.0}.
"""

NUMBER_TARGET_SPEC: TargetSpec = {"bounds": (-1, 3)}
"""Targets of the attacks on vectors without a store: one bounded number."""

_DEFAULT_NOISE = 8.0
_DEFAULT_NEIGHBORS = 4
"""Noise on each class in votes, and number of neighbours k, if the settings leave them open."""

_ANSWERS_PER_BUDGET = 1.25
"""Number of answers with votes for which the budget of a victim with one record lasts: more than 1,
so that an erasure, a restart or an evaluation finds a remainder, which the next answer spends."""

_RETURN_ACTIONS = ("query", "erase", "reenrol", "query", "query", "query")
"""Actions of the attack on re-enrolment."""

_STORE_ACTIONS = ("query", "query", "restart", "query", "query")
"""Actions of the attacks on a store that is closed and opened between answers."""

_CANDIDATE_SHIFTS = np.linspace(1e-3, 1.0, 1000)
"""Shifts of one vote, in noise scales, among which the largest affordable one is chosen."""

_N_ISOLATED_QUERIES = 8
"""Number of queries at a victim without neighbours, whose budget lasts for one label."""

_COUNT_RECORDS = 30  # records of the victim in the attack on the private count


@dataclass(frozen=True)
class IndKNNAudit:
    """The public settings of the estimator that is audited, and the attacks on it.

    Recurrent arguments of the methods:

    - `release`: the released values, "votes" or "label".
    - `target_spec`: estimator parameters that declare vector targets; None if records have classes.
    - `name`, `scenario`: name of the attacked release, and description of the data, for reports.
    - `actions`: actions of the interaction in order, such as "query" or "erase".
    - `overrides`: estimator parameters that replace those of the settings.

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
    further_parameters : mapping
        Further parameters of the estimator, such as its kernel or accounting.
    interface : {"fit", "store", "shards"}
        The system that is attacked, unless an attack needs another one: an estimator, a store, or a
        cluster of shards.
    """

    n_classes: int = 10
    epsilon: float = 1.0
    delta: float = 1e-5
    noise: float = _DEFAULT_NOISE
    n_neighbors: int = _DEFAULT_NEIGHBORS
    further_parameters: Mapping[str, Any] = field(default_factory=dict)
    interface: str = "fit"

    def build_parameters(self, n_copies: int, release: str, **overrides: Any) -> dict[str, Any]:
        """Return estimator parameters for a data set of `n_copies` copies of an attack.

        The declared number of records makes each copy's public point set the radius of its query.
        """
        k = self.n_neighbors
        return {
            "classes": range(self.n_classes),
            "epsilon": self.epsilon,
            "delta": self.delta,
            "n_queries": 100_000,
            "n_neighbors": k,
            "n_records": k * n_copies,
            "noise_multiplier": self.noise / math.sqrt(k),
            "release": release,
            "model_share": 0,
            **self.further_parameters,
            **overrides,
        }

    def build_votes_attack(self, target_spec: TargetSpec | None = None) -> SumsAttack:
        """Return the attack on a victim that spends its whole budget on the votes of one answer.

        The victim has many records, all of one class or with the target vector of largest norm.
        """
        victim_y, background_y, norm = _find_extreme_y_values(target_spec)
        n_records = math.ceil(self.n_budget_records / norm)
        victim = [(1.0, victim_y)] * n_records
        background = [(0.9, background_y)]
        scenario = "one subject, many records, all spent on one answer"
        faults = select_faults(
            "noise halved", "subjects forgotten", "memory not cleaned", *CHARGE_FAULTS
        )
        return self._build_attack(victim, background, scenario, faults, target_spec=target_spec)

    def build_two_class_attack(self) -> SumsAttack:
        """Return the attack on the released votes, where the victim has records of two classes."""
        victim = [(1.0, 0), (0.97, 1)] * self.n_budget_records
        scenario = "one subject, records of two labels, among others"
        faults = select_faults(*CHARGE_FAULTS)
        return self._build_attack(victim, [(0.9, 1)] * 2, scenario, faults)

    def build_reenrolment_attack(self, target_spec: TargetSpec | None = None) -> SumsAttack:
        """Return the attack on a victim that is erased and re-enrolled between answers."""
        victim_y, background_y, norm = _find_extreme_y_values(target_spec)
        audit = replace(self, noise=norm * math.sqrt(_ANSWERS_PER_BUDGET) / self.budget_mu)
        victim = [(1.0, victim_y)]
        background = [(0.9, background_y)] * 3
        scenario = "one record, leaves and returns, budget nearly spent"
        faults = select_faults("refilled on return", "memory not cleaned", *CHARGE_FAULTS)
        return audit._build_attack(
            victim, background, scenario, faults, _RETURN_ACTIONS, target_spec=target_spec
        )

    def build_restart_attack(
        self, release: str = "votes", target_spec: TargetSpec | None = None
    ) -> SumsAttack:
        """Return the attack on a store that is closed and opened between answers."""
        scenario = "one record; the store is closed and opened again"
        return self._build_one_record_attack(
            "restart", scenario, "refilled at restart", _STORE_ACTIONS, release, target_spec
        )

    def build_shards_attack(self) -> SumsAttack:
        """Return the attack on a cluster of shards that is closed and opened between answers."""
        scenario = "one record, asked about, reopened"
        audit = replace(self, interface="shards")
        return audit._build_one_record_attack(
            "shards", scenario, "refilled at restart", _STORE_ACTIONS
        )

    def build_size_attack(
        self, release: str = "votes", target_spec: TargetSpec | None = None
    ) -> SumsAttack:
        """Return the attack on the noisy number of records, released and charged before answers."""
        scenario = "one record, counted first, then asked about"
        actions = ("query",) * 3
        # A cluster is split from a store whose size has been released already.
        return replace(self, interface="store")._build_one_record_attack(
            "noisy size", scenario, "size uncharged", actions, release, target_spec, n_records=None
        )

    def build_evaluation_attack(
        self, release: str = "votes", target_spec: TargetSpec | None = None
    ) -> SumsAttack:
        """Return the attack on an evaluation of answers, charged to the subjects of true labels."""
        scenario = "one record, and its label evaluated"
        actions = ("query", "evaluate", "query", "query")
        return self._build_one_record_attack(
            "evaluation", scenario, "evaluation uncharged", actions, release, target_spec
        )

    def _build_one_record_attack(
        self,
        name: str,
        scenario: str,
        fault_name: str,
        actions: Sequence[str],
        release: str = "votes",
        target_spec: TargetSpec | None = None,
        **overrides: Any,
    ) -> SumsAttack:
        """Return an attack on a victim with one record in a store.

        Its budget lasts for one label, or for `_ANSWERS_PER_BUDGET` answers with votes.
        `fault_name`: fault of a control, in addition to all faults in charges.
        """
        victim_y, background_y, norm = _find_extreme_y_values(target_spec)
        shift = self._find_spending_shift(release)
        if release == "votes":
            shift /= math.sqrt(_ANSWERS_PER_BUDGET)
        audit = replace(self._store_settings, noise=norm / shift)
        victim = [(1.0, victim_y)]
        background = [(0.9, background_y)] * 2
        faults = select_faults(fault_name, *CHARGE_FAULTS)
        return audit._build_attack(
            victim, background, scenario, faults, actions, release, target_spec, name, **overrides
        )

    def build_all_audiences_attack(self, epsilon: float) -> SumsAttack:
        """Return the attack on a store's total guarantee: queries of two audiences spend the total.

        Audiences are groups of recipients with budgets of their own. `epsilon`: that of the
        guarantee over all audiences, at the delta of the settings.
        """
        budget = compute_total_budget(epsilon, self.delta)
        # One answer charges the victim's record 1 / (2 noise^2) = 0.8 of the total budget, so two
        # audiences exhaust it. With noise planned by the store, many audiences would be needed.
        audit = replace(self, noise=math.sqrt(_ANSWERS_PER_BUDGET / 2 / budget), epsilon=epsilon)
        parameters = audit.build_parameters(n_copies=1, release="votes", epsilon_total=epsilon)
        actions = ("query", "open_audience", "query_other", "query_other", "query")
        copies = build_attack_copies([(1.0, 0)], [(0.9, 1)])
        # The slack of a total covers the grids of up to ten audiences.
        slack = 10 * SLACK_SHARE * self.delta
        claim = GaussianClaim(math.sqrt(2 * budget), self.delta, slack)
        scenario = "one record, asked about by two audiences"
        faults = select_faults("total uncharged", *CHARGE_FAULTS)
        interaction = AuditInteraction(parameters, copies, actions, interface="store")
        return SumsAttack("Total over audiences", interaction, scenario, faults, claim)

    def build_model_attack(
        self,
        share: float = MAX_TRAINING_SHARE,
        refreshes: int = 1,
        release: str = "votes",
        target_spec: TargetSpec | None = None,
    ) -> SumsAttack:
        """Return the attack on a private model that is trained, and trained again after queries.

        The first training spends `share` of the victim's budget, and the answers spend the rest. So
        later training must find no remaining budget. `refreshes`: planned number of later
        trainings; one is carried out unless it is 0.
        """
        shift = self._find_spending_shift(release)
        victim_y, background_y, norm = _find_extreme_y_values(target_spec)
        audit = replace(self._store_settings, noise=norm / shift)
        parameters = audit.build_parameters(
            _MODEL_PUBLIC_ROWS, release, model_share=share, model_refreshes=refreshes
        )
        actions = ("query", "query", "refresh") if refreshes else ("query", "query")
        training_faults = ("training uncharged", "training neither charged nor stopped")
        faults = select_faults(*training_faults, "noise a quarter", *CHARGE_FAULTS)
        if not refreshes:
            # No budget is exhausted in the first training, so it reveals no subject that is
            # stopped too late.
            del faults["stopped late"]
        copies = _build_model_attack_copy(victim_y, background_y)
        scenario = "one record, its part of the budget trained on, then asked"
        interaction = audit._build_interaction(
            parameters, copies, (*actions, "restart", "query"), target_spec
        )
        return SumsAttack("Ind-KNN private model", interaction, scenario, faults)

    def build_opposite_vectors_attack(self, target_spec: TargetSpec) -> SumsAttack:
        """Return the attack on a victim with opposite vectors, charged for their sum's norm."""
        longest_y, opposite_y, _ = _find_extreme_y_values(target_spec)
        pair = [(1.0, longest_y), (0.97, opposite_y)]
        pair_norm = _compute_sum_norm(target_spec, pair)
        victim = pair * math.ceil(self.n_budget_records / pair_norm)
        scenario = "one subject, records that say opposite things, among others"
        faults = select_faults(*CHARGE_FAULTS)
        return self._build_attack(
            victim, [(0.9, opposite_y)], scenario, faults, target_spec=target_spec
        )

    @property
    def n_budget_records(self) -> int:
        """Number of records of one class that spend a whole budget on the votes of one answer."""
        # noise * mu records cost the budget exactly; 1 % and one more exhaust it after rounding.
        return math.ceil(1.01 * self.noise * self.budget_mu) + 1

    def build_labels_attack(self) -> SumsAttack:
        """Return the attack on a victim with many records that spends its budget on one label."""
        shift = self._find_affordable_label_shift()
        # The noise follows from the records, which move the vote by `shift` noise scales together.
        n_records = max(1, round(_DEFAULT_NOISE * shift))
        audit = replace(self, noise=n_records / shift)
        victim = [(1.0, 0)] * n_records
        scenario = "one subject, many records, all spent on one label"
        faults = select_faults("noise a third", *CHARGE_FAULTS)
        actions = ("query",) * 2  # The second query finds the budget spent.
        return audit._build_attack(victim, [(0.1, 1)], scenario, faults, actions, "label")

    def build_isolated_labels_attack(self) -> SumsAttack:
        """Return the attack on labels at a victim without neighbours, queried beyond its budget."""
        audit = replace(self, noise=1 / self._find_affordable_label_shift())
        scenario = "one record, alone, asked long after its budget is spent"
        faults = select_faults("noise a third", *CHARGE_FAULTS)
        actions = ("query",) * _N_ISOLATED_QUERIES
        return audit._build_attack([(1.0, 0)], [(0.1, 1)], scenario, faults, actions, "label")

    def build_count_attack(self) -> SumsAttack:
        """Return the attack on the private number of neighbours of the published algorithm."""
        # The victim's R records change the number by R, which costs 3 R^2 / T of a budget, for T
        # planned queries: with this T all of it but a small remainder, which the votes spend.
        estimator = IndKNNClassifier.zhu2023(
            range(self.n_classes),
            self.epsilon,
            self.delta,
            3 * _COUNT_RECORDS**2 + 1,
            tau=0.8,
            noise_multiplier=1.0,
        )
        parameters = {**estimator.get_params(), **self.further_parameters, "n_records": 5}
        del parameters["interactions"]
        copies = build_attack_copies([(1.0, 0)] * _COUNT_RECORDS, [(0.9, 0)] * 5)
        scenario = "one subject, many records, all spent on counts and votes"
        faults = select_faults("noise halved", "counts uncharged", *CHARGE_FAULTS)
        interaction = AuditInteraction(parameters, copies, ("query",) * 3)
        return SumsAttack("Ind-KNN private count", interaction, scenario, faults)

    def build_canary_interaction(
        self,
        n_canaries: int,
        release: str,
        target_spec: TargetSpec | None,
        n_queries: int,
        cost_share: float,
    ) -> AuditInteraction:
        """Return one interaction with canaries (made-up subjects), each the victim of its own copy.

        `n_queries`: number of queries at each canary. `cost_share`: cost of the answer to one query
        as a multiple of the canary's budget; a cost above 1 is capped at the budget. With a large
        budget a query is replaced by several with more noise, because one answer shifts by its
        noise scale at most.
        """
        victim_y, background_y, norm = _find_extreme_y_values(target_spec)
        shift = self._find_spending_shift(release)
        n_rounds = math.ceil(cost_share * shift**2)
        audit = replace(self, noise=norm * math.sqrt(n_rounds / cost_share) / shift)
        parameters = audit.build_parameters(
            n_canaries, release, n_queries=2 * n_queries * n_rounds * n_canaries
        )
        copies = build_attack_copies(
            [(1.0, victim_y)], [(0.9, background_y)], n_canaries, duplicates_background=False
        )
        actions = ("query",) * (n_queries * n_rounds)
        return replace(audit, interface="fit")._build_interaction(
            parameters, copies, actions, target_spec
        )

    def _build_attack(
        self,
        victim: Sequence[CosineRecord],
        background: Sequence[CosineRecord],
        scenario: str,
        faults: Mapping[str, InjectedFault],
        actions: Sequence[str] = ("query",) * 3,
        release: str = "votes",
        target_spec: TargetSpec | None = None,
        name: str = "",
        **overrides: Any,
    ) -> SumsAttack:
        """Return the attack on one interaction with a single copy of the attack.

        `victim`, `background`: records of the victim, and one record of each other subject.
        `faults`: faults of the controls, by name. `name`: by default that of the released values.
        """
        # Records far from the query: almost surely each of three shards has some of these 24, so
        # that none has the victim alone.
        n_distant = 24 if self.interface == "shards" else 0
        distant = [(0.0, background[0][1])] * n_distant
        copies = build_attack_copies(victim, [*background, *distant])
        parameters = self.build_parameters(1, release, **overrides)
        interaction = self._build_interaction(parameters, copies, actions, target_spec)
        name = name or name_released_values(release, target_spec)
        return SumsAttack(f"Ind-KNN {name}", interaction, scenario, faults)

    @property
    def _store_settings(self) -> "IndKNNAudit":
        """The same settings with a store as the interface, unless it is a cluster already."""
        return replace(self, interface="store") if self.interface == "fit" else self

    def _build_interaction(
        self,
        parameters: dict[str, Any],
        copies: AttackCopies,
        actions: Sequence[str],
        target_spec: TargetSpec | None,
    ) -> AuditInteraction:
        """Return an interaction with the system of these settings, on made-up data.

        `copies`: independent copies of the attacked subject with its other records. `parameters`:
        estimator parameters; `target_spec`, if given, replaces their "classes" and "release".
        """
        if target_spec is None:
            return AuditInteraction(parameters, copies, actions, interface=self.interface)
        own = {
            name: value for name, value in parameters.items() if name not in ("classes", "release")
        }
        estimator = ESTIMATORS[declared_target(target_spec).kind]
        return AuditInteraction(own | dict(target_spec), copies, actions, estimator, self.interface)

    def _create_plan(self, release: str) -> IndKNNPlan:
        """Return the plan of a classifier with these settings and one copy of an attack."""
        return IndKNNPlan.from_estimator(IndKNNClassifier(**self.build_parameters(1, release)))

    def _find_spending_shift(self, release: str) -> float:
        """Return the change of a private sum that spends a full budget at once, in noise scales."""
        return self._find_affordable_label_shift() if release == "label" else self.budget_mu

    def _find_affordable_label_shift(self) -> float:
        """Return the largest change of a vote for which a full budget pays, in noise scales.

        The label that follows from this vote is released.
        """
        charges = self._create_plan("label").label_charges
        largest = float(_CANDIDATE_SHIFTS[0])
        for shift in _CANDIDATE_SHIFTS:
            cost_share = float(charges.compute_share(shift, 1.0)) * shift**2 / (2 * charges.budget)
            if cost_share <= 1:
                largest = float(shift)
        return largest

    @property
    def budget_mu(self) -> float:
        """The mu = sqrt(2 B) of Gaussian DP of a full budget B of released votes, in zCDP."""
        return math.sqrt(2 * self._create_plan("votes").interaction_budget)


_MODEL_PUBLIC_ROWS = 100
"""Number of public rows near the two clusters in the attack on a private model."""


def _build_model_attack_copy(victim_y: Any, background_y: Any) -> AttackCopies:
    """Return a data set with one copy of the attack on a private model.

    `victim_y`, `background_y`: values of `y` of the victim and of the other subjects.
    """
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
    targets = np.repeat(np.array([background_y, victim_y]), 2 * n_rows, axis=0)
    reference_point = REFERENCE_COSINE * query + 0.6 * aside  # of length 1
    public = np.concatenate([[reference_point], cluster_rows[1::2], -cluster_rows[1:-1:2]])
    victim = World(query[None], np.array([victim_y]), np.zeros(1, dtype=int))
    return AttackCopies(1, victim, World(records, targets, ids), public, query[None])


def name_released_values(release: str, target_spec: TargetSpec | None) -> str:
    """Return the name of the released values, for reports: "labels", "votes" or "vectors".

    `release`, `target_spec`: as for :class:`IndKNNAudit`.
    """
    if release == "label":
        return "labels"
    return "votes" if target_spec is None else "vectors"


def _find_extreme_y_values(target_spec: TargetSpec | None) -> tuple[Any, Any, float]:
    """Return `y` with the longest vector, `y` with the opposite one, and the norm of the former.

    Without `target_spec` they are classes 0 and 1; the vote for a class has norm 1.
    """
    if target_spec is None:
        return 0, 1, 1.0
    longest_y, opposite_y = _create_vector_target(target_spec).extremes
    return longest_y, opposite_y, _compute_sum_norm(target_spec, [(1.0, longest_y)])


def _create_vector_target(target_spec: TargetSpec) -> VectorTarget:
    """Return the target object that the parameters declare."""
    declared = declared_target(target_spec)
    assert isinstance(declared, VectorTarget)  # noqa: S101 (callers declare no classes)
    return declared


def _compute_sum_norm(target_spec: TargetSpec, records: Sequence[CosineRecord]) -> float:
    """Return the norm of the sum of the records' target vectors, weighted by their cosines.

    `records`: pairs (cosine with the query, target). `target_spec`: declares the vector target.
    """
    y = np.array([record_y for _, record_y in records])
    vectors = _create_vector_target(target_spec).encode(y, len(y))
    weights = np.array([cosine for cosine, _ in records])
    return float(np.linalg.norm(weights @ vectors.to_dense()))
