r"""Which records have taken part in which interaction of this process, so that none is forgotten.

A guarantee is for one interaction: all releases of one fitted object. A second one on the same
subjects adds its loss to the first. An :class:`Interaction` claims its records; one that overlaps
with records claimed before is refused, unless both declared in advance that several such
interactions share one budget.

Records are known by keyed digests, held in memory only: of subject ids where both sides gave them,
else of features: the integers that an engine makes of their direction, whatever the labels, names
of classes or units. Two different rows of integers (or ids) have equal
digests with probability 2^-64 over the process's random key: a digest is two sums m_0 + sum_i m_i
w_i mod 2^64 over the row's 32-bit words w_i, with random 64-bit m_i, of which the upper 32 bits are
kept; each of them is strongly universal (Lemire & Kaser 2014, *Strongly universal string hashing is
fast*, Theorem 3.1). A collision refuses wrongly, and never admits.

docs/decisions/0045-refusals-and-interactions.md says what this does not find.
"""

from __future__ import annotations

import gc
import hashlib
import math
import threading
import weakref
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from vicinal import _checks
from vicinal._arrays import FloatMatrix, Ints, UInts64
from vicinal._compiled import compiled
from vicinal.errors import PrivacyRefused
from vicinal.neighbours import unit_vectors
from vicinal.noise import fresh_key

PUBLIC = "public"  # what `interactions` is for records that need no protection

_LONG_ID = 64


def interactions(value: object) -> int:
    """Return the declared number of interactions, at least 1; 0 for records declared public.

    Raises InvalidInput if the parameter is neither a number nor "public".
    """
    if isinstance(value, str) and value == PUBLIC:
        return 0
    return _checks.integer("interactions", value, least=1, most=10**6)


@dataclass(frozen=True, slots=True, eq=False)
class Claimed:
    """Digests of the records of one interaction, sorted; memory 8 bytes a record, and a subject.

    `rows`, uint64 (n,): of features. `subjects`, uint64 (s,) or None: of ids, where they
    were given.
    """

    rows: UInts64
    subjects: UInts64 | None

    @classmethod
    def of(cls, features: FloatMatrix, ids: Sequence[int | str] | None) -> Claimed:
        """Return the digests of records: features (n, d) and ids (n,)."""
        return cls(
            np.sort(row_digests(features)), None if ids is None else np.unique(id_digests(ids))
        )

    def joined(self, other: Claimed) -> Claimed:
        """Return the records of both; ids only where both have them."""
        several = self.subjects is not None and other.subjects is not None
        return Claimed(
            np.union1d(self.rows, other.rows),
            np.union1d(self.subjects, other.subjects) if several else None,  # type: ignore[arg-type]
        )

    def same(self, other: Claimed) -> bool:
        """Tell whether these are the same records of the same subjects."""
        if (self.subjects is None) != (other.subjects is None):
            return False
        ids = self.subjects is None or np.array_equal(self.subjects, other.subjects)  # type: ignore[arg-type]
        return bool(ids and np.array_equal(self.rows, other.rows))

    def shared(self, other: Claimed) -> Ints:
        """Return the places, in :attr:`subjects` or :attr:`rows`, of what `other` holds, too."""
        if self.subjects is not None and other.subjects is not None:
            return _places(self.subjects, other.subjects)
        return _places(self.rows, other.rows)


@dataclass(eq=False)
class _Entry:
    """What the process remembers of one interaction."""

    claimed: Claimed
    terms: Hashable
    most: int
    released: bool = False
    size: float | None = None
    holders: weakref.WeakSet[Interaction] = field(default_factory=weakref.WeakSet)

    @property
    def counts(self) -> bool:
        """Whether something was released, or still can be."""
        return self.released or self.size is not None or len(self.holders) > 0


class Interaction:
    """A claim on records, held by the one object that answers from them.

    Until the first release it is withdrawn by dropping it: nothing has left. Afterwards the process
    remembers it.
    """

    def __init__(self, entry: _Entry) -> None:
        self._entry = entry
        self.withdrawn = False
        entry.holders.add(self)

    def release(self) -> None:
        """Note that something is about to leave, before it is drawn.

        Raises PrivacyRefused if the claim was withdrawn: the records may be in another interaction
        by now.
        """
        if self.withdrawn:
            raise PrivacyRefused("The estimator was fitted again, so it answers as it is now.")
        self._entry.released = True

    def withdraw(self) -> None:
        """Note that nothing will be released, if nothing was, whoever still refers to this."""
        if not self._entry.released:
            self.withdrawn = True
            self._entry.holders.discard(self)

    def first_size(self, estimate: float) -> float:
        """Return the first noisy size of these records: a fit that was refused tells no second."""
        if self._entry.size is None:
            self._entry.size = estimate
        return self._entry.size


