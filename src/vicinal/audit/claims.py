"""Privacy claims as bounds on hypothesis tests, and statistical bounds on the rates of a test.

An audit tests the hypothesis "the subject's records are in the data set". A test has a power (the
rate at which it detects the subject in the world with the subject) and a false positive rate (the
rate at which it claims to detect the subject in the world without). A privacy guarantee bounds the
power at every false positive rate, in both directions: its trade-off curve. The strength of a test
is stated as mu: the shift of two unit Gaussians N(0, 1) and N(mu, 1) whose best test has the same
rates (mu of Gaussian differential privacy, mu-GDP). A claim is refuted if the power of some test is
proven to exceed :meth:`Claim.bound_power` at the false positive rate of the same test, so no curve
has to be fitted. Sources: Wasserman & Zhou 2010; Dong, Roth & Su 2022.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from scipy.special import betaincinv, ndtr, ndtri

from vicinal.accounting.budget import gdp_epsilon
from vicinal.accounting.plan import Plan
from vicinal.accounting.pld import compose_losses
from vicinal.arrays import Floats
from vicinal.errors import InvalidInput
from vicinal.mechanisms.votes import SLACK_SHARE
from vicinal.planning.plan import IndKNNPlan

# ---------------------------------------------------------------- bounds on the rates of a test

SELECTION_SHARE = 0.2
"""Share of the scores that selects the test. The bounds use only the remaining scores."""

_SELECTION_WEIGHT = 2.0
"""Multiplicity of each selection score in the bounds that select a test.

The remaining scores are four times as many as the selection scores. But the best of many tests is
overestimated on the selection scores, most of all where errors are rare. A weight below four
rejects such tests, and gave larger lower bounds in experiments.
"""

_MAX_THRESHOLDS = 200  # maximal number of thresholds that are compared when a test is selected

MIN_RUNS = 20
"""Minimal number of runs of each world that an audit needs."""

_MAX_EQUAL_ERRORS_FAILURE = 0.2
"""Largest failure probability at which the bound for equal errors is used.

