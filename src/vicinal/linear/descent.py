"""Kalman filter that turns noisy mean gradients into the weights of a linear model.

Everything here is public: the gradients have been released with noise before they arrive. Weights v
are scaled to prior variance 1. Public rows give the second moment G of the scaled features and the
curvature h of the loss of clipped gradients at the current weights. A gradient is treated as a
noisy linear measurement h G (v - v*) of the optimum v*, with noise covariance N. The weights are
the mean of their Gaussian posterior P^-1, given all gradients so far (Kalman 1960):

    P <- 1 + RETAINED_INFORMATION (P - 1) + h^2 G N^-1 G
    v <- v - P^-1 h G N^-1 gradient

D is the number of features with the bias, c that of scores: classes, or coordinates of a vector.
The posterior precision P is diagonal in the eigenbasis of G N^-1 G, the same basis for all steps.
A step along an eigenvector of G with eigenvalue g is at most 2 / g times the gradient, as g / 2
bounds the curvature of softmax regression (Böhning 1992). Gradients of almost only noise hardly
move the weights, so no minimum number of records is needed.
docs/decisions/0053-private-model.md has the measurements.
"""

import math
from collections.abc import Sequence

import numpy as np

from vicinal.arrays import Floats
from vicinal.linear.kernel_map import IntegerRows
from vicinal.linear.losses import TrainingLoss
from vicinal.linear.model_features import compute_scores
from vicinal.mechanisms.gradients import round_weights

STEPS = 40
"""Gradients per training. Half or twice as many change accuracy little (decision 0053)."""

RETAINED_INFORMATION = 0.95
"""Share of the information from earlier gradients that is kept at each step. The loss is not
exactly quadratic, so old measurements lose validity. Chosen on the 40 tuning tables, AG News, MNIST
and Fashion-MNIST (decision 0053)."""

_BIAS_PRIOR_STD = 20.0  # prior standard deviation of the bias weight: almost no regularization
_MIN_MEAN_SQUARE = 1e-4  # mean square norm of public features below which one row would dominate


class KalmanWeights:
    """Posterior mean and variance of weights, updated by noisy mean gradients; public.

    - `rows`, float32 (m, D): model features of public rows, in whole steps; the last is the bias.
    - `steps_per_unit`: integer steps per feature value of 1.
    - `blocks`: for each block of features, without the bias, the number of features, and the prior
      standard deviation of the scores from them over public rows.
    - `loss`: the training loss. Classes start with equal shares even if others are declared, since
      a model trained from declared shares would rank rows differently.
    - `n_records`: number of records that gradients are averaged over.
    - `clip`: norm to which the gradient of a typical record is clipped.
    - `noise_std`: standard deviation of the noise on each entry of a mean gradient.

    `weights`, float64 (D, c): the current weights.
    """

    def __init__(
        self,
        rows: IntegerRows,
        steps_per_unit: float,
        blocks: Sequence[tuple[int, float]],
        loss: TrainingLoss,
        n_records: float,
        clip: float,
        noise_std: float,
    ) -> None:
        self._rows = rows.astype(np.float64)
        self._steps_per_unit = steps_per_unit
        self._n_records = n_records
        self._loss = loss
        features = self._rows / steps_per_unit
        self._norms_per_clip = np.sqrt(np.square(features).sum(axis=1, keepdims=True)) / clip
        mean_squares = np.square(features).mean(axis=0)
        prior_std = np.empty(0)
        start = 0
        for size, score_std in blocks:
            mean_square_norm = max(mean_squares[start : start + size].sum(), _MIN_MEAN_SQUARE)
            prior_std = np.append(prior_std, np.full(size, score_std / math.sqrt(mean_square_norm)))
            start += size
        prior_std = np.append(prior_std, _BIAS_PRIOR_STD)
        scaled_features = features * prior_std
        moment = scaled_features.T @ scaled_features
        # Shrink towards a multiple of the identity, with the weight of one more public row: few
        # rows show correlations between columns that other rows do not have.
        moment += np.eye(len(moment)) * np.diag(moment)[:-1].mean() / len(scaled_features)
        moment /= len(scaled_features) + 1
        # Noise is equal on all unscaled weights, hence proportional to the prior deviation here.
        whitened_moment = moment / (prior_std * noise_std)
        self._information, directions = np.linalg.eigh(whitened_moment @ whitened_moment.T)
        self._gain = directions.T @ (whitened_moment / (prior_std * noise_std))
        self._eigenbasis_to_weights = prior_std[:, None] * directions
        self._score_variances = (directions * (moment @ directions)).sum(axis=0)
        moment_eigenvalues, self._moment_axes = np.linalg.eigh(moment)
        self._max_step_per_gradient = 1 / (moment_eigenvalues / 2 + 1 / n_records)[:, None]
        self._precision = np.ones(len(prior_std))
        self._prior_std = prior_std[:, None]
        self._scaled_weights = np.zeros((len(prior_std), loss.n_scores))
        self.weights = self._scaled_weights

    def update(self, gradient: Floats) -> None:
        """Update the posterior by `gradient`, the noisy mean gradient (D, c) at :attr:`weights`."""
        curvature = self._compute_curvature()
        retained = RETAINED_INFORMATION * (self._precision - 1)
        self._precision = 1 + retained + curvature**2 * self._information
        # The gradient is a mean over records, and the prior weighs as much as one record.
        regularized = self._prior_std * gradient + self._scaled_weights / self._n_records
        eigenbasis_step = (curvature / self._precision)[:, None] * (self._gain @ regularized)
        scaled_step = self._eigenbasis_to_weights @ eigenbasis_step / self._prior_std
        axis_step = self._moment_axes.T @ scaled_step
        max_step = self._max_step_per_gradient * np.abs(self._moment_axes.T @ regularized)
        bounded_step = self._moment_axes @ np.clip(axis_step, -max_step, max_step)
        self._scaled_weights = self._scaled_weights - bounded_step
        self.weights = self._prior_std * self._scaled_weights

    @property
    def variance_directions(self) -> Floats:
        """Matrix V, float64 (D, r): features x (D,) have the posterior score variance |x V|^2.

        The first r - 1 columns are the directions of largest variance; the last one is nonzero for
        the bias only, and adds the mean variance, over public rows, of all remaining directions.
        """
        variances = self._score_variances / self._precision
        by_variance = np.argsort(-variances, kind="stable")
        largest, remaining = np.split(by_variance, [self._loss.n_variance_directions])
        width = len(variances)
        columns = np.zeros((width, self._loss.count_variance_columns(width)))
        precision_root = np.sqrt(self._precision[largest])
        columns[:, :-1] = self._eigenbasis_to_weights[:, largest] / precision_root
        bias = self._rows[0, -1] / self._steps_per_unit
        columns[-1, -1] = math.sqrt(float(variances[remaining].sum())) / bias
        return columns

    def _compute_curvature(self) -> float:
        """Return the mean curvature of the clipped loss at the current weights, on public rows."""
        scores = compute_scores(self._rows, round_weights(self.weights), self._steps_per_unit)
        return self._loss.compute_curvature(scores, self._norms_per_clip)
