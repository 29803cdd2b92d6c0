"""The trusted core: contribution, charge and noise of a release, made in one place.

Each mechanism has a proof note of the same name beside it.
"""

from vicinal.mechanisms._class_scores import ClassScores
from vicinal.mechanisms._count import NoisyCount, noisy_size, size_noise
from vicinal.mechanisms._noisy_labels import LabelRelease, NoisyLabels
from vicinal.mechanisms._randomness import fresh_key, public_draws, randomness
from vicinal.mechanisms._subject_table import SubjectTable
from vicinal.mechanisms._tally import NoisyTally, TallyPlan
from vicinal.mechanisms._votes import (
    DeltaSlackAccountant,
    NoisyVotes,
    VoteGrid,
    VoteMechanism,
    VoteRelease,
)
from vicinal.noise import NoiseSource

__all__ = [
    "ClassScores",
    "DeltaSlackAccountant",
    "LabelRelease",
    "NoiseSource",
    "NoisyCount",
    "NoisyLabels",
    "NoisyTally",
    "NoisyVotes",
    "SubjectTable",
    "TallyPlan",
    "VoteGrid",
    "VoteMechanism",
    "VoteRelease",
    "fresh_key",
    "noisy_size",
    "public_draws",
    "randomness",
    "size_noise",
]
