r"""Planned neighbours and noise from public facts, and simulations of a plan on public points.

Neighbours and noise are chosen as by ``IndKNNClassifier.fit``, before there is a private record
(:mod:`vicinal.engine.noise_schedule`).

In a simulation, m public points are both the queries and, in place of n records, the voters: each
has a budget, votes with its public label, and is excluded from the queries of its own subject. The
k neighbours of a plan would be k m / n points. If these are fewer than :data:`MIN_VOTERS`, more
points vote, v in each query. A vote then counts as k / v records, and costs k m / (n v) of the
charge of a record's, because every point votes n v / (k m) times as often as a record. *Agreement*
is the share of answers that equal those of the same voters without noise and with full budgets. The
noise is seeded.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Self

import numpy as np

from vicinal.arrays import Bools, Floats, Floats32, Indices, Ints
from vicinal.engine.engine import BLOCK_SIZE
from vicinal.engine.noise_schedule import TYPICAL_SPREAD, Participation, measure_participation
from vicinal.engine.proxy_ledger import SPENT_SHARE
from vicinal.linear.losses import Predictions
from vicinal.linear.model_features import ModelFeatures, softmax
from vicinal.linear.private_model import PrivateModel, build_metric_kernel, train_on_gradients
from vicinal.neighbours.index import ExactIndex
from vicinal.neighbours.kernels import Cosine
from vicinal.neighbours.radius import AdaptiveRadius, Reference, select_rank
from vicinal.planning.plan import IndKNNPlan
from vicinal.targets.target import ExpectedError

# Mean squared kernel weight that is assumed without public points: the maximum.
MAX_SQUARED_WEIGHT = 1.0


@dataclass(frozen=True, slots=True)
class PlanChoice:
    """Neighbours and noise of a plan, chosen from public facts.

    - `plan`: the plan, with a declared number of records.
    - `n_neighbors`: k, the expected number of records that take part in a query.
    - `multiplier`: the noise on each class has the standard deviation multiplier * sqrt(k) votes.
    - `budget`: budget of one record for votes, in zCDP; a lower bound with a private model. Where
      labels alone are released, their lower price is included.
    - `usage`: mean squared kernel weight and spread of the number of participations of records,
      measured on public points or assumed.
    - `score_noise`: standard deviation that noise leaves in a private model's scores of vectors;
      None without such a model.
    """

    plan: IndKNNPlan
    n_neighbors: int
    multiplier: float
    budget: float
    usage: Participation
    score_noise: float | None = None

    @classmethod
    def from_plan(
        cls, plan: IndKNNPlan, reference: Reference | None = None, budget_share: float | None = None
    ) -> Self:
        """Return the choice for a plan; without public points kernel weights are assumed to be 1.

        - `plan`: a plan with a number of records.
        - `reference`: public points, or None.
        - `budget_share`: share of each budget that training leaves for votes. None: its expected
          value for a model of vectors, which public points determine; its minimum for any other
          model. ``fit`` uses the value that it measures on public points.
        """
        n = plan.size
        model = train_on_zero_gradients(plan, reference)
        if budget_share is None:
            min_share = 1 - (plan.model_share or 0.0)
            budget_share = min_share if model is None else plan.get_vote_share(model)
        n_points = n if reference is None else len(reference)
        k = plan.n_neighbors or plan.choose_neighbors(reference, budget_share)
        k = max(k, math.ceil(n / n_points))
        usage = Participation(MAX_SQUARED_WEIGHT, TYPICAL_SPREAD)
        if reference is not None:
            width = reference.points.shape[1]
            usage = measure_participation(reference, AdaptiveRadius(reference, k, n), width)
        multiplier = plan.noise_multiplier or plan.choose_multiplier(usage, k, budget_share)
        shift = math.sqrt(usage.mean_squared_weight / k) / multiplier
        score_noise = None if model is None else model.score_std
        budget = plan.compute_record_budget(budget_share, shift)
        return cls(plan, k, multiplier, budget, usage, score_noise)

    @property
    def noise(self) -> float:
        """Standard deviation of the noise on each class, in votes."""
        return self.multiplier * math.sqrt(self.n_neighbors)

    @property
    def charged_share(self) -> float:
        """Share of its budget that a record is charged for taking part in a query."""
        return self.usage.mean_squared_weight / (2 * self.noise**2 * self.budget)

    @property
    def n_participations(self) -> float:
        """Expected number of queries that a record takes part in."""
        return self.plan.n_private_answers * self.n_neighbors / self.plan.size

    @property
    def queries_until_spent(self) -> int:
        """Number of queries after which a frequently used record's budget is spent.

        The record takes part `usage.spread` times as often as the mean. Queries are assumed to be
        distributed like the public points.
        """
        participation_rate = self.usage.spread * self.n_neighbors / self.plan.size
        return math.floor(1 / (participation_rate * self.charged_share))

    def list_expected_errors(self) -> list[ExpectedError]:
        """Return the errors that noise alone causes in typical answers that are averages.

        Differences among neighbours, and between neighbours and query, add further errors.
        """
        noise = self.noise
        weight = self.n_neighbors * math.sqrt(self.usage.mean_squared_weight)
        if self.score_noise is not None:
            noise = float(
                self.plan.loss.compute_pooled_std(noise, self.n_neighbors, self.score_noise)
            )
        return self.plan.vector_target.compute_expected_errors(weight, np.array([noise]))


def train_on_zero_gradients(plan: IndKNNPlan, reference: Reference | None) -> PrivateModel | None:
    """Return the model that training on a vector target would give if all gradients were zero.

    It has the charge and the error of a trained model, which depend on public points only, because
    the squared loss has the same curvature at all weights. None for a plan without such a model.

    `plan`: with the number of records and the model's share. `reference`: public points, or None.
    """
    if not plan.model_share or plan.target.is_class_vote or reference is None:
        return None
    points = np.asarray(reference.points, dtype=np.float32)
    assert isinstance(reference.kernel, Cosine)  # noqa: S101 (a model needs it)
    features = ModelFeatures.for_training(points, plan.size, lifted=reference.kernel.lifts)

    def return_zeros(weights: Floats) -> tuple[Floats, float]:
        """Return a gradient of zeros, of the shape of `weights`, and the noise multiplier."""
        return np.zeros_like(weights), plan.training.step_noise

    return train_on_gradients(plan.training, features, points, return_zeros)


@dataclass(frozen=True, slots=True, eq=False)
class SimulatedModel:
    """Predictions of simulated private models for m public points, and the points in their metric.

    - `reference`: the points in the learnt metric.
    - `predicted`: scores of each point and their standard deviations.
    - `is_certain`, bool (m,): whether the model alone would answer a query at each point.
    - `budget_share`: mean share of a budget that training leaves for votes near queried points.
    """

    reference: Reference
    predicted: Predictions
    is_certain: Bools
    budget_share: float


def simulate_model(setup: SimulationSetup, plan: IndKNNPlan, seed: int) -> SimulatedModel:
    """Return predictions of private models that are trained on labelled public points.

    Each half of the subjects is predicted by a model of the other half, with the noise of a model
    of n private records.

    `setup`: the public points. `plan`: a plan with a share for the model. `seed`: that of the noise
    and of the division into halves.
    """
    generator = np.random.default_rng(seed)  # noqa: TID251 (noise on public points only)
    kernel = setup.reference.kernel
    assert isinstance(kernel, Cosine)  # noqa: S101 (a model needs it)
    X = np.asarray(setup.reference.points, dtype=np.float32)
    labels = setup.labels
    plan = plan.changed(n_public=len(X)).replanned()
    n_classes = plan.target.n_coordinates
    features = ModelFeatures.for_training(X, plan.size, lifted=kernel.lifts)
    in_first_half = np.isin(setup.subjects, generator.permutation(setup.n_subjects)[::2])
    rows = np.empty((len(X), X.shape[1] + n_classes), dtype=np.float32)
    values = np.empty((len(X), n_classes))
    score_std = np.empty(len(X))
    predicted = Predictions(values, score_std, features.kernel is None)
    is_certain = np.empty(len(X), dtype=np.bool_)
    budget_shares = []
    for half in (in_first_half, ~in_first_half):
        model = _train_model(X[~half], labels[~half], X[half], features, plan, generator)
        rows[half], predictions = model.map_rows(X[half])
        values[half] = predictions.values
        score_std[half] = predictions.score_std
        is_certain[half] = model.is_certain(predictions.values)
        budget_shares.append(plan.get_vote_share(model))
    metric = build_metric_kernel(rows)
    budget_share = float(np.mean(budget_shares))
    reference = Reference(metric, metric.encode(rows))
    return SimulatedModel(reference, predicted, is_certain, budget_share)


def _train_model(
    X: Floats32,
    labels: Ints,
    calibration_rows: Floats32,
    features: ModelFeatures,
    plan: IndKNNPlan,
    generator: np.random.Generator,  # noqa: TID251 (its type)
) -> PrivateModel:
    """Return a simulated private model, trained by floating-point gradients with seeded noise.

    - `X` (n, d), `labels` (n,): the training rows, encoded, and their classes.
    - `calibration_rows` (m, d): encoded rows on which the model is calibrated.
    - `features`: maps encoded rows to the integer input features of the model.
    - `plan`: gives the budget and the number of records, which determine the noise.
    """
    training = replace(plan.training, typical_charge_ratio=1.0, records_per_subject=1.0)
    rows = features.compute_rows(X).astype(np.float64) / features.steps_per_unit
    sigma = training.step_noise
    clip = training.compute_clip(features.width)
    noise = sigma * clip / training.n_records

    def publish_gradient(weights: Floats) -> tuple[Floats, float]:
        """Return the noisy mean gradient at `weights`, both (D, c), and the noise multiplier."""
        # The mean of the rows' gradients of the logistic loss, each clipped to the norm `clip`.
        residuals = softmax(rows @ weights)
        residuals[np.arange(len(labels)), labels] -= 1.0
        norms = np.linalg.norm(rows, axis=1) * np.linalg.norm(residuals, axis=1)
        residuals *= np.minimum(1.0, clip / np.maximum(norms, 1e-300))[:, None]
        gradient = np.asarray(rows.T @ residuals / len(rows))
        return gradient + generator.normal(scale=noise, size=weights.shape), sigma

    return train_on_gradients(training, features, calibration_rows, publish_gradient)


# Smallest number of public points that vote in a query; fewer would not represent the records.
MIN_VOTERS = 25
MIN_POINTS = 100  # Smallest number of public points for a simulation
MIN_SUBJECTS = 25  # Smallest number of their subjects, for the same reason as `MIN_VOTERS`


@dataclass(frozen=True, slots=True)
class SimulationResult:
    """Expected quality of a plan's answers and use of budgets, simulated on public points.

    The field names are keys of JSON plans. Shares of answers:

    - `agreement`, `at_end`: those that noise and spent budgets do not change, among all answers,
      and among the last quarter.
    - `accuracy`: correct ones, by the labels of the queried points.
    - `plain_accuracy`: correct ones without noise and with full budgets.
    - `commonest`: correct ones if all answers were the most common class.
    - `asked`: those by a vote; the others are by the private model alone.

    Use of budgets at the end: `used`, the mean share of a point's budget that is used; `retired`,
    the share of points that have used at least :data:`SPENT_SHARE` of it. Numbers: `answers`, of
    simulated answers; `subjects`, of subjects of the public points.
    """

    agreement: float
    at_end: float
    accuracy: float
    plain_accuracy: float
    commonest: float
    asked: float
    used: float
    retired: float
    answers: int
    subjects: int

    @classmethod
    def mean(cls, results: Sequence[Self]) -> Self:
        """Return the means of results on the same points, with the total number of answers."""
        names = [field.name for field in fields(cls)]
        means: dict[str, Any] = {
            name: float(np.mean([getattr(result, name) for result in results])) for name in names
        }
        totals = {"answers": sum(result.answers for result in results)}
        return cls(**{**means, **totals, "subjects": results[0].subjects})

    def compute_standard_error(self, share: float) -> float:
        """Return the standard error of a share of answers, such as `accuracy`.

        It is that of one answer for each subject: answers for one subject may all be right or
        wrong together, and so are repeated answers for one point.
        """
        n_independent = min(self.answers, self.subjects)
        return math.sqrt(max(share * (1 - share), 0.25 / n_independent) / n_independent)


@dataclass(frozen=True, slots=True, eq=False)
class SimulationSetup:
    """Public points for simulations of plans.

    - `reference`: the points (m, d) as integers, with the kernel.
    - `labels`, int64 (m,): the class of every point.
    - `subjects`, int64 (m,): the number of every point's subject, from 0 without gaps.
    - `n_classes`: number of classes.
    - `model`: the private model of the plan, in whose metric the points are; None without one.
    """

    reference: Reference
    labels: Ints
    subjects: Ints
    n_classes: int
    model: SimulatedModel | None = None

    @property
    def n_subjects(self) -> int:
        """Number of subjects."""
        return int(self.subjects.max()) + 1

    @property
    def shares(self) -> list[float]:
        """Share of each class among the points, (c,)."""
        counts = np.bincount(self.labels, minlength=self.n_classes)
        return [float(share) for share in counts / counts.sum()]

    def with_simulated_model(self, plan: IndKNNPlan, seed: int) -> SimulationSetup:
        """Return the points in the metric of a private model of `plan`, simulated with `seed`."""
        model = simulate_model(self, plan, seed)
        return replace(self, reference=model.reference, model=model)


def simulate(setup: SimulationSetup, choice: PlanChoice, seed: int = 0) -> SimulationResult:
    """Return the result of one simulation of a plan; the same seed gives the same result.

    If more answers are planned than there are points, each simulated answer stands for several, and
    is charged that many times. `setup`: the public points. `choice`: neighbours and noise.
    """
    run = _SimulationRun(setup, choice, seed)
    order = run.queries
    for start in range(0, len(order), BLOCK_SIZE):
        run.answer_block(order[start : start + BLOCK_SIZE])
    return run.create_result()


# Stands for an answer that has not been computed, or for a query outside the selection.
_UNKNOWN = -1


class _SimulationRun:
    """State of one simulation: budgets and answers of all points.

    `setup`, `choice`, `seed`: the arguments of :func:`simulate`. Attribute `queries`: indices of
    the points that are queried, in random order.
    """

    def __init__(self, setup: SimulationSetup, choice: PlanChoice, seed: int) -> None:
        size = len(setup.reference)
        generator = np.random.default_rng(seed)  # noqa: TID251 (noise on public points only)
        n_queries = min(choice.plan.n_queries, size)
        self.queries = generator.permutation(size)[:n_queries]
        self._setup = setup
        self._choice = choice
        self._generator = generator
        self._voters = _find_voters(setup, choice)
        self._answers_per_query = choice.plan.n_queries / n_queries
        self._budgets = np.ones(size)
        self._answers = np.full(size, _UNKNOWN, dtype=np.int64)
        self._noiseless_answers = np.full(size, _UNKNOWN, dtype=np.int64)
        self._n_queried = 0

    def answer_block(self, block: Indices) -> None:
        """Answer a `block` of queries, (b,) indices of points, and charge the voters."""
        labels = self._predict_by_model(block)
        queried = labels == _UNKNOWN
        voters = self._voters.select_queries(block)
        noiseless = self._sum_votes(voters, voters.weights)
        charged = voters.select_queries(np.flatnonzero(queried))
        noisy = self._sum_votes(charged, self._charge_voters(charged))
        scale = self._choice.noise
        noisy = noisy + self._generator.normal(scale=scale, size=noisy.shape)
        model = self._setup.model
        noiseless_labels = labels.copy()
        if model is not None:
            loss = self._choice.plan.loss
            model_votes = loss.convert_to_votes(
                model.predicted[block], scale, float(self._choice.n_neighbors)
            )
            noiseless += model_votes
            noisy += model_votes[queried]
        labels[queried] = noisy.argmax(axis=1)
        noiseless_labels[queried] = noiseless.argmax(axis=1)[queried]
        self._noiseless_answers[block] = noiseless_labels
        self._answers[block] = labels
        self._n_queried += int(queried.sum())

    def _predict_by_model(self, block: Indices) -> Ints:
        """Return the labels (b,) of queries that the model answers alone, else `_UNKNOWN`.

        The model answers if it is certain, or if no planned queries to private records remain.
        `block` (b,): indices of the queried points.
        """
        model = self._setup.model
        if model is None:
            return np.full(len(block), _UNKNOWN, dtype=np.int64)
        remaining = self._choice.plan.n_private_answers / self._answers_per_query - self._n_queried
        is_uncertain = ~model.is_certain[block]
        queried = is_uncertain & (np.cumsum(is_uncertain) <= remaining)
        return np.where(queried, _UNKNOWN, model.predicted.values[block].argmax(axis=1))

    def _charge_voters(self, voters: _Voters) -> Floats:
        """Charge the voters, and return the vote weights (pairs,) that their budgets pay for."""
        variance = 2 * self._choice.multiplier**2 * self._choice.n_neighbors * self._choice.budget
        prices = (
            np.square(voters.weights) / variance * voters.charge_per_vote * self._answers_per_query
        )
        budgets = self._budgets[voters.rows]
        np.subtract.at(self._budgets, voters.rows, np.minimum(prices, budgets))
        np.maximum(self._budgets, 0.0, out=self._budgets)
        return np.asarray(voters.weights * np.sqrt(np.minimum(1.0, budgets / prices)))

    def _sum_votes(self, voters: _Voters, vote_weights: Floats) -> Floats:
        """Return the weighted votes (q, c) for each class, each times the records it counts as.

        `vote_weights` (pairs,): the kernel weight, or less where a budget does not afford it.
        """
        c = self._setup.n_classes
        cells = voters.queries * c + self._setup.labels[voters.rows]
        sums = np.bincount(
            cells, weights=vote_weights * voters.records_per_vote, minlength=voters.n_queries * c
        )
        return np.asarray(sums.reshape(voters.n_queries, c))

    def create_result(self) -> SimulationResult:
        """Return the simulated quality of all answers and the use of budgets."""
        order = self.queries
        is_unchanged = self._answers[order] == self._noiseless_answers[order]
        truth = self._setup.labels[order]
        return SimulationResult(
            agreement=float(is_unchanged.mean()),
            at_end=float(is_unchanged[-max(1, len(order) // 4) :].mean()),
            accuracy=float((self._answers[order] == truth).mean()),
            plain_accuracy=float((self._noiseless_answers[order] == truth).mean()),
            commonest=float(np.bincount(truth).max() / len(order)),
            asked=self._n_queried / len(order),
            used=float(1 - self._budgets.mean()),
            retired=float((self._budgets <= 1 - SPENT_SHARE).mean()),
            answers=len(order),
            subjects=self._setup.n_subjects,
        )


@dataclass(frozen=True, slots=True)
class _Voters:
    """The public points that vote in a number of queries, as pairs of a query and a point.

    - `queries`, `rows`, `weights`: index of the query, index of the point, and kernel weight of
      each pair.
    - `n_queries`: number of queries.
    - `records_per_vote`: number of records that each vote counts as: k / v for v voters.
    - `charge_per_vote`: charge of a vote, as a multiple of that of a record: k m / (n v).
    """

    queries: Indices
    rows: Indices
    weights: Floats
    n_queries: int
    records_per_vote: float
    charge_per_vote: float

    def select_queries(self, indices: Indices) -> _Voters:
        """Return the voters of the queries with these `indices` (q,), renumbered 0 to q - 1."""
        new_index = np.full(self.n_queries, _UNKNOWN, dtype=np.int64)
        new_index[indices] = np.arange(len(indices))
        queries = new_index[self.queries]
        is_kept = queries != _UNKNOWN
        rows, weights = self.rows[is_kept], self.weights[is_kept]
        return replace(
            self, queries=queries[is_kept], rows=rows, weights=weights, n_queries=len(indices)
        )


def _find_voters(setup: SimulationSetup, choice: PlanChoice) -> _Voters:
    """Return the voters of a query at each point: the v nearest points of other subjects.

    Each query has `n_voters` v of them, or more if points have equal similarities.
    """
    reference = setup.reference
    size = len(reference)
    max_rows_per_subject = int(np.bincount(setup.subjects).max())
    k = choice.n_neighbors
    expected_voters = k * size / choice.plan.size  # k m / n
    n_voters = min(size - max_rows_per_subject, max(MIN_VOTERS, round(expected_voters)))
    index = ExactIndex(reference.kernel, reference.points.shape[1])
    index.add(reference.points)
    # More points are searched, as those of the query's own subject may be the nearest.
    n_searched = n_voters + max_rows_per_subject
    matches = index.search(
        reference.points, reference.find_similarity_at_rank(reference.points, n_searched)
    )
    queries = np.repeat(np.arange(size), np.diff(matches.starts))
    is_other = setup.subjects[queries] != setup.subjects[matches.rows]
    starts = np.concatenate([[0], np.cumsum(np.bincount(queries[is_other], minlength=size))])
    thresholds = select_rank(starts, matches.similarities[is_other], n_voters)
    is_voter = is_other & (matches.similarities >= thresholds[queries])
    kernel = reference.kernel
    table = kernel.table(reference.points.shape[1])
    weights = np.maximum(table[kernel.levels(matches.similarities[is_voter])], 1e-9)
    rows = matches.rows[is_voter].astype(np.int64)
    return _Voters(queries[is_voter], rows, weights, size, k / n_voters, expected_voters / n_voters)
