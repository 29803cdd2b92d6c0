"""What the checked parameters of Ind-KNN estimators whose records carry vectors stand for."""

from __future__ import annotations

from functools import cached_property

import numpy.typing as npt

from vicinal.engine import NUMBERS_PER_NOISE
from vicinal.errors import InvalidInput
from vicinal.mechanisms import RecordVectors
from vicinal.planning._parameter_tables import LOG, MultiLabelParameters, RegressorParameters
from vicinal.planning._shared_settings import SharedSettings
from vicinal.predictors import label_sets
from vicinal.targets import TargetBounds, TypicalScale, label_vectors, number_vectors, numbers


class RegressorSettings(RegressorParameters, SharedSettings):
    """Checked parameters of an Ind-KNN regressor."""

    def check_together(self) -> None:
        """Refuse logarithms of what may not be above 0, and other typical ranges."""
        self._check_typical_range()
        if self.scale == LOG and not (self.bounds.low > 0).all():
            raise InvalidInput("The 'bounds' parameter must be above 0 with scale='log'.")

    def _check_typical_range(self) -> None:
        typical, bounds = self.typical_range, self.bounds
        if typical is None:
            return
        if self.n_thresholds is not None:
            raise InvalidInput(
                "The 'typical_range' parameter must be None with 'n_thresholds': every number then "
                "contributes the same length."
            )
        inside = typical.names == bounds.names
        inside = inside and bool((typical.low >= bounds.low).all())
        if not inside or not bool((typical.high <= bounds.high).all()):
            raise InvalidInput(
                "The 'typical_range' parameter must lie within the 'bounds' parameter, and name "
                "the same targets in the same order."
            )

    def targets(self, y: npt.ArrayLike | None, size: int) -> RecordVectors:
        """Return the vectors of records with numbers (n,) or (n, p)."""
        log = self.scale == LOG
        values = numbers(y, size, self.bounds, log=log)
        return number_vectors(values, self.n_thresholds, self.typical_scale)

    @property
    def neighbors_per_noise(self) -> float:
        """More than for a vote: all of the noise is in the answer."""
        return NUMBERS_PER_NOISE / self.typical_scale.length

    @property
    def subject_use(self) -> float:
        """Less than for a vote, where most numbers lie in a typical range."""
        return super().subject_use * self.typical_scale.length**2

    @cached_property
    def typical_scale(self) -> TypicalScale:
        """Where most numbers lie, on the scale on which they are averaged."""
        typical = self.typical_range
        if typical is not None and self.scale == LOG:
            typical = typical.logarithms()
        return TypicalScale.of(self.scaled_bounds, typical)

    @property
    def scaled_bounds(self) -> TargetBounds:
        """The bounds on the scale on which records are averaged."""
        return self.bounds.logarithms() if self.scale == LOG else self.bounds

    @property
    def n_coordinates(self) -> int:
        """A weight, and for each target its value, or its side of every threshold."""
        return 1 + len(self.bounds) * (self.n_thresholds or 1)

    public_facts = ("the names and bounds of the targets",)


class MultiLabelSettings(MultiLabelParameters, SharedSettings):
    """Checked parameters of an Ind-KNN classifier for several labels."""

    def targets(self, y: npt.ArrayLike | None, size: int) -> RecordVectors:
        """Return the vectors of records with labels, 0 and 1 in shape (n, c)."""
        sets = label_sets(y, (size, len(self.labels)))
        return label_vectors(sets, self.tau)

    @property
    def n_coordinates(self) -> int:
        """A weight, and one for each label."""
        return 1 + len(self.labels)

    public_facts = ("the names of the labels",)
