"""Estimators by private averages over neighbours, and the estimator classes by target kind."""

from typing import Any

import numpy.typing as npt
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.utils import Tags

from vicinal.arrays import Floats, Ints
from vicinal.parameters import document_parameters
from vicinal.planning.parameter_tables import MultiLabelParameters, RegressorParameters
from vicinal.predictors.ind_knn import IndKNNClassifier
from vicinal.predictors.ind_knn_base import IndKNNEstimator
from vicinal.targets.numbers import Numbers, warn_of_noise
from vicinal.targets.target import CLASSES, LABELS, NUMBERS, VectorAnswers


class AveragingEstimator(IndKNNEstimator):
    """Answers queries with averages of the target vectors of private records."""

    def _compute_averages(self, X: npt.ArrayLike) -> VectorAnswers:
        """Return the averages for public queries `X`, (q, d).

        Charged, except cached answers to an identical array.
        """
        answers = self._query_cached(X)
        assert answers.votes is not None  # noqa: S101 (sums are released)
        return self._plan.vector_target.compute_answers(answers.votes, answers.noise)


@document_parameters
class IndKNNRegressor(RegressorMixin, AveragingEstimator, RegressorParameters):
    r"""Predicts numbers from private records; every subject has a separate privacy budget.

    A record near a query adds its kernel weight to one sum, and its weight times its number, scaled
    to -1..1 by the bounds, to another. Both sums receive noise, and the answer is their ratio. A
    subject is charged for the exact length of its contribution, as in
    :class:`~vicinal.IndKNNClassifier`.

    Attributes
    ----------
    n_features_in_ : int
        Number of features.
    feature_names_in_ : ndarray (d,)
        Names of the columns of `X`, if it is a table with string column names.
    n_records_ : int
        Number of records: `n_records`, or its noisy estimate.
    n_neighbors_ : int
        Number of neighbours that the plan expects.
    noise_multiplier_ : float
        Standard deviation of the noise on each sum, divided by the root of the neighbour count.
    budget_ : float
        Budget of each subject for averages, after planning, in the units of `accounting`.
    n_answers_ : int
        Answers given since ``fit``.

    Examples
    --------
    >>> import numpy as np
    >>> from vicinal import IndKNNRegressor
    >>> rng = np.random.default_rng(0)
    >>> X, public = rng.normal(size=(4000, 3)), rng.normal(size=(500, 3))
    >>> y = np.abs(X[:, 0])
    >>> model = IndKNNRegressor(bounds=(0, 3), epsilon=4.0, n_queries=20, simulation_seed=0)
    >>> mean, error = model.fit(X, y, public=public).predict(public[:20], return_std=True)
    >>> mean.shape, bool((error > 0).all())
    ((20,), True)
    """

    def __sklearn_tags__(self) -> Tags:
        """Return scikit-learn's tags: one output, and noise that its score tests do not expect."""
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = False
        tags.regressor_tags.poor_score = True
        return tags

    def predict(self, X: npt.ArrayLike, *, return_std: bool = False) -> Any:
        """Return predictions, float64 (q,), or (q, p) for named targets.

        An identical array of queries is charged only once. If most of the variance of the
        predictions is noise, a SmallDataWarning is issued.

        Parameters
        ----------
        X : array (q, d)
            Queries. They are public.
        return_std : bool
            Also return the standard error of each prediction from the noise. It does not include
            the variance of the neighbours' numbers. With a private model it is a posterior standard
            deviation, which adds the uncertainty of the model's prior. If targets are linear
            functions of the features, it exceeds the true error: about twofold, for 20 such targets
            with 1,100 records and 5 features.

        Returns
        -------
        ndarray, or pair of them
            Predictions; with `return_std` also errors.
        """
        answers = self._compute_averages(X)
        means, errors = answers.predictions, answers.errors
        target = self._plan.target
        assert isinstance(target, Numbers)  # noqa: S101 (narrows the type)
        warn_of_noise(target.names, means, errors)
        if target.bounds.names is None:
            means, errors = means[:, 0], errors[:, 0]
        return (means, errors) if return_std else means


@document_parameters
class IndKNNMultiLabelClassifier(ClassifierMixin, AveragingEstimator, MultiLabelParameters):
    r"""Predicts several labels for a query; every subject has a separate privacy budget.

    A record near a query adds its kernel weight, and its weight times its vector of labels, whose
    length is at most one. All sums receive noise. A label is predicted if its noisy share of the
    weight is at least one half. A subject is charged for the exact length of its contribution, as
    in :class:`~vicinal.IndKNNClassifier`.

    Attributes
    ----------
    classes_ : ndarray (c,)
        The names of the labels.
    n_features_in_ : int
        Number of features.
    feature_names_in_ : ndarray (d,)
        Names of the columns of `X`, if it is a table with string column names.
    n_records_ : int
        Number of records: `n_records`, or its noisy estimate.
    n_neighbors_ : int
        Number of neighbours that the plan expects.
    noise_multiplier_ : float
        Standard deviation of the noise on each sum, divided by the root of the neighbour count.
    budget_ : float
        Budget of each subject for averages, after planning, in the units of `accounting`.
    n_answers_ : int
        Answers given since ``fit``.

    Examples
    --------
    >>> import numpy as np
    >>> from vicinal import IndKNNMultiLabelClassifier
    >>> rng = np.random.default_rng(0)
    >>> X, public = rng.normal(size=(4000, 3)), rng.normal(size=(500, 3))
    >>> model = IndKNNMultiLabelClassifier(["left", "up"], 4.0, n_queries=20, simulation_seed=0)
    >>> model.fit(X, X[:, :2] > 0, public=public).predict(public[:20]).shape
    (20, 2)
    """

    def __sklearn_tags__(self) -> Tags:
        """Return scikit-learn's tags: several labels, as one matrix of outputs."""
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        tags.classifier_tags.multi_label = True
        tags.target_tags.multi_output = True
        tags.target_tags.single_output = False
        return tags

    def predict(self, X: npt.ArrayLike) -> Ints:
        """Return 1 for each predicted label and 0 for the rest, int64 (q, c).

        `X`, array (q, d): public queries; an identical array is charged only once.
        """
        return self._compute_averages(X).predictions

    def predict_proba(self, X: npt.ArrayLike) -> Floats:
        """Return the noisy share of neighbours with each label, float64 (q, c).

        `X`, array (q, d): public queries; an identical array is charged only once.
        """
        shares = self._compute_averages(X).shares
        assert shares is not None  # noqa: S101 (label sets have shares)
        return shares


ESTIMATORS: dict[str, type[IndKNNEstimator]] = {
    CLASSES: IndKNNClassifier,
    NUMBERS: IndKNNRegressor,
    LABELS: IndKNNMultiLabelClassifier,
}
"""Estimator classes by kind of target."""
