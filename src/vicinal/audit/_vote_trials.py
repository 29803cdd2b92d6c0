"""Attacks on noisy sums, labels and private counts of Ind-KNN, by the likelihood ratio."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping

import numpy as np
from scipy.special import log_ndtr

from vicinal._arrays import Floats
from vicinal.audit._damage import Damage, damages
from vicinal.audit._trials import AuditTrial
from vicinal.audit._visits import Visits
from vicinal.testing import refill

MANY, COMPANY = 30, 5
"""Records of the subject at risk, and of others, where neighbours are counted."""

_NODES, _NODE_WEIGHTS = np.polynomial.hermite_e.hermegauss(81)


class UniversesTrial(AuditTrial):
    """An attack on universes, of the installed version and of broken ones.

    - `visits`: the worlds.
    - `world`: where the subject stands, in words.
    - `damages`: broken versions to try as well, by name.
    """

    def __init__(self, visits: Visits, world: str, damages: Mapping[str, Damage]) -> None:
        self.world = world
        self._visits, self._damages = visits, damages
        self.claim = visits.claim
        self._prepare()


class VotesTrial(UniversesTrial):
    """Noisy votes of universes, scored by the likelihood ratio of all votes of a universe."""

    mechanism = "Ind-KNN votes"

    def _prepare(self) -> None:
        self._absent, there = (
            self._visits.sums(present, self._damage) for present in (False, True)
        )
        self._shift = there - self._absent
        self._length = np.square(self._shift).sum(axis=(0, 2))

    def play(self, present: bool) -> Floats:
        """Return a score for each universe of one data set: about 0 without, 1 with the subject."""
        votes = self._visits.answers(present, self._damage)
        away = votes.reshape(len(votes), -1, *self._shift.shape[1:]) - self._absent[:, None]
        gain = (away * self._shift[:, None]).sum(axis=(0, 3))
        return np.asarray(gain / self._length).ravel()


class VectorsTrial(VotesTrial):
    """The same for estimators whose records add vectors."""

    mechanism = "Ind-KNN vectors"


class GateTrial(VotesTrial):
    """Noisy votes that leave while a model of earlier answers answers where it is sure."""

    mechanism = "Ind-KNN gate"

    def play(self, present: bool) -> Floats:
        """Return a score for each universe of one data set: about 0 without, 1 with the subject."""
        classifier = self._visits.fitted(present, self._damage)
        gain = np.zeros(self._absent.shape[1])
        for number, (absent, shift) in enumerate(zip(self._absent, self._shift, strict=True)):
            if number and self._damage.skips_charges:
                refill(classifier)
            answers = classifier.query(self._visits.world.queries)
            assert answers.votes is not None  # noqa: S101 (votes leave)
            away = answers.votes / answers.noise[:, None] - absent
            gain += np.nan_to_num(away * shift).sum(axis=1)
        return np.asarray(gain / self._length)


class LabelsTrial(UniversesTrial):
    """Labels of universes, scored by the likelihood ratio of whether the subject's class won."""

    mechanism = "Ind-KNN labels"

    def _prepare(self) -> None:
        wins = [
            chances_of_first(self._visits.sums(present, self._damage) * self._damage.noise_divisor)
            for present in (False, True)
        ]
        self._won = np.log(wins[1] / wins[0])
        self._lost = np.log((1 - wins[1]) / (1 - wins[0]))

    def play(self, present: bool) -> Floats:
        """Return the log likelihood ratio of each universe's labels."""
        labels = self._visits.answers(present, self._damage)
        won = labels.reshape(len(labels), -1, self._won.shape[1]) == 0
        gain = np.where(won, self._won[:, None], self._lost[:, None]).sum(axis=0)
        return np.asarray(gain).ravel()


class CountsTrial(AuditTrial):
    """Private counts of neighbours: the noisy count itself, though only its noise scale leaves.

    Who sees the votes learns less about the count than who sees the count.
    """

    mechanism = "Ind-KNN private count"
    world = "one subject, many records, all spent on one count"

    _damages = damages("noise halved")

    def __init__(self, visits: Visits) -> None:
        self._visits = visits
        self.claim = visits.claim

    def play(self, present: bool) -> Floats:
        """Return noisy counts, in the subject's records: about 0 without it, 1 with it."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            classifier = self._visits.fitted(present, self._damage)
        engine = classifier._engine
        counter = engine.count
        assert counter is not None  # noqa: S101 (counts are private here)
        queries = classifier._encoded(self._visits.world.queries)
        thresholds = engine.radius.thresholds(queries)
        (rounds,) = engine.shard.rounds(queries, thresholds, together=True)
        counter.price(len(queries))
        counts = rounds.charge_counts(counter)
        drawn = np.concatenate([counter.publish(counts) for _ in range(self._visits.repeats)])
        return np.asarray((drawn - COMPANY) / MANY)


def chances_of_first(votes: Floats) -> Floats:
    """Return how likely the first class has the most noisy votes; `votes` in noise scales."""
    leads = votes[..., :1] - votes[..., 1:]
    wins = np.zeros(votes.shape[:-1])
    for node, weight in zip(_NODES.tolist(), _NODE_WEIGHTS.tolist(), strict=True):
        wins += weight * np.exp(log_ndtr(node + leads).sum(axis=-1))
    return np.clip(wins / math.sqrt(2 * math.pi), 1e-12, 1 - 1e-12)
