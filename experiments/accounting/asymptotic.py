r"""Screening under Poisson sampling in closed form: how the cost falls with gamma and sigma.

Private-kNN's supplement states an asymptotic Theorem 8 for the same mechanism (Zhu, Yu, Chandraker
& Wang 2020). Its statement could not be checked against a public text, and its constants hide the
range in which it holds; what follows is a derivation of ours. It is for reading and for rules of
thumb. Plans are priced by the exact bound of :mod:`vicinal.accounting._screening`, which is never
larger.

Claim
-----
With A = max(|T|, |k - T|)/sigma, B = (A + sqrt(A^2 + 4))/2, y = B/sigma and

    z(alpha) = y + gamma max((alpha - 2)_+ (e^y - 1), (alpha + 1) y),

the screening of k votes at threshold T, noise sigma and sampling rate gamma satisfies, at every
order alpha > 1 and in both directions,

    D_alpha <= alpha gamma^2 / (pi sigma^2) * e^{z(alpha)}.

z goes to 0 as sigma grows, with T/sigma and k/sigma bounded and alpha gamma/sigma going to 0, too:
the leading term is 2/pi of the Gaussian's alpha gamma^2 / (2 sigma^2). No smaller one can stand
there: at t = T the divergence is alpha gamma^2 / (pi sigma^2) (1 + o(1)).

Proof
-----
Upward steps at a position a compare q = Phi(a) with r = q + gamma (p - q), p = Phi(a + m), m =
1/sigma; downward steps are upward ones of the complement, and all a and a + m lie in [-A, A]
(screening.py).

1. *Ratios.* h(x) = phi(x)/Phi(x) falls in x, and h(-x) <= (x + sqrt(x^2 + 4))/2 for x >= 0
   (Birnbaum 1942). So log(p/q), the integral of h over [a, a + m], is at most m B = y, and likewise
   log((1-p)/(1-q)) >= -y.
2. *The largest slope.* f = phi^2/(Phi (1 - Phi)) is at most f(0) = 2/pi: for a > 0,
   (log f)' = h(-a) - h(a) - 2a < 0, because it vanishes at 0 and x -> h(x) (h(x) + x) is one less
   the variance of a truncated normal, hence below 1, so that (h(-a) - h(a))' < 2. f is even.
3. *Chi-square.* On [a, a + m], Phi(x) (1 - Phi(x)) <= e^{y (x-a)/m} q (1 - q) by 1, so p - q, the
   integral of phi <= sqrt(2/pi) sqrt(Phi (1 - Phi)), is at most sqrt(2/pi) m e^{y/2} sqrt(q (1-q)).
   The chi-square divergence of Bernoulli(p) from Bernoulli(q) is thus at most (2/pi) m^2 e^y, and
   that of Bernoulli(r) is gamma^2 times as much.
4. *Rényi.* With u the relative change of an outcome's probability and b = alpha or 1 - alpha,
   (alpha - 1) D = log(1 + E_Q[(1 + u)^b - 1 - b u]) (divergence.py), and by Taylor
   (1 + u)^b - 1 - b u = b (b - 1)/2 u^2 (1 + theta u)^{b-2} with theta in [0, 1]. By 1,
   -gamma (1 - e^{-y}) <= u <= gamma (e^y - 1). The last factor is at most
   (1 + gamma (e^y - 1))^{(alpha-2)_+} where b = alpha > 2, else at most
   (1 - gamma (1 - e^{-y}))^{-(alpha+1)}; log(1 + gamma (e^y - 1)) <= gamma (e^y - 1), and
   log(1 - gamma (1 - e^{-y})) >= -gamma y, as it is concave in gamma with ends 0 and -y.
   b (b - 1)/2 = alpha (alpha - 1)/2 in both cases; 3 and log(1 + x) <= x complete the proof.  QED
"""

from __future__ import annotations

import math

import numpy as np

from vicinal._arrays import Floats
from vicinal.accounting._screening import Screening
from vicinal.errors import InvalidInput

_LARGEST_EXPONENT = 1.0
_SAFETY = 1 + 1e-12


def leading_rdp(screening: Screening, orders: Floats) -> Floats:
    """Return alpha gamma^2 / (pi sigma^2) at `orders` (m,): the leading term alone, no bound."""
    return np.asarray(orders * screening.gamma**2 / (math.pi * screening.sigma**2))


def exponent(screening: Screening, orders: Floats) -> Floats:
    """Return z at `orders` (m,): the bound is e^z times the leading term."""
    largest = max(abs(screening.threshold), abs(screening.k - screening.threshold))
    reach = largest / screening.sigma
    y = (reach + math.sqrt(reach**2 + 4)) / (2 * screening.sigma)
    with np.errstate(over="ignore"):
        up = np.maximum(orders - 2, 0) * np.expm1(y)
    return np.asarray(y + screening.gamma * np.maximum(up, (orders + 1) * y))


def asymptotic_rdp(screening: Screening, orders: Floats) -> Floats:
    """Return the closed bound on the RDP of a screening at `orders` (m,), rounded up.

    Raises
    ------
    InvalidInput
        At an order where z > 1: the noise is too small, the threshold or k - T too many deviations
        of it away, or alpha gamma too large, for the leading term to say anything.
    """
    orders = np.atleast_1d(np.asarray(orders, dtype=np.float64))
    if not (np.isfinite(orders).all() and (orders > 1).all()):
        raise InvalidInput("The 'orders' parameter must hold finite numbers > 1.")
    power = exponent(screening, orders)
    if (power > _LARGEST_EXPONENT).any():
        worst = float(orders[int(np.argmax(power))])
        raise InvalidInput(
            f"The 'orders' parameter must stay where the asymptotic bound holds within a factor e "
            f"of its leading term: z <= 1. At order {worst:g} z is {float(power.max()):.3g}; take "
            "smaller orders, a larger sigma or a smaller gamma, or the exact bound."
        )
    return np.asarray(leading_rdp(screening, orders) * np.exp(power) * _SAFETY)
