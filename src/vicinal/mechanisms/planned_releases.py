"""Releases of a fixed plan: screening by a noisy threshold, and noisy votes.

The guarantee of a plan is computed in advance for a number of releases of each kind, which are
counted here.

`release_counter` is the counter of the planned releases of a mechanism, `noise` the source of its
Gaussian noise.

Proof notes: screening.md, noisy_max.md. Sources: ZYCW20, section 3; P18 (GNMax and
Confident-GNMax).
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from vicinal import checks
from vicinal.arrays import AnyArray, Bools, Ints, Steps
from vicinal.errors import PrivacyRefused
from vicinal.mechanisms.noise_sources import BernoulliSource
from vicinal.noise.source import NoiseSource


class ReleaseCounter:
    """Counter of the releases of one kind that a plan covers; for one thread at a time.

    A release counts as soon as it begins, even if it fails later.

    - `planned`: number of releases for which the plan was priced.
    - `noun`: their name in error messages, such as "screenings".
    """

    def __init__(self, planned: int, noun: str) -> None:
        self.planned = checks.check_integer("planned", planned, minimum=0)
        self.used = 0
        self._noun = noun

    @property
    def remaining(self) -> int:
        """Number of releases that can still be made."""
        return self.planned - self.used

    def check_remaining(self, n_releases: int) -> None:
        """Raise PrivacyRefused unless the plan covers `n_releases` further releases."""
        if n_releases > self.remaining:
            raise PrivacyRefused(
                f"The plan covers {self.planned} {self._noun}, of which {self.remaining} are left; "
                f"{n_releases} more would void the guarantee. Plan with a larger 'n_queries'."
            )

    def note_releases(self, n_releases: int) -> None:
        """Count `n_releases` before they are made; raise PrivacyRefused if the plan has fewer."""
        self.check_remaining(n_releases)
        self.used += n_releases


# Largest noise scale in grid steps, and so the finest grid. At this scale, rounding to the grid
# changes a probability by less than 1e-24 (screening.md).
FINE_SCALE = 1 << 40

# Bound on the limit that noise must exceed, in grid steps. Noise never reaches it, so a limit
# beyond it can be replaced by it.
_MAX_LIMIT = 1 << 62


class NoisyThreshold:
    """Mechanism that releases whether t + N(0, sigma^2) >= threshold, on a very fine grid.

    t is the largest vote count of a query; its sensitivity to one subject is 1. Counting the
    release and adding the noise happen in one call, :meth:`publish`.

    - `threshold`, `sigma`: threshold T and noise scale in votes; finite, sigma > 0.
    - `sampler`: the source of the Bernoulli sample that decides ties.
    - `scale`: noise scale in grid steps.
    """

    def __init__(
        self,
        threshold: float,
        sigma: float,
        release_counter: ReleaseCounter,
        noise: NoiseSource,
        sampler: BernoulliSource,
        scale: int = FINE_SCALE,
    ) -> None:
        self.release_counter = release_counter
        self.scale = checks.check_integer("scale", scale, minimum=1, maximum=FINE_SCALE)
        self._threshold = checks.check_real("threshold", threshold).as_integer_ratio()
        self._sigma = checks.check_real("sigma", sigma, above=0).as_integer_ratio()
        self._noise = noise
        self._sampler = sampler

    def publish(self, max_votes: Ints) -> Bools:
        """Return whether each query passes the screening, bool (q,). The result may be released.

        `max_votes`, int64 (q,): the largest vote count of each query; private. Raises
        PrivacyRefused, before any noise is drawn, if the plan does not cover q further screenings.
        """
        self.release_counter.note_releases(len(max_votes))
        limits = [self.compute_noise_limit(int(votes)) for votes in max_votes]
        limit_steps = np.array([steps for steps, _ in limits], dtype=np.int64)
        noise_steps = self._noise.discrete_gaussian(self.scale, len(max_votes))
        passed = noise_steps > limit_steps
        for j in np.flatnonzero(noise_steps == limit_steps):
            passed[j] = not self._sampler.bernoulli(limits[j][1], 1)[0]
        return passed

    def compute_noise_limit(self, votes: int) -> tuple[int, float]:
        """Return the limit that noise must exceed: whole grid steps and a fraction of a step.

        `votes`: the largest vote count of a query. The limit is T - votes in steps plus one half,
        computed in exact integers. Noise above the whole steps passes, noise below them fails, and
        noise equal to them fails with the probability given by the fraction.
        """
        threshold_numerator, threshold_denominator = self._threshold
        sigma_numerator, sigma_denominator = self._sigma
        denominator = 2 * threshold_denominator * sigma_numerator
        excess = threshold_numerator - votes * threshold_denominator  # T - votes, as a numerator
        numerator = (
            2 * excess * self.scale * sigma_denominator + threshold_denominator * sigma_numerator
        )
        quotient, remainder = divmod(numerator, denominator)
        return min(max(quotient, -_MAX_LIMIT), _MAX_LIMIT), remainder / denominator


# Bound on sums of votes, in grid steps: sums plus noise, which is below 2^61, fit into int64.
MAX_VOTE_SUM = 1 << 60


def compute_vote_steps(noise_std: float, max_sum: float) -> int:
    """Return the number of grid steps in a vote, a power of two; public.

    It is the largest for which the noise scale is at most 2^40 steps and sums fit into int64.

    - `noise_std`: the noise scale in votes, > 0.
    - `max_sum`: upper bound on the sum of votes of a class, in votes.
    """
    noise_std = checks.check_real("noise scale", noise_std, above=0, maximum=FINE_SCALE)
    max_sum = checks.check_real("largest sum", max_sum, minimum=1, maximum=MAX_VOTE_SUM)
    max_bits = min(math.log2(FINE_SCALE / noise_std), math.log2(MAX_VOTE_SUM / max_sum))
    steps = 1 << math.floor(max_bits)
    # The logarithm may have been rounded up to an integer, which makes the grid too fine.
    return steps if math.ceil(noise_std * steps) <= FINE_SCALE else steps >> 1


class NoisyMax:
    """Mechanism that releases the noisy votes of planned queries, or only their winning classes.

    Votes are in grid steps. One subject changes them by at most sqrt(2) votes in Euclidean norm, as
    the plan assumes.

    - `noise_scale`: standard deviation of the noise of every class, in votes.
    - `max_sum`: upper bound on the sum of votes of a class, in votes.
    - `label_only`: whether only the class with the largest noisy sum of votes is released.

    Attributes: `steps`, grid steps in a vote; `scale`, noise scale in grid steps.
    """

    def __init__(
        self,
        noise_scale: float,
        max_sum: float,
        release_counter: ReleaseCounter,
        noise: NoiseSource,
        *,
        label_only: bool,
    ) -> None:
        self.release_counter = release_counter
        self.steps = compute_vote_steps(noise_scale, max_sum)
        self.scale = math.ceil(noise_scale * self.steps)
        self.label_only = label_only
        self._noise = noise

    def publish(self, vote_sums: Steps) -> AnyArray:
        """Return noisy votes, float64 (q, c), or classes, int64 (q,). The result may be released.

        `vote_sums`, int64 (q, c): sums of votes in grid steps; private. Raises PrivacyRefused,
        before any noise is drawn, if the plan does not cover q further answers.
        """
        self.release_counter.note_releases(len(vote_sums))
        noisy = self._noise.add_to(vote_sums, self.scale)
        return np.asarray(noisy.argmax(axis=1) if self.label_only else noisy / self.steps)


@dataclass(eq=False)
class PlannedAnswers:
    """Base of mechanisms that screen planned queries and answer those that pass.

    - `screening`: decides which queries are answered; None to answer all.
    - `voting`: releases the answers.
    - `query_counter`: counter of the planned queries.
    """

    screening: NoisyThreshold | None
    voting: NoisyMax
    query_counter: ReleaseCounter

    def check_queries(self, n_queries: int) -> None:
        """Raise PrivacyRefused unless the plan covers `n_queries` further queries."""
        self.query_counter.check_remaining(n_queries)

    def _select_answered(self, n_queries: int, compute_max_votes: Callable[[], Ints]) -> Bools:
        """Return whether each query is answered, bool (q,); public.

        Queries that pass the screening are answered until the planned answers are used up.

        - `n_queries`: number of queries q.
        - `compute_max_votes`: returns the largest vote count of each query, int64 (q,), private;
          called only if there is a screening.
        """
        passed = np.full(n_queries, self.voting.release_counter.remaining > 0)
        if self.screening is not None and passed.any():
            passed = self.screening.publish(compute_max_votes())
        # The first queries that pass, up to the number of remaining answers. Both are public.
        passed &= np.cumsum(passed) <= self.voting.release_counter.remaining
        return passed
