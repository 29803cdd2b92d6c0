"""Words: the private keywords of the texts around a query."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.utils.validation import check_is_fitted

from vicinal.errors import InvalidInput
from vicinal.mechanisms._record_vectors import RecordVectors
from vicinal.predictors.ind_knn import _target_encoding
from vicinal.predictors.ind_knn._base import IndKNNEstimator
from vicinal.predictors.ind_knn._shared_settings import SharedSettings
from vicinal.predictors.ind_knn._vector_settings import KeywordSettings

Floats = npt.NDArray[np.float64]


class IndKNNKeywords(IndKNNEstimator):
    r"""Gives the keywords of private texts near a query; every subject has a budget of its own.

    A text near a query adds its kernel weight times a unit vector over a public vocabulary. Noise
    goes on the sum of every word, whether a text has it or not, and the words with the largest
    noisy sums are the answer. Texts themselves never leave. A subject, the owner of its texts, is
    charged for the length of exactly what they added.

    Parameters
    ----------
    vocabulary : sequence of str, or mapping
        Words in small letters that an answer may hold, or a mapping of them to weights, inverse
        document frequencies in a public collection say. Public, and an input: never read off the
        private texts.
    epsilon, delta : float
        The guarantee for a subject over all answers since ``fit``; add/remove-one-subject.
    n_queries : int
        T, how many answers to plan for. More can be asked; they become noisier as budgets run out.
    n_neighbors : int or "auto"
        k, the records expected in an adaptive radius.
    noise_multiplier : float or "auto"
        sigma2: the noise on each word has scale sigma2 sqrt(K), K the count.
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
        How neighbours are found, as for the classifier.
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
    n_keywords : int
        m, how many words an answer holds, always: where few texts are near they are noise.

    Attributes
    ----------
    vocabulary_ : ndarray of str (V,)
        The words, in the order of the noisy sums.
    n_features_in_ : int
        Number of features.
    n_records_, n_neighbors_, noise_multiplier_, budget_ : int, int or None, float, float
        The public plan.
    n_answers_ : int
        Answers given since ``fit``.

    Notes
    -----
    What a text says beyond its words does not count: order, negation, who did what. Words outside
    the vocabulary, names say, are never released.

    Examples
    --------
    >>> import numpy as np
    >>> from vicinal import IndKNNKeywords
    >>> rng = np.random.default_rng(0)
    >>> X, public = rng.normal(size=(2000, 3)), rng.normal(size=(300, 3))
    >>> texts = ["Pain in the left knee" if x[0] > 0 else "A cold, and a cough" for x in X]
    >>> model = IndKNNKeywords(
    ...     ["cold", "cough", "knee", "left", "pain"],
    ...     4.0,
    ...     n_queries=10,
    ...     n_keywords=2,
    ...     simulation_seed=0,
    ... )
    >>> sorted(model.fit(X, texts, public=public).predict([[-3.0, 0.0, 0.0]])[0].tolist())
    ['cold', 'cough']
    """

    _settings: KeywordSettings

    def __init__(
        self,
        vocabulary: Iterable[str] | Mapping[str, float],
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
        n_keywords: int = 10,
    ) -> None:
        self.vocabulary = vocabulary
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
        self.n_keywords = n_keywords

    def _checked_settings(self) -> KeywordSettings:
        return KeywordSettings.of(self)

    def _targets(self, settings: SharedSettings, y: npt.ArrayLike, size: int) -> RecordVectors:
        assert isinstance(settings, KeywordSettings)  # noqa: S101 (narrows the type: ours)
        texts = list(y) if isinstance(y, Iterable) and not isinstance(y, str) else []
        if len(texts) != size or not size:
            raise InvalidInput("The 'y' parameter must hold one text for each record.")
        return _target_encoding.keyword_vectors(texts, settings.vocabulary)

    def predict(
        self,
        X: npt.ArrayLike,
        *,
        return_weights: bool = False,
        progress: Callable[[int], None] | None = None,
    ) -> Any:
        """Return the keywords of each query, str (q, m), the heaviest first; spends budget.

        Parameters
        ----------
        X : array (q, d)
            Queries. They are public.
        return_weights : bool
            Return their noisy sums, float64 (q, m), and the noise in them, float64 (q,), too.
        progress : callable, optional
            Called with the number of queries just answered.
        """
        check_is_fitted(self)
        answers = self.query(X, progress=progress)
        assert answers.votes is not None  # noqa: S101 (sums leave)
        order = np.argsort(-answers.votes, axis=1, kind="stable")[:, : self._settings.n_keywords]
        found = self.vocabulary_[order]
        if not return_weights:
            return found
        return found, np.take_along_axis(answers.votes, order, axis=1), answers.noise

    @property
    def vocabulary_(self) -> npt.NDArray[np.str_]:
        """The words, in the order of the noisy sums."""
        return np.array(list(self._settings.vocabulary))
