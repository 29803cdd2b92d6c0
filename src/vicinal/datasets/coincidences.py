"""Count public rows that equal a private record, and the number to expect by chance.

The counts are for the owner only. No public row is removed because of them: its absence would
reveal that a private record equals it (docs/decisions/0051-tables.md).
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from vicinal.arrays import AnyArray
from vicinal.interactions.row_matching import detect_excess_matches


@dataclass(frozen=True)
class Coincidences:
    """Counts of public rows that equal a private record. **Private**: they depend on the records.

    `public`: number of public rows. `shared`: number of them that equal a private record.
    `expected`: number to expect by chance if public rows and records are samples of one population:
    the share of records that equal another record, times `public`. (Good 1953: the share of a
    population covered by a sample is 1 minus the share of values that occur once in the sample.)
    """

    public: int
    shared: int
    expected: float

    @property
    def suspicious(self) -> bool:
        """Whether rows seem to be copied: `shared` is six standard deviations above `expected`."""
        return detect_excess_matches(self.shared, self.public, self.expected / self.public)

    def __str__(self) -> str:
        """Return the counts and a verdict in words, for the owner of the records only."""
        verdict = (
            "That is too many for chance: were public rows copied from the records?"
            if self.suspicious
            else "Chance explains that, so the public rows are fine."
        )
        return (
            f"{self.shared} of {self.public} public rows equal a private record. By chance, about "
            f"{self.expected:.0f} would. {verdict}"
        )


def count_shared_rows(records: AnyArray, public: AnyArray) -> Coincidences:
    """Return the number of public rows that equal a private record, and the one expected by chance.

    `records` (n, d), `public` (m, d): numbers. Rows are equal if all their numbers are. The result
    is private. Also records of one subject that equal each other raise the expected number.
    """
    record_keys = _convert_rows_to_keys(records)
    public_keys = _convert_rows_to_keys(public)
    _, inverse, counts = np.unique(record_keys, return_inverse=True, return_counts=True)
    duplicate_share = float((counts[inverse] > 1).mean())
    n_shared = int(np.isin(public_keys, record_keys).sum())
    return Coincidences(len(public_keys), n_shared, duplicate_share * len(public_keys))


def _convert_rows_to_keys(rows: AnyArray) -> npt.NDArray[np.void]:
    """Return the float64 numbers of each of `rows` (n, d) as one bytes value, (n,); -0.0 as 0.0."""
    contiguous = np.ascontiguousarray(rows, dtype=np.float64) + 0.0  # -0.0 becomes 0.0
    return contiguous.view(f"V{contiguous.shape[1] * contiguous.itemsize}").ravel()
