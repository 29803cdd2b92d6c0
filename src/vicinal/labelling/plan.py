"""What is asked in which round, and which share of every budget it may cost: fixed beforehand.

Source: the rounds of ZYCW20 (section 3, "iterative"), with one set of budgets over all of them.

How much noise a plan of rounds needs, found before the first query.

Private-kNN charges nobody in particular: every query costs the same, and what all rounds
cost together is decided by their noise. A round that has a share w of the budget for n queries
gets noise in proportion to sqrt(n / w), for the cost of Gaussian noise falls with its square.
"""

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from scipy.optimize import brentq

from vicinal import checks
from vicinal.arrays import Floats, Places
from vicinal.errors import InvalidInput, PrivacyRefused

FIRST = "shuffled"
UNSURE = "unsure"
CHOICES = (FIRST, UNSURE)


@dataclass(frozen=True, slots=True)
class Round:
    """One round of queries, all of it public.

    Attributes
    ----------
    queries : int
        How many public examples are asked about.
    share : float
        Share of every subject's budget that the round is planned for.
    keep : float
        Share of the answers that a student learns from: those with the largest noisy margin, which
        costs nothing. All of them, where the labeller gives no margins.
    by_class : bool
        Whether that share is kept of each answer's class, so that classes that overlap, whose
        margins are small, are not left out.
    components : int or None
        Public principal components of the features; None for the features as they are.
    choose : {"shuffled", "unsure"}
        Which examples are asked about: the next of a public order, or those that the last round's
        student is least sure of. Both look at released things only.

    Examples
    --------
    >>> import numpy as np
    >>> from vicinal.labelling import Round
    >>> Round(queries=4, share=1.0, keep=0.5).selected(
    ...     np.array([9.0, 1.0, 7.0, 2.0]), labels=np.array([0, 0, 1, 1])
    ... )
    array([0, 2])
    """

    queries: int
    share: float
    keep: float = 0.75
    components: int | None = 100
    choose: str = FIRST
    by_class: bool = False

    def __post_init__(self) -> None:
        checks.check_integer("queries", self.queries, least=1)
        checks.check_real("share", self.share, above=0, most=1)
        checks.check_real("keep", self.keep, above=0, most=1)
        checks.check_choice("choose", self.choose, CHOICES)
        if self.components is not None:
            checks.check_integer("components", self.components, least=1)

    def selected(self, margins: Floats, labels: Places) -> Places:
        """Return which answers are kept, ascending: those with the largest margins.

        Parameters
        ----------
        margins : float64 (a,)
            Noisy leads of the answers.
        labels : int64 (a,)
            The answers.
        """
        if not self.by_class:
            return np.sort(self._surest(np.arange(len(margins)), margins))
        classes = [np.flatnonzero(labels == label) for label in np.unique(labels)]
        parts = [self._surest(places, margins) for places in classes]
        return np.sort(np.concatenate([np.zeros(0, dtype=np.int64), *parts]))

    def _surest(self, places: Places, margins: Floats) -> Places:
        size = max(1, round(self.keep * len(places)))
        return places[np.argsort(-margins[places], kind="stable")[:size]]


