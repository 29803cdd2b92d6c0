"""Creation of a query engine from a checked plan, planned from public facts and charged releases.

Arguments of several functions:

- `plan`: the checked plan, with automatic parameters.
- `public`, array (m, d): public reference points, or None.
- `noise`: source of the noise; None for a new one.
- `slack`: accountant of the delta that rounding noise to a grid uses.
- `kernel`: encodes features as integers; with a private model, the kernel of the model's metric.
- `account`: the subjects' budgets, which are charged; counts the total of all charges.
- `interaction`: the registered fit, which ensures that interactions with the same subjects share
  one budget; None if it is not registered.
"""

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product

import numpy as np

from vicinal.arrays import FloatMatrix
from vicinal.checks import SubjectId
from vicinal.engine.answer_reuse import AnsweredNeighbours
from vicinal.engine.engine import BLOCK_SIZE, QueryEngine
from vicinal.engine.noise_schedule import COUNT_CHARGE, compute_count_noise, measure_participation
from vicinal.engine.proxy_ledger import ProxyLedger
from vicinal.engine.shard import Shard, SharedShard
from vicinal.errors import warn_caller
from vicinal.interactions.fit_registry import Interaction
from vicinal.ledger.memory import Account, MemoryLedger
from vicinal.linear.model_features import ModelFeatures, are_columns
from vicinal.linear.private_model import (
    MAX_TRAINING_SHARE,
    LocalGradients,
    ModelGate,
    PrivateModel,
    build_metric_kernel,
    train_private_model,
)
from vicinal.mechanisms import count as counts
from vicinal.mechanisms.count import NoisyCount, compute_size_noise
from vicinal.mechanisms.noise_sources import NoiseSource, create_noise_source
from vicinal.mechanisms.noisy_labels import NoisyLabels
from vicinal.mechanisms.subject_table import RecordTargets, SubjectTable
from vicinal.mechanisms.votes import DeltaSlackAccountant, NoisyVotes, VoteGrid, VoteMechanism
from vicinal.neighbours.kernels import FLOAT32, RBF, Cosine, IntegerMatrix, Kernel, int8_precision
from vicinal.neighbours.radius import MIN_COUNT, AdaptiveRadius, FixedRadius, Radius, Reference
from vicinal.planning.parameter_tables import create_index_factory
from vicinal.planning.plan import IndKNNPlan
from vicinal.targets.class_decision import ClassDecision


@dataclass(frozen=True, slots=True)
class PlannedEngine:
    """A query engine, with the public facts that it was planned from.

    - `n_neighbors`: planned number of neighbours k; None if it varies between queries.
    - `plan`: the plan with number of records, declared or estimated, and share of a model set.
    - `encoder`: kernel that encodes features as integers. With a private model the engine itself
      uses the model's metric.
    """

    engine: QueryEngine
    n_neighbors: int | None
    plan: IndKNNPlan
    encoder: Kernel

    @property
    def model(self) -> PrivateModel | None:
        """The private model; None if the plan has none."""
        gate = self.engine.model_gate
        return None if gate is None else gate.model


def build_engine(
    plan: IndKNNPlan,
    X: FloatMatrix,
    targets: RecordTargets,
    subjects: Sequence[SubjectId],
    public: FloatMatrix | None,
    interaction: Interaction | None = None,
) -> PlannedEngine:
    """Return an engine that holds the records, planned from public facts and charged releases.

    Planning uses the private records in two released values only, both charged: the number of
    records, if it is not declared, and a private model, which is trained if the plan has one.

    `X`, array (n, d), `targets`, `subjects` (n,): features, targets and subject ids of the records.
    """
    slack = create_slack_accountant(plan)
    noise = create_noise_source(plan.simulation_seed)
    ledger = MemoryLedger()
    model = None
    # Missing parameters are refused here, before noise is drawn.
    encoder = kernel = create_kernel(plan, public)
    integers = encoder.encode(X)
    n_public = 0 if public is None else len(public)
    if plan.may_train(n_public) and public is not None:
        slots = ledger.enroll(subjects)
        table = SubjectTable(targets, slots, np.bincount(slots).astype(np.int32), ledger.remaining)
        rows = convert_to_float32(integers)
        points = convert_to_float32(encoder.encode(public))
        plan, model, gradients = train_and_charge_model(
            plan, encoder, rows, points, table, ledger, noise, slack, interaction
        )
        public = model.compute_metric_rows(points)
        kernel = build_metric_kernel(public)
        integers = kernel.encode(model.compute_metric_rows(rows, gradients.model_features))
        del gradients  # This frees as much memory as the records take.
    else:
        plan = plan.choose_model_share(n_public)
    shard = Shard(kernel, integers.shape[1], create_index_factory(plan.index), ledger)
    shard.ledger = ledger
    shard.add(integers, targets, subjects)
    planned = create_engine(
        shard, kernel, plan, integers.shape[1], public, slack, interaction, noise, model
    )
    return replace(planned, encoder=encoder)


