"""A linear model trained with noise on the private records, which Ind-KNN's neighbours use.

Training is releases of the same individual filter that pays for the votes: one ledger, one
guarantee. What comes out is public, and used in three ways that cost nothing more: a metric in
which neighbours agree, scores that join their votes, and a gate that asks only what is unsure.
docs/decisions/0053-private-model.md has the measurements behind the constants.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol, Self

import numpy as np

from vicinal.arrays import AnyArray, Bools, FloatMatrix, Floats, Floats32, Ints16, Steps
from vicinal.errors import InvalidInput
from vicinal.ledger.memory import Account
from vicinal.linear.descent import STEPS, Descent, compute_clip, compute_step_noise
from vicinal.linear.kernel_map import KERNEL_ARRAYS
from vicinal.linear.losses import Predictions, TrainingLoss
from vicinal.linear.model_features import CHUNK, IntegerRows, ModelFeatures, one_thread, scores_of
from vicinal.mechanisms.gradients import WEIGHT_STEPS, SubjectRows, whole_weights
from vicinal.mechanisms.linear_model import GradientRelease, IndividualGradient
from vicinal.mechanisms.noise_sources import NoiseSource, create_noise_source
from vicinal.mechanisms.subject_table import SubjectTable
from vicinal.mechanisms.votes import DeltaSlackAccountant
from vicinal.neighbours.kernels import FLOAT32, Cosine, int8_precision, unit_vectors
from vicinal.neighbours.scan import THREADS, map_in_threads

SHARE = 0.9
"""The share of a budget that training takes at most."""

ASKED = 0.1
"""The share of queries that is put to the vote, those that the model is least sure of."""

LEAST_PUBLIC = 10
"""Public rows that "auto" needs: a model's border between sure and unsure is read off them."""

MODEL_ARRAYS = ("weights", "used", "doubts", *KERNEL_ARRAYS)
"""What a trained model is kept as, by name; the last ones where many features have a kernel."""

_OWN_ARRAYS = MODEL_ARRAYS[:3]
_METRIC = 0.25  # mean length of the scores beside features of length 1

_NOT_KEPT = "A private model must be that of the same public rows, whole."


@dataclass(frozen=True, slots=True, eq=False)
class LinearModel:
    """Scores by public weights; every row's depend on that row alone.

    `weights`, float64 (D, c): in steps of 2^-18, whole numbers. `features`: what they are for.
    """

    weights: Floats
    features: ModelFeatures

    def __post_init__(self) -> None:
        # Compiled products read memory without a look at its bounds.
        if self.weights.ndim != 2 or len(self.weights) != self.features.width:
            raise InvalidInput("The weights must be those of a model of these features.")
        if not (whole_weights(self.weights / WEIGHT_STEPS) == self.weights).all():
            raise InvalidInput("The weights must be whole numbers, in the range of exact sums.")

    def scores(self, X: FloatMatrix) -> Floats:
        """Return the scores of all classes, float64 (n, c)."""
        none = np.zeros((0, self.weights.shape[1]))
        return np.concatenate([none, *(scores for *_, scores in self.scored(X))])

    def scored(
        self, X: FloatMatrix, known: Ints16 | None = None
    ) -> Iterator[tuple[int, IntegerRows, Floats]]:
        """Yield where some rows begin, their integers of length one, and their scores.

        `known`: what the model's features make of all rows, where that was computed before.
        """

        def scored(start: int) -> tuple[int, IntegerRows, Floats]:
            part = X[start : start + CHUNK]
            rows: IntegerRows | Ints16 = (
                self.features.of_encoded(part) if known is None else known[start : start + CHUNK]
            )
            scores = scores_of(rows, self.weights, self.features.unit)
            return start, unit_vectors(part), scores

        starts = range(0, len(X), CHUNK)
        for first in range(0, len(starts), THREADS):
            yield from map_in_threads(scored, starts[first : first + THREADS])


