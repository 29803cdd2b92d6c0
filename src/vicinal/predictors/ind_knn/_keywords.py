"""Words: the private keywords of the texts around a query."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.utils.validation import check_is_fitted

from vicinal import _checks
from vicinal._arrays import Floats, Texts
from vicinal.neighbours import Reference
from vicinal.predictors._common import inputs
from vicinal.predictors._common.parameters import documented
from vicinal.predictors.ind_knn._base import IndKNNEstimator
from vicinal.predictors.ind_knn._parameter_tables import KeywordParameters
from vicinal.predictors.ind_knn._vector_answers import KeywordAnswers, pooled_sums
from vicinal.predictors.ind_knn._vector_settings import KeywordSettings


@documented
class IndKNNKeywords(IndKNNEstimator[KeywordSettings], KeywordParameters):
    r"""Gives the keywords of private texts near a query; every subject has a budget of its own.

    A text near a query adds its kernel weight times a unit vector over a public vocabulary. Noise
    goes on the sum of every word, whether a text has it or not, and the words with the largest
    noisy sums are the answer. Texts themselves never leave. A subject, the owner of its texts, is
    charged for the length of exactly what they added.

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

    _plans = KeywordSettings

    def predict(
        self,
        X: npt.ArrayLike,
        *,
        return_weights: bool = False,
        pooled: bool = False,
        progress: Callable[[int], None] | None = None,
    ) -> Any:
        """Return the keywords of each query, str (q, m), the heaviest first; spends budget.

        Parameters
        ----------
        X : array (q, d)
            Queries. They are public.
        return_weights : bool
            Return their noisy sums, float64 (q, m), and the noise in them, float64 (q,), too.
        pooled : bool
            Add the noisy sums of similar queries of this call to those of each, by their kernel
            value. Post-processing, which costs nothing; it takes noise away where many are asked.
            An answer then depends on the others of its call.
        progress : callable, optional
            Called with the number of queries just answered.
        """
        check_is_fitted(self)
        together = _checks.boolean("pooled", pooled)
        answers = self.query(X, progress=progress)
        sums, noise = answers.votes, answers.noise
        assert sums is not None  # noqa: S101 (sums leave)
        if together:
            sums, noise = pooled_sums(sums, noise, self._likeness(X))
        answered = KeywordAnswers.of(sums, self._settings.n_keywords)
        words = self.vocabulary_[answered.places]
        return (words, answered.sums, noise) if return_weights else words

    def _likeness(self, X: npt.ArrayLike) -> Floats:
        """Return kernel values between queries, (q, q); public."""
        votes = self._engine.votes
        queries = self._encoded(inputs.features(self, X))
        rows = [
            votes.weights[votes.kernel.levels(similarities.astype(np.int32).ravel())]
            for similarities in Reference(votes.kernel, queries).similarities(queries)
        ]
        steps = np.concatenate([np.zeros(0, dtype=np.int64), *rows])
        return np.asarray(steps.reshape(len(queries), -1) / votes.grid.steps)

    @property
    def vocabulary_(self) -> Texts:
        """The words, in the order of the noisy sums."""
        return self._settings.words
