"""Two worlds of Private-kNN at small k: the exact law of what leaves, and what a subject changes.

With two classes the law of an answer can be written down: coins are enumerated, a screening passes
with probability Phi, and the first class wins with probability Phi of the margin. (1) What the
estimator returns has that law. (2) Over *all* small data sets, the law with a subject and without
one are no further apart than the accounting says. Broken mechanisms fail (1), broken claims (2).
"""

from dataclasses import dataclass
from itertools import product

import numpy as np
import pytest
from scipy.special import ndtr

from statistical.power import P_VALUE
from statistical.small_data import ORDERS, law_p, worst_over_all_data
from vicinal.accounting.composition import Composition
from vicinal.accounting.label_only import NoisyLabel
from vicinal.accounting.screening import Screening
from vicinal.mechanisms import NoiseSource
from vicinal.mechanisms.planned_releases import NoisyThreshold
from vicinal.mechanisms.private_knn import SampledNeighbourSearch
from vicinal.neighbours.poisson_knn import NO_RECORD, PoissonKNN
from vicinal.predictors import PrivateKNNClassifier

pytestmark = pytest.mark.statistical

QUERIES = 25_000
"""Of these, each broken mechanism passes with probability below 1e-6."""

OUTCOMES = ("failed", "class 0", "class 1")


@dataclass(frozen=True)
class Setting:
    """Parameters of a small Private-kNN; data sets are labels 0 and 1 in order of distance."""

    k: int = 2
    gamma: float = 0.4
    threshold: float = 1.3
    sigma_screen: float = 0.6
    sigma_votes: float = 0.8

    def votes(self, labels):
        """Return {votes (2,): probability} of one Poisson sample."""
        law = {}
        for coins in product((False, True), repeat=len(labels)):
            voters = [y for y, coin in zip(labels, coins, strict=True) if coin][: self.k]
            chance = np.prod([self.gamma if coin else 1 - self.gamma for coin in coins])
            key = (voters.count(0), voters.count(1))
            law[key] = law.get(key, 0.0) + float(chance)
        return law

    def outcome(self, labels):
        """Return the probabilities of :data:`OUTCOMES`, with a fresh sample for the vote."""
        votes = self.votes(labels)
        passing = sum(p * self.passes(v) for v, p in votes.items())
        first = sum(p * self.first(v) for v, p in votes.items())
        return np.array([1 - passing, passing * first, passing * (1 - first)])

    def passes(self, votes):
        return float(ndtr((max(votes) - self.threshold) / self.sigma_screen))

    def first(self, votes):
        return float(ndtr((votes[0] - votes[1]) / (np.sqrt(2) * self.sigma_votes)))

    def on_one_sample(self, labels):
        """Return the law of a mechanism that votes with the sample that was screened."""
        joint = [
            (p * self.passes(v), p * self.passes(v) * self.first(v))
            for v, p in self.votes(labels).items()
        ]
        passing, first = np.sum(joint, axis=0)
        return np.array([1 - passing, first, passing - first])

    def classifier(self, **more):
        return PrivateKNNClassifier(
            range(2), self.k, self.gamma, sigma_screen=self.sigma_screen,
            threshold=self.threshold, sigma_votes=self.sigma_votes, n_queries=QUERIES, **more,
        )  # fmt: skip


SETTING = Setting()


def ask(labels, ids=None, setting=SETTING):
    """Return how often each of :data:`OUTCOMES` came of one query asked again and again."""
    places = np.arange(1, len(labels) + 1)[:, None] * np.array([[1.0, 0.0]])
    estimator = setting.classifier().fit(places, np.array(labels), ids)
    answers = estimator.predict(np.zeros((QUERIES, 2)))
    return np.array([(answers == mark).sum() for mark in (-1, 0, 1)])


DATA = [(0, 1, 1), (1, 1, 1, 0), (0,), (1, 0, 1, 0, 0)]


@pytest.mark.parametrize("labels", DATA)
def test_answers_have_the_exact_law(labels):
    assert law_p(ask(labels), SETTING.outcome(labels)) > P_VALUE


def test_a_person_with_many_records_has_the_law_of_one():
    found = ask((0, 0, 0, 1, 0, 1), ["one", "one", "one", "b", "one", "c"])
    assert law_p(found, SETTING.outcome((0, 1, 1))) > P_VALUE
    assert law_p(found, SETTING.outcome((0, 0, 0, 1, 0, 1))) < P_VALUE


def fixed_size(self, queries, candidates):  # noqa: ARG001 (takes the place of a method)
    """Choose among a sample of fixed size."""
    rng = np.random.default_rng(0)
    size = len(self.knn)
    ranks = rng.random((len(queries), size)).argsort(axis=1)
    sample = np.flatnonzero(ranks.ravel() < round(self.gamma * size))
    return self.knn.find_nearest_sampled(queries, sample)


