"""A linear model trained with noise on the private records, which Ind-KNN's neighbours use.

Training is releases of the same individual filter that pays for the votes: one ledger, one
guarantee. What comes out is public, and used in three ways that cost nothing more: a metric in
which neighbours agree, scores that join their votes, and a gate that asks only what is unsure.
docs/decisions/0053-private-model.md has the measurements behind the constants.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

import numpy as np
from threadpoolctl import ThreadpoolController

from vicinal._arrays import Bools, FloatMatrix, Floats, Floats32
from vicinal.ledger import Account
from vicinal.linear import _model_rule
from vicinal.linear._descent import PLAIN, Descent, training_plan
from vicinal.linear._kernel_map import KernelMap
from vicinal.linear._model_features import CHUNK, IntegerRows, ModelFeatures, scores_of, softmax
from vicinal.linear._model_rule import LOUD_SHARE, USUAL, ModelRule
from vicinal.mechanisms import (
    DeltaSlackAccountant,
    IndividualGradient,
    NoiseSource,
    SubjectRows,
    SubjectTable,
    whole_weights,
)
from vicinal.neighbours import FLOAT32, THREADS, map_in_threads, unit_vectors

LOUD, LOUDEST = 0.06, 0.12
"""Noise on the mean gradient over all weights, in clipping bounds: from where on training takes a
larger share, and from where on nothing is learnt."""

_LARGEST_PRIOR = 1e4  # in grid steps it stays inside int64
_LEAST_SHARE = 1e-9
_ROUNDS = 50


@dataclass(frozen=True, slots=True, eq=False)
class LinearModel:
    """Softmax regression with public weights; every row's scores depend on that row alone.

    `weights`, float64 (D, c): in steps of 2^-18, whole numbers, for what ModelFeatures makes of d
    features. `kernel`: part of those features.
    """

    weights: Floats
    kernel: KernelMap | None = None

    def scores(self, X: FloatMatrix) -> Floats:
        """Return the scores of all classes, float64 (n, c)."""
        parts = [scores for _, _, scores in self.scored(X)]
        return np.concatenate([np.zeros((0, self.weights.shape[1])), *parts])

    def scored(self, X: FloatMatrix) -> Iterator[tuple[int, IntegerRows, Floats]]:
        """Yield where some rows begin, their integers of length one, and their scores."""
        features = ModelFeatures.of_weights(X.shape[1], self.weights, self.kernel)

        def scored(start: int) -> tuple[int, IntegerRows, Floats]:
            unit = unit_vectors(X[start : start + CHUNK])
            return start, unit, scores_of(features.of_unit(unit), self.weights, features.unit)

        together = CHUNK * THREADS
        for start in range(0, len(X), together):
            stop = min(start + together, len(X))
            yield from map_in_threads(scored, range(start, stop, CHUNK))


class PrivateModel:
    """What neighbours use of a trained model, calibrated on public rows; all of it is public.

    - `model`: the trained model.
    - `public`, array (m, d): public rows.
    - `used`, float64 (m,): the share of its budget that each would have paid for the training, were
      it a record.
    - `shares`, float64 (c,): declared class shares, which its probabilities have on average over
      public rows.
    - `rule`: what neighbours make of it.
    """

    def __init__(
        self,
        model: LinearModel,
        public: FloatMatrix,
        used: Floats,
        shares: Floats | None = None,
        rule: ModelRule = USUAL,
    ) -> None:
        self.model, self.rule = model, rule
        scores = model.scores(public)
        self._center = scores.mean(axis=0)
        away = scores - self._center
        self._length = max(float(np.sqrt(np.square(away).sum(axis=1)).mean()), 1e-12)
        self._spread = max(float(scores.std()), 1e-12)
        margins = margins_of(scores)
        self._sure = float(np.quantile(margins, rule.asked))
        self._shift = np.zeros(scores.shape[1]) if shares is None else _shift(scores, shares)
        self.used = used
        unsure = margins <= self._sure
        self.typical_use = float(used[unsure].mean())

    def features(self, X: FloatMatrix) -> Floats32:
        """Return rows in the learnt metric, float32 (n, d + c): every row by itself."""
        return self.mapped(X)[0]

    def mapped(self, X: FloatMatrix) -> tuple[Floats32, Floats]:
        """Return what :meth:`features` and :meth:`prior` return."""
        n_features, n_classes = X.shape[1], self.model.weights.shape[1]
        features = np.empty((len(X), n_features + n_classes), dtype=np.float32)
        prior = np.empty((len(X), n_classes))
        for start, rows, scores in self.model.scored(X):
            part = slice(start, start + len(rows))
            features[part, :n_features] = rows / np.float32(FLOAT32.scale(n_features))
            features[part, n_features:] = (scores - self._center) * (
                self.rule.metric / self._length
            )
            prior[part] = self._prior_of(scores)
        return features, prior

    def prior(self, X: FloatMatrix) -> Floats:
        """Return what joins the votes, float64 (n, c), in units of their noise."""
        return self._prior_of(self.model.scores(X))

    def _prior_of(self, scores: Floats) -> Floats:
        prior = scores * (self.rule.prior / self._spread)
        return np.asarray(np.clip(prior, -_LARGEST_PRIOR, _LARGEST_PRIOR))

    def emphasised(self, prior: Floats, noise: Floats, expected: Floats) -> Floats:
        """Return what joins votes that are expected in such numbers, (q, c), in noise scales.

        `prior`, float64 (q, c): as :meth:`prior` returns it. `noise`, float64 (q,): its scales, in
        votes. `expected`, float64 (q,): records that take part. All of it is public.
        """
        largest = _LARGEST_PRIOR / np.maximum(np.abs(prior).max(axis=1), 1.0)
        times = np.minimum(self.rule.emphasis(noise, expected), largest)
        return np.asarray(prior * times[:, None])

    def shares(self, prior: Floats) -> Floats:
        """Return the model's probabilities of all classes, float64 (n, c), above 0."""
        scores = prior * (self._spread / self.rule.prior) + self._shift
        return np.maximum(softmax(scores), _LEAST_SHARE)

    def sure(self, prior: Floats) -> Bools:
        """Return where the model answers alone, bool (n,)."""
        return np.asarray(margins_of(prior) * (self._spread / self.rule.prior) > self._sure)


