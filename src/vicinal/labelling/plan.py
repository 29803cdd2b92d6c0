"""Plans of labelling runs: queries and budget share of each round, and the required noise.

The rounds are those of ZYCW20 (section 3, "iterative"), with one set of budgets for all rounds. A
plan is fixed before the first query.

With Private-kNN, every query costs each record the same, so the noise decides the cost of all
rounds together. The cost of a query with Gaussian noise falls with the square of the noise scale: a
round with share w of the budget for n queries therefore gets noise proportional to sqrt(n / w).
"""

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from scipy.optimize import brentq

from vicinal import checks
from vicinal.arrays import Floats, Ints
from vicinal.errors import InvalidInput, PrivacyRefused

SHUFFLED = "shuffled"
LEAST_CERTAIN = "unsure"
QUERY_SELECTIONS = (SHUFFLED, LEAST_CERTAIN)


@dataclass(frozen=True, slots=True)
class Round:
    """The public parameters of one round of queries.

    Attributes
    ----------
    queries : int
        Number of public examples that are queried.
    share : float
        Share of every subject's budget that the round is planned for, in (0, 1].
    keep : float
        Share of the answers that a student is trained on, in (0, 1]: those with the largest noisy
        margins, which are released and therefore not charged. If the labeller gives no margins,
        all answers are used.
    by_class : bool
        Whether `keep` applies to the answers of each class separately. Otherwise few answers of
        overlapping classes are selected, since their margins are small.
    components : int or None
        Number of principal components, computed from public features; None for no projection.
    choose : {"shuffled", "unsure"}
        Which examples are queried: the next ones of a public random order, or those where the
        previous round's student is least certain. Both depend on released values only.

    Examples
    --------
    >>> import numpy as np
    >>> from vicinal.labelling import Round
    >>> Round(queries=4, share=1.0, keep=0.5).select_answers(
    ...     np.array([9.0, 1.0, 7.0, 2.0]), labels=np.array([0, 0, 1, 1])
    ... )
    array([0, 2])
    """

    queries: int
    share: float
    keep: float = 0.75
    components: int | None = 100
    choose: str = SHUFFLED
    by_class: bool = False

    def __post_init__(self) -> None:
        """Raise InvalidInput for a parameter outside of its range."""
        checks.check_integer("queries", self.queries, minimum=1)
        checks.check_real("share", self.share, above=0, maximum=1)
        checks.check_real("keep", self.keep, above=0, maximum=1)
        checks.check_choice("choose", self.choose, QUERY_SELECTIONS)
        if self.components is not None:
            checks.check_integer("components", self.components, minimum=1)

    def select_answers(self, margins: Floats, labels: Ints) -> Ints:
        """Return the ascending indices, int64, of the share `keep` of answers with largest margins.

        The share is taken of each class separately if `by_class` is true. `margins`, float64 (a,):
        noisy leads of the best class over the second. `labels`, int64 (a,): class indices.
        """
        if not self.by_class:
            return np.sort(self._select_largest(np.arange(len(margins)), margins))
        indices_by_class = [np.flatnonzero(labels == label) for label in np.unique(labels)]
        selected = [self._select_largest(indices, margins) for indices in indices_by_class]
        return np.sort(np.concatenate([np.zeros(0, dtype=np.int64), *selected]))

    def _select_largest(self, indices: Ints, margins: Floats) -> Ints:
        """Return the share `keep` of `indices` whose margins are largest, at least one index.

        `indices`, int64 (k,): of answers. `margins`, float64 (a,): of all answers.
        """
        size = max(1, round(self.keep * len(indices)))
        return indices[np.argsort(-margins[indices], kind="stable")[:size]]


