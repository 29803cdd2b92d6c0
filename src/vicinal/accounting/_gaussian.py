r"""The Gaussian mechanism, continuous and on a grid.

Slack of the grid, with proof
-----------------------------
A release adds a discrete Gaussian of scale s (grid steps) to an integer that one subject moves by
at most D <= s steps. In RDP the discrete Gaussian costs no more than the continuous one (Canonne,
Kamath & Steinke 2020, Prop. 5). In terms of hockey-stick divergences it may cost a little more.

*Claim.* At every real epsilon the discrete divergence exceeds the continuous one by at most
tau = (1.77 + 0.8 d) / (12 s^2) + 8 exp(-2 pi^2 s^2), with d = D/s.

*Proof.* Take D > 0 (D < 0 is the mirror image) and epsilon >= 0. In units of s the integrand is
g(u) = [phi(u - d) - e^eps phi(u)]_+, zero below t and smooth above it, where e^eps phi(t) =
phi(t - d), so t = eps/d + d/2 > 0. By Euler-Maclaurin the sum over a grid of step h differs from
the integral by (h^2/2) times the integral of the periodic Bernoulli polynomial B2 against dg', so
by at most V h^2/12, where V is the total variation of g' (its jump at t included) and
|B2| <= 1/6. Here h = 1/s. V is at most the sum of: the jump of g' at t, d phi(t - d) <= .399 d;
the variation of phi', at most 4 phi(1) = .968; and that of e^eps phi' on (t, inf). The last is,
for t >= 1, e^eps t phi(t) = (t - d) phi(t - d) + d phi(t - d) <= .242 + .399 d; for t < 1 at most
2 e^eps phi(1) = 2 phi(1) phi(t - d)/phi(t) <= 2 (.399) = .798. Together V <= 1.77 + .8 d. The sum
uses the normaliser of the discrete law, within a factor 1 +- 2.1 exp(-2 pi^2 s^2) of s sqrt(2 pi)
(Poisson summation), which moves either term by less than 4 exp(-2 pi^2 s^2). For epsilon < 0 use
H_eps(P|Q) = 1 - e^eps + e^eps H_{-eps}(Q|P): the excess shrinks by e^eps.  QED

*Consequence.* The pair is dominated by Gaussian(mu = d) composed with a (0, eta) mechanism that
fails openly with probability eta = 2 tau: that mechanism has (1 - eta) H + eta, so eta (1 - H) >=
tau is needed. For epsilon >= 0, 1 - H_eps >= 1 - H_0 = 2 Phi(-d/2) >= .617 at d <= 1; for
epsilon < 0 both 1 - H_eps = e^eps (1 - H_{-eps}) and the excess carry the factor e^eps.  QED
A subject that moves several coordinates meets one such pair for each, independently: mu adds in
squares and eta adds up.
"""

from __future__ import annotations

import math
from functools import lru_cache

from vicinal import _checks


def grid_excess(scale: float, shift: float) -> float:
    """Return tau of the module's claim: how far the discrete divergence may exceed the other.

    Parameters
    ----------
    scale : float
        The noise scale s, in grid steps, at least 1.
    shift : float
        The distance D between the two centres, in grid steps, 0 <= D <= s.
    """
    scale = _checks.real("scale", scale, least=1)
    ratio = _checks.real("shift", shift, least=0, most=scale) / scale
    normaliser = 8 * math.exp(-2 * math.pi**2 * scale**2)
    return math.nextafter((1.77 + 0.8 * ratio) / (12 * scale**2) + normaliser, 1.0)


@lru_cache(maxsize=4096)
def grid_slack(scale: float) -> float:
    """Return eta: what one coordinate of one release adds to delta in a GDP guarantee.

    Valid for every shift up to `scale` steps; the mechanisms never allow more.
    """
    return 2 * grid_excess(scale, scale)
