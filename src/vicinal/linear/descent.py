"""From noisy mean gradients to weights: each is a measurement, the weights what all of them say.

All but the gradients is public, and these are released before they come here. Weights v are scaled
to have variance 1 before anything is known. Public rows tell their second moment, G, and how curved
the loss is: h, at the weights of now, of gradients that are cut to the clip. So a gradient is
h G (v - v*) and noise of covariance N, and weights are their mean given all so far (Kalman 1960):

    known <- 1 + KEPT (known - 1) + h^2 G N^-1 G
    v <- v - known^-1 h G N^-1 gradient

Known is diagonal in one basis for all steps. No step along a direction of G, of length g, is longer
than 2 / g, as g / 2 bounds the curvature of softmax (Böhning 1992). Where noise is all there is,
nothing moves: there is no threshold below which nothing is trained.
docs/decisions/0053-private-model.md has what was measured.
"""

import math
from collections.abc import Sequence

import numpy as np

from vicinal.arrays import Floats
from vicinal.linear.losses import TrainingLoss
from vicinal.linear.model_features import IntegerRows, scores_of
from vicinal.mechanisms.gradients import whole_weights

STEPS = 40
"""Gradients of a training."""

LEAST_CLIP, MOST_CLIP = 0.25, 1.0
"""Norms that a subject's gradient is cut to, over that of a typical one; features have length 1, a
gradient of classes at most 1.5. At the lowest nearly all are cut, so noise falls no further against
what they say."""

KEPT = 0.95
"""How much of what was known stays from step to step: the loss is not the parabola that a gradient
is read by, the less so the further off it was taken."""

_FREE = 20.0  # standard deviation of the bias' weight: nearly free
_SHORT = 1e-4  # mean square of public rows below which one of them outdoes all others


def step_noise(share: float) -> float:
    """Return the noise scale of a step in clipping bounds, where training may take `share`, zCDP.

    For the worst case, a gradient of full length in every step: who would be stopped half-way are
    those who are unlike the others, a rare class, and what is learnt would lack them.
    """
    return math.sqrt(STEPS / (2 * share))


def clip_of(share: float, n_records: float, width: int, loss: TrainingLoss) -> float:
    """Return the norm that gradients are cut to; `share`, in zCDP, of `width` features.

    Cut to C, the mean of all steps has noise of variance C^2 / (2 share n^2) on each of width *
    n_scores entries; the scatter of n records has about residual^2 / n over all entries.
    """
    even = math.sqrt(2 * share * n_records / (width * loss.n_scores))
    return loss.residual * min(max(even / math.sqrt(loss.scatter), LEAST_CLIP), MOST_CLIP)


class Descent:
    """Weights that follow noisy mean gradients; public.

    - `rows`, float32 (m, D): public integer rows of the model's features.
    - `unit`: a feature of 1 is so many integer steps.
    - `parts`: how many features, but for the bias, belong together, and the standard deviation of
      scores by them over public rows before anything is known.
    - `loss`: what the model is for. Classes have equal shares at first, whatever is declared: what
      is learnt would not rank rows alike.
    - `n_records`: which means are taken by.
    - `clip`: the norm that gradients are cut to.
    - `noise`: standard deviation of the noise on each entry of a mean gradient.

    `weights`, float64 (D, c): as they are now.
    """

    def __init__(
        self, rows: IntegerRows, unit: float, parts: Sequence[tuple[int, float]],
        loss: TrainingLoss, n_records: float, clip: float, noise: float,
    ) -> None:  # fmt: skip
        self._rows, self._unit, self._n_records = rows.astype(np.float64), unit, n_records
        features = self._rows / unit
        self._in_clips = np.sqrt(np.square(features).sum(axis=1, keepdims=True)) / clip
        squares, before, start = np.square(features).mean(axis=0), np.empty(0), 0
        for count, spread in parts:
            length = squares[start : (start := start + count)].sum()
            before = np.append(before, np.full(count, spread / math.sqrt(max(length, _SHORT))))
        before = np.append(before, _FREE)
        wide = features * before
        moment = wide.T @ wide
        # As if one more public row went every way alike: what columns do together in a few rows
        # they need not do in others.
        moment += np.eye(len(moment)) * np.diag(moment)[:-1].mean() / len(wide)
        moment /= len(wide) + 1
        # Noise is alike on all weights, before they are scaled.
        told = moment / (before * noise)
        self._told, directions = np.linalg.eigh(told @ told.T)
        self._toward = directions.T @ (told / (before * noise))
        self._from_directions = before[:, None] * directions
        self._lengths = (directions * (moment @ directions)).sum(axis=0)
        curved, self._axes = np.linalg.eigh(moment)
        self._longest = 1 / (curved / 2 + 1 / n_records)[:, None]
        self._known, self._before, self._loss = np.ones(len(before)), before[:, None], loss
        self._scaled = self.weights = np.zeros((len(before), loss.n_scores))

    def step(self, gradient: Floats) -> None:
        """Follow a mean gradient, float64 (D, c), with its noise."""
        curvature = self._curvature()
        self._known = 1 + KEPT * (self._known - 1) + curvature**2 * self._told
        # Gradients are of a mean, and what is known before counts as much as one record.
        pull = self._before * gradient + self._scaled / self._n_records
        along = (curvature / self._known)[:, None] * (self._toward @ pull)
        move = self._axes.T @ (self._from_directions @ along / self._before)
        most = self._longest * np.abs(self._axes.T @ pull)
        self._scaled = self._scaled - self._axes @ np.clip(move, -most, most)
        self.weights = self._before * self._scaled

    @property
    def doubts(self) -> Floats:
        """Weights of what is not known, float64 (D, r).

        Squares of a row's scores by them add up to the variance of its score, given all gradients.
        """
        left = self._lengths / self._known
        most, rest = np.split(np.argsort(-left, kind="stable"), [self._loss.n_doubts])
        doubts = np.zeros((len(left), self._loss.doubts_of(len(left))))
        doubts[:, :-1] = self._from_directions[:, most] / np.sqrt(self._known[most])
        # All else is as it is on average of public rows.
        doubts[-1, -1] = math.sqrt(float(left[rest].sum())) / (self._rows[0, -1] / self._unit)
        return doubts

    def _curvature(self) -> float:
        scores = scores_of(self._rows, whole_weights(self.weights), self._unit)
        return self._loss.curvature(scores, self._in_clips)
