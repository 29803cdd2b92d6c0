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

MAX_FALSE_ALARM = 1e-6
"""The probability that independent data sets count as overlapping. 2^-20 is just below it, so 20
equal rows decide where no row has a duplicate in its own table. A process makes few comparisons."""

_BLOCK_WORDS = 1 << 18
"""Words that are digested at a time: as uint64 they take 2 MiB, which a processor's cache holds."""


@dataclass(frozen=True, slots=True, eq=False)
class RecordDigests:
    """Sorted digests of records, 8 bytes for each record and each subject.

    `rows`, uint64 (n,): one digest for each record's features. `ids`, uint64 (s,): one for each
    subject, or None if records came without ids.
    """

    rows: UInts64
    ids: UInts64 | None

    @classmethod
    def from_records(cls, features: FloatMatrix, ids: Sequence[int | str] | None) -> RecordDigests:
        """Return the digests of features (n, d) and ids (n,)."""
        id_digests = None if ids is None else np.unique(compute_id_digests(ids))
        return cls(np.sort(compute_row_digests(features)), id_digests)

    def join(self, other: RecordDigests, *, same_records: bool) -> RecordDigests:
        """Return the digests of both; with `same_records`, rows in both are counted once."""
        added = other.rows
        if same_records:
            repetition = np.arange(len(added)) - np.searchsorted(added, added)
            added = added[repetition >= count_matches(added, self.rows)]
        rows = np.insert(self.rows, np.searchsorted(self.rows, added), added)
        if self.ids is None or other.ids is None:
            return RecordDigests(rows, None)
        return RecordDigests(rows, np.union1d(self.ids, other.ids))

    def equals(self, other: RecordDigests) -> bool:
        """Return whether these are the same records of the same subjects."""
        if self.ids is None or other.ids is None:
            same_ids = self.ids is other.ids
        else:
            same_ids = np.array_equal(self.ids, other.ids)
        return same_ids and np.array_equal(self.rows, other.rows)

    def find_shared_ids(self, other: RecordDigests) -> Bools | None:
        """Return which ids (s,) `other` has too; None unless both have ids."""
        if self.ids is None or other.ids is None:
            return None
        return count_matches(self.ids, other.ids) > 0

    def find_shared_rows(self, other: RecordDigests) -> Bools:
        """Return which rows (n,) `other` has too; none if chance explains their number."""
        if not overlap_exceeds_chance(self.rows, other.rows):
            return np.zeros(len(self.rows), dtype=np.bool_)
        return count_matches(self.rows, other.rows) > 0


def compute_row_digests(features: FloatMatrix) -> UInts64:
    """Return a keyed digest of each row of features (n, d), uint64 (n,)."""
    n_rows, n_features = features.shape
    keys = _make_keys(n_features)
    digests = np.empty(n_rows, dtype=np.uint64)
    block_rows = max(1, _BLOCK_WORDS // max(1, n_features))
    for start in range(0, n_rows, block_rows):
        block = slice(start, start + block_rows)
        with np.errstate(over="ignore", under="ignore"):  # Out of range becomes infinite or 0.
            numbers = features[block].astype(np.float32) + np.float32(0)  # -0.0 becomes 0.0.
        row_words = numbers.view(np.uint32).astype(np.uint64)
        sums = row_words @ keys[1:] + keys[0]
        digests[block] = (sums[:, 0] & np.uint64(0xFFFFFFFF00000000)) | (
            sums[:, 1] >> np.uint64(32)
        )
    return digests


def compute_id_digests(ids: Sequence[int | str]) -> UInts64:
    """Return a keyed digest of the text of each subject id, uint64 (n,): 5 and "5" are one id."""
    key = _process_key()
    texts = (str(subject_id).encode("utf-8", "surrogatepass") for subject_id in ids)
    digests = [hashlib.blake2b(text, digest_size=8, key=key).digest() for text in texts]
    return np.frombuffer(b"".join(digests), dtype="<u8").astype(np.uint64)


@lru_cache(maxsize=64)
def _make_keys(n_words: int) -> UInts64:
    """Return random offsets (row 0) and multipliers of two sums, uint64 (n_words + 1, 2)."""
    seed = _process_key() + n_words.to_bytes(8, "little")
    keys = hashlib.shake_256(seed).digest(16 * (n_words + 1))
    return np.frombuffer(keys, dtype="<u8").astype(np.uint64).reshape(-1, 2)


@lru_cache(maxsize=1)
def _process_key() -> bytes:
    return fresh_key()


def count_matches(values: UInts64, sorted_digests: UInts64) -> Ints:
    """Return how often each value occurs among sorted digests."""
    start = np.searchsorted(sorted_digests, values, side="left")
    return np.searchsorted(sorted_digests, values, side="right") - start


def overlap_exceeds_chance(first: UInts64, second: UInts64) -> bool:
    """Return whether two tables share more rows than independent data sets do; private.

    `first` and `second`: the sorted digests of all rows, repetitions included.

    Suppose a row occurs c times in both tables together, with c even. If the tables are independent
    samples, each of any population and size (Poisson), the occurrences fall into the first table
    independently with one probability. So both tables have the row equally often with probability
    at most C(c, c/2) / 2^c <= 1 / sqrt(1.5 c + 1), which is 1/2 for c = 2. The number of rows with
    even c that occur equally often is compared with the sum of these bounds, by Hoeffding's
    inequality (1963, Theorem 1), at the level MAX_FALSE_ALARM. Records that are in both tables
    raise that number. Two equal tables without duplicates overlap however small they are.
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
    return n_even * divergence >= -math.log(MAX_FALSE_ALARM)


def are_copies(public: FloatMatrix, records: FloatMatrix) -> bool:
    """Return whether more public rows equal private records than chance explains; private.

    Chance explains the share of rows that equal another row of their own table, the larger share of
    the two tables, times the number of different public rows (Good 1953), and six standard
    deviations, at least six rows. Public rows that are made up from a schema with few values
    therefore may equal records. Seven rows decide if neither table has duplicates, and next to six
    known records a single row decides: `fit` then refuses if and only if that row is a record. Only
    the curator, with access to the records, can use this; see docs/explanation/public.md.
    """
    record_digests = np.sort(compute_row_digests(records))
    public_digests, public_counts = np.unique(compute_row_digests(public), return_counts=True)
    n_shared = int((count_matches(public_digests, record_digests) > 0).sum())
    duplicated_records = float((count_matches(record_digests, record_digests) > 1).mean())
    duplicated_public = float(public_counts[public_counts > 1].sum() / public_counts.sum())
    chance = max(duplicated_records, duplicated_public)
    return is_excess(n_shared, len(public_digests), chance)


def is_excess(n_shared: int, n_public: int, chance: float) -> bool:
    """Return whether more public rows equal private rows than chance explains.

    `chance`: the probability that a public row does. The limit is six standard deviations above the
    expected number; the deviation counts as at least one row.
    """
    deviation = math.sqrt(max(n_public * chance * (1 - chance), 1))
    return n_shared > n_public * chance + 6 * deviation
