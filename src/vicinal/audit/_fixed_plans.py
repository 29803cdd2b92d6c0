"""Audits of Private-kNN and PATE: one made-up data set asked again and again.

All queries of these mechanisms cost the same and share no state but a counter, so a plan of q
queries is carried out many times over by one data set, and its runs are independent. The law of
what leaves is known for both worlds, and the attacker tests by the likelihood ratio of all of it.
"""

import math
from abc import abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import ndtr
from scipy.stats import binom
from sklearn.dummy import DummyClassifier

from vicinal._arrays import AnyArray, Bools, Floats
from vicinal.audit._claims import PlanClaim
from vicinal.audit._interactions import damages
from vicinal.audit._schedule import AuditTrial
from vicinal.baselines import PATEClassifier
from vicinal.errors import PrivacyRefused
from vicinal.mechanisms import NearestOfSample, public_draws
from vicinal.neighbours import Chosen, IntegerMatrix, NeighbourLists
from vicinal.predictors import PrivateKNNClassifier
from vicinal.testing import noise_from

RUNS = 1 << 12
"""Runs of one data set between two looks at the clock."""

_SIGMA = 0.7  # noise on votes, where an attack on a sample tells most

_TOO_FEW = 1e-9  # how likely a draw holds fewer than k others

_PASSES = 1 << 22  # queries that one fitted classifier is planned for

_FITS, _TIMES = 64, 4  # runs that are fitted one by one, and how often their plan is asked for


@dataclass(frozen=True)
class AnswerLaw:
    """The law of one answer in both worlds.

    The subject adds `moved` (c,) to `votes` (c,) where it takes part, with chance `gamma`. Of
    labels alone it is seen whether the first of two classes won. `screen`: threshold and noise.
    """

    votes: Floats
    moved: Floats
    gamma: float
    sigma: float
    label_only: bool = False
    screen: tuple[float, float] | None = None

    def score(self, passed: Bools, answers: AnyArray) -> Floats:
        """Return the log likelihood ratio of every query's answer, (q,)."""
        ratios = np.zeros(len(passed))
        if self.screen is not None:
            threshold, noise = self.screen
            tops = (self.votes.max(), (self.votes + self.moved).max())
            absent, taking = (float(ndtr((top - threshold) / noise)) for top in tops)
            ratios += _coin_ratio(passed, absent, self._mixed(absent, taking))
        ratios[passed] += self._of_answers(answers)
        return ratios

    def _of_answers(self, answers: AnyArray) -> Floats:
        if self.label_only:
            absent, taking = (
                float(ndtr((votes[0] - votes[1]) / (math.sqrt(2) * self.sigma)))
                for votes in (self.votes, self.votes + self.moved)
            )
            return _coin_ratio(answers == 0, absent, self._mixed(absent, taking))
        away = (answers - self.votes - self.moved / 2) @ self.moved / self.sigma**2
        return np.logaddexp(math.log(self.gamma) + away, _log(1 - self.gamma))

    def _mixed(self, absent: float, taking: float) -> float:
        return (1 - self.gamma) * absent + self.gamma * taking


def _log(chance: float) -> float:
    return math.log(chance) if chance > 0 else -math.inf


def _coin_ratio(happened: Bools, absent: float, present: float) -> Floats:
    absent, present = (min(max(p, 1e-300), 1 - 1e-16) for p in (absent, present))
    return np.where(happened, math.log(present / absent), math.log((1 - present) / (1 - absent)))


class FixedPlanTrial(AuditTrial):
    """A plan of a few queries, carried out by one data set thousands of times.

    `classifier`: with the plan of one run, not fitted. `broken`: names of versions to try as well.
    `beyond`: whether every run is fitted by itself, and asked on until it refuses.
    """

    def __init__(
        self, classifier: Any, law: AnswerLaw, world: str, *broken: str, beyond: bool = False
    ) -> None:
        self.world, self._beyond = world, beyond
        self.claim = PlanClaim(classifier.plan())
        self._plan, self._law, self._damages = classifier, law, damages(*broken)
        self._prepare()

    def _prepare(self) -> None:
        self._ready: dict[bool, Any] = {}

    def play(self, present: bool) -> Floats:
        queries = self._plan.n_queries
        if self._beyond:
            return np.array([self._asked_on(present) for _ in range(_FITS)])
        fitted = self._ready.get(present)
        if fitted is None or fitted._settings.n_queries - fitted.n_asked_ < RUNS * queries:
            fitted = self._ready[present] = self._fitted(present, _PASSES)
        scores = self._scores(fitted, RUNS * queries).reshape(RUNS, queries)
        return np.asarray(scores.sum(axis=1))

    def _asked_on(self, present: bool) -> float:
        """Return the score of one fitted classifier that is asked until it refuses."""
        size, total = self._plan.n_queries, 0.0
        fitted = self._fitted(present, size)
        for _ in range(_TIMES):
            try:
                total += float(self._scores(fitted, size).sum())
            except PrivacyRefused:
                break
        return total

    def _scores(self, fitted: Any, size: int) -> Floats:
        return self._law.score(*fitted._answers(np.zeros((size, fitted.n_features_in_)), None))

    def _fitted(self, present: bool, n_queries: int) -> Any:
        parameters = self._plan.get_params(deep=False) | {
            "n_queries": n_queries,
            "interactions": "public",
        }
        with noise_from(self._damage.noise()), self._damage.done():
            fitted = self._fit(type(self._plan)(**parameters), present)
        if self._damage.replaces:
            self._scores(fitted, 1)  # the sampler is made for the first query
            honest = fitted._release.nearest
            fitted._release.nearest = ReplacementSample(honest.knn, honest.gamma, honest._source)
        return fitted

    @abstractmethod
    def _fit(self, classifier: Any, present: bool) -> Any:
        """Return the classifier, fitted on one world."""


