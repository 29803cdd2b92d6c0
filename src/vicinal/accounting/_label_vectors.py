r"""Multi-label votes with the tau-approximation.

Each neighbour's 0/1 label vector f becomes f * min(tau/|f|_1, 1), so its squared L2 norm is at most
tau. One subject in and one out of the k neighbours moves the sum by at most sqrt(2 tau), as two
vectors with non-negative entries differ by ||a - b||^2 <= ||a||^2 + ||b||^2 <= 2 tau. With noise of
scale sigma on every attribute the RDP is alpha tau / sigma^2.

Source: Zhu, Yu, Chandraker & Wang 2020, supplement, Theorem 5. Their published code scales the
ones of a vector but not its zeros (as votes of no), which triples the cost at tau=10 of 40 labels.
"""

from __future__ import annotations

import math

from vicinal import _checks
from vicinal.accounting._subsampled import SubsampledGaussian


def sensitivity(tau: float) -> float:
    """Return the L2 sensitivity sqrt(2 tau) of the summed, tau-bounded label vectors."""
    return math.nextafter(math.sqrt(2 * _checks.real("tau", tau, above=0)), math.inf)


def multilabel(tau: float, sigma: float, gamma: float = 1.0) -> SubsampledGaussian:
    """Return the release of one query's noisy label counts at noise scale `sigma` (votes)."""
    scale = _checks.real("sigma", sigma, above=0)
    return SubsampledGaussian(scale / sensitivity(tau), gamma)