@dataclass
class Interactions:
    """All interactions of a process. All methods may be called from any thread."""

    _entries: list[_Entry] = field(default_factory=list)
    _lock: threading.RLock = field(default_factory=threading.RLock)

    def begin(
        self,
        claimed: Claimed,
        terms: Hashable = None,
        most: int = 1,
        replacing: Interaction | None = None,
        *,
        sized: bool = False,
    ) -> Interaction:
        """Claim records for a new interaction.

        - `claimed`: the records.
        - `terms`: what all interactions that share a budget must have in common, so that their sum
          is the budget.
        - `most`: how many of them share it.
        - `replacing`: the claim that the same object held before. If it released nothing, it does
          not count.
        - `sized`: whether a noisy size is going to be released, and paid for. If that is all that
          these same records have released, and nobody else holds it, it is released again,
          unchanged.

        Raises PrivacyRefused if a record took part in too many interactions, or in one on other
        terms.
        """
        ours = None if replacing is None or replacing._entry.released else replacing._entry
        with self._lock:
            sized_entry = self._sized(claimed, (terms, most), ours) if sized else None
            entry = sized_entry or _Entry(claimed, terms, most)
            unused = ours if ours is not None and ours.size is None else None
            self._check(claimed, terms, most, (entry, unused))
            return self._entered(entry)

    def adopt(self, claimed: Claimed, terms: Hashable = None, most: int = 1) -> Interaction:
        """Claim records for an interaction that goes on where an earlier holder was cut off.

        Raises PrivacyRefused if a record took part in an interaction on other terms.
        """
        with self._lock:
            same = [entry for entry in self._entries if entry.terms == terms]
            self._check(claimed, terms, most, same)
            interaction = self._entered(_Entry(claimed, terms, most))
            interaction.release()
            return interaction

    def extend(self, interaction: Interaction, claimed: Claimed) -> None:
        """Claim further records, or features, for an interaction; raises as :meth:`begin`."""
        with self._lock:
            entry = interaction._entry
            self._check(claimed, entry.terms, entry.most, (entry,))
            entry.claimed = entry.claimed.joined(claimed)

    def _entered(self, entry: _Entry) -> Interaction:
        if entry not in self._entries:
            self._entries.append(entry)
        return Interaction(entry)

    def _sized(
        self, claimed: Claimed, budget: tuple[Hashable, int], ours: _Entry | None
    ) -> _Entry | None:
        """Return the entry of the same records and budget of which only the noisy size is known."""
        for entry in self._entries:
            only_sized = entry.size is not None and not entry.released
            free = only_sized and (entry is ours or not entry.holders)
            if free and (entry.terms, entry.most) == budget and entry.claimed.same(claimed):
                return entry
        return None

    def _check(
        self, claimed: Claimed, terms: Hashable, most: int, apart: Sequence[_Entry | None]
    ) -> None:
        """Raise PrivacyRefused if a claim, beside all entries but `apart`, goes too far."""
        if self._fault(claimed, terms, most, apart):
            gc.collect()  # a fitted object that nobody holds any more may wait in a cycle
            if fault := self._fault(claimed, terms, most, apart):
                raise PrivacyRefused(fault)

    def _fault(
        self, claimed: Claimed, terms: Hashable, most: int, apart: Sequence[_Entry | None]
    ) -> str:
        self._entries = [entry for entry in self._entries if entry.counts]
        times = np.zeros(len(claimed.rows), dtype=np.int64)
        named = np.zeros(0 if claimed.subjects is None else len(claimed.subjects), dtype=np.int64)
        for entry in self._entries:
            if any(entry is one for one in apart):
                continue
            places = claimed.shared(entry.claimed)
            if len(places) and (entry.terms != terms or entry.most != most):
                return _MESSAGE if most == entry.most == 1 else _OTHER_TERMS + _MESSAGE
            both = claimed.subjects is not None and entry.claimed.subjects is not None
            (named if both else times)[places] += 1
        if 1 + int(times.max(initial=0)) + int(named.max(initial=0)) <= most:
            return ""
        return _MESSAGE if most == 1 else _TOO_MANY.format(most) + _MESSAGE


