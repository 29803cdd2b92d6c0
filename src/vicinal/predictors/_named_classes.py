"""Accuracy of classifiers on string labels, compared after Unicode normalisation (NFC)."""

from typing import Any

import numpy.typing as npt
from sklearn.base import ClassifierMixin

from vicinal import checks


class NamedClassesMixin(ClassifierMixin):
    """A classifier whose predictions are class names in the composed Unicode form (NFC)."""

    def score(self, X: Any, y: npt.ArrayLike, sample_weight: npt.ArrayLike | None = None) -> float:
        """Return the accuracy of predictions.

        Parameters
        ----------
        X : rows
            Queries, as for `predict`.
        y : array-like (n,)
            The true labels.
        sample_weight : array-like (n,), optional
            Weight of each row in the accuracy.

        Returns
        -------
        float
            The (weighted) share of rows with a correct prediction.
        """
        return float(super().score(X, checks.compose_labels(y), sample_weight))
