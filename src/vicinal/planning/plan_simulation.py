r"""What public facts make of a plan, and the plan played through on public points; seeded.

The choice of neighbours and noise is the very planning that ``IndKNNClassifier.fit`` does
(:mod:`vicinal.engine.noise_schedule`), before there is a private record.

Played through, public points are records and queries at once. Every one stands for n / m records.
It has a budget, is charged for its share of the queries, votes with its public label, and is left
out of its own query. *Agreement* is the share of answers that equal those of the same neighbours
without noise and with all budgets.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Self

import numpy as np

from vicinal.arrays import Bools, Floats, Floats32, Places
from vicinal.engine.engine import BLOCK
from vicinal.engine.noise_schedule import TYPICAL_SPREAD, ReferenceUsage, reference_usage
from vicinal.engine.proxy_ledger import RETIRED
from vicinal.errors import InvalidInput
from vicinal.linear.losses import Predictions
from vicinal.linear.model_features import ModelFeatures, softmax
from vicinal.linear.private_model import PrivateModel, descend_gradients, metric_kernel
from vicinal.neighbours.index import ExactIndex
from vicinal.neighbours.kernels import Cosine, IntegerMatrix, Kernel
from vicinal.neighbours.radius import AdaptiveRadius, Reference
from vicinal.planning.plan import IndKNNPlan
from vicinal.targets.target import ExpectedError, VectorTarget

LARGEST_WEIGHT = 1.0
"""Mean squared kernel weight where no public point tells it: no weight is larger."""


@dataclass(frozen=True, slots=True)
class PlanChoice:
    """What public facts make of a plan.

    - `plan`: of a declared number of records.
    - `n_neighbors`: k, records expected to take part in a query.
    - `multiplier`: sigma2; the noise on each class has scale sigma2 sqrt(k) votes.
    - `budget`: a record's part of its subject's budget for votes, in zCDP, as a planned
      contribution feels it; beside a private model, at least.
    - `usage`: how records are expected to be used, as measured on public points or assumed.
    - `doubt`: what noise leaves in what a private model says of vectors; None where none is known.
    """

    plan: IndKNNPlan
    n_neighbors: int
    multiplier: float
    budget: float
    usage: ReferenceUsage
    doubt: float | None = None

    @classmethod
    def of(
        cls, plan: IndKNNPlan, reference: Reference | None = None, budget_share: float | None = None
    ) -> Self:
        """Choose; without public points kernel weights count as the largest there are.

        Beside a private model the plan is for what training is known to leave of a budget, or
        for the least that it leaves. ``fit`` plans for what it would have left public points.

        - `plan`: with a number of records.
        - `reference`: public points.
        - `budget_share`: the share of a budget that training leaves.
        """
        known, n = create_untrained_model(plan, reference), plan.size
        left = 1 - (plan.model_share or 0.0) if known is None else plan.left_by(known)
        left = left if budget_share is None else budget_share
        points = n if reference is None else len(reference)
        k = plan.n_neighbors or plan.choose_neighbors(reference, left)
        k = max(k, math.ceil(n / points))
        usage = ReferenceUsage(LARGEST_WEIGHT, TYPICAL_SPREAD)
        if reference is not None:
            width = reference.points.shape[1]
            usage = reference_usage(reference, AdaptiveRadius(reference, k, n), width)
        multiplier = plan.noise_multiplier or plan.choose_multiplier(usage, k, left)
        shift = math.sqrt(usage.weight / k) / multiplier
        doubt = None if known is None else known.doubt
        return cls(plan, k, multiplier, plan.compute_record_budget(left, shift), usage, doubt)

    @property
    def noise(self) -> float:
        return self.multiplier * math.sqrt(self.n_neighbors)

    @property
    def cost(self) -> float:
        """The share of its budget that a record pays for taking part in a query."""
        return self.usage.weight / (2 * self.noise**2 * self.budget)

    @property
    def participations(self) -> float:
        return self.plan.n_asked * self.n_neighbors / self.plan.size

    @property
    def lasts(self) -> int:
        """How many queries a busy record lasts for, if they fall as the public points do."""
        busy = self.usage.spread * self.n_neighbors / self.plan.size
        return math.floor(1 / (busy * self.cost))

    def expected_errors(self) -> list[ExpectedError]:
        """Return what the noise does to typical answers that are averages, from public facts.

        How unlike each other neighbours are, and how unlike the query, comes on top.
        """
        target = self.plan.target
        assert isinstance(target, VectorTarget)  # noqa: S101 (narrows the type)
        noise, weight = self.noise, self.n_neighbors * math.sqrt(self.usage.weight)
        if self.doubt is not None:
            noise = float(self.plan.loss.noise_left(noise, self.n_neighbors, self.doubt))
        return target.expected_errors(weight, np.array([noise]))


def create_untrained_model(plan: IndKNNPlan, reference: Reference | None) -> PrivateModel | None:
    """Return a private model of vectors before it has learnt anything; None where there is none.

    What it costs, and how far off noise leaves it, follow from public points alone: a square is as
    curved everywhere.
    """
    if not plan.model_share or plan.target.voted or reference is None:
        return None
    points = np.asarray(reference.points, dtype=np.float32)
    assert isinstance(reference.kernel, Cosine)  # noqa: S101 (a model needs it)
    features = ModelFeatures.planned(points, plan.size, lifted=reference.kernel.lifts)
    return descend_gradients(
        plan.training, features, points,
        lambda weights: (np.zeros_like(weights), plan.training.step_noise),
    )  # fmt: skip


@dataclass(frozen=True, slots=True, eq=False)
class SimulatedModel:
    """What models of public points say of them, and the points in their metric.

    - `reference`: the points in the learnt metric.
    - `predicted`: what it says of each point.
    - `sure`, bool (m,): where the model would answer alone.
    - `budget_share`: share of a budget that training leaves around points that are asked about.
    """

    reference: Reference
    predicted: Predictions
    sure: Bools
    budget_share: float


def simulate_model(
    kernel: Cosine, points: IntegerMatrix, labels: Places, plan: IndKNNPlan, seed: int
) -> SimulatedModel:
    """Return what a model would make of labelled public points (m, d), were they n records.

    - `kernel`, `points`, array (m, d): public integer points, and what made them.
    - `labels`, int64 (m,): their classes.
    - `plan`: with a share for the model.
    - `seed`: of the noise, and of the halves.
    """
    generator = np.random.default_rng(seed)  # noqa: TID251 (noise on public points only)
    numbers = np.asarray(points, dtype=np.float32)
    plan = plan.changed(n_public=len(numbers)).replanned()
    n_classes = plan.target.n_coordinates
    features = ModelFeatures.planned(numbers, plan.size, lifted=kernel.lifts)
    first = np.isin(np.arange(len(points)), generator.permutation(len(points))[::2])
    rows = np.empty((len(points), points.shape[1] + n_classes), dtype=np.float32)
    values, doubts = np.empty((len(points), n_classes)), np.empty(len(points))
    predicted = Predictions(values, doubts, features.kernel is None)
    sure = np.empty(len(points), dtype=np.bool_)
    lefts = []
    for part in (first, ~first):
        model = _trained(numbers[~part], labels[~part], numbers[part], features, plan, generator)
        rows[part], said = model.mapped(numbers[part])
        values[part], doubts[part] = said.values, said.doubts
        sure[part] = model.sure(said.values)
        lefts.append(plan.left_by(model))
    metric, left = metric_kernel(rows), float(np.mean(lefts))
    return SimulatedModel(Reference(metric, metric.encode(rows)), predicted, sure, left)


def _trained(
    X: Floats32,
    labels: Places,
    others: Floats32,
    features: ModelFeatures,
    plan: IndKNNPlan,
    generator: np.random.Generator,  # noqa: TID251 (its type)
) -> PrivateModel:
    """Return a model of `X`, calibrated on `others`: trained once, by gradients in floats."""
    training = replace(plan.training, subject_use=1.0)
    rows, sigma = features.rows(X).astype(np.float64) / features.unit, training.step_noise
    clip = training.clip(features.width)
    noise = sigma * clip / training.n_records

    def published(weights: Floats) -> tuple[Floats, float]:
        gradient = _mean_gradient(rows, labels, weights, clip)
        return gradient + generator.normal(scale=noise, size=weights.shape), sigma

    return descend_gradients(training, features, others, published)


def _mean_gradient(rows: Floats, labels: Places, weights: Floats, clip: float) -> Floats:
    """Return the mean of gradients of norm `clip` at most, (D, c)."""
    away = softmax(rows @ weights)
    away[np.arange(len(labels)), labels] -= 1.0
    norms = np.linalg.norm(rows, axis=1) * np.linalg.norm(away, axis=1)
    away *= np.minimum(1.0, clip / np.maximum(norms, 1e-300))[:, None]
    return np.asarray(rows.T @ away / len(rows))


MIN_VOTERS = 25
"""Public points that vote in a query, at least: fewer would say little about who is around."""

LEAST_POINTS = 100
"""Fewer public points are not enough for a simulation."""


@dataclass(frozen=True, slots=True)
class SimulationResult:
    """What a plan may expect, on public points.

    - `agreement`, `at_end`: share of answers that noise and used-up budgets leave as they are: of
      all, and of the last quarter.
    - `accuracy`, `plain_accuracy`, `commonest`: share of answers that are right, without noise, and
      by the commonest class for all.
    - `asked`: share of queries that private records are asked.
    - `used`, `retired`: mean share of budgets used at the end, and share of points whose budget is
      spent.
    - `answers`: simulated answers, on which all of this rests.
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

    @classmethod
    def mean(cls, several: Sequence[Self]) -> Self:
        names = [field.name for field in fields(cls)]
        means: dict[str, Any] = {
            name: float(np.mean([getattr(one, name) for one in several])) for name in names
        }
        return cls(**{**means, "answers": sum(one.answers for one in several)})

    def error(self, share: float) -> float:
        """Return the standard error of a share of answers, from their number alone."""
        return math.sqrt(max(share * (1 - share), 0.25 / self.answers) / self.answers)