def convert_to_float32(integers: IntegerMatrix) -> FloatMatrix:
    """Return `integers`, (n, d), as float32, without a copy if they are float32 already."""
    return np.asarray(integers, dtype=np.float32)


def train_and_charge_model(
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
    """Train a private model, and charge the subjects; return final plan, model and gradients.

    The final plan has the number of records and the model's share set. The gradients are private.
    The `interaction` is marked as released before training.

    - `plan`: a plan for which :meth:`IndKNNPlan.may_train` holds.
    - `encoder`: kernel that has encoded `X` (n, d), the records, and `public` (m, d).
    - `subjects`: targets and subjects of the records; `subjects.remaining` must be the array of
      budgets of `account`.
    """
    if plan.n_records is None:
        size = _estimate_size(plan, subjects, account, noise, slack, interaction)
        plan = plan.changed(n_records=size)
    plan = plan.choose_model_share(len(public))
    if interaction is not None:
        interaction.begin_release()
    assert isinstance(encoder, Cosine)  # noqa: S101 (checked: a model needs it)
    features = ModelFeatures.for_training(public, plan.size, lifted=encoder.lifts)
    gradients = LocalGradients(plan.training, features, X, subjects, account, noise, slack)
    return plan, train_private_model(plan.training, features, public, gradients), gradients


# Smallest and largest number of records that a plan is checked for if the number is estimated.
_MIN_SUBJECTS, _MAX_SUBJECTS = 1, 10**8
# Number of public points that a plan is checked with; with all points it would take seconds.
_REHEARSAL_POINTS = 512


def check_planning(plan: IndKNNPlan, n_features: int, public: FloatMatrix | None) -> None:
    """Raise InvalidInput for a plan that would be refused after noise was drawn.

    Such a late refusal would depend on the noisy number of records or on the trained weights. It
    would release them without a charge, and could be repeated with new noise. The plan is carried
    out without records: for the smallest and the largest number of records if it is to be
    estimated, and for the smallest budget that a private model may leave for votes. `n_features`:
    number of features before encoding.
    """
    points = None if public is None else public[:_REHEARSAL_POINTS]
    kernel = create_kernel(plan, points)
    width = kernel.width(n_features)
    shares = [0.0]
    if public is not None and plan.may_train(len(public)):
        shares.append(plan.model_share or MAX_TRAINING_SHARE)
    sizes = (_MIN_SUBJECTS, _MAX_SUBJECTS) if plan.n_records is None else (plan.n_records,)
    for size, share in product(sizes, shares):
        with warnings.catch_warnings(action="ignore"):
            sized = plan.changed(n_records=size, model_share=share)
            shard = Shard(kernel, width, create_index_factory(plan.index), MemoryLedger())
            slack = create_slack_accountant(sized)
            create_engine(shard, kernel, sized, width, points, slack, vote_share=1 - share)
            if share:
                max_width = ModelFeatures.compute_max_width(width, size)
                sized.training.check_delta_slack(max_width, slack, sized.n_trainings)


def create_slack_accountant(plan: IndKNNPlan, spent: float = 0.0) -> DeltaSlackAccountant:
    """Return the accountant of the delta that the noise grid uses in GDP; `spent`: used so far."""
    return DeltaSlackAccountant(plan.grid_delta, needs_slack=plan.accounting == "gdp", spent=spent)


def create_engine(
    shard: Shard | SharedShard,
    kernel: Kernel,
    plan: IndKNNPlan,
    n_features: int,
    public: FloatMatrix | None,
    slack: DeltaSlackAccountant,
    interaction: Interaction | None = None,
    noise: NoiseSource | None = None,
    model: PrivateModel | None = None,
    vote_share: float = 1.0,
) -> PlannedEngine:
    """Return a query engine on a shard that has its records, planned from public facts.

    Only the number of records is estimated from the private records, with noise and at a charge, if
    the plan does not declare it.

    - `shard`: the records in memory, with their index and the subjects' budgets.
    - `plan`: with the share of its private model set.
    - `n_features`, `public`: number of features, and public points, in the metric of `kernel`.
    - `model`: the trained private model, or None.
    - `vote_share`: share of each budget for votes if there is no `model`; below 1 if a plan is
      checked before its model is trained.
    """
    reference = None if public is None else Reference(kernel, kernel.encode(public))
    noise = noise or create_noise_source(plan.simulation_seed)
    if plan.n_records is None:
        size = _estimate_size(plan, shard.subject_table, shard.ledger, noise, slack, interaction)
        plan = plan.changed(n_records=size)
    budget_share = vote_share if model is None else plan.get_vote_share(model)
    planner = EnginePlanner(plan, kernel, n_features, reference, budget_share)
    n_neighbors, radius = planner.create_radius()
    if plan.kernel == "rbf" and plan.bandwidth is None:
        # Shard and radius use similarities, which do not depend on the bandwidth.
        kernel = _set_median_bandwidth(kernel, radius, planner.points)
        planner = replace(
            planner, kernel=kernel, reference=Reference(kernel, planner.points.points)
        )
    count = plan.get_typical_count(n_neighbors)
    multiplier = planner.choose_multiplier(radius, count)
    proxies = None
    if planner.reference is not None and not plan.has_private_count:
        proxies = ProxyLedger(planner.reference, plan.typical_charge_ratio)
        if model is not None:
            proxies.set_used_shares(model.spent_shares)
    # The noise scale is smallest for the least number of neighbours of a query.
    min_scale = multiplier * math.sqrt(MIN_COUNT if plan.has_private_count else count)
    decision = planner.create_decision(radius, count)
    votes = planner.create_mechanism(min_scale, decision, noise, slack)
    counter = None
    if plan.has_private_count:
        sigma = compute_count_noise(plan.n_queries, plan.interaction_budget)
        count_grid = VoteGrid.choose(sigma, plan.n_queries, 1, plan.grid_delta)
        counter = NoisyCount(sigma, plan.interaction_budget, count_grid, noise, slack)
    gate = None if model is None else ModelGate(model, plan.n_private_answers)
    reuse = None
    block = BLOCK_SIZE
    if plan.reuse_predictions:
        reuse = AnsweredNeighbours(kernel, votes.weights, n_features, votes.n_coordinates)
        block = 1 if plan.is_sequential else BLOCK_SIZE
    engine = QueryEngine(
        shard,
        radius,
        votes,
        counter,
        multiplier,
        reuse,
        slack,
        decision,
        min_scale,
        plan.is_sequential,
        interaction,
        gate,
        proxies,
        block,
    )
    return PlannedEngine(engine, n_neighbors, plan, kernel)


@dataclass(frozen=True, slots=True)
class EnginePlanner:
    """Chooses the components of an engine from a plan and public points.

    - `plan`: a plan with a number of records.
    - `kernel`: the kernel, of a private model's metric if there is one.
    - `n_features`: number of features in that metric.
    - `reference`: public points in that metric, or None.
    - `budget_share`: share of each budget that is available for votes.

    Arguments of methods: `radius`, the rule that gives each query its radius, and `count`, the
    number of records that take part in a query.
    """

    plan: IndKNNPlan
    kernel: Kernel
    n_features: int
    reference: Reference | None
    budget_share: float

    @property
    def points(self) -> Reference:
        """The public points, for a plan that cannot do without them."""
        assert self.reference is not None  # noqa: S101 (checked by check_kernel)
        return self.reference

    def create_radius(self) -> tuple[int | None, Radius]:
        """Return the planned number of neighbours (None if it varies) and the radius rule."""
        plan = self.plan
        n_records = plan.size
        if plan.min_similarity is not None:
            return None, FixedRadius(
                self.kernel, plan.min_similarity, self.n_features, self.reference, n_records
            )
        # The radius reaches at least the nearest public point, which stands for these records.
        min_neighbors = math.ceil(n_records / len(self.points))
        k = plan.n_neighbors or plan.choose_neighbors(self.points, self.budget_share)
        if k < min_neighbors:
            warn_caller(
                f"The public reference is too small for a radius of {k} neighbours, so "
                f"{min_neighbors} are taken. Pass more public rows as 'public'."
            )
            k = min_neighbors
        return k, AdaptiveRadius(self.points, k, n_records)

    def choose_multiplier(self, radius: Radius, count: float) -> float:
        """Return the noise multiplier: declared, or of :meth:`IndKNNPlan.choose_multiplier`."""
        plan = self.plan
        budget_share = self.budget_share
        if plan.noise_multiplier is not None:
            return plan.noise_multiplier
        if plan.has_private_count:
            expected = float(radius.estimate_counts(self.points.points).mean())
            budget_share -= min(0.5, COUNT_CHARGE * expected / plan.size)
        usage = measure_participation(self.points, radius, self.n_features)
        return plan.choose_multiplier(usage, count, budget_share)

    def create_decision(self, radius: Radius, count: float) -> ClassDecision:
        """Return the rule that turns votes into labels, from the expected sum of all votes."""

        def measure_total() -> float:
            """Return the expected sum of all votes of a query; `count` without public points."""
            if self.reference is None:
                return count
            usage = measure_participation(self.reference, radius, self.n_features)
            return count * math.sqrt(usage.mean_squared_weight)

        return ClassDecision(self.plan.class_shares, self.plan.class_costs, measure_total)

    def create_mechanism(
        self,
        min_scale: float,
        decision: ClassDecision,
        noise: NoiseSource,
        slack: DeltaSlackAccountant,
    ) -> VoteMechanism:
        """Return the mechanism that releases noisy votes or labels, with its noise grid.

        `min_scale`: smallest noise scale in votes, for which the grid must be fine enough.
        `decision`: gives the scores whose maximum is the label, unless the plurality decides.
        """
        plan = self.plan
        width = plan.target.n_coordinates
        # The noise follows from epsilon unless the caller has declared it.
        if plan.noise_multiplier is None:
            more_noise = "smaller 'epsilon'"
        else:
            more_noise = "larger 'noise_multiplier'"
        remedy = f"Choose a {more_noise} or a larger 'delta'."
        grid = VoteGrid.choose(min_scale, plan.n_queries, width, plan.grid_delta, remedy)
        if plan.label_only:
            scores = None if decision.is_plurality else decision.scores
            return NoisyLabels(
                self.kernel, self.n_features, width, plan.label_charges, grid, noise, slack, scores
            )
        return NoisyVotes(
            self.kernel, self.n_features, width, plan.interaction_budget, grid, noise, slack
        )


def create_kernel(plan: IndKNNPlan, public: FloatMatrix | None) -> Kernel:
    """Return the kernel that encodes records as integers.

    `public`: public points (m, d), or None; InvalidInput if a parameter of `plan` needs them.
    """
    plan.check_kernel(has_public=public is not None)
    if plan.kernel == "cosine":
        if public is None:
            return Cosine()
        # Lengths of rows help a model of table columns. A declared radius is a cosine of an angle,
        # which has no lengths.
        keeps_lengths = plan.min_similarity is None and are_columns(public)
        return Cosine.fit_to_public(public) if keeps_lengths else Cosine(int8_precision(public))
    bound = plan.norm_bound
    if bound is None:
        assert public is not None  # noqa: S101 (checked by check_kernel)
        bound = float(np.linalg.norm(public.astype(np.float64), axis=1).max())
    # An automatic bandwidth is set after the radius; similarities do not depend on it.
    precision = FLOAT32 if public is None else int8_precision(public, bound)
    return RBF(plan.bandwidth or 1.0, bound, precision)


def _set_median_bandwidth(kernel: Kernel, radius: Radius, reference: Reference) -> Kernel:
    """Return the RBF `kernel` with the median radius around public points as its bandwidth."""
    assert isinstance(kernel, RBF)  # noqa: S101 (narrows the type: see the only caller)
    squares = -np.median(radius.thresholds(reference.points))
    bandwidth = math.sqrt(max(float(squares), 1.0)) * kernel.compute_step_size(
        reference.points.shape[1]
    )
    return RBF(bandwidth, kernel.bound, kernel.precision)


def _estimate_size(
    plan: IndKNNPlan,
    subjects: SubjectTable,
    account: Account,
    noise: NoiseSource,
    slack: DeltaSlackAccountant,
    interaction: Interaction | None,
) -> int:
    """Return the number of records, >= 1, estimated with noise, and charge `subjects` for it."""
    budget = plan.interaction_budget
    grid = VoteGrid.choose(compute_size_noise(budget), 1, 1, plan.grid_delta)
    # Called through its module, in which vicinal.testing breaks it.
    estimate, spent = counts.release_noisy_size(subjects, budget, grid, noise, slack)
    account.note_charged_total(spent)
    if interaction is not None:
        # Another fit on the same subjects with the same budget has paid for the first estimate,
        # which is used again.
        estimate = interaction.keep_first_noisy_count(estimate)
    return max(1, round(estimate))
