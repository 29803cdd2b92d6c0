r"""What a label takes of a subject's budget in Gaussian DP, where only labels leave.

A subject has z = mu^2 of its budget left. A label costs it p, fixed before the label is drawn, if
every threshold test f of the subject's shift m, beside a Gaussian of z' = z - p, is no easier than
the Gaussian of z, up to a tail in proportion to p: then the whole interaction is at most as
revealing as the Gaussian of the whole budget, up to the tail. Proof, and every bound that is used
here, by its number: label_only.md, sections 6 and 8.

The price is s m^2. For one residue z' :func:`_row` finds the least s on cells of k = m / sqrt(z')
for which a - s (B + t) <= 0 at all margins b and all losses eps = sqrt(z') (sqrt(z') / 2 + y), with
values on a grid of (b, k, y) and bounds of second derivatives between its points.
"""

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy.special import exprel, log_ndtr, ndtr

from vicinal import checks
from vicinal.accounting._divergence import hazard
from vicinal.arrays import Bools, Floats

MAX_CLASSES = 1 << 16  # most classes for which a bound uses their number
DEAREST = 0.875  # a label costs at most this share of its vote's price, or all of it

_ROWS, _CELLS = 24, 30
_WIDEST = 1.2  # of k; wider shifts cost what they cost where votes leave
_STEP_B, _STEP_FAR, _STEP_Y = 0.075, 0.25, 0.15
_RIGHT = 4.0
_LARGEST = 3.0  # mu of a budget; labels of a larger one cost what votes cost (8.1)
_STEEP = 6.0  # of a log ratio over sqrt(z'), up to which the quadrature is exact (8.2)
_HALVINGS = 9
_FARTHEST = (
    18.0  # y, up to which the quadrature is exact; budgets of a tiny delta cost what votes cost
)
_SAFETY = 1e-6  # quadratures, rounding, and the edges of rows and cells (section 6)

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(24)
_U, _WEIGHTS = (_NODES[:, None, None] + 1) / 2, _WEIGHTS / 2
_ROOT = math.sqrt(2 * math.pi)


@dataclass(frozen=True, slots=True)
class ChargeTable:
    """Charges of label releases, as shares of what moving one vote costs where votes leave.

    ``UNITS`` units stand for the zCDP `budget`, half of the square of a mu. `shares` (r, m) are by
    what the subject has left afterwards, and by the shift over the root of that; see
    `charges.label_charge`. With `classes` a shift counts as mu sqrt(1 - 1/c).
    """

    budget: float
    classes: int | None
    shares: Floats

    @property
    def narrow(self) -> float:
        """Return 1 - 1/c, rounded up: what the number of classes leaves of a squared shift."""
        return 1.0 if self.classes is None else math.nextafter(1 - 1 / self.classes, 1)

    @property
    def density(self) -> float:
        """Return how many cells a shift of one noise scale is away from none, in a last row."""
        rows, cells = self.shares.shape
        return float((cells - 1) * rows / _WIDEST * math.sqrt(self.narrow / (2 * self.budget)))

    def share(self, mu: float, left: float | Floats = 1.0) -> Floats:
        """Return what share of mu^2 / 2 a shift of `mu` noise scales costs; as the kernel does.

        `left`: what share of a budget there is before. For plans and audits.
        """
        rows, cells = self.shares.shape
        after = np.maximum(left - DEAREST * self.narrow * mu**2 / (2 * self.budget), 0)
        row = np.minimum(np.sqrt(after) * rows, rows - 1).astype(np.int64)
        cell = np.minimum(mu * self.density / np.maximum(row, 1), cells - 1).astype(np.int64)
        return np.asarray(self.narrow * self.shares[row, cell])

    def worth(self, mu: float, left: float = 1.0) -> float:
        """Return what a share of the budget is worth to shifts of `mu`, in what votes cost."""
        steps = (np.arange(256) + 0.5) / 256
        return float(left * self.budget * np.mean(1 / self.share(mu, left * steps)))


def charge_table(budget: float, tail: float, classes: int | None = None) -> ChargeTable:
    """Return the charges of labels under a zCDP `budget` that may add `tail` to delta.

    The interaction is as revealing as Gaussian DP of mu = sqrt(2 budget) and `tail`, and what the
    grid costs. Without `tail` labels cost what votes cost; that holds in Renyi DP, too.
    """
    budget = checks.check_real("budget", budget, above=0)
    tail = checks.check_real("tail", tail, least=0, below=1)
    if classes is not None:
        classes = checks.check_integer("classes", classes, least=2, most=MAX_CLASSES)
    return ChargeTable(budget, classes, _shares(budget, tail) if tail else np.ones((1, 1)))


