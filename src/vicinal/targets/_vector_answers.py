"""What noisy sums say of numbers and several labels: post-processing, which costs nothing."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from scipy.special import log_ndtr

from vicinal import _checks
from vicinal._arrays import AnyArray, Bools, Floats
from vicinal.errors import InvalidInput
from vicinal.planning import LOG, MultiLabelSettings, RegressorSettings, SharedSettings
from vicinal.targets import _target_encoding
from vicinal.targets._answer_trend import PublicSurroundings, refined
from vicinal.targets._target_encoding import CENTRED_WEIGHT_SHARE, WEIGHT_SHARE


@dataclass(frozen=True, slots=True)
class NoisyAverages:
    """What neighbours say on average, from noisy sums; all of it public.

    `weight`, `weight_error`, float64 (q,): the neighbours' summed kernel weight, above 0, and the
    standard deviation of its noise. `means`, `errors`, float64 (q, m): averages of what the other
    coordinates say, and their standard errors: what the noise does to them, not how unlike each
    other the neighbours are.
    """

    weight: Floats
    weight_error: Floats
    means: Floats
    errors: Floats

    @classmethod
    def of(cls, sums: Floats, noise: Floats, a: float, b: float) -> NoisyAverages:
        """Return averages from sums whose first coordinate is `a` times the weight.

        `sums`, float64 (q, 1 + m): as released, in units of a unit vote. `noise`, float64 (q,):
        standard deviation of the noise on every coordinate. `a`, `b`: what a record's weight, and
        what it says, were multiplied by.
        """
        weight_error = noise / a
        weight = _positive(sums[:, 0] / a, weight_error)
        means = sums[:, 1:] / b / weight[:, None]
        errors = np.hypot(noise[:, None] / b, means * weight_error[:, None]) / weight[:, None]
        return cls(weight, weight_error, means, errors)


def _positive(noisy: Floats, noise: Floats) -> Floats:
    """Return the expectation of what is above 0 and anything there equally likely, given noise."""
    z = noisy / noise
    mean = z + np.exp(-0.5 * z * z - 0.5 * np.log(2 * np.pi) - log_ndtr(z))
    deep = np.maximum(-z, 50.0)
    return np.asarray(noise * np.where(z < -50, 1 / deep - 2 / deep**3, mean))


def distribution(shares: Floats) -> Floats:
    """Return the nearest shares, (q, J), that lie in 0..1 and do not fall along a row.

    `shares` are those below J ascending thresholds, each with equal noise.
    """
    from sklearn.isotonic import isotonic_regression  # slow to load; few answers need it

    return np.array([isotonic_regression(row, y_min=0.0, y_max=1.0) for row in shares])


def quantile(shares: Floats, edges: Floats, level: float) -> Floats:
    """Return where each row's distribution reaches `level`, (q,), straight between the edges.

    `shares` (q, J) are those below the inner `edges` (J + 2,), as :func:`distribution` gives them.
    """
    cumulative = np.column_stack([np.zeros(len(shares)), shares, np.ones(len(shares))])
    after = np.maximum((cumulative < level).sum(axis=1), 1)
    after = np.minimum(after, cumulative.shape[1] - 1)
    rows = np.arange(len(cumulative))
    low, high = cumulative[rows, after - 1], cumulative[rows, after]
    part = np.where(high > low, (level - low) / np.where(high > low, high - low, 1.0), 0.5)
    return np.asarray(edges[after - 1] + np.clip(part, 0, 1) * (edges[after] - edges[after - 1]))


@dataclass(frozen=True, slots=True)
class NumberAnswers:
    """Predictions of p targets for q queries, with what is known of them.

    `settings`: how numbers became vectors. `averages`: of what records said, (q, p), or (q, p J)
    with J thresholds. `means`, `errors`, float64 (q, p): predictions and their standard errors from
    the noise, in units of the targets.
    """

    settings: RegressorSettings
    averages: NoisyAverages
    means: Floats
    errors: Floats

    @classmethod
    def of(cls, settings: RegressorSettings, sums: Floats, noise: Floats) -> Self:
        """Return what sums (q, 1 + p) or (q, 1 + p J) with this noise (q,) say."""
        a, b = settings.typical_scale.parts
        b /= math.sqrt(len(settings.bounds) * (settings.n_thresholds or 1))
        averages = NoisyAverages.of(sums, noise, a, b)
        return cls(settings, averages, *_in_units(settings, *_scaled(settings, averages)))

    def along_trend(self, around: PublicSurroundings) -> Self:
        """Return means and errors as a trend through all of these answers has them."""
        means, errors = refined(around, *_scaled(self.settings, self.averages))
        means, errors = _in_units(self.settings, means, errors)
        return replace(self, means=means, errors=errors)

    @property
    def fields(self) -> dict[str, AnyArray]:
        """What a reply says: predictions as its labels, and their errors."""
        return {"labels": self.means, "errors": self.errors}

    def quantiles(self, levels: Sequence[float]) -> Floats:
        """Return the neighbours' quantiles at checked `levels`, (q, p, levels)."""
        shares = self.shares_below()
        quantiles = [
            [quantile(shares[:, j], self.edges(j), level) for level in levels]
            for j in range(shares.shape[1])
        ]
        return np.moveaxis(np.array(quantiles), 2, 0)

    def shares_below(self) -> Floats:
        """Return the shares of numbers below each threshold, (q, p, J), never falling."""
        count = self.settings.n_thresholds or 1
        above = self.averages.means.reshape(len(self.means), -1, count)
        rows = ((1 - above) / 2).reshape(-1, count)
        return distribution(rows).reshape(above.shape)

    def edges(self, target: int) -> Floats:
        """Return the lower bound, all thresholds, and the upper bound of a target, (J + 2,)."""
        assert self.settings.n_thresholds is not None  # noqa: S101 (checked by callers)
        inner = _target_encoding.thresholds(self.settings.n_thresholds)
        bounds = self.settings.scaled_bounds
        places = (np.concatenate([[-1.0], inner, [1.0]]) + 1) / 2
        edges = bounds.low[target] + places * (bounds.high[target] - bounds.low[target])
        return np.asarray(np.exp(edges) if self.settings.scale == LOG else edges)