# ---------------------------------------------------------------- Private-kNN


class PrivateKNNTrial(FixedPlanTrial):
    """Everybody says class 1, the subject stands next to the query and says class 0."""

    mechanism = "Private-kNN"

    def _fit(self, classifier: Any, present: bool) -> Any:
        others = _crowd(classifier)
        own = 3 if present else 0  # records, which count as one subject
        places = np.arange(1, own + others + 1)[:, None] * np.array([[1.0, 0.0]])
        labels = np.repeat([0, 1], [own, others])
        ids = np.concatenate([np.zeros(own, dtype=int), 1 + np.arange(others)])
        return classifier.fit(places, labels, None if self._damage.forgets_subjects else ids)


def _crowd(classifier: Any) -> int:
    """Return how many others there must be for k of them to be sampled, but once in 10^9 draws.

    Where fewer are, the attacker's score is off; what scores prove holds for any score.
    """
    k, gamma = int(classifier.n_neighbors), float(classifier.sampling_rate)
    others = k
    while binom.cdf(k - 1, others, gamma) > _TOO_FEW:
        others += math.ceil(1 / gamma)
    return others


_SCREENS = {"screening": (2 - 1.5 * _SIGMA, _SIGMA), "screened": (2 - 1.5 * 1.5, 1.5)}
"""Thresholds and noise of screenings that k = 2 unanimous neighbours pass now and then."""

_PRIVATE_KNN: dict[str, tuple[str, int, float, tuple[str, ...]]] = {
    "votes": ("votes, sampled at {gamma:g}, subject next", 2, _SIGMA,
         ("noise halved", "everybody sampled", "subjects forgotten")),
    "all": ("votes, everybody takes part", 3, 2.0, ("drawn with replacement", "noise halved")),
    "plan": ("votes, asked on when the plan is carried out", 3, 2.0, ("four times the plan",)),
    "labels": ("labels, one neighbour", 1, _SIGMA, ("everybody sampled",)),
    # Answers have noise that hides all.
    "screening": ("screening, unanimous neighbours", 2, 1e6, ("everybody sampled",)),
    "screened": ("screening, then votes of what passed", 2, _SIGMA,
                 ("noise halved", "everybody sampled")),
}  # fmt: skip
"""World, k, noise on votes, and broken versions of each attack."""


def private_knn(attack: str, gamma: float = 0.15, delta: float = 1e-5) -> PrivateKNNTrial:
    """Return the attack on k neighbours who say class 1, one of whom the subject takes away."""
    world, k, sigma, broken = _PRIVATE_KNN[attack]
    gamma = 1.0 if attack in ("all", "plan") else gamma
    label_only, screen = attack == "labels", _SCREENS.get(attack)
    threshold, sigma_screen = screen or (None, None)
    classifier = PrivateKNNClassifier(
        range(2), k, gamma, sigma_votes=sigma, sigma_screen=sigma_screen, threshold=threshold,
        n_queries=2 if attack == "votes" else 1, delta=delta, norm_bound=1e4,
        release="label" if label_only else "votes",
    )  # fmt: skip
    votes, moved = np.array([0.0, float(k)]), np.array([1.0, -1.0])
    law = AnswerLaw(votes, moved, gamma, sigma, label_only, screen)
    world = world.format(gamma=gamma)
    return PrivateKNNTrial(classifier, law, world, *broken, beyond=attack == "plan")


# ---------------------------------------------------------------- PATE


class PATETrial(FixedPlanTrial):
    """All teachers say class 0 but the one that the subject's records decide."""

    mechanism = "PATE"

    def _fit(self, classifier: Any, present: bool) -> Any:
        own = 4 if present else 0
        labels = np.repeat([1, 0], [own, 1])
        ids = None if self._damage.forgets_subjects else np.repeat([0, 1], [own, 1])
        return classifier.fit(np.zeros((own + 1, 1)), labels, ids)


def pate_votes(delta: float = 1e-5, *, beyond: bool = False) -> PATETrial:
    """Return the attack on votes of teachers; or `beyond` what was planned."""
    teachers, sigma = 3 if beyond else 50, 2.0
    classifier = PATEClassifier(
        range(2), teachers, sigma_votes=sigma,
        teacher=DummyClassifier(strategy="constant", constant=1), n_queries=2, delta=delta,
    )  # fmt: skip
    law = AnswerLaw(np.array([float(teachers), 0.0]), np.array([-1.0, 1.0]), 1.0, sigma)
    world = "votes, a teacher that the subject decides" + (", asked on" if beyond else "")
    broken = ("four times the plan",) if beyond else ("noise halved", "subjects forgotten")
    return PATETrial(classifier, law, world, *broken, beyond=beyond)


# ---------------------------------------------------------------- broken versions


class ReplacementSample(NearestOfSample):
    """A sample of fixed size with replacement, in which one person votes several times."""

    def draw(self, queries: IntegerMatrix, near: NeighbourLists | None) -> Chosen:  # noqa: ARG002
        subjects, first = np.unique(self.knn.slots, return_index=True)
        size = round(self.gamma * len(subjects))
        drawn = public_draws().integers(0, len(first), (len(queries), size))
        rows = np.sort(first[drawn], axis=1)[:, : self.knn.k]
        return np.ascontiguousarray(rows, dtype=np.int32)