@lru_cache(maxsize=16)
def _shares(budget: float, tail: float) -> Floats:
    root = math.sqrt(2 * budget)
    shares = np.ones((_ROWS, _CELLS + 1))
    for row in range(1, _ROWS if root <= _LARGEST else 0):
        found = _row(row / _ROWS * root, tail / (2 * budget)) * (1 + _SAFETY)
        shares[row, :-1] = np.maximum.accumulate(np.where(found > DEAREST, 1.0, found))
    shares.flags.writeable = False
    return shares


def _row(left: float, tail: float) -> Floats:
    """Return shares for a residue mu of `left`, (cells,); `tail`: delta for a unit of mu^2."""
    # t = tail_scale exp(y^2 / 2)
    tail_scale = 2 * left * tail * _ROOT
    farthest = _farthest(left, tail_scale)
    if farthest > _FARTHEST:
        return np.ones(_CELLS)
    losses = np.arange(-left / 2, farthest + _STEP_Y, _STEP_Y)
    below, above = _tests(left, losses, tail_scale)
    low, high = np.full(_CELLS, 0.6), np.ones(_CELLS)
    middle = np.full(_CELLS, DEAREST)
    for _ in range(_HALVINGS):
        fails = _fails(middle, left, losses, tail_scale, below, above)
        low, high = np.where(fails, middle, low), np.where(fails, high, middle)
        middle = (low + high) / 2
    return high


def _farthest(left: float, tail_scale: float) -> float:
    """Return the y from which the tail alone suffices, for all shifts (8.1), or what is too far."""
    y, x = left, _WIDEST**2 * _U
    while y <= _FARTHEST:
        gain = _integral((y + left / 2) ** 2 * x / (1 + x) / 2, x**0)
        if gain.max() <= 0.5 * tail_scale * math.exp(y**2 / 2):
            break
        y += _STEP_Y
    return y


def _margins(left: float, tail_scale: float) -> Floats:
    """Return the grid of margins; beyond its ends the tail suffices (8.1)."""
    widest = _WIDEST * left
    start = -4 - widest
    while True:
        rate = float(hazard(np.asarray(start)))
        if ndtr(start) * rate**2 * math.exp(widest * rate) <= 0.1 * tail_scale:
            break
        start -= _STEP_FAR
    far = np.arange(start, -4, _STEP_FAR), np.arange(1, _RIGHT + _STEP_FAR, _STEP_FAR)
    return np.concatenate([far[0], np.arange(-4, 1, _STEP_B), far[1]])


def _mean_hazard(a: Floats, m: Floats) -> Floats:
    """Return (log Phi(a + m) - log Phi(a)) / m, from above."""
    wide = np.where(m < 1e-3, 1.0, m)
    mean = (log_ndtr(a + wide) - log_ndtr(a)) / wide
    return np.asarray(np.where(m < 1e-3, (hazard(a) + hazard(a + m)) / 2, mean))


def _tests(left: float, losses: Floats, tail_scale: float) -> tuple[Floats, Floats]:
    """Bound a at both ends of every cell of shifts, (cells, losses), over all margins (8.2)."""
    step, margins = _WIDEST * left / _CELLS, _margins(left, tail_scale)
    m, b = np.meshgrid(step * np.arange(_CELLS + 2), margins, indexing="ij")
    win, lose = _mean_hazard(b, m), _mean_hazard(-b - m, m)
    weights = 2 * ndtr(b) * win**2, 2 * ndtr(-b) * lose**2
    steepness = win * m / left
    terms = _Terms(m * win, left, losses[0]), _Terms(-m * lose, left, losses[0])
    # What follows holds for whole cells, from m[:-1] to m[1:].
    high, margin = m[1:], b[1:]
    rising, falling = high + margin + hazard(high + margin), hazard(-margin) - margin
    likely = np.maximum(hazard(margin), hazard(-margin - high))
    bend_m = np.maximum(rising**2 / 2, 2 * falling**2) + 1 + likely * (likely + high) / left**2
    lower = np.maximum(-margin[:, :-1], 0) * high[:, :-1]
    near = np.maximum(np.maximum(margin[:, :-1], -margin[:, 1:]), 0)
    bend_b = 2 / _ROOT * np.exp(lower - near**2 / 2) * (2 + lower) * np.diff(margin) ** 2 / 8
    lost = lose[1:, 1:] * np.exp(lose[1:, 1:] * high[:, 1:] / 2)
    ratio = np.divide(high, m[:-1], where=m[:-1] > 0, out=np.full_like(high, np.inf))[:, :-1]
    below, above = np.empty((2, _CELLS, len(losses)))
    for j, y in enumerate(losses):
        rare = _ROOT * np.exp(m * win + y**2 / 2) / np.maximum(steepness, _STEEP)
        won = np.where(steepness > _STEEP, rare, terms[0].next())
        a = (weights[0] * won + weights[1] * terms[1].next())[:-1]
        ends = np.maximum(a[:, :-1], a[:, 1:])
        ahead, steep = max(y, 0.0), steepness[1:, :-1]
        strip = np.minimum(
            win[:-1, :-1] * exprel(ahead * steep), ratio * win[1:, :-1] * _mean_tilt(ahead, steep)
        )
        kappa = step**2 / 8 * (bend_m + ahead / left)
        kappa = np.maximum(kappa[:, :-1], kappa[:, 1:])[:-1]
        swell = np.where(kappa < 0.5, kappa / (1 - np.minimum(kappa, 0.5)), np.inf)
        slack = (bend_b * (strip + lost))[:-1] + swell * np.maximum(ends[:-1], ends[1:])
        below[:, j], above[:, j] = (ends[:-1] + slack).max(1), (ends[1:] + slack).max(1)
    return below, above


