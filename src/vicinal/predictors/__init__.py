"""scikit-learn estimators that answer from private records."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vicinal._lazy import lazy_exports

if TYPE_CHECKING:
    from vicinal.predictors.ind_knn._estimator import IndKNNClassifier
    from vicinal.predictors.ind_knn._multi_label import IndKNNMultiLabelClassifier
    from vicinal.predictors.ind_knn._regressor import IndKNNRegressor
    from vicinal.predictors.noisy_sgd._estimator import NoisySGDClassifier
    from vicinal.predictors.pate._estimator import PATEClassifier
    from vicinal.predictors.private_knn._estimator import PrivateKNNClassifier

__all__ = [
    "IndKNNClassifier",
    "IndKNNMultiLabelClassifier",
    "IndKNNRegressor",
    "NoisySGDClassifier",
    "PATEClassifier",
    "PrivateKNNClassifier",
]

__getattr__, __dir__ = lazy_exports(
    __name__,
    globals(),
    {
        "IndKNNClassifier": "vicinal.predictors.ind_knn._estimator",
        "IndKNNMultiLabelClassifier": "vicinal.predictors.ind_knn._multi_label",
        "IndKNNRegressor": "vicinal.predictors.ind_knn._regressor",
        "NoisySGDClassifier": "vicinal.predictors.noisy_sgd._estimator",
        "PATEClassifier": "vicinal.predictors.pate._estimator",
        "PrivateKNNClassifier": "vicinal.predictors.private_knn._estimator",
    },
)
