"""Random lives of a classifier: add, predict, forget, come back.

The short form lives 12 lives of 40 steps: it misses a fault that one life in ten shows with
probability .9^12 = .28, and so finds what most lives show; the soak of 300 longer ones misses that
one with 2e-14.
"""

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from vicinal import IndKNNClassifier
from vicinal.accounting.budget import UNITS

D, CLASSES, PEOPLE = 3, 3, 25
REFERENCE = np.random.default_rng(99).normal(size=(30, D))


def classifier(seed, **parameters):
    settings = {"epsilon": 3.0, "n_queries": 10_000, "n_neighbors": 8, "noise_multiplier": 0.6}
    return IndKNNClassifier(
        range(CLASSES), n_records=30, simulation_seed=seed, **{**settings, **parameters}
    )


class Life(RuleBasedStateMachine):
    """The model: units left by person, which may only fall, whoever comes and goes."""

    @initialize(
        seed=st.integers(0, 2**31),
        count=st.sampled_from(["public", "private"]),
        execution=st.sampled_from(["block", "sequential"]),
        kernel=st.sampled_from(["cosine", "rbf"]),
    )
    def start(self, seed, count, execution, kernel):
        self.rng = np.random.default_rng(seed)
        self.classifier = classifier(seed, neighbor_count=count, execution=execution, kernel=kernel)
        ids = self.rng.integers(0, PEOPLE, 20)
        self.classifier.fit(*self.records(20), ids, public=REFERENCE)
        self.ever = set(ids.tolist())
        self.here = dict.fromkeys(ids.tolist(), 0)
        for person in ids.tolist():
            self.here[person] += 1
        self.left = dict.fromkeys(ids.tolist(), UNITS)

    def records(self, size):
        return self.rng.normal(size=(size, D)), self.rng.integers(0, CLASSES, size)

    @property
    def ledger(self):
        return self.classifier._engine.shard.ledger

    def units(self, person):
        return int(self.ledger.remaining[self.ledger.list_slots([person])[0]])

    @rule(size=st.integers(1, 5))
    def add(self, size):
        ids = self.rng.integers(0, PEOPLE, size).tolist()
        self.classifier.add(*self.records(size), ids)
        for person in ids:
            self.here[person] = self.here.get(person, 0) + 1
            if person not in self.ever:
                self.ever.add(person)
                self.left[person] = UNITS

    @rule(size=st.integers(1, 6))
    def forget(self, size):
        ids = self.rng.integers(0, PEOPLE, size).tolist()
        gone = self.classifier.erase(ids)
        assert gone == sum(self.here.pop(person, 0) for person in set(ids))

    @rule(size=st.integers(1, 12))
    def predict(self, size):
        before = {person: self.units(person) for person in self.here}
        entries = len(self.ledger.charges_by_block)
        answers = self.classifier.predict(self.rng.normal(size=(size, D)))
        assert answers.shape == (size,)
        spent = 0
        for person in self.here:
            now = self.units(person)
            assert now <= before[person]
            spent += before[person] - now
            self.left[person] = now
        assert spent == sum(self.ledger.charges_by_block[entries:])

    @invariant()
    def nobody_is_below_zero_or_refilled(self):
        for person in self.here:
            assert 0 <= self.units(person) <= UNITS
            assert self.units(person) == self.left[person]

    @invariant()
    def columns_stay_aligned(self):
        shard = self.classifier._engine.shard
        assert len(shard) == len(shard.index) == sum(self.here.values())
        assert shard.subject_table.n_records.sum() == len(shard)
        features = shard.index.feature_rows._features
        for number, block in enumerate(features.blocks):
            rest = block[max(0, len(shard) - number * features._block_rows) :]
            assert not rest.ravel().view(np.int32).any(), "erased features must be overwritten"


class LongLife(Life):
    """The same, 300 lives of 100 steps."""


TestLife = Life.TestCase
TestLife.settings = settings(max_examples=12, stateful_step_count=40, deadline=None)
TestLongLife = pytest.mark.soak(LongLife.TestCase)
TestLongLife.settings = settings(max_examples=300, stateful_step_count=100, deadline=None)


def test_coming_back_does_not_refill():
    rng = np.random.default_rng(3)
    model = classifier(0, noise_multiplier=0.05)
    X, y = rng.normal(size=(20, D)), rng.integers(0, CLASSES, 20)
    model.fit(X, y, np.arange(20), public=REFERENCE)
    model.predict(rng.normal(size=(50, D)))
    ledger = model._engine.shard.ledger
    before = ledger.remaining.copy()
    assert model.erase(np.arange(20)) == 20
    assert not ledger.remaining.any()
    model.add(X, y, np.arange(20))
    after = np.array([ledger.remaining[ledger.list_slots([p])[0]] for p in range(20)])
    np.testing.assert_array_equal(np.sort(after), np.sort(before))
    assert (after < UNITS // 2).any()


def test_records_without_ids_are_numbered_and_never_share_an_id():
    rng = np.random.default_rng(3)
    model = classifier(0).fit(rng.normal(size=(4, D)), [0, 1, 2, 0], public=REFERENCE)
    model.add(rng.normal(size=(2, D)), [1, 1])
    shard = model._engine.shard
    assert shard.subject_table.n_records.max() == 1
    assert model.erase([4, "5"]) == 2
    model.add(rng.normal(size=(1, D)), [1])
    assert model.erase([6]) == 1, "a number that somebody had is not given out again"
