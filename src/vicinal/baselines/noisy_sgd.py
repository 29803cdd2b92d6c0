"""NoisySGD: softmax regression trained by stochastic gradient descent with DP (DP-SGD).

Source: Abadi, Chu, Goodfellow, McMahan, Mironov, Talwar & Zhang 2016, *Deep Learning with
Differential Privacy*; gradient norms in closed form after Goodfellow 2015.

d is the number of features as given, D that of the training features computed from them, without
the bias. Training features are integers, in which `unit` stands for the value 1; noise consists of
integers on a grid of its own. A *step* is one of the training.
"""

from collections.abc import Hashable
from typing import Self

import numpy as np
import numpy.typing as npt
from sklearn.utils.validation import check_is_fitted

from vicinal.arrays import AnyArray, FloatMatrix, Floats, Floats32
from vicinal.linear.model_features import BIAS, ModelFeatures
from vicinal.mechanisms.gradients import (
    NoisyGradient,
    NoisySize,
    NoisyTraining,
    SubjectRows,
    choose_gradient_grid,
)
from vicinal.mechanisms.noise_sources import create_noise_source, create_sampler
from vicinal.mechanisms.planned_releases import ReleaseCounter
from vicinal.neighbours.kernels import FLOAT32, Cosine
from vicinal.parameters import (
    Integer,
    Real,
    Unless,
    document_parameters,
    parameter,
    parameter_table,
)
from vicinal.planning.guarantees import ReleaseJSON, count_samples_by_scale, find_min_noise
from vicinal.predictors.fixed_plan import (
    FixedPlan,
    FixedPlanEstimator,
    FixedPlanParameters,
    compute_decision_scores,
)
from vicinal.predictors.inputs import FitInputs, note_release, read_features

_SIZE_NOISE_TIMES_EPSILON = 50.0
"""Product of epsilon and the standard deviation of the noise on the released number of subjects.

With 50 the release costs less than 1 % of the budget.
"""

_DEFAULT_TRAINING_FEATURES = 1000
"""Value of D before ``fit``, to count noise samples; most data have fewer features."""


@parameter_table
class NoisySGDParameters(FixedPlanParameters):
    """Parameters of NoisySGD beyond those of every estimator with a fixed plan."""

    epsilon: float = parameter(
        Real(above=0),
        default=1.0,
        kw_only=False,
        doc="Upper bound on the privacy loss of a subject, with all of its records.",
    )
    n_steps: int = parameter(
        Integer(minimum=1, maximum=10**6), default=200, doc="Number of training steps."
    )
    sampling_rate: float = parameter(
        Real(above=0, maximum=1),
        default=0.1,
        doc="The probability with which each subject is in a batch.",
    )
    clip: float = parameter(
        Real(minimum=1e-6, maximum=1e6),
        default=0.25,
        doc="The clipping bound on a subject's gradient; features have length 1 at most.",
    )
    learning_rate: float = parameter(
        Real(above=0), default=1.0, doc="Step on the clipped mean gradient, in units of `clip`."
    )
    momentum: float = parameter(
        Real(minimum=0, below=1),
        default=0.9,
        doc="Share of the previous step that is added to the next one, 0 <= momentum < 1.",
    )
    n_records: int | None = parameter(
        Unless(None, Integer(minimum=1)),
        default=None,
        doc="""Public number of subjects, the divisor of mean gradients. Without it the number is
        released once with noise, which the guarantee includes.""",
    )