_MESSAGE = (
    "Some of these records took part in an earlier interaction of this process, and the losses of "
    "two interactions add up. To choose models or parameters, simulate: set 'simulation_seed', on "
    "data that needs no protection. To answer the same people several times, declare in every "
    "estimator how many interactions share the budget, as interactions=2, before the first of "
    "them. If different people have equal records, pass 'subjects' to both fits, with different "
    "ids. Records that are public need interactions='public'."
)
_OTHER_TERMS = "Interactions share a budget only with the same declaration and the same plan. "
_TOO_MANY = "All {} declared interactions have taken place. "

REGISTRY = Interactions()
"""The interactions of this process."""


def row_digests(features: FloatMatrix) -> UInts64:
    """Return a digest of every row, uint64 (n,): equal for rows of one direction, as rounded."""
    with np.errstate(over="ignore", under="ignore"):
        # A single number has no direction but its sign.
        rows = unit_vectors(features) if features.shape[1] > 1 else features
        numbers = np.ascontiguousarray(rows, dtype=np.float32)
    return _digests(numbers.view(np.uint32), b"rows")


def are_copies(public: FloatMatrix, records: FloatMatrix) -> bool:
    """Tell whether more public rows equal private ones than chance explains; private.

    By chance it is the share of records that equal another one, times the public rows (Good 1953),
    within six deviations: a single row never decides.
    """
    rows, points = np.sort(row_digests(records)), np.unique(row_digests(public))
    shared = np.searchsorted(rows, points) < np.searchsorted(rows, points, side="right")
    same = rows[1:] == rows[:-1]
    by_nature = float((np.append(same, False) | np.append(False, same)).mean())
    return is_excess(int(shared.sum()), len(points), by_nature)


def is_excess(shared: int, public: int, by_nature: float) -> bool:
    """Tell whether of so many public rows more are shared than six deviations above nature's."""
    chance = math.sqrt(public * max(by_nature * (1 - by_nature), 1 / public))
    return shared > by_nature * public + 6 * chance


def id_digests(ids: Sequence[int | str]) -> UInts64:
    """Return a digest of every subject id, uint64 (n,): of its text, so that 5 is "5"."""
    texts = np.array([_short(str(one)) for one in ids], dtype=np.str_)
    if not len(texts) or not texts.dtype.itemsize:
        return np.zeros(len(texts), dtype=np.uint64)
    words = texts.view(np.uint32).reshape(len(texts), -1)
    return _digests(words, b"subjects")


def _short(text: str) -> str:
    """Return a text that is not much longer than most: the longest one sets the memory for all."""
    if len(text) <= _LONG_ID:
        return text
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=30).hexdigest() + "+"


def _digests(words: npt.NDArray[np.uint32], purpose: bytes) -> UInts64:
    """Return the digest of every row of words, uint32 (n, w), under the keys of `purpose`."""
    keys = _keys(words.shape[1], purpose)
    return np.asarray(_summed(words, keys[0, 1:], keys[1, 1:], keys[0, 0], keys[1, 0]))


@lru_cache(maxsize=64)
def _keys(words: int, purpose: bytes) -> UInts64:
    """Return the random multipliers for so many words, uint64 (2, words + 1).

    The multipliers of a word do not depend on the number of words: zeros at the end change nothing.
    """
    keys = [
        np.frombuffer(
            hashlib.shake_256(_key() + purpose + bytes([part])).digest(8 * (words + 1)), dtype="<u8"
        )
        for part in range(2)
    ]
    return np.array(keys, dtype=np.uint64)


@lru_cache(maxsize=1)
def _key() -> bytes:
    return fresh_key()


def _places(some: UInts64, others: UInts64) -> Ints:
    """Return where members of `others` stand in `some`; both sorted."""
    if not len(some) or not len(others):
        return np.zeros(0, dtype=np.int64)
    at = np.minimum(np.searchsorted(others, some), len(others) - 1)
    return np.flatnonzero(others[at] == some)


@compiled
def _summed(words, first, second, start, stop):  # type: ignore[no-untyped-def]
    """Return digests, uint64 (n,), of rows of 32-bit words (n, w); bits of -0.0 count as 0.

    `first` and `second` are the words' multipliers, uint64 (w,); `start` and `stop` are added.
    """
    out = np.empty(len(words), dtype=np.uint64)
    for i in range(len(words)):
        row = words[i]
        one, two = np.uint64(0), np.uint64(0)
        for j in range(len(row)):
            word = np.uint64(0) if row[j] == 0x80000000 else np.uint64(row[j])
            one += first[j] * word
            two += second[j] * word
        high = (one + start) & np.uint64(0xFFFFFFFF00000000)
        out[i] = high | ((two + stop) >> np.uint64(32))
    return out
