"""Private-kNN's way of a query: sample, screen, sample again, vote. Source: ZYCW20, section 3.

Proof notes: sampling.md, screening.md, noisy_max.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from vicinal.mechanisms._noisy_max import NoisyMax
from vicinal.mechanisms._sampling import Bools, NearestOfSample
from vicinal.mechanisms._screening import NoisyThreshold
from vicinal.mechanisms._vote_encoding import VoteEncoding
from vicinal.neighbours._integer_features import IntegerMatrix
from vicinal.neighbours._poisson_knn import of_queries


@dataclass(frozen=True, slots=True)
class SampledVotes:
    """Everything that one classifier's answers are made of; nothing leaves it without noise.

    Attributes
    ----------
    nearest : NearestOfSample
        Who votes.
    encoding : VoteEncoding
        For what.
    screening : NoisyThreshold or None
        Which queries are answered; None for all.
    voting : NoisyMax
        What an answer is.
    """

    nearest: NearestOfSample
    encoding: VoteEncoding
    screening: NoisyThreshold | None
    voting: NoisyMax

    def answer(self, queries: IntegerMatrix) -> tuple[Bools, npt.NDArray[Any], list[int]]:
        """Return (who was answered, bool (q,), their answers, largest votes).

        All is public but the last: the largest vote count of every query that was screened, which
        is what a data-dependent cost is worked out from, for the curator alone. Once the planned
        answers are given no more queries are screened.
        """
        near = self.nearest.near(queries)
        largest: list[int] = []
        passed = np.full(len(queries), self.voting.quota.left > 0)
        if self.screening is not None and passed.any():
            counts = self.encoding.count(self.nearest.draw(queries, near), 1).max(axis=1)
            passed = self.screening.publish(counts)
            largest = counts.tolist()
        # Who passed is public, so this is, too: the first of them up to what was planned.
        passed &= np.cumsum(passed) <= self.voting.quota.left
        chosen = self.nearest.draw(queries[passed], of_queries(near, passed))
        answers = self.voting.publish(self.encoding.count(chosen, self.voting.steps))
        return passed, answers, largest
