"""Audits through the public estimator: an attacker learns no more than is claimed, and nearly it.

Noise is the exact one, from the system's entropy, in every audit here.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from statistical.power import BROKEN_RUNS, COUNT_RUNS, COUNT_UNIVERSES, RUNS, UNIVERSES
from statistical.worlds import (
    Interaction,
    VoteAttack,
    ask,
    ask_between_visits,
    audit,
    charge_only,
    claimed_mu,
    universes,
)
from vicinal import IndKNNClassifier, testing
from vicinal.accounting import zcdp_budget as budget
from vicinal.audit import Universes
from vicinal.engine import Shard
from vicinal.ledger import MemoryLedger
from vicinal.mechanisms import NoisyCount, VoteRelease

pytestmark = [pytest.mark.statistical, pytest.mark.slow, pytest.mark.quick]

EPSILON, DELTA = 4.0, 1e-5
BUDGET = budget(EPSILON, 0.99 * DELTA, "gdp")
PAPER_BUDGET = budget(EPSILON, DELTA, "rdp")
LASTS = 2.5
"""Queries that a victim's budget lasts for: two whole contributions and a partial one."""


@dataclass(frozen=True)
class Case:
    """An estimator, two worlds, and how the attacker goes about it."""

    parameters: dict[str, Any]
    world: Universes
    interaction: Interaction = ask
    attack: Any = None

    def make(self):
        return IndKNNClassifier(**self.parameters)

    def measured(self, runs):
        attack = self.attack or VoteAttack.prepare(self.make, self.world, self.interaction)
        return audit(self.make, self.world, attack, interaction=self.interaction, runs=runs)


def default_parameters(norm_of_victim=1.0, **others):
    """Return parameters under which a victim of that norm is spent after `LASTS` queries."""
    neighbors = 4
    noise = norm_of_victim * np.sqrt(LASTS / (2 * BUDGET))
    return {
        "classes": range(3),
        "epsilon": EPSILON,
        "delta": DELTA,
        "n_queries": 10_000,
        "n_neighbors": neighbors,
        "n_records": neighbors * UNIVERSES,  # one reference point per universe: rank 1
        "noise_multiplier": noise / np.sqrt(neighbors),
        **others,
    }


def paper_parameters(n_queries, noise_multiplier, classes=3):
    """Return the parameters of the paper's preset, with a declared size."""
    made = IndKNNClassifier.zhu2023(
        range(classes), EPSILON, DELTA, n_queries, tau=0.8, noise_multiplier=noise_multiplier
    )
    return {**made.get_params(), "n_records": 1000}


def one_record():
    return Case(default_parameters(), universes([(1.0, 0)], [(0.9, 1)] * 3, rounds=4))


def several_records():
    """A subject with three records and two labels; the votes move in two coordinates."""
    victim = [(1.0, 0), (0.98, 0), (0.95, 1)]
    length = float(np.hypot(1.98, 0.95))
    return Case(default_parameters(length), universes(victim, [(0.9, 2)] * 2, rounds=4))


def erased_and_back():
    """Victims come and go between rounds of queries, and should not get their budget back."""
    world = universes([(1.0, 0)], [(0.9, 1)], rounds=3)
    return Case(default_parameters(), world, ask_between_visits)


def rbf_kernel():
    parameters = default_parameters(kernel="rbf", bandwidth=1.0, norm_bound=1.5)
    return Case(parameters, universes([(1.0, 0)], [(0.9, 1)] * 2, rounds=4))


def paper_votes():
    """The paper's preset: counts cost 3 B / T each, the rest of the budget goes to votes."""
    multiplier = np.sqrt(LASTS / (2 * PAPER_BUDGET * 30))
    world = universes([(1.0, 0)], [(0.9, 1)] * 8, rounds=3)
    return Case(paper_parameters(400, multiplier), world)


MANY, COMPANY = 30, 80


