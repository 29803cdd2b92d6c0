"""Publishes what PATE's answers cost given the votes, once, with noise of smooth sensitivity.

Proof note: smooth_cost.md. Source: Papernot et al. 2018, section B.3.
"""

from __future__ import annotations

import math

from vicinal import _checks
from vicinal._arrays import Ints
from vicinal.accounting._smooth_cost import SmoothCost, SmoothRelease
from vicinal.mechanisms._release_counter import ReleaseCounter
from vicinal.noise import NoiseSource

LEAST_SHARE = 2.0**-12
"""A sensitivity below this share of the largest cost that there can be is taken as this."""

LEAST_SCALE = 1 << 27
"""Noise scales are at least this many steps."""

_STEPS = 1 << 39
_ROOM = 2.0**-26
"""Covers the roundings of costs and scales to whole steps."""


class NoisyCost:
    """The summed cost of up to `n_queries` labels at one Renyi order, published once.

    - `cost`: what a query costs, by its votes.
    - `beta`, `sigma`: smoothness and noise multiplier, 0 < beta <= 3.9, 1e-3 <= sigma <= 1e3.
    - `n_queries`: the most queries whose cost is summed; public.
    - `noise`: where noise comes from.
    """

    def __init__(
        self, cost: SmoothCost, beta: float, sigma: float, n_queries: int, noise: NoiseSource
    ) -> None:
        self.cost = cost
        self.beta = _checks.real("beta", beta, above=0, most=3.9)
        self.sigma = _checks.real("sigma", sigma, least=1e-3, most=1e3)
        self._largest = n_queries * float(cost.table[0])
        self._step = self._largest * self.sigma / _STEPS
        self._quota = ReleaseCounter(1, "costs")
        self._noise = noise

    @property
    def term(self) -> SmoothRelease:
        """Return what publishing costs, as a term of a composition."""
        return SmoothRelease(self.beta + _ROOM, self.sigma)

    def publish(self, votes: Ints) -> float:
        """Take from the quota and return the noisy cost of all queries with `votes` (q, c)."""
        self._quota.note_releases(1)
        value = math.ceil(math.fsum(self.cost.private_costs(votes)) / self._step)
        drawn = self._noise.discrete_gaussian(self.scale(votes), 1)[0]
        return (value + int(drawn)) * self._step

    def scale(self, votes: Ints) -> int:
        """Return the scale of the noise in steps. Private."""
        smooth = self.cost.private_sensitivity(votes, self.beta)
        smooth = max(smooth, LEAST_SHARE * self._largest) * (1 + (1 + self.sigma) * _ROOM)
        return math.ceil(self.sigma * smooth / self._step)
