r"""Class probabilities and labels computed from noisy votes (post-processing: not charged).

The public prior of a query consists of the share pi_c of each of c classes in the population, the
expected total K of true votes, and the standard deviation s of the noise on each class's votes. The
division of the votes among the classes has a Dirichlet(c pi) prior, which is uniform for equal
shares. The true votes of a class are then gamma variables of shape a = c pi_c and mean K pi_c.
Given a noisy vote v, the posterior mean of a class's true votes is

    s T(v / s - c s / K),   T(b) = a D_{-a-1}(-b) / D_{-a}(-b)

with parabolic cylinder functions D (T is the ratio of the integrals of t^a exp(b t - t^2/2) and of
t^(a-1) exp(b t - t^2/2) over t > 0). A probability is a class's posterior mean divided by the sum
over all classes. The label is the class with the largest product of cost and probability, whether
votes or labels are released. T never decreases, so the rule is expressed by
:class:`~vicinal.mechanisms.noisy_labels.ClassScores`, for which the charge of label-only releases
is bounded.

Measurements and rejected alternatives: docs/decisions/0062-rare-classes.md.
"""

from collections.abc import Callable
from functools import cache, cached_property, lru_cache

import numpy as np
import numpy.typing as npt
from scipy.special import pbdv

from vicinal import checks
from vicinal.arrays import Floats, Ints
from vicinal.mechanisms.noisy_labels import ClassScores

_MAX_SCALED_VOTES = 30.0
"""Largest absolute value of b for which T is tabulated, in noise standard deviations. Beyond it, T
is constant below and linear above (:class:`~vicinal.mechanisms.noisy_labels.ClassScores`)."""

_TABLE_STEP = 1 / 64  # spacing of the tables of T, in noise standard deviations
_MAX_SHAPE = 50.0  # largest gamma shape a for which D is evaluated; for larger ones it overflows


class ClassDecision:
    """The rule that converts noisy votes into probabilities and labels.

    All arguments are public. `priors`, float64 (c,): share of each class in the population;
    the sum is 1. `costs`, float64 (c,): cost of misclassifying a record of each class, above 0.
    `estimate_total`: returns the expected total K of votes on a query; called once, at first use.
    """

    def __init__(self, priors: Floats, costs: Floats, estimate_total: Callable[[], float]) -> None:
        self._class_priors = priors
        self._costs = costs
        self._estimate_total = cache(estimate_total)
        self.is_plurality = bool(np.ptp(priors) == 0 and np.ptp(costs) == 0)
        """Whether the label is always the class with the most votes (equal priors and costs)."""

    @cached_property
    def scores(self) -> ClassScores:
        """Score of each class as a function of noisy votes and noise; the largest wins.

        It is the expected true votes times the cost, which is divided by the largest cost.
        """
        return self._tabulate_class_scores(self._costs / self._costs.max())

    def compute_probabilities(self, votes: npt.ArrayLike, noise: npt.ArrayLike) -> Floats:
        """Return the probability of every class, float64 (q, c); rows sum to 1.

        `votes`, float (q, c): released noisy votes; a row with NaN has probabilities NaN. `noise`,
        float or float (q,): standard deviation of the noise on each vote, above 0.
        """
        noisy_votes = np.asarray(votes, dtype=np.float64)
        probabilities = np.full(noisy_votes.shape, np.nan)
        is_finite = np.isfinite(noisy_votes).all(axis=1)
        query_noise = _broadcast_noise(noise, len(noisy_votes))
        expected_votes = self._vote_scores(noisy_votes[is_finite], query_noise[is_finite])
        probabilities[is_finite] = expected_votes / expected_votes.sum(axis=1, keepdims=True)
        return probabilities

    def choose_classes(self, probabilities: Floats) -> Ints:
        """Return the index of the class with the largest cost times probability, int64 (q,).

        `probabilities`, float64 (q, c): probability of every class.
        """
        return np.asarray((probabilities * self._costs).argmax(axis=1))

    def decide_labels(self, votes: Floats, noise: npt.ArrayLike) -> Ints:
        """Return the class index of every query's label, int64 (q,); ties go to the first class.

        `votes`, float64 (q, c): released noisy votes. `noise`, float or float (q,): standard
        deviation of the noise on each vote.
        """
        if self.is_plurality:
            return np.asarray(votes.argmax(axis=1))
        return np.asarray(self.scores(votes, _broadcast_noise(noise, len(votes))).argmax(axis=1))

    @cached_property
    def _vote_scores(self) -> ClassScores:
        """Functions that return the expected true votes of each class, without costs."""
        return self._tabulate_class_scores(np.ones(len(self._class_priors)))

    def _tabulate_class_scores(self, class_weights: Floats) -> ClassScores:
        """Return the tabulated score of each class: a weight times its expected true votes.

        `class_weights`, float64 (c,): the factors, such as the costs.
        """
        n_classes = len(self._class_priors)
        priors = self._class_priors.tolist()
        tables = [_tabulate_expected_votes(n_classes * prior) for prior in priors]
        table = np.stack(tables) * class_weights[:, None]
        return ClassScores(
            table, -_MAX_SCALED_VOTES, _TABLE_STEP, n_classes / self._estimate_total()
        )


def _broadcast_noise(noise: npt.ArrayLike, n_queries: int) -> Floats:
    """Return the noise standard deviation of each of `n_queries` queries, float64 (q,).

    `noise`, float or float (q,): the deviation. Raises InvalidInput if one is NaN or not above 0;
    infinity is allowed.
    """
    query_noise = np.broadcast_to(np.asarray(noise, dtype=np.float64), (n_queries,))
    for scale in np.unique(query_noise[~np.isposinf(query_noise)]):
        checks.check_real("noise", float(scale), above=0)
    return query_noise


@lru_cache(maxsize=256)
def _tabulate_expected_votes(gamma_shape: float) -> Floats:
    """Return T(b), the posterior mean of a class's true votes, at 3841 points b from -30 to 30.

    The result has shape (3841,). T and b are in noise standard deviations; `gamma_shape` is the
    shape a of the votes' gamma prior.
    """
    n_points = round(2 * _MAX_SCALED_VOTES / _TABLE_STEP) + 1
    votes = np.linspace(-_MAX_SCALED_VOTES, _MAX_SCALED_VOTES, n_points)
    if gamma_shape <= _MAX_SHAPE:
        expected_votes = (
            gamma_shape * pbdv(-gamma_shape - 1, -votes)[0] / pbdv(-gamma_shape, -votes)[0]
        )
    else:
        # The posterior mode replaces the mean; they differ by less than 1 %. Its two forms avoid
        # cancellation for negative and for positive votes.
        root = np.sqrt(votes**2 + 4 * gamma_shape - 2)
        expected_votes = np.where(
            votes < 0, (2 * gamma_shape - 1) / (root + np.abs(votes)), (votes + root) / 2
        )
    # The price of a label requires scores that never decrease; rounding errors could violate it.
    return np.asarray(np.maximum.accumulate(expected_votes))