def _shift(scores: Floats, shares: Floats) -> Floats:
    """Return what makes probabilities average `shares` when it is added to the scores of rows.

    None for equal shares, which are what is taken where none are declared.
    """
    shift = np.zeros(scores.shape[1])
    for _ in range(_ROUNDS if np.ptp(shares) else 0):
        shift += np.log(shares / np.maximum(softmax(scores + shift).mean(axis=0), _LEAST_SHARE))
    return shift


def margins_of(scores: Floats) -> Floats:
    """Return the best score less the second best, (n,)."""
    best = np.partition(scores, -2, axis=1)
    return np.asarray(best[:, -1] - best[:, -2])


class ModelGate:
    """The public model beside the votes: who is asked, and what joins the votes.

    At most `planned` queries are asked, as many as the votes' noise was planned for; after them the
    model answers alone. Which are asked follows from queries and public weights.

    `model`: the model. `planned`: queries that are put to the vote, at most. `n_asked`: queries
    that were put to the vote so far. Public.
    """

    def __init__(self, model: PrivateModel, planned: int) -> None:
        self.model = model
        self._planned = planned
        self.n_asked = 0

    def to_ask(self, prior: Floats) -> Bools:
        """Return which queries of a block are asked, bool (q,), and count them."""
        unsure = ~self.model.sure(prior)
        queried = unsure & (np.cumsum(unsure) <= self._planned - self.n_asked)
        self.n_asked += int(queried.sum())
        return np.asarray(queried)


@dataclass(frozen=True, slots=True, eq=False)
class TrainingBudget:
    """What a private model is trained with; public.

    - `n_records`: which means are taken by.
    - `budget`: of every subject, in zCDP.
    - `share`: the largest share of it that a subject pays for training.
    - `trainings`: how many trainings share that evenly.
    - `class_shares`, float64 (c,): declared, or equal.
    - `subject_use`: what a subject is charged, over what each of its records would be.
    - `rule`: how the model is trained and used.
    """

    n_records: int
    budget: float
    share: float
    trainings: int
    class_shares: Floats
    subject_use: float
    rule: ModelRule


