"""The kinds of releases that a plan can hold: fields, cost, certificate, assumptions.

One :class:`PlannedRelease` a mechanism; a new mechanism is a new entry of ``KINDS``.
"""

from vicinal.accounting.kinds._base import PlannedRelease
from vicinal.accounting.kinds._ind_knn import PlannedIndKNN
from vicinal.accounting.kinds._pate import PlannedConfidentGNMax, PlannedGNMax
from vicinal.accounting.kinds._private_knn import (
    PlannedGaussian,
    PlannedMultilabel,
    PlannedNoisyMax,
    PlannedScreening,
)
from vicinal.accounting.kinds._training import PlannedTraining

__all__ = ["KINDS", "PlannedRelease"]

# Every kind of release, by the name that a plan gives it.
KINDS: dict[str, type[PlannedRelease]] = {
    release.kind: release
    for release in (
        PlannedScreening,
        PlannedNoisyMax,
        PlannedGaussian,
        PlannedMultilabel,
        PlannedGNMax,
        PlannedConfidentGNMax,
        PlannedIndKNN,
        PlannedTraining,
    )
}
