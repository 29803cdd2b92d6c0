"""Noisy screening: whether the largest vote, with noise, reaches the threshold.

Proof note: screening.md. Source: ZYCW20, section 3; P18 (Confident-GNMax).
"""

from __future__ import annotations

import numpy as np

from vicinal import _checks
from vicinal._arrays import Bools, Ints
from vicinal.mechanisms._release_counter import ReleaseCounter
from vicinal.mechanisms._sampling import BernoulliSource
from vicinal.noise import NoiseSource

# Noise scale in steps: what the steps change in any probability is below 1e-25 (screening.md).
FINEST = 1 << 40

_FARTHEST = 1 << 62  # no noise reaches this; a threshold beyond is out of reach


class NoisyThreshold:
    """Answers whether t + N(0, sigma^2) >= threshold, in steps so fine that it makes no difference.

    Contribution: t is a largest vote count, which one subject moves by at most 1. Noise and quota
    belong to the same call, :meth:`publish`.

    - `threshold`, `sigma`: T and the noise scale, in votes, as accounted for; any finite doubles,
      sigma > 0.
    - `quota`: how many answers were planned.
    - `noise`, `source`: where randomness comes from.
    - `scale`: the noise scale in steps.
    """

    def __init__(
        self,
        threshold: float,
        sigma: float,
        quota: ReleaseCounter,
        noise: NoiseSource,
        source: BernoulliSource,
        scale: int = FINEST,
    ) -> None:
        self.quota = quota
        self.scale = _checks.integer("scale", scale, least=1, most=FINEST)
        self._threshold = _checks.real("threshold", threshold).as_integer_ratio()
        self._sigma = _checks.real("sigma", sigma, above=0).as_integer_ratio()
        self._noise = noise
        self._source = source

    def publish(self, largest: Ints) -> Bools:
        """Take from the quota, add noise and return who passes, bool (q,).

        `largest`, int64 (q,): the largest vote count of each query, private. Raises PrivacyRefused
        before any noise is drawn, if so many answers were not planned.
        """
        self.quota.note_releases(len(largest))
        limits = [self.noise_limit(int(votes)) for votes in largest]
        steps_of = np.array([steps for steps, _ in limits], dtype=np.int64)
        drawn = self._noise.discrete_gaussian(self.scale, len(largest))
        passed = drawn > steps_of
        for j in np.flatnonzero(drawn == steps_of):
            passed[j] = not self._source.bernoulli(limits[j][1], 1)[0]
        return passed

    def noise_limit(self, votes: int) -> tuple[int, float]:
        """Return what noise must exceed at so many `votes`: whole steps, and a part of a step.

        The limit is (T - votes) in steps plus a half, worked out in whole numbers. Noise above the
        whole steps passes, noise below fails, noise that equals them fails as often as the part
        says.
        """
        top, over = self._threshold
        sigma_top, sigma_over = self._sigma
        denominator = 2 * over * sigma_top
        numerator = 2 * (top - votes * over) * self.scale * sigma_over + over * sigma_top
        quotient, remainder = divmod(numerator, denominator)
        return min(max(quotient, -_FARTHEST), _FARTHEST), remainder / denominator
