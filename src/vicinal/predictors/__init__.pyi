from vicinal.predictors._averaging import IndKNNMultiLabelClassifier as IndKNNMultiLabelClassifier
from vicinal.predictors._averaging import IndKNNRegressor as IndKNNRegressor
from vicinal.predictors._ind_knn import IndKNNClassifier as IndKNNClassifier
from vicinal.predictors._private_knn import PrivateKNNClassifier as PrivateKNNClassifier

__all__: list[str]  # the names above; those below are shared inside vicinal, and may change

from vicinal.predictors._averaging import ESTIMATORS as ESTIMATORS
from vicinal.predictors._averaging import estimator_for as estimator_for
from vicinal.predictors._fixed_plan import AnsweringParameters as AnsweringParameters
from vicinal.predictors._fixed_plan import AnsweringSettings as AnsweringSettings
from vicinal.predictors._fixed_plan import FixedPlanClassifier as FixedPlanClassifier
from vicinal.predictors._fixed_plan import FixedPlanEstimator as FixedPlanEstimator
from vicinal.predictors._fixed_plan import FixedPlanParameters as FixedPlanParameters
from vicinal.predictors._fixed_plan import FixedPlanSettings as FixedPlanSettings
from vicinal.predictors._fixed_plan import decision_scores as decision_scores
from vicinal.predictors._ind_knn_base import IndKNNEstimator as IndKNNEstimator
from vicinal.predictors._inputs import FitInputs as FitInputs
from vicinal.predictors._inputs import OneOfSeveralFits as OneOfSeveralFits
from vicinal.predictors._inputs import check_subjects_given as check_subjects_given
from vicinal.predictors._inputs import checked_features as checked_features
from vicinal.predictors._inputs import checked_reference as checked_reference
from vicinal.predictors._inputs import checked_subjects as checked_subjects
from vicinal.predictors._inputs import note_release as note_release
from vicinal.predictors._inputs import refuse_same_memory as refuse_same_memory
from vicinal.predictors._inputs import swamping_feature as swamping_feature
from vicinal.predictors._private_knn import PrivateKNNSettings as PrivateKNNSettings
from vicinal.predictors._reembedding import check_spent as check_spent
from vicinal.predictors._reembedding import planned_queries as planned_queries
from vicinal.predictors._reembedding import resume as resume
from vicinal.predictors._reembedding import spent_budget as spent_budget
