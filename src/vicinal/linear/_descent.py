"""From noisy mean gradients to weights: damped along the directions that public rows span.

Gradients are released before they come here, so all of it is post-processing, and all but the
gradients is public. Public rows say how long features are along every direction, i (g_i), and how
curved the loss is (h, at the weights of now). Were the loss quadratic, the best guess of where a
direction's weight lies would be ridge regression whose ridge is what noise and scatter are worth:

    ridge_i = 1 / n + s^2 / (h g_i)
    u_i <- u_i - (gradient_i + ridge_i (u_i - u0_i)) / (g_i / 2 + ridge_i)

in units where every weight has variance 1 before anything is known. s is the noise on an entry of
the mean gradient over all that is averaged, n the number of records. g_i / 2 bounds the curvature
of softmax (Böhning 1992), so no step is too long; and where noise is all there is, nothing moves:
there is no threshold below which nothing is trained. docs/decisions/0053-private-model.md has what
was measured.
"""

import math

import numpy as np

from vicinal._arrays import Floats
from vicinal.linear._model_features import BIAS, IntegerRows, scores_of, softmax
from vicinal.mechanisms import whole_weights

STEPS = 40
"""Gradients of a training."""

CLIP = 0.25
"""Largest norm of a subject's gradient; features have length 1, a gradient at most 1.5. Nearly all
are cut, so a step counts directions alike: noise falls by more than what that bends."""

SPREAD = 2.0
"""Standard deviation of scores over public rows before anything is known, kappa."""

_FREE = 20.0  # standard deviation of the bias' weight: nearly free
_FLAT = 1e-12  # of a direction that public rows do not have


def step_noise(share: float) -> float:
    """Return the noise scale of a step in clipping bounds, where training may take `share`, zCDP.

    For the worst case, a gradient of full length in every step: who would be stopped half-way are
    those who are unlike the others, a rare class, and what is learnt would lack them.
    """
    return math.sqrt(STEPS / (2 * share))


class Descent:
    """Weights that follow noisy mean gradients; public.

    - `rows`, float32 (m, D): public integer rows of the model's features.
    - `unit`: a feature of 1 is so many integer steps.
    - `shares`, float64 (c,): declared class shares: every row has them at first.
    - `n_records`: which means are taken by.
    - `noise`: standard deviation of the noise on each entry of a mean gradient.

    `weights`, float64 (D, c): as they are now.
    """

    def __init__(
        self, rows: IntegerRows, unit: float, shares: Floats, n_records: float, noise: float
    ) -> None:
        self._rows, self._unit, self._n_records = rows.astype(np.float64), unit, n_records
        features = self._rows / unit
        squares = np.square(features[:, :-1]).sum(axis=1).mean()
        spread = np.full(features.shape[1], SPREAD / math.sqrt(max(squares, _FLAT)))
        spread[-1] = _FREE
        wide = features * spread
        moment = wide.T @ wide
        # As if one more public row went every way alike: what columns do together in a few rows
        # they need not do in others.
        moment += np.eye(len(moment)) * np.diag(moment)[:-1].mean() / len(wide)
        lengths, directions = np.linalg.eigh(moment / (len(wide) + 1))
        self._lengths = np.maximum(lengths, _FLAT)
        self._from_directions = spread[:, None] * directions
        # Noise is alike on all weights; along a direction it is as loud as that is scaled.
        loudness = np.square(self._from_directions).sum(axis=0)
        self._noise = loudness * noise**2 * 2 / STEPS  # of the later half's mean
        self.weights = np.zeros((features.shape[1], len(shares)))
        self.weights[-1] = (np.log(shares) - np.log(shares).mean()) / BIAS
        self._start = np.linalg.solve(self._from_directions, self.weights)
        self._along, self._total, self._taken = self._start, np.zeros_like(self._start), 0

    def step(self, gradient: Floats) -> None:
        """Follow a mean gradient, float64 (D, c), with its noise."""
        ridge = 1 / self._n_records + self._noise / np.maximum(
            self._curvature() * self._lengths, _FLAT
        )
        pull = self._from_directions.T @ gradient + ridge[:, None] * (self._along - self._start)
        self._along = self._along - pull / (self._lengths / 2 + ridge)[:, None]
        self.weights = self._from_directions @ self._along
        self._taken += 1
        if self._taken > STEPS // 2:
            self._total = self._total + self._along

    def finished(self) -> Floats:
        """Return the mean of the later half of all weights, float64 (D, c)."""
        return np.asarray(self._from_directions @ (self._total / (self._taken - STEPS // 2)))

    def _curvature(self) -> float:
        """Return the curvature of a class's scores at the weights of now, at public rows."""
        chances = softmax(scores_of(self._rows, whole_weights(self.weights), self._unit))
        return float((chances * (1 - chances)).sum(axis=1).mean() / max(chances.shape[1] - 1, 1))
