"""Equal records of two tables: keyed digests, and tests whether chance explains their number.

A digest has 64 bits and stays in memory. Rows are compared as float32 numbers, so a table and its
float32 copy agree, and -0.0 equals 0.0. The digest of a row with 32-bit words w_i consists of the
upper halves of two sums m_0 + sum_i m_i w_i mod 2^64 with random 64-bit m_i. Each sum is strongly
universal (Lemire & Kaser 2014, *Strongly universal string hashing is fast*, Theorem 3.1), so two
different rows have equal digests with probability 2^-64 over the key of the process.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from vicinal.arrays import Bools, FloatMatrix, Ints, UInts64
from vicinal.mechanisms.noise_sources import fresh_key

MAX_FALSE_POSITIVE_RATE = 1e-6
"""The probability that :func:`overlap_exceeds_chance` holds for independent data sets. 2^-20 is
just below it, so 20 equal rows suffice where no row has a duplicate in its own table. A process
makes few comparisons, so there is no correction for multiple comparisons."""

_BLOCK_WORDS = 1 << 18
"""32-bit words hashed per block: as uint64 they take 2 MiB, which a processor's cache holds."""


@dataclass(frozen=True, slots=True, eq=False)
class RecordDigests:
    """Sorted digests of the features of n records, (n,), and of the ids of their s subjects, (s,).

    `ids` is None if the records came without ids.
    """

    rows: UInts64
    ids: UInts64 | None

    @classmethod
    def from_records(cls, features: FloatMatrix, ids: Sequence[int | str] | None) -> RecordDigests:
        """Return the digests of records with `features` (n, d) and subject `ids` (n,) or None."""
        id_digests = None if ids is None else np.unique(compute_id_digests(ids))
        return cls(np.sort(compute_row_digests(features)), id_digests)

    def merge(self, other: RecordDigests, *, same_records: bool) -> RecordDigests:
        """Return the digests of the records of both; without ids if `self` or `other` has none.

        `same_records`: whether `other` describes the records of `self`, possibly with other
        features; a row then occurs as often in the result as in the table where it is more
        frequent. If false, `other` has further records, and the occurrences of a row are added.
        """
        added = other.rows
        if same_records:
            n_earlier_copies = np.arange(len(added)) - np.searchsorted(added, added)
            added = added[n_earlier_copies >= count_matches(added, self.rows)]
        rows = np.insert(self.rows, np.searchsorted(self.rows, added), added)
        if self.ids is None or other.ids is None:
            return RecordDigests(rows, None)
        return RecordDigests(rows, np.union1d(self.ids, other.ids))

    def equals(self, other: RecordDigests) -> bool:
        """Return whether all digests of rows and ids equal those of `other`."""
        if self.ids is None or other.ids is None:
            same_ids = self.ids is other.ids
        else:
            same_ids = np.array_equal(self.ids, other.ids)
        return same_ids and np.array_equal(self.rows, other.rows)

    def find_shared_ids(self, other: RecordDigests) -> Bools | None:
        """Return for each own id whether it is also in `other`, (s,); None unless both have ids."""
        if self.ids is None or other.ids is None:
            return None
        return count_matches(self.ids, other.ids) > 0

    def find_shared_rows(self, other: RecordDigests) -> Bools:
        """Return for each own row whether an equal one is in `other`, bool (n,).

        All are False if chance explains the number of equal rows.
        """
        if not overlap_exceeds_chance(self.rows, other.rows):
            return np.zeros(len(self.rows), dtype=np.bool_)
        return count_matches(self.rows, other.rows) > 0


