"""Several labels at once: private shares of each label over the neighbours of a query."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
from sklearn.base import ClassifierMixin
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted

from vicinal import _checks
from vicinal._arrays import Floats, Ints
from vicinal._parameters import documented
from vicinal.planning import IndKNNPlan, MultiLabelParameters, PlannedEngine
from vicinal.predictors import _inputs as inputs
from vicinal.predictors._ind_knn_base import IndKNNEstimator
from vicinal.targets import LabelAnswers, LabelSets, NeighborhoodSummary, NoisyEstimate


@documented
class IndKNNMultiLabelClassifier(ClassifierMixin, IndKNNEstimator, MultiLabelParameters):
    r"""Tells which of several labels a query has; every subject has a budget of its own.

    A record near a query adds its kernel weight, and its weight times its vector of labels, whose
    length is at most one. Noise goes on all sums. A label is given where its noisy share of the
    weight is at least one half. A subject is charged for the length of exactly what its records
    added, as in :class:`~vicinal.IndKNNClassifier`.

    Attributes
    ----------
    classes_ : ndarray (c,)
        The names of the labels.
    n_features_in_ : int
        Number of features.
    n_records_, n_neighbors_, noise_multiplier_, budget_ : int, int or None, float, float
        The public plan.
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

    @property
    def _target(self) -> LabelSets:
        target = self._settings.target
        assert isinstance(target, LabelSets)  # noqa: S101 (narrows the type)
        return target

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        tags.classifier_tags.multi_label = True
        tags.target_tags.multi_output = True
        tags.target_tags.single_output = False
        return tags

    def _install(
        self, assembled: PlannedEngine, settings: IndKNNPlan, records: inputs.FitInputs
    ) -> None:
        super()._install(assembled, settings, records)
        self.classes_ = self._target.labels

    def predict(
        self,
        X: npt.ArrayLike,
        *,
        trend: bool = False,
        progress: Callable[[int], None] | None = None,
    ) -> Ints:
        """Return 1 where a label is given and 0 elsewhere, int64 (q, c); spends budget.

        Parameters
        ----------
        X : array (q, d)
            Queries. They are public.
        trend : bool
            Fit a linear trend to the answers of this call, and give each by it as far as the known
            noise asks for that; it also corrects for neighbours that do not lie around their query.
            Post-processing, which costs nothing; needs `public`, and 30 queries or more. An answer
            then depends on the others of its call.
        progress : callable, optional
            Called with the number of queries just answered.
        """
        return self._answers(X, progress, trend=trend).present.astype(np.int64)

    def predict_proba(
        self,
        X: npt.ArrayLike,
        *,
        trend: bool = False,
        progress: Callable[[int], None] | None = None,
    ) -> Floats:
        """Return the noisy share of neighbours with each label, float64 (q, c); spends budget.

        Parameters as for :meth:`predict`.
        """
        return self._answers(X, progress, trend=trend).shares

    def describe(
        self, X: npt.ArrayLike, *, progress: Callable[[int], None] | None = None
    ) -> list[NeighborhoodSummary]:
        """Return the shares of all labels around each query, with errors; spends budget."""
        answers = self._answers(X, progress)
        weight, weight_error = answers.averages.weight, answers.averages.weight_error
        return [
            NeighborhoodSummary(
                NoisyEstimate(float(weight[i]), float(weight_error[i])),
                shares={
                    name: NoisyEstimate(float(answers.shares[i, c]), float(answers.errors[i, c]))
                    for c, name in enumerate(self.classes_.tolist())
                },
            )
            for i in range(len(weight))
        ]

    def _answers(
        self, X: npt.ArrayLike, progress: Callable[[int], None] | None, *, trend: bool = False
    ) -> LabelAnswers:
        check_is_fitted(self)
        around = self._surroundings(X) if _checks.boolean("trend", trend) else None
        answers = self.query(X, progress=progress)
        assert answers.votes is not None  # noqa: S101 (sums leave)
        sets = self._target.answers(answers.votes, answers.noise)
        return sets if around is None else sets.along_trend(around)
