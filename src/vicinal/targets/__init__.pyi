__all__: list[str]  # the names above; those below are shared inside vicinal, and may change

from vicinal.targets._class_decision import ClassDecision as ClassDecision
from vicinal.targets._classes import ClassesParameter as ClassesParameter
from vicinal.targets._classes import labels as labels
from vicinal.targets._kinds import KINDS as KINDS
from vicinal.targets._kinds import declared_target as declared_target
from vicinal.targets._label_sets import LabelAnswers as LabelAnswers
from vicinal.targets._label_sets import LabelSetsParameters as LabelSetsParameters
from vicinal.targets._label_sets import label_sets as label_sets
from vicinal.targets._numbers import LOG as LOG
from vicinal.targets._numbers import NumberAnswers as NumberAnswers
from vicinal.targets._numbers import Numbers as Numbers
from vicinal.targets._numbers import NumbersParameters as NumbersParameters
from vicinal.targets._numbers import numbers as numbers
from vicinal.targets._target import CLASSES as CLASSES
from vicinal.targets._target import LABELS as LABELS
from vicinal.targets._target import NEIGHBORS_PER_NOISE as NEIGHBORS_PER_NOISE
from vicinal.targets._target import NUMBERS as NUMBERS
from vicinal.targets._target import ExpectedError as ExpectedError
from vicinal.targets._target import Target as Target
from vicinal.targets._target import VectorTarget as VectorTarget