Among sums of independent trials with the same mean, the binomial has the heaviest upper tail only
from one success above the mean onwards (Hoeffding 1956).
"""


@dataclass(frozen=True, slots=True)
class RateBounds:
    """Confidence bounds on the two rates of a test, which hold jointly.

    - `power`: lower bound on the power: the rate of detections in the world with the subject.
    - `false_positive_rate`: upper bound on the rate of detections in the world without the subject.
    - `equal_errors`: if true, only the difference of the two rates (the advantage) is bounded, and
      the fields hold the pair of rates with equal errors and this advantage. Of all pairs with this
      advantage, it implies the smallest privacy loss.
    """

    power: float
    false_positive_rate: float
    equal_errors: bool = False

    @property
    def mu(self) -> float:
        """The smallest mu, at least 0, of a mu-GDP mechanism that permits these rates."""
        return max(0.0, float(ndtri(self.power) - ndtri(self.false_positive_rate)))

    def bound_epsilon(self, delta: float) -> float:
        """Return the smallest epsilon at `delta` of a mechanism that permits these rates.

        It is the larger value of two directions: detecting presence, and detecting absence.
        """
        epsilon = 0.0
        presence = (self.power, self.false_positive_rate)
        absence = (1 - self.false_positive_rate, 1 - self.power)
        for true_rate, false_rate in (presence, absence):
            if true_rate > delta and false_rate > 0:
                epsilon = max(epsilon, math.log((true_rate - delta) / false_rate))
        return epsilon


def compute_lower_rate_bounds(
    successes: Floats | float, total: float, failure_probability: float
) -> Floats:
    """Return the lower Clopper-Pearson confidence bounds on success probabilities, float64.

    `successes`, of any shape, which is that of the result: numbers of successes among `total`
    independent trials; both may be fractional. `failure_probability`: maximal probability that a
    bound exceeds its success probability.
    """
    positive_successes = np.maximum(successes, 1e-9)
    bounds = betaincinv(positive_successes, total - successes + 1, failure_probability)
    return np.where(np.greater(successes, 0), bounds, 0.0)


def bound_rates(
    present_scores: Floats,
    absent_scores: Floats,
    confidence: float,
    objective: Callable[[RateBounds], float],
) -> RateBounds:
    """Return joint confidence bounds on the power and false positive rate of the best test.

    A test compares the score of a run with a threshold. The first scores select the threshold and
    the kind of bound; the remaining scores, which are independent of the selection, are counted.

    - `present_scores`, `absent_scores` (float64 (n,), (m,)): scores of independent runs in the
      worlds with and without the subject.
    - `confidence`: probability with which both bounds hold, at least.
    - `objective`: function of the bounds on a test's rates. The test with the largest value, for
      the first scores, is selected.

    Raises
    ------
    InvalidInput
        If a world has fewer than `MIN_RUNS` scores, or a score is not finite.
    """
    for scores in (present_scores, absent_scores):
        if len(scores) < MIN_RUNS:
            raise InvalidInput(f"An audit needs at least {MIN_RUNS} runs of each world.")
        if not np.isfinite(scores).all():
            raise InvalidInput("A score of an audit must be finite.")
    n_runs = min(len(present_scores), len(absent_scores))
    n_selection = math.ceil(SELECTION_SHARE * n_runs)
    threshold, equal_errors = _select_test(
        present_scores[:n_selection], absent_scores[:n_selection], 1 - confidence, objective
    )
    thresholds = np.array([threshold])
    true_positives = _count_above(present_scores[n_selection:n_runs], thresholds)
    false_positives = _count_above(absent_scores[n_selection:n_runs], thresholds)
    separate_bounds, equal_error_bounds = _bound_test_rates(
        true_positives, false_positives, n_runs - n_selection, 1 - confidence
    )
    (power,), (false_positive_rate,) = equal_error_bounds if equal_errors else separate_bounds
    return RateBounds(float(power), float(false_positive_rate), equal_errors)


def _bound_test_rates(
    true_positives: Floats, false_positives: Floats, n_runs: float, failure_probability: float
) -> tuple[tuple[Floats, Floats], tuple[Floats, Floats]]:
    """Return two kinds of bounds on (power, false positive rate) of t tests, each rate (t,).

    The first pair bounds both rates separately, each at half of the failure probability. The second
    pair bounds the rate of correct decisions over both worlds, written as a pair of rates with
    equal errors. `true_positives`, `false_positives` (t,): numbers of detections among `n_runs`
    runs of the worlds with and without the subject.
    """
    power = compute_lower_rate_bounds(true_positives, n_runs, failure_probability / 2)
    false_positive_rate = 1 - compute_lower_rate_bounds(
        n_runs - false_positives, n_runs, failure_probability / 2
    )
    accuracy = compute_lower_rate_bounds(
        true_positives + n_runs - false_positives, 2 * n_runs, failure_probability
    )
    return (power, false_positive_rate), (accuracy, 1 - accuracy)


def _select_test(
    present_scores: Floats,
    absent_scores: Floats,
    failure_probability: float,
    objective: Callable[[RateBounds], float],
) -> tuple[float, bool]:
    """Return the threshold of the test with the best bounds, and their :attr:`equal_errors`.

    The best bounds have the largest `objective`. `present_scores`, `absent_scores` (float64 (s,)):
    selection scores with and without the subject. `failure_probability`: that of the joint bounds.
    """
    all_scores = np.concatenate([present_scores, absent_scores])
    quantile_levels = np.linspace(0, 1, _MAX_THRESHOLDS)
    thresholds = np.unique(np.quantile(all_scores, quantile_levels, method="lower"))
    true_positives = _count_above(present_scores, thresholds) * _SELECTION_WEIGHT
    false_positives = _count_above(absent_scores, thresholds) * _SELECTION_WEIGHT
    n_runs = _SELECTION_WEIGHT * len(present_scores)
    separate_bounds, equal_error_bounds = _bound_test_rates(
        true_positives, false_positives, n_runs, failure_probability
    )
    bound_kinds = [(separate_bounds, False)]
    if failure_probability <= _MAX_EQUAL_ERRORS_FAILURE:
        bound_kinds.append((equal_error_bounds, True))
    tests = []
    for (powers, false_positive_rates), equal_errors in bound_kinds:
        for power, false_positive_rate, threshold in zip(
            powers.tolist(), false_positive_rates.tolist(), thresholds.tolist(), strict=True
        ):
            value = objective(RateBounds(power, false_positive_rate, equal_errors))
            tests.append((value, threshold, equal_errors))
    _, best_threshold, has_equal_errors = max(tests, key=lambda test: test[0])
    return best_threshold, has_equal_errors


def _count_above(scores: Floats, thresholds: Floats) -> Floats:
    """Return the number of `scores`, (n,), above each of the t `thresholds`, float64 (t,)."""
    n_at_most = np.searchsorted(np.sort(scores), thresholds, side="right")
    return np.asarray(len(scores) - n_at_most, dtype=np.float64)


_DETECTION_PROBABILITY = 0.95
"""Probability of detection that defines the detectable shift."""


def find_detectable_mu(claimed_mu: float, n_runs: int, confidence: float) -> float:
    """Return the smallest mu of a Gaussian shift that an audit detects with probability .95.

    The audit detects it if its lower bound on mu, at `confidence` and from `n_runs` runs of each
    world, exceeds `claimed_mu`.
    """
    quantile = float(ndtri(_DETECTION_PROBABILITY))
    n_counted = 2 * max(1, n_runs - math.ceil(SELECTION_SHARE * n_runs))
    low = claimed_mu
    high = claimed_mu + 40.0  # A shift of 40 is tested with errors below 1e-80.
    for _ in range(60):
        middle = (low + high) / 2
        accuracy = float(ndtr(middle / 2))
        accuracy_std = math.sqrt(accuracy * (1 - accuracy) / n_counted)
        n_correct = math.floor(n_counted * max(0.0, accuracy - quantile * accuracy_std))
        accuracy_bound = float(compute_lower_rate_bounds(n_correct, n_counted, 1 - confidence))
        if accuracy_bound > 0 and 2 * float(ndtri(accuracy_bound)) > claimed_mu:
            high = middle
        else:
            low = middle
    return high


# ---------------------------------------------------------------- claims

_EPSILONS = np.concatenate([np.linspace(0, 4, 161), np.linspace(4.1, 30, 130)])
"""Values of epsilon at which the privacy profile delta(epsilon) of a plan is evaluated.

