"""Attacks by the likelihood ratio: on noisy sums, labels, planned releases."""

import math
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import log_ndtr, ndtr
from scipy.stats import binom
from sklearn.dummy import DummyClassifier

from vicinal.arrays import AnyArray, Bools, Floats, Ints
from vicinal.audit.claims import Claim, PlanClaim, ind_knn_claim
from vicinal.audit.interactions import AuditInteraction, Damage, TwoWorlds, damages
from vicinal.audit.schedule import AuditTrial
from vicinal.baselines.noisy_sgd import NoisySGDClassifier
from vicinal.baselines.pate import PATEClassifier
from vicinal.errors import PrivacyRefused
from vicinal.mechanisms.noise_sources import public_draws
from vicinal.mechanisms.private_knn import NearestOfSample
from vicinal.neighbours.kernels import IntegerMatrix
from vicinal.neighbours.poisson_knn import Chosen
from vicinal.neighbours.scan import NeighbourLists
from vicinal.predictors.private_knn import PrivateKNNClassifier
from vicinal.testing import Transcript, noise_from

MOST_RUNS, NUMBERS_AT_ONCE = 1 << 12, 1 << 18
"""Runs between two looks at the clock, at most, and numbers that noise is added to for them."""

CERTAIN = 1e3
"""Added to the log likelihood ratio where something left that is not made of noisy sums."""

_NODES, _NODE_WEIGHTS = np.polynomial.hermite_e.hermegauss(81)


class SumsTrial(AuditTrial):
    """Noisy sums of an interaction, or the labels made of its votes: all that was released.

    `world` says where the subject stands; `broken` what to break.
    """

    def __init__(
        self,
        mechanism: str,
        interaction: AuditInteraction,
        world: str,
        broken: Mapping[str, Damage],
        claim: Claim | None = None,
    ) -> None:
        self.mechanism, self.world = mechanism, world
        plan = interaction.plan
        self.claim = claim or ind_knn_claim(plan)
        self._interaction, self._damages = interaction, broken
        self._table = plan.charges if plan.label_only else None
        self._prepare()

    def _prepare(self) -> None:
        self._worlds = TwoWorlds.of(self._interaction, self._damage)
        size = sum(sums.size for sums in self._worlds.absent)
        self._runs = max(64, min(MOST_RUNS, NUMBERS_AT_ONCE // max(1, size)))
        classes = len(self._interaction.parameters.get("classes", ()))
        self.moved = self._worlds.moved(self._table, classes)
        # Votes and no gradients: these have a row for each feature.
        self._labels = [
            self._table is not None and sums.shape == (1, classes) for sums in self._worlds.absent
        ]

    def play(self, present: bool) -> Floats:
        drawn = self._worlds.drawn(present, self._damage.noise(), self._runs)
        leaked = present and not self._worlds.alike
        total = np.full(self._runs, CERTAIN if leaked else 0.0)
        parts = zip(drawn, self._worlds.absent, self._worlds.shifts(), self._worlds.scales,
                    self._labels, strict=True)  # fmt: skip
        for noisy, absent, shift, scale, label in parts:
            if label:
                total += label_ratio(noisy.argmax(axis=2), absent / scale, shift)
            else:
                away = (noisy - absent) / scale - shift / 2
                total += (away * shift).reshape(self._runs, -1).sum(axis=1)
        return total


def label_ratio(labels: Ints, votes: Floats, shift: Floats) -> Floats:
    """Return the log likelihood ratio of whether the first class won; votes in noise scales."""
    absent, there = chances_of_first(votes), chances_of_first(votes + shift)
    won, lost = np.log(there / absent), np.log((1 - there) / (1 - absent))
    return np.asarray(np.where(labels == 0, won, lost).sum(axis=1))


def chances_of_first(votes: Floats) -> Floats:
    """Return how likely the first class has the most noisy votes; `votes` in noise scales."""
    leads = votes[..., :1] - votes[..., 1:]
    wins = np.zeros(votes.shape[:-1])
    for node, weight in zip(_NODES.tolist(), _NODE_WEIGHTS.tolist(), strict=True):
        wins += weight * np.exp(log_ndtr(node + leads).sum(axis=-1))
    return np.clip(wins / math.sqrt(2 * math.pi), 1e-12, 1 - 1e-12)


# ---------------------------------------------------------------- noisy gradients of a plan

_SUBJECTS = 1024


class NoisySGDTrial(AuditTrial):
    """All noisy gradients of a training, of subjects who each have a feature of their own.

    Of a subject's two records, which are opposite and say opposite things, nothing is left along
    the bias that all share: each subject's gradient lies along its own feature, cut to the bound.
    """

    mechanism = "NoisySGD"
    world = "gradients of one subject, alone on its feature"
    _damages = damages("noise halved", "subjects forgotten", "everybody sampled", "twice the plan")

    def __init__(
        self, gamma: float = 0.15, epsilon: float = 8.0, steps: int = 3, delta: float = 1e-5
    ) -> None:
        self._classifier = NoisySGDClassifier(
            range(2), epsilon=epsilon, delta=delta, n_steps=steps, sampling_rate=gamma,
            n_records=10 * _SUBJECTS, interactions="public",
        )  # fmt: skip
        self._gamma = gamma
        self.claim = PlanClaim(self._classifier.plan())

    def play(self, present: bool) -> Floats:
        axes = np.eye(_SUBJECTS, _SUBJECTS + 1)
        if not present:
            axes = axes[:0]
        nobody = np.eye(1, _SUBJECTS + 1, _SUBJECTS)
        X, y = np.concatenate([axes, -axes, nobody]), np.repeat([0, 1, 0], [len(axes)] * 2 + [1])
        ids = np.concatenate([np.arange(len(axes))] * 2 + [[_SUBJECTS]])
        seen = Transcript(self._damage.noise())
        with noise_from(seen), self._damage.done():
            self._classifier.fit(X, y, None if self._damage.forgets_subjects else ids)
        sigma = self._classifier.noise_multiplier_
        total = np.zeros(_SUBJECTS)
        for _, scale, noisy in seen.released:
            # In noise scales, along a subject's feature: class 1 less class 0.
            along = (noisy[:_SUBJECTS, 1] - noisy[:_SUBJECTS, 0]) / (math.sqrt(2) * scale)
            away = (along - 0.5 / sigma) / sigma
            total += np.logaddexp(math.log(self._gamma) + away, math.log1p(-self._gamma))
        return total


# ---------------------------------------------------------------- plans of Private-kNN and PATE
# One made-up data set is asked again and again. All queries of these mechanisms cost the same and
# share no state but a counter, so a plan of q queries is carried out many times over by one data
# set, and its runs are independent. The law of what leaves is known for both worlds, and the
# attacker tests by the likelihood ratio of all of it.

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
        out = math.log(1 - self.gamma) if self.gamma < 1 else -math.inf
        return np.logaddexp(math.log(self.gamma) + away, out)

    def _mixed(self, absent: float, taking: float) -> float:
        return (1 - self.gamma) * absent + self.gamma * taking


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
        return self._law.score(*fitted._answers(np.zeros((size, fitted.n_features_in_))))

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
