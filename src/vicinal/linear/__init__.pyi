__all__: list[str]  # the names above; those below are shared inside vicinal, and may change

from vicinal.linear._descent import OF_COMPONENTS as OF_COMPONENTS
from vicinal.linear._descent import PLAIN as PLAIN
from vicinal.linear._descent import Descent as Descent
from vicinal.linear._descent import training_plan as training_plan
from vicinal.linear._kernel_map import BITS as BITS
from vicinal.linear._kernel_map import KERNEL_ARRAYS as KERNEL_ARRAYS
from vicinal.linear._kernel_map import KernelMap as KernelMap
from vicinal.linear._model_features import ModelFeatures as ModelFeatures
from vicinal.linear._model_features import scores_of as scores_of
from vicinal.linear._model_features import softmax as softmax
from vicinal.linear._model_rule import LEAST_PUBLIC as LEAST_PUBLIC
from vicinal.linear._model_rule import RULE_OF_COMPONENTS as RULE_OF_COMPONENTS
from vicinal.linear._model_rule import USUAL as USUAL
from vicinal.linear._model_rule import ModelRule as ModelRule
from vicinal.linear._model_rule import chosen_rule as chosen_rule
from vicinal.linear._model_rule import has_components as has_components
from vicinal.linear._private_model import LinearModel as LinearModel
from vicinal.linear._private_model import ModelGate as ModelGate
from vicinal.linear._private_model import PrivateModel as PrivateModel
from vicinal.linear._private_model import TrainingBudget as TrainingBudget
from vicinal.linear._private_model import fitting_share as fitting_share
from vicinal.linear._private_model import release_cost as release_cost
from vicinal.linear._private_model import train as train
