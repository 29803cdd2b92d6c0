"""Who stands behind the rows: what they carry, subjects, and what each subject has left."""

from __future__ import annotations

from dataclasses import dataclass

from vicinal._arrays import Ints, Ints32
from vicinal.errors import InvalidInput
from vicinal.mechanisms._record_vectors import RecordTargets, RecordVectors


@dataclass(frozen=True, slots=True)
class SubjectTable:
    """Views of a shard's private columns, as the mechanisms read and charge them.

    Attributes
    ----------
    targets : int32 (n,) or RecordVectors
        Class index of every row, or its vector.
    slots : int32 (n,)
        Subject of every row, as a position in `remaining`.
    records : int32 (subjects,)
        Number of rows of every subject.
    remaining : int64 (subjects,)
        Units of budget left; the mechanisms charge it in place, before any noise is drawn.
    """

    targets: RecordTargets
    slots: Ints32
    records: Ints32
    remaining: Ints

    @property
    def labels(self) -> Ints32:
        """Class index of every row, int32 (n,), where rows carry classes."""
        if isinstance(self.targets, RecordVectors):
            raise InvalidInput("These records carry vectors, not classes.")
        return self.targets
