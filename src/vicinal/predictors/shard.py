"""A shard: records with their features, labels and subjects, and the ledger of those subjects."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import numpy.typing as npt

from vicinal.checks import SubjectId
from vicinal.errors import PrivacyRefused
from vicinal.ledger import MemoryLedger
from vicinal.mechanisms import People
from vicinal.neighbours import ExactIndex, Kernel, Neighbours
from vicinal.neighbours.integers import FloatMatrix
from vicinal.neighbours.tiles import fill_holes


class Shard:
    """Holds records, charges them and sums their votes; knows nothing of noise or answers.

    Subjects live on one shard with all their records. Sums of integer votes over shards equal
    those of a single shard that holds everything.
    """

    def __init__(self, kernel: Kernel, n_features: int) -> None:
        self.index = ExactIndex(kernel, n_features)
        self.ledger = MemoryLedger()
        self._labels = np.zeros(0, dtype=np.int32)
        self._slots = np.zeros(0, dtype=np.int32)
        self._records = np.zeros(0, dtype=np.int32)
        self._whole = True

    def __len__(self) -> int:
        """Return the number of records. Private."""
        return len(self._labels)

    @property
    def people(self) -> People:
        """Labels, subjects and budgets as the mechanisms see them."""
        return People(self._labels, self._slots, self._records, self.ledger.remaining)

    def search(self, queries: FloatMatrix, thresholds: npt.NDArray[np.int64]) -> Neighbours:
        """Return the records inside each query's radius."""
        self._check_whole()
        return self.index.search(queries, thresholds)

    def add(
        self,
        integers: FloatMatrix,
        labels: npt.NDArray[np.int32],
        subjects: Sequence[SubjectId],
    ) -> None:
        """Add records; a subject that is known, or was, continues with the budget it has left."""
        with self._changing():
            slots = self.ledger.enroll(subjects)
            self.index.add(integers)
            self._labels = np.concatenate([self._labels, labels])
            self._slots = np.concatenate([self._slots, slots])
            self._recount()

    def forget(self, subjects: Sequence[SubjectId]) -> int:
        """Erase all records of `subjects` physically; return how many records went."""
        gone = np.isin(self._slots, self.ledger.slots(subjects))
        rows = np.flatnonzero(gone)
        movers = fill_holes(rows, len(self._labels))
        kept = len(self._labels) - len(rows)
        with self._changing():
            self.index.remove(rows, movers)
            self._labels = _moved(self._labels, rows, movers, kept)
            self._slots = _moved(self._slots, rows, movers, kept)
            self.ledger.dismiss(subjects)
            self._recount()
        return len(rows)

    @contextmanager
    def _changing(self) -> Iterator[None]:
        """Mark the shard unusable until the body is through.

        A change that is broken off half-way, by an interrupt say, could leave rows beside the wrong
        labels or subjects, and charge the wrong person.
        """
        self._check_whole()
        self._whole = False
        yield
        self._whole = True

    def _check_whole(self) -> None:
        if not self._whole:
            raise PrivacyRefused(
                "A change of the records was interrupted, so they can no longer be trusted to "
                "stand beside their subjects. Fit again."
            )

    def _recount(self) -> None:
        counts = np.bincount(self._slots, minlength=len(self.ledger.remaining))
        self._records = counts.astype(np.int32)


def _moved(
    column: npt.NDArray[np.int32],
    rows: npt.NDArray[np.int64],
    movers: npt.NDArray[np.int64],
    kept: int,
) -> npt.NDArray[np.int32]:
    """Return a new column in which `movers` fill the holes left by `rows`."""
    filled = column.copy()
    filled[rows[rows < kept]] = column[movers]
    return filled[:kept].copy()