def fitting_share(training: TrainingBudget, n_features: int) -> float:
    """Return the share of budgets for the model: the rule's, or 0 where noise would win.

    The noise on the mean gradient, were there 40 of them, over all weights of `n_features`, must
    be below :data:`LOUDEST` clipping bounds; from :data:`LOUD` on the share is :data:`LOUD_SHARE`.
    """
    root = math.sqrt((n_features + 1) * len(training.class_shares))
    for share, loudest in ((training.rule.share, LOUD), (LOUD_SHARE, LOUDEST)):
        part = share * training.budget / training.trainings
        if PLAIN.noise(part) * root / training.n_records <= loudest:
            return share
    return 0.0


def train(
    training: TrainingBudget,
    X: FloatMatrix,
    table: SubjectTable,
    account: Account,
    public: FloatMatrix,
    noise: NoiseSource,
    slack: DeltaSlackAccountant,
) -> PrivateModel:
    """Train on private records; each subject pays for its gradients.

    - `training`: what there is to pay with.
    - `X`, array (n, d): private features.
    - `table`: labels and subjects of the records.
    - `account`: where the budgets are: `table.remaining` is its own.
    - `public`, array (m, d): public rows.
    - `noise`, `slack`: where noise comes from, and what the grid costs.
    """
    share, budget, n_records = training.share, training.budget, training.n_records
    n_classes = len(training.class_shares)
    many = _model_rule.has_components(X.shape[1], len(public), n_records)
    features = ModelFeatures.planned(X.shape[1], public if many else None)
    plan = training_plan(features)
    records = SubjectRows(features.rows(X), table.labels, table.slots, len(table.remaining))
    part = share / training.trainings
    sigma = plan.noise(part * budget, training.trainings)
    # A later training may find less than a part left, and may use all: nothing is reserved.
    most = share if training.trainings == 1 else 1.0
    gradient = IndividualGradient(
        records, n_classes, features.unit, plan.clip, sigma, most, budget, noise, slack
    )
    with _blas().limit(limits=1, user_api="blas"):  # thin products: threads would only wait
        rows = features.rows(public)
        descent = Descent(features, training.class_shares, rows, sigma * plan.clip / n_records)
        used = _descended(
            gradient, sigma, table, account, rows, n_records, descent, training.subject_use
        )
        model = LinearModel(whole_weights(descent.finished()), features.kernel)
    used = np.minimum(used / budget, part)
    return PrivateModel(model, public, used, training.class_shares, training.rule)


def _descended(
    gradient: IndividualGradient,
    sigma: float,
    table: SubjectTable,
    account: Account,
    rows: IntegerRows,
    n_records: int,
    descent: Descent,
    use: float,
) -> Floats:
    """Follow as many gradients as are planned; return the zCDP that public rows would pay."""
    used, wide = np.zeros(len(rows)), rows.astype(np.float64)
    # Of a subject's gradient, which is longer than that of one of its records.
    lengths = np.square(wide).sum(axis=1) * (use / gradient.unit**2)
    for _ in range(descent.plan.steps):
        release = gradient.release(sigma)
        scores = scores_of(wide, whole_weights(descent.weights), gradient.unit)
        used += release_cost(scores, lengths / gradient.clip**2, release.noise)
        sums, spent = release.collect(descent.weights, table.remaining)
        account.note_charged_total(spent)
        descent.step(release.publish(sums) * (gradient.clip / n_records))
    return used


@cache
def _blas() -> ThreadpoolController:
    return ThreadpoolController()


def release_cost(scores: Floats, lengths: Floats, noise: float) -> Floats:
    """Return the zCDP that public rows would pay for a step; `lengths` (m,), squared, in clips.

    They are labelled as the model expects by its `scores`, (m, c).
    """
    chances = softmax(scores)
    squares = np.square(chances).sum(axis=1, keepdims=True) - 2 * chances + 1
    norms = np.minimum(squares * lengths[:, None], 1.0)
    return np.asarray((chances * norms).sum(axis=1) / (2 * noise**2))
