"""Kernel-weighted votes or vectors of neighbours, charged to each subject exactly; sums leave.

Votes and noise are whole numbers of steps of a grid, and what that costs in delta is metered.
Proof note: votes.md. Source: ZZGW23 Algorithm 3; individual filter of Feldman & Zrnic 2021.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from vicinal import checks
from vicinal.accounting.budget import MAX_NORM, MAX_SCALE, unit_rate
from vicinal.accounting.gaussian import grid_slack
from vicinal.arrays import AnyArray, Floats, Steps
from vicinal.errors import InvalidInput, PrivacyRefused
from vicinal.mechanisms.charging import KernelWeights, VotePrices, charge_neighbours
from vicinal.mechanisms.subject_table import SubjectTable
from vicinal.neighbours.kernels import Kernel
from vicinal.neighbours.scan import NeighbourLists
from vicinal.noise.source import NoiseSource

_WHOLE_PRICE = np.ones((1, 1))


class VoteMechanism(ABC):
    """What the releases of one classifier share: kernel, classes, grid and noise, all public.

    - `kernel`: its table of values, rounded down to whole steps, gives the weights.
    - `n_classes`: the number of coordinates: classes, or the width of the records' vectors.
    - `grid`: the grid on which votes and noise live.
    - `noise`: where noise comes from.
    - `budget`: the zCDP that a subject's full budget stands for.
    - `meter`: of what the grid costs in delta.
    """

    label_only: bool  # whether labels leave, or votes

    def __init__(
        self,
        kernel: Kernel,
        n_features: int,
        n_classes: int,
        budget: float,
        grid: VoteGrid,
        noise: NoiseSource,
        meter: DeltaSlackAccountant,
    ) -> None:
        self.kernel = kernel
        self.n_classes = n_classes
        self.grid = grid
        self.noise = noise
        self.budget = budget
        self.meter = meter
        # Rounded down: what is added is what is charged, so rounding costs accuracy alone.
        self.weights = np.floor(kernel.table(n_features) * grid.steps).astype(np.int64)

    @abstractmethod
    def release(self, noise: Floats) -> BlockRelease:
        """Return the release of one block of queries.

        - `noise`, float64 (q,): the noise scale of every query in votes, fixed by public things
          alone.
        """

    def slack(self, noise: float) -> float:
        """Return the delta that the grid costs in one release of at least this noise scale."""
        return self.n_classes * grid_slack(self.grid.scale(noise))

    def _prices(self, noise: Floats) -> tuple[Steps, Floats]:
        """Return noise scales in steps, int64 (q,), and what a squared step costs in units.

        What the grid costs is metered, and may refuse the release before any subject is charged.
        """
        distinct, which = np.unique(noise, return_inverse=True)
        scales = [self.grid.scale(value) for value in distinct]
        rates = [unit_rate(scale, self.budget) for scale in scales]
        self.meter.charge([scales[place] for place in which], self.n_classes)
        return np.array(scales, dtype=np.int64)[which], np.array(rates, dtype=np.float64)[which]


class NoisyVotes(VoteMechanism):
    """All noisy votes leave; a subject pays for the length of what it contributed."""

    label_only = False

    def release(self, noise: Floats) -> VoteRelease:
        scales, rates = self._prices(noise)
        return VoteRelease(self, scales, rates, rates, np.zeros(len(scales)), _WHOLE_PRICE)


@dataclass(frozen=True, slots=True)
class BlockRelease(ABC):
    """Contribution, charge and noise of one block of queries, which cannot disagree.

    - `scales`, int64 (q,): noise scale of each query, in grid steps.
    - `rates`, float64 (q,): units that a squared step costs under that scale, rounded up.
    - `single_rates`, float64 (q,): the same where it is the only coordinate that is moved.
    - `table_scale`, float64 (q,): cells of `price_table` that a step goes up by under that scale.
    - `price_table`, float64 (r, m): what moving one coordinate costs, as shares of that price, by
      what is left and by cells; unused where votes leave.
    """

    mechanism: VoteMechanism
    scales: Steps
    rates: Floats
    single_rates: Floats
    table_scale: Floats
    price_table: Floats

    @property
    def noise(self) -> Floats:
        """Standard deviation of the noise on every vote of a query, in votes, (q,). Public."""
        return self.scales / self.mechanism.grid.steps

    def of(self, part: slice) -> Self:
        """Return what belongs to consecutive queries, to be charged in parts."""
        return replace(
            self,
            scales=self.scales[part],
            rates=self.rates[part],
            single_rates=self.single_rates[part],
            table_scale=self.table_scale[part],
        )

    def contribute_and_charge(
        self, neighbours: NeighbourLists, subjects: SubjectTable
    ) -> tuple[Steps, int]:
        """Charge every neighbour for its votes and return their sums; still private.

        Each subject adds the sum of its records' vectors, by their kernel weights, scaled down to
        what it can still afford, and is charged for exactly that, query after query. The vector of
        a record with a class is 1 at that class.

        Returns sums in grid steps, int64 (q, c), which must not leave before :meth:`publish` has
        added noise, and all charges together, in units; private.
        """
        mechanism, kernel = self.mechanism, self.mechanism.kernel
        weights = KernelWeights(mechanism.weights, kernel.level_origin, kernel.level_shift)
        prices = VotePrices(
            self.scales, self.rates, self.single_rates, self.table_scale, self.price_table,
            mechanism.label_only,
        )  # fmt: skip
        return charge_neighbours(neighbours, subjects, weights, prices, mechanism.n_classes)

    @abstractmethod
    def publish(self, votes: Steps) -> AnyArray:
        """Add the noise that the charges paid for, and return what may leave."""

    def _noisy(self, votes: Steps) -> Steps:
        noise = self.mechanism.noise
        # Equal scales, the common case, take one vector call; the order of draws is the same.
        if len(set(self.scales.tolist())) == 1:
            return noise.add_to(votes, int(self.scales[0]))
        rows = zip(votes, self.scales.tolist(), strict=True)
        noisy = [noise.add_to(row, scale) for row, scale in rows]
        return np.array(noisy, dtype=np.int64).reshape(votes.shape)


@dataclass(frozen=True, slots=True)
class VoteRelease(BlockRelease):
    """A release of noisy votes."""

    def publish(self, votes: Steps) -> Floats:
        return self._noisy(votes) / self.mechanism.grid.steps


FINE = 1 << 22  # noise scales are at least this many grid steps

# Steps in a unit contribution are at most this many: squared norms stay inside int64.
FINEST = 1 << 29

SLACK_SHARE = 0.01  # share of delta that the grid may use up in a GDP guarantee

_ROUNDING = 1e-9

# Where arithmetic allows, two hundred times the planned releases would still fit into the share.
_RESERVE = 200


@dataclass(frozen=True, slots=True)
class VoteGrid:
    """A grid of ``steps`` (a power of two) steps in a unit contribution.

    Everything that is summed is a whole number of steps, and so is every noise scale.

    Examples
    --------
    >>> from vicinal.mechanisms import VoteGrid
    >>> VoteGrid(steps=1024).scale(2.0)
    2048
    """

    steps: int

    def __post_init__(self) -> None:
        # Beyond 2^29 a kernel weight of 1 could be squared past int64, and the charge wrap around.
        steps = checks.check_integer("steps", self.steps, least=1, most=FINEST)
        if steps & (steps - 1):
            raise InvalidInput(f"The 'steps' parameter must be a power of two. Got {steps}.")

    @classmethod
    def fitting(
        cls,
        least_noise: float,
        releases: int,
        coordinates: int,
        delta: float,
        remedy: str = "Choose a smaller 'epsilon' or a larger 'delta'.",
    ) -> VoteGrid:
        """Return the coarsest grid on which the slack of a whole plan is negligible.

        Parameters
        ----------
        least_noise : float
            The smallest noise scale that will be used, in unit contributions.
        releases, coordinates : int
            Planned number of releases, and of coordinates that one subject can move in each.
        delta : float
            The delta of the guarantee.
        remedy : str
            The parameters that make the noise larger, for the message of InvalidInput.
        """
        least_noise = checks.check_real("noise scale", least_noise, above=0)
        # grid_slack(s) <= 0.43 / s^2 for s >= 4 (2 * 2.57 / 12, plus a vanishing term).
        enough = math.sqrt(0.43 * releases * coordinates / (SLACK_SHARE * delta))
        least = max(FINE, enough)
        bits = math.ceil(math.log2(max(FINE, enough * math.sqrt(_RESERVE)) / least_noise))
        finest = min(FINEST, MAX_NORM / least_noise)
        bits = min(max(0, bits), math.floor(math.log2(finest)))
        if bits < 0 or least_noise * (1 << bits) < least:
            raise InvalidInput(
                # Not how large it is: beside a private model that follows from its weights.
                "The noise must be larger: such a scale would need a grid finer than exact "
                f"arithmetic allows. {remedy}"
            )
        return cls(1 << bits)

    @property
    def largest(self) -> float:
        """The largest noise scale, in unit contributions, that arithmetic allows."""
        return MAX_SCALE / self.steps

    def scale(self, noise: float) -> int:
        """Return the noise scale of `noise` unit contributions in steps, rounded up."""
        return math.ceil(checks.check_real("noise scale", noise, above=0) * self.steps)


class DeltaSlackAccountant:
    """Adds up what the grid has cost so far, and refuses to pass its share of delta.

    An RDP guarantee needs no slack (the discrete Gaussian is as good there); its meter never
    refuses.

    Examples
    --------
    >>> from vicinal.mechanisms import DeltaSlackAccountant
    >>> slack = DeltaSlackAccountant(1e-5, needed=True)
    >>> slack.charge([1 << 16], coordinates=10)
    >>> 0 <= slack.spent < 1e-5
    True
    """

    def __init__(self, delta: float, *, needed: bool, spent: float = 0.0) -> None:
        self._limit = SLACK_SHARE * delta if needed else math.inf
        self._spent = checks.check_real("spent", spent, least=0)

    @property
    def spent(self) -> float:
        """Return the delta used up so far by releases on the grid."""
        return self._spent

    def resume(self, spent: float) -> None:
        """Go on from what is on record: releases after it were never given away."""
        self._spent = checks.check_real("spent", spent, least=0)

    def check(self, more: float) -> None:
        """Raise PrivacyRefused unless releases that cost up to `more` fit, in any parts.

        For the whole of a request, before anything is drawn for it: `more` must bound what
        :meth:`charge` is given later, whatever noise decides in between.
        """
        # Room for what charge() rounds up by: an ulp of the sum for every block.
        if self._spent + more * (1 + _ROUNDING) > self._limit * (1 - _ROUNDING):
            raise PrivacyRefused(
                "So many answers were given that their rounding to a grid would use up 1 % of "
                "delta. Start a new classifier with a larger 'n_queries'."
            )

    def charge(self, scales: list[int], coordinates: int) -> None:
        """Add the slack of releases at `scales`, before any of them is made."""
        slack_of = {scale: grid_slack(scale) for scale in set(scales)}
        more = coordinates * math.fsum(slack_of[scale] for scale in scales)
        # Rounded up: a long sum of small parts must not fall behind what was released.
        total = math.nextafter(self._spent + more, math.inf)
        if total > self._limit:
            self.check(math.inf)
        self._spent = total
