"""Noisy sums of the neighbours' kernel-weighted votes or vectors, with individual charges.

Votes and noise are integers on a grid; the delta that the grid costs is accounted for. Proof note:
votes.md. Source: ZZGW23 Algorithm 3; individual filter of Feldman & Zrnic 2021.

The *delta slack* of a release is the part of delta that pays for rounding its noise to the grid. A
*release* of a block of queries is an object with their noise scales and prices: it computes
contributions and charges subjects, and then adds noise to the sums. `noise_source` is the source of
the noise, `slack_accountant` the account of the delta slack.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import ClassVar, Self

import numpy as np

from vicinal import checks
from vicinal.accounting.budget import MAX_NORM, MAX_SCALE, compute_unit_rate
from vicinal.accounting.gaussian import compute_grid_slack
from vicinal.arrays import AnyArray, Floats, Steps
from vicinal.errors import InvalidInput, PrivacyRefused
from vicinal.mechanisms.charging import KernelWeights, VotePrices, charge_neighbours
from vicinal.mechanisms.subject_table import SubjectTable
from vicinal.neighbours.kernels import Kernel
from vicinal.neighbours.scan import NeighbourLists
from vicinal.noise.source import NoiseSource

# Shares of the price where votes are released: every contribution is charged all of it.
_FULL_SHARES = np.ones((1, 1))


@dataclass(eq=False)
class VoteMechanism(ABC):
    """Public settings shared by all releases of one predictor.

    - `kernel`: the similarity kernel; its values, rounded down to whole steps, weight the votes.
    - `n_features`: number of features of a record.
    - `n_coordinates`: number of coordinates c of the sums: classes, or entries of target vectors.
    - `budget`: the zCDP that a subject's full budget stands for.
    - `grid`: the grid of votes and noise.

    Attributes: `weights`, int64 (levels,), vote weights in steps by similarity level;
    `label_only`, whether only labels are released, rather than noisy votes.
    """

    kernel: Kernel
    n_features: int
    n_coordinates: int
    budget: float
    grid: VoteGrid
    noise_source: NoiseSource
    slack_accountant: DeltaSlackAccountant
    label_only: ClassVar[bool]

    def __post_init__(self) -> None:
        """Compute the weights."""
        # Rounded down. The charge is computed from the rounded weights that are added, so rounding
        # affects accuracy only.
        weights = np.floor(self.kernel.table(self.n_features) * self.grid.steps)
        self.weights: Steps = weights.astype(np.int64)

    @abstractmethod
    def prepare_release(self, noise_std: Floats) -> BlockRelease:
        """Return the prepared release of a block of q queries, after charging its delta slack.

        `noise_std`, float64 (q,): noise scale of every query in votes; a function of public
        information only. Raises PrivacyRefused, before charging subjects, if the slack is used up.
        """

    def bound_slack(self, min_noise: float) -> float:
        """Return the largest delta slack of a query with noise of at least `min_noise` votes."""
        return self.n_coordinates * compute_grid_slack(self.grid.convert_noise(min_noise))

    def _convert_noise_and_charge_slack(self, noise_std: Floats) -> tuple[Steps, Floats]:
        """Return each query's noise scale in grid steps, int64 (q,), and its charge rate, float64.

        The rate, (q,), is the number of budget units per squared grid step of a contribution.
        Charges the delta slack of the queries. `noise_std`, float64 (q,), is in votes.
        """
        distinct_noise, noise_index = np.unique(noise_std, return_inverse=True)
        scales = [self.grid.convert_noise(value) for value in distinct_noise]
        rates = [compute_unit_rate(scale, self.budget) for scale in scales]
        self.slack_accountant.charge([scales[index] for index in noise_index], self.n_coordinates)
        query_scales = np.array(scales, dtype=np.int64)[noise_index]
        return query_scales, np.array(rates, dtype=np.float64)[noise_index]


class NoisyVotes(VoteMechanism):
    """Mechanism that releases all noisy votes; the charge depends on the contribution's norm."""

    label_only = False

    def prepare_release(self, noise_std: Floats) -> VoteRelease:
        """Return the prepared release of q queries with noise `noise_std`, (q,), in votes."""
        scales, rates = self._convert_noise_and_charge_slack(noise_std)
        cells_per_step = np.zeros(len(scales))
        prices = VotePrices(scales, rates, rates, cells_per_step, _FULL_SHARES, label_only=False)
        return VoteRelease(self, prices)