class PrivateModel:
    """What neighbours use of a trained model, calibrated on public rows; all of it is public.

    - `model`: the trained model.
    - `public`, array (m, d): public rows.
    - `used`, float64 (m,): the share of its budget that each would have paid for the training, were
      it a record.
    - `loss`: what it was trained for; with declared class shares, which its probabilities have on
      average over public rows.
    - `doubts`, float64 (D, r): weights in whole numbers of what training has left unknown, see
      :attr:`Descent.variance_directions`.

    `doubt`: the standard deviation that is left in a public row's score.
    """

    def __init__(
        self,
        model: LinearModel,
        public: FloatMatrix,
        used: Floats,
        loss: TrainingLoss,
        doubts: Floats,
    ) -> None:
        self.model, self.loss, self.doubts = model, loss, doubts
        self._n_scores = model.weights.shape[1]
        self._all = LinearModel(np.hstack([model.weights, doubts]), model.features)
        scores, left = self._split(self._all.scores(public))
        self.doubt = math.sqrt(float(np.square(left).mean()))
        self._center = scores.mean(axis=0)
        away = scores - self._center
        self._length = max(float(np.sqrt(np.square(away).sum(axis=1)).mean()), 1e-12)
        self._shift = loss.compute_shift(scores)
        margins = loss.compute_margins(loss.predict(scores + self._shift))
        self._sure = float(np.quantile(margins, ASKED))
        self.used = used
        self.typical_use = float(used[margins <= self._sure].mean())

    @classmethod
    def kept(
        cls,
        arrays: Mapping[str, AnyArray],
        public: FloatMatrix,
        loss: TrainingLoss,
        *,
        lifted: bool,
    ) -> Self:
        """Return the model whose :meth:`arrays` were kept, beside the same public rows (m, d).

        `lifted`: whether these rows were lifted to one length. Raises InvalidInput for arrays that
        are no model of such rows.
        """
        features = ModelFeatures.kept(public, arrays, lifted=lifted)
        if not set(_OWN_ARRAYS) <= arrays.keys():
            raise InvalidInput(_NOT_KEPT)
        weights, used, doubts = (arrays[name] for name in _OWN_ARRAYS)
        width = features.width
        shapes = (width, loss.n_scores), (len(public),), (width, loss.count_variance_columns(width))
        if (weights.shape, used.shape, doubts.shape) != shapes:
            raise InvalidInput(_NOT_KEPT)
        # Of texts and dates nothing below can be asked, and complex numbers nothing be computed.
        if any(array.dtype != np.float64 for array in (weights, used, doubts)):
            raise InvalidInput(_NOT_KEPT)
        if not ((used >= 0) & (used <= 1)).all():
            raise InvalidInput(_NOT_KEPT)
        return cls(LinearModel(weights, features), public, used, loss, doubts)

    def arrays(self) -> dict[str, AnyArray]:
        """Return what :meth:`kept` makes the same model of, by the names of MODEL_ARRAYS."""
        own = self.model.weights, self.used, self.doubts
        return {**dict(zip(_OWN_ARRAYS, own, strict=True)), **self.model.features.arrays()}

    def features(self, X: FloatMatrix, known: Ints16 | None = None) -> Floats32:
        """Return rows in the learnt metric, float32 (n, d + c): every row by itself."""
        return self.mapped(X, known)[0]

    def mapped(self, X: FloatMatrix, known: Ints16 | None = None) -> tuple[Floats32, Predictions]:
        """Return what :meth:`features` returns, and what the model says.

        `known`: what it was trained on, if that were these rows: most of the work was done then.
        """
        n_features, n_scores = X.shape[1], self._n_scores
        features = np.empty((len(X), n_features + n_scores), dtype=np.float32)
        predicted, doubts = np.empty((len(X), n_scores)), np.empty(len(X))
        for start, rows, both in self._all.scored(X, known):
            part = slice(start, start + len(rows))
            scores, doubts[part] = self._split(both)
            features[part, :n_features] = rows / np.float32(FLOAT32.scale(n_features))
            features[part, n_features:] = (scores - self._center) * (_METRIC / self._length)
            predicted[part] = self.loss.predict(scores + self._shift)
        return features, Predictions(predicted, doubts, self.model.features.kernel is None)

    def predicted(self, X: FloatMatrix) -> Floats:
        """Return what the model says: probabilities, above 0, or vectors; float64 (n, c)."""
        return self.loss.predict(self.model.scores(X) + self._shift)

    def _split(self, scores: Floats) -> tuple[Floats, Floats]:
        """Return scores, and what standard deviation training has left in each row's."""
        own, unknown = np.split(scores, [self._n_scores], axis=1)
        return own, np.sqrt(np.square(unknown).sum(axis=1))

    def sure(self, predicted: Floats) -> Bools:
        """Return where the model answers alone, bool (n,)."""
        return np.asarray(self.loss.compute_margins(predicted) > self._sure)


