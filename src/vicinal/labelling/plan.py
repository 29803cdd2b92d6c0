"""What is asked in which round, and which share of every budget it may cost: fixed beforehand.

Source: the rounds of ZYCW20 (section 3, "iterative"), with one set of budgets over all of them.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from vicinal import checks
from vicinal.errors import InvalidInput

Places = npt.NDArray[np.int64]

FIRST = "shuffled"
UNSURE = "unsure"
CHOICES = (FIRST, UNSURE)


@dataclass(frozen=True, slots=True)
class Round:
    """One round of questions, all of it public.

    Attributes
    ----------
    questions : int
        How many public examples are asked about.
    share : float
        Share of every subject's budget that the round is planned for.
    keep : float
        Share of the answers that a student learns from: those with the largest noisy margin, which
        costs nothing. All of them, where the labeller gives no margins.
    components : int or None
        Public principal components of the features; None for the features as they are.
    choose : {"shuffled", "unsure"}
        Which examples are asked about: the next of a public order, or those that the last round's
        student is least sure of. Both look at released things only.
    """

    questions: int
    share: float
    keep: float = 0.75
    components: int | None = 100
    choose: str = FIRST

    def __post_init__(self) -> None:
        checks.integer("questions", self.questions, least=1)
        checks.real("share", self.share, above=0, most=1)
        checks.real("keep", self.keep, above=0, most=1)
        checks.choice("choose", self.choose, CHOICES)
        if self.components is not None:
            checks.integer("components", self.components, least=1)

    def kept(self, margins: npt.NDArray[np.float64]) -> Places:
        """Return which answers are kept, ascending: those with the largest margins."""
        size = max(1, round(self.keep * len(margins)))
        return np.sort(np.argsort(-margins, kind="stable")[:size])


@dataclass(frozen=True, slots=True)
class Plan:
    """All rounds, fixed before the first question.

    Attributes
    ----------
    rounds : tuple of Round
        At least one; their shares come to at most 1.
    seed : int
        Of the public order in which examples are asked about. No privacy hangs on it.
    """

    rounds: tuple[Round, ...]
    seed: int = 0

    def __post_init__(self) -> None:
        checks.integer("seed", self.seed, least=0)
        total = math.fsum(part.share for part in self.rounds)
        if not self.rounds or total > 1 + 1e-9:
            raise InvalidInput(
                "The rounds must be at least one, and their shares of the budget must come to at "
                f"most 1. Got {len(self.rounds)} with {total:g}."
            )
        if self.rounds[0].choose == UNSURE:
            raise InvalidInput("The first round has no student before it that could be unsure.")

    @property
    def questions(self) -> int:
        """Questions of all rounds."""
        return sum(part.questions for part in self.rounds)

    def order(self, size: int) -> Places:
        """Return the public order (size,) in which examples are asked about.

        Raises
        ------
        InvalidInput
            If a round has more questions than there are examples.
        """
        most = max(part.questions for part in self.rounds)
        if most > size:
            raise InvalidInput(f"The public examples must be at least {most}. Got {size}.")
        generator = np.random.default_rng(self.seed)  # noqa: TID251 (a public order)
        return generator.permutation(size).astype(np.int64)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, for JSON."""
        return asdict(self)


def planned(rounds: int, pool: int, *, seed: int = 0) -> Plan:
    """Return the plan that decision 29 settled on, for any number of rounds.

    The first round asks 30 % of the public examples, from 30 % of the budgets, and keeps three
    quarters of the answers: its features are the weakest, and a student needs few right answers to
    begin with. Later rounds share the rest evenly, ask where the student before is least sure, and
    keep nine tenths. One round alone asks as many from all.

    Parameters
    ----------
    rounds : int
        How many rounds.
    pool : int
        How many public examples there are.
    seed : int
        Of the order of questions.
    """
    rounds = checks.integer("rounds", rounds, least=1)
    questions = max(1, round(0.3 * checks.integer("pool", pool, least=1)))
    if rounds == 1:
        return Plan((Round(questions, 1.0),), seed)
    later = Round(questions, 0.7 / (rounds - 1), keep=0.9, choose=UNSURE)
    return Plan((Round(questions, 0.3), *[later] * (rounds - 1)), seed)