@dataclass(frozen=True, slots=True)
class BlockRelease(ABC):
    """Release of one block of q queries: contribution, charge and noise from the same `prices`."""

    mechanism: VoteMechanism
    prices: VotePrices

    @property
    def scales(self) -> Steps:
        """Noise scale of each query in grid steps, int64 (q,). Public."""
        return self.prices.scales

    @property
    def noise(self) -> Floats:
        """Standard deviation of the noise on every vote of a query, in votes, (q,). Public."""
        return self.scales / self.mechanism.grid.steps

    def select_queries(self, queries: slice) -> Self:
        """Return the release of a slice of the block's queries, which is charged separately."""
        return replace(self, prices=self.prices.select_queries(queries))

    def contribute_and_charge(
        self, neighbours: NeighbourLists, subjects: SubjectTable
    ) -> tuple[Steps, int]:
        """Return the sums of contributions and the sum of charges; both private.

        The contribution of a subject to a query is the sum of its records' vectors, weighted by
        the kernel and scaled down to its remaining budget. The vector of a record with a class is
        1 at that class. The sums, int64 (q, c), are in grid steps and may be released only through
        :meth:`publish`; the charges are in units.

        `neighbours`: neighbour lists of the q queries. `subjects`: the shard's subjects, whose
        remaining units are charged in place, query after query.
        """
        mechanism = self.mechanism
        kernel = mechanism.kernel
        weights = KernelWeights(mechanism.weights, kernel.level_origin, kernel.level_shift)
        n_coordinates = mechanism.n_coordinates
        return charge_neighbours(neighbours, subjects, weights, self.prices, n_coordinates)

    @abstractmethod
    def publish(self, vote_sums: Steps) -> AnyArray:
        """Return the released values: noisy votes, or labels computed from them.

        `vote_sums`, int64 (q, c): contributions added up over all shards, in steps; private.
        """

    def _add_noise(self, vote_sums: Steps) -> Steps:
        """Return `vote_sums` plus discrete Gaussian noise of each query's scale, int64 (q, c)."""
        noise_source = self.mechanism.noise_source
        # Equal scales, the common case, need a single call. The order of the samples is the same.
        if len(set(self.scales.tolist())) == 1:
            return noise_source.add_to(vote_sums, int(self.scales[0]))
        rows = zip(vote_sums, self.scales.tolist(), strict=True)
        noisy = [noise_source.add_to(row, scale) for row, scale in rows]
        return np.array(noisy, dtype=np.int64).reshape(vote_sums.shape)


@dataclass(frozen=True, slots=True)
class VoteRelease(BlockRelease):
    """Release of noisy votes."""

    def publish(self, vote_sums: Steps) -> Floats:
        """Return the noisy votes, float64 (q, c), of the `vote_sums`."""
        return self._add_noise(vote_sums) / self.mechanism.grid.steps


# Smallest noise scale in grid steps. The delta slack of a release falls with the square of the
# scale (accounting/gaussian.py), and the prices of labels are proven from 2^22 steps.
MIN_SCALE = 1 << 22

# Largest number of grid steps in a unit contribution: squared norms fit into int64.
MAX_UNIT_STEPS = 1 << 29

# Share of delta that the grid's slack may use in a GDP guarantee. The budget is computed for the
# remaining delta.
SLACK_SHARE = 0.01

# Relative margin for rounding errors of sums of slack.
_ROUNDING = 1e-9

# The grid is refined, as far as the arithmetic allows, until this multiple of the planned releases
# would fit into the slack's share of delta.
_RELEASE_MULTIPLE = 200


