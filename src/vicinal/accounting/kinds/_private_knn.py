"""Kinds of Private-kNN: screening, noisy maximum, multi-label votes, and a plain Gaussian.

Multi-label votes with the tau-approximation: each neighbour's 0/1 label vector f becomes
f * min(tau/|f|_1, 1), so its squared L2 norm is at most tau. One subject in and one out of the k
neighbours moves the sum by at most sqrt(2 tau), as two vectors with non-negative entries differ by
||a - b||^2 <= ||a||^2 + ||b||^2 <= 2 tau. With noise of scale sigma on every attribute the RDP is
alpha tau / sigma^2. Source: Zhu, Yu, Chandraker & Wang 2020, supplement, Theorem 5. Their published
code scales the ones of a vector but not its zeros (as votes of no), which triples the cost at
tau=10 of 40 labels.
"""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from typing import ClassVar, Self

from vicinal import _checks
from vicinal.accounting._certificate import WorstCasePair, gaussian_worst_case, threshold_worst_case
from vicinal.accounting._composition import Composition, compose
from vicinal.accounting._gaussian import SubsampledGaussian
from vicinal.accounting._label_only import NoisyLabel
from vicinal.accounting._screening import Screening, ScreeningAt
from vicinal.accounting.kinds._base import (
    KNOWN_COINS,
    LABEL_ONLY,
    ONE_OF_K,
    POISSON,
    PRIVATE_COST,
    PlannedRelease,
    check_one_row_each,
    check_release,
    checked,
    classes,
    largest_votes,
    positive,
    rate,
    scale,
    threshold,
    vote_count,
)
from vicinal.errors import InvalidInput

_VOTES_SENSITIVITY = math.nextafter(math.sqrt(2), 2)


def full_step(release: SubsampledGaussian, count: int) -> list[WorstCasePair]:
    """Return `count` Gaussian releases that a subject moves by the whole sensitivity."""
    return [gaussian_worst_case(1 / release.sigma, release.gamma, count)]


def _sampling_assumptions(gamma: float) -> tuple[str, ...]:
    return (POISSON, KNOWN_COINS) if gamma < 1 else ()


@dataclasses.dataclass(frozen=True, kw_only=True)
class PlannedScreening(PlannedRelease):
    """Whether the largest of k votes reaches a threshold; `votes` are private."""

    kind: ClassVar[str] = "screening"

    k: int = checked(vote_count)
    classes: int | None = checked(classes, None)
    threshold: float = checked(threshold)
    sigma: float = checked(scale)
    gamma: float = checked(rate, 1.0)
    votes: tuple[int, ...] | None = checked(largest_votes, None)

    def complete(self, name: str, delta: float, count: int) -> Self:  # noqa: ARG002
        if self.votes is None:
            return self
        if max(self.votes) > self.k:
            raise InvalidInput(
                f"The '{name}.votes' parameter must not exceed '{name}.k', {self.k}."
            )
        if len(self.votes) > 1:
            check_one_row_each(name, self.votes, count)
        if self.gamma != 1:
            raise InvalidInput(
                f"The '{name}.gamma' parameter must be 1 where '{name}.votes' is given: a "
                "data-dependent cost must not be amplified by sampling."
            )
        return self

    def cost(self, count: int) -> Composition:
        if self.votes is None:
            return Composition.of(self._at_worst_votes(), count)
        fixed = (self.k, self.threshold, self.sigma)
        answers = count if len(self.votes) == 1 else 1
        times = Counter(self.votes).items()
        return compose(Composition.of(ScreeningAt(t, *fixed), answers * n) for t, n in times)

    def worst_case(self, count: int, order: float) -> list[WorstCasePair] | None:
        if self.votes is not None:
            return None
        screening = self._at_worst_votes()
        votes, sign = screening.worst_votes(order)
        position = sign * (votes - screening.threshold) / screening.sigma
        return [threshold_worst_case(position, 1 / screening.sigma, screening.gamma, count)]

    def assumptions(self) -> tuple[str, ...]:
        private = () if self.votes is None else (PRIVATE_COST,)
        return (ONE_OF_K, *private, *_sampling_assumptions(self.gamma))

    def _at_worst_votes(self) -> Screening:
        return Screening(self.k, self.threshold, self.sigma, self.gamma)


