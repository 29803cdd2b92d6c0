"""The winner of an election of which only a sample of the ballots is counted."""

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from scipy.stats import laplace, norm

from vicinal import _checks
from vicinal._arrays import Bools, Counts, Floats, Ints
from vicinal._compiled import compiled
from vicinal.errors import InvalidInput
from vicinal.smoothed._intervals import UNIT, LogInterval, from_sum, log_sum
from vicinal.smoothed._mechanism import (
    CountMechanism,
    FixedSize,
    Law,
    LawMechanism,
    Loss,
    Sampler,
    boundary,
    check_sampler,
)

# ------------ the rounded mean of a sample of quantised numbers: a step of SGD with 8-bit gradients

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
        _checks.integer("size", self.size, least=1)
        _checks.choice("rounding", self.rounding, ROUNDINGS)
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

    def losses(self, database: Counts, epsilon: float) -> Iterator[Loss]:
        e, n = boundary(epsilon), int(database.sum())
        for value, laws in self._laws(database):
            own, slack = laws[value], 8 * (n + len(laws[0])) * UNIT
            forward = _excess(own, laws, e, slack)
            backward = _excess(laws, own, e, slack)
            for level in range(len(laws)):
                if level != value:
                    change = f"{self.levels[value]} -> {self.levels[level]}"
                    yield Loss(change, _log(forward, level), _log(backward, level))

    def gains(self, database: Counts, epsilon: float) -> Iterator[LogInterval]:
        e, n = boundary(epsilon), int(database.sum())
        for value, laws in self._laws(database):
            own, slack = laws[value], 16 * (n + len(laws[0])) * UNIT
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
    return from_sum(float(value), float(raised - value)).capped()


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
    family = _LAWS[_checks.choice("kind", kind, tuple(_LAWS))]
    centre = _checks.real("mean", mean, least=-1, most=1)
    width = _checks.real("scale", scale, above=0)
    edges = np.arange(LEVELS.start - 1, LEVELS.stop) / 256
    law = np.diff(family.cdf(edges, loc=centre, scale=width))
    return np.asarray(law / law.sum())


Ranking = tuple[int, ...]

RULES = ("plurality", "majority", "borda", "copeland")
_MOST_OUTCOMES = 2_000_000


def rankings(candidates: int) -> tuple[Ranking, ...]:
    """Return all rankings of candidates 0, 1, ..., best first, in lexicographic order.

    Examples
    --------
    >>> from vicinal.smoothed import rankings
    >>> rankings(3)[:2]
    ((0, 1, 2), (0, 2, 1))
    """
    return tuple(itertools.permutations(range(candidates)))


