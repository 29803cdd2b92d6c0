"""The sampling-histogram mechanism: the counts of a sample, published exactly."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from vicinal.errors import InvalidInput
from vicinal.smoothed._edges import LOSS, TRUE_OTHER, TRUE_X
from vicinal.smoothed._intervals import Log, total
from vicinal.smoothed._mechanism import CountMechanism, Counts, Law, Loss
from vicinal.smoothed._samplers import MOST_RECORDS, Sampler


def check_sampler(sampler: object) -> None:
    """Refuse anything that is not one of the samplers."""
    if not isinstance(sampler, Sampler):
        raise InvalidInput(
            "The 'sampler' parameter must be FixedSize(T), Poisson(gamma) or WithReplacement(T). "
            f"Got {sampler!r}."
        )


def check_records(n: int) -> None:
    """Refuse databases for which products of counts would leave 64 bits."""
    if n > MOST_RECORDS:
        raise InvalidInput(f"A database must have at most {MOST_RECORDS} records. Got more.")


@dataclass(frozen=True)
class Histogram(CountMechanism):
    """Draw a sample and publish how many records of each type are in it.

    With ``FixedSize(T)`` this is the paper's SHM. Exact by the pair decomposition, with any number
    of types: the cost does not depend on how many there are, only on how many different counts.
    """

    sampler: Sampler

    def __post_init__(self) -> None:
        check_sampler(self.sampler)

    def check_size(self, n: int) -> None:
        """Refuse databases smaller than the sample."""
        check_records(n)
        self.sampler.check(n)

    def touched(self, n: int) -> float:
        """Return T / n, gamma or 1 - (1 - 1/n)^T: attained where a type has one record."""
        return self.sampler.touched(n)

    @property
    def attains_touched(self) -> bool:
        """True: a record that is alone with its type shows whenever it is drawn."""
        return True

    def losses(self, database: Counts, epsilon: float) -> Iterator[Loss]:
        """Yield one loss for every pair of different counts (Definition 2)."""
        n = int(database.sum())
        for i, j, a, b in _pairs(database):
            yield Loss(
                f"type {i} -> type {j}",
                self.sampler.pair(a, b, n, epsilon, LOSS),
                self.sampler.pair(b, a, n, epsilon, LOSS),
            )

    def gains(self, database: Counts, epsilon: float) -> Iterator[Log]:
        """Yield one gain for every pair of different counts."""
        n = int(database.sum())
        for _, _, a, b in _pairs(database):
            forward = self.sampler.pair(a, b, n, epsilon, TRUE_X)
            yield total([forward, self.sampler.pair(b, a, n, epsilon, TRUE_OTHER)])

    def law(self, database: Counts) -> Law:
        """Return the log probability of every sampled histogram of a small database."""
        return dict(self.sampler.outcomes(database))


def _pairs(database: Counts) -> Iterator[tuple[int, int, int, int]]:
    """Yield (i, j, h_i - 1, h_j) once for every different pair of counts, h_i >= 1, i != j."""
    done: set[tuple[int, int]] = set()
    values, firsts, copies = np.unique(database, return_index=True, return_counts=True)
    for p, own in enumerate(values.tolist()):
        for q, other in enumerate(values.tolist()):
            if own and (own, other) not in done and (p != q or copies[p] > 1):
                done.add((own, other))
                i = int(firsts[p])
                j = int(firsts[q]) if p != q else int(np.flatnonzero(database == own)[1])
                yield i, j, own - 1, other
