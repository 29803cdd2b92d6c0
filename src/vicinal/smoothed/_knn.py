"""Our own k nearest neighbours vote with the noise off: exact votes of the k nearest sampled."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from vicinal import _checks
from vicinal.errors import InvalidInput
from vicinal.smoothed._intervals import ONE, Array, Log
from vicinal.smoothed._knn_law import compare_all, vote_states
from vicinal.smoothed._mechanism import Counts, Loss, Mechanism, whole_numbers
from vicinal.smoothed._samplers import boundary

_MOST_STATES = 20_000
_MOST_WORK = 10**11


@dataclass(frozen=True)
class KNNVotes(Mechanism):
    """Sample every record with probability `gamma`; publish the votes of the k nearest sampled.

    A database is the sequence of labels, nearest to the public query first: where a record stands
    matters, so this is no function of the histogram alone. A neighbour has one record anywhere
    replaced by one of any label at any distance.

    Parameters
    ----------
    k : int
        How many vote.
    gamma : float
        Sampling rate, in (0, 1].
    classes : int
        Number of labels.
    """

    k: int
    gamma: float
    classes: int = 2

    def __post_init__(self) -> None:
        _checks.integer("k", self.k, least=1)
        gamma = _checks.real("gamma", self.gamma, above=0, most=1)
        object.__setattr__(self, "gamma", gamma)
        _checks.integer("classes", self.classes, least=2)
        if math.comb(self.k + self.classes, self.k) > _MOST_STATES:
            raise InvalidInput(
                f"The 'k' parameter must allow at most {_MOST_STATES} different votes with "
                f"{self.classes} classes. Got {self.k}."
            )

    def check(self, database: npt.ArrayLike) -> Counts:
        """Return the labels, int64 (n,), nearest record first."""
        labels = whole_numbers("database", database)
        if labels.ndim != 1 or (labels >= self.classes).any():
            raise InvalidInput(
                "The 'database' parameter must be the labels, nearest first: integers (n,) below "
                f"{self.classes}. Got something else (values are not shown)."
            )
        return labels

    def records(self, database: Counts) -> int:
        """Return the number of labels."""
        return len(database)

    def touched(self, n: int) -> float:  # noqa: ARG002 - the same for every n
        """Return gamma."""
        return self.gamma

    @property
    def attains_touched(self) -> bool:
        """True: the nearest record shows whenever it is drawn if nobody else has its label."""
        return True

    def losses(self, database: Counts, epsilon: float) -> Iterator[Loss]:
        """Yield the largest losses for every removed record, over all records put in its place."""
        removed, found = self._compared(database, epsilon)
        for rank, row in zip(removed, found, strict=True):
            forward, backward = (_between(row[p], row[p + 3]) for p in (0, 1))
            yield Loss(f"rank {rank} -> the worst rank and label", forward, backward)

    def gains(self, database: Counts, epsilon: float) -> Iterator[Log]:
        """Yield the largest gain for every removed record."""
        for row in self._compared(database, epsilon)[1]:
            yield _between(row[2], row[5])

    def _compared(self, database: Counts, epsilon: float) -> tuple[Counts, Array]:
        """Return which ranks are removed and what comes of it: one for every run of equal labels.

        Whichever of a run is removed, the same others are left.
        """
        starts = np.flatnonzero(np.diff(database, prepend=-1))
        size, after = vote_states(self.k, self.classes)
        work = len(starts) * len(database) * self.classes * len(size)
        if work > _MOST_WORK:
            raise InvalidInput(
                "The 'database' parameter must be small enough for all neighbours to be compared "
                f"(runs x records x classes x votes at most {_MOST_WORK:g}). Got {work:g}."
            )
        e = boundary(epsilon)
        return starts, np.asarray(
            compare_all(database, starts, self.gamma, self.k, self.classes, e, size, after)
        )


def _between(low: float, high: float) -> Log:
    """Return the number that was computed as `low` and is at most `high`."""
    slack = max(2 * low - high, 0.0)
    low_end = math.log(slack) if slack > 0 else -math.inf
    return Log(low_end, math.log(high) if high > 0 else -math.inf).capped(ONE.high)
