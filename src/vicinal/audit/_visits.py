"""One data set of universes behind an Ind-KNN estimator, asked round after round."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from vicinal._arrays import AnyArray, Floats
from vicinal.audit._claims import Claim, ind_knn_claim
from vicinal.audit._damage import HONEST, Damage
from vicinal.audit._universes import Universes
from vicinal.predictors import IndKNNClassifier, IndKNNEstimator
from vicinal.testing import ChargedBlock, charged_block, draw_from, forget_departed, refill

Estimator = IndKNNEstimator[Any]


REPEATS = 32
"""Runs that share one pass of charging: noise is drawn for each anew."""


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
            [one.sums / one.release.scales[:, None] for one in self.charged(present, damage)]
        )

    def answers(self, present: bool, damage: Damage = HONEST) -> AnyArray:
        """Return what left of :attr:`repeats` times all universes, rounds first.

        Votes (rounds, runs, classes) in noise scales, or labels (rounds, runs). Contributions and
        charges do not depend on noise; they are made once for all repeats, by the same release
        that then adds noise to each of them.
        """
        rounds = []
        for one in self.charged(present, damage):
            drawn = [one.release.publish(one.sums) for _ in range(self.repeats)]
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
            forget_departed(classifier)
        if present:
            classifier.add(victims.X, victims.y, victims.subjects)