def _scaled(settings: RegressorSettings, averages: NoisyAverages) -> tuple[Floats, Floats]:
    """Return means and errors, (q, p), on the scale whose bounds are -1 and 1."""
    count = settings.n_thresholds or 1
    averaged = averages.means.reshape(len(averages.means), len(settings.bounds), count)
    means = averaged.mean(axis=2)
    # The numerators' noises are independent, the denominator's is theirs together.
    relative = (averages.weight_error / averages.weight)[:, None]
    own = averages.errors.reshape(averaged.shape) ** 2 - (averaged * relative[:, None]) ** 2
    errors = np.hypot(np.sqrt(np.maximum(own, 0).sum(axis=2)) / count, means * relative)
    scale = settings.typical_scale
    return means * scale.half + scale.centre, errors * scale.half


def _in_units(settings: RegressorSettings, means: Floats, errors: Floats) -> tuple[Floats, Floats]:
    bounds = settings.scaled_bounds
    half = (bounds.high - bounds.low) / 2
    values = bounds.low + half * (np.clip(means, -1, 1) + 1)
    if settings.scale == LOG:
        values = np.exp(values)
        return values, values * half * errors
    return values, half * errors


def checked_levels(settings: RegressorSettings, quantiles: Sequence[float]) -> list[float]:
    """Return levels of quantiles, or raise InvalidInput if they are none, or not paid for."""
    if settings.n_thresholds is None:
        raise InvalidInput(
            "The 'quantiles' parameter must be None without thresholds: records told their "
            "numbers, not on which side of a threshold they lie. Fit with 'n_thresholds'."
        )
    return [_checks.real("quantiles", each, least=0, most=1) for each in quantiles]


@dataclass(frozen=True, slots=True)
class LabelAnswers:
    """Which of c labels q queries have.

    `averages`: of what records said of each label, 1 and -1 where `centred`, and 1 and 0 elsewhere.
    `present`, bool (q, c): whether a label's noisy share is at least one half. `shares`, `errors`,
    float64 (q, c): shares of the neighbours with each label, in 0..1, and their standard errors.
    """

    averages: NoisyAverages
    centred: bool
    present: Bools
    shares: Floats
    errors: Floats

    @classmethod
    def of(cls, settings: MultiLabelSettings, sums: Floats, noise: Floats) -> Self:
        """Return what sums (q, 1 + c) with this noise (q,) say."""
        tau = settings.tau
        a, b = _target_encoding.parts(CENTRED_WEIGHT_SHARE if tau is None else WEIGHT_SHARE)
        length = np.sqrt(len(settings.labels) if tau is None else tau)
        averages = NoisyAverages.of(sums, noise, a, b / length)
        return cls._of_means(averages, averages.means, averages.errors, centred=tau is None)

    @classmethod
    def _of_means(
        cls, averages: NoisyAverages, means: Floats, errors: Floats, *, centred: bool
    ) -> Self:
        """Return what means in -1..1 or, not `centred`, in 0..1 say."""
        if centred:
            means, errors = (means + 1) / 2, errors / 2
        return cls(averages, centred, means >= 0.5, np.clip(means, 0, 1), errors)

    def along_trend(self, around: PublicSurroundings) -> Self:
        """Return shares and errors as a trend through all of these answers has them."""
        means, errors = refined(around, self.averages.means, self.averages.errors)
        return self._of_means(self.averages, means, errors, centred=self.centred)

    @property
    def fields(self) -> dict[str, AnyArray]:
        """What a reply says: 1 for each label given and 0 for the others, shares, and errors."""
        given = self.present.astype(np.int64)
        return {"labels": given, "shares": self.shares, "errors": self.errors}


def answers_of(
    settings: SharedSettings, sums: Floats, noise: Floats
) -> NumberAnswers | LabelAnswers:
    """Return what sums with this noise (q,) say, by what records carry."""
    if isinstance(settings, RegressorSettings):
        return NumberAnswers.of(settings, sums, noise)
    assert isinstance(settings, MultiLabelSettings)  # noqa: S101 (no other kind)
    return LabelAnswers.of(settings, sums, noise)
