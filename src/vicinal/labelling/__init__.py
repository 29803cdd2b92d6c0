"""Rounds of knowledge transfer: ask private records about public examples, learn, ask better.

Whatever is asked, kept or learnt from is decided by the plan and by released answers. Only the
labeller sees private records.
"""

from vicinal.labelling.answers import Answers, load_answers, save_answers
from vicinal.labelling.journal import Asked, Entry, FileJournal, Journal
from vicinal.labelling.labellers import Answered, IndKNNLabeller, Labeller
from vicinal.labelling.loop import Job, Learner, Outcome, Student, label, transfer
from vicinal.labelling.plan import Plan, Round, planned
from vicinal.labelling.planned_labeller import PlannedLabeller

__all__ = [
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
    "label",
    "load_answers",
    "planned",
    "save_answers",
    "transfer",
]
