"""Rounds of knowledge transfer: ask private records about public examples, learn, ask better.

Whatever is asked, kept or learnt from is decided by the plan and by released answers. Only the
labeller sees private records.
"""

from vicinal.labelling._answers import ReleasedLabels, load_answers, save_answers
from vicinal.labelling._journal import AskedRound, FileJournal, Journal, JournalEntry
from vicinal.labelling._labellers import ABSTAINED, Answered, IndKNNLabeller, Labeller
from vicinal.labelling._loop import LabellingTask, TransferResult, label, transfer
from vicinal.labelling._noise import least_noise, noise_of
from vicinal.labelling._plan import LabellingPlan, Round, default_plan
from vicinal.labelling._planned_labeller import FixedPlanLabeller
from vicinal.labelling._protocols import Learner, StudentModel
from vicinal.labelling._soft_labels import soft_labels

__all__ = [
    "ABSTAINED",
    "Answered",
    "AskedRound",
    "FileJournal",
    "FixedPlanLabeller",
    "IndKNNLabeller",
    "Journal",
    "JournalEntry",
    "Labeller",
    "LabellingPlan",
    "LabellingTask",
    "Learner",
    "ReleasedLabels",
    "Round",
    "StudentModel",
    "TransferResult",
    "default_plan",
    "label",
    "least_noise",
    "load_answers",
    "noise_of",
    "save_answers",
    "soft_labels",
    "transfer",
]
