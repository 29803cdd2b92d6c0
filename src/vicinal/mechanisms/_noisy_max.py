"""Noisy votes of one query, or the class that has most of them.

Proof note: noisy_max.md. Source: ZYCW20, section 3; P18 (GNMax).
"""

from __future__ import annotations

import math

import numpy as np

from vicinal import _checks
from vicinal._arrays import AnyArray, Steps
from vicinal.mechanisms._release_counter import ReleaseCounter
from vicinal.mechanisms._screening import FINEST
from vicinal.noise import NoiseSource

MOST_SUM = 1 << 60  # sums of votes stay below this many steps, so that noise never overflows


def steps_of_vote(noise: float, most: float) -> int:
    """Return how many steps, a power of two, a vote is cut into; public.

    As fine as the sampler of noise takes.

    `noise`: the noise scale in votes, > 0. `most`: the largest sum of votes that there can be, in
    votes.
    """
    noise = _checks.real("noise scale", noise, above=0, most=FINEST)
    most = _checks.real("largest sum", most, least=1, most=MOST_SUM)
    steps = 1 << math.floor(min(math.log2(FINEST / noise), math.log2(MOST_SUM / most)))
    # The logarithm may have been rounded up to a whole number.
    return steps if math.ceil(noise * steps) <= FINEST else steps >> 1


class NoisyMax:
    """Adds Gaussian noise to votes that were planned for, and lets votes or labels leave.

    Contribution: whole steps; a subject moves the votes by at most sqrt(2) votes, as planned.

    - `noise_scale`: scale of the noise on every class, in votes.
    - `most`: the largest sum of votes of a class that there can be.
    - `quota`: how many answers were planned.
    - `noise`: where noise comes from.
    - `label_only`: whether the class with the most noisy votes leaves, rather than all noisy votes.
    """

    def __init__(
        self,
        noise_scale: float,
        most: float,
        quota: ReleaseCounter,
        noise: NoiseSource,
        *,
        label_only: bool,
    ) -> None:
        self.quota = quota
        self.steps = steps_of_vote(noise_scale, most)
        self.scale = math.ceil(noise_scale * self.steps)
        self.label_only = label_only
        self._noise = noise

    def publish(self, votes: Steps) -> AnyArray:
        """Take from the quota, add noise and return votes, float64 (q, c), or classes, int64 (q,).

        `votes`, int64 (q, c): sums in steps; private. Raises PrivacyRefused before any noise is
        drawn, if so many answers were not planned.
        """
        self.quota.note_releases(len(votes))
        noisy = votes + self._draw(votes.size).reshape(votes.shape)
        return np.asarray(noisy.argmax(axis=1) if self.label_only else noisy / self.steps)

    def _draw(self, size: int) -> Steps:
        return self._noise.discrete_gaussian(self.scale, size)
