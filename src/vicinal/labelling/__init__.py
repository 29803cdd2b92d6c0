"""Rounds of knowledge transfer: ask private records about public examples, learn, ask better.

Whatever is asked, kept or learnt from is decided by the plan and by released answers. Only the
labeller sees private records.
"""

from vicinal.labelling._answers import ReleasedLabels, load_answers, save_answers, soft_labels
from vicinal.labelling._journal import AskedRound, FileJournal, Journal, JournalEntry
from vicinal.labelling._labellers import (
    ABSTAINED,
    Answered,
    IndKNNLabeller,
    Labeller,
    Learner,
    StudentModel,
)
from vicinal.labelling._loop import LabellingTask, TransferResult, label, transfer
from vicinal.labelling._plan import LabellingPlan, Round, default_plan, least_noise, noise_of
from vicinal.labelling._planned_labeller import FixedPlanLabeller

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
