"""Small inputs of mechanisms: subjects with records, neighbour lists, and votes without noise."""

import numpy as np

from made_up import NoNoise
from vicinal.accounting.budget import UNITS
from vicinal.mechanisms import DeltaSlackAccountant, VoteGrid
from vicinal.mechanisms.subject_table import RecordVectors, SubjectTable
from vicinal.mechanisms.votes import NoisyVotes
from vicinal.neighbours import Cosine, NeighbourLists


def make_accountant(*, needs_slack=True):
    return DeltaSlackAccountant(1e-5, needs_slack=needs_slack)


def make_subjects(targets, slots, remaining=UNITS):
    """Return records of subjects; `remaining`: units of each subject, or of all."""
    slots = np.asarray(slots, dtype=np.int32)
    n_subjects = len(remaining) if np.ndim(remaining) else slots.max() + 1
    n_records = np.bincount(slots, minlength=n_subjects).astype(np.int32)
    if not isinstance(targets, RecordVectors):
        targets = np.asarray(targets, dtype=np.int32)
    return SubjectTable(targets, slots, n_records, np.full(n_subjects, remaining, dtype=np.int64))


def make_lists(n_records, n_queries=1):
    """Return lists in which each query has all records as neighbours with the full weight."""
    rows = np.tile(np.arange(n_records, dtype=np.int32), n_queries)
    similarities = np.full(len(rows), 4094**2, dtype=np.int32)
    return NeighbourLists(n_records * np.arange(n_queries + 1), rows, similarities)


def make_votes(width, budget=0.5, grid=None, accountant=None):
    """Return the mechanism of noisy votes of `width` coordinates, which adds no noise."""
    grid = grid or VoteGrid.choose(2.0, 100, width, 1e-5)
    return NoisyVotes(Cosine(), 2, width, budget, grid, NoNoise(), accountant or make_accountant())
