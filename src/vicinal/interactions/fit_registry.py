"""Registry of the fits of this process, which refuses a second fit on records of an earlier one.

A guarantee is for one *interaction*: all releases of one fitted object. A second interaction with
the same subjects adds its loss to the first. Each fit therefore claims its records here: a claim is
the registry's entry of records in use. A claim that overlaps with an earlier one is refused
unless both fits declared in advance that several interactions share one budget. This guards against
mistakes; the guarantee does not depend on it. docs/decisions/0045-refusals-and-interactions.md
lists the overlaps that it does not notice.

The first release of an interaction may be the noisy number of its records. If it is the only one,
an equal later claim of the same plan *reuses* the earlier claim, with its noisy number.
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

SharedBudgetDeclaration = tuple[Hashable, int]
"""The identity of a plan, and the largest number of interactions that share its budget."""


@dataclass(eq=False)
class _Claim:
    """A claim on records, and the objects that may still release something from them.

    - `is_released`: whether anything except `noisy_count` was released.
    - `noisy_count`: the first noisy number of the records that was released; None before that.
    - `interactions`: those with this claim that exist and are not withdrawn.
    """

    records: RecordDigests
    declaration: SharedBudgetDeclaration
    is_released: bool = False
    noisy_count: float | None = None
    interactions: weakref.WeakSet[Interaction] = field(default_factory=weakref.WeakSet)

    @property
    def is_active(self) -> bool:
        """Whether something was released, or still can be."""
        return self.is_released or self.noisy_count is not None or len(self.interactions) > 0


class Interaction:
    """The use of a claim by one fitted object.

    The claim is dropped when its last fitted object is deleted and nothing was released.
    `is_withdrawn`: whether the claim was given up, so that a later fit may claim the records.
    """

    def __init__(self, claim: _Claim) -> None:
        self._claim = claim
        self.is_withdrawn = False
        claim.interactions.add(self)

    def begin_release(self) -> None:
        """Mark the claim as released; call this before the noise of a release is sampled.

        Raises PrivacyRefused after a withdrawal: another interaction may have claimed the records.
        """
        if self.is_withdrawn:
            raise PrivacyRefused("The estimator was fitted again: this fit can release no answers.")
        self._claim.is_released = True

    def withdraw(self) -> None:
        """Give up the claim; no effect if anything except a noisy count was released.

        After a noisy count the claim stays in the registry; an equal later claim reuses it.
        """
        if not self._claim.is_released:
            self.is_withdrawn = True
            self._claim.interactions.discard(self)

    def keep_first_noisy_count(self, noisy_count: float) -> float:
        """Return the claim's first noisy number of records, so that no second one is released.

        `noisy_count`: a fresh noisy number of the records, which is kept if it is the first.
        """
        if self._claim.noisy_count is None:
            self._claim.noisy_count = noisy_count
        return self._claim.noisy_count


@dataclass
class FitRegistry:
    """All claims of this process. All methods may be called from any thread.

    Two claims overlap if they share ids or, unless both have ids, more rows than chance explains.

    Arguments: `records`, digests of all records that an interaction uses; `declaration`, its plan
    and the largest number of interactions that share the plan's budget; `new`, a claim that is not
    yet registered; `exempt`, claims that `new` replaces or continues, so that they are no overlaps.
    The public methods raise PrivacyRefused if a record is in too many interactions, or in one with
    another declaration.
    """

    _claims: list[_Claim] = field(default_factory=list)
    _lock: threading.RLock = field(default_factory=threading.RLock)

    def begin_interaction(
        self,
        records: RecordDigests,
        declaration: SharedBudgetDeclaration,
        replacing: Interaction | None,
        *,
        releases_noisy_count: bool,
    ) -> Interaction:
        """Return a new interaction, which claims `records` or shares an earlier claim on them.

        - `replacing`: the previous interaction of the same fitted object, or None. If it released
          nothing, its claim is not regarded as an overlap.
        - `releases_noisy_count`: whether a noisy number of the records will be released and
          charged. An earlier one is reused if the records have released nothing else and no other
          object claims them.
        """
        new = _Claim(records, declaration)
        replaced = None if replacing is None else replacing._claim
        with self._lock:
            reused = self._find_reusable_claim(new, replaced) if releases_noisy_count else None
            exempt = [] if reused is None else [reused]
            if replaced is not None and not replaced.is_released and replaced.noisy_count is None:
                exempt.append(replaced)
            self._refuse_overlap(new, exempt)
            if reused is not None:
                return Interaction(reused)
            self._claims.append(new)
            return Interaction(new)

    def resume_interaction(
        self, records: RecordDigests, declaration: SharedBudgetDeclaration
    ) -> Interaction:
        """Return an interaction that claims `records` and continues one that was interrupted.

        The fits before the interruption, in this process or an ended one, have already released
        something. Earlier claims with the same declaration are not regarded as overlaps.
        """
        new = _Claim(records, declaration)
        with self._lock:
            exempt = [claim for claim in self._claims if claim.declaration == declaration]
            self._refuse_overlap(new, exempt)
            self._claims.append(new)
            new.is_released = True
            return Interaction(new)

    def extend_claim(
        self, interaction: Interaction, added: RecordDigests, *, same_records: bool
    ) -> None:
        """Add digests of records to the claim of an `interaction`.

        `same_records`: whether `added` are digests of the records that are already claimed,
        possibly with other features; otherwise they are those of further records.
        """
        claim = interaction._claim
        with self._lock:
            merged = claim.records.merge(added, same_records=same_records)
            self._refuse_overlap(_Claim(merged, claim.declaration), (claim,))
            claim.records = merged

    def _find_reusable_claim(self, new: _Claim, replaced: _Claim | None) -> _Claim | None:
        """Return a registered claim equal to `new` that released only its noisy number, or None.

        It is `replaced`, the claim that `new` replaces (or None), or has no interaction any more.
        """
        for claim in self._claims:
            is_counted_only = claim.noisy_count is not None and not claim.is_released
            is_free = claim is replaced or not claim.interactions
            same_budget = claim.declaration == new.declaration
            if is_counted_only and is_free and same_budget and claim.records.equals(new.records):
                return claim
        return None

    def _refuse_overlap(self, new: _Claim, exempt: Sequence[_Claim]) -> None:
        """Drop inactive claims; raise PrivacyRefused if there is a reason to refuse `new`.

        Before a refusal, fitted objects that are no longer in use are deleted.
        """
        reason = self._find_refusal_reason(new, exempt)
        if reason:
            gc.collect()  # An unreachable fitted object may wait in a reference cycle.
            reason = self._find_refusal_reason(new, exempt)
        self._claims = [claim for claim in self._claims if claim.is_active]
        if reason:
            raise PrivacyRefused(reason)

    def _find_refusal_reason(self, new: _Claim, exempt: Sequence[_Claim]) -> str:
        """Return the reason to refuse the claim `new`, or "" if there is none.

        It overlaps with a claim of another declaration, or too many claims use its records: the
        largest number that share a row, plus the largest that share an id, plus one for `new`, is
        above the declared number of interactions.
        """
        _, max_interactions = new.declaration
        row_uses = np.zeros(len(new.records.rows), dtype=np.int64)
        id_uses = np.zeros(0 if new.records.ids is None else len(new.records.ids), dtype=np.int64)
        for claim in self._claims:
            if not claim.is_active or any(claim is exempted for exempted in exempt):
                continue
            is_shared, uses = new.records.find_shared_ids(claim.records), id_uses
            if is_shared is None:
                is_shared, uses = new.records.find_shared_rows(claim.records), row_uses
            if not is_shared.any():
                continue
            if claim.declaration != new.declaration:
                both_single = max_interactions == claim.declaration[1] == 1
                return _MESSAGE if both_single else _OTHER_DECLARATION + _MESSAGE
            uses += is_shared
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
"""The claims of this process."""
