"""Records that are about to be added: checked as a whole, before anything changes."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from vicinal._checks import SubjectId
from vicinal.ledger._id_encoding import check_length
from vicinal.mechanisms._record_vectors import RecordTargets
from vicinal.neighbours._kernels import IntegerMatrix
from vicinal.predictors._common import inputs
from vicinal.store._store_schema import StoreSchema


@dataclass(frozen=True, eq=False)
class StoredRecords:
    """Records as the store keeps them.

    - `integers`, int8 or float32 (n, d): integer features.
    - `targets`, int32 (n,) or RecordVectors: what each carries: its class index, or its vector.
    - `rows`, int32 (n, w): the same, as the file holds it.
    - `ids`: whose each is; None if everyone is new.
    """

    integers: IntegerMatrix
    targets: RecordTargets
    rows: npt.NDArray[np.int32]
    ids: list[SubjectId] | None

    @classmethod
    def of(
        cls,
        schema: StoreSchema,
        X: npt.NDArray[np.floating],
        y: npt.ArrayLike,
        subjects: npt.ArrayLike | None,
    ) -> Self:
        """Return records of checked features (n, d), labels and subjects.

        Raises InvalidInput if labels or subjects are unusable.
        """
        targets = schema.targets(y, len(X))
        ids: list[Any] | None = None if subjects is None else inputs.subjects(subjects, len(X))
        check_length(ids or ())
        integers = schema.kernel_of(None).encode(X)
        return cls(integers, targets, schema.target.rows(targets), ids)

    @property
    def labels(self) -> npt.NDArray[np.int32]:
        """Class indices, (n,), where records have classes."""
        return self.rows[:, 0]

    def without(self, schema: StoreSchema, subjects: Set[SubjectId]) -> Self:
        """Return those of everybody else; the same if none is of `subjects`."""
        ids = self.ids or []
        kept = [place for place, who in enumerate(ids) if who not in subjects]
        if self.ids is None or len(kept) == len(ids):
            return self
        integers, rows = self.integers[kept], self.rows[kept]
        return type(self)(integers, schema.target.targets(rows), rows, [ids[at] for at in kept])

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self.rows)