class _Terms:
    """The integral over u of (e^r - e^(ru)) / r exp(y r u / left - (r u / left)^2 / 2), y by y."""

    def __init__(self, ratio: Floats, left: float, first: float) -> None:
        steep = np.clip(ratio / left, -_STEEP, _STEEP) * _U
        rest = (1 - _U) * exprel(ratio * (1 - _U)) * np.exp(ratio * _U - steep**2 / 2)
        self._terms = rest * np.exp(first * steep) * _WEIGHTS[:, None, None]
        self._step = np.exp(_STEP_Y * steep)

    def next(self) -> Floats:
        total = self._terms.sum(axis=0)
        self._terms *= self._step
        return np.asarray(total)


def _mean_tilt(y: float, steep: Floats) -> Floats:
    """Bound the mean of exp(y x - x^2 / 2) over x in [0, steep], y >= 0: it lies below tangents."""
    short = np.minimum(steep, y)
    inside = np.exp(short * (y - short / 2)) * exprel(-short * (y - short))
    beyond = math.exp(y**2 / 2) * np.minimum(1, _ROOT / np.maximum(steep, 1))
    return np.where(steep < y, inside, beyond)


def _fails(
    share: Floats, left: float, losses: Floats, tail_scale: float, below: Floats, above: Floats
) -> Bools:
    """Return on which cells a share is not certified, (cells,) (8.3)."""
    share, edges = share[:, None], _WIDEST * np.arange(_CELLS + 1)[:, None] / _CELLS
    x0, x1 = (share * k**2 * _U for k in (edges[:-1], edges[1:]))
    loss, most = (losses + left / 2) ** 2, (losses[1:] + left / 2) ** 2
    tail, peak = tail_scale * np.exp(losses**2 / 2), np.maximum(losses[1:], -losses[:-1])
    # Between its ends the tail is above its chord less `sag`, and above its least value.
    sag = _STEP_Y**2 / 8 * tail_scale * np.exp(peak**2 / 2) * (1 + peak**2)
    least = tail_scale * np.exp(np.maximum(losses[:-1], 0) ** 2 / 2)
    flat, excess = 2 * sag > tail[:-1], np.asarray(-np.inf)
    for tests, x in ((below, x0), (above, x1)):
        gain = _integral(loss * x / (1 + x) / 2 - left**2 * x / 8, (1 + x) ** -0.5)
        for end in (slice(None, -1), slice(1, None)):
            bound = gain[:, end] + np.where(flat, least, tail[end] - sag)
            excess = np.maximum(excess, tests[:, end] - share * bound)
    # Second derivatives of B, along k and along y, are at most these.
    curve, base = x1 / (1 + x1), 1 / (1 + x0)
    slope = most * base**2 / 2
    square = slope**2 + (left**2 / 8 + base / 2) ** 2 + base**2 / 2
    along_k = 4 * share * x1 * _U * square + 2 * share * _U * slope
    slack = _integral(
        most * curve / 2,
        (_WIDEST / _CELLS) ** 2 / 8 * along_k + _STEP_Y**2 / 8 * (curve + most * curve**2),
    )
    return np.asarray((excess + share * slack > 0).any(axis=1))


def _integral(exponent: Floats, factor: Floats) -> Floats:
    """Return the integral of exp(exponent) times a factor over u, along the first axis."""
    return np.asarray(np.tensordot(_WEIGHTS, np.exp(exponent) * factor, 1))
