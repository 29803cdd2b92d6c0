from vicinal import audit as audit
from vicinal import errors as errors
from vicinal import testing as testing
from vicinal.accounting import Guarantee as Guarantee
from vicinal.accounting import account as account
from vicinal.accounting import calibrate as calibrate
from vicinal.baselines import NoisySGDClassifier as NoisySGDClassifier
from vicinal.baselines import PATEClassifier as PATEClassifier
from vicinal.features import HOGFeatures as HOGFeatures
from vicinal.features import ImageFeatures as ImageFeatures
from vicinal.features import PublicMap as PublicMap
from vicinal.features import SentenceFeatures as SentenceFeatures
from vicinal.features import TableFeatures as TableFeatures
from vicinal.predictors import IndKNNClassifier as IndKNNClassifier
from vicinal.predictors import IndKNNMultiLabelClassifier as IndKNNMultiLabelClassifier
from vicinal.predictors import IndKNNRegressor as IndKNNRegressor
from vicinal.predictors import PrivateKNNClassifier as PrivateKNNClassifier
from vicinal.store import Store as Store

__version__: str
