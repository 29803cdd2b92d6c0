__all__: list[str]  # the names above; those below are shared inside vicinal, and may change

from vicinal.linear._descent import STEPS as STEPS
from vicinal.linear._kernel_map import BITS as BITS
from vicinal.linear._kernel_map import KernelMap as KernelMap
from vicinal.linear._losses import ClassLoss as ClassLoss
from vicinal.linear._losses import Predictions as Predictions
from vicinal.linear._losses import TrainingLoss as TrainingLoss
from vicinal.linear._losses import VectorLoss as VectorLoss
from vicinal.linear._model_features import BIAS as BIAS
from vicinal.linear._model_features import ModelFeatures as ModelFeatures
from vicinal.linear._model_features import are_columns as are_columns
from vicinal.linear._model_features import softmax as softmax
from vicinal.linear._private_model import ASKED as ASKED
from vicinal.linear._private_model import LEAST_PUBLIC as LEAST_PUBLIC
from vicinal.linear._private_model import MODEL_ARRAYS as MODEL_ARRAYS
from vicinal.linear._private_model import SHARE as SHARE
from vicinal.linear._private_model import LocalGradients as LocalGradients
from vicinal.linear._private_model import ModelGate as ModelGate
from vicinal.linear._private_model import PrivateModel as PrivateModel
from vicinal.linear._private_model import TrainingBudget as TrainingBudget
from vicinal.linear._private_model import follow as follow
from vicinal.linear._private_model import metric_kernel as metric_kernel
from vicinal.linear._private_model import no_records as no_records
from vicinal.linear._private_model import train as train
