r"""From noisy votes to probabilities and labels: post-processing, which costs nothing.

What is known before a query: how common each class is in the population, pi_c, how many votes are
to be expected in all, K, and the noise s on the votes of each class. How the K votes are divided is
taken to be Dirichlet(c pi), which for equal shares is every division alike; its parts are
independent gamma variables of shape a = c pi_c and mean K pi_c. Given a noisy vote v, the expected
true votes of a class are then

    s T(v / s - c s / K),   T(b) = a D_{-a-1}(-b) / D_{-a}(-b)

with parabolic cylinder functions D (the integrals of t^a exp(b t - t^2/2) and the same without a
t). Probabilities are these numbers over their sum. The label is the class with the largest
`cost` times probability: the one rule, whatever leaves. T never decreases, so the rule is
:class:`~vicinal.mechanisms.noisy_labels.ClassScores`, for which labels alone have a price.

docs/decisions/0062-rare-classes.md has what was measured and what was rejected.
"""

from collections.abc import Callable
from functools import cached_property, lru_cache

import numpy as np
import numpy.typing as npt
from scipy.special import pbdv

from vicinal import checks
from vicinal.arrays import Floats, Ints
from vicinal.mechanisms.noisy_labels import ClassScores

_REACH = 30.0
_STEP = 1 / 64
_LARGEST_SHAPE = 50.0


class ClassDecision:
    """The one rule by which noisy votes become probabilities and labels.

    `shares`, float64 (c,): how common each class is, adding up to 1. Public. `costs`, float64 (c,):
    what it costs to miss a record of each class, above 0. Public. `total`: returns the votes to be
    expected in all, above 0; called once, when first needed. Public.
    """

    def __init__(self, shares: Floats, costs: Floats, total: Callable[[], float]) -> None:
        self._shares, self._costs, self._total = shares, costs, total

    @property
    def plain(self) -> bool:
        """Whether the class with the most votes always wins."""
        return bool(np.ptp(self._shares) == 0 and np.ptp(self._costs) == 0)

    @cached_property
    def scores(self) -> ClassScores:
        """Cost times expected votes, in noise scales: the largest is the label."""
        return self._scores(self._costs / self._costs.max())

    def probabilities(self, votes: npt.ArrayLike, noise: npt.ArrayLike) -> Floats:
        """Return the probability of every class, float64 (q, c); rows sum to 1.

        `votes`, float (q, c): as released; a row of NaN stays one. `noise`, float or float (q,):
        standard deviation of the noise in each vote, above 0.
        """
        noisy = np.asarray(votes, dtype=np.float64)
        probabilities = np.full(noisy.shape, np.nan)
        known = np.isfinite(noisy).all(axis=1)
        expected = self._plain_scores(noisy[known], _spread(noise, len(noisy))[known])
        probabilities[known] = expected / expected.sum(axis=1, keepdims=True)
        return probabilities

    def chosen(self, probabilities: Floats) -> Ints:
        """Return the class of the largest cost times probability, int64 (q,)."""
        return np.asarray((probabilities * self._costs).argmax(axis=1))

    def labels(self, votes: Floats, noise: npt.ArrayLike) -> Ints:
        """Return the position of every label, int64 (q,); ties go to the first class."""
        if self.plain:
            return np.asarray(votes.argmax(axis=1))
        return np.asarray(self.scores(votes, _spread(noise, len(votes))).argmax(axis=1))

    @cached_property
    def _expected_votes(self) -> float:
        return self._total()

    @cached_property
    def _plain_scores(self) -> ClassScores:
        return self._scores(np.ones(len(self._shares)))

    def _scores(self, weights: Floats) -> ClassScores:
        number = len(self._shares)
        tables = [_expected(number * float(share)) for share in self._shares]
        table = np.stack(tables) * weights[:, None]
        return ClassScores(table, -_REACH, _STEP, number / self._expected_votes)


def _spread(noise: npt.ArrayLike, size: int) -> Floats:
    spread = np.broadcast_to(np.asarray(noise, dtype=np.float64), (size,))
    for scale in np.unique(spread[np.isfinite(spread)]):
        checks.check_real("noise", float(scale), above=0)
    return spread


@lru_cache(maxsize=256)
def _expected(shape: float) -> Floats:
    """Return T on a grid of votes in noise scales; rounding must not make it fall."""
    votes = np.linspace(-_REACH, _REACH, round(2 * _REACH / _STEP) + 1)
    return np.asarray(np.maximum.accumulate(_mean(np.full(len(votes), shape), votes)))


def _mean(shape: Floats, votes: Floats) -> Floats:
    """Return T at votes in noise scales; beyond the reach of D it goes on as its expansions do."""
    within = np.clip(votes, -_REACH, _REACH)
    small = np.minimum(shape, _LARGEST_SHAPE)
    means = small * pbdv(-small - 1, -within)[0] / pbdv(-small, -within)[0]
    back = np.minimum(votes, -_REACH)
    means = np.where(votes < -_REACH, -small / back * (1 - (small + 1) / back**2), means)
    # Where D overflows, the mode is within 1 % of the mean. Written so that nothing cancels.
    capped, large = np.minimum(votes, _REACH), np.maximum(shape, 1.0)
    root = np.sqrt(capped**2 + 4 * large - 2)
    mode = np.where(capped < 0, (2 * large - 1) / (root + np.abs(capped)), (capped + root) / 2)
    return np.asarray(np.where(shape > _LARGEST_SHAPE, mode, means) + np.maximum(votes - _REACH, 0))