@dataclass(frozen=True, slots=True)
class VoteGrid:
    """A grid with ``steps`` (a power of two) steps in a contribution of 1 vote or 1 subject.

    All contributions and noise scales are whole numbers of steps.

    Examples
    --------
    >>> from vicinal.mechanisms import VoteGrid
    >>> VoteGrid(steps=1024).convert_noise(2.0)
    2048
    """

    steps: int

    def __post_init__(self) -> None:
        """Raise InvalidInput unless the number of steps is an allowed power of two."""
        # With more than 2^29 steps the square of a kernel weight of 1 could overflow int64 and
        # make the charge negative.
        steps = checks.check_integer("steps", self.steps, minimum=1, maximum=MAX_UNIT_STEPS)
        if steps & (steps - 1):
            raise InvalidInput(f"The 'steps' parameter must be a power of two. Got {steps}.")

    @classmethod
    def choose(
        cls,
        min_noise: float,
        n_releases: int,
        n_coordinates: int,
        delta: float,
        remedy: str = "Choose a smaller 'epsilon' or a larger 'delta'.",
    ) -> VoteGrid:
        """Return a coarse grid on which a plan's delta slack is at most `SLACK_SHARE` of delta.

        - `min_noise`: the smallest noise scale that will be used, in votes.
        - `n_releases`, `n_coordinates`: number of planned releases, and of coordinates of each.
        - `delta`: the delta of the guarantee.
        - `remedy`: advice on parameters that increase the noise, for the message of the
          InvalidInput that is raised if the noise is too small for the finest possible grid.
        """
        min_noise = checks.check_real("noise scale", min_noise, above=0)
        # compute_grid_slack(s) <= 0.43 / s^2 for s >= 4 (2 * 2.57 / 12, plus a vanishing term).
        planned_scale = math.sqrt(0.43 * n_releases * n_coordinates / (SLACK_SHARE * delta))
        min_scale = max(MIN_SCALE, planned_scale)
        desired_scale = max(MIN_SCALE, planned_scale * math.sqrt(_RELEASE_MULTIPLE))
        desired_bits = math.ceil(math.log2(desired_scale / min_noise))
        max_steps = min(MAX_UNIT_STEPS, MAX_NORM / min_noise)
        bits = min(max(0, desired_bits), math.floor(math.log2(max_steps)))
        if bits < 0 or min_noise * (1 << bits) < min_scale:
            raise InvalidInput(
                # The message does not state the noise: with a private model it follows from the
                # model's weights.
                "The noise must be larger: such a scale would need a grid finer than exact "
                f"arithmetic allows. {remedy}"
            )
        return cls(1 << bits)

    @property
    def max_noise(self) -> float:
        """The largest noise scale, in votes, that the integer arithmetic allows."""
        return MAX_SCALE / self.steps

    def convert_noise(self, noise_std: float) -> int:
        """Return the noise scale `noise_std`, in votes, as a number of steps, rounded up."""
        return math.ceil(checks.check_real("noise scale", noise_std, above=0) * self.steps)


class DeltaSlackAccountant:
    """Account of the delta slack of all releases on the grid, limited to a share of delta.

    An RDP guarantee needs none: the discrete Gaussian has the same RDP as the continuous one.

    - `delta`: the delta of the guarantee, of which the share `SLACK_SHARE` may be used.
    - `needs_slack`: whether the guarantee needs slack (GDP); if not, no release is refused.
    - `spent`: the delta used by earlier releases.

    Examples
    --------
    >>> from vicinal.mechanisms import DeltaSlackAccountant
    >>> slack = DeltaSlackAccountant(1e-5, needs_slack=True)
    >>> slack.charge([1 << 16], n_coordinates=10)
    >>> 0 <= slack.spent < 1e-5
    True
    """

    def __init__(self, delta: float, *, needs_slack: bool, spent: float = 0.0) -> None:
        self._limit = SLACK_SHARE * delta if needs_slack else math.inf
        self._spent = checks.check_real("spent", spent, minimum=0)

    @property
    def spent(self) -> float:
        """Delta used by past releases on the grid."""
        return self._spent

    def resume(self, spent: float) -> None:
        """Set the delta used by earlier releases to `spent`, as recorded by a previous process."""
        self._spent = checks.check_real("spent", spent, minimum=0)

    def check_slack(self, additional: float) -> None:
        """Raise PrivacyRefused if `additional` delta slack would exceed the limit.

        Call it for a whole request before any noise is drawn. `additional` is at least the sum that
        :meth:`charge` will add for the request, in any number of calls, whatever the noise.
        """
        # The margin covers the rounding up in charge(), one unit in the last place for every call.
        if self._spent + additional * (1 + _ROUNDING) > self._limit * (1 - _ROUNDING):
            raise PrivacyRefused(
                "So many answers were given that their rounding to a grid would use up 1 % of "
                "delta. Start a new classifier with a larger 'n_queries'."
            )

    def charge(self, scales: list[int], n_coordinates: int) -> None:
        """Add the slack of releases before they are made.

        Raises PrivacyRefused, and adds nothing, if the total would exceed the limit.

        - `scales`: noise scale of each release, in grid steps.
        - `n_coordinates`: number of coordinates of each release.
        """
        slack_by_scale = {scale: compute_grid_slack(scale) for scale in set(scales)}
        additional = n_coordinates * math.fsum(slack_by_scale[scale] for scale in scales)
        # Rounded up: a long sum of small terms must not fall below the true slack.
        total = math.nextafter(self._spent + additional, math.inf)
        if total > self._limit:
            self.check_slack(math.inf)  # exceeds any limit, so it raises PrivacyRefused
        self._spent = total