class NoisySGDPlan(NoisySGDParameters, FixedPlan):
    """Checked parameters of a NoisySGD classifier, with the releases that follow from them."""

    _name = "NoisySGD"

    @property
    def plan_identity(self) -> Hashable:
        """The whole plan as a key, with epsilon and delta, from which the releases follow."""
        return super().plan_identity, self.epsilon, self.delta

    @property
    def noise_multiplier(self) -> float:
        """Smallest noise multiplier with which the plan satisfies (epsilon, delta)."""
        plan = self.plan_interactions(self._plan_releases(1.0))
        return find_min_noise(plan, self.epsilon, "sigma", release_index=0)

    @property
    def _size_noise_std(self) -> float:
        """Standard deviation of the noise on a released number of subjects."""
        return _SIZE_NOISE_TIMES_EPSILON / self.epsilon

    def list_releases(self) -> list[ReleaseJSON]:
        """Return the planned releases, with the smallest noise multiplier that keeps epsilon."""
        return self._plan_releases(self.noise_multiplier)

    def _plan_releases(self, noise_multiplier: float) -> list[ReleaseJSON]:
        """Return the planned releases: the steps, and the number of subjects if not declared.

        `noise_multiplier`: noise standard deviation of a step, in units of the clipping bound.
        """
        gaussian = {"kind": "gaussian", "sigma": noise_multiplier, "sensitivity": 1.0}
        steps: ReleaseJSON = {**gaussian, "gamma": self.sampling_rate, "count": self.n_steps}
        if self.n_records is not None:
            return [steps]
        size = {**gaussian, "sigma": self._size_noise_std, "gamma": 1.0, "count": 1}
        return [steps, size]

    def count_noise_samples(
        self, n_training_features: int = _DEFAULT_TRAINING_FEATURES
    ) -> dict[int, float]:
        """Return the planned number of noise samples, keyed by the noise's scale on its grid.

        Every step has D + 1 samples for each class, one per weight and intercept; a released number
        of subjects has one. `n_training_features`: D.
        """
        n_weight_samples = float(self.n_steps) * (n_training_features + 1) * len(self.classes)
        _, weight_scale = choose_gradient_grid(self.noise_multiplier)
        _, size_scale = choose_gradient_grid(self._size_noise_std)
        n_size_samples = float(self.n_records is None)
        return count_samples_by_scale(
            [(weight_scale, n_weight_samples), (size_scale, n_size_samples)]
        )

    def create_training(self, records: SubjectRows, unit: float) -> NoisyTraining:
        """Return the planned training on private records, not yet run; nothing is released yet.

        Its number of subjects is `n_records`, or is released with noise. `records`: integer
        training features with the bias, class indices and subjects. `unit`: the integer that stands
        for a feature value of 1.
        """
        noise = create_noise_source(self.simulation_seed)
        gradient = NoisyGradient(
            records,
            len(self.classes),
            unit,
            self.sampling_rate,
            self.clip,
            self.noise_multiplier,
            ReleaseCounter(self.n_steps, "steps"),
            noise,
            create_sampler(self.simulation_seed),
        )
        size = self.n_records or NoisySize(self._size_noise_std, noise)
        return NoisyTraining(gradient, size, self.learning_rate, self.momentum)