@dataclass(frozen=True, slots=True)
class LabellingPlan:
    """All rounds, fixed before the first query.

    Attributes
    ----------
    rounds : tuple of Round
        At least one; their shares come to at most 1.
    seed : int
        Of the public order in which examples are asked about. No privacy hangs on it.

    Examples
    --------
    >>> from vicinal.labelling import LabellingPlan, Round
    >>> plan = LabellingPlan((Round(queries=300, share=0.3), Round(queries=400, share=0.7)))
    >>> plan.queries
    700
    """

    rounds: tuple[Round, ...]
    seed: int = 0

    def __post_init__(self) -> None:
        checks.check_integer("seed", self.seed, least=0)
        total = math.fsum(part.share for part in self.rounds)
        if not self.rounds or total > 1 + 1e-9:
            raise InvalidInput(
                "The rounds must be at least one, and their shares of the budget must come to at "
                f"most 1. Got {len(self.rounds)} with {total:g}."
            )
        if self.rounds[0].choose == UNSURE:
            raise InvalidInput("The first round has no student before it that could be unsure.")

    @property
    def queries(self) -> int:
        """Questions of all rounds."""
        return sum(part.queries for part in self.rounds)

    def order(self, size: int) -> Places:
        """Return the public order (size,) in which examples are asked about.

        Raises
        ------
        InvalidInput
            If a round has more queries than there are examples.
        """
        most = max(part.queries for part in self.rounds)
        if most > size:
            raise InvalidInput(f"There must be at least {most} public examples. Got {size}.")
        generator = np.random.default_rng(self.seed)  # noqa: TID251 (a public order)
        return generator.permutation(size).astype(np.int64)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, for JSON."""
        return asdict(self)


def default_plan(
    rounds: int, pool: int, *, seed: int = 0, overlapping: bool = False
) -> LabellingPlan:
    """Return the plan that measured best on MNIST, for any number of rounds.

    The first round asks 30 % of the public examples, from 30 % of the budgets, and keeps three
    quarters of the answers: its features are the weakest, and a student needs few right answers to
    begin with. Later rounds share the rest evenly, ask where the student before is least sure, and
    keep nine tenths. One round alone asks as many from all.

    Where classes overlap, least sure means that nobody can tell, and large margins mean easy
    classes: then every round asks in shuffled order, and keeps three quarters of
    each class. One round alone asks 60 %.

    Parameters
    ----------
    rounds : int
        How many rounds.
    pool : int
        How many public examples there are.
    seed : int
        Of the order of queries.
    overlapping : bool
        Whether classes overlap, as far as is publicly known.

    Examples
    --------
    >>> from vicinal.labelling import default_plan
    >>> [(part.queries, part.share) for part in default_plan(rounds=2, pool=1000).rounds]
    [(300, 0.3), (300, 0.7)]
    """
    rounds = checks.check_integer("rounds", rounds, least=1)
    asked_share = 0.6 if overlapping and rounds == 1 else 0.3
    queries = max(1, round(asked_share * checks.check_integer("pool", pool, least=1)))
    if rounds == 1:
        return LabellingPlan((Round(queries, 1.0, by_class=overlapping),), seed)
    first = Round(queries, 0.3, by_class=overlapping)
    share = 0.7 / (rounds - 1)
    later = Round(queries, share, keep=0.9, choose=UNSURE)
    if overlapping:
        later = Round(queries, share, by_class=True)
    return LabellingPlan((first, *[later] * (rounds - 1)), seed)


_LEAST, _MOST = 0.1, 1e7
_START, _FACTOR = 25.0, 4.0
_PRECISION = 1e-5


def noise_of(part: Round, plan: LabellingPlan, sigma: float) -> float:
    """Return a round's noise where the whole plan's is `sigma`; a single round's is just that."""
    return sigma * math.sqrt(part.queries / (part.share * plan.queries))


def least_noise(cost: Callable[[float], float], epsilon: float) -> float:
    """Return the least noise with which a plan keeps a target, up to two parts in 100,000.

    `cost` maps noise to epsilon of the whole plan; it falls. Refuses a target that no noise keeps:
    something else of the plan, its screening say, is too dear.
    """
    target = checks.check_real("epsilon", epsilon, above=0)

    def gap(logarithm: float) -> float:
        # Costs that come to nothing have no logarithm.
        return math.log(max(cost(math.exp(logarithm)), 1e-6 * target) / target)

    low, high = _bracket(lambda sigma: gap(math.log(sigma)))
    if low == high:
        return low
    noise = math.exp(brentq(gap, math.log(low), math.log(high), xtol=_PRECISION))
    while cost(noise) > target:
        noise *= 1 + _PRECISION
    return noise


def _bracket(gap: Callable[[float], float]) -> tuple[float, float]:
    """Return noise that is too little and noise that is enough; the same twice at the least."""
    low = high = _START
    while gap(high) > 0:
        low, high = high, high * _FACTOR
        if high > _MOST:
            raise PrivacyRefused(
                "No noise on the votes can keep this epsilon, because the screening alone costs "
                "more. Take a larger epsilon, or more noise on the screening."
            )
    while gap(low) <= 0 and low > _LEAST:
        low, high = max(low / _FACTOR, _LEAST), low
    return (low, high) if gap(low) > 0 else (low, low)
