"""Intercepts of a private classifier's scores, fitted to the gradients that its training released.

Clipping shortens the gradients of a rare class most, because its residuals are the longest: if all
gradients are clipped to one length, the loss is minimal at probabilities far below the base rate.
The entries of the released gradients at the constant feature show the difference: each is a noisy
sum of residuals at known weights, and its expectation follows from the class probabilities q of the
private records,

    E_t = mean over rows of sum_y q_y f_t(y) (p_t - e_y),   q = softmax(scores + intercepts),

with the probabilities p_t at the weights of step t, the unit vector e_y of class y, and the factor
f_t(y) by which the gradient of a record of class y is clipped. Public rows stand for the features
of the private records. Released gradients are divided by the declared number of records, which can
be wrong after additions, so E_t is multiplied by a scale that is fitted, too. Intercepts and scale
minimize the squared differences between released gradients and E_t in units of the noise, plus a
Gaussian prior.

Could a private value enter? No: the arguments are gradients that were released with noise and
charged, weights computed from these, public rows, and public parameters. With the same released
gradients, other records give the same intercepts. Nothing is charged.

docs/decisions/0053-private-model.md has the measurements.
"""

import math
from dataclasses import dataclass

import numpy as np

from vicinal.arrays import Floats
from vicinal.linear.model_features import compute_residual_squares, softmax

_PRIOR_STD = 1.0
"""Prior standard deviation of an intercept, in logits, and of the logarithm of the scale. It
matters only where noise is larger than the number of records of a class. Log losses on the 40
tuning tables are equal to .0004 from .5 to 2."""

_LABEL_CORRELATIONS = (0.0, 0.25, 0.5, 1.0)
"""Correlations, within subjects with several records, of the gradients of two records: from
independent to equal ones. The one that fits the released gradients best is used."""

_MAX_ELEMENTS = 1 << 21
"""Maximum number of probabilities to hold, for all steps, rows and classes: 16 MB per array. More
public rows than that are replaced by equally spaced ones."""


@dataclass(frozen=True, slots=True, eq=False)
class ReleasedGradients:
    """The T released gradients of a training at the constant feature; everything is public.

    - `intercept_gradients`, float64 (T, c): noisy mean derivatives of the loss by the intercepts.
    - `noise_std`: standard deviation of the noise on each of them, above 0.
    - `step_scores`, float64 (T, m, c): scores of public rows at the weights of each step.
    - `scores`, float64 (m, c): scores of the same rows at the trained weights.
    - `relative_norms`, float64 (m,): norms of their features, in units of the clipping norm.
    - `records_per_subject`: declared number of records of a subject.
    """

    intercept_gradients: Floats
    noise_std: float
    step_scores: Floats
    scores: Floats
    relative_norms: Floats
    records_per_subject: float


def choose_row_stride(n_rows: int, n_classes: int, n_steps: int) -> int:
    """Return s such that every s-th of `n_rows` public rows suffices for :func:`fit_intercepts`.

    It limits the size of the arrays of scores. `n_steps`: number of released gradients.
    """
    return math.ceil(n_rows * n_classes * n_steps / _MAX_ELEMENTS)


def fit_intercepts(released: ReleasedGradients) -> Floats:
    """Return the intercepts to add to the scores, float64 (c,).

    They are the maximum of the posterior density, given the `released` gradients.
    """
    from scipy.optimize import minimize  # takes a third of a second; other commands need it not

    start = np.zeros(released.scores.shape[1] + 1)
    fits = [
        minimize(posterior.compute_cost, start, jac=True, method="L-BFGS-B")
        for posterior in list_posteriors(released)
    ]
    best = min(fits, key=lambda fit: float(fit.fun))
    return np.asarray(best.x[:-1])


@dataclass(frozen=True, slots=True, eq=False)
class Posterior:
    """Posterior density of intercepts and scale, for one correlation of a subject's gradients.

    `released`: the gradients. `probabilities`, `clip_factors`, float64 (T, m, c): the p_t and
    f_t(y) of each public row.
    """

    released: ReleasedGradients
    probabilities: Floats
    clip_factors: Floats

    def compute_cost(self, parameters: Floats) -> tuple[float, Floats]:
        """Return the negative log posterior density, and its derivatives (c + 1,).

        `parameters`, float64 (c + 1,): the intercepts, and the logarithm of the scale.
        """
        released = self.released
        n_row_errors = len(released.scores) * released.noise_std
        scale = math.exp(parameters[-1])
        class_probabilities = softmax(released.scores + parameters[:-1])
        weighted = class_probabilities * self.clip_factors * scale
        total = weighted.sum(axis=-1, keepdims=True)
        expected = (self.probabilities * total - weighted).mean(axis=1)
        errors = (expected - released.intercept_gradients) / released.noise_std
        # The intercept of class k changes q_y by q_y (1[y = k] - q_k).
        products = (self.probabilities * errors[:, None, :]).sum(axis=-1, keepdims=True)
        contributions = weighted * (products - errors[:, None, :])
        sums = contributions.sum(axis=-1, keepdims=True)
        slopes = (contributions - class_probabilities * sums).sum(axis=(0, 1)) / n_row_errors
        scale_slope = float((errors * expected).sum()) / released.noise_std
        prior_slopes = parameters / _PRIOR_STD**2
        cost = (np.square(errors).sum() + (parameters * prior_slopes).sum()) / 2
        return float(cost), np.append(slopes, scale_slope) + prior_slopes


def list_posteriors(released: ReleasedGradients) -> list[Posterior]:
    """Return a posterior for each correlation tried, or one if subjects have a single record."""
    probabilities = softmax(released.step_scores)
    squares = compute_residual_squares(probabilities)
    mean_squares = (probabilities * squares).sum(axis=-1, keepdims=True)
    n_records = released.records_per_subject
    posteriors = []
    for correlation in _LABEL_CORRELATIONS if n_records > 1 else _LABEL_CORRELATIONS[:1]:
        # The squared norm of a subject's gradient, if one of its records has the class. Equal
        # records multiply it by their squared number; independent ones add their mean squares.
        own_factor = 1 + correlation * (n_records**2 - 1)
        mean_factor = (1 - correlation) * (n_records - 1)
        subject_squares = own_factor * squares + mean_factor * mean_squares
        norms = np.sqrt(subject_squares) * released.relative_norms[:, None]
        posteriors.append(Posterior(released, probabilities, 1 / np.maximum(norms, 1.0)))
    return posteriors