def metric_kernel(public: FloatMatrix) -> Cosine:
    """Return the kernel of a model's metric, from public rows as the model maps them."""
    return Cosine(int8_precision(public))


class ModelGate:
    """The public model beside the votes: who is asked, and what joins the votes.

    At most `planned` queries are asked, as many as the votes' noise was planned for; after them the
    model answers alone. Which are asked follows from queries and public weights.

    `model`: the model. `planned`: queries that are put to the vote, at most. `n_asked`: queries
    that were put to the vote so far. Public.
    """

    def __init__(self, model: PrivateModel, planned: int) -> None:
        self.model = model
        self.planned = planned
        self.n_asked = 0

    def to_ask(self, predicted: Floats) -> Bools:
        """Return which queries of a block are asked, bool (q,), and count them."""
        unsure = ~self.model.sure(predicted)
        queried = unsure & (np.cumsum(unsure) <= self.planned - self.n_asked)
        self.n_asked += int(queried.sum())
        return np.asarray(queried)


@dataclass(frozen=True, slots=True, eq=False)
class TrainingBudget:
    """What a private model is trained with; public.

    - `n_records`: which means are taken by.
    - `budget`: of every subject, in zCDP.
    - `share`: the largest share of it that a subject pays for training.
    - `trainings`: how many trainings share that evenly.
    - `loss`: what records carry.
    - `subject_use`: what a subject is charged, over what each of its records would be.
    """

    n_records: int
    budget: float
    share: float
    trainings: int
    loss: TrainingLoss
    subject_use: float

    @property
    def step_noise(self) -> float:
        """The noise scale of a step, in clipping bounds."""
        return compute_step_noise(self.share / self.trainings * self.budget)

    def clip(self, width: int) -> float:
        """Return the norm that gradients of so many features, with the bias, are cut to."""
        share = self.share / self.trainings * self.budget
        return compute_clip(share, self.n_records, width, self.loss)

    def mechanism(
        self, records: SubjectRows, unit: float, noise: NoiseSource, slack: DeltaSlackAccountant
    ) -> IndividualGradient:
        """Return what charges gradients; a coordinator's has no `records`, and adds the noise."""
        # A later training may find less than a part left, and may use all: nothing is reserved.
        most, n_scores = self.share if self.trainings == 1 else 1.0, self.loss.n_scores
        clip = self.clip(records.rows.shape[1])
        return IndividualGradient(
            records, n_scores, unit, clip, self.step_noise, most, self.budget, noise, slack
        )

    def rehearse(self, width: int, slack: DeltaSlackAccountant, trainings: int) -> None:
        """Raise PrivacyRefused if the grid costs too much in `trainings` of so many features."""
        mechanism = self.mechanism(no_records(width), 1.0, create_noise_source(), slack)
        mechanism.check(self.step_noise, STEPS * trainings)


def no_records(width: int) -> SubjectRows:
    """Return no records of so many features: a mechanism with these only adds the noise."""
    nobody = np.zeros(0, dtype=np.int32)
    return SubjectRows(np.zeros((0, width), dtype=np.float32), nobody, nobody, 0)