@dataclass(frozen=True)
class CountAttack:
    """Reads the count off the *size* of the noise, in classes where nobody votes.

    The count itself never leaves. Noise of scale sigma2 sqrt(K) on 99 idle classes tells K to
    about 14 %, and by the monotone likelihood ratio its mean square is the best test of K.
    """

    multiplier: float

    def __call__(self, votes):
        seen = np.square(votes[0, :, 1:]).mean(axis=1) / self.multiplier**2
        return (seen - COMPANY) / MANY


def paper_count():
    """A subject with 30 records spends all of its budget on a single count."""
    multiplier = 1.0
    n_queries = 3 * MANY**2 + 1
    world = universes([(1.0, 0)] * MANY, [(0.9, 0)] * COMPANY, rounds=1, count=COUNT_UNIVERSES)
    parameters = paper_parameters(n_queries, multiplier, classes=100)
    return Case(parameters, world, attack=CountAttack(multiplier))


HONEST = [one_record, several_records, erased_and_back, rbf_kernel, paper_votes]


def claim_beside(measured, case):
    """Return the claimed mu; print both (``pytest -rP`` shows them)."""
    claim = claimed_mu(case.make, case.world)
    print(f"measured mu {measured.mu:.3f} and epsilon {measured.epsilon:.3f}, claimed {claim:.3f}")
    return claim


def check_leak(case, runs, share=2):
    """Check that no more than claimed is measured, and more than a part of it: mu / `share`."""
    measured = case.measured(runs)
    claim = claim_beside(measured, case)
    assert measured.mu <= claim
    assert measured.epsilon <= EPSILON
    assert measured.mu > claim / share


@pytest.mark.parametrize("case", HONEST)
def test_votes_leak_no_more_than_claimed_and_nearly_that(case):
    """Fails if an attack gains more than the budget allows; or too little to be a test at all.

    The victims spend their whole budget, so the measured mu must come near sqrt(2 B).
    """
    check_leak(case(), RUNS)


def test_the_noise_scale_leaks_no_more_of_the_count_than_claimed():
    """Fails if the private count decides the noise scale by more than its charge pays for.

    Somebody must tell K from noise, which loses a tenth of mu; hence a third, not half.
    """
    check_leak(paper_count(), COUNT_RUNS, 3)


def halve_the_noise(patch):
    patch.setattr("vicinal.planning._engine_factory.randomness", lambda _: testing.weak_noise(2))


def skip_the_charge(patch):
    """Contributions are made, and budgets are put back as they were."""
    charge_only(patch, VoteRelease, np.zeros_like)


def refill_on_return(patch):
    """Whoever is erased is forgotten for good, and comes back as a newcomer."""
    honest = MemoryLedger.remove

    def dismiss(self, subjects):
        honest(self, subjects)
        self._departed.clear()

    patch.setattr(MemoryLedger, "remove", dismiss)


def take_the_radius_from_private_records(patch):
    """The nearest private record decides the radius: its presence pushes others out."""
    honest = Shard.parts

    def parts(self, queries, thresholds):  # noqa: ARG001 (the public radius is thrown away)
        # Below 2^53 whole numbers are exact in float64, whose product is far faster than int64's.
        exact = queries.astype(np.float64) @ self.index.features.T.astype(np.float64)
        return honest(self, queries, exact.max(axis=1).astype(np.int64))

    patch.setattr(Shard, "parts", parts)


def answer_empty_neighbourhoods_without_noise(patch):
    honest = VoteRelease.publish

    def publish(self, votes):
        return np.where(votes.any(axis=1)[:, None], honest(self, votes), 0.0)

    patch.setattr(VoteRelease, "publish", publish)


def publish_the_exact_count(patch):
    """The count is charged for, but its noise is left out: the scale of the votes tells it."""
    patch.setattr(NoisyCount, "publish", lambda self, counts: counts / self.grid.steps)


