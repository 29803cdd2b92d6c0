"""Two worlds, many times over in one data set, and what an attacker makes of the answers.

A *universe* is a direction of its own in feature space with one victim, some other people and some
queries; nobody in another universe is near. World A holds the victims, world B does not, all else
is equal. Noise is drawn for each query by itself, so every universe is an independent trial of the
same attack, and a data set of 500 universes gives 500 trials.

The attacker knows everything but whether the victims are there.
"""

from dataclasses import dataclass, replace

import numpy as np
from scipy.stats import norm

from statistical.power import CONFIDENCE, RUNS, UNIVERSES
from vicinal.audit.claims import compute_lower_rate_bounds
from vicinal.audit.interactions import build_attack_copies

WITH, WITHOUT = True, False

# Where a test says "the victim is there", between the predicted means 0 (not there) and 1.
THRESHOLDS = (0.25, 0.5, 0.75, 1.0)


def universes(victim, others, *, rounds=1, count=UNIVERSES):
    """Lay out `count` equal universes; in each of `rounds` all are asked once.

    `victim` and `others` are records as (cosine, label), the latter a subject each.
    """
    made = build_attack_copies(victim, others, n_copies=count, duplicates_background=False)
    return replace(made, queries=np.tile(made.queries, (rounds, 1)))


@dataclass(frozen=True)
class Measured:
    """Lower bounds on what an attack got, at confidence `CONFIDENCE` together."""

    mu: float
    epsilon: float


def measure(with_victims, without, delta):
    """Return lower bounds on mu and on epsilon at `delta` from the scores of both worlds.

    Each threshold is a test; Clopper and Pearson's bounds hold for all error rates at once. Any
    test of a mu-GDP mechanism has Phi^-1(TPR) - Phi^-1(FPR) <= mu, and of an (epsilon, delta)-DP
    one TPR <= e^epsilon FPR + delta, in both directions.
    """
    share = (1 - CONFIDENCE) / (2 * len(THRESHOLDS))
    mu, epsilon = 0.0, 0.0
    for threshold in THRESHOLDS:
        found = at_least(with_victims > threshold, share)
        cleared = at_least(without <= threshold, share)
        mu = max(mu, norm.ppf(found) + norm.ppf(cleared))
        for power, error in ((found, 1 - cleared), (cleared, 1 - found)):
            if power > delta:
                epsilon = max(epsilon, np.log((power - delta) / error))
    return Measured(float(mu), float(epsilon))


def at_least(events, share):
    """Return Clopper and Pearson's lower bound on the rate of `events`, wrong at rate `share`."""
    return compute_lower_rate_bounds(int(events.sum()), len(events), share)


def audit(make, world, attack, *, interaction, runs=RUNS):
    """Carry out `attack` on fresh classifiers in both worlds and measure what it got."""
    scores = {
        there: np.concatenate([attack(interaction(make(), world, there)) for _ in range(runs)])
        for there in (WITH, WITHOUT)
    }
    return measure(scores[WITH], scores[WITHOUT], make().delta)


def charge_only(patch, release, part):
    """Break a release: contributions are made, and of what they cost only a part is charged."""
    honest = release.contribute_and_charge

    def collect(self, near, people):
        before = people.remaining.copy()
        result = honest(self, near, people)
        people.remaining[:] = before - part(before - people.remaining)
        return result

    patch.setattr(release, "contribute_and_charge", collect)
