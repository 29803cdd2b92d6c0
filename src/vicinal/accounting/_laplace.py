"""The Laplace mechanism on one number."""

from __future__ import annotations

import dataclasses

import numpy as np

from vicinal import _checks
from vicinal.accounting._divergence import Array
from vicinal.accounting._pate import lnmax_rdp


@dataclasses.dataclass(frozen=True)
class Laplace:
    """Laplace noise on a number that one subject moves by at most 1.

    LNMax changes two counts by one each, and is a function of two such releases.

    Parameters
    ----------
    scale : float
        Scale b of the noise, .001 <= b <= 10^6.
    """

    scale: float

    def __post_init__(self) -> None:
        _checks.real("scale", self.scale, least=1e-3, most=1e6)

    def rdp(self, orders: Array) -> Array:
        """Return the RDP at `orders` (m,), half of LNMax (Mironov 2017, Table II)."""
        return np.asarray(lnmax_rdp(self.scale, orders) / 2)

    def pair(self) -> LaplacePair:
        """Return the pair of two Laplace laws a distance of 1 apart; exact."""
        return LaplacePair(1 / self.scale)


@dataclasses.dataclass(frozen=True)
class LaplacePair:
    """Laplace laws of scale 1 that lie `distance` apart."""

    distance: float
    symmetric = True

    def gaussian(self) -> float | None:
        """Return None."""
        return None

    def excess(self, losses: Array) -> Array:
        """Return the excess at `losses` (m,): 1 - e^{(eps - distance)/2} at 0 <= eps <= distance.

        Source: Balle, Barthe & Gaboardi 2018, Theorem 3.
        """
        value = -np.expm1(np.minimum((np.abs(losses) - self.distance) / 2, 0.0))
        return np.where(losses < 0, np.exp(np.minimum(losses, 0.0)) * value, value)
