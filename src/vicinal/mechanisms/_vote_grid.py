"""The grid that votes and noise live on, and what it costs in delta. Proof note: votes.md."""

from __future__ import annotations

import math
from dataclasses import dataclass

from vicinal import _checks
from vicinal.accounting._budget import MAX_NORM, MAX_SCALE
from vicinal.accounting._gaussian import grid_slack
from vicinal.errors import InvalidInput, PrivacyRefused

FINE = 1 << 22
"""Noise scales are at least this many grid steps."""

FINEST = 1 << 29
"""Steps in a unit contribution are at most this many: squared norms stay inside int64."""

SLACK_SHARE = 0.01
"""Share of delta that the grid may use up in a GDP guarantee."""

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

    @classmethod
    def fitting(cls, least_noise: float, releases: int, coordinates: int, delta: float) -> VoteGrid:
        """Return the coarsest grid on which the slack of a whole plan is negligible.

        Parameters
        ----------
        least_noise : float
            The smallest noise scale that will be used, in unit contributions.
        releases, coordinates : int
            Planned number of releases, and of coordinates that one subject can move in each.
        delta : float
            The delta of the guarantee.
        """
        least_noise = _checks.real("noise scale", least_noise, above=0)
        # grid_slack(s) <= 0.43 / s^2 for s >= 4 (2 * 2.57 / 12, plus a vanishing term).
        enough = math.sqrt(0.43 * releases * coordinates / (SLACK_SHARE * delta))
        least = max(FINE, enough)
        bits = math.ceil(math.log2(max(FINE, enough * math.sqrt(_RESERVE)) / least_noise))
        finest = min(FINEST, MAX_NORM / least_noise)
        bits = min(max(0, bits), math.floor(math.log2(finest)))
        if bits < 0 or least_noise * (1 << bits) < least:
            raise InvalidInput(
                f"The noise must be larger: a scale of {least_noise:g} votes would need a grid "
                "finer than exact arithmetic allows. Raise 'noise_multiplier' or 'delta'."
            )
        return cls(1 << bits)

    @property
    def largest(self) -> float:
        """The largest noise scale, in unit contributions, that arithmetic allows."""
        return MAX_SCALE / self.steps

    def scale(self, noise: float) -> int:
        """Return the noise scale of `noise` unit contributions in steps, rounded up."""
        return math.ceil(_checks.real("noise scale", noise, above=0) * self.steps)


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
        self._spent = _checks.real("spent", spent, least=0)

    @property
    def spent(self) -> float:
        """Return the delta used up so far by releases on the grid."""
        return self._spent

    def resume(self, spent: float) -> None:
        """Go on from what is on record: releases after it were never given away."""
        self._spent = _checks.real("spent", spent, least=0)

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
        more = coordinates * math.fsum(grid_slack(scale) for scale in scales)
        total = math.nextafter(self._spent + more, math.inf)
        if total > self._limit:
            self.check(math.inf)
        self._spent = total
