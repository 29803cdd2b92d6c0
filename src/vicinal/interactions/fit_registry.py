"""Registry of the fits of this process, which refuses a second fit on records of an earlier one.

A guarantee is for one *interaction*: all releases of one fitted object. A second interaction with
the same subjects adds its loss to the first. Each fit therefore claims its records here. A claim
that overlaps with an earlier one is refused unless both declared in advance that several
interactions share one budget. This guards against mistakes; the guarantee does not depend on it.
docs/decisions/0045-refusals-and-interactions.md lists the overlaps that it does not notice.
"""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field

import numpy as np

from vicinal.errors import PrivacyRefused
from vicinal.interactions.row_matching import RecordDigests

Declaration = tuple[Hashable, int]
"""The identity of a plan, and how many interactions that carry it out share the budget."""


@dataclass(eq=False)
class _Claim:
    """A claim on records, and the objects that may still release something from them.

    `size`: the first noisy number of records, once released.
    """

    records: RecordDigests
    declaration: Declaration
    released: bool = False
    size: float | None = None
    holders: weakref.WeakSet[Interaction] = field(default_factory=weakref.WeakSet)

    @property
    def counts(self) -> bool:
        """Whether something was released, or still can be."""
        return self.released or self.size is not None or len(self.holders) > 0


class Interaction:
    """A fitted object's hold on its claim. The claim lapses with it if nothing was released."""

    def __init__(self, claim: _Claim) -> None:
        self._claim = claim
        self.withdrawn = False
        claim.holders.add(self)

    def release(self) -> None:
        """Record that something is going to be released; call this before noise is sampled.

        Raises PrivacyRefused after a withdrawal, since another interaction may have the records.
        """
        if self.withdrawn:
            raise PrivacyRefused("The estimator was fitted again, so it answers as it is now.")
        self._claim.released = True

    def withdraw(self) -> None:
        """Give up the claim, unless something was released."""
        if not self._claim.released:
            self.withdrawn = True
            self._claim.holders.discard(self)

    def first_size(self, estimate: float) -> float:
        """Return the first noisy number of these records, which refused fits cannot sample anew."""
        if self._claim.size is None:
            self._claim.size = estimate
        return self._claim.size


@dataclass
class FitRegistry:
    """All interactions of a process. All methods may be called from any thread.

    Each method raises PrivacyRefused if a record is in too many interactions, or in one with
    another declaration.
    """

    _claims: list[_Claim] = field(default_factory=list)
    _lock: threading.RLock = field(default_factory=threading.RLock)

    def begin(
        self,
        records: RecordDigests,
        declaration: Declaration,
        replacing: Interaction | None,
        *,
        sized: bool,
    ) -> Interaction:
        """Claim records for a new interaction.

        - `replacing`: the previous interaction of the same object, which does not count if it
          released nothing.
        - `sized`: whether a noisy number of records will be released and charged. If it is all that
          these records have released, and no other object holds them, it is released again.
        """
        new = _Claim(records, declaration)
        previous = None if replacing is None or replacing._claim.released else replacing._claim
        with self._lock:
            claim = (self._find_sized(new, previous) if sized else None) or new
            unused = previous if previous is not None and previous.size is None else None
            self._check(new, (claim, unused))
            return self._register_claim(claim)

    def resume(self, records: RecordDigests, declaration: Declaration) -> Interaction:
        """Claim records for an interaction that continues after its earlier holder was cut off."""
        new = _Claim(records, declaration)
        with self._lock:
            self._check(new, [claim for claim in self._claims if claim.declaration == declaration])
            interaction = self._register_claim(new)
            interaction.release()
            return interaction

    def extend(
        self, interaction: Interaction, records: RecordDigests, *, same_records: bool
    ) -> None:
        """Add records to a claim, or with `same_records` other features of its records."""
        claim = interaction._claim
        with self._lock:
            joined = claim.records.join(records, same_records=same_records)
            self._check(_Claim(joined, claim.declaration), (claim,))
            claim.records = joined

    def _register_claim(self, claim: _Claim) -> Interaction:
        if claim not in self._claims:
            self._claims.append(claim)
        return Interaction(claim)

    def _find_sized(self, new: _Claim, previous: _Claim | None) -> _Claim | None:
        """Return the free claim on the same records and budget that released only the size."""
        for claim in self._claims:
            only_sized = claim.size is not None and not claim.released
            is_free = claim is previous or not claim.holders
            same_budget = claim.declaration == new.declaration
            if only_sized and is_free and same_budget and claim.records.equals(new.records):
                return claim
        return None

    def _check(self, new: _Claim, exempt: Sequence[_Claim | None]) -> None:
        if self._find_problem(new, exempt):
            gc.collect()  # An unreachable fitted object may wait in a reference cycle.
            if problem := self._find_problem(new, exempt):
                raise PrivacyRefused(problem)

    def _find_problem(self, new: _Claim, exempt: Sequence[_Claim | None]) -> str:
        """Return why a claim must be refused next to all but the exempt claims, or ""."""
        self._claims = [claim for claim in self._claims if claim.counts]
        max_interactions = new.declaration[1]
        row_uses = np.zeros(len(new.records.rows), dtype=np.int64)
        id_uses = np.zeros(0 if new.records.ids is None else len(new.records.ids), dtype=np.int64)
        for claim in self._claims:
            if any(claim is exempted for exempted in exempt):
                continue
            shared, uses = new.records.find_shared_ids(claim.records), id_uses
            if shared is None:
                shared, uses = new.records.find_shared_rows(claim.records), row_uses
            if not shared.any():
                continue
            if claim.declaration != new.declaration:
                both_single = max_interactions == claim.declaration[1] == 1
                return _MESSAGE if both_single else _OTHER_DECLARATION + _MESSAGE
            uses += shared
        if 1 + int(row_uses.max(initial=0)) + int(id_uses.max(initial=0)) <= max_interactions:
            return ""
        if max_interactions == 1:
            return _MESSAGE
        return f"All {max_interactions} declared interactions have taken place. {_MESSAGE}"


_MESSAGE = (
    "Some of these records took part in an earlier interaction of this process, and the losses of "
    "two interactions add up. To choose models or parameters, simulate: set 'simulation_seed', on "
    "data that needs no protection. To answer the same people several times, declare in every "
    "estimator how many interactions share the budget, as interactions=2, before the first of "
    "them. If these are different people, pass 'subjects' to both fits, with different ids. "
    "Records that are public need interactions='public'."
)
_OTHER_DECLARATION = (
    "Interactions share a budget only with the same declaration and the same plan. "
)

REGISTRY = FitRegistry()
"""The interactions of this process."""
