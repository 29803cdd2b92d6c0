"""Keywords of private news: how many of the words without noise are found with it."""

from __future__ import annotations

import csv
import gzip
import statistics
import time
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import TfidfVectorizer

from vicinal import IndKNNKeywords
from vicinal.mechanisms import NoiseSource
from vicinal.predictors import public_vocabulary

Floats = npt.NDArray[np.float64]

DELTA = 1e-5
VOCABULARY = 20_000
FEATURES = 128
_ALONE = 50
"""Questions asked alone that are timed, after as many that are not."""


@dataclass(frozen=True, slots=True)
class Corpus:
    """Private texts, a public vocabulary with weights, and features of everything.

    Attributes
    ----------
    private : list of str
        The texts.
    vocabulary : dict of str to float
        Words with their inverse document frequencies in public texts.
    features, public, queries : float64 (n, d)
        Of private texts, public texts, and questions.
    """

    private: list[str]
    vocabulary: dict[str, float]
    features: Floats
    public: Floats
    queries: Floats

    @classmethod
    def load(cls, train: Path, test: Path) -> Corpus:
        """Return AG News; what is learnt is learnt on the first half of the test texts."""
        private, others = _texts(train), _texts(test)
        public, asked = others[::2], others[1::2]
        titles = [" ".join(text.split()[:12]) for text in asked]
        tfidf = TfidfVectorizer(sublinear_tf=True, min_df=2, stop_words="english")
        svd = TruncatedSVD(FEATURES, random_state=0)
        reduced = svd.fit_transform(tfidf.fit_transform(public))
        centre = reduced.mean(axis=0)
        return cls(
            private,
            public_vocabulary(public, VOCABULARY, most_common=0.05),
            svd.transform(tfidf.transform(private)) - centre,
            reduced - centre,
            svd.transform(tfidf.transform(titles)) - centre,
        )


def _texts(path: Path) -> list[str]:
    with gzip.open(path, "rt", encoding="utf-8", newline="") as file:
        return [row["text"] for row in csv.DictReader(file)]


@dataclass(frozen=True, slots=True)
class WordScore:
    """How well keywords are found.

    Attributes
    ----------
    precision, first : float
        Share of the keywords, and of the first three, that are among those without noise.
    pooled, pooled_first : float
        The same where answers to similar questions are added.
    milliseconds, alone : float
        Processor time of a question in a block, and of one that is asked alone.
    """

    epsilon: float
    n_queries: int
    n_neighbors: int
    precision: float
    first: float
    pooled: float
    pooled_first: float
    milliseconds: float
    alone: float

    def to_dict(self) -> dict[str, Any]:
        """Return the fields by name."""
        return {name: getattr(self, name) for name in self.__slots__}


class _NoNoise(NoiseSource):
    exact = False

    def discrete_gaussian(self, scale: int, size: int) -> npt.NDArray[np.int64]:  # noqa: ARG002
        return np.zeros(size, dtype=np.int64)


def score(corpus: Corpus, epsilon: float, n_queries: int) -> WordScore:
    """Return the score of one plan: the first `n_queries` questions."""
    queries = corpus.queries[:n_queries]
    model = _fitted(corpus, epsilon, n_queries)
    start = time.process_time()
    noisy = model.predict(queries)
    spent = (time.process_time() - start) * 1e3 / n_queries
    plain = _fitted(corpus, epsilon, n_queries)
    plain._engine.votes.noise = _NoNoise()
    plain._shard.ledger.remaining[:] = 1 << 62  # the words that all neighbours have together
    truth = plain.predict(queries)
    pooled = _fitted(corpus, epsilon, n_queries).predict(queries, pooled=True)
    alone = [_spent(model, each[None]) for each in queries[: 2 * _ALONE]]
    return WordScore(
        epsilon,
        n_queries,
        model.n_neighbors_ or 0,
        *_precisions(noisy, truth),
        *_precisions(pooled, truth),
        spent,
        statistics.median(alone[_ALONE:]),
    )


def _precisions(found: npt.NDArray[Any], truth: npt.NDArray[Any]) -> tuple[float, float]:
    """Return which share of words, and of the first three, is among those without noise."""
    right = [np.isin(row, true) for row, true in zip(found, truth, strict=True)]
    return float(np.mean(right)), float(np.mean([row[:3] for row in right]))


def _spent(model: IndKNNKeywords, queries: Floats) -> float:
    """Return the processor time of these queries, in milliseconds."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # these are beyond the plan
        start = time.process_time()
        model.predict(queries)
    return (time.process_time() - start) * 1e3


def _fitted(corpus: Corpus, epsilon: float, n_queries: int) -> IndKNNKeywords:
    model = IndKNNKeywords(
        corpus.vocabulary, epsilon, DELTA, n_queries, n_records=len(corpus.private),
        interactions="public",
    )  # fmt: skip
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return model.fit(corpus.features, corpus.private, public=corpus.public)
