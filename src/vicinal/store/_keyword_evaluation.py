"""How good released keywords were, in noisy counts of people by how many their text has.

A person's text adds to one cell, as a class does; src/vicinal/mechanisms/tally.md has the proof.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from vicinal.predictors.ind_knn._vector_settings import KeywordSettings
from vicinal.store._noisy_figures import Floats, NoisyFigures

Places = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class KeywordEvaluation(NoisyFigures):
    """Noisy counts of people by how many of an answer's words their text has.

    Attributes
    ----------
    hits : float64 (m + 1,)
        People whose text has 0, 1, ..., m of the m words, with noise; may be below 0.
    others : float64 (m + 1,)
        The same with the words of the next query's answer: what is found by chance.

    Examples
    --------
    >>> import numpy as np
    >>> from vicinal.store import KeywordEvaluation
    >>> hits, others = np.array([[298.0, 402.0, 300.0], [902.0, 98.0, 0.0]])
    >>> result = KeywordEvaluation(hits, others, noise=4.0, share=0.1)
    >>> round(result.figures["precision"][0], 2)
    0.5
    """

    hits: Floats
    others: Floats
    noise: float
    share: float

    @property
    def counts(self) -> Sequence[Floats]:
        """Both tables."""
        return [self.hits, self.others]

    @property
    def people_and_error(self) -> tuple[float, float]:
        """The mean of the sums of both tables."""
        cells = len(self.hits)
        return float((self.hits + self.others).sum() / 2), self.noise * np.sqrt(cells / 2)

    def figures_of(self, counts: Sequence[Floats]) -> dict[str, float]:
        """Return shares: of words in a text, the same by chance, and of texts with any."""
        people = max(float(np.sum(counts)) / 2, 1e-9)
        share = np.arange(len(counts[0])) / (len(counts[0]) - 1)
        precision, chance = (float(np.clip(each @ share / people, 0, 1)) for each in counts)
        any_word = float(np.clip(counts[0][1:].sum() / people, 0, 1))
        return {"precision": precision, "precision_by_chance": chance, "found": any_word}


@dataclass(frozen=True, eq=False)
class ReleasedKeywords:
    """Places of words, int64 (a, m), that left; public."""

    settings: KeywordSettings
    answers: Places

    def checked(self, y: npt.ArrayLike | None, size: int) -> npt.NDArray[Any]:
        """Return the words of each text as a set of places, (size,). Private."""
        vectors = self.settings.targets(y, size)
        words = np.empty(size, dtype=object)
        for row, (first, last) in enumerate(zip(vectors.starts, vectors.starts[1:], strict=False)):
            words[row] = frozenset(vectors.coordinates[first:last].tolist())
        return words

    @property
    def sizes(self) -> tuple[int, ...]:
        """None to all of an answer's words, twice."""
        return (self.answers.shape[1] + 1,) * 2

    def cells(self, truth: npt.NDArray[Any], places: Places) -> Places:
        """Return how many words of their own and of the next answer texts (n,) have, (n, 2)."""
        following = (places + 1) % max(1, len(self.answers))
        hits = [
            [len(words.intersection(self.answers[place].tolist())) for place in pair]
            for words, *pair in zip(truth, places, following, strict=True)
        ]
        return np.array(hits, dtype=np.int64).reshape(-1, 2)

    def evaluation(self, tables: Sequence[Floats], noise: float, share: float) -> KeywordEvaluation:
        """Return noisy tables by what they count."""
        return KeywordEvaluation(tables[0], tables[1], noise, share)
