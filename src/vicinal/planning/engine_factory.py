"""From a checked plan to an engine: planned from public facts, over the first shard."""

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product

import numpy as np

from vicinal.arrays import FloatMatrix
from vicinal.checks import SubjectId
from vicinal.engine.answer_reuse import AnsweredNeighbours
from vicinal.engine.engine import BLOCK, QueryEngine
from vicinal.engine.noise_schedule import COUNT_SHARE, count_noise, reference_usage
from vicinal.engine.proxy_ledger import ProxyLedger
from vicinal.engine.shard import Shard, SharedShard
from vicinal.interactions.fit_registry import Interaction
from vicinal.ledger.memory import Account, MemoryLedger
from vicinal.linear.model_features import ModelFeatures, are_columns
from vicinal.linear.private_model import (
    SHARE,
    LocalGradients,
    ModelGate,
    PrivateModel,
    metric_kernel,
    train,
)
from vicinal.mechanisms.count import NoisyCount, noisy_size, size_noise
from vicinal.mechanisms.noise_sources import NoiseSource, create_noise_source
from vicinal.mechanisms.noisy_labels import NoisyLabels
from vicinal.mechanisms.subject_table import RecordTargets, SubjectTable
from vicinal.mechanisms.votes import DeltaSlackAccountant, NoisyVotes, VoteGrid, VoteMechanism
from vicinal.neighbours.kernels import FLOAT32, RBF, Cosine, IntegerMatrix, Kernel, int8_precision
from vicinal.neighbours.radius import AdaptiveRadius, FixedRadius, Radius, Reference
from vicinal.planning.parameter_tables import index_factory
from vicinal.planning.plan import IndKNNPlan
from vicinal.targets.class_decision import ClassDecision


@dataclass(frozen=True, slots=True)
class PlannedEngine:
    """A ready engine, with the public facts it was planned from.

    `encoder`: the kernel that makes integers of features. A private model has a metric of its own.
    """

    engine: QueryEngine
    n_records: int
    n_neighbors: int | None
    plan: IndKNNPlan
    encoder: Kernel

    @property
    def model(self) -> PrivateModel | None:
        gate = self.engine.model_gate
        return None if gate is None else gate.model


def plan_engine(
    plan: IndKNNPlan,
    X: FloatMatrix,
    targets: RecordTargets,
    subjects: Sequence[SubjectId],
    public: FloatMatrix | None,
    interaction: Interaction | None = None,
) -> PlannedEngine:
    """Return an engine that holds the records, planned from public facts only.

    The one look at private data is the size: declared, or estimated with noise and charged.
    """
    slack, noise = slack_meter(plan), create_noise_source(plan.simulation_seed)
    ledger, model = MemoryLedger(), None
    encoder = kernel = kernel_for(plan, public)  # refuses what is missing, before anything is drawn
    integers, n_public = encoder.encode(X), 0 if public is None else len(public)
    if plan.may_train(n_public) and public is not None:
        slots = ledger.enroll(subjects)
        table = SubjectTable(targets, slots, np.bincount(slots).astype(np.int32), ledger.remaining)
        rows, points = convert_to_float(integers), convert_to_float(encoder.encode(public))
        plan, model, gradients = settled_model(
            plan, encoder, rows, points, table, ledger, noise, slack, interaction
        )
        public = model.features(points)
        kernel = metric_kernel(public)
        integers = kernel.encode(model.features(rows, gradients.rows))
        del gradients  # as large as the records
    else:
        plan = plan.settled(n_public)
    shard = Shard(kernel, integers.shape[1], ledger, index=index_factory(plan.index))
    shard.ledger = ledger
    shard.add(integers, targets, subjects)
    planned = engine_on(
        shard, kernel, plan, integers.shape[1], public, slack, interaction, noise, model
    )
    return replace(planned, encoder=encoder)


def convert_to_float(integers: IntegerMatrix) -> FloatMatrix:
    return np.asarray(integers, dtype=np.float32)


def settled_model(
    plan: IndKNNPlan,
    encoder: Kernel,
    X: FloatMatrix,
    public: FloatMatrix,
    subjects: SubjectTable,
    account: Account,
    noise: NoiseSource,
    slack: DeltaSlackAccountant,
    interaction: Interaction | None = None,
) -> tuple[IndKNNPlan, PrivateModel, LocalGradients]:
    """Return a plan that may train with size and share settled, and the model that was paid for.

    And what it was trained by, which is private.

    `X`, array (n, d): features of the records of `subjects`, and `public`, array (m, d), as the
    `encoder` makes them. `account`: where the budgets are: `subjects.remaining` is its own.
    """
    if plan.n_records is None:
        size = _estimated_size(plan, subjects, account, noise, slack, interaction)
        plan = plan.changed(n_records=size)
    plan = plan.settled(len(public))
    if interaction is not None:
        interaction.release()
    assert isinstance(encoder, Cosine)  # noqa: S101 (checked: a model needs it)
    features = ModelFeatures.planned(public, plan.size, lifted=encoder.lifts)
    gradients = LocalGradients(plan.training, features, X, subjects, account, noise, slack)
    return plan, train(plan.training, features, public, gradients), gradients