def with_replacement(self, queries, candidates):  # noqa: ARG001 (takes the place of a method)
    """Let one person vote several times, as the published code does."""
    rng = np.random.default_rng(0)
    size = len(self.knn)
    drawn = np.sort(rng.integers(0, size, (len(queries), round(self.gamma * size))), axis=1)
    chosen = np.full((len(queries), self.knn.k), NO_RECORD, dtype=np.int32)
    chosen[:, : drawn.shape[1]] = drawn[:, : self.knn.k]
    return chosen


def quieter(patch):
    """Draw half of the noise."""
    honest = NoiseSource.add_to
    patch.setattr(
        NoiseSource, "add_to", lambda self, sums, scale: honest(self, 2 * sums, scale) // 2
    )


def sharper(patch):
    """Screen with half of the noise."""
    honest = NoisyThreshold.compute_noise_limit

    def doubled(self, votes):
        return 2 * honest(self, votes)[0], 0.5

    patch.setattr(NoisyThreshold, "compute_noise_limit", doubled)


BROKEN = {
    "a fixed-size sample": lambda patch: patch.setattr(
        SampledNeighbourSearch, "draw_nearest", fixed_size
    ),
    "a sample with replacement": lambda patch: patch.setattr(
        SampledNeighbourSearch, "draw_nearest", with_replacement
    ),
    "too little noise on the votes": quieter,
    "too little noise on the screening": sharper,
    "no coins": lambda patch: patch.setattr(
        PoissonKNN,
        "select_nearest",
        lambda self, near, sampled: HONEST_FIRST(self, near, np.ones_like(sampled)),
    ),
}
HONEST_FIRST = PoissonKNN.select_nearest


@pytest.mark.parametrize("broken", BROKEN)
def test_a_broken_mechanism_is_caught(monkeypatch, broken):
    BROKEN[broken](monkeypatch)
    assert law_p(ask((1, 1, 1, 1, 1)), SETTING.outcome((1, 1, 1, 1, 1))) < P_VALUE


def test_voting_on_the_screened_sample_is_caught(monkeypatch):
    labels = (1, 1, 0, 0, 1)

    def one_sample(self, queries):
        candidates = self.nearest.find_candidates(queries)
        chosen = self.nearest.draw_nearest(queries, candidates)
        counts = self._vote_encoding.count_votes(chosen, 1).max(axis=1)
        passed = self.screening.publish(counts)
        votes = self._vote_encoding.count_votes(chosen[passed], self.voting.steps)
        return passed, self.voting.publish(votes)

    release = "vicinal.mechanisms.private_knn.PrivateKNNRelease"
    monkeypatch.setattr(f"{release}._answer_block", one_sample)
    found = ask(labels)
    assert law_p(found, SETTING.outcome(labels)) < P_VALUE
    assert law_p(found, SETTING.on_one_sample(labels)) > P_VALUE


def claimed(setting, gamma=None, sensitivity=1.0):
    """Return the RDP of one screened and answered query; arguments make the claim wrong."""
    gamma = setting.gamma if gamma is None else gamma
    screening = Screening(setting.k, setting.threshold, setting.sigma_screen / sensitivity, gamma)
    label = NoisyLabel(setting.sigma_votes / sensitivity, gamma, 2)
    return Composition.from_release(screening).add(Composition.from_release(label)).rdp(ORDERS)


SETTINGS = [
    SETTING,
    Setting(gamma=1.0),
    Setting(k=1, gamma=0.2),
    Setting(k=3, threshold=2.5, sigma_screen=1.5, sigma_votes=2.0, gamma=0.7),
    Setting(threshold=0.0, sigma_screen=0.3),
]


@pytest.mark.parametrize("setting", SETTINGS)
def test_no_data_set_leaks_more_than_is_claimed_and_the_claim_is_not_idle(setting):
    """Fails, too, if the claim is so loose that a mechanism could be much worse and pass.

    At the lowest order: higher ones ask for worlds in which an attacker knows others' coins. With a
    threshold of 0 every query passes.
    """
    worst = worst_over_all_data(setting.outcome)
    assert (worst <= claimed(setting)).all()
    assert worst[0] >= 0.25 * claimed(setting)[0] or setting.threshold == 0


@pytest.mark.parametrize(
    "wrong", [{"gamma": 0.15}, {"sensitivity": 0.5}], ids=["sampling rate", "sensitivity"]
)
def test_a_wrong_claim_is_caught(wrong):
    assert (worst_over_all_data(SETTING.outcome) > claimed(SETTING, **wrong)).any()
