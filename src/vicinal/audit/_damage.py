"""Versions broken on purpose: what an audit must catch, as objects that replace honest ones."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from vicinal._arrays import Bools
from vicinal.mechanisms import BernoulliSource, NoiseSource, randomness
from vicinal.testing import weak_noise


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
        """Return true throughout."""
        return np.ones(size, dtype=np.bool_)