_FEWEST, _MOST = 1, 10**8
"""Subjects of any data set, as far as planning goes."""
_REHEARSED = 512
"""Public points that are enough to see whether a plan is refused; with all it takes seconds."""


def check_planning(plan: IndKNNPlan, n_features: int, public: FloatMatrix | None) -> None:
    """Plan without records: for the fewest and the most, where their number is yet to be estimated.

    And with as little of the budgets as a private model may leave. Raises InvalidInput for what
    planning would refuse after noise was drawn: then the estimate, or what follows from weights,
    could be seen, and drawn anew, as often as anybody likes, and nobody would be charged for it.
    """
    points = None if public is None else public[:_REHEARSED]
    kernel = kernel_for(plan, points)
    width = kernel.width(n_features)
    shares = [0.0]
    if public is not None and plan.may_train(len(public)):
        shares.append(plan.model_share or SHARE)
    sizes = (_FEWEST, _MOST) if plan.n_records is None else (plan.n_records,)
    for size, share in product(sizes, shares):
        with warnings.catch_warnings(action="ignore"):
            sized = plan.changed(n_records=size, model_share=share)
            shard = Shard(kernel, width, MemoryLedger(), index=index_factory(plan.index))
            slack = slack_meter(sized)
            engine_on(shard, kernel, sized, width, points, slack, left=1 - share)
            if share:
                most = ModelFeatures.most(width, size)
                sized.training.rehearse(most, slack, sized.trainings)


def slack_meter(plan: IndKNNPlan, spent: float = 0.0) -> DeltaSlackAccountant:
    """Return the meter of what the grid costs, which it does in GDP alone."""
    return DeltaSlackAccountant(plan.grid_delta, needed=plan.accounting == "gdp", spent=spent)


def engine_on(
    shard: Shard | SharedShard,
    kernel: Kernel,
    plan: IndKNNPlan,
    n_features: int,
    public: FloatMatrix | None,
    slack: DeltaSlackAccountant,
    interaction: Interaction | None = None,
    noise: NoiseSource | None = None,
    model: PrivateModel | None = None,
    left: float = 1.0,
) -> PlannedEngine:
    """Return an engine over records that are there already, planned as :func:`plan_engine` does.

    `left`: the share of budgets to plan with, where no `model` tells it.
    """
    reference = None if public is None else Reference(kernel, kernel.encode(public))
    noise = noise or create_noise_source(plan.simulation_seed)
    if plan.n_records is None:
        size = _estimated_size(plan, shard.subject_table, shard.ledger, noise, slack, interaction)
        plan = plan.changed(n_records=size)
    budget_share = left if model is None else plan.left_by(model)
    planner = EnginePlanner(plan, kernel, n_features, reference, budget_share)
    k, radius = planner.radius()
    if plan.kernel == "rbf" and plan.bandwidth is None:
        # The shard and the radius go by similarities, which the bandwidth does not change.
        kernel = _tuned_rbf(kernel, radius, planner.points)
        planner = replace(
            planner, kernel=kernel, reference=Reference(kernel, planner.points.points)
        )
    count = plan.typical_count(k)
    multiplier = planner.multiplier(radius, count)
    proxies = None
    if planner.reference is not None and not plan.private_count:
        proxies = ProxyLedger(planner.reference, radius, plan.subject_use)
        if model is not None:
            proxies.start(model.used)
    least = multiplier * math.sqrt(plan.least_count(k))
    decision = planner.decision(radius, count)
    votes = planner.votes(least, decision, noise, slack)
    counter = _count(plan, noise, slack) if plan.private_count else None
    gate = None if model is None else ModelGate(model, plan.n_asked)
    reuse, block = None, BLOCK
    if plan.reuse_predictions:
        reuse = AnsweredNeighbours(kernel, votes.weights, n_features, votes.n_classes)
        block = 1 if plan.sequential else BLOCK
    engine = QueryEngine(
        shard, radius, votes, counter, multiplier, reuse, slack, decision, least, plan.sequential,
        interaction, gate, proxies, block,
    )  # fmt: skip
    return PlannedEngine(engine, plan.size, k, plan, kernel)