@dataclass(frozen=True, slots=True, eq=False)
class SimulationSetup:
    """Public points that plans are played through on.

    - `reference`: the points (m, d) as integers, with the kernel.
    - `labels`, int64 (m,): the class of every point.
    - `n_classes`: number of classes.
    - `model`: a private model beside the votes, in whose metric the points are.
    """

    reference: Reference
    labels: Places
    n_classes: int
    model: SimulatedModel | None = None

    @property
    def shares(self) -> list[float]:
        """How common each class is, (c,)."""
        counts = np.bincount(self.labels, minlength=self.n_classes)
        return [float(share) for share in counts / counts.sum()]

    def beside_model(self, plan: IndKNNPlan, seed: int) -> SimulationSetup:
        """Return the points beside the model of a plan with one."""
        kernel = self.reference.kernel
        assert isinstance(kernel, Cosine)  # noqa: S101 (a model needs it)
        model = simulate_model(kernel, self.reference.points, self.labels, plan, seed)
        return replace(self, reference=model.reference, model=model)

    @classmethod
    def of(
        cls, kernel: Kernel, points: IntegerMatrix, n_classes: int, labels: Places
    ) -> SimulationSetup:
        """Return them.

        Raises InvalidInput if there are fewer than `LEAST_POINTS` points, or if the labels do not
        fit them.
        """
        if len(points) < LEAST_POINTS:
            raise InvalidInput(
                f"The public points must be at least {LEAST_POINTS} for a simulation. "
                f"Got {len(points)}."
            )
        if labels.shape != (len(points),) or labels.min() < 0 or labels.max() >= n_classes:
            raise InvalidInput(
                f"The labels must be one for each of {len(points)} public points, each a position "
                f"below {n_classes}."
            )
        return cls(Reference(kernel, points), labels.astype(np.int64), n_classes)


