"""Noisy gradients of softmax regression in the individual filter: each subject pays for its own.

Proof note: linear_model.md. Sources: Feldman & Zrnic 2021, section 4 (full-batch gradients charged
by their own norm); Goodfellow 2015 (norms of gradients that are outer products).

Everything that is summed is a whole number. A record's features are an integer row u, the
derivatives of its loss by the scores a vector e of whole numbers, and its gradient is the outer
product of the two, of norm |u| |e|.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from vicinal import _checks
from vicinal._compiled import compiled
from vicinal.accounting._budget import MAX_SCALE, UNITS, unit_rate
from vicinal.accounting._charges import charge
from vicinal.mechanisms._gradients import (
    WEIGHT_STEPS,
    SubjectRows,
    softmax_residuals,
    whole_weights,
)
from vicinal.mechanisms._votes import FINE, FINEST, DeltaSlackAccountant
from vicinal.noise import NoiseSource

Floats = npt.NDArray[np.float64]
Steps = npt.NDArray[np.int64]
Units = npt.NDArray[np.int64]

_MOST_ROWS = 1 << 14  # sums of a chunk stay below 2^53, for contributions of at most 2^29 steps
_CACHED = 1 << 16  # numbers of a chunk that both products find in the processor's cache
_PEOPLE = 1 << 10  # with several records each; their charges together are below 2^59
_LOW = (1 << 24) - 1
_INSIDE = 1 - 1e-9


class IndividualGradient:
    """The sum of the gradients of all subjects, with noise, charged to each by its length.

    Contribution: the gradient summed over a subject's records, scaled down to norm `clip` and to
    what the subject may still spend here, rounded towards zero to whole steps.

    - `records`: who takes part; `slots` given to it are places in the ledger.
    - `n_classes`: number of classes c.
    - `unit`: a feature of 1 is so many integer steps.
    - `clip`: largest norm of a contribution, in the features' own units.
    - `most_noise`: no noise scale will be larger than this many clipping bounds; sets the grid.
    - `share`: the share of a full budget that training may take from a subject, 0 < share <= 1.
    - `budget`: the zCDP that a subject's full budget stands for.
    - `noise`: where noise comes from.
    - `slack`: meters what the grid costs.
    """

    def __init__(
        self,
        records: SubjectRows,
        n_classes: int,
        unit: float,
        clip: float,
        most_noise: float,
        share: float,
        budget: float,
        noise: NoiseSource,
        slack: DeltaSlackAccountant,
    ) -> None:
        self.clip = _checks.real("clip", clip, above=0)
        self.steps = _steps(most_noise)
        self.reserve = UNITS - math.floor(_checks.real("share", share, above=0, most=1) * UNITS)
        self.n_classes = n_classes
        self.n_features = records.rows.shape[1]
        # Exact: a row's norm is at most 8191.
        self.squares = np.rint(np.square(records.norms)).astype(np.int64)
        self._records = records
        self.unit = unit
        self._budget = budget
        self._noise = noise
        self._slack = slack

    def release(self, noise: float) -> GradientRelease:
        """Return one release at a noise scale of `noise` clipping bounds; public.

        Raises PrivacyRefused before anybody is charged, if the grid's cost does not fit.
        """
        noise_steps = _checks.real("noise", noise, above=0) * self.steps
        scale = max(FINE, math.ceil(min(noise_steps, MAX_SCALE)))
        self._slack.charge([scale], self.n_features * self.n_classes)
        return GradientRelease(self, scale, unit_rate(scale, self._budget))


@dataclass(frozen=True, slots=True)
class GradientRelease:
    """Contribution, charge and noise of one step, which cannot disagree.

    `scale`: noise scale in grid steps. `rate`: units that a squared step costs under that scale,
    rounded up.
    """

    mechanism: IndividualGradient
    scale: int
    rate: float

    @property
    def noise(self) -> float:
        """The noise scale in clipping bounds, as it is paid for. Public."""
        return self.scale / self.mechanism.steps

    def collect(self, weights: Floats, remaining: Units) -> tuple[Steps, int]:
        """Charge every subject for its gradient and return the sum; still private.

        `weights`, float64 (d, c): public weights, finite; taken on their grid. `remaining`, int64
        (subjects,): units of budget left, by slot; charged in place. Returns sums in grid steps,
        which must not leave before :meth:`publish` has added noise, and all charges together, in
        units; private.
        """
        integer_weights = whole_weights(weights)
        gradient, records = self.mechanism, self.mechanism._records
        sums = np.zeros((gradient.n_features, gradient.n_classes), dtype=np.int64)
        counts = np.diff(records.starts)
        single = np.flatnonzero(counts == 1)
        chunk = max(1, min(_MOST_ROWS, _CACHED // gradient.n_features))
        spent = sum(
            self._add_single(single[start : start + chunk], integer_weights, remaining, sums)
            for start in range(0, len(single), chunk)
        )
        several = np.flatnonzero(counts > 1)
        return sums, spent + sum(
            self._add_several(several[start : start + _PEOPLE], integer_weights, remaining, sums)
            for start in range(0, len(several), _PEOPLE)
        )

    def publish(self, sums: Steps) -> Floats:
        """Add the noise that the charges paid for; return the noisy sum in clipping bounds."""
        noise = self.mechanism._noise.discrete_gaussian(self.scale, sums.size)
        return np.asarray((sums + noise.reshape(sums.shape)) / self.mechanism.steps)

    def _add_single(
        self, slots: npt.NDArray[np.int64], integer_weights: Floats, remaining: Units, sums: Steps
    ) -> int:
        """Add subjects of one record each by one product of whole numbers; return charges."""
        records = self.mechanism._records
        places = records.starts[slots]
        rows = records.rows[places].astype(np.float64)
        scores = rows @ integer_weights
        high, low = charge_rows(
            scores,
            self.mechanism.squares[places],
            records.labels[places],
            slots,
            remaining,
            *self._numbers,
        )
        sums += (rows.T @ scores).astype(np.int64)
        return (int(high) << 24) + int(low)

    def _add_several(
        self, slots: npt.NDArray[np.int64], integer_weights: Floats, remaining: Units, sums: Steps
    ) -> int:
        """Add subjects with several records each; return their charges."""
        records = self.mechanism._records
        counts = records.starts[slots + 1] - records.starts[slots]
        starts = np.concatenate([[0], np.cumsum(counts)])
        places = np.arange(starts[-1]) + np.repeat(records.starts[slots] - starts[:-1], counts)
        rows = records.rows[places].astype(np.float64)
        labels = records.labels[places]
        return int(
            charge_several(
                rows @ integer_weights, rows, labels, starts, slots, remaining, *self._numbers, sums
            )
        )

    @property
    def _numbers(self) -> tuple[float, float, float, float, int]:
        """What the compiled loops need: per score, factor, bound, rate, reserve."""
        gradient = self.mechanism
        factor = gradient.steps / (gradient.clip * gradient.unit)
        bound = float(min(gradient.steps, self.scale))
        return 1 / (gradient.unit * WEIGHT_STEPS), factor, bound, self.rate, gradient.reserve


def _steps(most_noise: float) -> int:
    """Return grid steps in a clipping bound: a power of two, as fine as arithmetic allows."""
    most = _checks.real("most_noise", most_noise, above=0, most=MAX_SCALE)
    return min(FINEST, 1 << math.floor(math.log2(MAX_SCALE / max(most, 1.0))))


@compiled
def charge_rows(  # type: ignore[no-untyped-def]
    scores, squares, labels, slots, remaining, per_score, factor, bound, rate, reserve
):
    """Turn scores (n, c) of single records into charged whole numbers e, in place.

    The contribution of record i is the outer product of its row with e, of squared norm
    squares[i] |e|^2. Returns all charges as (high, low), the low parts of 24 bits.
    """
    high, low = 0, 0
    for i in range(len(scores)):
        softmax_residuals(scores[i], labels[i], per_score)
        size = 0.0
        for c in range(scores.shape[1]):
            size += scores[i, c] * scores[i, c]
        size = math.sqrt(size * squares[i])
        shrink = (factor if factor * size <= bound else bound / size) * _INSIDE
        cost = _shrunk(scores[i], shrink, squares[i], rate)
        allowed = max(remaining[slots[i]] - reserve, 0)
        if cost > allowed:
            shrink = math.sqrt(allowed / cost) * _INSIDE
            cost = _shrunk(scores[i], shrink, squares[i], rate)
        while cost > allowed:
            cost = _shrunk(scores[i], 0.999, squares[i], rate)
        remaining[slots[i]] -= cost
        high += cost >> 24
        low += cost & _LOW
    return high, low


@compiled
def charge_several(  # type: ignore[no-untyped-def]
    scores, rows, labels, starts, slots, remaining,
    per_score, factor, bound, rate, reserve, sums,
):  # fmt: skip
    """Add the charged gradients of subjects, each with records starts[i] to starts[i + 1]."""
    spent = 0
    for i in range(len(slots)):
        first, last = starts[i], starts[i + 1]
        spent += add_charged(
            scores[first:last], rows[first:last], labels[first:last], slots[i], remaining,
            per_score, factor, bound, rate, reserve, sums,
        )  # fmt: skip
    return spent


@compiled
def add_charged(  # type: ignore[no-untyped-def]
    scores, rows, labels, slot, remaining, per_score, factor, bound, rate, reserve, sums
):
    """Add the charged gradient of one subject with several records; return its charge."""
    for i in range(len(scores)):
        softmax_residuals(scores[i], labels[i], per_score)
    gradient = np.zeros(sums.size)
    width = sums.shape[1]
    for i in range(len(scores)):
        for j in range(rows.shape[1]):
            for c in range(width):
                gradient[j * width + c] += rows[i, j] * scores[i, c]
    size = math.sqrt((gradient * gradient).sum())
    shrink = (factor if factor * size <= bound else bound / size) * _INSIDE
    cost = _shrunk(gradient, shrink, 1, rate)
    allowed = max(remaining[slot] - reserve, 0)
    if cost > allowed:
        cost = _shrunk(gradient, math.sqrt(allowed / cost) * _INSIDE, 1, rate)
    while cost > allowed:
        cost = _shrunk(gradient, 0.999, 1, rate)
    remaining[slot] -= cost
    for j in range(rows.shape[1]):
        for c in range(width):
            sums[j, c] += np.int64(gradient[j * width + c])
    return cost


@compiled
def _shrunk(vector, factor, square, rate):  # type: ignore[no-untyped-def]
    """Multiply in place, rounding towards zero; return the charge of `square` times its norm^2."""
    total = 0
    for c in range(len(vector)):
        vector[c] = np.trunc(vector[c] * factor)
        total += int(vector[c]) * int(vector[c])
    return charge(total * square, rate)
