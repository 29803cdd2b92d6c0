"""One data set of universes behind an Ind-KNN estimator, asked round after round."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from vicinal._arrays import AnyArray, Floats, Ints
from vicinal.accounting import UNITS
from vicinal.audit._claims import Claim, ind_knn_claim
from vicinal.audit._damage import HONEST, Damage
from vicinal.audit._universes import Universes
from vicinal.mechanisms import BlockRelease, NoiseSource
from vicinal.predictors import IndKNNClassifier, IndKNNEstimator

Estimator = IndKNNEstimator[Any]


REPEATS = 32
"""Runs that share one pass of charging: noise is drawn for each anew."""


@dataclass(frozen=True)
class ChargedBlock:
    """A release that has charged for `votes`, int64 (q, c), and not yet added noise to them."""

    release: BlockRelease
    votes: Ints


@dataclass(frozen=True)
class Visits:
    """One data set of universes behind an estimator, asked round after round.

    - `parameters`: of the estimator.
    - `world`: who is there, and what is asked.
    - `rounds`: how often every universe is asked.
    - `returns`: whether the subjects at risk leave and come back between rounds.
    - `estimator`: what is asked.
    - `repeats`: runs that share one pass of charging.
    """

    parameters: Mapping[str, Any]
    world: Universes
    rounds: int
    returns: bool = False
    estimator: type[Estimator] = IndKNNClassifier
    repeats: int = REPEATS

    @property
    def claim(self) -> Claim:
        """What the estimator promises."""
        return ind_knn_claim(self.estimator._plans.of(self.estimator(**self.parameters)))

    def sums(self, present: bool, damage: Damage = HONEST) -> Floats:
        """Return votes without noise, in noise scales, (rounds, universes, classes)."""
        return np.stack(
            [one.votes / one.release.scales[:, None] for one in self.charged(present, damage)]
        )

    def answers(self, present: bool, damage: Damage = HONEST) -> AnyArray:
        """Return what left of :attr:`repeats` times all universes, rounds first.

        Votes (rounds, runs, classes) in noise scales, or labels (rounds, runs). Contributions and
        charges do not depend on noise; they are made once for all repeats, by the same release
        that then adds noise to each of them.
        """
        rounds = []
        for one in self.charged(present, damage):
            drawn = [one.release.publish(one.votes) for _ in range(self.repeats)]
            scales = 1.0 if one.release.mechanism.label_only else one.release.noise[:, None]
            rounds.append(np.concatenate([answer / scales for answer in drawn]))
        return np.stack(rounds)

    def charged(self, present: bool, damage: Damage = HONEST) -> list[ChargedBlock]:
        """Return every round's release with the sums that it charged for."""
        with warnings.catch_warnings():
            # Attackers ask for more than was planned; they are warned, and the guarantee holds.
            warnings.simplefilter("ignore")
            classifier = self.fitted(present, damage)
            blocks = []
            for number in range(self.rounds):
                if number:
                    self._between_rounds(classifier, present, damage)
                blocks.append(charged_block(classifier, self.world.queries))
        return blocks

    def fitted(self, present: bool, damage: Damage = HONEST) -> Estimator:
        """Return an estimator of one world, broken as `damage` says."""
        people = self.world.people(present)
        subjects = None if damage.forgets_subjects else people.subjects
        classifier = self.estimator(**self.parameters, interactions="public")
        classifier.fit(people.X, people.y, subjects, public=self.world.public)
        if damage.noise_divisor > 1:
            draw_from(classifier, damage.noise())
        return classifier

    def _between_rounds(self, classifier: Estimator, present: bool, damage: Damage) -> None:
        if damage.skips_charges:
            refill(classifier)
        if not self.returns:
            return
        victims = self.world.victims
        classifier.erase(victims.subjects)
        if damage.refills:
            classifier._shard.ledger._departed.clear()
        if present:
            classifier.add(victims.X, victims.y, victims.subjects)


def charged_block(classifier: Estimator, queries: Floats) -> ChargedBlock:
    """Charge for queries as the classifier does, and return the release before its noise."""
    engine = classifier._engine
    integers = classifier._encoded(queries)
    noise = engine.schedule.multiplier * np.sqrt(engine.radius.expected(integers))
    release = engine.votes.release(noise)
    sums = engine.shard.charge_and_sum(release, integers, engine.radius.thresholds(integers))
    return ChargedBlock(release, sums)


def draw_from(classifier: Estimator, noise: NoiseSource) -> None:
    """Let one fitted classifier draw from `noise` instead of its own."""
    engine = classifier._engine
    engine.votes.noise = noise
    if engine.count is not None:
        engine.count._noise = noise


def refill(classifier: Estimator) -> None:
    """Broken: give everybody of one fitted classifier a whole budget."""
    classifier._shard.ledger.remaining[:] = UNITS
