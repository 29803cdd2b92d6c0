"""Releases that a plan was priced for: counted before they are made, then screened and voted.

Proof notes: screening.md, noisy_max.md. Sources: ZYCW20, section 3; P18 (GNMax and
Confident-GNMax).
"""

import math
from collections.abc import Callable

import numpy as np

from vicinal import checks
from vicinal.arrays import AnyArray, Bools, Ints, Steps
from vicinal.errors import PrivacyRefused
from vicinal.mechanisms.noise_sources import BernoulliSource
from vicinal.noise.source import NoiseSource


class ReleaseCounter:
    """Counts releases of one kind; used by one thread at a time.

    The guarantee of a plan is known before its first release and covers `planned` releases. What
    was taken is spent, whether or not the release came to an end.

    `planned`: releases that the plan was priced for. `noun`: their name, as in "screenings".
    """

    def __init__(self, planned: int, noun: str) -> None:
        self.planned = checks.check_integer("planned", planned, least=0)
        self.used = 0
        self._noun = noun

    @property
    def remaining(self) -> int:
        """Return how many releases can still be made."""
        return self.planned - self.used

    def check(self, size: int) -> None:
        """Raise PrivacyRefused if `size` more releases are not covered."""
        if size > self.remaining:
            raise PrivacyRefused(
                f"The plan covers {self.planned} {self._noun}, of which {self.remaining} are left; "
                f"{size} more would void the guarantee. Plan with a larger 'n_queries'."
            )

    def note_releases(self, size: int) -> None:
        """Pay for `size` releases, before any of them is made."""
        self.check(size)
        self.used += size


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
        self.scale = checks.check_integer("scale", scale, least=1, most=FINEST)
        self._threshold = checks.check_real("threshold", threshold).as_integer_ratio()
        self._sigma = checks.check_real("sigma", sigma, above=0).as_integer_ratio()
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


MOST_SUM = 1 << 60  # sums of votes stay below this many steps, so that noise never overflows


def steps_of_vote(noise: float, most: float) -> int:
    """Return how many steps, a power of two, a vote is cut into; public.

    As fine as the sampler of noise takes.

    `noise`: the noise scale in votes, > 0. `most`: the largest sum of votes that there can be, in
    votes.
    """
    noise = checks.check_real("noise scale", noise, above=0, most=FINEST)
    most = checks.check_real("largest sum", most, least=1, most=MOST_SUM)
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
        noisy = self._noise.add_to(votes, self.scale)
        return np.asarray(noisy.argmax(axis=1) if self.label_only else noisy / self.steps)


class PlannedAnswers:
    """Queries as planned, of which those that pass a screening are answered.

    - `screening`: which queries are answered; None for all.
    - `voting`: what an answer is.
    - `planned`: how many queries were planned.
    """

    def __init__(
        self, screening: NoisyThreshold | None, voting: NoisyMax, planned: ReleaseCounter
    ) -> None:
        self._screening, self._voting, self._planned = screening, voting, planned

    def check(self, size: int) -> None:
        """Raise PrivacyRefused if `size` more queries were not planned."""
        self._planned.check(size)

    def _passed(self, size: int, largest_votes: Callable[[], Ints]) -> Bools:
        """Return who is answered, bool (q,): who passes, as long as answers are left."""
        passed = np.full(size, self._voting.quota.remaining > 0)
        if self._screening is not None and passed.any():
            passed = self._screening.publish(largest_votes())
        # Who passed is public, so this is, too: the first of them up to what was planned.
        passed &= np.cumsum(passed) <= self._voting.quota.remaining
        return passed