def simulate(setup: SimulationSetup, choice: PlanChoice, seed: int = 0) -> SimulationResult:
    """Play a plan through once; the same seed gives the same outlook.

    Where more answers are planned than there are points, each answer stands for several and is
    charged as many times.
    """
    run = _Run(setup, choice, seed)
    order = run.queries
    for start in range(0, len(order), BLOCK):
        run.answer(order[start : start + BLOCK])
    return run.result()


_UNKNOWN = -1
"""In place of an answer that is yet to be made, or of a query that is not in a block."""


class _Run:
    """One pass through the queries."""

    def __init__(self, setup: SimulationSetup, choice: PlanChoice, seed: int) -> None:
        size = len(setup.reference)
        generator = np.random.default_rng(seed)  # noqa: TID251 (noise on public points only)
        n_queries = min(choice.plan.n_queries, size)
        self.queries = generator.permutation(size)[:n_queries]
        self._setup, self._choice, self._generator = setup, choice, generator
        self._near = _public_voters(setup.reference, choice)
        self._each = choice.plan.n_queries / n_queries
        self._budgets = np.ones(size)
        self._answers = np.full(size, _UNKNOWN, dtype=np.int64)
        self._plain = np.full(size, _UNKNOWN, dtype=np.int64)
        self._n_asked = 0

    def answer(self, block: Places) -> None:
        labels = self._model_labels(block)
        queried = labels == _UNKNOWN
        near = self._near.of(block)
        plain = self._sums(near, near.weights)
        noisy = self._sums(near.where(queried), self._charged(near.where(queried)))
        scale = self._choice.noise
        noisy = noisy + self._generator.normal(scale=scale, size=noisy.shape)
        model, unnoised = self._setup.model, labels.copy()
        if model is not None:
            loss = self._choice.plan.loss
            joined = loss.votes(model.predicted[block], scale, float(self._choice.n_neighbors))
            plain += joined
            noisy += joined[queried]
        labels[queried] = noisy.argmax(axis=1)
        unnoised[queried] = plain.argmax(axis=1)[queried]
        self._plain[block], self._answers[block] = unnoised, labels
        self._n_asked += int(queried.sum())

    def _model_labels(self, block: Places) -> Places:
        """Return answers that need not be asked for, or `_UNKNOWN`."""
        model = self._setup.model
        if model is None:
            return np.full(len(block), _UNKNOWN, dtype=np.int64)
        remaining = self._choice.plan.n_asked / self._each - self._n_asked
        unsure = ~model.sure[block]
        queried = unsure & (np.cumsum(unsure) <= remaining)
        return np.where(queried, _UNKNOWN, model.predicted.values[block].argmax(axis=1))

    def _charged(self, near: _Voters) -> Floats:
        """Charge who takes part; return what each can afford to contribute."""
        noise = 2 * self._choice.multiplier**2 * self._choice.n_neighbors * self._choice.budget
        prices = np.square(near.weights) / noise * near.share * self._each
        budgets = self._budgets[near.rows]
        np.subtract.at(self._budgets, near.rows, np.minimum(prices, budgets))
        np.maximum(self._budgets, 0.0, out=self._budgets)
        return np.asarray(near.weights * np.sqrt(np.minimum(1.0, budgets / prices)))

    def _sums(self, near: _Voters, weights: Floats) -> Floats:
        """Return votes (q, c), k of them for every query."""
        c = self._setup.n_classes
        places = near.queries * c + self._setup.labels[near.rows]
        sums = np.bincount(places, weights=weights * near.records, minlength=near.size * c)
        return np.asarray(sums.reshape(near.size, c))

    def result(self) -> SimulationResult:
        order = self.queries
        same = self._answers[order] == self._plain[order]
        truth = self._setup.labels[order]
        return SimulationResult(
            agreement=float(same.mean()),
            at_end=float(same[-max(1, len(order) // 4) :].mean()),
            accuracy=float((self._answers[order] == truth).mean()),
            plain_accuracy=float((self._plain[order] == truth).mean()),
            commonest=float(np.bincount(truth).max() / len(order)),
            asked=self._n_asked / len(order),
            used=float(1 - self._budgets.mean()),
            retired=float((self._budgets <= 1 - RETIRED).mean()),
            answers=len(order),
        )


@dataclass(frozen=True, slots=True)
class _Voters:
    """Who votes in some queries: hits as query, point and kernel weight.

    Each hit stands for `records` records, and for the share `share` of what a record there takes
    part in.
    """

    queries: Places
    rows: Places
    weights: Floats
    size: int
    records: float
    share: float

    def of(self, block: Places) -> _Voters:
        """Return the voters of the points in `block`, numbered from 0."""
        number = np.full(self.size, _UNKNOWN, dtype=np.int64)
        number[block] = np.arange(len(block))
        return self._renumbered(number, len(block))

    def where(self, queried: Bools) -> _Voters:
        number = np.where(queried, np.cumsum(queried) - 1, _UNKNOWN)
        return self._renumbered(number, int(queried.sum()))

    def _renumbered(self, number: Places, size: int) -> _Voters:
        queries = number[self.queries]
        left = queries != _UNKNOWN
        rows, weights = self.rows[left], self.weights[left]
        return _Voters(queries[left], rows, weights, size, self.records, self.share)


def _public_voters(reference: Reference, choice: PlanChoice) -> _Voters:
    size, k = len(reference), choice.n_neighbors
    rank = k * size / choice.plan.size
    voters = min(size - 1, max(MIN_VOTERS, round(rank)))
    index = ExactIndex(reference.kernel, reference.points.shape[1])
    index.add(reference.points)
    # A point is nearest to itself.
    near = index.search(reference.points, reference.largest(reference.points, voters + 1))
    queries = np.repeat(np.arange(size), np.diff(near.starts))
    other = queries != near.rows
    kernel = reference.kernel
    table = kernel.table(reference.points.shape[1])
    weights = np.maximum(table[kernel.levels(near.similarities[other])], 1e-9)
    rows = near.rows[other].astype(np.int64)
    return _Voters(queries[other], rows, weights, size, k / voters, rank / voters)
