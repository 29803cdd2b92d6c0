"""Rounds of knowledge transfer: ask private records about public examples, learn, ask better.

Whatever is asked, kept or learnt from is decided by the plan and by released answers. Only the
labeller sees private records.
"""

from vicinal.labelling.answers import Answers, load_answers, save_answers
from vicinal.labelling.guide import guide
from vicinal.labelling.journal import Asked, Entry, FileJournal, Journal
from vicinal.labelling.labellers import ABSTAINED, Answered, IndKNNLabeller, Labeller
from vicinal.labelling.loop import Job, Outcome, label, transfer
from vicinal.labelling.noise import least_noise, noise_of
from vicinal.labelling.plan import Plan, Round, planned
from vicinal.labelling.planned_labeller import PlannedLabeller
from vicinal.labelling.roles import Learner, Student

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
