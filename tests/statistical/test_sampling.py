"""Who is in a sample: marginal and pairwise, no one twice, fresh for every query and step.

Every check is also run on a sampler that is wrong on purpose, and must notice.
"""

from functools import cache
from itertools import product

import numpy as np
import pytest
from scipy.stats import binomtest, chisquare

from statistical.laws import two_sided
from statistical.power import P_VALUE
from vicinal.mechanisms.noise_sources import BernoulliSource, SystemBernoulli
from vicinal.mechanisms.private_knn import SampledNeighbourSearch
from vicinal.neighbours import RBF
from vicinal.neighbours.poisson_knn import NO_RECORD, PoissonKNN

pytestmark = pytest.mark.statistical

PEOPLE, DRAWS, GAMMA = 40, 20_000, 0.15


class Faulty(BernoulliSource):
    """A sampler whose samples are drawn by another function of probability and size."""

    exact = False

    def __init__(self, draw):
        self._draw = draw

    def bernoulli(self, probability, size):
        return self._draw(probability, size)


def draw_fixed_size(probability, size):
    """Return samples of fixed size, as in the published code."""
    ranks = np.random.default_rng(0).random((size // PEOPLE, PEOPLE)).argsort(axis=1)
    return (ranks < round(probability * PEOPLE)).ravel()


def draw_shared(probability, size):
    """Return one sample for all queries of a batch."""
    return np.tile(SystemBernoulli().bernoulli(probability, PEOPLE), size // PEOPLE)


def draw_too_often(probability, size):
    """Return samples whose probability is off by a twentieth."""
    return SystemBernoulli().bernoulli(1.05 * probability, size)


def who(coins, subjects_of=None, draws=2, first=None):
    """Return who is in the samples of many equal queries, bool (draws, DRAWS, PEOPLE).

    k is so large that everybody whose coin comes up is chosen.
    """
    slots = np.arange(PEOPLE) if subjects_of is None else subjects_of
    integers = np.arange(len(slots), dtype=np.float32)[:, None]
    knn = PoissonKNN(RBF(1.0, 1.0), integers, slots.astype(np.int32), PEOPLE, PEOPLE, GAMMA)
    knn.sample_first = knn.sample_first if first is None else first
    sample = SampledNeighbourSearch(knn, GAMMA, coins)
    queries = np.zeros((DRAWS, 1), np.float32)
    candidates = sample.find_candidates(queries)
    inside = np.zeros((draws, DRAWS, PEOPLE), dtype=bool)
    for draw in range(draws):
        chosen = sample.draw_nearest(queries, candidates)
        query, place = np.nonzero(chosen != NO_RECORD)
        subjects = slots[chosen[query, place]]
        assert len(np.unique(query * PEOPLE + subjects)) == len(query), "somebody is there twice"
        inside[draw, query, subjects] = True
    return inside


def marginal_p(inside):
    """Return the smallest p-value of anybody's share, and of everybody's together."""
    counts = inside[0].sum(axis=0)
    alone = PEOPLE * min(binomtest(int(n), DRAWS, GAMMA).pvalue for n in counts)
    return min(alone, binomtest(int(counts.sum()), DRAWS * PEOPLE, GAMMA).pvalue)


def pairs_p(inside):
    """Return the smallest p-value of any correlation between two people of one sample."""
    scaled = (inside[0] - GAMMA) / np.sqrt(GAMMA * (1 - GAMMA))
    products = np.triu(scaled.T @ scaled, 1) / np.sqrt(DRAWS)
    worst = np.abs(products).max()
    spread = (np.square(scaled.sum(axis=1)).mean() / PEOPLE - 1) * np.sqrt(DRAWS / 2)
    return min(PEOPLE**2 / 2 * two_sided(worst), two_sided(spread))


def freshness_p(inside):
    """Return the smallest p-value of a correlation between queries, or between steps."""
    scaled = (inside - GAMMA) / np.sqrt(GAMMA * (1 - GAMMA))
    steps = (scaled[0] * scaled[1]).sum() / np.sqrt(DRAWS * PEOPLE)
    queries = (scaled[0][:-1] * scaled[0][1:]).sum() / np.sqrt((DRAWS - 1) * PEOPLE)
    return min(two_sided(steps), two_sided(queries))


CHECKS = {"marginal": marginal_p, "pairs": pairs_p, "freshness": freshness_p}
BROKEN = [
    ("marginal", draw_too_often),
    ("pairs", draw_fixed_size),
    ("freshness", cache(SystemBernoulli().bernoulli)),  # the same sample for both steps
    ("freshness", draw_shared),
]


@pytest.fixture(scope="module", params=["everybody", "candidates", "several records"])
def samples(request):
    """Samples of everybody, of those inside a radius, of people with one, two or three records."""
    if request.param == "several records":
        more = [np.arange(PEOPLE), np.arange(0, PEOPLE, 2), np.arange(0, PEOPLE, 4)]
        return who(SystemBernoulli(), np.random.default_rng(0).permutation(np.concatenate(more)))
    return who(SystemBernoulli(), first=None if request.param == "everybody" else False)


@pytest.mark.parametrize("check", CHECKS)
def test_everybody_is_there_by_a_coin_of_their_own(samples, check):
    """Fails, too, if more records bring anybody in more often."""
    assert CHECKS[check](samples) > P_VALUE


@pytest.mark.parametrize(("check", "broken"), BROKEN)
def test_a_broken_sampler_is_caught(check, broken):
    assert CHECKS[check](who(Faulty(broken))) < P_VALUE


def law_of_chosen(n, k, gamma):
    """Return the probability of every set of chosen people, by all outcomes of all coins."""
    law = {}
    for coins in product((0, 1), repeat=n):
        chosen = tuple(i for i in range(n) if coins[i])[:k]
        heads = sum(coins)
        law[chosen] = law.get(chosen, 0.0) + gamma**heads * (1 - gamma) ** (n - heads)
    return law


def drawn(radius, coins, n=6, k=2, gamma=0.4, queries=40_000):
    """Return how often every set is chosen, looking at `radius` + 1 people first."""
    integers = np.arange(n, dtype=np.float32)[:, None]
    knn = PoissonKNN(RBF(1.0, 1.0), integers, np.arange(n, dtype=np.int32), n, k, gamma)
    asked = np.zeros((queries, 1), np.float32)
    candidates = knn._index.search(asked, np.full(queries, -(radius**2), dtype=np.int64))
    chosen = np.sort(
        SampledNeighbourSearch(knn, gamma, coins).draw_nearest(asked, candidates), axis=1
    )
    sets, counts = np.unique(chosen, axis=0, return_counts=True)
    keys = [tuple(row[row != NO_RECORD].tolist()) for row in sets]
    return dict(zip(keys, counts.tolist(), strict=True))


def chosen_p(found, n=6, k=2, gamma=0.4):
    law = law_of_chosen(n, k, gamma)
    total = sum(found.values())
    assert set(found) <= set(law)
    observed = [found.get(key, 0) for key in law]
    return float(chisquare(observed, [total * p for p in law.values()]).pvalue)


@pytest.mark.parametrize("radius", [0, 1, 3, 6])
def test_stopping_early_changes_no_law(radius):
    """Fails if looking at the nearest first makes any set of voters likelier."""
    queries = 40_000 if radius > 3 else 6_000
    assert chosen_p(drawn(radius, SystemBernoulli(), queries=queries)) > P_VALUE


def test_a_walk_that_never_goes_on_is_caught(monkeypatch):
    monkeypatch.setattr(
        SampledNeighbourSearch,
        "_draw_from_all",
        lambda self, query, rows, hits: self.knn.select_nearest(
            self.knn.list_all_records(query), np.sort(rows[hits]).astype(np.int64)
        ),
    )
    assert chosen_p(drawn(1, SystemBernoulli(), queries=6_000)) < P_VALUE