@dataclasses.dataclass(frozen=True, kw_only=True)
class PlannedNoisyMax(PlannedRelease):
    """Votes of every class with Gaussian noise, or the class that has the most of them."""

    kind: ClassVar[str] = "noisy_max"

    sigma: float = checked(scale)
    gamma: float = checked(rate, 1.0)
    release: str = checked(check_release, "votes")
    classes: int | None = checked(classes, None)

    def cost(self, count: int) -> Composition:
        if self.release == "votes":
            return Composition.of(self._votes(), count)
        return Composition.of(NoisyLabel(self.sigma, self.gamma, self.classes), count)

    def worst_case(self, count: int, order: float) -> list[WorstCasePair] | None:  # noqa: ARG002
        if self.release == "votes":
            return full_step(self._votes(), count)
        # Two classes, one leading by a vote: one in and one out make the other lead by a vote.
        half = 1 / (self.sigma * _VOTES_SENSITIVITY)
        return [threshold_worst_case(-half, 2 * half, self.gamma, count)]

    def assumptions(self) -> tuple[str, ...]:
        label = () if self.release == "votes" else (LABEL_ONLY,)
        return (ONE_OF_K, *label, *_sampling_assumptions(self.gamma))

    def _votes(self) -> SubsampledGaussian:
        return SubsampledGaussian(self.sigma / _VOTES_SENSITIVITY, self.gamma)


@dataclasses.dataclass(frozen=True, kw_only=True)
class PlannedGaussian(PlannedRelease):
    """A vector with Gaussian noise."""

    kind: ClassVar[str] = "gaussian"

    sigma: float = checked(scale)
    sensitivity: float = checked(positive, 1.0)
    gamma: float = checked(rate, 1.0)

    def cost(self, count: int) -> Composition:
        return Composition.of(self._vector(), count)

    def worst_case(self, count: int, order: float) -> list[WorstCasePair] | None:  # noqa: ARG002
        return full_step(self._vector(), count)

    def assumptions(self) -> tuple[str, ...]:
        return (
            (
                "one subject moves a Gaussian release by at most its sensitivity, in the Euclidean "
                "norm"
            ),
            *_sampling_assumptions(self.gamma),
        )

    def _vector(self) -> SubsampledGaussian:
        return SubsampledGaussian(self.sigma / self.sensitivity, self.gamma)


@dataclasses.dataclass(frozen=True, kw_only=True)
class PlannedMultilabel(PlannedRelease):
    """Votes for any number of attributes, with noise on every attribute."""

    kind: ClassVar[str] = "multilabel"

    tau: float = checked(positive)
    sigma: float = checked(scale)
    gamma: float = checked(rate, 1.0)

    def cost(self, count: int) -> Composition:
        return Composition.of(self._votes(), count)

    def worst_case(self, count: int, order: float) -> list[WorstCasePair] | None:  # noqa: ARG002
        return full_step(self._votes(), count)

    def assumptions(self) -> tuple[str, ...]:
        return (
            ONE_OF_K,
            (
                "every neighbour's label vector is scaled to an L1 norm of at most tau, entries of "
                "0 stay 0, and noise is added to every attribute"
            ),
            "the lower bound takes two neighbours with tau labels each and none in common",
            *_sampling_assumptions(self.gamma),
        )

    def _votes(self) -> SubsampledGaussian:
        return multilabel(self.tau, self.sigma, self.gamma)


def sensitivity(tau: float) -> float:
    """Return the L2 sensitivity sqrt(2 tau) of the summed, tau-bounded label vectors."""
    return math.nextafter(math.sqrt(2 * _checks.real("tau", tau, above=0)), math.inf)


def multilabel(tau: float, sigma: float, gamma: float = 1.0) -> SubsampledGaussian:
    """Return the release of one query's noisy label counts at noise scale `sigma` (votes)."""
    scale = _checks.real("sigma", sigma, above=0)
    return SubsampledGaussian(scale / sensitivity(tau), gamma)
