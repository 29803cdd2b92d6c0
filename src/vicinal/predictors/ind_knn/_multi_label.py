"""Several labels at once: private shares of each label over the neighbours of a query."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.base import ClassifierMixin
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted

from vicinal.mechanisms._record_vectors import RecordVectors
from vicinal.predictors._common import inputs
from vicinal.predictors.ind_knn import _target_encoding
from vicinal.predictors.ind_knn._averages import NoisyAverages
from vicinal.predictors.ind_knn._base import IndKNNEstimator
from vicinal.predictors.ind_knn._engine import QueryAnswers
from vicinal.predictors.ind_knn._engine_factory import PlannedEngine
from vicinal.predictors.ind_knn._neighborhood_summary import NeighborhoodSummary, NoisyEstimate
from vicinal.predictors.ind_knn._shared_settings import SharedSettings
from vicinal.predictors.ind_knn._vector_settings import (
    CENTRED_WEIGHT_SHARE,
    WEIGHT_SHARE,
    MultiLabelSettings,
)

Floats = npt.NDArray[np.float64]


class IndKNNMultiLabelClassifier(ClassifierMixin, IndKNNEstimator):
    r"""Tells which of several labels a query has; every subject has a budget of its own.

    A record near a query adds its kernel weight, and its weight times its vector of labels, whose
    length is at most one. Noise goes on all sums. A label is given where its noisy share of the
    weight is at least one half. A subject is charged for the length of exactly what its records
    added, as in :class:`~vicinal.IndKNNClassifier`.

    Parameters
    ----------
    labels : sequence of int or str
        The names of all labels. Public, and an input.
    epsilon, delta : float
        The guarantee for a subject over all answers since ``fit``; add/remove-one-subject.
    n_queries : int
        T, how many answers to plan for. More can be asked; they become noisier as budgets run out.
    n_neighbors : int or "auto"
        k, the records expected in an adaptive radius.
    noise_multiplier : float or "auto"
        sigma2: the noise on each sum has scale sigma2 sqrt(K), K the count.
    kernel : {"cosine", "rbf"}
        Weight of a neighbour.
    min_similarity : float or "adaptive"
        "adaptive": as near as the k n-th share of the public reference. A float: records whose
        kernel value is at least this.
    neighbor_count : {"public", "private"}
        Whether K is estimated from public facts, or released with noise at a charge.
    accounting : {"gdp", "rdp"}
        How epsilon and delta become a budget, see :mod:`vicinal.accounting._budget`.
    index : {"exact", "lsh", "centroids"} or mapping
        How neighbours are found, as for the classifier of one label.
    execution : {"block", "sequential"}
        Order of work; both give the same answers, bit for bit.
    noise_schedule : {"planned", "usage"}
        Whether the noise stays as planned, or follows the budget usage of public points.
    n_records : int, optional
        Public size of the data. Without it the size is estimated once with noise.
    bandwidth : float or "auto"
        nu of the RBF kernel.
    norm_bound : float or "auto"
        Largest norm of a feature vector under the RBF kernel.
    reference_cost : float
        zCDP that everybody has paid already for the reference.
    interactions : int or "public"
        How many interactions with the same subjects share the budget; "public": the records need
        no protection, and the guarantee is void.
    simulation_seed : int, optional
        Makes noise repeatable for experiments, and the guarantee void.
    tau : float, optional
        A record's 0/1 vector is cut to length sqrt(tau) and divided by it (the tau-approximation of
        Zhu et al. 2020): for labels of which a record has few. Without it a record tells of every
        label whether it is there or not, which is better where most records have several.

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

    _settings: MultiLabelSettings

    def __init__(
        self,
        labels: Iterable[Any],
        epsilon: float = 1.0,
        delta: float = 1e-5,
        n_queries: int = 1000,
        *,
        n_neighbors: int | str = "auto",
        noise_multiplier: float | str = "auto",
        kernel: str = "cosine",
        min_similarity: float | str = "adaptive",
        neighbor_count: str = "public",
        accounting: str = "gdp",
        index: str | Mapping[str, Any] = "exact",
        execution: str = "block",
        noise_schedule: str = "planned",
        n_records: int | None = None,
        bandwidth: float | str = "auto",
        norm_bound: float | str = "auto",
        reference_cost: float = 0.0,
        interactions: int | str = 1,
        simulation_seed: int | None = None,
        tau: float | None = None,
    ) -> None:
        self.labels = labels
        self.epsilon = epsilon
        self.delta = delta
        self.n_queries = n_queries
        self.n_neighbors = n_neighbors
        self.noise_multiplier = noise_multiplier
        self.kernel = kernel
        self.min_similarity = min_similarity
        self.neighbor_count = neighbor_count
        self.accounting = accounting
        self.index = index
        self.execution = execution
        self.noise_schedule = noise_schedule
        self.n_records = n_records
        self.bandwidth = bandwidth
        self.norm_bound = norm_bound
        self.reference_cost = reference_cost
        self.interactions = interactions
        self.simulation_seed = simulation_seed
        self.tau = tau

    def __sklearn_tags__(self) -> Tags:
        """Labels are columns of 0 and 1."""
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        tags.classifier_tags.multi_label = True
        tags.target_tags.multi_output = True
        tags.target_tags.single_output = False
        return tags

    def _checked_settings(self) -> MultiLabelSettings:
        return MultiLabelSettings.of(self)

    def _targets(self, settings: SharedSettings, y: npt.ArrayLike, size: int) -> RecordVectors:
        assert isinstance(settings, MultiLabelSettings)  # noqa: S101 (narrows the type: ours)
        sets = _target_encoding.label_sets(y, (size, len(settings.labels)))
        return _target_encoding.label_vectors(sets, settings.tau)

    def _install(
        self, assembled: PlannedEngine, settings: SharedSettings, records: inputs.FitInputs
    ) -> None:
        super()._install(assembled, settings, records)
        self.classes_ = self._settings.labels

    def predict(
        self, X: npt.ArrayLike, *, progress: Callable[[int], None] | None = None
    ) -> npt.NDArray[np.int64]:
        """Return 1 where a label is given and 0 elsewhere, int64 (q, c); spends budget.

        Parameters
        ----------
        X : array (q, d)
            Queries. They are public.
        progress : callable, optional
            Called with the number of queries just answered.
        """
        check_is_fitted(self)
        averages = self._averages(self.query(X, progress=progress))
        half = 0.0 if self._settings.tau is None else 0.5
        return (averages.means >= half).astype(np.int64)

    def predict_proba(
        self, X: npt.ArrayLike, *, progress: Callable[[int], None] | None = None
    ) -> Floats:
        """Return the noisy share of neighbours with each label, float64 (q, c); spends budget."""
        check_is_fitted(self)
        return self._shares(self._averages(self.query(X, progress=progress)))[0]

    def describe(
        self, X: npt.ArrayLike, *, progress: Callable[[int], None] | None = None
    ) -> list[NeighborhoodSummary]:
        """Return the shares of all labels around each query, with errors; spends budget."""
        check_is_fitted(self)
        averages = self._averages(self.query(X, progress=progress))
        shares, errors = self._shares(averages)
        return [
            NeighborhoodSummary(
                NoisyEstimate(float(averages.weight[i]), float(averages.weight_error[i])),
                shares={
                    name: NoisyEstimate(float(shares[i, c]), float(errors[i, c]))
                    for c, name in enumerate(self.classes_.tolist())
                },
            )
            for i in range(len(shares))
        ]

    def _averages(self, answers: QueryAnswers) -> NoisyAverages:
        assert answers.votes is not None  # noqa: S101 (sums leave)
        tau = self._settings.tau
        share = CENTRED_WEIGHT_SHARE
        a, b = _target_encoding.parts(share if tau is None else WEIGHT_SHARE)
        length = np.sqrt(len(self.classes_) if tau is None else tau)
        return NoisyAverages.of(answers.votes, answers.noise, a, b / length)

    def _shares(self, averages: NoisyAverages) -> tuple[Floats, Floats]:
        """Return shares in 0..1 and their errors, (q, c) each."""
        if self._settings.tau is None:
            return np.clip((averages.means + 1) / 2, 0, 1), averages.errors / 2
        return np.clip(averages.means, 0, 1), averages.errors
