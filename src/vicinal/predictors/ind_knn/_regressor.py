"""Numbers: private averages, and quantiles, over the neighbours of a query."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.base import RegressorMixin
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted

from vicinal import _checks
from vicinal.errors import InvalidInput
from vicinal.mechanisms._record_vectors import RecordVectors
from vicinal.predictors._common.parameters import documented
from vicinal.predictors.ind_knn import _averages, _target_encoding
from vicinal.predictors.ind_knn._averages import NoisyAverages
from vicinal.predictors.ind_knn._base import IndKNNEstimator
from vicinal.predictors.ind_knn._engine import QueryAnswers
from vicinal.predictors.ind_knn._neighborhood_summary import NeighborhoodSummary, NoisyEstimate
from vicinal.predictors.ind_knn._parameter_tables import LOG, RegressorParameters
from vicinal.predictors.ind_knn._vector_settings import WEIGHT_SHARE, RegressorSettings

Floats = npt.NDArray[np.float64]


@documented
class IndKNNRegressor(RegressorMixin, IndKNNEstimator[RegressorSettings], RegressorParameters):
    r"""Predicts numbers from private records; every subject has a budget of its own.

    A record near a query adds its kernel weight, and its weight times its number, scaled to -1..1
    by the bounds. Noise goes on both sums, and the answer is their ratio. A subject is charged for
    the length of exactly what its records added, as in :class:`~vicinal.IndKNNClassifier`.

    Attributes
    ----------
    n_features_in_ : int
        Number of features.
    n_records_, n_neighbors_, noise_multiplier_, budget_ : int, int or None, float, float
        The public plan.
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

    _plans = RegressorSettings

    def __sklearn_tags__(self) -> Tags:
        """Several targets are declared with `bounds`."""
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = False
        tags.regressor_tags.poor_score = True
        return tags

    def _targets(self, settings: RegressorSettings, y: npt.ArrayLike, size: int) -> RecordVectors:
        log = settings.scale == LOG
        values = _target_encoding.numbers(y, size, settings.bounds, log=log)
        return _target_encoding.number_vectors(values, settings.n_thresholds)

    def predict(
        self,
        X: npt.ArrayLike,
        *,
        return_std: bool = False,
        quantiles: Sequence[float] | None = None,
        progress: Callable[[int], None] | None = None,
    ) -> Any:
        """Return predictions, float64 (q,), or (q, p) for named targets; spends budget.

        Parameters
        ----------
        X : array (q, d)
            Queries. They are public.
        return_std : bool
            Return the standard error of each prediction, too: what the noise does to it, which is
            known. How unlike each other the neighbours are is told by quantiles.
        quantiles : sequence of float, optional
            Levels between 0 and 1 at which to return the neighbours' quantiles, too, (q, levels),
            or (q, p, levels). Needs `n_thresholds`, and costs nothing more.
        progress : callable, optional
            Called with the number of queries just answered.

        Returns
        -------
        ndarray, or tuple of them
            Predictions, then errors, then quantiles, as asked for.
        """
        check_is_fitted(self)
        levels = self._levels(quantiles)
        averages = self._averages(self.query(X, progress=progress))
        mean, error = self._predictions(averages)
        found = [mean, error] if return_std else [mean]
        if levels is not None:
            shares = self._shares_below(averages)
            found.append(self._quantiles(shares, levels))
        if self._settings.bounds.names is None:
            found = [each[:, 0] for each in found]
        return found[0] if len(found) == 1 else tuple(found)

    def describe(
        self, X: npt.ArrayLike, *, progress: Callable[[int], None] | None = None
    ) -> list[NeighborhoodSummary]:
        """Return means, and histograms with `n_thresholds`, around each query; spends budget."""
        check_is_fitted(self)
        averages = self._averages(self.query(X, progress=progress))
        mean, error = self._predictions(averages)
        names = self._settings.bounds.names or ("mean",)
        shares = None if self._settings.n_thresholds is None else self._shares_below(averages)
        return [
            NeighborhoodSummary(
                NoisyEstimate(float(averages.weight[i]), float(averages.weight_error[i])),
                means={
                    name: NoisyEstimate(float(mean[i, j]), float(error[i, j]))
                    for j, name in enumerate(names)
                },
                histograms={}
                if shares is None
                else {
                    name: (self._edges(j), np.diff(shares[i, j], prepend=0.0, append=1.0))
                    for j, name in enumerate(names)
                },
            )
            for i in range(len(mean))
        ]

    def _averages(self, answers: QueryAnswers) -> NoisyAverages:
        assert answers.votes is not None  # noqa: S101 (sums leave)
        a, b = _target_encoding.parts(WEIGHT_SHARE)
        b /= np.sqrt(len(self._settings.bounds) * (self._settings.n_thresholds or 1))
        return NoisyAverages.of(answers.votes, answers.noise, a, b)

    def _predictions(self, averages: NoisyAverages) -> tuple[Floats, Floats]:
        """Return predictions and their errors in units of the targets, (q, p) each."""
        bounds = self._settings.scaled_bounds
        count = self._settings.n_thresholds or 1
        shape = len(averages.means), len(bounds), count
        means = averages.means.reshape(shape).mean(axis=2)
        # The numerators' noises are independent, the denominator's is theirs together.
        shared = means * (averages.weight_error / averages.weight)[:, None]
        own = (
            averages.errors.reshape(shape) ** 2
            - (
                averages.means.reshape(shape)
                * (averages.weight_error / averages.weight)[:, None, None]
            )
            ** 2
        )
        errors = np.hypot(np.sqrt(np.maximum(own, 0).sum(axis=2)) / count, shared)
        half = (bounds.high - bounds.low) / 2
        values = bounds.low + half * (np.clip(means, -1, 1) + 1)
        if self._settings.scale == LOG:
            values = np.exp(values)
            return values, values * half * errors
        return values, half * errors

    def _levels(self, quantiles: Sequence[float] | None) -> list[float] | None:
        if quantiles is None:
            return None
        if self._settings.n_thresholds is None:
            raise InvalidInput(
                "The 'quantiles' parameter must be None without thresholds: records told their "
                "numbers, not on which side of a threshold they lie. Fit with 'n_thresholds'."
            )
        return [_checks.real("quantiles", each, least=0, most=1) for each in quantiles]

    def _shares_below(self, averages: NoisyAverages) -> Floats:
        """Return the shares of numbers below each threshold, (q, p, J), never falling."""
        count = self._settings.n_thresholds or 1
        above = averages.means.reshape(len(averages.means), -1, count)
        rows = ((1 - above) / 2).reshape(-1, count)
        return _averages.distribution(rows).reshape(above.shape)

    def _quantiles(self, shares: Floats, levels: list[float]) -> Floats:
        found = [
            [_averages.quantile(shares[:, j], self._edges(j), level) for level in levels]
            for j in range(shares.shape[1])
        ]
        return np.moveaxis(np.array(found), 2, 0)

    def _edges(self, target: int) -> Floats:
        """Return the lower bound, all thresholds, and the upper bound of a target, (J + 2,)."""
        assert self._settings.n_thresholds is not None  # noqa: S101 (checked by callers)
        inner = _target_encoding.thresholds(self._settings.n_thresholds)
        bounds = self._settings.scaled_bounds
        places = (np.concatenate([[-1.0], inner, [1.0]]) + 1) / 2
        edges = bounds.low[target] + places * (bounds.high[target] - bounds.low[target])
        return np.asarray(np.exp(edges) if self._settings.scale == LOG else edges)