@dataclass(frozen=True, slots=True)
class LabellingPlan:
    """All rounds, fixed before the first query.

    Attributes
    ----------
    rounds : tuple of Round
        At least one round; the sum of their shares is at most 1.
    seed : int
        Seed of the public order of queries. Privacy does not depend on it.

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
        """Raise InvalidInput for shares above 1 in total, or a first round that needs a student."""
        checks.check_integer("seed", self.seed, minimum=0)
        total = math.fsum(planned.share for planned in self.rounds)
        if not self.rounds or total > 1 + 1e-9:  # allows for rounding of the shares
            raise InvalidInput(
                "The rounds must be at least one, and their shares of the budget must come to at "
                f"most 1. Got {len(self.rounds)} with {total:g}."
            )
        if self.rounds[0].choose == LEAST_CERTAIN:
            raise InvalidInput("The first round has no student before it that could be unsure.")

    @property
    def queries(self) -> int:
        """Number of queries of all rounds together."""
        return sum(planned.queries for planned in self.rounds)

    def shuffle_examples(self, n_examples: int) -> Ints:
        """Return the public order of queries: a seeded permutation of the examples' row indices.

        It is int64 (`n_examples`,). Raises InvalidInput if a round has more queries than that.
        """
        max_queries = max(planned.queries for planned in self.rounds)
        if max_queries > n_examples:
            raise InvalidInput(
                f"There must be at least {max_queries} public examples. Got {n_examples}."
            )
        generator = np.random.default_rng(self.seed)  # noqa: TID251 (a public order)
        return generator.permutation(n_examples).astype(np.int64)

    def to_dict(self) -> dict[str, Any]:
        """Return the plan as JSON values."""
        return asdict(self)


def default_plan(
    rounds: int, pool: int, *, seed: int = 0, overlapping: bool = False
) -> LabellingPlan:
    """Return the plan that gave the best students on MNIST at epsilon .47.

    Every round queries 30 % of the public examples. The first has 30 % of the budgets, and three
    quarters of its answers are used: its features are the weakest, and a first student needs few
    correct answers. Later rounds divide the other 70 % evenly, query the examples where the
    previous student is least certain, and use nine tenths of the answers. A single round has the
    whole budget and uses three quarters of its answers.

    Where classes overlap, the least certain examples have no clear label, and large margins select
    easy classes. Then every round queries in shuffled order and uses three quarters of the answers
    of each class; a single round queries 60 %. docs/decisions/0028-students.md has measurements.

    Parameters
    ----------
    rounds : int
        Number of rounds.
    pool : int
        Number of public examples.
    seed : int
        Seed of the public order of queries.
    overlapping : bool
        Whether classes are publicly known to overlap.

    Examples
    --------
    >>> from vicinal.labelling import default_plan
    >>> [(r.queries, r.share) for r in default_plan(rounds=2, pool=1000).rounds]
    [(300, 0.3), (300, 0.7)]
    """
    rounds = checks.check_integer("rounds", rounds, minimum=1)
    queried_share = 0.6 if overlapping and rounds == 1 else 0.3
    queries = max(1, round(queried_share * checks.check_integer("pool", pool, minimum=1)))
    if rounds == 1:
        return LabellingPlan((Round(queries, 1.0, by_class=overlapping),), seed)
    first = Round(queries, 0.3, by_class=overlapping)
    share = 0.7 / (rounds - 1)
    later_round = Round(queries, share, keep=0.9, choose=LEAST_CERTAIN)
    if overlapping:
        later_round = Round(queries, share, by_class=True)
    return LabellingPlan((first, *[later_round] * (rounds - 1)), seed)


_MIN_NOISE = 0.1
_MAX_NOISE = 1e7
"""Noise scales between which :func:`find_smallest_noise` searches, in votes."""

_INITIAL_NOISE = 25.0  # where the search starts, in votes
_BRACKET_FACTOR = 4.0  # ratio of successive noise scales until the result is bracketed
_PRECISION = 1e-5  # relative, of the noise scale


def compute_round_noise(planned_round: Round, plan: LabellingPlan, sigma: float) -> float:
    """Return the noise scale of `planned_round`, one round of `plan`, in votes.

    `sigma`: the noise scale, in votes, that a single round with all queries and the whole budget
    would have.
    """
    return sigma * math.sqrt(planned_round.queries / (planned_round.share * plan.queries))


def find_smallest_noise(compute_epsilon: Callable[[float], float], epsilon: float) -> float:
    """Return the smallest noise scale, in votes, at which a plan costs at most `epsilon`.

    The result may be too large by two parts in 100,000, and is never below 0.1.
    `compute_epsilon`: maps a noise scale in votes to the epsilon of the whole plan; it decreases.
    Raises PrivacyRefused if no noise on the votes suffices, because another release, such as that
    of the queries that pass a noisy screening, costs too much.
    """
    target = checks.check_real("epsilon", epsilon, above=0)

    def log_excess(log_noise: float) -> float:
        """Return log(epsilon / target), which is positive where the noise is too small."""
        # The floor avoids the logarithm of an epsilon of 0.
        return math.log(max(compute_epsilon(math.exp(log_noise)), 1e-6 * target) / target)

    low = high = _INITIAL_NOISE
    while log_excess(math.log(high)) > 0:
        low, high = high, high * _BRACKET_FACTOR
        if high > _MAX_NOISE:
            raise PrivacyRefused(
                "No noise on the votes can keep this epsilon, because the screening alone costs "
                "more. Take a larger epsilon, or more noise on the screening."
            )
    while log_excess(math.log(low)) <= 0:
        if low == _MIN_NOISE:
            return low
        low, high = max(low / _BRACKET_FACTOR, _MIN_NOISE), low
    noise = math.exp(brentq(log_excess, math.log(low), math.log(high), xtol=_PRECISION))
    while compute_epsilon(noise) > target:
        noise *= 1 + _PRECISION
    return noise
