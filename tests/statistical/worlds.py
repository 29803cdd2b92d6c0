"""Two worlds, many times over in one data set, and what an attacker makes of the answers.

A *universe* is a direction of its own in feature space with one victim, some other people and some
queries; nobody in another universe is near. World A holds the victims, world B does not, all else
is equal. Noise is drawn for each query by itself, so every universe is an independent trial of the
same attack, and a data set of 500 universes gives 500 trials.

The attacker knows everything but whether the victims are there: it runs the public estimator on
both worlds without noise, which gives it the mean of every released vote in either world, and then
tests the released votes by their likelihood ratio, the best test there is.
"""

import warnings
from collections.abc import Callable
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace

import numpy as np
from scipy.stats import norm

from made_up import NoNoise
from statistical.power import CONFIDENCE, RUNS, UNIVERSES
from vicinal import IndKNNClassifier, testing
from vicinal.audit import Universes, rate_at_least
from vicinal.audit import universes as laid_out
from vicinal.errors import PrivacyWarning
from vicinal.mechanisms import randomness

WITH, WITHOUT = True, False

# Where a test says "the victim is there", between the predicted means 0 (not there) and 1.
THRESHOLDS = (0.25, 0.5, 0.75, 1.0)


def universes(victim, others, *, rounds=1, count=UNIVERSES):
    """Lay out `count` equal universes; in each of `rounds` all are asked once.

    `victim` and `others` are records as (cosine, label), the latter a subject each.
    """
    made = laid_out(victim, others, count=count, twice=False)
    return replace(made, queries=np.tile(made.queries, (rounds, 1)))


Interaction = Callable[[IndKNNClassifier, Universes, bool], np.ndarray]


def ask(classifier, world, victims):
    """Fit on one world, ask all queries, return the votes (rounds, universes, classes)."""
    classifier.fit(*world.people(victims), public=world.public)
    return votes_by_round(classifier, world)


def ask_between_visits(classifier, world, victims, visits=4):
    """Ask all queries again and again; in between the victims are erased and come back."""
    votes = [ask(classifier, world, victims)]
    ids = world.victims.subjects
    for _ in range(visits - 1):
        classifier.erase(ids)
        if victims:
            classifier.add(world.victims.X, world.victims.y, ids)
        votes.append(votes_by_round(classifier, world))
    return np.concatenate(votes)


def votes_by_round(classifier, world):
    with warnings.catch_warnings():
        # Attackers ask for more than was planned; they are warned, and the guarantee holds.
        warnings.simplefilter("ignore", PrivacyWarning)
        votes = classifier.query(world.queries).votes
    return votes.reshape(-1, world.count, votes.shape[1])


@contextmanager
def noise_from(source):
    """Let classifiers fitted inside draw from `source`; None changes nothing."""
    with nullcontext() if source is None else testing.noise_from(source):
        yield


@dataclass(frozen=True)
class VoteAttack:
    """The likelihood ratio of all votes of a universe, scaled to mean 0 without and 1 with.

    Attributes
    ----------
    baseline, shift : float64 (rounds, universes, classes)
        Mean votes without victims, and what victims add.
    """

    baseline: np.ndarray
    shift: np.ndarray

    @classmethod
    def prepare(cls, make, world, interaction=ask):
        with noise_from(NoNoise()):
            without, present = (interaction(make(), world, there) for there in (WITHOUT, WITH))
        return cls(without, present - without)

    def __call__(self, votes):
        gain = ((votes - self.baseline) * self.shift).sum(axis=(0, 2))
        return gain / np.square(self.shift).sum(axis=(0, 2))


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
    return rate_at_least(int(events.sum()), len(events), share)


def audit(make, world, attack, *, interaction=ask, source=None, runs=RUNS):
    """Carry out `attack` on fresh classifiers in both worlds and measure what it got."""
    with noise_from(source):
        scores = {
            there: np.concatenate([attack(interaction(make(), world, there)) for _ in range(runs)])
            for there in (WITH, WITHOUT)
        }
    return measure(scores[WITH], scores[WITHOUT], make().delta)


def audit_of_sums(released, delta, runs=RUNS):
    """Carry out the likelihood ratio test of sums: `released(present, noise)` returns all of them.

    The attacker knows everything but whether the victim is there, and so the sums without noise.
    """
    noise = randomness()
    base, there = (released(present, NoNoise()) for present in (WITHOUT, WITH))
    shift = there - base

    def scores(present):
        trials = [released(present, noise) for _ in range(runs * UNIVERSES)]
        return (np.array(trials) - base) @ shift / (shift @ shift)

    return measure(scores(WITH), scores(WITHOUT), delta)


def charge_only(patch, release, part):
    """Break a release: contributions are made, and of what they cost only a part is charged."""
    honest = release.contribute_and_charge

    def collect(self, near, people):
        before = people.remaining.copy()
        result = honest(self, near, people)
        people.remaining[:] = before - part(before - people.remaining)
        return result

    patch.setattr(release, "contribute_and_charge", collect)


def claimed_mu(make, world):
    """Return the mu that the budget of a fitted classifier stands for, sqrt(2 B)."""
    classifier = make()
    with noise_from(NoNoise()):
        ask(classifier, world, WITHOUT)
    return float(np.sqrt(2 * classifier.budget_))
