"""The registry of fits: what counts as an interaction, and who shares one."""

import gc

import numpy as np
import pytest

from vicinal.errors import PrivacyRefused
from vicinal.interactions.fit_registry import FitRegistry
from vicinal.interactions.row_matching import RecordDigests

pytestmark = [pytest.mark.counts_interactions, pytest.mark.quick]
ROWS = np.random.default_rng(0).normal(size=(200, 3))
ONCE, TWICE = ("plan", 1), ("plan", 2)


def records(rows=slice(None), ids=None):
    return RecordDigests.from_records(ROWS[rows], ids)


def begin(registry, claimed, declaration=ONCE, replacing=None, counted=False):
    return registry.begin_interaction(claimed, declaration, replacing, releases_noisy_count=counted)


def test_a_claim_counts_while_it_is_held_and_for_ever_once_something_was_released():
    registry = FitRegistry()
    held = begin(registry, records())
    with pytest.raises(PrivacyRefused):
        begin(registry, records())
    del held
    held = begin(registry, records())
    held.begin_release()
    del held
    gc.collect()
    with pytest.raises(PrivacyRefused):
        begin(registry, records())


def test_a_claim_that_does_not_count_any_more_is_dropped():
    """Fails if digests of records stay in memory for ever, after as many fits as there are."""
    registry = FitRegistry()
    for _ in range(3):
        held = begin(registry, records())
        held.withdraw()
    begin(registry, records())
    assert len(registry._claims) == 1


def test_a_withdrawn_claim_does_not_count_and_releases_nothing():
    """Fails if a withdrawal is ignored while something still refers to the interaction."""
    registry = FitRegistry()
    first = begin(registry, records())
    first.withdraw()
    second = begin(registry, records())
    with pytest.raises(PrivacyRefused, match="fitted again"):
        first.begin_release()
    second.begin_release()
    second.withdraw()
    with pytest.raises(PrivacyRefused):
        begin(registry, records(), replacing=second)


def test_an_interaction_that_is_resumed_counts_as_released():
    registry = FitRegistry()
    begin(registry, records()).begin_release()
    with pytest.raises(PrivacyRefused):
        registry.resume_interaction(records(), ("another plan", 1))
    registry.resume_interaction(records(), ONCE)
    other = FitRegistry()
    other.resume_interaction(records(), ONCE)
    with pytest.raises(PrivacyRefused):
        begin(other, records())


def test_only_the_same_records_and_budget_repeat_a_noisy_size():
    registry = FitRegistry()
    first = begin(registry, records(), counted=True)
    assert first.keep_first_noisy_count(100.0) == 100.0
    with pytest.raises(PrivacyRefused):  # while it is held
        begin(registry, records(), counted=True)
    first.withdraw()
    assert begin(registry, records(), counted=True).keep_first_noisy_count(101.0) == 100.0
    for claimed, declaration in ((records(slice(1, 200)), ONCE), (records(), TWICE)):
        with pytest.raises(PrivacyRefused):
            begin(registry, claimed, declaration, counted=True)


def test_declared_interactions_are_counted_for_each_record():
    """Disjoint groups and all of them together: each record is in two interactions."""
    for ids in (None, np.arange(200)):
        registry, held = FitRegistry(), []
        for rows in (slice(0, 100), slice(100, 200), slice(0, 200)):
            claimed = records(rows, None if ids is None else ids[rows])
            held.append(begin(registry, claimed, TWICE))
        with pytest.raises(PrivacyRefused, match="All 2 declared"):
            begin(registry, records(slice(50), None if ids is None else ids[:50]), TWICE)


def test_ids_decide_where_both_have_them():
    registry = FitRegistry()
    held = [begin(registry, records(ids=range(200)))]
    held.append(begin(registry, records(ids=range(200, 400))))
    for claimed in (records(ids=[7] * 200), records()):
        with pytest.raises(PrivacyRefused, match="'subjects' to both fits, with different ids"):
            begin(registry, claimed)


def test_a_replaced_interaction_counts_only_once_it_has_released_something():
    registry, counted = FitRegistry(), FitRegistry()
    replaced = begin(registry, records())
    begin(registry, records(), replacing=replaced)
    first = begin(counted, records(), counted=True)
    first.keep_first_noisy_count(100.0)
    with pytest.raises(PrivacyRefused):
        begin(counted, records(), replacing=first)


def test_a_claim_is_not_extended_to_records_of_another_interaction():
    registry = FitRegistry()
    other = begin(registry, records(slice(100)))
    extended = begin(registry, records(slice(100, 200)))
    with pytest.raises(PrivacyRefused):
        registry.extend_claim(extended, records(slice(50, 100)), same_records=False)
    other.withdraw()
    registry.extend_claim(extended, records(slice(50, 100)), same_records=False)
    with pytest.raises(PrivacyRefused):
        begin(registry, records(slice(50, 100)))


def test_an_interaction_in_an_unreachable_reference_cycle_does_not_count():
    """Fails if the records of a deleted estimator stay claimed until a garbage collection."""
    was_enabled = gc.isenabled()
    gc.disable()  # else a collection could come between, by luck
    try:
        registry = FitRegistry()
        cycle = [begin(registry, records())]
        cycle.append(cycle)
        del cycle
        begin(registry, records())
    finally:
        if was_enabled:
            gc.enable()


@pytest.mark.parametrize(
    ("first", "second", "is_shared"),
    [(ONCE, ("another", 1), False), (ONCE, TWICE, True), (TWICE, ("another", 2), True)],
)
def test_a_refusal_names_declarations_only_where_several_interactions_share_a_budget(
    first, second, is_shared
):
    for declarations in ((first, second), (second, first)):
        registry = FitRegistry()
        held = begin(registry, records(), declarations[0])
        with pytest.raises(PrivacyRefused) as refusal:
            begin(registry, records(), declarations[1])
        assert ("with the same declaration" in str(refusal.value)) == is_shared
        held.withdraw()
