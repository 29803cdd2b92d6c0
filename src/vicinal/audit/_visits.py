"""One data set of universes behind an Ind-KNN estimator, asked round after round."""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from vicinal._arrays import AnyArray, Bools, Floats, Ints
from vicinal.audit._claims import Claim, ind_knn_claim
from vicinal.mechanisms import BernoulliSource, NoiseSource, public_draws, randomness
from vicinal.planning import IndKNNPlan
from vicinal.predictors import IndKNNClassifier, IndKNNEstimator
from vicinal.testing import (
    ChargedBlock,
    World,
    charged_block,
    draw_from,
    forget_departed,
    refill,
    weak_noise,
)

# ---------------------------------------------------------------- versions broken on purpose


@dataclass(frozen=True)
class Damage:
    """What a broken version does wrong; all False is the installed one.

    - `noise_divisor`: noise scales are divided by it.
    - `skips_charges`: budgets are put back after every round.
    - `refills`: who leaves is forgotten, and returns with a full budget.
    - `forgets_subjects`: every record counts as a subject of its own.
    - `samples_all`: coins are forgotten: everybody takes part.
    - `replaces`: samples are of fixed size, drawn with replacement, as published code did.
    """

    noise_divisor: int = 1
    skips_charges: bool = False
    refills: bool = False
    forgets_subjects: bool = False
    samples_all: bool = False
    replaces: bool = False

    def noise(self) -> NoiseSource:
        """Return where noise comes from."""
        return weak_noise(self.noise_divisor) if self.noise_divisor > 1 else randomness()


HONEST = Damage()

_DAMAGES = {
    "charge skipped": Damage(skips_charges=True),
    "drawn with replacement": Damage(replaces=True),
    "everybody sampled": Damage(samples_all=True),
    "noise a quarter": Damage(noise_divisor=4),
    "noise a third": Damage(noise_divisor=3),
    "noise halved": Damage(noise_divisor=2),
    "refilled on return": Damage(refills=True),
    "subjects forgotten": Damage(forgets_subjects=True),
}


def damages(*names: str) -> dict[str, Damage]:
    """Return broken versions by their names, in this order."""
    return {name: _DAMAGES[name] for name in names}


class Heads(BernoulliSource):
    """Coins that always come up."""

    exact = False

    def bernoulli(self, probability: float, size: int) -> Bools:  # noqa: ARG002 (as a source has it)
        return np.ones(size, dtype=np.bool_)


# ---------------------------------------------------------------- universes apart from each other

Placed = tuple[float, Any]
"""A record: its similarity to the universe's query, and its label, number, or row of them."""

AXES = 64
"""Features in which universes lie in random directions, so many that :data:`APART` holds."""

MOST = 500
"""Universes of a data set, at most."""

APART = 0.75
"""No two universes lie nearer to each other than this; radii are at .8."""

REFERENCE = 0.8
"""Similarity of a universe's one reference point, which sets an adaptive radius."""


@dataclass(frozen=True)
class Universes:
    """`count` universes: the subjects at risk, other people, reference points and queries."""

    count: int
    victims: World
    others: World
    public: Floats
    queries: Floats

    def people(self, present: Bools | bool) -> World:
        """Return everybody of a world: all victims, none, or those marked (n_victims,)."""
        chosen = np.broadcast_to(present, self.count)[self.victims.subjects]
        parts = zip(self.others, self.victims, strict=True)
        return World(*(np.concatenate([other, victim[chosen]]) for other, victim in parts))


@lru_cache(maxsize=4)
def _axes(count: int) -> Floats:
    axes = public_draws(0).normal(size=(count, AXES))
    axes /= np.linalg.norm(axes, axis=1, keepdims=True)
    nearest = np.abs(axes @ axes.T - np.eye(count)).max()
    assert nearest < APART  # noqa: S101 (universes must stay outside each other's radius)
    return np.asarray(axes)


def directions(count: int, cosine: float) -> Floats:
    """Return one vector per universe at `cosine` to its query, the rest along a shared axis."""
    remainder = np.full((count, 1), np.sqrt(1 - cosine**2))
    return np.concatenate([cosine * _axes(count), remainder], axis=1)


def universes(
    victim: Sequence[Placed], others: Sequence[Placed], *, rounds: int = 1, count: int = MOST
) -> Universes:
    """Lay out `count` equal universes.

    `victim` and `others` are records as (cosine, label): those of the one subject at risk, and at
    least one of other people, a subject each. In each of `rounds` all universes are asked once.
    """
    return Universes(
        count,
        _placed(count, victim, np.tile(np.arange(count), len(victim))),
        _placed(count, others, count + np.arange(len(others) * count)),
        directions(count, REFERENCE),
        np.tile(directions(count, 1.0), (rounds, 1)),
    )


def _placed(count: int, records: Sequence[Placed], ids: Ints) -> World:
    places = np.concatenate([directions(count, cosine) for cosine, _ in records])
    return World(places, np.repeat(np.array([label for _, label in records]), count, axis=0), ids)


REPEATS = 32
"""Runs that share one pass of charging: noise is drawn for each anew."""


@dataclass(frozen=True)
class Visits:
    """One data set of universes behind an estimator, asked round after round.

    With `returns` the subjects at risk leave and come back between rounds. So many `repeats` share
    one pass of charging.
    """

    parameters: Mapping[str, Any]
    world: Universes
    rounds: int
    returns: bool = False
    estimator: type[IndKNNEstimator] = IndKNNClassifier
    repeats: int = REPEATS

    @property
    def claim(self) -> Claim:
        """What the estimator promises."""
        return ind_knn_claim(IndKNNPlan.of(self.estimator(**self.parameters)))

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

    def fitted(self, present: bool, damage: Damage = HONEST) -> IndKNNEstimator:
        """Return an estimator of one world, broken as `damage` says."""
        people = self.world.people(present)
        subjects = None if damage.forgets_subjects else people.subjects
        classifier = self.estimator(**self.parameters, interactions="public")
        classifier.fit(people.X, people.y, subjects, public=self.world.public)
        if damage.noise_divisor > 1:
            draw_from(classifier, damage.noise())
        return classifier

    def _between_rounds(self, classifier: IndKNNEstimator, present: bool, damage: Damage) -> None:
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