def one_record_asked_often():
    return Case(default_parameters(), universes([(1.0, 0)], [(0.9, 1)], rounds=10))


def lonely_record():
    return Case(default_parameters(), universes([(1.0, 0)], [(0.1, 1)], rounds=4))


def crowd_behind_the_record():
    return Case(default_parameters(), universes([(1.0, 0)], [(0.9, 1)] * 8, rounds=4))


BROKEN = [
    pytest.param(halve_the_noise, one_record, id="noise halved"),
    pytest.param(skip_the_charge, one_record_asked_often, id="charge skipped"),
    pytest.param(refill_on_return, erased_and_back, id="budget refilled by coming back"),
    pytest.param(
        take_the_radius_from_private_records, crowd_behind_the_record, id="private radius"
    ),
    pytest.param(
        answer_empty_neighbourhoods_without_noise, lonely_record, id="empty answered exactly"
    ),
    pytest.param(publish_the_exact_count, paper_count, id="exact count decides the scale"),
]


@pytest.mark.parametrize(("break_it", "case"), BROKEN)
def test_a_broken_version_is_caught(break_it, case, monkeypatch):
    case = case()
    break_it(monkeypatch)
    runs = 2 * BROKEN_RUNS if case.attack else BROKEN_RUNS
    measured = case.measured(runs)
    assert measured.mu > claim_beside(measured, case)


@pytest.mark.parametrize("case", [one_record_asked_often, lonely_record, crowd_behind_the_record])
def test_the_honest_version_passes_what_the_broken_one_fails(case):
    """Fails if one of the faults above is there; or if the audit cries wolf."""
    case = case()
    measured = case.measured(BROKEN_RUNS)
    assert measured.mu <= claim_beside(measured, case)
    assert measured.epsilon <= EPSILON


def tiny_epsilon():
    """A single vote would cost 100,000 budgets; victims must add next to nothing."""
    parameters = default_parameters(epsilon=0.01, noise_multiplier=0.25)
    return Case(parameters, universes([(1.0, 0)], [(0.9, 1)], rounds=4))


def many_records_on_a_fine_grid():
    """Eight equal records under a tiny delta: their squared sum passes 2^63 grid steps."""
    count, neighbors = 200, 100
    parameters = default_parameters(
        classes=range(10), epsilon=1.0, delta=1e-12, n_queries=1000,
        n_neighbors=neighbors, n_records=neighbors * count, noise_multiplier=2.0,
    )  # fmt: skip
    return Case(parameters, universes([(1.0, 0)] * 8, [(0.9, 1)], rounds=12, count=count))


@dataclass(frozen=True)
class PlainAttack:
    """The mean vote of a class, over what victims would add if it cost them nothing."""

    label: int
    size: float

    def __call__(self, votes):
        return votes[:, :, self.label].mean(axis=0) / self.size


def many_records_counted_on_a_fine_grid():
    """A hundred records: a count that costs 30 budgets, whose square passes 2^63 grid steps.

    Nobody can pay that, so victims must not take part at all.
    """
    made = IndKNNClassifier.zhu2023(range(3), 1.0, 1e-12, 1000, tau=0.8, noise_multiplier=5.0)
    parameters = {**made.get_params(), "n_records": 1000}
    world = universes([(1.0, 0)] * 100, [(0.9, 1)], rounds=4, count=200)
    return Case(parameters, world, attack=PlainAttack(label=0, size=50.0))


CORNERS = [tiny_epsilon, many_records_on_a_fine_grid, many_records_counted_on_a_fine_grid]


@pytest.mark.parametrize("case", CORNERS)
def test_corners_of_the_arithmetic_leak_no_more_than_claimed(case):
    """Fails if a cost wraps around: nobody could pay it, and it would look like a gift."""
    case = case()
    measured = case.measured(BROKEN_RUNS)
    assert measured.mu <= claim_beside(measured, case)
    assert measured.epsilon <= case.parameters["epsilon"]
