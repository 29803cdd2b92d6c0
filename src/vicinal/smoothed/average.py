"""The rounded mean of a sample of quantised numbers: a step of SGD with 8-bit gradients."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.stats import laplace, norm

from vicinal import checks
from vicinal.arrays import Counts, Floats, Ints
from vicinal.compiled import compiled
from vicinal.errors import InvalidInput
from vicinal.smoothed.intervals import MACHINE_EPSILON, LogInterval, enclose_value
from vicinal.smoothed.mechanism import CountMechanism, FixedSize, exp_epsilon

ROUNDINGS = ("half away", "none")

_MOST_CELLS = 2 * 10**7


@dataclass(frozen=True)
class Average(CountMechanism):
    """Draw `size` records without replacement and publish their rounded mean.

    Parameters
    ----------
    levels : sequence of int
        The numbers that a record can be, in whole units, increasing; a database is a histogram
        over them.
    size : int
        T, at least 1.
    rounding : {"half away", "none"}
        The mean is rounded to a whole unit, halves away from zero; or the exact sum is published.

    Examples
    --------
    >>> from vicinal.smoothed import Average, database_delta
    >>> mean = Average(levels=[0, 1, 2], size=5)
    >>> database_delta(mean, [4, 3, 3], epsilon=1.0).log_upper < 0
    True
    """

    levels: Sequence[int]
    size: int
    rounding: str = "half away"

    def __post_init__(self) -> None:
        levels: Floats = np.asarray(self.levels, dtype=np.float64)
        well_formed = levels.ndim == 1 and len(levels) > 1 and np.isfinite(levels).all()
        if not well_formed or (levels != np.floor(levels)).any() or (np.diff(levels) <= 0).any():
            raise InvalidInput(
                "The 'levels' parameter must be at least two increasing whole numbers. Got others."
            )
        object.__setattr__(self, "levels", tuple(int(v) for v in levels))
        object.__setattr__(self, "types", len(levels))
        checks.check_integer("size", self.size, least=1)
        checks.check_choice("rounding", self.rounding, ROUNDINGS)
        if (self.size + 1) * self._sums > _MOST_CELLS:
            raise InvalidInput(
                "The 'levels' and 'size' parameters must give at most "
                f"{_MOST_CELLS} sums and sizes. Got {(self.size + 1) * self._sums}."
            )

    @property
    def _sums(self) -> int:
        return self.size * (self.levels[-1] - self.levels[0]) + 1

    def check_size(self, n: int) -> None:
        FixedSize(self.size).check(n)

    def touched(self, n: int) -> float:
        return self.size / n

    def losses(self, database: Counts, epsilon: float) -> Iterator[LogInterval]:
        e, n = exp_epsilon(epsilon), int(database.sum())
        for value, laws in self._laws(database):
            own, slack = laws[value], 8 * (n + len(laws[0])) * MACHINE_EPSILON
            for sums in (_excess(own, laws, e, slack), _excess(laws, own, e, slack)):
                yield from (_log(sums, level) for level in range(len(laws)) if level != value)

    def gains(self, database: Counts, epsilon: float) -> Iterator[LogInterval]:
        e, n = exp_epsilon(epsilon), int(database.sum())
        for value, laws in self._laws(database):
            own, slack = laws[value], 16 * (n + len(laws[0])) * MACHINE_EPSILON
            share = own / np.maximum(own + laws, np.finfo(np.float64).tiny)
            sums = _excess(own, laws, e, slack, share) + _excess(laws, own, e, slack, share)
            yield from (_log(sums, level) for level in range(len(laws)) if level != value)

    def _laws(self, database: Counts) -> Iterator[tuple[int, Floats]]:
        """Yield every level that may be replaced, with the laws (levels, outcomes) of replacements.

        Row v is the law when that record is at level v, so the row of its own level is the
        database's.
        """
        share = self.size / int(database.sum())
        outcome = self._outcomes()
        offsets = np.array(self.levels) - self.levels[0]
        for value, table in self._left_out(database):
            with_it = grouped(table[-2], outcome, offsets)
            without = grouped(table[-1], outcome, offsets[:1])
            yield value, (1 - share) * without + share * with_it

    def _outcomes(self) -> Ints:
        """Return which outcome every sum of a sample has, counted from 0."""
        sums = np.arange(self._sums) + self.size * self.levels[0]
        if self.rounding == "none":
            return np.arange(self._sums)
        rounded = np.sign(sums) * ((2 * np.abs(sums) + self.size) // (2 * self.size))
        return np.asarray(rounded - rounded[0])

    def _left_out(self, database: Counts) -> Iterator[tuple[int, Floats]]:
        """Yield for every value that occurs the laws of sums over subsets of the other records."""
        values = np.repeat(np.arange(len(database)), database)
        start = np.zeros((self.size + 1, self._sums))
        start[0, 0] = 1.0
        yield from self._split(start, 0, values)

    def _split(self, table: Floats, n_values: int, values: Ints) -> Iterator[tuple[int, Floats]]:
        """Leave out every different one of the sorted `values`, half by half."""
        if len(values) == 1:
            yield int(values[0]), table
            return
        left, right = np.array_split(values, 2)
        yield from self._split(self._grown(table, n_values, right), n_values + len(right), left)
        again = right == left[-1]
        fresh, added = right[~again], np.concatenate([left, right[again]])
        if len(fresh):
            yield from self._split(
                self._grown(table, n_values, added), n_values + len(added), fresh
            )

    def _grown(self, table: Floats, n_values: int, values: Ints) -> Floats:
        """Return the laws of sums of t-subsets after more records have come in.

        A uniform t-subset of k + 1 records holds the last one with probability t / (k + 1). All
        terms are positive, so relative precision is kept.
        """
        sizes = np.arange(self.size + 1)[:, None]
        for count, value in enumerate(values, start=n_values + 1):
            offset = self.levels[value] - self.levels[0]
            grown = np.maximum(count - sizes, 0) / count * table
            grown[1:, offset:] += (sizes[1:] / count) * table[:-1, : self._sums - offset]
            table = grown
        return table


@compiled
def grouped(masses: Floats, outcome: Ints, offsets: Ints) -> Floats:
    """Return the mass of every outcome when each sum is raised by an offset: (offsets, outcomes).

    What would be raised beyond the last sum has no mass.
    """
    laws = np.zeros((len(offsets), outcome[-1] + 1))
    for row in range(len(offsets)):
        for place in range(len(masses) - offsets[row]):
            laws[row, outcome[place + offsets[row]]] += masses[place]
    return laws


def _excess(p: Floats, q: Floats, e: float, slack: float, share: Floats | None = None) -> Floats:
    """Return sums of (P - E P')+ along outcomes, computed (row 0) and with errors (row 1)."""
    exact = np.maximum(p - e * q, 0.0)
    raised = np.maximum(p - e * q + slack * (p + e * q), 0.0)
    weight = 1.0 if share is None else share
    return np.stack([(weight * exact).sum(-1), (weight * raised).sum(-1) * (1 + slack)])


def _log(sums: Floats, place: int) -> LogInterval:
    value, raised = sums[:, place]
    return enclose_value(float(value), float(raised - value)).cap_log()


LEVELS = range(-127, 129)
"""The levels i; a gradient in ((i - 1) / 256, i / 256] is written as i."""

_LAWS = {"gaussian": norm, "laplace": laplace}


def gradient_law(kind: str, mean: float = 0.0, scale: float = 0.12) -> Floats:
    """Return the probabilities of the 256 levels, float64 (256,).

    p(i) is the mass of ((i - 1) / 256, i / 256] over that of (-1/2, 1/2]: gradients outside are
    drawn again.

    Parameters
    ----------
    kind : {"gaussian", "laplace"}
        Family of the gradients before they are rounded.
    mean : float
        Their centre.
    scale : float
        Standard deviation of the Gaussian, or scale of the Laplace distribution, > 0.

    Examples
    --------
    >>> from vicinal.smoothed import gradient_law
    >>> law = gradient_law("gaussian")
    >>> law.shape, round(float(law.sum()), 6)
    ((256,), 1.0)
    """
    family = _LAWS[checks.check_choice("kind", kind, tuple(_LAWS))]
    centre = checks.check_real("mean", mean, least=-1, most=1)
    width = checks.check_real("scale", scale, above=0)
    edges = np.arange(LEVELS.start - 1, LEVELS.stop) / 256
    law = np.diff(family.cdf(edges, loc=centre, scale=width))
    return np.asarray(law / law.sum())
