from vicinal.labelling._answers import ReleasedLabels as ReleasedLabels
from vicinal.labelling._answers import load_answers as load_answers
from vicinal.labelling._journal import FileJournal as FileJournal
from vicinal.labelling._labellers import FixedPlanLabeller as FixedPlanLabeller
from vicinal.labelling._labellers import IndKNNLabeller as IndKNNLabeller
from vicinal.labelling._labellers import Labeller as Labeller
from vicinal.labelling._loop import LabellingTask as LabellingTask
from vicinal.labelling._loop import TransferResult as TransferResult
from vicinal.labelling._loop import label as label
from vicinal.labelling._loop import transfer as transfer
from vicinal.labelling._plan import LabellingPlan as LabellingPlan
from vicinal.labelling._plan import Round as Round
from vicinal.labelling._plan import default_plan as default_plan

__all__: list[str]  # the names above; those below are shared inside vicinal, and may change

from vicinal.labelling._answers import checked_soft_labels as checked_soft_labels
from vicinal.labelling._answers import save_answers as save_answers
from vicinal.labelling._journal import AskedRound as AskedRound
from vicinal.labelling._journal import JournalEntry as JournalEntry
from vicinal.labelling._labellers import ABSTAINED as ABSTAINED
from vicinal.labelling._labellers import Answered as Answered
from vicinal.labelling._labellers import FeatureExtractor as FeatureExtractor
from vicinal.labelling._labellers import Learner as Learner
from vicinal.labelling._labellers import StudentModel as StudentModel
from vicinal.labelling._plan import least_noise as least_noise
from vicinal.labelling._plan import noise_of as noise_of
