r"""Batches of screening answers, worst case over adaptive choices: a tighter dominating pair.

The dominating pair of one answer takes the worst t separately for every eps, so composing it lets
the adversary use all t at once; it is as dear as the Gaussian it thresholds. In truth one t is
chosen for each answer, if after seeing the earlier answers. For a batch of m answers the worst case
over such strategies satisfies, with C_0 = 0 and C the excess of pairs,

    C_j(eps) = max over t of  C^t(eps) + r C_{j-1}(eps - U) + (1 - r) C_{j-1}(eps - V),

where r is the chance to pass with the subject and U, V the losses of passing and failing: the
hockey-stick divergence after the first answer is r H(eps - U) + (1 - r) H(eps - V). C_m is a
maximum of divergences, so it is the profile of a pair that dominates the batch, whatever came
before; batches compose like releases (Zhu, Dong & Wang 2022, Theorem 10). The worst t is nearly the
same for all eps once m is large, and the price of taking it separately for every eps falls like
1/m.

*Other releases in between.* A batch is an interactive mechanism: in every round an adversary
chooses t and sees an answer; C_m is the profile that no strategy exceeds. Whoever interleaves its
rounds with other releases, batches of other screenings among them, runs a concurrent composition,
and for hypothesis tests that costs no more than the composition of the non-interactive dominating
pairs (Vadhan & Zhang 2023: an interactive mechanism can be simulated by interactive post-processing
of such a pair). So every screening of a plan is batched, whatever the order of the releases.

*Arithmetic.* C_{j-1} is kept on a uniform grid and joined by straight lines in e^eps, which lies
above a convex function; 0 is a grid point. Beyond the grid the value at its end is taken, which is
larger. Far from the threshold many t are served by one option that dominates all of them: the hull
of the points (q, r) of the block's ends and of the intersection of the tangents of the curve there.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Sequence

import numpy as np

from vicinal._arrays import Floats, Ints
from vicinal.accounting import _kernels
from vicinal.accounting._divergence import Pair, mixed_ratio
from vicinal.accounting._screening import Screening

BATCH = 64

_CELLS = 20
_DEVIATIONS = 10.0
_WIDTH = 0.02
_GROWTH = 0.3
_CENTRE = 0.7
# Beyond this position (plus the shift) an answer is all but certain.
_FAR = 9.0
_UNBOUNDED = 600.0
_SMALLEST_SIGMA = 0.1
_SMALLEST_STEP = 1e-5


@dataclasses.dataclass(frozen=True)
class ScreeningBatchPair(Pair):
    """The worst adaptive choice of votes in a batch of `size` screening answers."""

    screening: Screening
    size: int

    @property
    def symmetric(self) -> bool:
        return self.screening.gamma == 1

    def excess(self, losses: Floats) -> Floats:
        step, values = _profiles(self.screening, BATCH)
        return np.asarray(interpolate(values[self.size], step, losses))


def worth_it(screening: Screening) -> bool:
    """Return whether batches are within the reach of double precision."""
    step = screening.gamma / screening.sigma
    return screening.sigma >= _SMALLEST_SIGMA and step >= _SMALLEST_STEP


def batches(screening: Screening, count: int) -> list[tuple[ScreeningBatchPair, int]]:
    """Return pairs, with counts, that dominate `count` >= 1 answers of one screening."""
    n_batches, n_single = divmod(count, BATCH)
    parts = [
        (ScreeningBatchPair(screening, BATCH), n_batches),
        (ScreeningBatchPair(screening, n_single), 1),
    ]
    return [(pair, times) for pair, times in parts if pair.size and times]


@dataclasses.dataclass(frozen=True)
class _Option:
    """One choice of votes, or a bound for many: outcomes with masses and losses, and its excess."""

    masses: Floats
    losses: Floats


@functools.lru_cache(maxsize=8)
def _profiles(screening: Screening, size: int) -> tuple[float, Floats]:
    """Return the grid step and C_0 ... C_size on the grid, as (size + 1, 2 n + 1)."""
    options = _options(screening)
    spread = max(
        math.sqrt(float(o.masses @ np.where(abs(o.losses) < _UNBOUNDED, o.losses, 0) ** 2))
        for o in options
    )
    step = spread / _CELLS
    reach = np.ceil(_DEVIATIONS * np.sqrt(np.arange(size + 1)) * _CELLS + 4).astype(np.int64)
    half = int(reach[-1])
    epsilon = np.asarray(step * np.arange(-half, half + 1), dtype=np.float64)
    own = np.stack([_banded_excess(option, epsilon, step) for option in options])
    values = _kernels.largest_profiles(own, *_shifts(options, step, half), reach)
    return step, values * (1 + 1e-9)


def _banded_excess(option: _Option, epsilon: Floats, step: float) -> Floats:
    """Return the excess of one option on the grid; it is zero beyond its largest loss."""
    half = len(epsilon) // 2
    band = min(half, math.ceil(float(np.abs(option.losses).max()) / step) + 1)
    excess = np.zeros_like(epsilon)
    near = slice(half - band, half + band + 1)
    excess[near] = _own_excess(option, epsilon[near])
    return excess


def _own_excess(option: _Option, epsilon: Floats) -> Floats:
    """Return the excess of one option: its mass above eps, less 1 - e^eps below 0."""
    gain = np.zeros_like(epsilon)
    for mass, loss in zip(option.masses, option.losses, strict=True):
        above = -np.expm1(np.minimum(epsilon - loss, 0.0))
        # Below 0 the part of 1 - e^eps that this outcome does not give; the masses sum to 1.
        below = np.exp(np.minimum(epsilon, 0.0) - loss) * -np.expm1(np.minimum(loss - epsilon, 0.0))
        gain += mass * np.where(epsilon >= 0, above, below)
    return gain


def _shifts(options: Sequence[_Option], step: float, half: int) -> tuple[Ints, Floats, Floats]:
    """Return where every outcome shifts a profile to, and the weights of the points around it.

    A profile is joined by lines in e^eps between its points; three arrays (options, outcomes).
    """
    most = max(len(option.masses) for option in options)
    masses = np.array([np.pad(option.masses, (0, most - len(option.masses))) for option in options])
    losses = np.array([np.pad(option.losses, (0, most - len(option.losses))) for option in options])
    places = -losses / step
    cells = np.clip(np.floor(places), -half, half - 1)
    far = np.expm1(step * np.clip(places - cells, 0.0, 1.0)) / math.expm1(step)
    return cells.astype(np.int64), masses * (1 - far), masses * far


def interpolate(values: Floats, step: float, losses: Floats) -> Floats:
    """Return `values` of the grid at any losses, joined by straight lines in e^eps."""
    half = len(values) // 2
    place = np.clip(losses / step, -half, half)
    cell = np.minimum(np.floor(place), half - 1)
    weight = np.expm1(step * (place - cell)) / math.expm1(step)
    index = cell.astype(np.int64) + half
    return np.asarray((1 - weight) * values[index] + weight * values[index + 1])


def _options(screening: Screening) -> list[_Option]:
    """Return options that dominate every choice of votes."""
    far = _FAR + 1 / screening.sigma
    everywhere = _positions(screening)
    options = _certain(screening, far, everywhere)
    positions, low = everywhere[np.abs(everywhere) <= far], 0
    while low < len(positions):
        room = _WIDTH + _GROWTH * max(0.0, abs(positions[low]) - _CENTRE)
        high = int(np.searchsorted(positions, positions[low] + room, side="right")) - 1
        high = max(high, low)
        options.append(_option(screening, positions[low], positions[high]))
        low = high + 1
    return options


def _certain(screening: Screening, far: float, positions: Floats) -> list[_Option]:
    """Return options that dominate the positions beyond `far` on either side.

    Below, the chance r to pass is at most that at -far: all of it may be loss without bound. Above,
    the chance to fail without the subject is at most that at far, and may vanish with the subject.
    """
    log_q, log_miss, up, _ = screening.laws(np.array([-far, far]))
    options = []
    if positions[0] < -far:
        passed = math.exp(log_q[0] + up[0])
        losses = np.array([_UNBOUNDED, math.log1p(-passed)])
        options.append(_Option(np.array([passed, 1 - passed]), losses))
    if positions[-1] > far:
        missed = math.exp(log_miss[1])
        losses = np.array([-math.log1p(-missed), -_UNBOUNDED])
        options.append(_Option(np.array([1.0, missed * math.exp(-_UNBOUNDED)]), losses))
    return options


def _positions(screening: Screening) -> Floats:
    """Return all positions of upward steps, in ascending order; nearly equal ones once."""
    index = np.arange(screening.k)
    both = np.concatenate([screening.position(index, np.full_like(index, s)) for s in (0, 1)])
    both.sort()
    return both[np.diff(both, prepend=-np.inf) > 1e-9 / screening.sigma]


def _option(screening: Screening, low: float, high: float) -> _Option:
    """Return the option for the positions between `low` and `high`."""
    log_q, log_miss, up, down = screening.laws(np.array([low, high]))
    if high == low:
        masses = np.array([math.exp(log_q[0] + up[0]), math.exp(log_miss[0] + down[0])])
        return _Option(masses, np.array([up[0], down[0]]))
    # Slopes of the curve at both ends: the losses of the two pieces of the hull between them.
    shift = 1 / screening.sigma
    slopes = mixed_ratio(-np.array([low, high]) * shift - shift**2 / 2, screening.gamma)
    without = math.exp(log_q[1]) - math.exp(log_q[0])
    with_ = math.exp(log_q[1] + up[1]) - math.exp(log_q[0] + up[0])
    steep, flat = math.exp(slopes[0]), math.exp(slopes[1])
    # Slopes that are equal in double precision leave one piece.
    share = (with_ - flat * without) / (steep - flat) if steep > flat else without
    share = min(max(share, 0.0), without)
    masses = np.array(
        [
            math.exp(log_q[0] + up[0]),
            steep * share,
            flat * (without - share),
            math.exp(log_miss[1] + down[1]),
        ]
    )
    return _Option(masses, np.array([up[0], slopes[0], slopes[1], down[1]]))
