"""Scores of classifiers against labels, which are compared as class names are."""

from typing import Any

import numpy.typing as npt
from sklearn.base import ClassifierMixin

from vicinal import checks


class NamedClassesMixin(ClassifierMixin):
    """A classifier whose predictions are composed class names (NFC)."""

    def score(self, X: Any, y: npt.ArrayLike, sample_weight: npt.ArrayLike | None = None) -> float:
        """Return the accuracy of predictions.

        Parameters
        ----------
        X : rows
            As `predict` takes them.
        y : array-like (n,)
            The true labels.
        sample_weight : array-like (n,), optional
            How much each row counts.

        Returns
        -------
        float
            The share of rows whose prediction is the label.
        """
        return float(super().score(X, checks.composed_labels(y), sample_weight))
