"""Private-kNN's way of a query: sample, screen, sample again, vote. Source: ZYCW20, section 3.

Proof notes: sampling.md, screening.md, noisy_max.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from vicinal._arrays import AnyArray, Bools, FloatMatrix, Ints32
from vicinal.mechanisms._noisy_max import NoisyMax
from vicinal.mechanisms._release_counter import ReleaseCounter
from vicinal.mechanisms._sampling import BernoulliSource, NearestOfSample
from vicinal.mechanisms._screening import NoisyThreshold
from vicinal.mechanisms._vote_encoding import VoteEncoding
from vicinal.neighbours import FLOAT32, RBF, IntegerMatrix, PoissonKNN, candidates_of

_MOST_HITS = 1 << 22  # candidates of a block of queries that are held at a time, or so
BLOCK = 256  # queries whose progress is told together: public, whatever the number of records

# From public rows (m, d), and how far beyond them the bound lies, to the kernel.
Grid = Callable[[FloatMatrix, float], RBF]


class PrivateKNNRelease:
    """Private records that answer as planned; encoded once the grid of features is known.

    Nothing leaves :meth:`answer` without noise, and without being counted first. Used by one
    thread at a time.

    - `features`, float (n, d): features of the private records; a copy is kept until the grid is
      known.
    - `slots`, `n_subjects`, int32 (n,), int: the subject of every record, and their number.
    - `encoding`: what records vote for.
    - `k`, `gamma`: how many vote, and the probability with which each subject takes part.
    - `grid`: what chooses the grid of the features, see :data:`Grid`.
    - `screening`: which queries are answered; None for all.
    - `voting`: what an answer is.
    - `coins`: who takes part.
    - `planned`: how many queries were planned.

    `largest`: the largest vote of every screened query so far, which a data-dependent cost is
    worked out from, for the curator alone. Private.
    """

    def __init__(
        self,
        features: FloatMatrix,
        slots: Ints32,
        n_subjects: int,
        encoding: VoteEncoding,
        *,
        k: int,
        gamma: float,
        grid: Grid,
        screening: NoisyThreshold | None,
        voting: NoisyMax,
        coins: BernoulliSource,
        planned: ReleaseCounter,
    ) -> None:
        FLOAT32.scale(features.shape[1])  # refuses too many features
        self._features: FloatMatrix | None = features.copy()
        self._slots, self._n_subjects = slots, n_subjects
        self._encoding, self._k, self._gamma, self._grid = encoding, k, gamma, grid
        self._screening, self._voting, self._coins = screening, voting, coins
        self._planned = planned
        self.largest: list[int] = []

    def encode_by(self, public: FloatMatrix, margin: float) -> None:
        """Fix the grid by public rows (m, d), unless it is fixed; drop the features themselves."""
        if self._features is None:
            return
        self.kernel = self._grid(public, margin)
        integers = self.kernel.encode(self._features)
        knn = PoissonKNN(self.kernel, integers, self._slots, self._n_subjects, self._k, self._gamma)
        self.nearest = NearestOfSample(knn, self._gamma, self._coins)
        self._features = None

    def check(self, size: int) -> None:
        """Raise PrivacyRefused if `size` more queries were not planned."""
        self._planned.check(size)

    def blocks(self, queries: FloatMatrix) -> Iterator[FloatMatrix]:
        """Yield consecutive queries, always as many at a time.

        They fix the grid, if nothing has fixed it: with room for queries somewhat longer.
        """
        self.encode_by(queries, margin=1.25)
        for start in range(0, len(queries), BLOCK):
            yield queries[start : start + BLOCK]

    def answer(self, queries: FloatMatrix) -> tuple[Bools, AnyArray]:
        """Take from the quotas; return who is answered, bool (q,), and their answers.

        As many queries at a time as memory allows. That follows from the number of records, so
        nothing outside may see it. Once the planned answers are given no more are screened.
        """
        self._planned.note_releases(len(queries))
        integers = self.kernel.encode(queries)
        size = max(1, _MOST_HITS // (int(self.nearest.knn.n_expected) + self._k + 1))
        starts = range(0, len(integers), size)
        parts = [self._answered(integers[start : start + size]) for start in starts]
        return np.concatenate([p for p, _ in parts]), np.concatenate([a for _, a in parts])

    def _answered(self, queries: IntegerMatrix) -> tuple[Bools, AnyArray]:
        """Sample and screen; sample again and vote."""
        candidates = self.nearest.candidates(queries)
        passed = np.full(len(queries), self._voting.quota.remaining > 0)
        if self._screening is not None and passed.any():
            counts = self._encoding.count(self.nearest.draw(queries, candidates), 1).max(axis=1)
            passed = self._screening.publish(counts)
            self.largest += counts.tolist()
        # Who passed is public, so this is, too: the first of them up to what was planned.
        passed &= np.cumsum(passed) <= self._voting.quota.remaining
        if candidates is not None:
            candidates = candidates_of(candidates, passed)
        chosen = self.nearest.draw(queries[passed], candidates)
        return passed, self._voting.publish(self._encoding.count(chosen, self._voting.steps))
