"""How many public rows equal a private one, and how many would by nature: for the owner only.

Nothing is filtered by it: that would tell whether a row is private (docs/decisions/0051-tables.md).
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from vicinal.errors import InvalidInput
from vicinal.interactions.row_matching import is_excess


@dataclass(frozen=True)
class Coincidences:
    """Public rows that equal a private record. **Private**: it tells who is in the records.

    `public`: public rows. `shared`: those that equal a private record. `expected`: how many would
    by chance, from one population: the share of records that equal another record, times the public
    rows (Good 1953: the share of a population that a sample has seen is one less the share of
    values met once).
    """

    public: int
    shared: int
    expected: float

    @property
    def suspicious(self) -> bool:
        """Whether more rows are shared than chance explains, as if copied from the records."""
        return is_excess(self.shared, self.public, self.expected / self.public)

    def __str__(self) -> str:
        verdict = (
            "That is too many for chance: were public rows copied from the records?"
            if self.suspicious
            else "Chance explains that, so the public rows are fine."
        )
        return (
            f"{self.shared} of {self.public} public rows equal a private record. By chance, about "
            f"{self.expected:.0f} would. {verdict}"
        )


def compare_rows(records: npt.ArrayLike, public: npt.ArrayLike) -> Coincidences:
    """Compare private records (n, d) with public rows (m, d), number by number.

    The result is private. A subject with equal records of its own makes more look natural.
    """
    rows, points = _build_row_keys(records), _build_row_keys(public)
    if rows.dtype != points.dtype:
        raise InvalidInput("The records and the public rows must have the same columns.")
    _, where, counts = np.unique(rows, return_inverse=True, return_counts=True)
    natural = float((counts[where] > 1).mean())
    return Coincidences(len(points), int(np.isin(points, rows).sum()), natural * len(points))


def _build_row_keys(rows: npt.ArrayLike) -> npt.NDArray[np.void]:
    """Return every row as one value, equal for rows of equal numbers."""
    matrix = np.asarray(rows)
    if matrix.ndim != 2 or 0 in matrix.shape or matrix.dtype.kind not in "buif":
        raise InvalidInput("Records and public rows must be matrices of numbers, (n, d).")
    plain = np.ascontiguousarray(matrix, dtype=np.float64) + 0.0  # -0.0 becomes 0.0
    return plain.view(f"V{plain.shape[1] * plain.itemsize}").ravel()
