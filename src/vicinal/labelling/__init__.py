"""Rounds of knowledge transfer: ask private records about public examples, learn, ask better.

Whatever is asked, kept or learnt from is decided by the plan and by released answers. Only the
labeller sees private records.
"""

from vicinal.labelling._answers import Answers, load_answers, save_answers
from vicinal.labelling._journal import Asked, Entry, FileJournal, Journal
from vicinal.labelling._labellers import ABSTAINED, Answered, IndKNNLabeller, Labeller
from vicinal.labelling._loop import Job, Outcome, label, transfer
from vicinal.labelling._noise import least_noise, noise_of
from vicinal.labelling._plan import Plan, Round, planned
from vicinal.labelling._planned_labeller import PlannedLabeller
from vicinal.labelling._protocols import Learner, Student
from vicinal.labelling._soft_labels import guide

__all__ = [
    "ABSTAINED",
    "Answered",
    "Answers",
    "Asked",
    "Entry",
    "FileJournal",
    "IndKNNLabeller",
    "Job",
    "Journal",
    "Labeller",
    "Learner",
    "Outcome",
    "Plan",
    "PlannedLabeller",
    "Round",
    "Student",
    "guide",
    "label",
    "least_noise",
    "load_answers",
    "noise_of",
    "planned",
    "save_answers",
    "transfer",
]
