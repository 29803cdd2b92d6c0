"""How much noise a plan of rounds needs, found before the first question.

Private-kNN and PATE charge nobody in particular: every question costs the same, and what all rounds
cost together is decided by their noise. A round that has a share w of the budget for n questions
gets noise in proportion to sqrt(n / w), for the cost of Gaussian noise falls with its square.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from scipy.optimize import brentq

from vicinal import _checks
from vicinal.errors import PrivacyRefused
from vicinal.labelling._plan import LabellingPlan, Round

_LEAST, _MOST = 0.1, 1e7
_START, _FACTOR = 25.0, 4.0
_PRECISION = 1e-5


def noise_of(part: Round, plan: LabellingPlan, sigma: float) -> float:
    """Return a round's noise where the whole plan's is `sigma`; a single round's is just that."""
    return sigma * math.sqrt(part.questions / (part.share * plan.questions))


def least_noise(cost: Callable[[float], float], epsilon: float) -> float:
    """Return the least noise with which a plan keeps a target, up to two parts in 100,000.

    Parameters
    ----------
    cost : callable
        Noise to epsilon of the whole plan; falling.
    epsilon : float
        The target, > 0.

    Raises
    ------
    PrivacyRefused
        If no noise keeps it: something else of the plan, its screening say, is too dear.
    """
    target = _checks.real("epsilon", epsilon, above=0)

    def gap(logarithm: float) -> float:
        # Costs that come to nothing have no logarithm.
        return math.log(max(cost(math.exp(logarithm)), 1e-6 * target) / target)

    low, high = _bracket(lambda sigma: gap(math.log(sigma)))
    if low == high:
        return low
    found = math.exp(brentq(gap, math.log(low), math.log(high), xtol=_PRECISION))
    while cost(found) > target:
        found *= 1 + _PRECISION
    return found


def _bracket(gap: Callable[[float], float]) -> tuple[float, float]:
    """Return noise that is too little and noise that is enough; the same twice at the least."""
    low = high = _START
    while gap(high) > 0:
        low, high = high, high * _FACTOR
        if high > _MOST:
            raise PrivacyRefused(
                "No noise on the votes keeps the plan at this epsilon: its screening costs more "
                "than that. Take a larger epsilon, or more noise on the screening."
            )
    while gap(low) <= 0 and low > _LEAST:
        low, high = max(low / _FACTOR, _LEAST), low
    return (low, high) if gap(low) > 0 else (low, low)
