__all__: list[str]  # the names above; those below are shared inside vicinal, and may change

from vicinal.targets._answer_trend import PublicSurroundings as PublicSurroundings
from vicinal.targets._answer_trend import check_enough as check_enough
from vicinal.targets._class_decision import ClassDecision as ClassDecision
from vicinal.targets._neighborhood_summary import NeighborhoodSummary as NeighborhoodSummary
from vicinal.targets._neighborhood_summary import NoisyEstimate as NoisyEstimate
from vicinal.targets._neighborhood_summary import share_errors as share_errors
from vicinal.targets._target_checks import BoundsOfTargets as BoundsOfTargets
from vicinal.targets._target_checks import ClassNumbers as ClassNumbers
from vicinal.targets._target_checks import TargetBounds as TargetBounds
from vicinal.targets._target_encoding import TypicalScale as TypicalScale
from vicinal.targets._target_encoding import label_vectors as label_vectors
from vicinal.targets._target_encoding import number_vectors as number_vectors
from vicinal.targets._target_encoding import numbers as numbers
from vicinal.targets._vector_answers import LabelAnswers as LabelAnswers
from vicinal.targets._vector_answers import NumberAnswers as NumberAnswers
from vicinal.targets._vector_answers import answers_of as answers_of
from vicinal.targets._vector_answers import checked_levels as checked_levels
from vicinal.targets._vector_answers import distribution as distribution
from vicinal.targets._vector_answers import quantile as quantile