@dataclass(frozen=True, slots=True)
class EnginePlanner:
    """Plans the parts of an engine, from a plan of a known number of records and public points.

    `n_features`: of the metric of a private model, where there is one. `budget_share`: what a model
    leaves of budgets.
    """

    plan: IndKNNPlan
    kernel: Kernel
    n_features: int
    reference: Reference | None
    budget_share: float

    @property
    def points(self) -> Reference:
        assert self.reference is not None  # noqa: S101 (checked by check_kernel)
        return self.reference

    def radius(self) -> tuple[int | None, Radius]:
        """Return the number of neighbours to expect, if it is the same for all, and the radius."""
        plan, n_records = self.plan, self.plan.size
        if plan.min_similarity is not None:
            fixed = plan.min_similarity, self.n_features, self.reference, n_records
            return None, FixedRadius(self.kernel, *fixed)
        least = math.ceil(n_records / len(self.points))
        k = plan.n_neighbors or plan.neighbors(self.points, self.budget_share)
        if k < least:
            warnings.warn(
                f"The public reference is too small for a radius of {k} neighbours, so {least} "
                "are taken. Pass more public rows as 'public'.",
                UserWarning,
                stacklevel=4,
            )
            k = least
        return k, AdaptiveRadius(self.points, k, n_records)

    def multiplier(self, radius: Radius, count: float) -> float:
        plan, budget_share = self.plan, self.budget_share
        if plan.noise_multiplier is not None:
            return plan.noise_multiplier
        if plan.private_count:
            expected = float(radius.expected(self.points.points).mean())
            budget_share -= min(0.5, COUNT_SHARE * expected / plan.size)
        usage = reference_usage(self.points, radius, self.n_features)
        return plan.multiplier(usage, count, budget_share)

    def decision(self, radius: Radius, count: float) -> ClassDecision:
        """Return how votes become labels; the votes to expect are measured on public points."""

        def total() -> float:
            if self.reference is None:
                return count
            usage = reference_usage(self.reference, radius, self.n_features)
            return count * math.sqrt(usage.weight)

        return ClassDecision(self.plan.class_shares, self.plan.class_costs, total)

    def votes(
        self, least: float, decision: ClassDecision, noise: NoiseSource, slack: DeltaSlackAccountant
    ) -> VoteMechanism:
        plan, width = self.plan, self.plan.target.n_coordinates
        # The noise follows from epsilon unless the caller set it.
        set_by = (
            "smaller 'epsilon'" if plan.noise_multiplier is None else "larger 'noise_multiplier'"
        )
        remedy = f"Choose a {set_by} or a larger 'delta'."
        grid = VoteGrid.fitting(least, plan.n_queries, width, plan.grid_delta, remedy)
        sizes = self.kernel, self.n_features, width
        if plan.label_only:
            scores = None if decision.plain else decision.scores
            return NoisyLabels(*sizes, plan.charges, grid, noise, slack, scores)
        return NoisyVotes(*sizes, plan.spendable, grid, noise, slack)


def kernel_for(plan: IndKNNPlan, public: FloatMatrix | None) -> Kernel:
    """Return the kernel whose integers records are stored in; checks what it needs."""
    plan.check_kernel(has_public=public is not None)
    if plan.kernel == "cosine":
        if public is None:
            return Cosine()
        # Lengths are for a model of columns. A radius that is given is one of angles.
        lengths = plan.min_similarity is None and are_columns(public)
        return Cosine.fitting(public) if lengths else Cosine(int8_precision(public))
    bound = plan.norm_bound
    if bound is None:
        assert public is not None  # noqa: S101 (checked by check_kernel)
        bound = float(np.linalg.norm(public.astype(np.float64), axis=1).max())
    # An automatic bandwidth is set once the radius is known; similarities do not depend on it.
    precision = FLOAT32 if public is None else int8_precision(public, bound)
    return RBF(plan.bandwidth or 1.0, bound, precision)


def _tuned_rbf(kernel: Kernel, radius: Radius, reference: Reference) -> Kernel:
    """Return the RBF kernel whose bandwidth is the median radius around public points."""
    assert isinstance(kernel, RBF)  # noqa: S101 (narrows the type: see the only caller)
    squares = -np.median(radius.thresholds(reference.points))
    bandwidth = math.sqrt(max(float(squares), 1.0)) * kernel.unit(reference.points.shape[1])
    return RBF(bandwidth, kernel.bound, kernel.precision)


def _estimated_size(
    plan: IndKNNPlan,
    subjects: SubjectTable,
    account: Account,
    noise: NoiseSource,
    slack: DeltaSlackAccountant,
    interaction: Interaction | None,
) -> int:
    budget = plan.spendable
    grid = VoteGrid.fitting(size_noise(budget), 1, 1, plan.grid_delta)
    estimate, spent = noisy_size(subjects, budget, grid, noise, slack)
    account.note_charged_total(spent)
    if interaction is not None:
        # The same subjects with the same budget: the charge pays for the size released first.
        estimate = interaction.first_size(estimate)
    return max(1, round(estimate))


def _count(plan: IndKNNPlan, noise: NoiseSource, slack: DeltaSlackAccountant) -> NoisyCount:
    budget = plan.spendable
    sigma = count_noise(plan.n_queries, budget)
    grid = VoteGrid.fitting(sigma, plan.n_queries, 1, plan.grid_delta)
    return NoisyCount(sigma, budget, grid, noise, slack)