@dataclass(frozen=True)
class Winner(LawMechanism):
    """Draw a sample of ballots and publish who wins.

    Parameters
    ----------
    rule : {"plurality", "majority", "borda", "copeland"}
        Plurality: most votes. Majority: more than half of the sample, or nobody. Borda: c - 1
        points for a first place down to 0. Copeland: a point for every pairwise victory, half a
        point for a tie.
    sampler : Sampler
        Which ballots are counted.
    profile : sequence of rankings, optional
        What the types are: ranking t, best candidate first, is what a record of type t says.
        Without it a plurality or majority record of type t is a vote for candidate t. Borda and
        Copeland need it; :func:`rankings` lists all rankings.
    ties : {"random", "first", "all"}
        Of several winners a random one is published, or the first by number, or all of them.

    Raises
    ------
    InvalidInput
        If the rule is unknown, or needs rankings and has none.

    Examples
    --------
    >>> from vicinal.smoothed import FixedSize, Winner, database_delta
    >>> plurality = Winner("plurality", FixedSize(9))
    >>> database_delta(plurality, [9, 3], epsilon=1.0).log_upper < 0
    True
    """

    rule: str
    sampler: Sampler
    profile: Sequence[Ranking] | None = None
    ties: str = "random"
    _points: Callable[[Ints], Ints] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        _checks.choice("rule", self.rule, RULES)
        _checks.choice("ties", self.ties, ("random", "first", "all"))
        check_sampler(self.sampler)
        if self.profile is not None:
            object.__setattr__(self, "profile", _checked_profile(self.profile))
            object.__setattr__(self, "types", len(self.profile))
        elif self.rule in ("borda", "copeland"):
            raise InvalidInput(
                f"The 'profile' parameter must list the rankings that {self.rule} reads. Got None."
            )
        object.__setattr__(self, "_points", _scoring(self.rule, self.profile))

    def check_size(self, n: int) -> None:
        self.sampler.check(n)

    def touched(self, n: int) -> float:
        return self.sampler.touched(n)

    def law(self, database: Counts) -> Law:
        """Return the log probability of every outcome, a tuple of winners.

        Raises
        ------
        InvalidInput
            If the sampled histograms are too many to be listed (2,000,000).
        """
        if math.prod((database + 1).tolist()) // max(int(database.max()), 1) > _MOST_OUTCOMES:
            raise InvalidInput(
                "The 'database' parameter must have few enough records that all samples can be "
                f"listed ({_MOST_OUTCOMES}); audit Histogram, whose delta bounds this one's."
            )
        sampled = self.sampler.outcomes(database)
        drawn = np.array([counts for counts, _ in sampled], dtype=np.int64)
        log_p = np.array([log_p for _, log_p in sampled])
        points = self._points(drawn)
        best = points == points.max(axis=1, keepdims=True)
        return self._named(best, log_p)

    def _named(self, best: Bools, log_p: Floats) -> Law:
        """Return the law of what is published, from who has the best score in which sample."""
        if self.ties == "first":
            best = best & (np.cumsum(best, axis=1) == 1)
        if self.ties == "random":
            shares = log_p - np.log(best.sum(axis=1))
            chances = [log_sum(shares[best[:, c]]) for c in range(best.shape[1])]
            return {(c,): chance for c, chance in enumerate(chances)}
        names, which = np.unique(best, axis=0, return_inverse=True)
        return {
            tuple(np.flatnonzero(name).tolist()): log_sum(log_p[which.ravel() == place])
            for place, name in enumerate(names)
        }


def _checked_profile(profile: Sequence[Ranking]) -> tuple[Ranking, ...]:
    types = tuple(tuple(int(c) for c in ranking) for ranking in profile)
    candidates = len(types[0]) if types else 0
    same = all(sorted(ranking) == list(range(candidates)) for ranking in types)
    if len(types) < 2 or candidates < 2 or not same or len(set(types)) < len(types):
        raise InvalidInput(
            "The 'profile' parameter must be at least two different rankings, each of the same "
            f"candidates 0, 1, ... Got {len(types)} that are not."
        )
    return types


def _scoring(rule: str, profile: Sequence[Ranking] | None) -> Callable[[Ints], Ints]:
    """Return what turns sampled counts (r, m) into points (r, candidates)."""
    if rule == "copeland":
        return _copeland(_places(profile or ()))
    votes = _votes(rule, profile)
    if rule == "majority":
        return lambda drawn: _majority(drawn if votes is None else drawn @ votes)
    return lambda drawn: drawn if votes is None else drawn @ votes


def _places(profile: Sequence[Ranking]) -> Ints:
    return np.argsort(np.array(profile, dtype=np.int64), axis=1)


def _votes(rule: str, profile: Sequence[Ranking] | None) -> Ints | None:
    """Return the points that a ballot of each type gives, int64 (m, candidates)."""
    if profile is None:
        return None
    places = _places(profile)
    points = places.shape[1] - 1 - places if rule == "borda" else places == 0
    return np.asarray(points, dtype=np.int64)


def _majority(votes: Ints) -> Ints:
    """Return 1 for who has more than half; a further column stands for nobody."""
    has = (2 * votes > votes.sum(axis=1, keepdims=True)).astype(np.int64)
    return np.column_stack([has, 1 - has.max(axis=1)])


def _copeland(places: Ints) -> Callable[[Ints], Ints]:
    """Return twice the Copeland points: 2 for a pairwise victory, 1 for a tie."""
    c = places.shape[1]
    prefers = (places[:, :, None] < places[:, None, :]).astype(np.int64).reshape(len(places), -1)

    def points(drawn: Ints) -> Ints:
        wins = (drawn @ prefers).reshape(-1, c, c)
        duel = np.sign(wins - wins.transpose(0, 2, 1)) + 1
        return np.asarray(duel.sum(axis=2) - 1)

    return points