Each value contributes two lines whose minimum is the claimed trade-off curve. Omitting values makes
the claim looser, never wrong.
"""

_N_BISECTIONS = 80
"""Number of bisection steps, after which no float64 lies between the ends unless they are tiny."""

_MIN_RATE = 1e-12
"""Rates are clipped to at least this distance from 0 and 1, where their normal quantile exists."""

_ROUNDING_MARGIN = 1e-9
"""Relative margin that covers the rounding errors of the rates computed here."""


class Claim(ABC):
    """An upper bound on the power of every test of one subject's presence: a trade-off curve.

    `delta`: delta at which :meth:`compute_epsilon` states the guarantee.
    """

    delta: float

    @abstractmethod
    def bound_power(self, false_positive_rate: float) -> float:
        """Return the largest power that the claim permits at a false positive rate, rounded up."""

    @abstractmethod
    def compute_epsilon(self) -> float:
        """Return the claimed epsilon at `delta`, rounded up."""

    def bound_mu(self, false_positive_rate: float) -> float:
        """Return the mu of the Gaussian shift with the permitted power at a false positive rate."""
        false_positive_rate = min(max(false_positive_rate, _MIN_RATE), 1 - _MIN_RATE)
        power = min(self.bound_power(false_positive_rate), 1 - _MIN_RATE)
        return float(ndtri(power) - ndtri(false_positive_rate))

    @property
    def max_total_shift_mu(self) -> float:
        """The largest permitted total shift of the private sums by one subject, as mu.

        The total is the root of the sum of squared shifts over all releases, each in units of its
        noise scale. It is infinite for claims that bound no sum.
        """
        return math.inf

    @cached_property
    def advantage(self) -> float:
        """The largest permitted difference of power and false positive rate, rounded up."""
        # For claims that are symmetric in the two worlds the best test has equal errors.
        permitted = 0.0
        refuted = 1.0
        for _ in range(_N_BISECTIONS):
            middle = (permitted + refuted) / 2
            if self.bound_power((1 - middle) / 2) >= (1 + middle) / 2:
                permitted = middle
            else:
                refuted = middle
        return refuted

    def compute_max_mu(self, rates: RateBounds) -> float:
        """Return the largest mu that the claim permits for the test whose `rates` were bounded.

        The claim is refuted if `rates.mu` is larger. `rates`: bounds on the test's power and false
        positive rate. If only their difference was bounded (`rates.equal_errors`), the largest
        permitted difference is converted to mu, else the power at the false positive rate.
        """
        if rates.equal_errors:
            return 2 * float(ndtri((1 + min(self.advantage, 1 - _MIN_RATE)) / 2))
        return self.bound_mu(rates.false_positive_rate)


@dataclass(frozen=True)
class GaussianClaim(Claim):
    """The claim of `mu`-GDP, with a slack in delta.

    `delta`: delta at which epsilon is stated. `slack`: part of `delta` for the discretisation of
    the noise. It may add to the power of any test.
    """

    mu: float
    delta: float
    slack: float = 0.0

    def bound_power(self, false_positive_rate: float) -> float:
        power = float(ndtr(ndtri(false_positive_rate) + self.mu))
        return min(1.0, power * (1 + _ROUNDING_MARGIN) + self.slack)

    @property
    def max_total_shift_mu(self) -> float:
        # Rounded up: the sum of squares that it is compared with is computed in floating point.
        return self.mu * (1 + _ROUNDING_MARGIN)

    def compute_epsilon(self) -> float:
        return gdp_epsilon(self.mu, self.delta - self.slack)


def create_ind_knn_claim(plan: IndKNNPlan) -> Claim:
    """Return the claim of an Ind-KNN estimator with this plan: mu-GDP with mu = sqrt(2 B).

    B is the budget of a subject in zCDP. The claim also holds if the plan uses the Rényi filter:
    charges are the zCDP of Gaussian noise, which is half of the squared mu, so a bound B on their
    sum implies both guarantees. The accountings differ in B and in the slack for the grid.
    """
    slack = SLACK_SHARE * plan.delta if plan.accounting == "gdp" else 0.0
    return GaussianClaim(math.sqrt(2 * plan.interaction_budget), plan.delta, slack)


class PlanClaim(Claim):
    """The privacy profile of a plan of releases, as `vicinal account` computes it.

    - `plan`: the plan as a JSON object: delta and releases.

    Raises
    ------
    InvalidInput
        If the plan is invalid, or holds a release without a known privacy loss distribution.
    """

    def __init__(self, plan: Mapping[str, Any]) -> None:
        self._plan = Plan.from_dict(plan)
        self.delta = self._plan.delta
        composition = self._plan.composition()
        if "pld" not in composition.list_methods():
            raise InvalidInput("The plan holds a release of which only a Renyi curve is known.")
        self._dominating_pairs = composition.list_dominating_pairs()

    @cached_property
    def _privacy_profiles(self) -> tuple[Floats, Floats]:
        """The two privacy profiles: values of delta at `_EPSILONS`, each float64 (epsilons,).

        They bound the world with the subject by that without, and that without by that with it.
        They are equal if all releases are symmetric, and 1 if the losses are too large to compute.
        """
        losses = compose_losses(self._dominating_pairs, 1e-12)
        if not losses:
            return np.ones_like(_EPSILONS), np.ones_like(_EPSILONS)
        deltas = [
            np.array([min(1.0, loss.compute_delta(float(epsilon))) for epsilon in _EPSILONS])
            for loss in losses
        ]
        return deltas[0], deltas[-1]

    def bound_power(self, false_positive_rate: float) -> float:
        add_deltas, remove_deltas = self._privacy_profiles
        # Presence against absence: power <= e^epsilon * false positive rate + delta.
        presence_bounds = add_deltas + np.exp(_EPSILONS) * false_positive_rate
        # Absence against presence: 1 - false positive rate <= e^epsilon * (1 - power) + delta.
        absence_bounds = 1 - np.exp(-_EPSILONS) * (1 - false_positive_rate - remove_deltas)
        power = float(min(presence_bounds.min(), absence_bounds.min()))
        return min(1.0, power * (1 + _ROUNDING_MARGIN))

    @cached_property
    def advantage(self) -> float:
        """The largest permitted difference of both rates: delta at epsilon 0, rounded up."""
        return float(min(deltas[0] for deltas in self._privacy_profiles)) * (1 + _ROUNDING_MARGIN)

    def compute_epsilon(self) -> float:
        return float(self._plan.price(lower=False)["epsilon"])
