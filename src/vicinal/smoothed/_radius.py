"""Our own radius vote with the noise off: exact counts of sampled records inside a radius."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from vicinal import _checks
from vicinal.smoothed._edges import LOSS, TRUE_OTHER, TRUE_X
from vicinal.smoothed._histogram import check_records
from vicinal.smoothed._intervals import Array, Log, total, weighted_excess
from vicinal.smoothed._mechanism import CountMechanism, Counts, Loss
from vicinal.smoothed._mixing import finite_size, gain_weight
from vicinal.smoothed._saddle import FLOOR, SLOPE, binomial
from vicinal.smoothed._samplers import Poisson


@dataclass(frozen=True)
class RadiusVotes(CountMechanism):
    """Sample every record with probability `gamma`; publish the sampled labels inside the radius.

    What a record is, seen from a public query, is its label, or "out" if it is outside the radius
    (Proposition 6), so there are `classes` + 1 types; "out" is the last and is not published. The
    votes are independent binomials.

    Parameters
    ----------
    gamma : float
        Sampling rate, in (0, 1].
    classes : int
        Number of labels, at least 2.
    """

    gamma: float
    classes: int

    def __post_init__(self) -> None:
        gamma = _checks.real("gamma", self.gamma, above=0, most=1)
        object.__setattr__(self, "gamma", gamma)
        classes = _checks.integer("classes", self.classes, least=2)
        object.__setattr__(self, "types", classes + 1)

    def check_size(self, n: int) -> None:
        """Refuse databases for which counts would leave 64 bits."""
        check_records(n)

    def touched(self, n: int) -> float:  # noqa: ARG002 - the same for every n
        """Return gamma."""
        return self.gamma

    @property
    def attains_touched(self) -> bool:
        """True: a lone record inside the radius shows whenever it is drawn."""
        return True

    def losses(self, database: Counts, epsilon: float) -> Iterator[Loss]:
        """Yield a loss for every possible change of one record."""
        for i, j, own, other in self._changes(database):
            forward = self._part(i, j, own, other, epsilon, LOSS)
            backward = self._part(j, i, other + 1, own - 1, epsilon, LOSS)
            yield Loss(f"{self._name(i)} -> {self._name(j)}", forward, backward)

    def gains(self, database: Counts, epsilon: float) -> Iterator[Log]:
        """Yield a gain for every possible change of one record."""
        for i, j, own, other in self._changes(database):
            forward = self._part(i, j, own, other, epsilon, TRUE_X)
            backward = self._part(j, i, other + 1, own - 1, epsilon, TRUE_OTHER)
            yield total([forward, backward])

    def _changes(self, database: Counts) -> Iterator[tuple[int, int, int, int]]:
        m = self.classes + 1
        for i in range(m):
            for j in range(m):
                if i != j and database[i]:
                    yield i, j, int(database[i]), int(database[j])

    def _name(self, kind: int) -> str:
        return "out" if kind == self.classes else f"label {kind}"

    def _part(self, i: int, j: int, own: int, other: int, epsilon: float, what: int) -> Log:
        """Return the divergence of X with (own, other) from X' with (own - 1, other + 1)."""
        if j == self.classes:
            return count_excess(own, own - 1, self.gamma, epsilon, what)
        if i == self.classes:
            return count_excess(other, other + 1, self.gamma, epsilon, what)
        return Poisson(self.gamma).pair(own - 1, other, own + other, epsilon, what)


def count_excess(own: int, other: int, gamma: float, epsilon: float, what: int) -> Log:
    """Return the divergence of Bin(own, gamma) from Bin(other, gamma); they differ by one."""
    log_p, more = binomial(own, gamma), max(own, other)
    drawn = np.arange(own + 1)
    with np.errstate(divide="ignore", invalid="ignore"):
        # Bin(more) / Bin(more - 1) is more (1 - gamma) / (more - o).
        step: Array = math.log(more) + np.log1p(-gamma) - np.log(more - drawn)
    log_ratio = step if own == more else -step
    if gamma == 1:
        log_ratio = np.full(own + 1, math.inf)
    likely = log_p > -math.inf
    log_p, log_ratio = log_p[likely], log_ratio[likely]
    slack = FLOOR + SLOPE * (np.abs(log_p) + finite_size(log_ratio))
    weight = gain_weight(log_ratio, what)
    return weighted_excess(log_p, log_ratio, epsilon, slack, weight).capped()