@document_parameters
class NoisySGDClassifier(FixedPlanEstimator[NoisySGDPlan], NoisySGDParameters):
    r"""Softmax regression by noisy stochastic gradients; predicting costs nothing.

    In every step each subject is in the batch independently with probability `sampling_rate`
    (Poisson sampling). Its gradient, summed over its records, is clipped to norm `clip`, and
    Gaussian noise is added to the sum over the batch. The noise is calibrated so that all steps
    together satisfy (epsilon, delta). The trained weights can be published, and the classifier can
    be copied, stored and queried without limit.

    With public rows it trains on the features of :class:`~vicinal.IndKNNClassifier`'s private
    model: standardized columns and the norm of each row, or kernel principal components. Without
    them each row is scaled to norm 1. Tuning parameters on private records would spend privacy that
    the guarantee does not include. Before ``fit``, the delta of :meth:`guarantee` is for 1,000
    training features.

    Attributes
    ----------
    classes_ : ndarray (c,)
        Class names as declared.
    coef_, intercept_ : float64 (c, D), (c,)
        Weights of the D training features, averaged over the second half of the steps; public.
    noise_multiplier_ : float
        Standard deviation of the noise divided by the clipping bound.
    n_records_ : float
        Number of subjects, declared or released, by which gradient sums are divided; public.
    n_features_in_ : int
        Number of features.
    feature_names_in_ : ndarray (d,)
        Column names of `X`, if it is a table with string column names.

    Examples
    --------
    >>> import numpy as np
    >>> from vicinal import NoisySGDClassifier
    >>> rng = np.random.default_rng(0)
    >>> y = rng.integers(0, 2, 2000)
    >>> X = rng.normal(size=(2000, 4)) + 2.0 * y[:, None]
    >>> clf = NoisySGDClassifier([0, 1], epsilon=1.0, n_records=2000)
    >>> clf.fit(X, y).predict(X[:3]).shape  # fit spends all of the budget, predict nothing
    (3,)
    """

    _plan_type = NoisySGDPlan
    _additional_public_facts = (
        "the public rows from which features are computed",
        "the trained weights",
    )
    # Before `fit` the noise samples of this number of features are counted, then those in use.
    _additional_assumptions: tuple[str, ...] = (
        f"training uses at most {_DEFAULT_TRAINING_FEATURES:,} features, which `fit` will count",
    )

    def fit(
        self,
        X: npt.ArrayLike,
        y: npt.ArrayLike,
        subjects: npt.ArrayLike | None = None,
        public: npt.ArrayLike | None = None,
    ) -> Self:
        """Train on private records; the whole budget is spent here.

        Parameters
        ----------
        X : array or table (n, d)
            Private features: finite numbers. Later queries need the same column names.
        y : array (n,)
            Private labels, each one of `classes`.
        subjects : array (n,), optional
            Integer or string id of the subject behind each record. Without it every record is a
            subject.
        public : array or table (m, d), optional
            Public, unlabelled rows, from which the training features are computed. Without them
            each row is scaled to norm 1. Columns are matched by name if `X` has names, too.

        Raises
        ------
        InvalidInput
            Before anything is changed or spent; the message names the argument and the fix.
        PrivacyRefused
            If records took part in an earlier interaction of this process.
        """
        return self._fit(X, y, subjects, public)

    def _fit_checked(self, plan: NoisySGDPlan, records: FitInputs, targets: AnyArray) -> None:
        """Fit the feature encoder to public rows, train, and publish the weights as attributes.

        The interaction is dropped, since predictions release nothing further.

        `records`: checked arguments of :meth:`fit`, with the private features (n, d), subject ids
        and public rows. `targets`, int32 (n,): private class indices.
        """
        public = records.reference
        n_features = records.features.shape[1]
        self._center, self._spread = _compute_public_moments(public, n_features)
        self._encoder = Cosine()
        self._features = None
        self._additional_assumptions = ()
        if public is not None:
            standardized = (public - self._center) / self._spread
            self._encoder = Cosine.fit_to_public(standardized)
            encoded = self._encoder.encode(standardized)
            # NoisySGD treats all features equally, unlike the private model. With features of trees
            # its AUC was .01 lower on 1,000 records.
            self._features = ModelFeatures.for_training(
                encoded, plan.n_records or 0, lifted=self._encoder.lifts, with_trees=False
            )
        rows = SubjectRows(self._encode_rows(records.features), targets, *records.slots)
        note_release(self)
        # The process remembers this use of the private records. Without a reference to the
        # interaction the estimator can be copied.
        del self._interaction
        self.noise_multiplier_ = plan.noise_multiplier
        unit = FLOAT32.compute_unit_norm(rows.rows.shape[1] - 1)
        self.n_records_, weights = plan.create_training(rows, unit).publish()
        self.coef_ = weights[:-1].T.copy()
        self.intercept_ = BIAS * weights[-1]

    def _count_noise_samples(self) -> dict[int, float]:
        """Return the planned number of noise samples, keyed by the noise's scale on its grid.

        D, the number of trained weights of a class, is known after ``fit``. It may exceed d: up to
        400 kernel components replace 64 features or more.
        """
        plan = self._get_plan()
        if not hasattr(self, "coef_"):
            return plan.count_noise_samples()
        return plan.count_noise_samples(self.coef_.shape[1])

    def _encode_rows(self, features: FloatMatrix) -> Floats32:
        """Return D training features and the bias column as integers, float32 (n, D + 1).

        Their `unit` is ``FLOAT32.compute_unit_norm(D)``. `features`, float (n, d): private features
        or queries. Each row of the result depends on the same row of `features` and on public rows
        alone.
        """
        encoded = self._encoder.encode((features - self._center) / self._spread)
        if self._features is not None:
            return self._features.compute_rows(encoded)
        bias = round(BIAS * FLOAT32.compute_unit_norm(encoded.shape[1]))
        return np.hstack([encoded, np.full((len(encoded), 1), bias, dtype=np.float32)])

    def decision_function(self, X: npt.ArrayLike) -> Floats:
        """Return the scores of all classes, float64 (q, c), for queries `X` (q, d). Costs nothing.

        With two classes: the score of the second class minus that of the first, (q,).
        """
        return compute_decision_scores(self._compute_scores(X))

    def _compute_scores(self, X: npt.ArrayLike) -> Floats:
        """Return the scores (logits) of all classes, float64 (q, c), for queries `X` (q, d)."""
        check_is_fitted(self)
        rows = self._encode_rows(read_features(self, X))[:, :-1].astype(np.float64)
        return np.asarray(
            rows @ self.coef_.T / FLOAT32.compute_unit_norm(rows.shape[1]) + self.intercept_
        )

    def predict_proba(self, X: npt.ArrayLike) -> Floats:
        """Return class probabilities, float64 (q, c), for queries `X` (q, d); costs nothing."""
        scores = self._compute_scores(X)
        exponentials = np.exp(scores - scores.max(axis=1, keepdims=True))
        return np.asarray(exponentials / exponentials.sum(axis=1, keepdims=True))

    def predict(self, X: npt.ArrayLike) -> AnyArray:
        """Return the class with the largest score for each query of `X` (q, d); costs nothing."""
        scores = self._compute_scores(X)
        return np.asarray(self.classes_[scores.argmax(axis=1)])


def _compute_public_moments(public: FloatMatrix | None, n_features: int) -> tuple[Floats, Floats]:
    """Return the mean and standard deviation, (d,) each, of each feature over public rows (m, d).

    A standard deviation of 0 is replaced by 1. Without public rows (None): means 0, deviations 1.
    """
    if public is None:
        return np.zeros(n_features), np.ones(n_features)
    rows = public.astype(np.float64)
    std = rows.std(axis=0)
    return rows.mean(axis=0), np.where(std > 0, std, 1.0)
