"""What can be told of a neighbourhood: means, shares and histograms with their standard errors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from vicinal._arrays import Floats


@dataclass(frozen=True, slots=True)
class NoisyEstimate:
    """A number read off noisy sums.

    `value`: the estimate. `error`: its standard error from the noise alone, which is public.
    """

    value: float
    error: float

    def __str__(self) -> str:
        """Return the number with its error."""
        return f"{self.value:.3g} +- {self.error:.2g}"


@dataclass(frozen=True, slots=True)
class NeighborhoodSummary:
    """What the records near one query say together; all of it was paid for, and is public.

    - `weight`: their summed kernel weight: about how many there are.
    - `means`: averages of numbers.
    - `shares`: shares of classes or labels, between 0 and 1.
    - `histograms`, mapping of str to (float64 (J + 2,), float64 (J + 1,)): edges of bins, and the
      share of the numbers in each.
    """

    weight: NoisyEstimate
    means: Mapping[str, NoisyEstimate] = field(default_factory=dict)
    shares: Mapping[object, NoisyEstimate] = field(default_factory=dict)
    histograms: Mapping[str, tuple[Floats, Floats]] = field(default_factory=dict)

    def __str__(self) -> str:
        """Return one line, the largest shares first."""
        shares = sorted(self.shares.items(), key=lambda item: -item[1].value)
        phrases = [f"{name}: {100 * e.value:.0f} % +- {100 * e.error:.0f}" for name, e in shares]
        phrases += [f"{name}: {estimate}" for name, estimate in self.means.items()]
        return f"records near, by weight: {self.weight}; " + ", ".join(phrases)


def share_errors(shares: Floats, votes: Floats, noise: Floats) -> Floats:
    """Return the standard errors of shares, (q, c), to first order in the noise; at most 1.

    The noise on a class moves its share by (1 - share) / total, that on the others by -share /
    total each.

    `shares`, `votes`, float64 (q, c): of all classes; votes as released. `noise`, float64 (q,):
    standard deviation of the noise in each vote, above 0.
    """
    total = np.maximum(votes.sum(axis=1), noise)[:, None]
    moved = np.sqrt((1 - shares) ** 2 + (votes.shape[1] - 1) * shares**2)
    return np.asarray(np.minimum(noise[:, None] * moved / total, 1.0))