class Gradients(Protocol):
    """All subjects whose gradients a model is trained by, wherever they are."""

    mechanism: IndividualGradient
    """What sets price and noise of a step."""

    def publish(self, release: GradientRelease, weights: Floats) -> Floats:
        """Charge everybody for a gradient at public weights; return the noisy sum, in clips.

        The charges are as durable then as those of an answer must be before it leaves.
        """


class LocalGradients:
    """Records in this process, their subjects and budgets; private.

    - `training`, `features`: what is trained.
    - `X`, array (n, d): private features.
    - `table`: what the records carry, and their subjects.
    - `account`: where the budgets are: `table.remaining` is its own.
    - `noise`, `slack`: where noise comes from, and what the grid costs.
    """

    def __init__(
        self,
        training: TrainingBudget,
        features: ModelFeatures,
        X: FloatMatrix,
        table: SubjectTable,
        account: Account,
        noise: NoiseSource,
        slack: DeltaSlackAccountant,
    ) -> None:
        targets = training.loss.convert_targets(table.targets)
        self._records = SubjectRows(features.rows(X), targets, table.slots, len(table.remaining))
        self.mechanism = training.mechanism(self._records, features.unit, noise, slack)
        self._remaining, self._account, self._slots = table.remaining, account, table.slots

    @property
    def rows(self) -> Ints16:
        """What the features make of every row of `X`, (n, D): gradients keep it by subject."""
        return self._records.rows[np.argsort(np.argsort(self._slots, kind="stable"))]

    def charge_and_sum(self, release: GradientRelease, weights: Floats) -> Steps:
        """Charge everybody here for a gradient, and return the sum; still private."""
        sums, spent = release.collect(weights, self._remaining)
        self._account.note_charged_total(spent)
        return sums

    def publish(self, release: GradientRelease, weights: Floats) -> Floats:
        return release.publish(self.charge_and_sum(release, weights))


def train(
    training: TrainingBudget, features: ModelFeatures, public: FloatMatrix, gradients: Gradients
) -> PrivateModel:
    """Train on private records; each subject pays for its gradients.

    `public`, array (m, d): public rows.
    """
    mechanism, sigma = gradients.mechanism, training.step_noise

    def published(weights: Floats) -> tuple[Floats, float]:
        release = mechanism.release(sigma)
        mean = gradients.publish(release, weights) * (mechanism.clip / training.n_records)
        return mean, release.noise

    return descend_gradients(training, features, public, published)


def descend_gradients(
    training: TrainingBudget,
    features: ModelFeatures,
    public: FloatMatrix,
    published: Callable[[Floats], tuple[Floats, float]],
) -> PrivateModel:
    """Follow as many gradients as are planned; all of it is public.

    `published`: returns the noisy mean gradient at some weights, and its noise scale in clips.
    """
    with one_thread():  # thin products: others would only wait
        rows = features.rows(public)
        used, wide = np.zeros(len(rows)), rows.astype(np.float64)
        # Of a subject's gradient, which is longer than that of one of its records.
        clip, n_records, loss = training.clip(features.width), training.n_records, training.loss
        squares = np.square(wide).sum(axis=1) * (training.subject_use / (features.unit * clip) ** 2)
        noise = training.step_noise * clip / n_records
        spreads = loss.spread if features.kernel is None else loss.spread_of_components
        parts = list(zip(features.parts, spreads, strict=True))
        descent = Descent(rows, features.unit, parts, loss, n_records, clip, noise)
        for _ in range(STEPS):
            scores = scores_of(wide, whole_weights(descent.weights), features.unit)
            gradient, paid = published(descent.weights)
            used += loss.compute_gradient_squares(scores, squares) / (2 * paid**2)
            descent.step(gradient)
        model = LinearModel(whole_weights(descent.weights), features)
    used = np.minimum(used / training.budget, training.share / training.trainings)
    return PrivateModel(model, public, used, loss, whole_weights(descent.variance_directions))
