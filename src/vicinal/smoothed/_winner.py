"""The winner of an election of which only a sample of the ballots is counted."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from vicinal import _checks
from vicinal._arrays import Bools, Counts, Floats, Ints
from vicinal.errors import InvalidInput
from vicinal.smoothed._intervals import log_sum
from vicinal.smoothed._mechanism import Law, LawMechanism, check_sampler
from vicinal.smoothed._samplers import Sampler

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
        """Refuse databases that cannot be sampled."""
        self.sampler.check(n)

    def touched(self, n: int) -> float:
        """Return the chance that a ballot is counted: a bound, as many ballots change nothing."""
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
    """Return the place of every candidate in every ranking, int64 (m, candidates)."""
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
