"""Which estimator there is for each kind of target."""

from vicinal.predictors._averaging import IndKNNMultiLabelClassifier, IndKNNRegressor
from vicinal.predictors._ind_knn import IndKNNClassifier
from vicinal.predictors._ind_knn_base import IndKNNEstimator
from vicinal.targets import CLASSES, LABELS, NUMBERS, Target

ESTIMATORS: dict[str, type[IndKNNEstimator]] = {
    CLASSES: IndKNNClassifier,
    NUMBERS: IndKNNRegressor,
    LABELS: IndKNNMultiLabelClassifier,
}


def estimator_for(target: Target) -> IndKNNEstimator:
    return ESTIMATORS[target.kind](**target.parameters)