def compute_row_digests(features: FloatMatrix) -> UInts64:
    """Return a keyed digest of each row of `features` (n, d) in float32 precision, uint64 (n,)."""
    n_rows, n_features = features.shape
    coefficients = _derive_hash_coefficients(n_features)
    digests = np.empty(n_rows, dtype=np.uint64)
    block_rows = max(1, _BLOCK_WORDS // max(1, n_features))
    for start in range(0, n_rows, block_rows):
        block = slice(start, start + block_rows)
        with np.errstate(over="ignore", under="ignore"):  # Out of range becomes infinite or 0.
            numbers = features[block].astype(np.float32) + np.float32(0)  # -0.0 becomes 0.0.
        row_words = numbers.view(np.uint32).astype(np.uint64)
        sums = row_words @ coefficients[1:] + coefficients[0]
        digests[block] = (sums[:, 0] & np.uint64(0xFFFFFFFF00000000)) | (
            sums[:, 1] >> np.uint64(32)
        )
    return digests


def compute_id_digests(ids: Sequence[int | str]) -> UInts64:
    """Return a keyed digest of each subject id's text, uint64 (n,): 5 and "5" are the same id."""
    key = _create_process_key()
    texts = (str(subject_id).encode("utf-8", "surrogatepass") for subject_id in ids)
    digests = [hashlib.blake2b(text, digest_size=8, key=key).digest() for text in texts]
    return np.frombuffer(b"".join(digests), dtype="<u8").astype(np.uint64)


@lru_cache(maxsize=64)
def _derive_hash_coefficients(n_words: int) -> UInts64:
    """Return pseudorandom coefficients of two hashes of a row, uint64 (n_words + 1, 2).

    Row 0 has the offsets m_0, the other rows the multipliers of the `n_words` 32-bit words.
    """
    seed = _create_process_key() + n_words.to_bytes(8, "little")
    coefficients = hashlib.shake_256(seed).digest(16 * (n_words + 1))
    return np.frombuffer(coefficients, dtype="<u8").astype(np.uint64).reshape(-1, 2)


@lru_cache(maxsize=1)
def _create_process_key() -> bytes:
    """Return the random key of all digests of this process."""
    return fresh_key()


def count_matches(digests: UInts64, sorted_digests: UInts64) -> Ints:
    """Return how often each of `digests` (n,) occurs in another list of digests, int64 (n,).

    `sorted_digests` (m,): the other list, in ascending order.
    """
    start = np.searchsorted(sorted_digests, digests, side="left")
    return np.searchsorted(sorted_digests, digests, side="right") - start


def overlap_exceeds_chance(first: UInts64, second: UInts64) -> bool:
    """Return whether two tables share more rows than independent data sets do.

    `first` and `second`: the sorted digests of all rows, repetitions included. The result depends
    on private records, so it must not be released.

    Null hypothesis: the tables are independent samples, each of any population and size (Poisson).
    Test statistic: the share of rows that occur equally often in both tables, among rows whose
    total number c of occurrences is even, as others cannot; records in both tables raise it. Under
    the null hypothesis each occurrence of a row is independently in the first table with the same
    probability, so a row occurs equally often in both with probability at most
    C(c, c/2) / 2^c <= 1 / sqrt(1.5 c + 1), which is 1/2 for c = 2. The mean of these bounds is
    tested by Hoeffding's inequality (1963, Theorem 1), at the level MAX_FALSE_POSITIVE_RATE. Two
    equal tables without duplicates overlap at any size.
    """
    values, totals = np.unique(np.concatenate([first, second]), return_counts=True)
    if 0 < len(values) == len(first) == len(second):
        return True
    is_even = totals % 2 == 0
    n_even = int(is_even.sum())
    if n_even == 0:
        return False
    halves = totals[is_even] // 2
    share = float((count_matches(values[is_even], first) == halves).mean())
    chance = float((1 / np.sqrt(3 * halves + 1)).mean())
    if share <= chance:
        return False
    divergence = share * math.log(share / chance)
    if share < 1:
        divergence += (1 - share) * math.log((1 - share) / (1 - chance))
    return n_even * divergence >= -math.log(MAX_FALSE_POSITIVE_RATE)


def detect_copied_records(public: FloatMatrix, records: FloatMatrix) -> bool:
    """Return whether public rows are probably copies of private records.

    They are if more `public` rows (m, d) equal `records` (n, d) than chance explains. The match
    probability is estimated by the share of rows that have a duplicate in their own table (Good
    1953); the larger of both shares counts. So public rows that were generated from a schema with
    few values may equal records. Without duplicates, six equal rows are allowed, so a curator who
    knows six records could test a further row by whether `fit` refuses. The result is private; see
    docs/explanation/public.md.
    """
    public_digests, public_counts = np.unique(compute_row_digests(public), return_counts=True)
    record_digests, record_counts = np.unique(compute_row_digests(records), return_counts=True)
    n_matches = int(np.isin(public_digests, record_digests).sum())
    duplicate_shares = [
        float(counts[counts > 1].sum() / counts.sum()) for counts in (public_counts, record_counts)
    ]
    return detect_excess_matches(n_matches, len(public_digests), max(duplicate_shares))


def detect_excess_matches(n_matches: int, n_public: int, match_probability: float) -> bool:
    """Return whether more public rows equal private rows than chance explains.

    `n_matches` of `n_public` distinct public rows equal a private row. `match_probability`: the
    probability that a public row equals a private one by chance. The limit is six standard
    deviations above the expected number, with a standard deviation of at least one row.
    """
    deviation = math.sqrt(max(n_public * match_probability * (1 - match_probability), 1))
    return n_matches > n_public * match_probability + 6 * deviation
